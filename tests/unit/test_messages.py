"""Messages: tool-call ids, turns, refusals of providers, repairs, fingerprints."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strands_manga_memory.messages import (
    content_fingerprint,
    fingerprint,
    for_model,
    is_message,
    is_turn_start,
    starts_turn,
    tool_result_ids,
    tool_use_ids,
    turns,
)
from tests.histories import problems
from tests.unit.conversation.messages import Silent, assistant, calls, results, user
from tests.unit.session.support import tool_use


def test_a_turn_starts_with_a_message_of_the_users_own() -> None:
    assert is_turn_start(user())
    assert not is_turn_start(results("a"))
    assert not is_turn_start(
        {"role": "user", "content": [*results("a")["content"], {"text": "and go on"}]}
    )
    assert not is_turn_start(assistant())


def test_turns_are_a_request_with_all_that_follows_it() -> None:
    history = [
        assistant(),
        user(),
        calls("a"),
        results("a"),
        assistant(),
        user(),
        user(),
        assistant(),
    ]
    assert turns(history) == [range(1), range(1, 5), range(5, 6), range(6, 8)]
    assert turns([]) == []


@pytest.mark.parametrize(
    ("history", "says"),
    [
        ([assistant()], "message 0 is not a plain user message but of role assistant"),
        ([results("a")],
            "message 0 is not a plain user message but of role user with tool results"),
        ([user(), user()], "messages 0 and 1 are both of role user"),
        ([user(), calls("a"), user()],
            "message 1 calls tools that message 2 does not answer one for one"),
        ([user(), calls("a", "b"), results("a")],
            "message 1 calls tools that message 2 does not answer one for one"),
        ([user(), calls("a"), results("a", "b")],
            "message 1 calls tools that message 2 does not answer one for one"),
        ([user(), assistant(), results("a")],
            "message 2 holds results of tools that message 1 did not call"),
        ([user(), calls("a", "a"), results("a", "a")], "message 1 holds a toolUseId twice"),
        ([{**calls("a"), "role": "user"}], "message 0 calls tools but is of role user"),
        ([user(), {**results("a"), "role": "assistant"}],
            "message 1 holds tool results but is of role assistant"),
    ],
)  # fmt: skip
def test_problems_name_what_a_provider_would_refuse(history: list[Any], says: str) -> None:
    assert says in problems(history)


@pytest.mark.parametrize(
    "history",
    [
        [],
        [user()],
        [user(), assistant(), user()],
        [user(), calls("a", "b"), results("b", "a"), assistant()],
    ],
)
def test_a_valid_history_has_no_problems_and_is_not_touched(history: list[Any]) -> None:
    assert problems(history) == []
    assert for_model(history) is history


_json = st.recursive(
    st.none() | st.text(max_size=4) | st.binary(max_size=4) | st.integers(2, 9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(_json, _json)
def test_values_have_one_fingerprint_exactly_if_they_are_equal(one: Any, other: Any) -> None:
    assert fingerprint(one) == fingerprint(copy.deepcopy(one))
    if one != other:
        assert fingerprint(one) != fingerprint(other)


def test_role_and_every_block_count() -> None:
    message = user("a")
    variants = [
        message,
        {**message, "role": "assistant"},
        user("b"),
        calls("a"),
        results("a"),
        results("a", status="error"),
    ]
    assert len({content_fingerprint(variant) for variant in variants}) == len(variants)


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, True), (1, 1.0), (-1, -2), (0, 2**61 - 1), (0.0, -0.0), (b"a", "a"), (None, "None")],
)
def test_values_of_another_type_or_sign_have_another_fingerprint(one: Any, other: Any) -> None:
    assert fingerprint({"json": one}) != fingerprint({"json": other})


@pytest.mark.parametrize("value", [Silent(), 10**5_000], ids=["no text", "many digits"])
def test_change_beside_a_value_without_text_changes_the_fingerprint(value: Any) -> None:
    assert fingerprint({"price": 100, "other": value}) == fingerprint(
        {"price": 100, "other": value}
    )
    assert fingerprint({"price": 100, "other": value}) != fingerprint(
        {"price": 120, "other": value}
    )


def test_integers_of_any_length_have_different_fingerprints() -> None:
    assert (
        len({fingerprint([value]) for value in (Silent(), 10**5_000, -(10**5_000), 10**5_000 + 1)})
        == 4
    )


_cycle: dict[str, Any] = {}
_cycle["in"] = _cycle


@pytest.mark.parametrize(
    ("one", "other"),
    [(100, 120), (1, True), ({}, []), ([["a", 1]], {"a": 1}), (-1, -2), ([_cycle, 1], [_cycle, 2])],
)
def test_change_beside_an_image_changes_the_fingerprint(one: Any, other: Any) -> None:
    image = {"image": {"format": "png", "source": {"bytes": b"png"}}}
    shown: list[Any] = [results("a", content=[image, {"json": {"found": v}}]) for v in (one, other)]
    assert content_fingerprint(shown[0]) != content_fingerprint(shown[1])


def test_a_fingerprint_does_not_depend_on_how_objects_are_shared() -> None:
    block = {"text": "the same"}
    assert fingerprint([block, block]) == fingerprint(
        [dict(block), {"text": "".join(["the ", "same"])}]
    )

    image = {"format": "png", "source": {"bytes": b"png"}}
    once: Any = results("a", content=[{"image": image}, {"image": image}])
    assert content_fingerprint(once) == content_fingerprint(_with_copies(once))


def _with_copies(value: Any) -> Any:
    """Return an equal value in which no object occurs twice."""
    if isinstance(value, dict):
        return {key: _with_copies(inner) for key, inner in value.items()}
    return [_with_copies(inner) for inner in value] if isinstance(value, list) else value


def test_values_of_any_depth_have_fingerprints() -> None:
    deep: Any = "x"
    for _ in range(30_000):  # more than Python's or the C stack has room for
        deep = [deep]
    assert fingerprint(deep) != fingerprint([deep])
    while isinstance(
        deep, list
    ):  # a value of so many levels is freed level by level here, or by the C stack
        deep = deep.pop()


def test_what_holds_itself_has_a_fingerprint() -> None:
    one, other, third = [[0], [0], [0, 1]]
    for each in (one, other, third):
        each.append({"in": each})
    assert fingerprint(one) == fingerprint(other) != fingerprint(third)


def test_what_cannot_be_hashed_is_told_by_what_it_says() -> None:
    assert fingerprint({"data": bytearray(b"a")}) == fingerprint({"data": bytearray(b"a")})
    assert fingerprint({"data": bytearray(b"a")}) != fingerprint({"data": bytearray(b"b")})


@pytest.mark.parametrize(
    "content",
    [None, [], ["text"], [{"toolUse": None}], [{"toolUse": {}}], [{"toolResult": "a"}], [7]],
)
def test_blocks_of_any_shape_have_no_ids(content: Any) -> None:
    message = {"role": "user", "content": content}
    assert tool_use_ids(message) == tool_result_ids(message) == []


def test_ids_come_in_order_and_may_be_numbers() -> None:
    assert tool_use_ids(calls("b", "a")) == ["b", "a"]
    assert tool_result_ids({"role": "user", "content": [{"toolResult": {"toolUseId": 7}}]}) == [7]


def test_messages_of_the_user_that_follow_one_another_start_one_turn() -> None:
    assert starts_turn(user(), None)
    assert starts_turn(user(), assistant())
    assert starts_turn(user(), results("a"))
    assert not starts_turn(user(), user())
    assert not starts_turn(results("a"), calls("a"))


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        {"role": "user"},
        {"role": 1, "content": []},
        {"role": "user", "content": "x"},
        {"role": "user", "content": ["x"]},
    ]
    + [
        {"role": "user", "content": [{kind: wrong}]}
        for kind in ("toolUse", "toolResult")
        for wrong in (None, {}, {"toolUseId": []})
    ]
    + [
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "a", "name": "lookup"}}]},
        {"role": "assistant", "content": [tool_use("a", None)]},
        {"role": "assistant", "content": [{"text": [[]]}]},
        {"role": "assistant", "content": [{"text": "x"}, {"text": 5}]},
        {"role": "user", "content": [], "tracking_id": []},
    ],
)
def test_what_is_no_message_is_told_from_one(value: Any) -> None:
    assert not is_message(value)


@pytest.mark.parametrize(
    "value",
    [
        *(user(), calls("a"), results("a"), {"role": "user", "content": []},
            {"role": "x", "content": [{}]}),
        {"role": "user", "content": [{"text": [[]]}, {"text": 42}, {"text": None}]},
        {"role": "assistant", "content": [{"text": None}]},
    ],
)  # fmt: skip
def test_messages_of_any_blocks_are_messages(value: Any) -> None:
    assert is_message(value)
