"""The rules of the session protocol, through the public face.

Processes are ``MangaMemory`` objects of their own on the same stores, so each has a writer of its
own, as in another process.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from strands import Agent
from strands.agent.conversation_manager import NullConversationManager

from strands_manga_memory import ConversationScope, MangaMemory, SQLiteTable
from strands_manga_memory.stores import Codec
from strands_manga_memory.testing import FakeClock, FaultyHotStore, FaultyTable, ScriptedModel
from tests.support import finish_writes
from tests.unit.session.support import PATIENT, SurvivingHotStore, texts, user

SCOPE = ConversationScope("reader", "s")
WRITES = {"put", "delete", "batch_write", "write", "put_tombstone"}
SECRET = "4111 1111 1111 1111"


class Process:
    """A process of its own on the stores of a world."""

    def __init__(self, world: World, **settings: Any) -> None:
        self.clock = world.clock
        self.hot, self.table = FaultyHotStore(world.hot), FaultyTable(SQLiteTable(world.path))
        self.memory = MangaMemory(
            hot=self.hot,
            durable=self.table,
            **{**PATIENT, "clock": world.clock, "codec": world.codec, **settings},
        )

    def agent(self, model: ScriptedModel | None = None) -> Agent:
        """Return an agent of the conversation, restored if there is something."""
        return self.memory.agent(
            model or ScriptedModel(),
            user_id=SCOPE.user_id,
            session_id=SCOPE.session_id,
            conversation_manager=NullConversationManager(),
            callback_handler=None,
            retry_strategy=None,
        )

    def view(self) -> list[str]:
        """Return the history that an agent gets here."""
        return texts(self.agent().messages)

    def log(self) -> list[str]:
        return texts(self.memory.session(SCOPE).history())

    def settle(self) -> None:
        """Wait until what turns left to the background is done."""
        finish_writes(self.hot, self.table)

    def calls(self) -> list[str]:
        """Return the calls of both stores since this was last asked."""
        found = [*self.hot.calls, *self.table.calls]
        self.hot.calls.clear()
        self.table.calls.clear()
        return found


class World:
    """Two tiers that several processes use, and the time that passes for all of them."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock(time.time())
        self.codec = Codec(compress_from=1_000_000)  # so that a text is found in what is stored
        self.path, self.backup = folder / "sessions.sqlite3", folder / "backup.sqlite3"
        self.hot = SurvivingHotStore(clock=self.clock)
        with closing(SQLiteTable(self.path)) as table:
            table.create_if_missing()

    def process(self, **settings: Any) -> Process:
        return Process(self, **settings)

    def lose_hot(self) -> None:
        self.hot.go_back({})

    def durable_alone(self) -> list[str]:
        """Return the history as the durable tier has it."""
        found, kept = self.hot.copy(), self.hot
        self.hot = SurvivingHotStore(clock=self.clock)
        try:
            return self.process().view()
        finally:
            self.hot = kept
            assert self.hot.copy() == found

    def hot_alone(self) -> list[str]:
        """Return the history as the hot tier has it."""
        other = self.process()
        other.table.down = True
        return other.view()

    def copy_file(self, source: Path, target: Path) -> None:
        with closing(sqlite3.connect(source)) as from_, closing(sqlite3.connect(target)) as to:
            from_.backup(to)

    def rows(self) -> list[dict[str, Any]]:
        with closing(SQLiteTable(self.path)) as table:
            return list(table.query(str(SCOPE.storage_session_id)))

    def stored(self) -> str:
        """Return everything both tiers hold of the conversation, as text."""
        return repr([vars(one) for one in self.hot.copy().values()]) + repr(self.rows())


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


class Paused:
    """Holds the next write of a store until it is told to go on."""

    def __init__(self, faulty: FaultyHotStore | FaultyTable) -> None:
        self._faulty, self._store = faulty, faulty._store
        self.began, self._goes_on = threading.Event(), threading.Event()
        faulty._store = self

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in WRITES:
            return method

        def call(*given: Any, **named: Any) -> Any:
            self.began.set()
            assert self._goes_on.wait(20)
            return method(*given, **named)

        return call

    def go_on(self) -> None:
        self._faulty._store = self._store
        self._goes_on.set()


def said(*asked: str) -> list[str]:
    return [text for one in asked for text in (one, "ok")]


# One process


def test_a_save_is_one_compare_and_write_of_the_first_tier_and_the_turn_waits_for_it(
    world: World,
) -> None:
    """One compare-and-write per turn sends the missing data to the hot tier."""
    a = world.process()
    live = a.agent()
    live("one")
    a.settle()
    a.calls()
    threading.Timer(0.3, Paused(a.hot).go_on).start()

    live("two")

    assert a.calls() == ["write"]
    assert world.hot_alone() == said("one", "two")
    assert world.durable_alone() == said("one")


def test_a_flush_takes_what_others_said_with_it(world: World) -> None:
    """Whoever flushes flushes all that it has."""
    a, b = world.process(), world.process()
    live = a.agent()
    for asked in ("one", "two", "three"):
        live(asked)
        a.settle()
    assert world.durable_alone() == said("one")

    b.agent()._session_manager.flush()

    assert world.durable_alone() == said("one", "two", "three")


