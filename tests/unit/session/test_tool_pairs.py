"""Tool calls and results meet their other half in every history that is restored, and what does stays as it is."""

from __future__ import annotations

import copy
import itertools
import operator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strands_manga_memory.messages import for_model, problems, tool_result_ids, tool_use_ids
from strands_manga_memory.messages.placeholders import CUT_TEXT
from strands_manga_memory.session.author.showing import paired
from tests.unit.conversation.messages import assistant, calls, results, user


def told(history: list[Any]) -> list[Any]:
    """Return what each message calls, what it answers, and its role."""
    return [(m["role"], tool_use_ids(m), tool_result_ids(m)) for m in history]


USER, ASSISTANT = ("user", [], []), ("assistant", [], [])
CALL, RESULT = ("assistant", ["a"], []), ("user", [], ["a"])

BROKEN: dict[str, tuple[list[Any], list[Any]]] = {
    "the user goes on": ([calls("a"), user(), assistant()], [CALL, RESULT, ASSISTANT, USER, ASSISTANT]),
    "the assistant goes on": ([calls("a"), assistant()], [CALL, RESULT, ASSISTANT]),
    "one of two": ([calls("a", "b"), results("b"), assistant()], [("assistant", ["a", "b"], []), ("user", [], ["a", "b"])]),
    "a late result": ([calls("a"), user(), results("a"), assistant()], [CALL, RESULT, ASSISTANT, USER, ASSISTANT]),
    "a result behind an orphan": ([calls("a"), results("z"), results("a"), assistant()], [CALL, RESULT, ASSISTANT]),
    "an orphan between answers": ([assistant(), results("z"), assistant()], [ASSISTANT, USER, ASSISTANT]),
    "an orphan": ([assistant(), results("z"), user()], [ASSISTANT, USER]),
    "calls in a row": ([calls("a"), calls("a"), results("a")], [CALL, RESULT, CALL, RESULT]),
    "the last one": ([calls("a")], [CALL]),
    "the last one before an orphan": ([calls("a"), results("z")], [CALL]),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_call_is_answered_and_a_result_has_its_call(name: str) -> None:
    history, expected = BROKEN[name]
    before = copy.deepcopy(history)
    after = paired([user(), *history])
    assert told(after)[1 : len(expected) + 1] == expected
    assert history == before


def test_what_was_cut_off_is_an_error_that_says_so() -> None:
    [_, note, closing, _] = paired([{**calls("a"), "tracking_id": "t"}, user()])
    [block] = note["content"]
    assert block["toolResult"] == {"toolUseId": "a", "status": "error", "content": [{"text": CUT_TEXT}]}
    assert closing["content"] == [{"text": CUT_TEXT}]
    assert (note["tracking_id"], closing["tracking_id"]) == ("cut-t-0", "cut-t-1")


def alternates(history: list[Any]) -> bool:
    """Tell whether no two messages of one role are neighbours."""
    return all(one["role"] != other["role"] for one, other in itertools.pairwise(history))


_ids = st.lists(st.sampled_from("ab"), max_size=2, unique=True).map(tuple)
_messages = st.one_of(
    st.builds(user), st.builds(assistant), _ids.map(lambda ids: calls(*ids)), _ids.map(lambda ids: results(*ids))
)


@given(st.lists(_messages, max_size=8))
def test_nothing_is_left_to_mend_and_what_is_whole_stays_as_it_is(history: list[Any]) -> None:
    after = paired(history)
    again = paired(after)
    assert len(again) == len(after)
    assert all(map(operator.is_, again, after))
    assert not [found for found in problems(after) if "calls tools" in found or "results of tools" in found]
    if alternates(history):
        assert alternates(after), [message["role"] for message in after]
    whole = for_model(history)
    assert all(map(operator.is_, paired(whole), whole))
