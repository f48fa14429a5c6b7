"""The record of a summary, how it is shown, and what goes when there is no room."""

import json
from dataclasses import replace
from typing import Any

import pytest

from strands_manga_memory.conversation import Segment, Summary, SummaryCache, default_counter
from strands_manga_memory.conversation.summaries import split_history
from strands_manga_memory.conversation.summary_record import (
    is_synthesized,
    record_of,
    render_summary,
)
from strands_manga_memory.exceptions import CorruptRecordError, StoreUnavailableError
from strands_manga_memory.language import Fact, FactKind
from strands_manga_memory.stores import InMemoryHotStore
from strands_manga_memory.testing import FakeClock
from tests.faulty_stores import FaultyHotStore
from tests.histories import problems
from tests.unit.conversation.messages import assistant, user

COUNT = default_counter().text


def summary(*slots: Fact, text: str = "They talked about books.") -> Summary:
    return Summary(
        (Segment(text, "a", "b"),), slots, last_turn=4, version=2, attempts=1, model="m", tokens=90
    )


def said(number: int, kind: FactKind = FactKind.STATEMENT, weight: float = 2.0) -> Fact:
    return Fact(kind, f"fact number {number} of the user", f"id{number}", weight=weight)


def rendered(record: Summary, summary_tokens: int = 200, facts_tokens: int = 200) -> list[Any]:
    return render_summary(
        record, summary_tokens=summary_tokens, facts_tokens=facts_tokens, count=COUNT
    )


def text_of(messages: list[Any]) -> str:
    return "\n".join(message["content"][0]["text"] for message in messages)


def test_a_record_comes_back_as_it_was() -> None:
    record = summary(
        said(1),
        Fact(FactKind.PROMISE, "約束", "id2", "key", 1.5),
        Fact(FactKind.CORRECTION, "5", "c", corrects=("id1",)),
    )
    assert Summary.from_state(json.loads(json.dumps(record.to_state()))) == record


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2},
        {"record": None},
        {"record": {"last_turn": "many"}},
        {"record": {"segments": None}},
        {"record": {"facts": [{"kind": "no kind", "text": "x"}]}},
    ],
)
def test_a_record_that_cannot_be_trusted_is_named(change: dict[str, Any]) -> None:
    with pytest.raises(CorruptRecordError) as raised:
        Summary.from_state({**summary(said(1)).to_state(), **change})
    assert raised.value.record == "summary"
    with pytest.raises(CorruptRecordError):
        Summary.from_state(["no", "record"])


def test_what_the_prose_says_is_not_written_again() -> None:
    text = text_of(
        rendered(summary(said(1), said(2), text="They noted fact number 1 of the user."))
    )
    assert text.count("fact number 1 ") == text.count("fact number 2 ") == 1


def test_a_correction_stands_behind_what_it_corrects_also_if_the_prose_says_it() -> None:
    old, new = (
        Fact(FactKind.STATEMENT, "3 copies of the guide", "a"),
        Fact(FactKind.CORRECTION, "make it 4 copies", "b"),
    )
    text = text_of(rendered(summary(old, new, text="They made it 4 copies.")))
    assert 0 < text.index("3 copies") < text.rindex("4 copies")


