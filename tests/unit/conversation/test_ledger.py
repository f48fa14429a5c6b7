"""What is measured once stays measured until the content changes."""

from __future__ import annotations

import copy
import threading
from typing import Any

import pytest
from strands import Agent

from strands_manga_memory.conversation import ImportanceWeightedConversationManager
from strands_manga_memory.conversation.tokens.ledger import Ledger
from strands_manga_memory.testing import ScriptedModel
from tests.unit.conversation.messages import assistant, user


class Counter:
    def __init__(self) -> None:
        self.counted: list[Any] = []

    def count(self, message: Any) -> int:
        self.counted.append(message)
        return len(message["content"][0]["text"])


def test_a_message_is_counted_once() -> None:
    counter = Counter()
    counted = Ledger(counter.count)
    message = user("four")
    assert [counted(message), counted(copy.deepcopy(message))] == [4, 4]
    assert len(counter.counted) == 1


def test_a_message_is_counted_again_when_its_content_has_changed_in_place() -> None:
    counted = Ledger(Counter().count)
    message = user("four")
    counted(message)
    message["content"][0]["text"] = "fourteen"
    assert message not in counted
    assert counted(message) == 8


def test_metadata_does_not_matter() -> None:
    counted = Ledger(Counter().count)
    message = user("four")
    counted(message)
    assert {**message, "metadata": {"usage": {"inputTokens": 1}}} in counted


def test_a_message_that_gets_its_id_is_not_counted_again() -> None:
    counter = Counter()
    counted = Ledger(counter.count)
    message = user("four")
    counted({key: value for key, value in message.items() if key != "tracking_id"})
    assert counted(message) == 4
    assert len(counter.counted) == 1
    assert len(counted) == 1  # and known once


def test_messages_that_left_are_forgotten() -> None:
    counted = Ledger(Counter().count)
    messages = [user(str(number)) for number in range(10)]
    assert [counted(message) for message in messages] == [1] * 10
    counted.forget_all_but(messages[:2])
    assert [message in counted for message in messages] == [True] * 2 + [False] * 8
    assert len(counted) == 2


def test_a_slow_measure_holds_no_lock() -> None:
    inside = threading.Event()
    go_on = threading.Event()

    def measure(message: Any) -> str:
        if message["content"][0]["text"] == "slow":
            inside.set()
            assert go_on.wait(10)
        return "measured"

    ledger = Ledger(measure)
    thread = threading.Thread(target=ledger, args=[user("slow")])
    thread.start()
    assert inside.wait(10)
    assert ledger(user("quick")) == "measured"
    go_on.set()
    thread.join(10)
    assert len(ledger) == 2


def test_what_is_known_is_looked_up_once_in_a_turn_and_again_by_whoever_may_have_changed_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_up = list[int]()
    each = Ledger.each

    def counting(ledger: Ledger[Any], messages: Any) -> list[Any]:
        looked_up.append(len(messages := list(messages)))
        return each(ledger, messages)

    agent = Agent(
        model=ScriptedModel(),
        conversation_manager=ImportanceWeightedConversationManager(100_000),
        messages=[message for n in range(100) for message in (user(f"question {n}"), assistant(f"answer {n}"))],
        callback_handler=None,
    )
    agent("one more")
    monkeypatch.setattr(Ledger, "each", counting)
    agent("and another")
    assert 200 < sum(looked_up) < 250
    looked_up.clear()
    agent.conversation_manager.apply_management(agent)
    assert max(looked_up) == len(agent.messages)
