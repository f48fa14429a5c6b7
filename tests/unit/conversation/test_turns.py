"""Exchanges: what stays or goes as one."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from strands_manga_memory.conversation.exchanges import exchanges
from tests.histories import damaged_histories as histories
from tests.unit.conversation.messages import assistant, calls, results, user


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


@given(histories)
def test_exchanges_hold_every_message_once(history: list[Any]) -> None:
    assert sorted(at for exchange in exchanges(history) for at in exchange.positions()) == list(range(len(history)))
