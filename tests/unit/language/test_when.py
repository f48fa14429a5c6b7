"""The days a question speaks of."""

from __future__ import annotations

from datetime import date

import pytest

from strands_manga_memory.language.search import Days, parse_days

TODAY = date(2026, 11, 24)  # a Tuesday


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("What did I say yesterday?", (2026, 11, 23), (2026, 11, 23)),
        ("昨日の注文は?", (2026, 11, 23), (2026, 11, 23)),
        ("What did I order last week?", (2026, 11, 16), (2026, 11, 22)),
        ("先週は何を頼みましたか", (2026, 11, 16), (2026, 11, 22)),
        ("先々週の話", (2026, 11, 9), (2026, 11, 15)),
        ("Which one was it last month?", (2026, 10, 1), (2026, 10, 31)),
        ("先月おすすめした本", (2026, 10, 1), (2026, 10, 31)),
        ("three days ago", (2026, 11, 21), (2026, 11, 21)),
        ("3日前に言ったこと", (2026, 11, 21), (2026, 11, 21)),
        ("2週間前", (2026, 11, 7), (2026, 11, 13)),
        ("What happened on 8 May?", (2026, 5, 8), (2026, 5, 8)),
        ("on December 3rd", (2025, 12, 3), (2025, 12, 3)),
        ("in October", (2026, 10, 1), (2026, 10, 31)),
        ("10月5日の予約", (2026, 10, 5), (2026, 10, 5)),
        ("去年の誕生日", (2025, 1, 1), (2025, 12, 31)),
    ],
)
def test_the_days_that_are_spoken_of(text: str, first: tuple[int, int, int], last: tuple[int, int, int]) -> None:
    assert parse_days(text, lambda: TODAY) == Days(date(*first), date(*last))


@pytest.mark.parametrize("text", ["What may I order?", "Which genre do I like?", "どの本ですか", "31 February", "13月40日"])
def test_a_question_without_days_names_none(text: str) -> None:
    assert parse_days(text, lambda: TODAY) is None
