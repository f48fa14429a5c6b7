"""What one speaker said in a row is one message, and is taken apart again without loss."""

from __future__ import annotations

import copy
from typing import Any

import hypothesis
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strands_manga_memory.conversation.history.stubs import as_said, condensed, is_between, is_stub, stub_of
from strands_manga_memory.conversation.importance.choosing.groups import is_pinned
from strands_manga_memory.joining import is_joined, joined, may_join, parted
from strands_manga_memory.messages import problems
from tests.unit.conversation.messages import assistant, calls, pinned, results, user

_numbers = st.integers(0, 10**15) | st.floats(allow_nan=False)
_blocks = st.lists(st.text(max_size=8).map(lambda text: {"text": text}), min_size=1, max_size=3)
_metadata = st.fixed_dictionaries({"usage": st.dictionaries(st.text(max_size=5), _numbers, max_size=2)})
_parts = st.lists(
    st.fixed_dictionaries(
        {"role": st.just("assistant"), "content": _blocks},
        optional={"metadata": _metadata, "tracking_id": st.text(max_size=8), "later": st.binary(max_size=4)},
    ),
    min_size=2,
    max_size=5,
)


@given(_parts)
def test_what_was_joined_comes_apart_as_it_was(parts: list[Any]) -> None:
    message = joined(copy.deepcopy(parts))
    assert list(parted(message)) == parts
    assert message == joined(parts)


def test_a_single_message_is_joined_of_itself() -> None:
    message = user()
    assert joined([message]) is message
    assert parted(message) == (message,)


def test_what_is_pinned_later_is_pinned_in_every_part() -> None:
    message = pinned(joined([assistant("a", metadata={"usage": {"inputTokens": 3}}), assistant("b")]))
    message["metadata"] |= joined([assistant("a", metadata={"usage": {"inputTokens": 3}}), assistant("b")])["metadata"]
    first, second = parted(message)
    assert first["metadata"] == {"usage": {"inputTokens": 3}, "custom": {"pinned": True}}
    assert second["metadata"] == {"custom": {"pinned": True}}
    assert not may_join(user("pinned", metadata={"custom": {"pinned": True}}), user())


def test_what_was_added_to_a_joined_message_belongs_to_its_last_part() -> None:
    message = joined([user("a"), user("b")])
    message["content"].append({"text": "c"})
    assert [part["content"] for part in parted(message)] == [[{"text": "a"}], [{"text": "b"}, {"text": "c"}]]


@pytest.mark.parametrize(
    "parts",
    [
        "",
        "[]",
        "[[1,{}]]",
        "[[1,{}],[0,{}]]",
        "[[1,{}],[5,{}]]",
        "{}",
        "[1,2]",
        '[["1",{}],[1,{}]]',
        "[[1,2],[1,2]]",
        '[[1,{}],[1,{"role":"assistant"}]]',
    ],
)
def test_a_message_that_is_not_what_it_was_joined_of_is_a_message_like_any_other(parts: str) -> None:
    message = user("a", metadata={"parts": parts})
    message["content"] += [{"text": "b"}, {"text": "c"}]
    assert parted(message) == (message,)
    assert as_said([message]) == [message]


_kind = st.sampled_from(["said", "said", "left out", "pinned", "short"])
_kinds = st.lists(st.tuples(_kind, st.integers(0, 4).map(lambda drawn: drawn == 4)), min_size=1, max_size=12)


@given(_kinds)
@example([("said", False), ("said", False), ("left out", False), ("left out", False), ("said", False), ("left out", True)])
@example([("said", False), ("pinned", False), ("left out", False), ("left out", False), ("pinned", False)])
def test_a_history_keeps_its_texts_and_its_order_and_stays_valid(kinds: list[tuple[str, bool]]) -> None:
    said: list[Any] = []
    for kind, has_tool in kinds:
        asked, answer = user(f"what about number {len(said)} of them?"), assistant(f"this is what it says of {len(said)}")
        said.append({"said": asked, "left out": stub_of(asked), "pinned": pinned(asked), "short": user("yes")}[kind])
        said += [calls(f"t{len(said)}"), results(f"t{len(said)}")] if has_tool else []
        said.append(stub_of(answer) if kind == "left out" or len(said) % 3 == 0 else answer)
    history = [joined([said[at] for at in run]) for run in condensed(said)]
    hypothesis.event("joined" if any(map(is_joined, history)) else "nothing is joined")
    assert problems(history) == []
    assert not any(map(is_joined, (one for one in history if "yes" in str(one["content"]))))
    assert all(is_pinned(part) == is_pinned(one) for one in history for part in parted(one))
    texts = [each for each in said if not is_stub(each)]
    assert [each for each in as_said(history) if not is_stub(each)] == texts
    assert problems(as_said(history)) == []
    again = [joined([as_said(history)[at] for at in run]) for run in condensed(as_said(history))]
    assert again == history


def test_marks_stand_between_what_was_joined_and_are_nobodys() -> None:
    one, two = user("one"), user("two")
    first, mark, second = as_said([joined([one, two])])
    assert (first, second) == (one, two)
    assert is_between(mark)
    assert mark["role"] == "assistant"
    assert not is_between(stub_of(assistant()))
    assert not is_joined(one)