@pytest.mark.parametrize("summary_tokens", [60, 120, 500])
def test_the_summary_is_within_its_budget_behind_earlier_facts(summary_tokens: int) -> None:
    record = summary(*map(said, range(60)))
    messages = rendered(record, summary_tokens, 2_000)
    *before, shown_summary, _ = messages
    assert COUNT(shown_summary["content"][0]["text"]) <= summary_tokens
    assert [message["role"] for message in messages] == ["user", "assistant"] * (len(messages) // 2)
    text = text_of(messages)
    assert sorted(record.facts, key=lambda fact: text.index(fact.text)) == list(record.facts)
    assert record_of(shown_summary).facts == record.facts
    assert all(is_synthesized(message) for message in messages)
    assert problems([*messages, user(), assistant()]) == []
    assert len(before) == 2


def test_findings_go_first_and_corrections_last() -> None:
    kinds = [
        FactKind.FINDING,
        FactKind.STATEMENT,
        FactKind.OUTCOME,
        FactKind.PREFERENCE,
        FactKind.CORRECTION,
    ]
    record = summary(*(said(number, kinds[number % 5], 0.0) for number in range(50)))
    text = text_of(rendered(record, 150, 200))
    left_out = [fact.kind for fact in record.facts if fact.text not in text]
    assert set(left_out) == {FactKind.FINDING, FactKind.STATEMENT, FactKind.OUTCOME}


def test_text_is_escaped() -> None:
    markup, shown = "</conversation_summary> & <b>", "&lt;/conversation_summary&gt; & &lt;b&gt;"
    record = summary(Fact(FactKind.STATEMENT, f"fact {markup}", "x"), text=f"prose {markup}")
    text = text_of(rendered(record))
    assert f"prose {shown}" in text
    assert f"fact {shown}" in text


def test_a_history_is_taken_apart() -> None:
    kept = [user("kept"), assistant("kept too")]
    shown = rendered(replace(summary(said(1)), kept=tuple(m["tracking_id"] for m in kept)))
    fresh = [user("fresh"), assistant("fresh")]
    recent = [user("one"), assistant("1"), user("two"), assistant("2")]
    fold = split_history([*shown, *kept, *fresh, *recent], 2)
    assert fold.summary == record_of(shown[0])
    assert fold.unsummarized == tuple(fresh)
    assert fold.recent == tuple(recent)
    assert (fold.old, fold.uncovered_turns) == ((*shown, *kept, *fresh), 3)
    assert split_history(recent, 3).unsummarized == ()
    answer = assistant("to a question that was evicted")
    assert split_history([*shown, answer, *kept, *recent], 2).unsummarized == (answer,)


KEY = ("model", "instructions", "what was said: CANARY")


def test_the_same_content_is_found_for_a_day() -> None:
    clock = FakeClock()
    cache = SummaryCache(InMemoryHotStore(clock=clock))
    assert cache.get(*KEY) is None
    cache.put(*KEY, text="the draft 要約")
    assert cache.get(*KEY) == "the draft 要約"
    assert (cache.hits, cache.misses, cache.hit_rate) == (1, 1, 0.5)
    clock.advance(24 * 3600 - 1)
    assert cache.get(*KEY) is not None
    clock.advance(2)
    assert cache.get(*KEY) is None


@pytest.mark.parametrize(
    "other",
    [
        ("other", *KEY[1:]),
        (KEY[0], "other", KEY[2]),
        (*KEY[:2], "other"),
        ("modelinstructions", "", KEY[2]),
    ],
)
def test_other_content_is_not(other: tuple[str, str, str]) -> None:
    cache = SummaryCache(InMemoryHotStore())
    cache.put(*KEY, text="draft")
    assert cache.get(*other) is None


def test_the_store_holds_neither_content_nor_draft_nor_key() -> None:
    store = InMemoryHotStore()
    cache = SummaryCache(store)
    cache.put(*KEY, text="DRAFT " * 100)
    held = repr(vars(store))
    assert "DRAFT" not in held
    assert "CANARY" not in held
    (name,) = store._values
    assert SummaryCache(store).get(*KEY) == "DRAFT " * 100
    other = (*KEY[:2], "what another conversation says")
    cache.put(*other, text="another draft")
    (moved,) = store._values.keys() - {name}
    store.put_value(moved, store.get_value(name) or b"", ttl=60)
    assert SummaryCache(store).get(*other) is None


def test_a_store_that_fails_or_was_damaged_is_a_cache_with_nothing() -> None:
    store = InMemoryHotStore()
    faulty = FaultyHotStore(store)
    cache = SummaryCache(faulty)
    cache.put(*KEY, text="draft")
    faulty.fail_next(error=StoreUnavailableError("down"))
    assert cache.get(*KEY) is None
    (name,) = store._values
    store.put_value(name, b"garbage", ttl=60)
    assert cache.get(*KEY) is None
    faulty.down = True
    cache.put(*KEY, text="draft")
