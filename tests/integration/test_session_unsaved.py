"""A new agent sees the turns that other agents of its process could not save yet."""

import gc
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from strands import ToolContext, tool
from strands.agent.conversation_manager import (
    NullConversationManager,
    SlidingWindowConversationManager,
)
from strands.hooks import BeforeModelCallEvent

from strands_manga_memory import InMemoryHotStore, MangaMemory, StoreUnavailableError
from strands_manga_memory.stores import SQLiteTable
from strands_manga_memory.testing import ScriptedModel
from tests.support import finish_writes
from tests.unit.session.support import (
    Stores,
    find,
    interrupt_answers,
    one_tool_turn,
    texts,
    tool_use,
)


class FullHotStore(InMemoryHotStore):
    """Hot store that can be read, and that refuses writes while ``is_full``."""

    survives_process = True
    is_full = False

    def write(self, *args: Any, **named: Any) -> Any:
        if self.is_full:
            raise StoreUnavailableError("a replica takes no writes")
        return super().write(*args, **named)


class FullTable(SQLiteTable):
    """SQLite table that can be read, and that refuses writes while ``is_full``."""

    is_full = False

    def _write(self, writes: Any, *, scrub: bool = True) -> bool:
        if self.is_full:
            raise StoreUnavailableError("the disk is full")
        return super()._write(writes, scrub=scrub)


@pytest.fixture
def full(tmp_path: Path) -> Any:
    table = FullTable(tmp_path / "s.sqlite3")
    table.create_if_missing()
    return Stores(None, table, "s")


def recover(stores: Any) -> None:
    """Let the table take writes again, and wait until all is saved."""
    stores.durable.is_full = False
    finish_writes(stores.hot, stores.durable)


def check_stored(stores: Stores, *turns: str, state: dict[str, Any] | None = None) -> None:
    """Check that another process restores the turns, in order, and that the log has each once."""
    expected = [text for turn in turns for text in (turn, "ok")]
    other = stores.elsewhere()
    live = other.agent()
    assert texts(live.messages) == expected
    assert texts(other.manager().history()) == expected
    assert live.state.get() == (state or {})


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("kept", ["alive", "collected", "closed"])
def test_a_turn_that_the_table_refused(full: Any, *, begun: bool, kept: str) -> None:
    before = ["t0"] if begun else []
    if begun:
        full.agent()("t0")
    full.durable.is_full = True
    first = full.agent()
    first.state.set("cart", 1)
    first.state.set("name", "Ann")
    first("t1")
    if kept == "closed":
        with pytest.raises(StoreUnavailableError):
            first._session_manager.close()
    if kept != "alive":
        del first
        gc.collect()

    model = ScriptedModel()
    second = full.agent(model)
    assert second.state.get() == {"cart": 1, "name": "Ann"}
    expected = [text for turn in [*before, "t1"] for text in (turn, "ok")]
    assert texts(full.manager().history()) == expected
    second.state.set("cart", 2)
    second("t2")
    assert texts(model.requests[-1].messages) == [*expected, "t2"]
    assert texts(full.manager().history()) == [*expected, "t2", "ok"]
    assert second._session_manager.stats()["unsaved_messages"] == 4

    recover(full)
    check_stored(full, *before, "t1", "t2", state={"cart": 2, "name": "Ann"})
    second("t3")
    full.agent()("t4")
    finish_writes(full.hot, full.durable)
    check_stored(full, *before, "t1", "t2", "t3", "t4", state={"cart": 2, "name": "Ann"})


