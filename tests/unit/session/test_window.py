from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strands_manga_memory.conversation.stubs import stub_of
from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.session.window import (
    CUT_TEXT,
    Body,
    Slot,
    body_of,
    fingerprint,
    matched,
    mended,
    parse_runs,
    runs_text,
    shown_of,
    starts_turn,
    window_text,
)
from strands_manga_memory.stores.codec import dump, load
from tests.unit.session.support import BLOCKS, assistant, logged, texts, tool_use, user


def use(id_: str) -> Any:
    return assistant(tool_use(id_, "find", title="x"))


def result(*ids: str) -> Any:
    return user(*({"toolResult": {"toolUseId": id_, "status": "success", "content": [{"text": "found"}]}} for id_ in ids))


# Runs


@given(st.lists(st.integers(1, 40) | st.integers(-40, -1), max_size=30))
def test_runs_come_back(numbers: list[int]) -> None:
    assert parse_runs(runs_text(numbers), record="r") == numbers


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([], ""),
        ([1], "1"),
        ([1, 2, 3, 9], "1-3,9"),
        ([3, 2, 1], "3,2,1"),
        ([1, 1, 2], "1,1-2"),
        ([1, 2, -4, 3, 4], "1-2,x4,3-4"),
        ([-1, -2], "x1,x2"),
        ([-1, 1, 2], "x1,1-2"),
        ([999_999_999_999, 1], "999999999999,1"),
    ],
)
def test_runs_as_text(numbers: list[int], text: str) -> None:
    assert runs_text(numbers) == text
    assert parse_runs(text, record="r") == numbers


@pytest.mark.parametrize("text", ["1-", "-1", "x", "a", "1,,2", "1-2-3", "1 2", "1,", "x-1", "0x1", "1-x2", "１"])
def test_damaged_runs_are_refused(text: str) -> None:
    with pytest.raises(CorruptRecordError) as error:
        parse_runs(text, record="the head")
    assert error.value.record == "the head"


def test_a_window_as_text() -> None:
    slots: list[Slot] = [logged(user("a"), 1), logged(user("b"), 2), Body("", 0, b"", number=3), logged(user("c"), 9)]
    assert window_text(slots) == "1-2,x3,9"


# Fingerprints


@pytest.mark.parametrize("name", BLOCKS)
def test_a_fingerprint_sees_every_change(name: str) -> None:
    message = user(copy.deepcopy(BLOCKS[name]), tracking_id="t")
    mark = fingerprint(message)
    assert fingerprint(copy.deepcopy(message)) == mark
    assert fingerprint(load(dump(message))) == mark
    for change in (
        lambda m: m["content"].append({"text": "more"}),
        lambda m: m.update(role="assistant"),
        lambda m: m.update(tracking_id="u"),
        lambda m: m.update(metadata={}),
        lambda m: m["content"].clear(),
    ):
        changed = copy.deepcopy(message)
        change(changed)
        assert fingerprint(changed) != mark


def test_a_fingerprint_does_not_depend_on_how_objects_are_shared() -> None:
    block = {"text": "the same"}
    assert fingerprint(user(block, block)) == fingerprint(user(dict(block), {"text": "".join(["the ", "same"])}))


def test_a_fingerprint_of_what_marshal_does_not_know() -> None:
    class Odd:
        def __str__(self) -> str:
            return "odd"

    assert fingerprint(user({"json": Odd()})) == fingerprint(user({"json": Odd()}))
    assert fingerprint(user({"json": Odd()})) != fingerprint(user({"json": "other"}))


def test_true_is_not_one() -> None:
    assert len({fingerprint(user({"json": value})) for value in (1, True, 1.0, "1", b"1")}) == 5


# Matching


def test_unchanged_messages_keep_their_slots_in_any_order() -> None:
    messages = [user(str(number), tracking_id=str(number)) for number in range(5)]
    slots = [logged(message, at) for at, message in enumerate(messages, 1)]
    assert matched(messages, slots) == slots
    assert matched(messages[::-1], slots) == slots[::-1]
    assert matched(messages[2:4], slots) == slots[2:4]


