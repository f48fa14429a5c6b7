"""A deleted or expired session is gone for good, and its id can be used again."""

import asyncio
import random
from contextlib import suppress
from typing import Any

import pytest
from strands import ToolContext, tool
from strands.agent.conversation_manager import SummarizingConversationManager
from strands.hooks import BeforeModelCallEvent
from strands.multiagent import GraphBuilder

from strands_manga_memory import (
    RedisHotStore,
    StoreUnavailableError,
    TieredSessionManager,
    TtlPolicy,
)
from strands_manga_memory.testing import FakeClock, ScriptedModel
from tests import servers
from tests.faulty_stores import FaultyHotStore, FaultyTable
from tests.servers import wait_until
from tests.support import WatchedStore
from tests.unit.session.support import (
    PATIENT,
    MemoryTable,
    Stores,
    SurvivingHotStore,
    agent,
    everything_stored,
    find,
    one_tool_turn,
    open_stores,
    quiet,
    same,
    texts,
    tool_turns,
    tool_use,
    user,
)

WORD = "Nausicaä"


def check_gone(stores: Stores) -> None:
    assert WORD.encode() not in everything_stored(stores)
    manager = stores.manager()
    assert not manager.exists()
    assert list(manager.history()) == []


def test_everything_goes_and_the_id_can_be_used_again(stores: Stores) -> None:
    live = stores.agent(flush_every=1)
    for number in range(7):
        live(f"{WORD} {number}")
    live._session_manager.set_metadata(cart=[WORD])
    live._session_manager.flush()
    stores.manager().delete_session()
    check_gone(stores)
    fresh = stores.agent()
    assert fresh.messages == []
    fresh("new")
    fresh._session_manager.flush()
    assert texts(stores.agent().messages) == ["new", "ok"]
    assert texts(stores.manager().history()) == ["new", "ok"]
    assert stores.manager().stats()["turns"] == 1
    assert WORD.encode() not in everything_stored(stores)


def test_a_live_agent_starts_empty_with_the_state_it_was_built_with(stores: Stores) -> None:
    manager = stores.manager()
    live = agent(manager, state={"built": 1}, conversation_manager=SummarizingConversationManager())
    live(f"about {WORD}")
    live.state.set("favourite", WORD)
    live.conversation_manager._summary_message = user(f"summary of {WORD}")
    live("again")
    manager.delete_session()
    check_gone(stores)
    live("hello")
    assert texts(live.messages) == ["hello", "ok"]
    assert texts(live.model.requests[-1].messages) == ["hello"]
    assert live.state.get() == {"built": 1}
    manager.flush()
    assert WORD.encode() not in everything_stored(stores)
    assert texts(manager.history()) == ["hello", "ok"]
    restored = stores.agent(conversation_manager=SummarizingConversationManager())
    assert same(restored.messages, live.messages)
    assert restored.state.get() == {"built": 1}


def test_agents_of_this_process_begin_anew_whichever_manager_deletes(stores: Stores) -> None:
    live = stores.agent(state={"built": 1})
    live(f"about {WORD}")
    live.state.set("favourite", WORD)
    stores.manager().delete_session()
    live("hello")
    assert texts(live.model.requests[-1].messages) == ["hello"]
    assert live.state.get() == {"built": 1}
    assert live._session_manager.stats()["dropped_messages"] == 0
    live._session_manager.flush()
    assert texts(stores.manager().history()) == ["hello", "ok"]
    assert WORD.encode() not in everything_stored(stores)


@tool(context=True)
def approve(tool_context: ToolContext) -> str:
    """Ask a human."""
    return str(tool_context.interrupt("approval"))


@pytest.mark.parametrize("is_own", [True, False])
def test_an_agent_that_waits_for_an_answer_begins_anew(stores: Stores, is_own: bool) -> None:
    live = stores.agent(ScriptedModel([[tool_use("a", "approve")]]), tools=[approve])
    assert live(f"about {WORD}").stop_reason == "interrupt"
    (live._session_manager if is_own else stores.manager()).delete_session()
    live("hello")
    assert texts(live.model.requests[-1].messages) == ["hello"]
    live._session_manager.flush()
    assert texts(stores.manager().history()) == ["hello", "ok"]