def test_a_locked_file_through_the_public_interface(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite3"
    with MangaMemory.open(durable=f"sqlite:///{path}", durable_deadline=0.2) as memory:

        def ask(text: str) -> list[str]:
            model = ScriptedModel()
            live = memory.agent(model, user_id="u", session_id="s", callback_handler=None)
            live(text)
            return texts(model.requests[-1].messages)

        ask("t0")
        with sqlite3.connect(path, isolation_level=None) as lock:
            lock.execute("BEGIN IMMEDIATE")
            assert ask("t1") == ["t0", "ok", "t1"]
            assert ask("t2") == ["t0", "ok", "t1", "ok", "t2"]
            lock.rollback()
        lock.close()
        assert ask("t3") == ["t0", "ok", "t1", "ok", "t2", "ok", "t3"]
        finish_writes(None, memory.durable)
    with MangaMemory.open(durable=f"sqlite:///{path}") as memory:
        live = memory.agent(ScriptedModel(), user_id="u", session_id="s")
        assert texts(live.messages) == [f"t{n // 2}" if n % 2 == 0 else "ok" for n in range(8)]


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("deleted_by", ["process", "other process"])
def test_a_deleted_turn_does_not_come_back(full: Any, *, begun: bool, deleted_by: str) -> None:
    if begun:
        full.agent()("t0")
    full.durable.is_full = True
    first = full.agent()
    first.state.set("cart", 1)
    first("t1")
    held = full.agent()
    assert "t1" in texts(held.messages)
    if deleted_by == "process":
        full.durable.is_full = False
        full.manager().delete_session()
        full.durable.is_full = True
    else:
        full.elsewhere().manager().delete_session()
    second = full.agent()
    assert second.messages == []
    assert second.state.get() == {}
    assert list(full.manager().history()) == []
    second("t2")
    recover(full)
    check_stored(full, "t2")
    for live in (first, held):  # their next turn begins with an empty history
        live._session_manager.flush()
    check_stored(full, "t2")


@pytest.mark.parametrize("stored", [True, False])
def test_a_redacted_message(full: Any, *, stored: bool) -> None:
    full.durable.is_full = not stored
    first = full.agent(durable_deadline=0.1)
    first("secret")
    full.durable.is_full = True
    alive = full.agent()
    assert texts(alive.messages) == ["secret", "ok"]
    redacted = {**first.messages[0], "content": [{"text": "[gone]"}]}
    first._session_manager.redact_latest_message(redacted, first)
    second = full.agent()
    assert texts(second.messages) == ["[gone]", "ok"]
    assert texts(full.manager().history()) == ["[gone]", "ok"]
    second("t1")
    alive("t2")
    recover(full)
    assert "secret" not in str(list(full.elsewhere().manager().history()))
    assert sorted(texts(full.elsewhere().agent().messages)) == sorted(
        ["[gone]", "ok", "t1", "ok", "t2", "ok"]
    )


def test_two_agents_alive(full: Any) -> None:
    full.durable.is_full = True
    first, second = full.agent(), full.agent()
    first.state.set("first", 1)
    first("t1")
    second.state.set("second", 2)
    second("t2")
    third = full.agent()
    assert sorted(texts(third.messages)) == ["ok", "ok", "t1", "t2"]
    assert third.state.get() == {"first": 1, "second": 2}
    third("t3")
    first("t4")
    recover(full)
    found = texts(full.elsewhere().manager().history())
    turns = [text for text in found if text != "ok"]
    assert turns[:2] == ["t1", "t2"]
    assert sorted(turns[2:]) == ["t3", "t4"]  # of agents that do not know each other's turn
    assert found[1::2] == ["ok"] * 4
    assert full.elsewhere().agent().state.get() == {"first": 1, "second": 2}


def test_an_agent_that_is_created_in_the_middle_of_an_unsaved_turn(full: Any) -> None:
    """It sees the earlier turns, and the turn is stored once."""
    full.agent()("t0")
    full.durable.is_full = True
    full.agent()("t1")
    seen: list[list[str]] = []

    def look(event: BeforeModelCallEvent) -> None:
        seen.append(texts(full.agent().messages)[:4])

    first = full.agent(one_tool_turn(), tools=[find])
    first.hooks.add_callback(BeforeModelCallEvent, look)
    first("search")
    assert seen == [["t0", "ok", "t1", "ok"]] * 2
    recover(full)
    assert texts(full.elsewhere().agent().messages) == texts(first.messages)
    assert len(first.messages) == 8


def test_an_unsaved_interrupt_is_answered(full: Any) -> None:
    @tool(context=True)
    def buy(tool_context: ToolContext) -> str:
        """Buy."""
        return str(tool_context.interrupt("sure", reason="?"))

    full.durable.is_full = True
    first = full.agent(ScriptedModel([[tool_use("c1", "buy")], "bought"]), tools=[buy])
    result = first("buy it")
    assert result.stop_reason == "interrupt"
    second = full.agent(ScriptedModel(["bought"]), tools=[buy])
    assert second(interrupt_answers(result)).stop_reason == "end_turn"
    recover(full)
    assert texts(full.elsewhere().agent().messages) == texts(second.messages)


@pytest.mark.parametrize("tiers", ["hot", "durable", "hot and durable"])
@pytest.mark.parametrize("seed", range(4))
def test_random_requests_while_the_stores_are_full(tmp_path: Path, tiers: str, seed: int) -> None:
    """Each request has an agent of its own, which continues with the window of the last one."""
    rng = random.Random(f"{tiers} {seed}")
    table = FullTable(tmp_path / "s.sqlite3")
    table.create_if_missing()
    hot: Any = FullHotStore() if "hot" in tiers else None
    stores: Any = Stores(hot, table if "durable" in tiers else None, "s")
    is_sliding, kept = rng.random() < 0.5, []

    def build(stores: Any) -> Any:
        manager = SlidingWindowConversationManager(4) if is_sliding else NullConversationManager()
        return stores.agent(conversation_manager=manager)

    window: list[str] = []
    for number in range(rng.randint(3, 8)):
        if rng.random() < 0.5:
            table.is_full = rng.random() < 0.7
            if hot is not None:
                hot.is_full = table.is_full and rng.random() < 0.8
        live = build(stores)
        assert texts(live.messages) == window
        assert (live.state.get("count") or 0) == number
        live.state.set("count", number + 1)
        live(f"t{number}")
        window = texts(live.messages)
        if rng.random() < 0.3:
            kept.append(live)
    table.is_full = False
    if hot is not None:
        hot.is_full = False
    finish_writes(hot, stores.durable)
    other = stores.elsewhere()
    live = build(other)
    assert texts(live.messages) == window
    assert live.state.get("count") == number + 1
    log = texts(other.manager().history())
    assert log == [text for at in range(number + 1) for text in (f"t{at}", "ok")]
