"""Known defects of other session managers for Strands, which this one lacks."""

import random
from typing import Any

import pytest

from strands_manga_memory import RedisHotStore, TieredSessionManager, TtlPolicy
from strands_manga_memory.testing import FakeClock
from tests import servers
from tests.unit.session.support import (
    PATIENT,
    MemoryTable,
    Stores,
    SurvivingHotStore,
    agent,
    find,
    one_tool_turn,
    open_stores,
    same,
    texts,
)


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
