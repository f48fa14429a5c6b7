"""The layout brings back the exact history from a log of messages, and changes nothing in an exact one."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strands_manga_memory.conversation.history import READ_AHEAD, Layout, MessageLog, identify
from strands_manga_memory.exceptions import CorruptRecordError
from tests.unit.conversation.messages import assistant, calls, pinned, results, user


def logged(messages: list[Any]) -> MessageLog:
    log = MessageLog()
    for message in messages:
        log.adding(message)
        log.added()
    return log


def stored(layout: Layout) -> Layout:
    """The layout after its way through a session."""
    return Layout.from_state(json.loads(json.dumps(layout.to_state())), layout.skip)


def restored(records: list[Any], layout: Layout) -> list[Any]:
    """What comes of a log and a layout."""
    tail = copy.deepcopy(records[layout.skip :])
    window = stored(layout).replay(tail)
    return tail if window is None else window


def test_a_history_that_is_the_log_needs_no_layout() -> None:
    records = [user(), assistant(), user(), assistant()]
    layout = logged(records).layout(records)
    assert layout.to_state() is None
    assert layout.skip == 0
    tail = logged(records).layout(records[2:])
    assert (tail.to_state(), tail.skip) == (None, 2)


def test_dropped_shortened_pinned_and_foreign_messages_come_back_as_they_were() -> None:
    records = [user(), assistant(), user(), calls("a"), results("a"), assistant(), user(), assistant()]
    shortened = {**records[4], "content": results("a", content=[{"text": "cut"}])["content"]}
    history = [
        records[0],
        records[1],
        user("never logged"),
        records[2],
        records[3],
        shortened,
        pinned(records[5]),
        *records[6:],
    ]
    layout = logged(records).layout(history)
    assert restored(records, layout) == history
    assert len(layout.bodies) == 3
    assert layout.after == records[5]["tracking_id"]


def test_the_state_stays_the_same_while_messages_are_only_added() -> None:
    records = [user(), assistant(), user(), assistant(), user(), assistant()]
    log = logged(records)
    history = [records[0], records[1], records[4], records[5]]
    state = log.layout(history).to_state()
    for message in (user(), assistant()):
        log.adding(message)
        history.append(message)
        assert log.layout(history).to_state() == state
        log.added()


def test_bytes_are_written_as_json_and_read_back() -> None:
    image = {**user(), "content": [{"image": {"format": "png", "source": {"bytes": b"\x00\xff"}}}]}
    history = [user("never logged"), image]
    layout = MessageLog().layout(history)
    assert restored([], layout) == history


def test_old_messages_travel_with_the_layout_so_that_a_restore_reads_only_the_newest_records() -> None:
    records = [message for _ in range(400) for message in (user(), assistant())]
    history = [*records[:2], *records[100:102], *records[-4:]]
    log = logged(records)
    layout = log.layout(history)
    assert layout.skip == len(records) - 5
    assert len(layout.bodies) == 4
    assert restored(records, layout) == history


def test_a_large_old_message_stays_in_the_log() -> None:
    image = {**user(), "content": [{"image": {"format": "png", "source": {"bytes": b"x" * 20_000}}}]}
    records = [user(), assistant(), image, assistant(), *[message for _ in range(300) for message in (user(), assistant())]]
    history = [*records[:4], *records[-4:]]
    layout = logged(records).layout(history)
    assert layout.skip == 2
    assert len(layout.bodies) == 3
    assert restored(records, layout) == history


def test_at_most_so_many_records_are_read_ahead() -> None:
    records = [message for _ in range(400) for message in (user(), assistant())]
    history = records[:2] + [message for at in range(400, 800, 4) for message in records[at : at + 2]]
    layout = logged(records).layout(history)
    assert len(records) - layout.skip <= READ_AHEAD + 1
    assert restored(records, layout) == history


def test_a_log_is_never_read_from_a_result_whose_call_is_left_out() -> None:
    records = [user(), assistant(), user(), calls("a"), results("a"), assistant(), user(), assistant()]
    history = [user("never logged"), {**records[3], "content": calls("b")["content"]}, records[4], *records[6:]]
    layout = logged(records).layout(history)
    assert layout.skip == 3
    assert restored(records, layout) == history


def test_a_history_from_which_everything_went_stays_empty() -> None:
    records = [user(), assistant()]
    layout = logged(records).layout([])
    assert layout.skip == 1
    assert restored(records, layout) == []
    assert MessageLog().layout([]).to_state() is None


def test_a_message_logged_twice_is_found() -> None:
    again = user("the same")
    records = [again, assistant(), again, assistant(), user(), assistant()]
    for history in (
        records,
        records[2:],
        [records[1], again, records[3]],
        [user("never logged"), again, records[3], *records[4:]],
    ):
        assert restored(records, logged(records).layout(history)) == history


def test_a_message_that_was_extended_is_its_later_record() -> None:
    first = user("one")
    extended = {**first, "content": [{"text": "one"}, {"text": "two"}]}
    records = [user(), assistant(), first, extended, assistant()]
    history = [records[0], records[1], extended, records[4]]
    assert restored(records, logged(records).layout(history)) == history


def test_a_message_whose_logging_failed_is_not_counted() -> None:
    records = [user(), assistant()]
    log = logged(records)
    lost = user("lost")
    log.adding(lost)
    log.settle()
    history = [records[1], lost]
    assert restored(records, log.layout(history)) == history
    log.adding(lost)
    log.adding(assistant())
    assert log.length == 3


def test_a_log_that_lacks_a_record_is_taken_as_it_is() -> None:
    records = [user(), assistant(), user(), assistant(), user()]
    layout = stored(logged(records).layout([records[0], records[3], records[4]]))
    assert layout.replay(records[1:]) is None
    assert layout.replay(records[:2]) is None


def test_results_that_may_be_repairs_are_not_counted_as_records() -> None:
    repaired = [
        user(),
        calls("a"),
        results("a", content=[{"text": "Tool was interrupted."}], status="error"),
        user(),
        assistant(),
    ]
    log = MessageLog(10)
    log.add_restored(repaired)
    assert log.length == 14
    assert log.layout(repaired[3:]).skip == 12
    layout = stored(log.layout(repaired))
    assert layout.replay(copy.deepcopy(repaired)) == repaired


def test_messages_of_old_logs_get_the_same_id_at_every_restore() -> None:
    def old() -> list[Any]:
        return [{"role": role, "content": [{"text": "the same"}]} for role in ("user", "assistant", "user")]

    first, second, later = old(), old(), old()[1:]
    identify(first)
    identify(second)
    identify(later, skipped=1)
    assert first == second
    assert first[1:] == later
    assert len({message["tracking_id"] for message in first}) == 3
    known = user()
    identify([known], 7)
    assert known["tracking_id"].startswith("id")


@pytest.mark.parametrize(
    "state",
    [
        {"v": 3, "keys": [], "bodies": {}, "after": None},
        {"keys": [], "bodies": {}, "after": None},
        {"v": 2, "keys": [1], "bodies": {}, "after": None},
        {"v": 2, "keys": ["a"], "bodies": {}, "after": None},
        {"v": 2, "keys": [[]], "bodies": {}, "after": None},
        {"v": 2, "keys": [[1]], "bodies": {}, "after": None},
        {"v": 2, "keys": [], "bodies": {"#0": {"role": "user"}}, "after": None},
        {"v": 2, "keys": [], "bodies": {"#0": 3}, "after": None},
        {"v": 2, "keys": [], "bodies": {}, "after": 5},
        {"v": 2, "keys": None, "bodies": {}, "after": None},
        "layout",
    ],
)
def test_a_state_that_cannot_be_read_is_an_error_that_names_the_record(state: Any) -> None:
    with pytest.raises(CorruptRecordError) as caught:
        Layout.from_state(state, 0)
    assert caught.value.record == "conversation manager state"


@given(st.data())
def test_any_history_comes_back_over_generations(data: st.DataObject) -> None:
    """Messages are added, dropped, edited and pinned; then a new process reads the log, or a snapshot."""
    records: list[Any] = []
    history: list[Any] = []
    log = MessageLog()
    for generation in range(3):
        for number in range(data.draw(st.integers(0, 6))):
            again = records and data.draw(st.integers(0, 9)) == 0
            message = copy.deepcopy(records[-1]) if again else user(f"{generation}.{number}")
            log.adding(message)
            records.append(copy.deepcopy(message))
            log.added()
            history.append(message)
        history = [message for message in history if data.draw(st.integers(0, 3))]
        for at, message in enumerate(history):
            change = data.draw(st.integers(0, 9))
            if change == 0:
                history[at] = {**message, "content": [{"text": "edited"}]}
            elif change == 1:
                history[at] = pinned(message)
        layout = log.layout(history)
        assert not records or layout.skip < len(records)
        if len({message["tracking_id"] for message in history}) == len(history):
            snapshot = copy.deepcopy(history)
            window = stored(layout).replay(snapshot)
            assert window is None or window == history
        read = restored(records, layout)
        assert read == history
        log = MessageLog(layout.skip)
        log.add_restored(records[layout.skip :])
        history = read
