"""Rules that analyze English and Japanese text.

The rules classify messages, find entities, preferences, facts and search terms, and summarize
sessions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strands_manga_memory.lazy_imports import lazy_names

if TYPE_CHECKING:
    from strands_manga_memory.language.dialogue_acts import DialogueAct, dialogue_act
    from strands_manga_memory.language.entities import (
        GENERAL,
        SHOP,
        Entity,
        EntityType,
        EntityTypes,
        named,
    )
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
    from strands_manga_memory.language.summary_facts import (
        Fact,
        FactExtractor,
        FactKind,
        RuleFactExtractor,
    )
    from strands_manga_memory.language.text_features import normalized

_NAMES = {
    "dialogue_acts": "DialogueAct dialogue_act",
    "entities": "Entity EntityType EntityTypes GENERAL SHOP named",
    "search": "LexicalIndex",
    "session_summaries": (
        "Draft ModelSessionSummarizer Prompt RuleSessionSummarizer SessionSummarizer SessionSummary"
        " Summarizer"
    ),
    "summary_facts": "Fact FactExtractor FactKind RuleFactExtractor",
    "text_features": "normalized",
}
"""Public names of each module.
The modules compile many patterns, so each is imported at the first use of its names.
"""

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

__getattr__, __dir__ = lazy_names(__name__, _NAMES, __all__)