def test_changed_and_new_messages_become_bodies() -> None:
    message = user("a", tracking_id="1")
    slot = logged(message, 1)
    changed = copy.deepcopy(message)
    changed["content"][0]["text"] = "b"
    (body,) = matched([changed], [slot])
    assert isinstance(body, Body)
    assert body.message == changed
    assert matched([changed], [body]) == [body]


def test_the_latest_slots_go_to_the_latest_of_messages_that_are_the_same() -> None:
    message = user("again", tracking_id="1")
    first, second, third = (logged(message, number) for number in (1, 2, 3))
    assert matched([message] * 3, [first, second, third]) == [first, second, third]
    assert matched([message] * 2, [first, second, third]) == [second, third]
    assert matched([message], [first, second]) == [second]
    one, other, *_ = matched([message, message, message], [first, second])
    assert isinstance(one, Body)
    assert other is first


@given(st.lists(st.sampled_from("abcab"), max_size=12), st.lists(st.integers(0, 11), max_size=14))
def test_any_selection_of_a_window_comes_back_exactly(words: list[str], picked: list[int]) -> None:
    messages = [user(word, tracking_id=word if word != "c" else str(at)) for at, word in enumerate(words)]
    slots = [logged(message, at) for at, message in enumerate(messages, 1)]
    selection = [messages[at] for at in picked if at < len(messages)]
    assert [slot.message for slot in matched(selection, slots)] == selection


def test_the_message_of_a_slot_is_a_fresh_copy() -> None:
    slot = body_of(user("a"))
    slot.message["content"].clear()
    assert texts([slot.message]) == ["a"]


# Turns


@pytest.mark.parametrize(
    ("message", "previous", "starts"),
    [
        (user("hi"), None, True),
        (user("hi"), assistant("ok"), True),
        (user("hi"), user("before"), False),
        (user("hi"), result("t"), True),
        (result("t"), use("t"), False),
        (result("t"), None, False),
        (assistant("ok"), user("hi"), False),
        (assistant("ok"), None, False),
        (user({"image": {}}), assistant("ok"), True),
        (user(), assistant("ok"), True),
    ],
)
def test_what_starts_a_turn(message: Any, previous: Any, starts: bool) -> None:
    assert starts_turn(message, previous) is starts


# Mending


def ids(*messages: Any) -> list[Any]:
    return [{**message, "tracking_id": str(number)} for number, message in enumerate(messages)]


def test_a_whole_history_is_left_alone_in_the_same_objects() -> None:
    messages = ids(user("a"), use("t"), result("t"), assistant("b"), user("c"), assistant("d"))
    assert [id(message) for message in mended(messages, cut={"4"})] == [id(message) for message in messages]


@pytest.mark.parametrize(
    ("messages", "cut", "shapes"),
    [
        ([user("a")], {"0"}, ["a", CUT_TEXT]),
        ([user("a")], set(), ["a"]),
        ([user("a"), use("t")], {"0", "1"}, ["a", "toolUse", "toolResult", CUT_TEXT]),
        ([user("a"), use("t")], set(), ["a", "toolUse", "toolResult", CUT_TEXT]),
        ([user("a"), use("t"), result("t")], {"0", "1", "2"}, ["a", "toolUse", "toolResult", CUT_TEXT]),
        ([user("a"), use("t"), result("t")], set(), ["a", "toolUse", "toolResult"]),
        ([user("a"), user("b"), assistant("c")], {"0"}, ["a", CUT_TEXT, "b", "c"]),
        ([user("a"), user("b"), assistant("c")], set(), ["a", "b", "c"]),
        ([user("a"), use("t"), user("b"), assistant("c")], {"0", "1"}, ["a", "toolUse", "toolResult", CUT_TEXT, "b", "c"]),
        ([user("a"), use("t"), user("b"), assistant("c")], set(), ["a", "toolUse", "b", "c"]),
    ],
)
def test_cut_turns_are_closed(messages: Any, cut: set[str], shapes: list[str]) -> None:
    assert texts(mended(ids(*messages), cut=cut)) == shapes


