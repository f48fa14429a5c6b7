"""Preferences of another person never become the user's."""

from __future__ import annotations

from pathlib import Path

import pytest

from strands_manga_memory import MangaMemory
from strands_manga_memory.testing import ScriptedModel

OTHERS = [
    "I also need a gift for my sister. She is 12 and likes shojo, and her budget is 1500 yen.",
    "I'm looking for a birthday present for my dad. My budget for it is 50 dollars.",
    "For my nephew: sports manga, under 20 dollars please.",
    "My son is into ninja stories. Paperbacks only, he says.",
    "妹へのプレゼントも探しています。12歳で少女漫画が好きです。妹の予算は1500円です。",
    "友達はホラーが苦手です。予算は2000円以内だそうです。",
]
OWN = [
    ("My sister likes shojo, but I love horror.", "genre", "horror"),
    ("I'm looking for a gift for my dad. Myself, I love mystery.", "genre", "mystery"),
    ("My budget is 3000 yen.", "budget", "3000 yen"),
    ("妹は少女漫画が好きですが、私はホラーが好きです。", "genre", "ホラー"),
    ("友達に勧められてミステリーが好きになりました。", "genre", "ミステリー"),
]


def _preferences(folder: Path, text: str) -> dict[str, str]:
    """Return the preferences stored after a session in which the user said one text."""
    with MangaMemory.open(durable=f"sqlite:///{folder / 'm.sqlite3'}", memories=True) as memory:
        model = ScriptedModel(["Understood."])
        agent = memory.agent(model, user_id="u1", session_id="s1", callback_handler=None)
        agent(text)
    with MangaMemory.open(durable=f"sqlite:///{folder / 'm.sqlite3'}", memories=True) as memory:
        records = memory.user("u1").recall(type="preference")
        return {str(record.metadata["preference_key"]): str(record.metadata["value"]) for record in records}


@pytest.mark.parametrize("text", OTHERS)
def test_preference_of_another_person_is_not_stored(tmp_path: Path, text: str) -> None:
    """Tastes and budgets of a sister, a friend or a gift stay out of the user's profile."""
    assert _preferences(tmp_path, text) == {}


@pytest.mark.parametrize(("text", "slot", "value"), OWN)
def test_own_preference_beside_another_persons_is_stored(tmp_path: Path, text: str, slot: str, value: str) -> None:
    """The user's own taste in the same message is stored."""
    assert _preferences(tmp_path, text) == {slot: value}


@pytest.mark.parametrize("text", ["Hmm, that is over my budget.", "予算を超えますね。1冊でお願いします。"])
def test_budget_without_an_amount_is_not_stored(tmp_path: Path, text: str) -> None:
    """Words about a budget that name no amount are no budget."""
    assert _preferences(tmp_path, text) == {}