def test_another_process_notices_at_its_next_turn(stores: Stores) -> None:
    other = stores.agent(state={"built": 1})
    other(f"about {WORD}")
    other.state.set("favourite", WORD)
    other._session_manager.flush()
    stores.elsewhere().manager().delete_session()
    other(f"a late word about {WORD}")
    assert WORD.encode() not in everything_stored(stores)
    assert other._session_manager.stats()["dropped_messages"] == 2
    other("hello")
    assert texts(other.messages) == ["hello", "ok"]
    assert other.state.get() == {"built": 1}
    other._session_manager.flush()
    assert texts(stores.manager().history()) == ["hello", "ok"]
    assert WORD.encode() not in everything_stored(stores)


@pytest.mark.parametrize("flush_every", [1, 5])
def test_deleted_by_another_process_during_a_turn(stores: Stores, flush_every: int) -> None:
    manager = stores.manager(flush_every=flush_every)
    live = agent(manager, tool_turns(), tools=[find])
    live(f"about {WORD} 5")  # two tools at once
    quiet(live)
    calls: list[int] = []

    async def delete(_: BeforeModelCallEvent) -> None:
        calls.append(1)
        if len(calls) == 2:
            await asyncio.to_thread(stores.elsewhere().manager().delete_session)

    live.hooks.add_callback(BeforeModelCallEvent, delete)
    live(f"more about {WORD} 2")
    quiet(live)
    check_gone(stores)
    assert stores.agent().messages == []
    assert manager.stats()["dropped_messages"] > 0
    rows = stores.durable.query(stores.session) if stores.durable is not None else ()
    assert [row["sk"] for row in rows if str(row["sk"]).startswith("A:")] == ["A:default#HEAD"] * (
        stores.durable is not None
    )
    live("hello 8")
    manager.flush()
    assert texts(live.messages) == ["hello 8", "toolUse", "toolResult", "found it"]
    assert same(stores.agent().messages, live.messages)
    assert same(list(stores.manager().history()), live.messages)
    assert WORD.encode() not in everything_stored(stores)


def test_deleted_by_oneself_in_the_middle_of_a_turn(stores: Stores) -> None:
    manager = stores.manager()

    @tool
    def forget_me() -> str:
        """Forget everything."""
        manager.delete_session()
        return f"forgot {WORD}"

    live = agent(manager, ScriptedModel([[tool_use("f", "forget_me")], WORD]), tools=[forget_me])
    live(f"forget {WORD}")
    manager.flush()
    check_gone(stores)
    live("hello")
    assert texts(live.messages) == ["hello", "ok"]


def test_recreated_by_another_process_before_we_notice(stores: Stores) -> None:
    old = stores.agent()
    old(f"about {WORD}")
    old._session_manager.flush()
    stores.elsewhere().manager().delete_session()
    new = stores.agent()
    new("a new start")
    new._session_manager.flush()
    old(f"late {WORD}")
    old("hello")
    old._session_manager.flush()
    assert texts(stores.manager().history()) == ["a new start", "ok", "hello", "ok"]
    assert texts(old.messages) == ["a new start", "ok", "hello", "ok"]
    assert WORD.encode() not in everything_stored(stores)
    assert same(stores.agent().messages, old.messages)


def test_every_agent_and_orchestrator_of_the_session_goes(stores: Stores) -> None:
    manager = stores.manager(flush_every=1)
    for id_ in ("librarian", "cash~ier", "日本"):
        agent(manager, agent_id=id_)(f"{WORD} for {id_}")
    builder = GraphBuilder()
    builder.add_node(agent(None), "only")
    builder.set_session_manager(manager)
    builder.set_graph_id("tour")
    builder.set_execution_timeout(60)
    builder.build()(f"show me {WORD}")
    manager.flush()
    assert WORD.encode() in everything_stored(stores)
    if stores.durable is None:  # nothing lists them
        manager.delete_session()
    stores.manager().delete_session()
    assert WORD.encode() not in everything_stored(stores)
    for id_ in ("librarian", "cash~ier", "日本"):
        assert not stores.manager().exists(id_)


def test_deleting_what_is_not_there(stores: Stores) -> None:
    manager = stores.manager()
    manager.delete_session()
    manager.delete_session()
    assert not manager.exists()
    live = agent(manager)
    live("hello")
    assert stores.manager().exists()


