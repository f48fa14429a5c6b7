"""A plugin of pytest that puts our parts into Strands, wherever its tests name none of their own.

- An ``Agent`` without a conversation manager gets an ``ImportanceWeightedConversationManager``.
- An ``Agent``, ``Graph`` or ``Swarm`` without a session manager gets a ``TieredSessionManager``;
  nodes carry none.
- ``strands.storage.InMemoryStorage``, which the contract of ``Storage`` is written for, is a
  ``TieredStorage``.

``UPSTREAM_PARTS`` says which, by commas: ``manager``, ``session``, ``storage``. With ``own`` among
them, Strands' own take the same places: a ``SlidingWindowConversationManager`` and a
``FileSessionManager``.
"""

from __future__ import annotations

import functools
import json
import os
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import strands.storage
from strands import Agent
from strands.agent.conversation_manager import ConversationManager, SlidingWindowConversationManager
from strands.multiagent.graph import Graph
from strands.multiagent.swarm import Swarm
from strands.session import FileSessionManager, SessionManager

from strands_manga_memory import (
    ImportanceWeightedConversationManager,
    InMemoryHotStore,
    SQLiteTable,
    TieredSessionManager,
)
from strands_manga_memory.stores import TieredStorage

PARTS = frozenset(
    filter(None, os.environ.get("UPSTREAM_PARTS", "manager,session,storage").split(","))
)
OWN = "own" in PARTS
_FOLDER = tempfile.TemporaryDirectory(prefix="upstream-")
_HOT = InMemoryHotStore()


@functools.cache
def _table() -> SQLiteTable:
    table = SQLiteTable(Path(_FOLDER.name) / "upstream.sqlite3")
    table.create_if_missing()
    return table


class InMemoryStorage(TieredStorage):
    """A storage of ours that is made as Strands' own is: with no arguments, and empty."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(durable=_table(), hot=_HOT, user_id=uuid.uuid4().hex, **kwargs)

    def clear(self) -> None:
        """Delete what is below the prefix, as the original does; it waits for the stores, too."""
        self.erase()


def _session() -> SessionManager[Any]:
    if OWN:
        return FileSessionManager(uuid.uuid4().hex, storage_dir=_FOLDER.name)
    return TieredSessionManager(uuid.uuid4().hex, durable=_table(), hot=_HOT)


def _manager() -> ConversationManager:
    return (
        SlidingWindowConversationManager()
        if OWN
        else ImportanceWeightedConversationManager(100_000)
    )


def _in_agents(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def made(agent: Agent, *args: Any, **kwargs: Any) -> None:
        managed = kwargs.get("context_manager") in (None, False)
        stateful = getattr(
            args[0] if args else kwargs.get("model"), "stateful", False
        )  # refuses every manager
        if (
            "manager" in PARTS
            and kwargs.get("conversation_manager") is None
            and managed
            and not stateful
        ):
            kwargs["conversation_manager"] = _manager()
        if "session" in PARTS and kwargs.get("session_manager") is None and not _is_node:
            kwargs["session_manager"] = _session()
        original(agent, *args, **kwargs)

    return made


def _in_teams(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def made(team: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("session_manager") is None:
            kwargs["session_manager"] = _session()
        original(team, *args, **kwargs)

    return made


_NODES = (
    "multiagent", "multi_agent", "a2a", "agent_as_tool", "test_agent_delegation", "tools/test_",
    "test_swarm", "as_tool_", "nested_agent", "test_snapshot_session_manager",
)  # fmt: skip
"""Tests whose agents are nodes of a team, or tools: Strands refuses them a session manager of their
own.
"""

_is_node = False


def pytest_runtest_setup(item: Any) -> None:
    """Say to the constructors whether this test's agents are nodes."""
    global _is_node
    _is_node = any(name in item.nodeid for name in _NODES)


def pytest_configure() -> None:
    """Put the parts in, before any test is imported."""
    if PARTS & {"manager", "session"}:
        Agent.__init__ = _in_agents(Agent.__init__)
    if "session" in PARTS:
        Graph.__init__ = _in_teams(Graph.__init__)
        Swarm.__init__ = _in_teams(Swarm.__init__)
    if "storage" in PARTS:
        strands.storage.InMemoryStorage = InMemoryStorage


_outcomes: dict[str, str] = {}


def pytest_runtest_logreport(report: Any) -> None:
    """Note what became of a test."""
    if report.failed:
        _outcomes[report.nodeid] = "failed"
    elif report.when == "call" or report.skipped:
        _outcomes.setdefault(report.nodeid, report.outcome)


def pytest_collectreport(report: Any) -> None:
    """Note files that could not be read."""
    if report.failed:
        _outcomes[report.nodeid] = "failed"


def pytest_sessionfinish(session: Any) -> None:
    """Write it all down, once for all processes."""
    place = os.environ.get("UPSTREAM_REPORT")
    if place and "PYTEST_XDIST_WORKER" not in os.environ:
        Path(place).write_text(json.dumps(_outcomes), encoding="utf-8")
