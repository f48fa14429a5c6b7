"""Time to live of hot tier and session, their refreshes, and the sweeper."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from strands.agent.conversation_manager import SlidingWindowConversationManager
from strands.multiagent import GraphBuilder
from strands.types.content import Messages

from strands_manga_memory import (
    SESSIONS,
    ConversationScope,
    CorruptRecordError,
    MangaMemory,
    SessionSweeper,
    TtlPolicy,
)
from strands_manga_memory.exceptions import StoreRefusedError
from strands_manga_memory.session import EndedConversation
from strands_manga_memory.stores import HotRecord, SQLiteTable
from strands_manga_memory.testing import FakeClock, ScriptedModel
from tests.faulty_stores import FaultyTable
from tests.support import WatchedStore, finish_writes, hot_copy
from tests.unit.session.support import (
    MemoryTable,
    Stores,
    SurvivingHotStore,
    agent,
    same,
    texts,
    user,
)


class Timed(Stores):
    """Stores whose clock the test moves."""

    clock: FakeClock

    @classmethod
    def made(cls, *, hot: bool = True, durable: bool = True, **settings: Any) -> Timed:
        clock = FakeClock()
        stores = cls(
            SurvivingHotStore(clock=clock) if hot else None,
            MemoryTable() if durable else None,
            "s",
            settings={"clock": clock, **settings},
        )
        stores.clock = clock
        return stores

    @property
    def record(self) -> HotRecord | None:
        return hot_copy(self.hot, "s/A:default")

    def settle(self) -> None:
        """Wait until a turn's background work is done, before the clock jumps."""
        finish_writes(self.hot, self.durable)

    def sweeper(self, finalizer: Any = None, **named: Any) -> SessionSweeper:
        ttl = self.settings.get("ttl")
        tiers: dict[str, Any] = {"hot": self.hot, "durable": self.durable}
        return SessionSweeper(
            **{**tiers, "finalizer": finalizer, "ttl": ttl, "clock": self.clock, **named}
        )


@pytest.fixture
def timed() -> Timed:
    return Timed.made()


# The policy at work


@pytest.mark.parametrize(
    ("mode", "after_a_turn", "after_a_restore"), [("sliding", 100, 100), ("fixed", 40, 10)]
)
def test_sliding_is_refreshed_by_reads_and_writes_and_fixed_by_neither(
    mode: Any, after_a_turn: float, after_a_restore: float
) -> None:
    stores = Timed.made(ttl=TtlPolicy(mode=mode, seconds=100))
    live = stores.agent()
    live("one")
    stores.clock.advance(60)
    live("two")
    assert stores.record.expires_in == after_a_turn
    stores.clock.advance(30)
    stores.agent()
    assert stores.record.expires_in == after_a_restore


def test_activity_is_refreshed_by_writes_only() -> None:
    stores = Timed.made(ttl=TtlPolicy(mode="activity", seconds=100))
    live = stores.agent()
    live("one")
    stores.clock.advance(60)
    stores.agent()
    assert stores.record.expires_in == 40
    live("two")
    assert stores.record.expires_in == pytest.approx(105)
    for _ in range(25):
        live("more")
    assert stores.record.expires_in == pytest.approx(200)


@pytest.mark.parametrize("mode", ["sliding", "activity", "fixed", "hybrid"])
def test_looking_refreshes_nothing(mode: Any) -> None:
    stores = Timed.made(ttl=TtlPolicy(mode=mode, seconds=100))
    live = stores.agent()
    live("one")
    live._session_manager.flush()
    head = dict(stores.durable.rows["s", "A:default#HEAD"])
    stores.clock.advance(60)
    for manager in (live._session_manager, stores.manager()):
        manager.exists()
        manager.stats()
        manager.metadata()
        list(manager.history())
        list(manager.records())
    stores.sweeper().run_once()
    assert stores.record.expires_in == 40
    assert stores.durable.rows["s", "A:default#HEAD"] == head


