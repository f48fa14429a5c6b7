"""Round trips, commands, bytes and write units of a turn, which do not grow with age."""

import random
from typing import Any

import pytest
from strands import Agent
from strands.agent.conversation_manager import SlidingWindowConversationManager

from strands_manga_memory.testing import ScriptedModel
from tests.support import WatchedStore
from tests.unit.session.support import (
    Stores,
    durable_units,
    find,
    open_stores,
    quiet,
    same,
    texts,
    tool_use,
)


@pytest.fixture
def both(request: pytest.FixtureRequest) -> Stores:
    stores = open_stores("valkey+sqlite", request)
    stores.hot, stores.durable = WatchedStore(stores.hot), WatchedStore(stores.durable)
    return stores


def talk(messages: Any) -> Any:
    last = messages[-1]["content"][0]
    if "toolResult" in last:
        return "found it"
    return (
        [tool_use(f"t{len(messages)}", "find", title="x")]
        if last["text"].startswith("tool")
        else "fine"
    )


def calls(store: Any, turn: Any) -> list[str]:
    before = len(store.calls)
    turn()
    return store.calls[before:]


def warm(both: Stores, **settings: Any) -> Agent:
    live = both.agent(ScriptedModel(talk), tools=[find], flush_every=100, **settings)
    live("hello")
    quiet(live)
    return live


def test_one_round_trip_a_turn(both: Stores) -> None:
    live = warm(both)
    assert calls(both.hot, lambda: live("text")) == ["write"]
    assert calls(both.hot, lambda: live("tool")) == ["write"]
    assert calls(both.hot, lambda: live("tool again")) == ["write"]
    assert calls(both.durable, lambda: live("more")) == []


def test_a_refresh_is_one_more(both: Stores) -> None:
    live = warm(both, refresh="turn")
    assert calls(both.hot, lambda: live("text")) == ["load", "write"]


def test_a_turn_that_changed_nothing_costs_nothing(both: Stores) -> None:
    live = warm(both)
    live._session_manager.flush()
    quiet(live)
    assert calls(both.hot, live._session_manager.flush) == []
    assert calls(both.durable, live._session_manager.flush) == ["batch_get"]


def test_a_restore_is_one_round_trip_to_each_tier(both: Stores) -> None:
    warm(both)._session_manager.flush()
    before = len(both.hot.calls), len(both.durable.calls)
    both.agent()
    assert both.hot.calls[before[0] :] == ["load"]
    assert both.durable.calls[before[1] :] == ["batch_get"]


def test_a_cold_restore_also_looks_for_turns_whose_flush_was_cut(both: Stores) -> None:
    live = warm(both)
    live("two")
    live._session_manager.flush()
    both.lose_hot()
    before = len(both.durable.calls)
    assert same(both.agent().messages, live.messages)
    assert sorted(both.durable.calls[before:]) == ["batch_get", "batch_get", "query"]


@pytest.mark.parametrize("lost", [False, True], ids=["hot and durable", "durable alone"])
def test_the_end_of_a_log_is_read_without_its_beginning(both: Stores, lost: bool) -> None:
    window = SlidingWindowConversationManager(10)
    live = both.agent(ScriptedModel(talk), tools=[find], flush_every=5, conversation_manager=window)
    for turn in range(43):
        live(f"tool {turn}" if turn % 7 == 0 else f"text {turn}")
    quiet(live)
    if lost:
        live._session_manager.flush()
        both.lose_hot()
    for manager in (live._session_manager, both.manager()):
        whole = list(manager.records())
        assert [record["seq"] for record in whole] == list(range(1, len(whole) + 1))
        for last in (0, 1, 5, 11, 1000):
            assert list(manager.records(last=last)) == whole[max(0, len(whole) - last) :]
    read: list[bool] = []
    query = both.durable._store.query

    def counted(*arguments: Any, **named: Any) -> Any:
        for item in query(*arguments, **named):
            read.append(named.get("attributes") is None)
            yield item

    both.durable._store.query = counted
    list(both.manager().records(last=6))
    assert sum(read) <= 6


