"""Standing instructions: known by their form, in effect until they are taken back."""

from collections.abc import Iterable

import pytest

from strands_manga_memory.language import RuleFactExtractor, dialogue_act
from strands_manga_memory.language.instructions import are_instructions_active, revokes_instruction
from tests.lines import rows
from tests.unit.conversation.messages import assistant, user


@pytest.mark.parametrize("text", rows("no_instructions"))
def test_a_request_a_habit_or_a_courtesy_is_none(text: str) -> None:
    assert dialogue_act(text, "user") != "instruction"


def acts(texts: Iterable[str]) -> list[tuple[str, str]]:
    return [(dialogue_act(text, "user"), text) for text in texts]


@pytest.mark.parametrize(("texts", "stands"), rows("active_instructions"))
def test_it_stands_until_it_is_taken_back(texts: list[str], stands: list[bool]) -> None:
    """A revocation in the other language ends the instruction of its topic."""
    assert are_instructions_active(acts(texts)) == stands


def test_what_takes_back_nothing_known_takes_back_nothing() -> None:
    assert revokes_instruction("You can stop using bullet points.")
    assert are_instructions_active(
        acts(("Use metric units from now on.", "You can stop shouting."))
    ) == [True, False]


def test_a_summary_keeps_what_stands_and_drops_what_was_taken_back() -> None:
    extract = RuleFactExtractor().extract
    said = [
        user("Use metric units from now on."),
        assistant("OK."),
        user("毎回、税込価格で教えてください。"),
        assistant("はい。"),
    ]
    assert [slot.kind.value for slot in extract(said)][:2] == ["preference", "preference"]
    texts = [s.text for s in extract([*said, user("You don't need to use metric units any more.")])]
    assert not any(text.startswith("Use metric") for text in texts)
    assert any("税込価格" in text for text in texts)
