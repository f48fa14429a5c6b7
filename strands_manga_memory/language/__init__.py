"""What words mean: pure functions on text, in English and Japanese."""

from strands_manga_memory.language.act_rules import DialogueAct
from strands_manga_memory.language.acts import dialogue_act
from strands_manga_memory.language.entities import Entity, EntityType, EntityTypes, named
from strands_manga_memory.language.entity_kinds import GENERAL
from strands_manga_memory.language.entity_shop import SHOP
from strands_manga_memory.language.lexical import LexicalIndex
from strands_manga_memory.language.normalize import normalized
from strands_manga_memory.language.session_summary import RuleSessionSummarizer, SessionSummarizer, SessionSummary
from strands_manga_memory.language.slot_rules import RuleSlotExtractor
from strands_manga_memory.language.slots import Slot, SlotExtractor, SlotKind
from strands_manga_memory.language.summarizer import Draft, Prompt, Summarizer
from strands_manga_memory.language.summarizing import ModelSessionSummarizer

__all__ = [
    "GENERAL",
    "SHOP",
    "DialogueAct",
    "Draft",
    "Entity",
    "EntityType",
    "EntityTypes",
    "LexicalIndex",
    "ModelSessionSummarizer",
    "Prompt",
    "RuleSessionSummarizer",
    "RuleSlotExtractor",
    "SessionSummarizer",
    "SessionSummary",
    "Slot",
    "SlotExtractor",
    "SlotKind",
    "Summarizer",
    "dialogue_act",
    "named",
    "normalized",
]
