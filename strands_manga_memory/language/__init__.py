"""Rules that read English and Japanese text: dialogue acts, entities, preferences, facts, search terms, session summaries."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_MODULES = {
    "DialogueAct": "dialogue_acts",
    "Draft": "session_summaries",
    "Entity": "entities",
    "EntityType": "entities",
    "EntityTypes": "entities",
    "Fact": "summary_facts",
    "FactExtractor": "summary_facts",
    "FactKind": "summary_facts",
    "GENERAL": "entity_types",
    "LexicalIndex": "search",
    "ModelSessionSummarizer": "session_summaries",
    "Prompt": "session_summaries",
    "RuleFactExtractor": "summary_facts",
    "RuleSessionSummarizer": "session_summaries",
    "SHOP": "entity_types",
    "SessionSummarizer": "session_summaries",
    "SessionSummary": "session_summaries",
    "Summarizer": "session_summaries",
    "dialogue_act": "dialogue_acts",
    "named": "entities",
    "normalized": "text_features",
}
"""The module of each name. They compile many patterns, so each is imported at the first use of its names."""

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


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
