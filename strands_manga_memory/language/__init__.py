"""What words mean: pure functions on text, in English and Japanese."""

from typing import TYPE_CHECKING

from strands_manga_memory.lazy import door

if TYPE_CHECKING:
    from strands_manga_memory.language.acts.act_rules import DialogueAct
    from strands_manga_memory.language.acts.acts import dialogue_act
    from strands_manga_memory.language.entities.entities import Entity, EntityType, EntityTypes, named
    from strands_manga_memory.language.entities.entity_kinds import GENERAL
    from strands_manga_memory.language.entities.entity_shop import SHOP
    from strands_manga_memory.language.search.lexical import LexicalIndex
    from strands_manga_memory.language.slots.slot_rules import RuleSlotExtractor
    from strands_manga_memory.language.slots.slots import Slot, SlotExtractor, SlotKind
    from strands_manga_memory.language.summaries.session_summary import RuleSessionSummarizer, SessionSummarizer, SessionSummary
    from strands_manga_memory.language.summaries.summarizer import Draft, Prompt, Summarizer
    from strands_manga_memory.language.summaries.summarizing import ModelSessionSummarizer
    from strands_manga_memory.language.texts.normalize import normalized
else:
    __getattr__, __dir__ = door(
        __name__,
        {
            "acts.act_rules": "DialogueAct",
            "acts.acts": "dialogue_act",
            "entities.entities": "Entity EntityType EntityTypes named",
            "entities.entity_kinds": "GENERAL",
            "entities.entity_shop": "SHOP",
            "search.lexical": "LexicalIndex",
            "slots.slot_rules": "RuleSlotExtractor",
            "slots.slots": "Slot SlotExtractor SlotKind",
            "summaries.session_summary": "RuleSessionSummarizer SessionSummarizer SessionSummary",
            "summaries.summarizer": "Draft Prompt Summarizer",
            "summaries.summarizing": "ModelSessionSummarizer",
            "texts.normalize": "normalized",
        },
    )

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
