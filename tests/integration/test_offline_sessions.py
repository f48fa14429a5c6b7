"""Inspection of conversations in both tiers, or in the durable one alone."""

from pathlib import Path
from typing import Any

import pytest
from strands import Agent

from strands_manga_memory import (
    USER_MEMORY,
    ConversationScope,
    SessionFinalizer,
    SessionSweeper,
    SQLiteTable,
    TieredSessionManager,
)
from strands_manga_memory.ops import inspect as inspect_conversation
from strands_manga_memory.ops import places
from strands_manga_memory.testing import FakeClock, ScriptedModel
from tests.unit.session.support import SurvivingHotStore, find, tool_use

SCOPE = ConversationScope("u1", "s1")


class World:
    """Stores whose clock the test moves, and agents that talk."""

    def __init__(self, folder: Path, *, hot: bool = True) -> None:
        self.clock = FakeClock(1_700_000_000.0)
        self.hot = SurvivingHotStore(clock=self.clock) if hot else None
        self.durable = SQLiteTable(folder / "s.db")
        self.memories = SQLiteTable(folder / "s.db", USER_MEMORY)
        for table in (self.durable, self.memories):
            table.create_if_missing()
        self.stores: dict[str, Any] = {
            "hot": self.hot,
            "durable": self.durable,
            "clock": self.clock,
        }

    def agent(
        self, scope: ConversationScope = SCOPE, model: ScriptedModel | None = None, **options: Any
    ) -> Agent:
        """Return an agent of a new process."""
        manager = TieredSessionManager(scope, hot_deadline=10.0, **self.stores, **options)
        return Agent(
            model=model or ScriptedModel(lambda messages: "Noted."),
            session_manager=manager,
            tools=[find],
        )

    def sweep(self) -> int:
        """Sweep once, with a finalizer."""
        return SessionSweeper(
            **self.stores, finalizer=SessionFinalizer(**self.stores, memories=self.memories)
        ).run_once()

    def inspect(self) -> Any:
        """Inspect the conversation of the default agent."""
        [place] = places("s1", user="u1", durable=self.durable)
        return inspect_conversation(place, **self.stores)

    @property
    def rows(self) -> list[str]:
        """Keys of all that is stored of sessions."""
        with self.durable._connected() as connection:
            return [
                f"{row[0]} {row[1]}"
                for row in connection.execute("SELECT partition, sort FROM manga_sessions")
            ]


@pytest.fixture(params=[True, False], ids=["both", "durable"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """Both tiers, or the durable one alone."""
    return World(tmp_path, hot=request.param)


def test_inspection_shows_tiers_messages_and_tools_and_touches_nothing(world: World) -> None:
    """An operator sees the same as the agent, before and after a sweep."""

    def reply(messages: Any) -> Any:
        is_question = "text" in messages[-1]["content"][0]
        return [tool_use("t1", "find", title="Uzumaki")] if is_question else "found it"

    agent = world.agent(model=ScriptedModel(reply))
    agent("Where is Uzumaki?")
    agent._session_manager.set_metadata(locale="ja")
    agent._session_manager.flush()
    world.clock.advance(60)  # a look that refreshed the time to live would show
    before = None if world.hot is None else world.hot.copy()
    found = world.inspect()
    assert [(one.role, one.outcome) for one in found.messages] == [
        ("user", "kept"),
        ("assistant", "kept"),
        ("user", "kept"),
        ("assistant", "kept"),
    ]
    assert found.tools["find"]["calls"] == 1
    assert (found.turns, found.metadata) == (1, {"locale": "ja"})
    assert found.durable["state"] == "active"
    assert found.durable["turns"] == 1
    assert found.durable["expired"] is False
    if world.hot is not None:
        assert found.hot["state"] == "active"
        assert world.hot.copy() == before
    world.clock.advance(1801)
    world.sweep()
    swept = world.inspect()
    assert swept.messages == found.messages
    assert swept.durable["ahead"] is False


def test_inspection_of_a_conversation_that_does_not_exist_is_none(world: World) -> None:
    """Nothing is created by a look."""
    assert world.inspect() is None
    assert world.rows == []
