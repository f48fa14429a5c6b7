"""A history is copied quickly, and evicted messages return to it in order."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strands import Agent
from strands.session import FileSessionManager

from strands_manga_memory import ImportanceWeightedConversationManager
from strands_manga_memory.conversation import history
from strands_manga_memory.conversation.history import History, LogTail
from strands_manga_memory.testing import ScriptedModel
from tests.unit.conversation.messages import assistant, calls, results, user

_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner),
    max_leaves=12,
)
_messages = st.lists(st.dictionaries(st.sampled_from(["role", "content", "metadata"]), _values))


def containers(value: Any) -> set[int]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return {id(value), *(f for i in inner for f in containers(i) if isinstance(i, dict | list))}


@settings(max_examples=12)
@given(_messages)
def test_a_copy_is_equal_and_shares_nothing_that_can_change(messages: list[Any]) -> None:
    whole = History(messages)
    copied = copy.deepcopy(whole)
    assert copied == whole
    assert json.dumps(copied, default=repr) == json.dumps(messages, default=repr)
    assert containers(copied).isdisjoint(containers(whole))
    assert type(copied) is History


def test_what_is_no_plain_value_is_copied_as_ever() -> None:
    class Image:
        def __init__(self) -> None:
            self.pixels = [1]

    message: Any = {"role": "user", "content": [{"image": {"source": Image()}}]}
    copied: Any = copy.deepcopy(History([message]))
    before, after = (each["content"][0]["image"]["source"] for each in (message, copied[0]))
    assert after is not before
    assert after.pixels == [1]
    assert after.pixels is not before.pixels


def test_a_message_that_contains_itself_is_copied_too() -> None:
    message: Any = {"role": "user", "content": []}
    message["content"].append({"json": message})
    copied: Any = copy.deepcopy(History([message]))
    assert copied[0]["content"][0]["json"] is copied[0]
    assert copied[0] is not message


@pytest.mark.parametrize("restored", [False, True])
def test_both_copies_of_a_turn_are_quick_ones(
    restored: bool, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def agent() -> Agent:
        return Agent(
            model=ScriptedModel(),
            agent_id="a",
            session_manager=FileSessionManager("s", storage_dir=str(tmp_path)),
            conversation_manager=ImportanceWeightedConversationManager(),
        )

    talking = agent()
    talking("greetings to quick copies")
    talking = agent() if restored else talking
    copies: list[Any] = []
    monkeypatch.setattr(
        history, "_copied", lambda value, memo: copies.append(value) or copy.deepcopy(value, memo)
    )
    talking("and again")
    own = [value for value in copies if "quick copies" in str(value)]  # not of another thread
    assert len(own) == 2 + 1, "Strands copies the history twice, the model its request"


BUDGET = 1_000


def talk(turns: int) -> list[Any]:
    return [
        message
        for number in range(turns)
        for message in (user(f"question {number}"), assistant(f"answer {number}"))
    ]


def candidates(tail: LogTail, window: list[Any]) -> list[Any]:
    return tail.candidates(window, BUDGET, lambda message: 1)


def begun(history: list[Any], selected: list[Any]) -> LogTail:
    tail = LogTail()
    tail.update(history)
    candidates(tail, history)
    tail.record_selection(history, selected)
    return tail


@given(st.lists(st.booleans(), min_size=12, max_size=12), st.integers(0, 3))
def test_evicted_messages_come_back_whole_and_in_order(kept: list[bool], more: int) -> None:
    said = talk(6)
    window = [message for message, stays in zip(said, kept, strict=True) if stays]
    tail = begun(said, window)
    new = talk(more)
    window += new
    tail.update(window)
    assert candidates(tail, window) == [*said, *new]


def test_a_tool_call_never_comes_back_without_its_large_result() -> None:
    said = [user("question"), calls("a"), results("a"), assistant("answer"), *talk(2)]
    tail, window = begun(said, said[4:]), said[4:]
    tail.update(window)
    found = tail.candidates(window, BUDGET, lambda message: 10_000 if message is said[2] else 1)
    assert found == [said[0], said[3], *window]


def test_no_message_comes_back_once_something_was_taken_out_or_put_between() -> None:
    said = talk(4)
    for change in (
        lambda window: window.pop(0),
        lambda window: window.insert(1, assistant("a summary")),
        lambda window: window.clear(),
    ):
        window = said[4:]
        tail = begun(said, window)
        change(window)
        window += talk(1)
        tail.update(window)
        assert candidates(tail, window) == window
        assert list(tail) == window


def test_the_largest_evicted_messages_are_forgotten_if_there_are_too_many() -> None:
    """At most three times the budget of 8 tokens, and a fifth more, is remembered."""
    said = [*talk(2), user("a long pasted log of many words"), assistant("an answer"), *talk(4)]
    tail = begun(said, window := said[-2:])
    found = tail.candidates(window, 8, lambda message: len(message["content"][0]["text"].split()))
    assert found == [message for message in said if len(message["content"][0]["text"]) < 20]


def restored(said: list[Any], window: list[Any]) -> LogTail:
    """Return the tail of an agent that was restored with a window, once it has read its log."""
    tail = LogTail()
    tail.discard_if_changed(window)
    tail.update(window)
    tail.restore([dict(message) for message in said])
    return tail


@given(st.lists(st.booleans(), min_size=12, max_size=12), st.integers(0, 8))
def test_evicted_messages_come_back_from_the_log_in_order(kept: list[bool], unread: int) -> None:
    """Of messages before the part of the log that was read those of the window are known."""
    said = talk(6)
    window = [message for at, message in enumerate(said) if kept[at] or at == len(said) - 1]
    before = [message for message in said[:unread] if message in window]
    assert candidates(restored(said[unread:], window), window) == [*before, *said[unread:]]


def test_a_tool_result_at_the_beginning_of_the_log_does_not_return_without_its_call() -> None:
    said = [user("question"), calls("a"), results("a"), assistant("answer"), *talk(2)]
    window = said[4:]
    assert candidates(restored(said[2:], window), window) == said[3:]
    tail = LogTail()
    tail.discarded_until = said[1]["tracking_id"]
    tail.update(window)
    tail.restore(said)
    assert candidates(tail, window) == said[3:]


def test_messages_from_before_a_foreign_change_of_the_history_do_not_return_from_the_log() -> None:
    said = talk(6)
    tail = LogTail()
    tail.discard_if_changed(said[:8])
    tail.discard_if_changed(said[:6])
    assert tail.discarded_until == said[7]["tracking_id"]
    window = [*said[:6], *said[10:]]
    later = LogTail()
    later.discard_if_changed(window)
    later.discarded_until = tail.discarded_until
    later.update(window)
    later.restore(said)
    assert candidates(later, window) == [*said[:6], *said[8:]]


def test_nothing_comes_back_from_a_log_that_differs_from_the_window() -> None:
    """The log has none of its messages, has them in another order, or has not all of them."""
    said = talk(4)
    window = said[2:6]
    for log in (talk(4), said[::-1], [*said[:3], *said[4:]]):
        assert candidates(restored(log, window), window) == window
