"""Worker of the load benchmark, which answers messages at a given rate with a stub model.

Messages come when they are due, even if earlier ones are not finished (open loop), so that a pause
is not hidden.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import itertools
import logging
import os
import random
import threading
import time
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import boto3
import redis
from botocore.config import Config
from strands import Agent

from strands_manga_memory import ConversationScope, MangaMemory, TieredSessionManager
from strands_manga_memory.mcp import CircuitBreaker
from strands_manga_memory.stores.writer import shared_writer
from strands_manga_memory.telemetry import RESTORE, STORE_CALL, recorder
from strands_manga_memory.telemetry.events import SERIALIZATION, TURN
from tests.benchmarks import Answers, text

RESTING = (20_000, 10, 1_000)
"""Thresholds that make garbage collection rare.

A full collection visits all objects of 5,000 agents, which takes seconds, and turns and released
agents leave no cycles.
"""

MOST_UNDER_WAY = 400
"""Messages that a process answers at a time. Further messages are rejected and counted."""

_BARE = 200

_PROMPT, _ANSWER = 200, 500


_layer: contextvars.ContextVar[list[float]] = contextvars.ContextVar("layer")


class Samples:
    """Durations in seconds, keyed by name, from the events of the package's telemetry."""

    def __init__(self) -> None:
        self.of: dict[str, array[float]] = defaultdict(_column)
        self.serialized = _column()
        recorder.record = self._note

    def _note(
        self, event: Any, seconds: float | None = None, attributes: Any = None, counts: Any = None
    ) -> None:
        if event is TURN:
            _layer.get([]).append(counts["layer"])
        elif event is STORE_CALL:
            self.of[f"{attributes['manga_memory.tier']}.{attributes['db.operation.name']}"].append(
                seconds or 0.0
            )
        elif event is SERIALIZATION:
            self.serialized.append(seconds or 0.0)
        elif event is RESTORE:
            self.of["restore"].append(seconds or 0.0)

    def taken(self) -> dict[str, array[float]]:
        """Return the durations since the last call."""
        found, self.of, self.serialized = dict(self.of), defaultdict(_column), _column()
        return found


def _column() -> array[float]:
    """Return an array for numbers of 8 bytes."""
    return array("d")


_MEASURED = ("late", "seconds", "layer", "serialization", "breaker_check", "breaker_outcome")

Turns = dict[str, "array[float]"]
"""Measurements of each message, keyed by name; serialization only if nothing ran at the same
time.
"""