def test_two_calls_of_which_one_is_answered() -> None:
    both = assistant(tool_use("t", "find", title="x"), tool_use("u", "find", title="y"))
    closed = mended(ids(user("a"), both, result("t")), cut={"0", "1", "2"})
    answered = {block["toolResult"]["toolUseId"] for block in closed[2]["content"]}
    assert answered == {"t", "u"}


def test_a_trailing_tool_call_is_kept_for_an_active_interrupt() -> None:
    messages = ids(user("a"), use("t"))
    assert mended(messages, cut={"0", "1"}, keep_trailing_tool_use=True) == messages


def test_notes_that_are_not_needed_any_more_go() -> None:
    messages = ids(user("a"), use("t"))
    closed = mended(messages, cut={"0", "1"})
    assert mended(closed) == closed
    finished = [*messages, *ids(result("t"), assistant("b"))]
    assert texts(mended([*messages, *closed[2:], *finished[2:]], cut=set()))[:2] == ["a", "toolUse"]
    assert texts(mended([*closed[2:], *finished])) == ["a", "toolUse", "toolResult", "b"]
    assert texts(mended([closed[-1], *finished])) == ["a", "toolUse", "toolResult", "b"]


def test_a_note_that_a_conversation_manager_marked_as_left_out_goes_too() -> None:
    messages = ids(user("a"), use("t"))
    *_, note = mended(messages, cut={"0", "1"})
    finished = [*messages, *ids(result("t")), stub_of(note), *ids(assistant("b"))]
    assert texts(mended(finished)) == ["a", "toolUse", "toolResult", "b"]


def test_a_note_that_was_marked_as_left_out_is_carried_with_its_turn() -> None:
    messages = ids(user("a"), use("t"))
    *_, results, note = mended(messages, cut={"0", "1"})
    carried = [logged(message, seq) for seq, message in enumerate(messages, 1)]
    shown = shown_of([*carried, body_of(results), body_of(stub_of(note))], carried, log={}, first=1, beside=())
    assert texts(slot.message for slot in shown) == ["a", "toolUse", "toolResult", "[…]"]


def test_what_is_carried_is_shown_once_where_its_last_message_is_shown_in_another_form() -> None:
    question, answer = [logged(message, seq) for seq, message in enumerate(ids(user("a"), assistant("b")), 1)]
    window = [question, body_of(stub_of(answer.message))]
    shown = shown_of(window, [question, answer], log={}, first=1, beside=())
    assert texts(slot.message for slot in shown) == ["a", "[…]"]


def test_a_call_whose_results_are_lost_gets_some_although_its_turn_has_an_end() -> None:
    messages = ids(user("a"), use("t"), stub_of(assistant("b")), user("c"), assistant("d"))
    closed = mended(messages, cut={"0", "1", "2"})
    assert texts(closed) == ["a", "toolUse", "toolResult", "[…]", "c", "d"]
    assert mended(closed, cut={"0", "1", "2"}) == closed
    assert mended(messages) == messages


def test_an_edited_form_is_carried_with_its_turn_where_the_message_itself_is_not_at_hand() -> None:
    """Another process has left it out of its window; without the mark, the turn would end with the user's side."""
    question, answer = [logged(message, seq) for seq, message in enumerate(ids(user("a"), assistant("b")), 1)]
    question.turn_id = answer.turn_id = "w.1"
    mark = body_of(stub_of(answer.message), edits=answer)
    shown = shown_of([question, mark, mark], [question], log={}, first=1, beside=())
    assert texts(slot.message for slot in shown) == ["a", "[…]"]
    assert shown_of([question, mark], [question], log={}, first=1, beside=[answer]) == [question]