def test_physical_expiry_leaves_an_hour(timed: Timed) -> None:
    live = timed.agent()
    live("one")
    live._session_manager.flush()
    head = timed.durable.rows["s", "A:default#HEAD"]
    assert head["expires_at"] == timed.clock() + 86_400 + 3600
    rows = timed.durable.query("s")
    assert [row["sk"] for row in rows if "expires_at" in row] == ["A:default#HEAD"]
    timed.clock.advance(1800 + 3599)
    assert timed.record is not None
    timed.clock.advance(1)
    assert timed.record is None


@pytest.mark.parametrize("grace", [3600.0, 7200.0])
def test_the_grace_of_the_durable_tier(grace: float) -> None:
    stores = Timed.made(hot=False, ttl=TtlPolicy(grace=grace, session=100))
    live = stores.agent()
    live("one")
    assert stores.durable.rows["s", "A:default#HEAD"]["expires_at"] == stores.clock() + 100 + grace
    live._session_manager.delete_session()
    assert stores.durable.rows["s", "A:default#HEAD"]["expires_at"] == stores.clock() + 90_000


# The end of a conversation


def test_a_return_within_the_session_takes_it_up_again(timed: Timed) -> None:
    live = timed.agent()
    live("one")
    live("two")
    timed.clock.advance(5 * 3600)
    assert timed.record is None
    live._session_manager.flush()
    again = timed.agent()
    assert same(again.messages, live.messages)
    again("three")
    assert texts(timed.manager().history()) == ["one", "ok", "two", "ok", "three", "ok"]
    assert timed.record.expires_in == 1800


@pytest.mark.parametrize("is_back", [True, False])
def test_an_expired_hot_copy_never_flushed_is_taken_up(timed: Timed, is_back: bool) -> None:
    """The durable tier was down; the session ends by its own time."""
    table, timed.durable = timed.durable, FaultyTable(timed.durable)
    down = timed.durable
    live = timed.agent()
    down.down = True
    live("one")
    timed.clock.advance(1801)
    if is_back:
        timed.durable = table
    assert table.rows == {}
    again = timed.agent()
    assert same(again.messages, live.messages)
    again("two")
    timed.durable = table
    assert same(timed.agent().messages, again.messages)
    down.down = False
    for agent_ in (again, live):
        agent_._session_manager.flush()
    assert texts(timed.manager().history()) == ["one", "ok", "two", "ok"]


def test_what_was_never_flushed_ends_with_the_session() -> None:
    stores = Timed.made(ttl=TtlPolicy(mode="sliding", seconds=50, session=100))
    table, stores.durable = stores.durable, FaultyTable(stores.durable)
    live = stores.agent()
    stores.durable.down = True
    live("one")
    stores.durable = table
    stores.clock.advance(99)
    assert same(stores.agent().messages, live.messages)
    stores.clock.advance(1)
    assert stores.agent().messages == []
    live._session_manager._tiers.durable.down = False


def test_a_session_lives_on_while_it_is_used(timed: Timed) -> None:
    live = timed.agent(flush_every=1)
    for number in range(5):
        live(f"question {number}")
        live._session_manager.flush()
        timed.clock.advance(80_000)
    assert same(timed.agent().messages, live.messages)


@pytest.mark.parametrize(("hot", "durable"), [(True, False), (False, True), (True, True)])
def test_it_ends_as_one(hot: bool, durable: bool) -> None:
    """History, state and metadata end together."""
    stores = Timed.made(hot=hot, durable=durable, ttl=TtlPolicy(session=3600))
    live = stores.agent(state={"basket": 1})
    for number in range(7):
        live(f"question {number}")
    live._session_manager.set_metadata(locale="ja")
    live._session_manager.flush()
    for seconds in (1799, 2, 1797, 4, 3600, 3600):
        stores.clock.advance(seconds)
        manager = stores.manager()
        whole = len(list(manager.history())) == 14
        assert manager.exists() == whole
        assert ("locale" in manager.metadata()) == whole
        assert (manager.stats()["turns"] == 7) == whole
        assert (len(list(stores.manager().window_records())) == 14) == whole
    assert not whole
    fresh = stores.agent()
    assert (fresh.messages, fresh.state.get()) == ([], {})
    fresh("new")
    fresh._session_manager.flush()
    assert texts(stores.manager().history()) == ["new", "ok"]
    assert "locale" not in stores.manager().metadata()