def test_a_flush_of_five_turns_of_one_kilobyte(request: pytest.FixtureRequest) -> None:
    stores = open_stores("valkey+dynamodb", request)
    written: list[int] = []

    def count_units(name: str, *given: Any, **_: Any) -> None:
        written.extend([durable_units(given[0])] if name == "put" else [])

    table = stores.durable = WatchedStore(stores.durable, count_units)
    letters = random.Random(5)

    def words(size: int) -> str:
        return " ".join(
            "".join(letters.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(size // 7)
        )

    live = stores.agent(ScriptedModel(lambda messages: words(500)))
    for _ in range(2):
        live(words(500))
    live._session_manager.flush()
    quiet(live)
    for _ in range(4):
        live(words(500))
    quiet(live)
    before = len(table.calls), sum(written)
    live(words(500))
    live._session_manager.flush()
    quiet(live)
    assert table.calls[before[0] :].count("put") == 5 + 1, "the turns and the head"
    assert sum(written) - before[1] <= 5 * 2 + 1


def test_five_turns_are_flushed_together(both: Stores) -> None:
    live = both.agent(flush_every=5)
    live("turn 1")
    quiet(live)
    puts = [0]
    for turn in range(2, 12):
        before = both.durable.calls.count("put")
        live(f"turn {turn}")
        quiet(live)
        puts.append(both.durable.calls.count("put") - before)
    assert [turn for turn, count in enumerate(puts, 1) if count] == [5, 10]


@pytest.mark.parametrize("window", [100, 4], ids=["all in the window", "most of it dropped"])
def test_five_turns_are_flushed_together_also_by_workers_that_answer_one_message(
    both: Stores, window: int
) -> None:
    puts, kept = [], []
    for turn in range(1, 26):
        before = both.durable.calls.count("put")
        live = both.agent(
            flush_every=5, conversation_manager=SlidingWindowConversationManager(window)
        )
        live(f"turn {turn}")
        quiet(live)
        puts.append(both.durable.calls.count("put") - before)
        kept.append(_messages_in_hot(both))
    assert [turn for turn, count in enumerate(puts, 1) if count] == [1, 5, 10, 15, 20, 25]
    assert min(50, window) <= max(kept) <= min(50, window + 2 * 5 + 2), (
        "the hot tier keeps the window, and what the durable one lacks"
    )
    both.lose_hot()
    restored = both.agent(conversation_manager=SlidingWindowConversationManager(window))
    assert len(restored.messages) == min(50, window)
    assert texts(both.manager().history())[::2] == [f"turn {turn}" for turn in range(1, 26)]


def test_what_was_revised_since_a_flush_reaches_the_durable_tier_although_its_worker_is_gone(
    both: Stores,
) -> None:
    one = warm(both)
    one("turn 2")
    quiet(one)
    gone = both.elsewhere().agent(flush_every=100)
    one._session_manager.flush()
    conversation = gone._session_manager._conversations["A", gone.agent_id]
    assert conversation.redact({**gone.messages[2], "content": [{"text": "revised"}]}, ())
    conversation.saver.request().result()
    after = both.elsewhere().agent(flush_every=100)
    assert texts(after.messages)[2] == texts(after._session_manager.history())[2] == "revised"
    after("turn 3")
    after._session_manager.flush()
    both.lose_hot()
    assert texts(both.elsewhere().manager().history())[::2] == ["hello", "revised", "turn 3"]


def _messages_in_hot(stores: Stores) -> int:
    """Return the number of messages in the hot tier: two of each turn."""
    names = stores.client.scan_iter(match=f"smm:*{stores.session}*")
    turns = [
        field
        for name in names
        if stores.client.type(name) == b"hash"
        for field in stores.client.hkeys(name)
        if field.startswith(b"f:turn.")
    ]
    return 2 * len(turns)


def test_without_a_hot_tier_every_turn_is_flushed(request: pytest.FixtureRequest) -> None:
    stores = open_stores("sqlite", request)
    table = stores.durable = WatchedStore(stores.durable)
    live = stores.agent()
    live("one")
    for number in range(3):
        assert calls(table, lambda number=number: live(f"turn {number}")) == ["put"]
