"""The sentiment of what a user says, on lines of our own in two languages."""

from __future__ import annotations

import pytest

from strands_manga_memory.language.session_summaries import classify_sentiment
from tests.lines import rows


@pytest.mark.parametrize("table", ["feelings", "feelings_in_the_shop"])
@pytest.mark.parametrize("script", ["English", "Japanese"])
def test_sentiment_is_right_nine_times_of_ten(script: str, table: str) -> None:
    lines = [(line, kind) for line, kind in rows(table) if line.isascii() == (script == "English")]
    wrong = [(line, found) for line, kind in lines if (found := classify_sentiment([line])) != kind]
    assert len(wrong) <= 0.1 * len(lines), wrong


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        (
            "negative",
            [
                "I was hoping for better service, to be honest.",
                "We had hoped for a nicer edition.",
                "I wish the packaging were better.",
                "The print could have been better.",
                "It should have been easy to return.",
                "Thanks for nothing.",
                "Thank you for wasting my afternoon.",
                "I've never been so disappointed.",
                "期待していたほどではありませんでした。",
                "聞いていたほど便利じゃないですね。",
                "もっと早く連絡してほしかったです。",
                "もう少し丁寧だとよかったのですが。",
            ],
        ),
        (
            "positive",
            [
                "It never gets boring, wonderful series.",
                "Never a dull moment with your shop.",
                "No delays, lovely packaging.",
                "Better than I had hoped.",
                "期待していた以上に良かったです。",
            ],
        ),
        (
            "neutral",
            [
                "I'd appreciate it if you could check my order.",
                "It would be nice if you could wrap it.",
                "I was hoping to find volume 3.",
                "早めに送っていただけると助かります。",
            ],
        ),
    ],
)
def test_what_is_wished_for_speaks_of_what_is_not_there(kind: str, lines: list[str]) -> None:
    assert {line: found for line in lines if (found := classify_sentiment([line])) != kind} == {}
