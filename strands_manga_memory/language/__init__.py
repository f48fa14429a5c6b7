"""What words mean: pure functions on text, in English and Japanese."""

from strands_manga_memory.language.acts import DialogueAct, dialogue_act
from strands_manga_memory.language.lexical import LexicalIndex
from strands_manga_memory.language.summarizer import ModelSummarizer, RuleSummarizer, Summarizer, Summary

__all__ = ["DialogueAct", "LexicalIndex", "ModelSummarizer", "RuleSummarizer", "Summarizer", "Summary", "dialogue_act"]
