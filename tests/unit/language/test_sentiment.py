"""The sentiment of what a user says, on lines of our own in two languages."""

import pytest

from strands_manga_memory.language.session_summaries import classify_sentiment
from tests.lines import rows


@pytest.mark.parametrize("table", ["feelings", "feelings_in_the_shop"])
@pytest.mark.parametrize("script", ["English", "Japanese"])
def test_sentiment_is_right_nine_times_of_ten(script: str, table: str) -> None:
    lines = [(line, kind) for line, kind in rows(table) if line.isascii() == (script == "English")]
    wrong = [(line, found) for line, kind in lines if (found := classify_sentiment([line])) != kind]
    assert len(wrong) <= 0.1 * len(lines), wrong


@pytest.mark.parametrize(("line", "kind"), rows("wishes"))
def test_what_is_wished_for_speaks_of_what_is_not_there(line: str, kind: str) -> None:
    assert classify_sentiment([line]) == kind
