"""Quotes of the archive: within the budget, and counted once."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strands_manga_memory.conversation import (
    ArchivedMessage,
    EstimateCounter,
    HistoryRecall,
    RecallHit,
    default_counter,
)
from strands_manga_memory.conversation.quotes import QuoteFormatter
from strands_manga_memory.language.search import query_terms

LONG = (
    "The shelves were dusted in the morning. Nobody came in before noon. A cat slept beside the"
    " till. "
)


HITS = st.lists(
    st.tuples(
        st.text(alphabet="ab <&>。か\n", max_size=400),
        st.floats(0, 1),
        st.sampled_from([None, 1.7e9, 1.7e9 + 90_000]),
    ),
    max_size=30,
)


@settings(max_examples=60)
@given(HITS, st.integers(1, 400), st.sampled_from([default_counter(), EstimateCounter()]))
def test_quotes_are_never_over_their_budget(drawn: list[Any], budget: int, counter: Any) -> None:
    hits = [
        RecallHit(at, ArchivedMessage(f"id{at}", "user", text, when), score)
        for at, (text, score, when) in enumerate(drawn, 1)
    ]
    text = QuoteFormatter(budget, counter).format(hits, query_terms("ab"))
    assert (
        counter.count({"role": "user", "content": [{"text": f"\n\n{text}"}]}) <= budget or not text
    )


@pytest.mark.parametrize("budget", [256, 512, 1_024])
def test_a_long_answer_is_quoted_by_the_passages_that_fit_the_question(budget: int) -> None:
    fact = "Parcels to Norway are handed over on Thursdays."
    recall = HistoryRecall(budget)
    others = [ArchivedMessage(f"id{at}", "assistant", LONG * 10, 1.7e9) for at in range(20)]
    recall.archive.add(
        [*others, ArchivedMessage("wanted", "assistant", f"{LONG * 20}{fact} {LONG * 20}", 1.7e9)]
    )
    assert fact in recall.quote("On which days are parcels to Norway handed over?", [])


def hits(*texts: str, speaker: str = "tool") -> list[RecallHit]:
    return [
        RecallHit(at, ArchivedMessage(f"id{at}", speaker, text, 1.7e9 + at), 1.0)
        for at, text in enumerate(texts, 1)
    ]


STOCK = "Uzumaki, volume 3, is on shelf 12 beside the window."
ASKED = query_terms("On which shelf is Uzumaki?")


def test_what_several_messages_say_is_quoted_once() -> None:
    quoting = QuoteFormatter(1_000, default_counter())
    assert quoting.format(hits(STOCK, f"  {STOCK}\n", STOCK), ASKED).count(STOCK) == 1


def test_of_long_results_that_share_passages_each_passage_is_quoted_once() -> None:
    quoting = QuoteFormatter(400, default_counter())
    one, other = (
        f"Listed at {hour} o'clock by the till. {LONG * 10}\n{STOCK}\nShelf {hour} was dusted."
        for hour in (9, 10)
    )
    assert quoting.format(hits(one, other), ASKED).count(STOCK) == 1


def test_what_is_shown_anyway_is_not_quoted_of_another_message() -> None:
    quoting = QuoteFormatter(1_000, default_counter())
    assert quoting.format(hits(STOCK), ASKED, shown={f"Here it is: {STOCK}": None}) == ""
    assert quoting.format(hits(STOCK), ASKED, shown={"Here it is.": None}).count(STOCK) == 1


def test_a_short_reply_is_quoted_as_often_as_it_was_given() -> None:
    text = QuoteFormatter(1_000, default_counter()).format(
        hits("Shelf 12?", "Yes.", "Shelf 14?", "Yes.", speaker="user"), ASKED
    )
    assert text.count("Yes.") == 2


def test_results_without_news_do_not_end_the_search() -> None:
    text = QuoteFormatter(4_000, default_counter()).format(
        hits(*[STOCK] * 60, "Shelf 12 is on the second floor."), ASKED
    )
    assert text.count(STOCK) == 1
    assert "second floor" in text
