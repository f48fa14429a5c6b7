"""Standing instructions: known by their form, in effect until they are taken back."""

from __future__ import annotations

import pytest

from strands_manga_memory.language import RuleFactExtractor, dialogue_act
from strands_manga_memory.language.dialogue_acts import are_instructions_active, revokes_instruction
from tests.lines import rows
from tests.unit.conversation.messages import assistant, user


@pytest.mark.parametrize("text", rows("no_instructions"))
def test_a_request_a_habit_or_a_courtesy_is_none(text: str) -> None:
    assert dialogue_act(text, "user") != "instruction"


def acts(texts: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(dialogue_act(text, "user"), text) for text in texts]


@pytest.mark.parametrize(
    ("texts", "stands"),
    [
        (("Always answer in bullet points.", "Use metric units from now on.", "Find me a hotel."), [True, True, False]),
        (
            ("Always answer in bullet points.", "Use metric units from now on.", "You can stop using bullet points."),
            [False, True, False],
        ),
        (("Use metric units from now on.", "You don't need to use metric units any more."), [False, False]),
        (("Always answer in bullet points.", "Ignore my earlier instructions."), [False, False]),
        (("You can stop using bullet points.", "Always answer in bullet points."), [False, True]),
        (
            ("これからは敬語で話してください。", "毎回、税込価格で教えてください。", "もう敬語で話さなくていいですよ。"),
            [False, True, False],
        ),
    ],
)
def test_it_stands_until_it_is_taken_back(texts: tuple[str, ...], stands: list[bool]) -> None:
    assert are_instructions_active(acts(texts)) == stands


def test_what_takes_back_nothing_known_takes_back_nothing() -> None:
    assert revokes_instruction("You can stop using bullet points.")
    assert are_instructions_active(acts(("Use metric units from now on.", "You can stop shouting."))) == [True, False]


def test_a_summary_keeps_what_stands_and_drops_what_was_taken_back() -> None:
    extract = RuleFactExtractor().extract
    said = [
        user("Use metric units from now on."),
        assistant("OK."),
        user("毎回、税込価格で教えてください。"),
        assistant("はい。"),
    ]
    assert [slot.kind.value for slot in extract(said)][:2] == ["preference", "preference"]
    texts = [slot.text for slot in extract([*said, user("You don't need to use metric units any more.")])]
    assert not any(text.startswith("Use metric") for text in texts)
    assert any("税込価格" in text for text in texts)


@pytest.mark.parametrize(
    ("instructions", "revocation", "active"),
    [
        (
            ("Don't use emojis in your answers.", "Always answer in formal language."),
            "もう敬語でなくていいです。",
            (True, False),
        ),
        (
            ("Don't use emojis in your answers.", "Always answer in formal language."),
            "また絵文字を使ってもいいです。",
            (False, True),
        ),
        (
            ("絵文字は使わないでください。", "箇条書きで回答するようにしてください。"),
            "You don't have to use bullet points any more.",
            (True, False),
        ),
        (("これからは必ず敬語で答えてください。",), "You can stop being polite.", (False,)),
        (("これからは必ず敬語で答えてください。",), "You can stop sending the newsletter.", (True,)),
    ],
)
def test_a_revocation_in_the_other_language_ends_the_instruction_of_its_topic(
    instructions: tuple[str, ...], revocation: str, active: tuple[bool, ...]
) -> None:
    said = [(str(dialogue_act(text, "user")), text) for text in (*instructions, revocation)]
    assert are_instructions_active(said) == [*active, False]
