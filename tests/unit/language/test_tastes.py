"""Preferences are extracted by slot and polarity; a change of mind leaves one."""

from typing import Any

import pytest

from strands_manga_memory.language.preference_slots import (
    OTHERS_TASTES,
    apply_preference,
    slot_for_key,
)
from strands_manga_memory.language.preferences import (
    MOST_PREFERENCES,
    collect_preferences,
    extract_preferences,
)
from strands_manga_memory.memory import Preference
from tests.lines import rows


@pytest.mark.parametrize("script", ["English", "Japanese"])
def test_tastes_are_heard_with_their_slot_and_polarity(script: str) -> None:
    lines = [line for line in rows("preferences") if line[0].isascii() == (script == "English")]
    missed = [
        line
        for line in lines
        if line[1:]
        not in [[each.slot, each.value, each.liked] for each in extract_preferences([line[0]])]
    ]
    others = [line for line in rows("no_preferences") if line.isascii() == (script == "English")]
    wrong = {line: heard for line in others if (heard := _of_the_user(line))}
    found = len(lines) - len(missed)
    assert found / len(lines) >= 0.9, missed
    assert found / (found + len(wrong)) >= 0.97, wrong


def _of_the_user(text: str) -> list[Preference]:
    """Return the preferences in a text that are not those of another person."""
    others = tuple(OTHERS_TASTES)
    return [each for each in extract_preferences([text]) if not each.slot.endswith(others)]


def _is_heard(line: str, named: str, liked: bool | None) -> bool:
    """Tell whether a line's value is extracted, with its side."""
    for each in extract_preferences([line]):
        found = f"{each.slot} {each.value}".lower()
        kin = (named.replace("traged", "tragedy"), named.rstrip("s"))
        if any(name in found for name in (named, *kin)) and (
            liked is None or not each.slot or (each.liked is not False) == liked
        ):
            return True
    return False


@pytest.mark.parametrize("script", ["English", "Japanese"])
def test_nine_of_ten_natural_sentences_are_heard_and_shop_talk_is_not(script: str) -> None:
    lines = [line for line in rows("tastes") if line[0].isascii() == (script == "English")]
    missed = [line[0] for line in lines if not _is_heard(*line)]
    others = [line for line in rows("no_tastes") if line.isascii() == (script == "English")]
    wrong = {line: heard for line in others if (heard := _of_the_user(line))}
    assert len(lines) >= 90
    assert len(missed) <= 0.1 * len(lines), missed
    assert len(wrong) <= len(others) / 25, wrong


@pytest.mark.parametrize(("texts", "preferences"), rows("others_tastes"))
def test_tastes_of_another_person_are_kept_under_that_person(
    texts: list[str], preferences: dict[str, str]
) -> None:
    """Wishes of the moment, pets, hearsay of a crowd and questions state no taste of a person."""
    assert collect_preferences(texts) == preferences


@pytest.mark.parametrize(("text", "found"), rows("extracted_preferences"))
def test_tastes_of_one_message(text: str, found: list[list[Any]]) -> None:
    """A taste has all that narrows it.

    Words of the shop or of the moment, and words that point at something, are none.
    """
    assert [[each.slot, each.value, each.liked] for each in extract_preferences([text])] == found


@pytest.mark.parametrize(("texts", "preferences"), rows("collected_preferences"))
def test_preferences_after_several_messages(texts: list[str], preferences: dict[str, str]) -> None:
    assert collect_preferences(texts) == preferences


@pytest.mark.parametrize(
    "said",
    [
        "I don't hate horror.", "I don't dislike romance.", "I wouldn't say I hate comedy.",
        "I don't mind sci-fi.", "I'm not against mecha.", "ホラーは嫌いじゃないです。",
        "ミステリーは苦手ではありません。", "恋愛ものが嫌いというわけではないです。",
    ],
)  # fmt: skip
def test_who_does_not_dislike_a_thing_takes_no_side(said: str) -> None:
    assert all(each.slot == "" for each in extract_preferences([said]))


@pytest.mark.parametrize(("slot", "keys"), rows("slot_names"))
def test_profile_and_talk_name_a_slot_alike(slot: str, keys: str) -> None:
    assert {key: found for key in keys.split(",") if (found := slot_for_key(key)) != slot} == {}


def test_a_message_that_says_very_much_is_heard_in_part() -> None:
    flood = " ".join(f"I love thing{number}." for number in range(400))
    assert len(extract_preferences([flood])) == MOST_PREFERENCES


def test_what_is_not_wanted_leaves_whatever_slot_it_is_in() -> None:
    slots = {"genre": "horror, romance", "likes": "Uzumaki", "budget": "3,000 yen"}
    assert apply_preference(slots, Preference("likes", "horror", liked=False)) == {
        "genre": "romance",
        "dislikes": "horror",
    }


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("Actually my own budget is more like 30 a month.", "30 a month"),
        ("My budget is now 40 dollars.", "40 dollars"),
        ("My budget is about 40 dollars.", "about 40 dollars"),
    ],
)
def test_a_budget_is_kept_without_words_of_comparison(text: str, budget: str) -> None:
    assert {each.slot: each.value for each in extract_preferences([text])}["budget"] == budget
