"""Precision and recall of the preferences that rules find in dialogues.

The dialogues are about gifts, occasions, other people, changes of mind and facts. Each row has the
messages of the user, the stated preferences, and further preferences that are no errors. A
preference is (slots, text): one of the slots, separated by ``|``, has a value that contains the
text. Without slots any slot may have it.
"""

import unicodedata

import pytest

from strands_manga_memory.language.preference_slots import OTHERS_TASTES, split_values
from strands_manga_memory.language.preferences import collect_preferences, extract_preferences
from tests.lines import rows

Dialogue = tuple[list[str], list[tuple[str, str]], list[tuple[str, str]]]
_LISTS = ("genre", "author", "format", "likes", "dislikes")


def _matches(found: tuple[str, str], stated: tuple[str, str]) -> bool:
    slots, text = stated
    in_slot = not slots or found[0] in slots.split("|")
    return in_slot and text.casefold() in unicodedata.normalize("NFKC", found[1]).casefold()


def _judge(dialogue: Dialogue) -> tuple[int, list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the numbers of found, wrong and missed preferences."""
    messages, stated, allowed = dialogue
    preferences = {
        slot: text
        for slot, text in collect_preferences(messages).items()
        if not slot.endswith(tuple(OTHERS_TASTES))
    }
    found = [
        (slot, value)
        for slot, text in preferences.items()
        for value in (split_values(text) if slot in _LISTS else [text])
    ]
    missed = [each for each in stated if not any(_matches(one, each) for one in found)]
    wrong = [one for one in found if not any(_matches(one, each) for each in [*stated, *allowed])]
    return len(stated) - len(missed), wrong, missed


@pytest.mark.parametrize("language", ["english", "japanese"])
def test_rules_find_what_users_state_about_themselves_alone(language: str) -> None:
    dialogues = rows(f"dialogues_{language}")
    judged = [(dialogue[0], *_judge(dialogue)) for dialogue in dialogues]
    found = sum(each[1] for each in judged)
    wrong = [(messages, values) for messages, _, values, _ in judged if values]
    missed = [(messages, values) for messages, _, _, values in judged if values]
    assert len(dialogues) >= 150
    assert found / (found + sum(len(values) for _, values in wrong)) >= 0.95, wrong
    assert found / (found + sum(len(values) for _, values in missed)) >= 0.9, missed


@pytest.mark.parametrize(("text", "stated"), rows("hidden_preferences"))
def test_words_around_a_preference_do_not_hide_it(text: str, stated: list[str]) -> None:
    assert stated in [[said.slot, said.value] for said in extract_preferences([text])]
