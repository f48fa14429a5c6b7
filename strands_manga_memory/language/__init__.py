"""Rules that read English and Japanese text: dialogue acts, entities, preferences, facts, search terms, session summaries."""

from strands_manga_memory.language.dialogue_acts import DialogueAct, dialogue_act
from strands_manga_memory.language.entities import Entity, EntityType, EntityTypes, named
from strands_manga_memory.language.entity_types import GENERAL, SHOP
from strands_manga_memory.language.search import LexicalIndex
from strands_manga_memory.language.session_summaries import (
    Draft,
    ModelSessionSummarizer,
    Prompt,
    RuleSessionSummarizer,
    SessionSummarizer,
    SessionSummary,
    Summarizer,
)
from strands_manga_memory.language.summary_facts import Fact, FactExtractor, FactKind, RuleFactExtractor
from strands_manga_memory.language.text_features import normalized

__all__ = [
    "GENERAL",
    "SHOP",
    "DialogueAct",
    "Draft",
    "Entity",
    "EntityType",
    "EntityTypes",
    "Fact",
    "FactExtractor",
    "FactKind",
    "LexicalIndex",
    "ModelSessionSummarizer",
    "Prompt",
    "RuleFactExtractor",
    "RuleSessionSummarizer",
    "SessionSummarizer",
    "SessionSummary",
    "Summarizer",
    "dialogue_act",
    "named",
    "normalized",
]