@pytest.mark.parametrize("down", ["hot", "durable"])
def test_a_tier_that_is_down_is_reported_and_catches_up(both: Stores, down: str) -> None:
    both.hot, both.durable = FaultyHotStore(both.hot), FaultyTable(both.durable)
    live = both.agent(flush_every=1)
    live(f"about {WORD}")
    live._session_manager.flush()
    tier = both.hot if down == "hot" else both.durable
    tier.down = True
    manager = both.manager()
    with pytest.raises(StoreUnavailableError):
        manager.delete_session()
    tier.down = False

    def deleted() -> bool:
        with suppress(StoreUnavailableError):
            manager.delete_session()
            return True
        return False

    wait_until(deleted, "deletion")
    check_gone(both)
    live("hello")
    live("again")
    assert WORD.encode() not in everything_stored(both)


def test_what_follows_a_deletion_of_one_tier_is_not_lost_to_the_next_life(both: Stores) -> None:
    """After half a deletion an agent must not continue the ended incarnation."""
    both.hot, both.durable = FaultyHotStore(both.hot), FaultyTable(both.durable)
    one, other = both.agent(flush_every=1), both.agent(flush_every=1)
    one("before")
    both.hot.down = True
    with pytest.raises(StoreUnavailableError):
        one._session_manager.delete_session()
    other("said to what is deleted")
    for live, said in ((other, None), (one, "said by one"), (other, "said by another")):
        if said:
            live(said)
        wait_until(lambda: _flushed(live), "flush")  # noqa: B023 - asked at once
    both.hot.down = False
    for live in (one, other, one):
        wait_until(lambda: _flushed(live), "flush")  # noqa: B023 - asked at once
    log = texts(both.manager().history())
    assert sorted(log) == sorted(["said by one", "ok", "said by another", "ok"])


def _flushed(live: Any) -> bool:
    with suppress(StoreUnavailableError):
        live._session_manager.flush()
        return True
    return False


def test_metadata_of_a_deleted_session_is_gone(stores: Stores) -> None:
    manager = stores.manager()
    manager.set_metadata(cart=[WORD])
    stores.manager().delete_session()
    assert "cart" not in manager.metadata()
    check_gone(stores)
    manager.set_metadata(locale="ja")
    assert stores.manager().metadata()["locale"] == "ja"
    assert "cart" not in stores.manager().metadata()


@pytest.mark.parametrize("calls", range(12))
def test_a_deletion_that_dies_half_way_leaves_no_live_agent_that_goes_on_in_a_session_that_is_over(
    calls: int,
) -> None:
    """The process that deletes calls the table so many times, and then no more."""
    stores = Stores(SurvivingHotStore(), MemoryTable(), "half")

    def die(*_: Any, **__: Any) -> None:
        if len(dying.calls) > calls:
            raise StoreUnavailableError("the process died here")

    dying: Any = WatchedStore(stores.durable, die)
    live = stores.agent(flush_every=1)
    live("before")
    live._session_manager.flush()
    with suppress(StoreUnavailableError):
        Stores(stores.hot, dying, "half").manager().delete_session()
    live("after")
    live._session_manager.flush()
    live("and after")
    live._session_manager.flush()
    assert texts(live.messages)[-2:] == ["and after", "ok"]
    assert same(stores.agent().messages, live.messages)


def test_a_deletion_that_one_tier_misses_ends_every_agent_of_the_session() -> None:
    hot = FaultyHotStore(SurvivingHotStore())
    stores = Stores(hot, MemoryTable(), "two")
    for name in ("a", "b"):
        live = stores.agent(flush_every=1, agent_id=name)
        live("before")
        live._session_manager.flush()
    deleting = stores.manager()
    hot.down = True
    with pytest.raises(StoreUnavailableError):
        deleting.delete_session()
    hot.down = False
    assert [stores.agent(agent_id=name).messages for name in ("a", "b")] == [[], []]


def test_deleted_conversations_are_not_listed(stores: Stores) -> None:
    manager = stores.manager()
    manager.log([user("hello")], "logged")
    agent(manager)("hello")
    assert manager.agents() == ["default", "logged"]
    manager.delete_session()
    assert manager.agents() == []


