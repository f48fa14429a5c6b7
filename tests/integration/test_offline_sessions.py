"""Sessions of the smaller protocol without an agent: sweeps that finalize, inspection, doctor, forks, damage."""

from __future__ import annotations

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
    UserMemoryStore,
)
from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.ops import inspect as inspect_conversation
from strands_manga_memory.ops.doctor.record_checks import check_conversations
from strands_manga_memory.session.conversation_transfer import fork, rewind
from strands_manga_memory.session.places import ExpiryEntry, Place
from strands_manga_memory.session.tiers import Tiers
from strands_manga_memory.stores import AesGcmCipher, Codec
from strands_manga_memory.telemetry import observed_codec
from strands_manga_memory.testing import FakeClock, ScriptedModel
from tests.unit.session.support import SurvivingHotStore, find, texts, tool_use

DAY = 86_400.0
SCOPE = ConversationScope("u1", "s1")
PLACE = Place.of(SCOPE.storage_session_id, "A", "default")


class World:
    """Stores whose clock the test moves, and agents that talk."""

    def __init__(self, folder: Path, *, hot: bool = True) -> None:
        self.clock = FakeClock(1_700_000_000.0)
        self.hot = SurvivingHotStore(clock=self.clock) if hot else None
        self.durable = SQLiteTable(folder / "s.sqlite3")
        self.memories = SQLiteTable(folder / "s.sqlite3", USER_MEMORY)
        for table in (self.durable, self.memories):
            table.create_if_missing()
        self.tiers = Tiers.of(self.hot, self.durable, clock=self.clock)
        self.stores: dict[str, Any] = {"hot": self.hot, "durable": self.durable, "clock": self.clock}

    def agent(self, scope: ConversationScope = SCOPE, model: ScriptedModel | None = None, **options: Any) -> Agent:
        """Return an agent of a new process."""
        manager = TieredSessionManager(scope, hot_deadline=10.0, **self.stores, **options)
        return Agent(
            model=model or ScriptedModel(lambda messages: "Noted."),
            session_manager=manager,
            callback_handler=None,
            tools=[find],
        )

    def talk(self, *said: str, scope: ConversationScope = SCOPE) -> Agent:
        """Say some turns, and close."""
        agent = self.agent(scope)
        for text in said:
            agent(text)
        agent._session_manager.close()
        return agent

    def sweep(self) -> int:
        """Sweep once, with a finalizer."""
        return SessionSweeper(**self.stores, finalizer=SessionFinalizer(**self.stores, memories=self.memories)).run_once()

    def summaries(self) -> list[str]:
        """Return the summaries of the user's sessions."""
        store = UserMemoryStore(self.memories, user_id="u1", clock=self.clock)
        return [record.content for record in store.recall(type="interaction_summary", limit=None)]

    @property
    def rows(self) -> list[str]:
        """Keys of all that is stored of sessions."""
        with self.durable._file.connected() as connection:
            return [f"{row[0]} {row[1]}" for row in connection.execute("SELECT partition, sort FROM manga_sessions")]


