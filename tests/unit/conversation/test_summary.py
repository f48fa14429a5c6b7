"""The record of a summary, how it is shown, and what goes when there is no room."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strands_manga_memory.conversation import default_counter
from strands_manga_memory.conversation.summaries import split_history
from strands_manga_memory.conversation.summary_record import Segment, Summary, is_synthesized, record_of, shown
from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.language import Fact, FactKind
from strands_manga_memory.messages import problems
from tests.unit.conversation.messages import assistant, user

COUNT = default_counter().text


def summary(*slots: Fact, text: str = "They talked about books.") -> Summary:
    return Summary((Segment(text, "a", "b"),), slots, turns=4, version=2, attempts=1, model="m", tokens=90, kept=("k",))


def said(number: int, kind: FactKind = FactKind.STATEMENT, weight: float = 2.0) -> Fact:
    return Fact(kind, f"fact number {number} of the user", f"id{number}", weight=weight)


def laid_out(record: Summary, summary_tokens: int = 200, facts_tokens: int = 200) -> Any:
    return shown(record, summary_tokens=summary_tokens, facts_tokens=facts_tokens, count=COUNT)


def test_a_record_comes_back_as_it_was() -> None:
    record = summary(
        said(1), Fact(FactKind.PROMISE, "約束", "id2", "key", 1.5), Fact(FactKind.CORRECTION, "5", "c", corrects=("id1",))
    )
    assert Summary.from_state(json.loads(json.dumps(record.to_state()))) == record
    assert record.covered == ("a", "b")
    assert Summary().covered == ("", "")


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2},
        {"slots": [["said"]]},
        {"turns": "4"},
        {"segments": None},
        {"slots": [["no kind", "x", 0, "", 1]]},
        {"kept": None},
    ],
)
def test_a_record_that_cannot_be_trusted_is_named(change: dict[str, Any]) -> None:
    with pytest.raises(CorruptRecordError) as raised:
        Summary.from_state({**summary(said(1)).to_state(), **change})
    assert raised.value.record == "summary"
    with pytest.raises(CorruptRecordError):
        Summary.from_state(["no", "record"])


def test_what_the_prose_says_is_not_written_again() -> None:
    view = laid_out(summary(said(1), said(2), text="They noted fact number 1 of the user."))
    assert [slot.text for slot in view.in_prose] == ["fact number 1 of the user"]
    assert [slot.text for slot in view.appended] == ["fact number 2 of the user"]
    assert view.messages[0]["content"][0]["text"].count("fact number 1 ") == 1


def test_a_correction_stands_behind_what_it_corrects_also_if_the_prose_says_it() -> None:
    old, new = Fact(FactKind.STATEMENT, "3 copies of the guide", "a"), Fact(FactKind.CORRECTION, "make it 4 copies", "b")
    text = laid_out(summary(old, new, text="They made it 4 copies.")).messages[0]["content"][0]["text"]
    assert 0 < text.index("3 copies") < text.rindex("4 copies")


@pytest.mark.parametrize("summary_tokens", [60, 120, 500])
def test_the_summary_is_within_its_budget_and_the_earlier_facts_stand_before_it(summary_tokens: int) -> None:
    record = summary(*map(said, range(60)))
    view = laid_out(record, summary_tokens, 2_000)
    *before, shown_summary, _ = view.messages
    assert COUNT(shown_summary["content"][0]["text"]) <= summary_tokens
    assert [message["role"] for message in view.messages] == ["user", "assistant"] * (len(view.messages) // 2)
    assert view.left_out == ()
    assert [*view.beside, *view.appended] == list(record.slots)
    assert record_of(shown_summary).slots == record.slots
    assert all(is_synthesized(message) for message in view.messages)
    assert problems([*view.messages, user(), assistant()]) == []
    assert len(before) == 2 * bool(view.beside)


def test_findings_go_first_and_corrections_last() -> None:
    kinds = [FactKind.FINDING, FactKind.STATEMENT, FactKind.OUTCOME, FactKind.PREFERENCE, FactKind.CORRECTION]
    record = summary(*(said(number, kinds[number % 5], 0.0) for number in range(50)))
    view = laid_out(record, 150, 250)
    kept = [slot.kind for slot in (*view.appended, *view.beside)]
    assert {slot.kind for slot in view.left_out} == {FactKind.FINDING, FactKind.STATEMENT, FactKind.OUTCOME}
    assert kept.count(FactKind.CORRECTION) == kept.count(FactKind.PREFERENCE) == 10


def test_text_is_escaped() -> None:
    view = laid_out(summary(Fact(FactKind.STATEMENT, "</conversation_summary> & <b>", "x")))
    text = view.messages[0]["content"][0]["text"]
    assert "&lt;/conversation_summary&gt; & &lt;b&gt;" in text


def test_a_history_is_taken_apart() -> None:
    view = laid_out(summary(said(1)))
    kept = [user("kept", tracking_id="k"), assistant("kept too")]
    fresh = [user("fresh"), assistant("fresh")]
    recent = [user("one"), assistant("1"), user("two"), assistant("2")]
    fold = split_history([*view.messages, *kept[:1], *fresh, *recent], 2)
    assert fold.summary == record_of(view.messages[0])
    assert fold.kept == tuple(kept[:1])
    assert fold.fresh == tuple(fresh)
    assert fold.recent == tuple(recent)
    assert (fold.before_recent, fold.uncovered_turns) == (5, 3)
    assert split_history(recent, 3).fresh == ()
