"""Turns, exchanges, what is wrong with a history, and mending it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strands_manga_memory.conversation.turns import CONVERSATION_START, exchanges, is_turn_start, mended, problems, turns
from tests.unit.conversation.messages import assistant, calls, results, user


def test_a_turn_starts_with_a_message_of_the_users_own() -> None:
    assert is_turn_start(user())
    assert not is_turn_start(results("a"))
    assert not is_turn_start({"role": "user", "content": [*results("a")["content"], {"text": "and go on"}]})
    assert not is_turn_start(assistant())


def test_turns_are_a_request_with_all_that_follows_it() -> None:
    history = [assistant(), user(), calls("a"), results("a"), assistant(), user(), user(), assistant()]
    assert turns(history) == [range(1), range(1, 5), range(5, 6), range(6, 8)]
    assert turns([]) == []


def test_an_exchange_has_a_core_and_cycles_that_can_go_alone() -> None:
    history = [
        user(),
        calls("a"),
        results("a"),
        calls("b", "c"),
        results("c", "b"),
        assistant(),
        user(),
        calls("d"),
        results("d"),
    ]
    first, current = exchanges(history)
    assert first.core == (0, 5)
    assert first.cycles == ((1, 2), (3, 4))
    assert current.core == (6, 7, 8)
    assert current.cycles == ()


def test_the_result_that_came_with_a_text_of_the_user_stays_with_it() -> None:
    mixed: Any = {"role": "user", "content": [*results("a")["content"], {"text": "and one more thing"}]}
    (exchange,) = exchanges([user(), calls("a"), mixed, assistant()])
    assert exchange.core == (0, 1, 2, 3)


def test_turns_without_an_answer_belong_to_the_exchange_of_the_next_answer() -> None:
    history = [user(), user(), calls("a"), results("a"), user(), assistant(), user()]
    first, current = exchanges(history)
    assert first.core == (4, 5)
    assert first.unanswered == ((0,), (1, 2, 3))
    assert current.core == (6,)


@pytest.mark.parametrize(
    ("history", "says"),
    [
        ([assistant()], "message 0 is not a plain user message but of role assistant"),
        ([results("a")], "message 0 is not a plain user message but of role user with tool results"),
        ([user(), user()], "messages 0 and 1 are both of role user"),
        ([user(), calls("a"), user()], "message 1 calls tools that message 2 does not answer one for one"),
        ([user(), calls("a", "b"), results("a")], "message 1 calls tools that message 2 does not answer one for one"),
        ([user(), calls("a"), results("a", "b")], "message 1 calls tools that message 2 does not answer one for one"),
        ([user(), assistant(), results("a")], "message 2 holds results of tools that message 1 did not call"),
        ([user(), calls("a", "a"), results("a", "a")], "message 1 holds a toolUseId twice"),
        ([{**calls("a"), "role": "user"}], "message 0 calls tools but is of role user"),
        ([user(), {**results("a"), "role": "assistant"}], "message 1 holds tool results but is of role assistant"),
    ],
)
def test_problems_name_what_a_provider_would_refuse(history: list[Any], says: str) -> None:
    assert says in problems(history)


@pytest.mark.parametrize(
    "history",
    [
        [],
        [user()],
        [user(), assistant(), user()],
        [user(), calls("a", "b"), results("b", "a"), assistant()],
        [user(), calls("a")],
    ],
)
def test_a_valid_history_has_no_problems_and_is_not_touched(history: list[Any]) -> None:
    assert problems(history) == []
    assert mended(history) is history


def test_neighbours_of_one_role_become_one_message_with_the_id_of_the_first() -> None:
    first, second = user("one"), user("two")
    (message,) = mended([first, second])
    assert message["content"] == [{"text": "one"}, {"text": "two"}]
    assert message["tracking_id"] == first["tracking_id"]
    assert first["content"] == [{"text": "one"}]


def test_calls_and_results_without_their_other_half_go() -> None:
    history = [results("z"), user(), calls("a", "b", text="looking"), results("b", "c"), calls("d"), assistant(), calls("e")]
    after = mended(history)
    assert problems(after) == []
    assert [block for message in after for block in message["content"] if "toolUse" in block or "toolResult" in block] == [
        calls("b")["content"][0],
        results("b")["content"][0],
        calls("e")["content"][0],
    ]


def test_reasoning_goes_with_the_calls_it_led_to() -> None:
    thinking = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}}
    call = calls("a")
    call["content"].insert(0, thinking)
    assert mended([user("x"), call, user("y")])[0]["content"] == [{"text": "x"}, {"text": "y"}]


def test_a_history_that_starts_with_the_assistant_gets_a_short_user_message() -> None:
    after = mended([assistant("Welcome!"), user(), assistant()])
    assert problems(after) == []
    assert after[0]["content"] == [{"text": CONVERSATION_START}]
    assert after[1]["content"] == [{"text": "Welcome!"}]


_blocks = st.one_of(
    st.just({"text": "t"}),
    st.sampled_from("abc").map(lambda id_: calls(id_)["content"][0]),
    st.sampled_from("abc").map(lambda id_: results(id_)["content"][0]),
    st.just({"reasoningContent": {"reasoningText": {"text": "hm"}}}),
)
_histories = st.lists(
    st.builds(
        lambda role, content: {"role": role, "content": content},
        st.sampled_from(["user", "assistant"]),
        st.lists(_blocks, min_size=1, max_size=4),
    ),
    max_size=8,
)


@given(_histories)
def test_any_history_can_be_mended_without_changing_its_messages(history: list[Any]) -> None:
    before = copy.deepcopy(history)
    after = mended(history)
    assert problems(after) == []
    assert mended(after) is after
    assert history == before


@given(_histories)
def test_exchanges_hold_every_message_once(history: list[Any]) -> None:
    assert sorted(at for exchange in exchanges(history) for at in exchange.positions()) == list(range(len(history)))
