"""The layout restores the exact history from a log of messages."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strands_manga_memory.conversation.history import READ_AHEAD, Layout, MessageLog
from strands_manga_memory.exceptions import CorruptRecordError
from tests.unit.conversation.messages import assistant, pinned, user


def logged(messages: list[Any]) -> MessageLog:
    log = MessageLog()
    for message in messages:
        log.add_unconfirmed(message)
        log.confirm()
    return log


def stored(layout: Layout) -> Layout:
    """The layout after its way through a session."""
    return Layout.from_state(json.loads(json.dumps(layout.to_state())), layout.skip)


def restored(records: list[Any], layout: Layout) -> list[Any]:
    """What comes of a log and a layout."""
    tail = copy.deepcopy(records[layout.skip :])
    window = stored(layout).replay(tail)
    return tail if window is None else window


def test_at_most_so_many_records_are_read_ahead() -> None:
    records = [message for _ in range(400) for message in (user(), assistant())]
    history = records[:2] + [m for at in range(400, 800, 4) for m in records[at : at + 2]]
    layout = logged(records).layout(history)
    assert len(records) - layout.skip <= READ_AHEAD + 1
    assert restored(records, layout) == history


@pytest.mark.parametrize(
    "state",
    [
        {"v": 3, "keys": [], "bodies": {}, "after": None},
        {"keys": [], "bodies": {}, "after": None},
        {"v": 1, "keys": [1], "bodies": {}, "after": None},
        {"v": 1, "keys": [[]], "bodies": {}, "after": None},
        {"v": 1, "keys": [[1]], "bodies": {}, "after": None},
        {"v": 1, "keys": [], "bodies": {"#0": {"role": "user"}}, "after": None},
        {"v": 1, "keys": [], "bodies": {"#0": 3}, "after": None},
        {"v": 1, "keys": [], "bodies": {}, "after": 5},
        {"v": 1, "keys": None, "bodies": {}, "after": None},
        "layout",
    ],
)
def test_a_state_that_cannot_be_read_is_an_error_that_names_the_record(state: Any) -> None:
    with pytest.raises(CorruptRecordError) as caught:
        Layout.from_state(state, 0)
    assert caught.value.record == "conversation manager state"


def test_the_layout_of_a_newer_version_is_named_as_such_in_any_form() -> None:
    with pytest.raises(CorruptRecordError, match="has version 3, this package reads 1"):
        Layout.from_state({"v": 3, "window": []}, 0)


@given(st.data())
def test_any_history_comes_back_over_generations(data: st.DataObject) -> None:
    """A new process reads the log or a snapshot of a changed history."""
    records: list[Any] = []
    history: list[Any] = []
    log = MessageLog()
    for generation in range(3):
        for number in range(data.draw(st.integers(0, 6))):
            again = records and data.draw(st.integers(0, 9)) == 0
            message = copy.deepcopy(records[-1]) if again else user(f"{generation}.{number}")
            log.add_unconfirmed(message)
            records.append(copy.deepcopy(message))
            log.confirm()
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