def test_a_hot_only_session_ends_at_its_time_to_live() -> None:
    stores = Timed.made(durable=False)
    live = stores.agent()
    live("one")
    stores.clock.advance(1799)
    assert same(stores.agent().messages, live.messages)
    stores.clock.advance(1800)
    assert not stores.manager().exists()
    fresh = stores.agent()
    assert fresh.messages == []
    fresh("new")
    assert texts(stores.manager().history()) == ["new", "ok"]


@pytest.mark.parametrize("hot", [False, True])
@pytest.mark.parametrize("refresh", ["never", "turn"])
def test_a_live_agent_begins_anew_after_the_session_has_ended(*, hot: bool, refresh: str) -> None:
    """Also without a sweeper or a new agent, which would end the session in the stores."""
    timed = Timed.made(hot=hot)
    live = timed.agent(refresh=refresh)
    live("one")
    live.state.set("basket", 1)
    live("and more")
    timed.settle()
    timed.clock.advance(86_400 + 3_600)
    live("two")
    assert (texts(live.messages), live.state.get()) == (["two", "ok"], {})
    assert texts(timed.agent().messages) == ["two", "ok"]


@pytest.mark.parametrize("hot", [True, False])
def test_flush_of_an_idle_agent_does_not_prolong_the_session(*, hot: bool) -> None:
    timed = Timed.made(hot=hot)
    live = timed.agent()
    live("t1")
    live._session_manager.flush()
    timed.clock.advance(86_400 + 3_600)
    live._session_manager.flush()
    timed.clock.advance(600)
    live("t2")
    timed.settle()
    assert texts(live.messages) == ["t2", "ok"]
    assert texts(timed.agent().messages) == ["t2", "ok"]


def test_a_live_agent_begins_anew_after_the_stores_have_let_the_session_go(timed: Timed) -> None:
    """The agent's data are not stored again, because the session may be deleted."""
    live = timed.agent(flush_every=1)
    live("one")
    live("two")
    live._session_manager.flush()
    timed.clock.advance(200_000)
    del timed.durable.rows["s", "A:default#HEAD"]
    assert not timed.manager().exists()
    live("three")
    live._session_manager.flush()
    for stores in (timed, timed.only_durable()):
        assert (
            texts(stores.agent().messages) == texts(stores.manager().history()) == ["three", "ok"]
        )
    live("four")
    live._session_manager.flush()
    assert texts(live.messages) == texts(timed.manager().history()) == ["three", "ok", "four", "ok"]


def test_turn_pending_for_hours_is_stored_after_120_turns_of_others(tmp_path: Path) -> None:
    """The stored record lists none of the turns that the process knows, but was not deleted."""
    path, clock = f"{tmp_path}/s.db", FakeClock()
    cut_off = FaultyTable(SQLiteTable(path))
    memories = [
        MangaMemory.open(durable=each, clock=clock) for each in (cut_off, f"sqlite:///{path}")
    ]
    ids = {"user_id": "u", "session_id": "s"}
    live = memories[0].agent(ScriptedModel(), **ids)
    live("first")
    cut_off.down = True
    live("pending")
    window = SlidingWindowConversationManager(2)
    other = memories[1].agent(ScriptedModel(), **ids, conversation_manager=window)
    for number in range(120):
        clock.advance(500)
        other(f"other {number}")
    cut_off.down = False
    live("last")
    live._session_manager.flush()
    records = memories[1].history(ConversationScope("u", "s"), limit=1000).records
    stored = texts(each["message"] for each in records)
    assert {"first", "pending", "other 119", "last"} <= {*stored}
    for memory in memories:
        memory.close()


