"""Texts of turns that user memory keeps for recall."""

from __future__ import annotations

from strands_manga_memory.memory.finalizing import passages_of
from strands_manga_memory.messages.transcripts import Utterance


def test_a_number_of_the_assistant_does_not_choose_the_corrected_turn() -> None:
    said = [
        ("Which year was Uzumaki printed?", "In 2024."),
        ("My budget is 40 pounds.", "Noted."),
        ("Actually make that 60.", "Noted for 2024."),
    ]
    texts = [
        (role, text, turn) for turn, pair in enumerate(said) for role, text in zip(("user", "assistant"), pair, strict=True)
    ]
    passages = passages_of([Utterance(role, text, turn, 1.0) for role, text, turn in texts])
    assert ["Actually make that 60." in passage for passage in passages] == [False, True]