@pytest.fixture(params=[True, False], ids=["both", "durable"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """Both tiers, or the durable one alone."""
    return World(tmp_path, hot=request.param)


def test_ended_session_becomes_one_summary_and_then_nothing_of_it_is_left(world: World) -> None:
    """The finalizer reads what the sweeper has flushed; logs, heads and index items go when the session is over."""
    world.talk("I want horror manga")
    world.clock.advance(1801)
    assert world.sweep() == 1
    (summary,) = world.summaries()
    assert "horror" in summary
    for _ in range(6):
        world.clock.advance(DAY)
        world.sweep()
    assert world.rows == []
    assert world.summaries() == [summary]


def test_session_that_was_taken_up_again_and_one_after_it_have_a_summary_each(world: World) -> None:
    """A return within the session replaces its summary; after the session a new one begins."""
    world.talk("I want horror manga")
    world.clock.advance(1801)
    world.sweep()
    assert len(world.talk("I want romance manga").messages) == 4
    world.clock.advance(3 * 3600)
    world.sweep()
    assert ["romance" in summary for summary in world.summaries()] == [True]
    world.clock.advance(1.2 * DAY)
    assert len(world.talk("I want science fiction").messages) == 2
    world.clock.advance(1801)
    world.sweep()
    assert len(world.summaries()) == 2


def test_deleted_session_has_no_summary(world: World) -> None:
    """Neither sweeps nor the finalizer see anything of it."""
    agent = world.talk("I want horror manga")
    agent._session_manager.delete_session()
    for _ in range(4):
        world.clock.advance(DAY)
        world.sweep()
    assert world.summaries() == []
    assert [row for row in world.rows if not row.endswith("#TOMBSTONE")] == []


def test_inspection_shows_tiers_messages_and_tools_and_touches_nothing(world: World) -> None:
    """An operator sees the same as the agent, before and after a sweep."""

    def reply(messages: Any) -> Any:
        is_question = "text" in messages[-1]["content"][0]
        return [tool_use("t1", "find", title="Uzumaki")] if is_question else "found it"

    agent = world.agent(model=ScriptedModel(reply))
    agent("Where is Uzumaki?")
    agent._session_manager.set_metadata(locale="ja")
    agent._session_manager.flush()
    before = None if world.hot is None else world.hot.copy()
    found = inspect_conversation(PLACE, **world.stores)
    assert found is not None
    assert [(one.role, one.outcome) for one in found.messages] == [
        ("user", "kept"),
        ("assistant", "kept"),
        ("user", "kept"),
        ("assistant", "kept"),
    ]
    assert found.tools["find"]["calls"] == 1
    assert (found.turns, found.metadata) == (1, {"locale": "ja"})
    assert found.durable is not None
    assert (found.durable["state"], found.durable["turns"], found.durable["expired"]) == ("active", 1, False)
    if world.hot is not None:
        assert found.hot is not None
        assert found.hot["state"] == "active"
        assert world.hot.copy() == before
    world.clock.advance(1801)
    world.sweep()
    swept = inspect_conversation(PLACE, **world.stores)
    assert swept is not None
    assert swept.messages == found.messages
    assert swept.durable is not None
    assert swept.durable["ahead"] is False


def test_inspection_of_a_conversation_that_does_not_exist_is_none(world: World) -> None:
    """Nothing is created by a look."""
    assert inspect_conversation(PLACE, **world.stores) is None
    assert world.rows == []


def checks(world: World, codec: Codec | None = None) -> list[tuple[str, str]]:
    """Return the status and check of each finding about the conversation."""
    found = check_conversations(world.durable, [ExpiryEntry(PLACE, 0, {})], codec, clock=world.clock)
    return [(one.level.value, one.check) for one in found]


def test_doctor_names_damaged_turns_and_a_missing_key(tmp_path: Path) -> None:
    """Heads and turns are read with the application's codec; nothing is changed."""
    world = World(tmp_path)
    assert checks(world) == [("ok", "durable.records")]
    world.talk("one", "two", "three")
    assert checks(world) == [("ok", "durable.records")]
    (row, *_) = [row for row in world.durable.query(PLACE.session) if "#TURN#" in row["sk"]]
    world.durable.put({**row, "turn": row["turn"].replace("one", "ten")})
    assert checks(world) == [("ok", "durable.records"), ("problem", "durable.turns")]
    sealed = Codec(cipher=AesGcmCipher({"k": b"0" * 32}, current="k"))
    other = World(tmp_path / "other") if (tmp_path / "other").mkdir() is None else world
    agent = other.agent(codec=sealed)
    agent("one")
    agent._session_manager.close()
    assert checks(other) == [("problem", "durable.records")]
    assert checks(other, sealed) == [("ok", "durable.records")]


def test_observed_codec_encrypts_sessions(tmp_path: Path) -> None:
    """A codec whose calls are measured stores nothing in the clear that the codec itself encrypts."""
    world = World(tmp_path)
    sealed = observed_codec(Codec(cipher=AesGcmCipher({"k": b"0" * 32}, current="k")))
    assert sealed.encrypts
    agent = world.agent(codec=sealed)
    for number in range(6):
        agent(f"quokka {number}")
    agent._session_manager.flush()
    stored = str(list(world.durable.query(PLACE.session)))
    if world.hot is not None:
        stored += str(world.hot._conversations)
    assert "quokka" not in stored
    assert len(world.agent(codec=sealed).messages) == 12


def test_agent_of_a_fork_has_the_history_and_state_of_the_turn(world: World) -> None:
    """Two sessions go on apart from the same beginning."""
    agent = world.agent()
    for number in range(4):
        agent.state.set(f"page {number}", number)
        agent(f"question {number}")
    agent._session_manager.flush()
    other = ConversationScope("u1", "s2")
    ids = {"session": "s2", "user": "u1", "tenant": None, "member": "default"}
    to = Place.of(other.storage_session_id, "A", "default")
    fork(PLACE, world.tiers, at_turn=2, to=to, ids=ids)
    forked = world.agent(other)
    assert texts(forked.messages) == ["question 0", "Noted.", "question 1", "Noted."]
    assert forked.state.get() == {"page 0": 0, "page 1": 1}
    forked("another way")
    forked._session_manager.flush()
    assert texts(world.agent(other).messages)[-2:] == ["another way", "Noted."]
    assert len(world.agent().messages) == 8


def test_live_agent_goes_on_from_the_turn_to_which_its_session_was_rewound(world: World) -> None:
    """The next turn but one at the latest has the shortened history."""
    agent = world.agent(refresh="turn")
    for number in range(4):
        agent(f"question {number}")
    agent._session_manager.flush()
    rewind(PLACE, world.tiers, at_turn=1)
    agent("again")
    agent("and again")
    agent._session_manager.flush()
    restored = world.agent()
    assert texts(restored.messages) == texts(agent.messages)
    assert texts(agent.messages)[:2] == ["question 0", "Noted."]
    assert texts(agent.messages)[-2:] == ["and again", "Noted."]
    assert "question 2" not in texts(agent.messages)


def test_damaged_head_is_an_error_until_the_session_is_deleted(tmp_path: Path) -> None:
    """It is neither overwritten nor taken for a new session."""
    world = World(tmp_path, hot=False)
    world.talk("one", "two")
    (row,) = [row for row in world.durable.query(PLACE.session) if row["sk"].endswith("#HEAD")]
    damaged = {**row, "data": row["data"][:-9] + b"?" * 9}
    world.durable.put(damaged)
    with pytest.raises(CorruptRecordError):
        world.agent()
    with pytest.raises(CorruptRecordError):
        inspect_conversation(PLACE, **world.stores)
    world.sweep()
    assert world.durable.get(row["session_id"], row["sk"]) == damaged
    TieredSessionManager(SCOPE, **world.stores).delete_session()
    assert world.agent().messages == []