@pytest.mark.parametrize("in_turn", [False, True])
@pytest.mark.parametrize("deleter", [0, 1])
def test_deleted_turns_of_a_silent_agent_do_not_enter_a_later_conversation(
    deleter: int, in_turn: bool, tmp_path: Path
) -> None:
    """After two days no tombstone is left, and another process has used the session again."""
    clock = FakeClock()
    memories = [
        MangaMemory.open(durable=f"sqlite:///{tmp_path}/s.db", clock=clock) for _ in range(2)
    ]
    ids = {"user_id": "u", "session_id": "s"}

    def pass_days() -> None:
        memories[deleter].delete_session("u", "s")
        for _ in range(2):
            clock.advance(100_000)
            memories[1].sweeper().run_once()
        memories[1].agent(ScriptedModel(), **ids)("new")

    def answer(messages: Messages) -> str:
        if in_turn and len(messages) > 1:
            pass_days()
        return "ok"

    live = memories[0].agent(ScriptedModel(answer), **ids)
    live("old")
    if in_turn:
        live("begun before the deletion, ended after it")
        in_turn = False
    else:
        pass_days()
    live("late")
    assert texts(live.messages) == ["new", "ok", "late", "ok"]
    assert same(memories[1].agent(**ids).messages, live.messages)
    records = memories[1].history(ConversationScope("u", "s")).records
    assert texts(each["message"] for each in records) == ["new", "ok", "late", "ok"]
    for memory in memories:
        memory.close()


def test_session_whose_turn_the_table_refuses_does_not_expire() -> None:
    stores = Timed.made(ttl=TtlPolicy(seconds=3_600.0, session=3_600.0))
    refusing = stores.durable = RefusingTable()
    live = stores.agent(flush_every=2)
    live("one")
    refusing.refuses = True
    for text in ("two", "three"):
        live(text)
    stores.clock.advance(3_700)
    assert texts(stores.agent().messages) == ["one", "ok", "two", "ok", "three", "ok"]
    refusing.refuses = False
    assert texts(stores.agent().messages) == []
    assert logged_texts(stores) == ["one", "ok", "two", "ok", "three", "ok"]


def test_cut_turn_of_an_expired_session_is_logged() -> None:
    stores = Timed.made(hot=False, ttl=TtlPolicy(session=300.0))
    live = stores.agent()
    live("one")
    live._session_manager.append_message(user("cut"), live)
    stores.settle()
    stores.clock.advance(301)
    assert texts(stores.agent().messages) == []
    assert logged_texts(stores) == ["one", "ok", "cut"]


class RefusingTable(MemoryTable):
    """Table that may refuse turns of the log."""

    refuses = False

    def put(self, item: Any, **named: Any) -> bool:
        if self.refuses and "#TURN#" in item["sk"]:
            raise StoreRefusedError("refused", reason="size", record=item["sk"])
        return super().put(item, **named)


def logged_texts(stores: Stores) -> list[str]:
    """Return the texts of all logged messages, as a sweeper finds them after an expiry."""
    manager = stores.manager()
    conversation = EndedConversation(manager._key_of("default"), manager._tiers)
    conversation.read()
    logs = [conversation.durable.read_log(one) for one in conversation.ended_incarnations]
    turns = [turn for log in logs for _, turn in sorted(log.items())]
    return [json.loads(data)["content"][0]["text"] for turn in turns for data in turn.messages]


# The sweeper


