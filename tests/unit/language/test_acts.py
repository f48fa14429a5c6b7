"""Dialogue acts in English and Japanese."""

import pytest

from strands_manga_memory.language import DialogueAct, dialogue_act
from tests.lines import rows


@pytest.mark.parametrize(("role", "text", "act"), rows("acts"))
def test_says_what_a_message_does(role: str, text: str, act: str) -> None:
    assert dialogue_act(text, role) == DialogueAct(act)
    if act in ("constraint", "instruction"):
        assert dialogue_act(text, "assistant") != act


def test_case_typographic_apostrophes_and_surrounding_space_do_not_matter() -> None:
    assert dialogue_act("  I CAN\u2019T STAND CLIFFHANGERS  ", "user") == DialogueAct.PREFERENCE


def test_of_a_long_text_the_beginning_and_the_end_are_read() -> None:
    filler = "The parcel was left at the door and nobody was home. " * 40
    assert dialogue_act(f"I prefer hardcovers. {filler}", "user") == DialogueAct.PREFERENCE
    assert dialogue_act(f"{filler} I prefer hardcovers.", "user") == DialogueAct.PREFERENCE
    assert dialogue_act(f"{filler} I prefer hardcovers. {filler}", "user") == DialogueAct.UNMATCHED