def test_what_is_carried_is_shown_once_where_its_last_message_has_no_number_yet() -> None:
    carried = [logged(message, seq) for message, seq in zip(ids(user("a"), use("t"), assistant("b")), (1, 2, 0), strict=True)]
    assert shown_of(carried, carried, log={}, first=1, beside=()) == carried


def test_a_call_whose_results_came_after_a_note_is_answered() -> None:
    messages = ids(user("a"), use("t"), result("t"), assistant("b"))
    _, _, *notes = mended(messages[:2], cut={"0", "1"})
    assert mended([*messages[:2], *notes, *messages[2:]], cut={"0", "1"}) == messages


def test_results_that_come_after_all_replace_those_that_said_they_would_not() -> None:
    messages = ids(user("a"), use("t"))
    closed = mended(messages, cut={"0", "1"})
    late = {**result("t"), "tracking_id": "late"}
    assert texts(mended([*closed, late, assistant("b")])) == ["a", "toolUse", "toolResult", "b"]
    assert mended([*closed, late, assistant("b")])[2] is late


def test_every_process_closes_a_turn_alike() -> None:
    messages = ids(user("a"), use("t"))
    assert mended(messages, cut={"0", "1"}) == mended(copy.deepcopy(messages), cut={"0", "1"})
    assert all(message["tracking_id"] for message in mended(messages, cut={"0", "1"}))


def test_a_note_before_results_that_belong_to_another_turn_goes_when_the_answer_is_there() -> None:
    """Rebased copies may bring what closed one turn in between the question and the answer of another."""
    question, answer = ids(user("a"), assistant("b"))
    elsewhere = [{**message, "tracking_id": f"other {message['role']}"} for message in (user("c"), use("t"))]
    _, _, results, other = mended(elsewhere)
    _, note = mended([question], cut={"0"})
    assert mended([question, note, results, other, answer]) == [question, answer]


_FINISHED = [user("a"), use("t"), result("t"), assistant("b"), user("c"), assistant("d"), user("e"), use("u"), result("u")]


@given(st.lists(st.tuples(st.sampled_from(range(len(_FINISHED))), st.integers(0, len(_FINISHED))), max_size=6))
def test_what_closed_turns_goes_wherever_it_got_when_they_are_finished(placed: list[tuple[int, int]]) -> None:
    messages = ids(*_FINISHED, assistant("f"))
    closing = {at: mended(messages[: at + 1], cut={str(at)})[at + 1 :] for at in range(len(_FINISHED))}
    window = list(enumerate(messages))
    for at, place in placed:
        window += [(place, message) for message in closing[at]]
    assert mended([message for _, message in sorted(window, key=lambda pair: pair[0])]) == messages


@pytest.mark.parametrize("metadata", [None, {}, {"custom": None}, {"custom": {}}, {"usage": {}}])
def test_strange_metadata_does_no_harm(metadata: Any) -> None:
    messages = [user("a", metadata=metadata), assistant("b", metadata=metadata)]
    assert mended(messages) == messages


@given(st.lists(st.sampled_from(["user", "use", "result", "answer"]), max_size=14), st.sets(st.integers(0, 13)))
def test_mending_takes_nothing_away(kinds: list[str], cut: set[int]) -> None:
    """Nothing but its own notes is added, between the messages as they were, in their order; without a cut nothing inside."""
    build = {"user": user("u"), "use": use("t"), "result": result("t"), "answer": assistant("a")}
    messages = ids(*(copy.deepcopy(build[kind]) for kind in kinds))
    closed = mended(messages, cut={str(number) for number in cut})
    assert [message for message in closed if message["tracking_id"].isdigit()] == messages
    uncut = mended(messages)
    assert uncut[: len(messages)] == messages
    assert len(uncut) - len(messages) == (2 if kinds[-1:] == ["use"] else 0)