def test_the_sweeper_flushes_and_drops(timed: Timed) -> None:
    live = timed.agent(flush_every=100)
    for number in range(4):
        live(f"question {number}")
    assert timed.sweeper().run_once() == 0
    timed.clock.advance(1800)
    seen: list[list[str]] = []

    def finalize(conversation: EndedConversation) -> None:
        seen.append(
            [
                json.loads(data)["content"][0]["text"]
                for _, turn in conversation.storage.history()
                for data in turn.messages
            ]
        )

    assert timed.sweeper(finalize).run_once() == 1
    assert seen == [[text for number in range(4) for text in (f"question {number}", "ok")]]
    assert timed.record is None
    assert timed.sweeper(finalize).run_once() == 0
    again = timed.agent()
    assert same(again.messages, live.messages)
    assert not again._session_manager.stats()["possible_loss"]
    again("on")
    assert len(list(timed.manager().history())) == 10


@pytest.mark.parametrize("durable", [True, False], ids=["both tiers", "hot alone"])
def test_turn_taken_while_a_sweeper_finalizes_stays_in_the_hot_tier(*, durable: bool) -> None:
    stores = Timed.made(durable=durable)
    live = stores.agent(flush_every=100)
    live("one")
    stores.settle()
    stores.clock.advance(1800)

    def finalize(conversation: EndedConversation) -> None:
        live("two")
        stores.settle()

    assert stores.sweeper(finalize).run_once() == 0
    stores.settle()
    assert texts(Stores(stores.hot, None, "s", settings=stores.settings).agent().messages) == [
        "one",
        "ok",
        "two",
        "ok",
    ]


def test_without_a_durable_tier_the_sweeper_drops() -> None:
    stores = Timed.made(durable=False)
    stores.agent()("one")
    stores.clock.advance(1800)
    assert stores.sweeper().run_once() == 1
    assert stores.record is None


def test_a_finalizer_that_raises_is_tried_again_and_stops_nobody_else(timed: Timed) -> None:
    for session in ("s", "s2", "s3"):
        timed.agent(session=session)(f"in {session}")
    timed.clock.advance(1800)
    calls: list[str] = []

    def finalize(conversation: EndedConversation) -> None:
        calls.append(conversation.key.session)
        if conversation.key.session == "s2" and calls.count("s2") < 2:
            raise RuntimeError("the summary failed")

    sweeper = timed.sweeper(finalize)
    assert sweeper.run_once() == 2
    assert sorted(calls) == ["s", "s2", "s3"]
    assert sweeper.run_once() == 0  # claimed for 60 s
    timed.clock.advance(61)
    assert sweeper.run_once() == 1
    assert sorted(calls) == ["s", "s2", "s2", "s3"]
    assert texts(timed.agent(session="s2").messages) == ["in s2", "ok"]


@pytest.mark.parametrize("when", ["before the flush", "before the drop"])
def test_a_turn_that_comes_in_wins(timed: Timed, when: str) -> None:
    """It begins a new epoch that carries the window; the sweeper leaves it alone."""
    live = timed.agent(flush_every=100)
    live("one")
    live("two")
    timed.clock.advance(1800)
    method = {"before the flush": "load", "before the drop": "write"}[when]

    def say(name: str, *_: Any, **__: Any) -> None:
        if name == method and len(live.messages) == 4:
            live("three")

    assert timed.sweeper(hot=WatchedStore(timed.hot, say)).run_once() == 0
    assert timed.record.state == "active"
    assert timed.record.epoch == 2
    assert same(timed.agent().messages, live.messages)
    live("four")
    live._session_manager.flush()
    assert same(timed.agent().messages, live.messages)
    assert texts(timed.manager().history()) == [
        "one", "ok", "two", "ok", "three", "ok", "four", "ok",
    ]  # fmt: skip
    timed.clock.advance(1800)
    assert timed.sweeper().run_once() == 1
    assert same(timed.agent().messages, live.messages)