def test_a_hot_tier_that_lost_everything_gets_it_back_with_the_next_turn(world: World) -> None:
    """The head fills the hot tier; the log is searched for turns of a cut flush."""
    a = world.process()
    live = a.agent()
    for asked in ("one", "two"):
        live(asked)
    a.settle()
    a.calls()
    world.lose_hot()

    live("three")

    assert len(a.calls()) <= 6
    assert texts(live.messages) == said("one", "two", "three")
    assert world.hot_alone() == world.process().view() == said("one", "two", "three")


def test_a_table_that_went_back_in_time_gets_what_it_lacks_once(world: World) -> None:
    """Whoever has the missing data stores it again, once."""
    a = world.process()
    live = a.agent()
    live("one")
    live._session_manager.flush()
    world.copy_file(world.path, world.backup)
    live("two")
    live._session_manager.flush()
    world.copy_file(world.backup, world.path)
    assert world.durable_alone() == said("one")
    a.calls()

    live("three")
    live._session_manager.flush()
    again = a.calls()
    live._session_manager.flush()

    assert len(again) <= 12
    assert not WRITES & set(a.calls())
    assert world.durable_alone() == world.process().log() == said("one", "two", "three")


# Several processes


def test_two_that_spoke_at_once_reach_one_copy_and_writing_ends(world: World) -> None:
    """Each process writes only what the replicas lack."""
    a, b = world.process(), world.process()
    one, other = a.agent(), b.agent()
    one("by a")
    other("by b")
    for live in (one, other, one, other):
        live._session_manager.flush()
    views = world.process().view(), world.hot_alone(), world.durable_alone()
    for process in (a, b):
        process.calls()

    for live in (one, other):
        live._session_manager.flush()

    assert views[0] == views[1] == views[2] == world.process().log()
    assert views[0] in (said("by a", "by b"), said("by b", "by a"))
    assert not WRITES & {*a.calls(), *b.calls()}


def test_a_late_write_after_a_lost_hot_tier_renames_and_doubles_nothing(
    world: World, threads: ThreadPoolExecutor
) -> None:
    """Nothing was renumbered, nobody waited, and each write was either new or there already."""
    a, b = world.process(), world.process()
    one = a.agent()
    one("a1")
    a.settle()
    other = b.agent()
    one("a2")
    other("b1")
    for process in (a, b):
        process.settle()
    paused = Paused(b.table)
    flushed = threads.submit(other._session_manager.flush)
    assert paused.began.wait(20)
    one._session_manager.flush()
    world.lose_hot()
    before = [record["message"] for record in world.process().memory.session(SCOPE).records()]

    one("a3")  # nobody waits for the one that is paused
    paused.go_on()
    flushed.result(20)
    for live in (other, one):
        live._session_manager.flush()
    log = [record["message"] for record in world.process().memory.session(SCOPE).records()]

    assert [message for message in log if message in before] == before
    assert sorted(texts(log)[::2]) == ["a1", "a2", "a3", "b1"]
    assert [text for text in texts(log)[::2] if text != "b1"] == ["a1", "a2", "a3"]
    view = world.process().view()
    assert view == world.durable_alone()
    assert sorted(view) == sorted(texts(log))
    assert [text for text in view[::2] if text != "b1"] == ["a1", "a2", "a3"]


def test_a_late_writer_puts_no_text_back_that_was_redacted(
    world: World, threads: ThreadPoolExecutor
) -> None:
    """So no writer, however late, puts a text back that was redacted."""
    a, b = world.process(), world.process()
    one = a.agent()
    one(f"my card is {SECRET}")
    a.settle()
    other = b.agent()
    other("noted")
    b.settle()
    paused = Paused(b.table)
    flushed = threads.submit(other._session_manager.flush)
    assert paused.began.wait(20)

    one.messages[0].update(user("[redacted]"))
    one._session_manager.redact_latest_message(one.messages[0], one)
    assert SECRET not in world.stored()
    paused.go_on()
    flushed.result(20)
    for live in (one, other):
        live._session_manager.flush()

    assert SECRET not in world.stored()
    assert world.process().view() == world.durable_alone() == ["[redacted]", "ok", "noted", "ok"]


def test_who_looks_before_a_turn_sees_what_others_said_in_either_tier(world: World) -> None:
    """The durable tier is read if the hot tier lacks a part of this process's copy."""
    a, b = world.process(), world.process(refresh="turn")
    one, other = a.agent(), b.agent()
    one("in both tiers")
    a.settle()
    other("hello")
    b.settle()  # the first flush of each would take along what is said next
    assert texts(other.messages) == said("in both tiers", "hello")
    one("in the hot tier alone")
    a.settle()
    assert "in the hot tier alone" not in world.durable_alone()
    other("and now")
    assert "in the hot tier alone" in texts(other.model.requests[-1].messages)

    one._session_manager.flush()
    a.hot.down = True
    one("in the durable tier alone")
    one._session_manager.flush()
    world.lose_hot()
    other("and again")
    assert "in the durable tier alone" in texts(other.model.requests[-1].messages)
