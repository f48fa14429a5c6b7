"""What words mean: pure functions on text, in English and Japanese."""

from strands_manga_memory.language.acts import DialogueAct, dialogue_act

__all__ = ["DialogueAct", "dialogue_act"]