def test_a_damaged_message_keeps_no_conversation_from_being_swept(timed: Timed) -> None:
    for session in ("s", "s2"):
        timed.agent(session=session)("one")
    timed.clock.advance(1800)
    name = "s/A:default"
    kept = timed.hot._conversations[name]
    [turn] = (name for name in kept.fields if name.startswith("turn."))
    kept.fields[turn] = kept.fields[turn][:-1] + bytes([kept.fields[turn][-1] ^ 1])
    assert timed.sweeper().run_once() == 2
    assert [message["role"] for message in timed.agent().messages] == ["user", "assistant"]


def test_a_damaged_conversation_is_left_alone(timed: Timed) -> None:
    for session in ("s", "s2"):
        timed.agent(session=session)("one")
    timed.clock.advance(1800)
    name = "s/A:default"
    kept = timed.hot._conversations[name]
    kept.fields["head"] = kept.fields["head"][:-1] + bytes([kept.fields["head"][-1] ^ 1])
    assert timed.sweeper().run_once() == 1
    assert timed.record is not None
    with pytest.raises(CorruptRecordError):
        timed.agent()


def test_the_durable_tier_is_down_while_the_sweeper_comes_by(timed: Timed) -> None:
    timed.durable = FaultyTable(timed.durable)
    live = timed.agent(flush_every=100)
    live("one")
    live("two")
    timed.clock.advance(1800)
    timed.durable.down = True
    assert timed.sweeper().run_once() == 0
    assert timed.record is not None
    timed.durable.down = False
    timed.clock.advance(61)
    assert timed.sweeper().run_once() == 1
    assert same(timed.agent().messages, live.messages)


def test_interrupts_and_orchestrators_are_swept_too(timed: Timed) -> None:
    builder = GraphBuilder()
    builder.add_node(agent(None), "only")
    builder.set_session_manager(timed.manager())
    builder.set_graph_id("tour")
    builder.set_execution_timeout(60)
    builder.build()("go")
    timed.clock.advance(1800)
    assert timed.sweeper().run_once() == 1
    assert any(key[1] == "M:tour#HEAD" for key in timed.durable.rows)


def test_a_reader_in_between_is_not_told_a_lie(timed: Timed) -> None:
    """Between flush and drop both tiers have it; between drop and return only the durable one."""
    live = timed.agent(
        flush_every=100, messages=[user("seed"), {"role": "assistant", "content": [{"text": "s"}]}]
    )
    live("one")
    timed.settle()
    timed.clock.advance(1800)
    seen: list[Any] = []

    def finalize(conversation: EndedConversation) -> None:
        seen.append(list(timed.manager().history()))

    timed.sweeper(finalize).run_once()
    seen.append(list(timed.manager().history()))
    assert [len(history) for history in seen] == [4, 4]
    assert same(seen[0], seen[1])


def test_every_stored_record_has_the_expiry_attribute_of_its_table() -> None:
    """A table may name this attribute differently, for example an existing DynamoDB table."""
    timed = Timed.made()
    timed.durable.schema = replace(SESSIONS, ttl="ends")
    live = timed.agent()
    live("Is volume 3 in stock?")
    live._session_manager.flush()
    stored = list(timed.durable.rows.values())
    timed.manager().delete_session()
    tombstones = [row for row in timed.durable.rows.values() if row.get("state") == "deleted"]
    assert any("ends" in row for row in stored)
    assert tombstones
    assert all(row["ends"] > timed.clock() for row in tombstones)
    assert not [row["sk"] for row in (*stored, *tombstones) if "expires_at" in row]


def test_sweeper_takes_urls_of_its_stores(tmp_path: Path) -> None:
    sweeper = SessionSweeper(hot="memory://", durable=f"sqlite:///{tmp_path / 's.sqlite3'}")
    assert sweeper.run_once() == 0
    with pytest.raises(ValueError, match="durable must be Table or a text or None"):
        SessionSweeper(hot=None, durable=5)