@pytest.fixture
def aws(request: pytest.FixtureRequest) -> Stores:
    return open_stores("valkey+dynamodb", request)


def clocked(ttl: TtlPolicy | None = None, *, durable: bool = True) -> tuple[Stores, FakeClock]:
    """Stores whose time a test moves."""
    clock = FakeClock()
    table = MemoryTable() if durable else None
    return (
        Stores(SurvivingHotStore(clock=clock), table, "s", settings={"clock": clock, "ttl": ttl}),
        clock,
    )


def test_an_expiry_in_the_middle_of_a_conversation_does_not_end_the_next_tool_turn() -> None:
    for durable in (True, False):
        stores, clock = clocked(TtlPolicy(mode="fixed", seconds=60), durable=durable)
        live = stores.agent(one_tool_turn(), tools=[find])
        live("first")
        clock.advance(2 * 3600)
        live("second")
        assert texts(live.messages) == [
            "first", "toolUse", "toolResult", "done", "second", "toolUse", "toolResult", "done",
        ]  # fmt: skip
        assert live._session_manager.stats()["unsaved_messages"] == 0


@pytest.mark.parametrize(("hot", "durable"), [(True, False), (True, True), (False, True)])
def test_old_and_new_conversations_never_interleave(hot: bool, durable: bool) -> None:
    stores, clock = clocked(TtlPolicy(seconds=60, session=60), durable=durable)
    if not hot:
        stores.hot = None
    first = stores.agent(state={"old": True})
    first("Q0")
    first._session_manager.flush()
    clock.advance(61 + 2 * 3600)
    second = stores.agent()
    assert second.messages == []
    second("NEW-Q")
    second._session_manager.flush()
    first("Q1")
    first._session_manager.flush()
    third = stores.agent()
    assert texts(third.messages) == ["NEW-Q", "ok", "Q1", "ok"]
    assert texts(stores.manager().history()) == ["NEW-Q", "ok", "Q1", "ok"]
    assert third.state.get() == {}
    first("Q2")
    assert texts(first.messages) == ["NEW-Q", "ok", "Q1", "ok", "Q2", "ok"]


@pytest.mark.xdist_group("cluster")
def test_a_cluster_session_is_deleted(valkey_cluster: servers.ValkeyCluster, unique: str) -> None:
    client = valkey_cluster.client()
    hot = RedisHotStore(client)
    for number in range(12):
        session = f"{unique}-{number}"
        live = agent(
            TieredSessionManager(session, hot=hot, **PATIENT), one_tool_turn(), tools=[find]
        )
        live("first")
        restored = agent(
            TieredSessionManager(session, hot=hot, **PATIENT), one_tool_turn(), tools=[find]
        )
        assert same(restored.messages, live.messages)
        restored("second")
        manager = TieredSessionManager(session, hot=hot, **PATIENT)
        assert len(list(manager.history())) == 8
        manager.delete_session()
        assert not manager.exists()
    client.close()


def test_a_deletion_reads_keys_without_bodies(aws: Stores) -> None:
    """What is only looked for by its key is not read with its body."""
    live = aws.agent(flush_every=1)
    for _ in range(5):
        live(random.Random(2).randbytes(20_000).hex())
    live._session_manager.flush()
    read: list[Any] = []
    query = aws.durable.query
    aws.durable.query = lambda *arguments, **named: (
        read.append(named.get("attributes")),
        query(*arguments, **named),
    )[1]
    try:
        aws.manager().delete_session()
    finally:
        del aws.durable.query
    assert read
    assert all(attributes is not None for attributes in read)


def test_old_messages_stay_away_after_the_head_was_deleted(aws: Stores) -> None:
    """Old messages never come back into a new conversation."""
    live = aws.agent(flush_every=1)
    live("Q0")
    live._session_manager.close()
    aws.lose_hot()
    aws.durable.delete(aws.session, "A:default#HEAD")
    fresh = aws.agent(flush_every=1)
    assert fresh.messages == []
    fresh("NEW")
    fresh._session_manager.flush()
    for stores in (aws, aws.only_durable()):
        assert texts(stores.agent().messages) == ["NEW", "ok"]
        assert texts(stores.manager().history()) == ["NEW", "ok"]