@dataclass
class Load:
    """Process under load."""

    memory: MangaMemory
    samples: Samples
    numbers: Iterator[int]
    agents: list[Agent] = field(default_factory=list)
    users: list[int] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    under_way: int = 0
    turned_away: int = 0
    timeline: list[dict[str, float]] = field(default_factory=list)
    before_kb: float = 0.0
    rng: random.Random = field(default_factory=lambda: random.Random(1))

    @property
    def writer(self) -> Any:
        """The process's background writer."""
        return shared_writer(self.memory._stores["hot"], self.memory._stores["durable"])

    def scope(self, number: int) -> ConversationScope:
        """Return the scope of a session."""
        return ConversationScope(f"user{self.users[number]}", "s")

    def _agent(self, number: int) -> Agent:
        scope = self.scope(number)
        kwargs = self.memory.agent_kwargs(user_id=scope.user_id, session_id=scope.session_id)
        return Agent(model=Answers(_ANSWER), callback_handler=None, **kwargs)

    def begin(self, sessions: int) -> dict[str, float]:
        """Hold a number of sessions with one turn each, and return their memory use."""
        asyncio.run(Agent(model=Answers(_ANSWER), callback_handler=None).invoke_async("warm up"))
        before = _resident_kb()
        bare = [Agent(model=Answers(_ANSWER), callback_handler=None) for _ in range(_BARE)]
        for agent in bare:
            asyncio.run(agent.invoke_async(text(_PROMPT)))
        of_bare = (_resident_kb() - before) / _BARE
        del bare, agent
        gc.collect()
        self.before_kb = _resident_kb()
        self.agents = []
        for number in range(sessions):
            self.users.append(next(self.numbers))
            self.turns.append(0)
            self.agents.append(self._agent(number))
            asyncio.run(self._live_turn(number))
        self._settle()
        gc.collect()
        return {"kb_per_bare_agent": of_bare, "kb_per_session": self._kb_per_session()}

    def _kb_per_session(self) -> float:
        return (_resident_kb() - self.before_kb) / max(1, len(self.agents))

    def run(
        self, rate: float, seconds: float, *, stateless: bool, churn: bool = False
    ) -> dict[str, Any]:
        """Answer ``rate`` messages per second; return all durations and the growth of the process.

        Args:
            rate: Messages per second.
            seconds: Duration of the load.
            stateless: Whether each message is answered by an agent restored for it, as in a worker
                that keeps no agents.
            churn: Whether sessions end and others begin; then only the timeline is recorded.
        """
        self.samples.taken()
        self.timeline, self.turned_away = [], 0
        gc.collect()
        gc.freeze()
        gc.set_threshold(*RESTING)
        turns = asyncio.run(self._messages(rate, seconds, stateless=stateless, churn=churn))
        is_settled = self._settle()
        return {
            **self.samples.taken(),
            "turns": turns,
            "timeline": self.timeline,
            "turned_away": self.turned_away,
            "backlog_at_end": 0 if is_settled else self.writer.backlog,
            "kb_per_session": self._kb_per_session(),
            "unsaved_at_end": (
                0 if churn or stateless else sum(self._unsaved(agent) for agent in self.agents)
            ),
        }

    @staticmethod
    def _unsaved(agent: Agent) -> int:
        return int(agent._session_manager.stats()["unsaved_messages"])

    async def _messages(
        self, rate: float, seconds: float, *, stateless: bool, churn: bool
    ) -> Turns:
        start = time.perf_counter()
        tasks: set[asyncio.Task[Any]] = set()
        done: Turns = {name: _column() for name in _MEASURED}
        watch = asyncio.create_task(self._watch(start, done, keep=not churn))
        free = list(range(len(self.turns)))
        for count in itertools.count():
            due = start + count / rate
            if due > start + seconds:
                break
            if (delay := due - time.perf_counter()) > 0:
                await asyncio.sleep(delay)
            elif count % 20 == 0:
                await asyncio.sleep(0)
            if self.under_way >= MOST_UNDER_WAY or not free:
                self.turned_away += 1
                continue
            number = free.pop(self.rng.randrange(len(free)))
            task = asyncio.create_task(
                self._message(due, number, done, free, stateless=stateless, churn=churn)
            )
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        while tasks:
            await asyncio.wait(tasks)
        watch.cancel()
        return done

    async def _message(
        self, due: float, number: int, done: Turns, free: list[int], *, stateless: bool, churn: bool
    ) -> None:
        self.under_way += 1
        alone = self.under_way == 1
        before, began = len(self.samples.serialized), time.perf_counter()
        layer = await (self._stateless_turn(number) if stateless else self._live_turn(number))
        ended = time.perf_counter()
        self.under_way -= 1
        turn = {"late": began - due, "seconds": ended - began, "layer": layer}
        if alone and not self.under_way:
            turn["serialization"] = sum(self.samples.serialized[before:])
        start = time.perf_counter()
        permit = _BREAKER.try_acquire()
        turn["breaker_check"] = (checked := time.perf_counter()) - start
        if permit is not None:
            permit.success()
        turn["breaker_outcome"] = time.perf_counter() - checked
        for name, value in turn.items():
            done[name].append(value)
        if churn and self.turns[number] >= 20:
            await asyncio.to_thread(self.agents[number]._session_manager.close)
            self.users[number], self.turns[number] = next(self.numbers), 0
            self.agents[number] = await asyncio.to_thread(self._agent, number)
        free.append(number)

    async def _live_turn(self, number: int) -> float:
        return await self._timed_turn(self.agents[number], number)

    async def _stateless_turn(self, number: int) -> float:
        start = time.perf_counter()
        agent = await asyncio.to_thread(self._agent, number)
        return (time.perf_counter() - start) + await self._timed_turn(agent, number)

    async def _timed_turn(self, agent: Agent, number: int) -> float:
        found: list[float] = []
        _layer.set(found)
        await agent.invoke_async(text(_PROMPT))
        release_traces(agent)
        self.turns[number] += 1
        return sum(found)

    async def _watch(self, start: float, done: Turns, *, keep: bool) -> None:
        seen = 0
        while True:
            await asyncio.sleep(1.0)
            new, seen = len(done["layer"]) - seen, len(done["layer"])
            layers = sorted(done["layer"][seen - new :]) or [0.0]
            if (
                not keep
            ):  # what is kept of each message for an hour would pass for growth of the process
                self.samples.taken()
                for column in done.values():
                    del column[:]
                seen = 0
            self.timeline.append(
                {
                    "at": time.perf_counter() - start,
                    "messages": new,
                    "layer_p50_ms": 1000 * layers[len(layers) // 2],
                    "layer_p99_ms": 1000 * layers[int(0.99 * (len(layers) - 1))],
                    "resident_mb": _resident_kb() / 1024,
                    "threads": threading.active_count(),
                    "sockets": _sockets(),
                    "descriptors": len(os.listdir("/proc/self/fd")),
                    "backlog": self.writer.backlog,
                    "under_way": self.under_way,
                }
            )

    def _settle(self) -> bool:
        """Wait until the due work is done, and return whether it is."""
        writer, until = self.writer, time.monotonic() + 60
        while writer._active or writer._queues:
            if time.monotonic() > until:
                return False
            time.sleep(0.01)
        return True

    def lost(self, sessions: int) -> int:
        """Return the number of turns of some sessions that are not stored."""
        lost = 0
        for number in self.rng.sample(range(len(self.turns)), min(sessions, len(self.turns))):
            manager = TieredSessionManager(
                self.scope(number), hot=self.memory.hot, durable=self.memory.durable
            )
            stored = sum(message["role"] == "assistant" for message in manager.history("default"))
            lost += self.turns[number] - stored
        return lost


_BREAKER = CircuitBreaker()

_READ_BYTES = 6_000
"""Approximate bytes that the restore for a message reads from either tier."""


def exchanges(hot: str, endpoint: str, rate: float, seconds: float) -> dict[str, list[float]]:
    """Read a value from each server without this package, and return the seconds of each read.

    Args:
        hot: URL of a Valkey.
        endpoint: URL of a DynamoDB API.
        rate: Reads per second.
        seconds: Duration of the reads.
    """
    config = Config(retries={"mode": "standard", "total_max_attempts": 1})
    dynamodb = boto3.client(
        "dynamodb", region_name="us-east-1", endpoint_url=endpoint, config=config
    )
    name, key = f"bare{time.time_ns()}", {"pk": {"S": "k"}}
    dynamodb.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
    )
    dynamodb.put_item(TableName=name, Item={**key, "data": {"B": b"x" * _READ_BYTES}})
    taken: dict[str, list[float]] = {"hot": [], "durable": []}
    with redis.Redis.from_url(hot) as client:
        client.set(name, b"x" * _READ_BYTES)
        for _ in range(round(rate * seconds)):
            time.sleep(
                1 / rate
            )  # as between messages: a processor that was away has emptied its caches
            start = time.perf_counter()
            client.get(name)
            between = time.perf_counter()
            dynamodb.get_item(TableName=name, Key=key)
            taken["hot"].append(between - start)
            taken["durable"].append(time.perf_counter() - between)
        client.delete(name)
    dynamodb.delete_table(TableName=name)
    return taken


def release_traces(agent: Agent) -> None:
    """Release the traces and usage of earlier turns, which Strands keeps."""
    metrics = agent.event_loop_metrics
    del metrics.traces[:-1], metrics.agent_invocations[:-1], metrics.cycle_durations[:-1]


def work(pipe: Connection, hot: str, durable: str, first: int) -> None:
    """Serve calls from a pipe until ``end``.

    A call names a method of ``Load``; its result is sent back.
    """
    logging.disable(logging.CRITICAL)
    memory = MangaMemory.open(hot=hot, durable=durable, hot_deadline=0.05, durable_deadline=5.0)
    load = Load(memory, Samples(), itertools.count(first))
    calls: dict[str, Callable[..., Any]] = {
        "begin": load.begin,
        "run": load.run,
        "lost": load.lost,
        "bare": exchanges,
    }
    while (order := pipe.recv())[0] != "end":
        name, arguments, named = order
        pipe.send(calls[name](*arguments, **named))
    del load.agents[:]
    memory.close()
    pipe.send("ended")


def _resident_kb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024


def _sockets() -> int:
    found = 0
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:")
        except OSError:
            continue
    return found
