"""A tier that stops, stalls, forgets or goes back in time, in the middle of a conversation."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.session import TieredSessionManager
from strands_manga_memory.stores import RedisHotStore, open_hot_store
from tests import servers
from tests.faults import talk
from tests.faults.conftest import SESSION, FaultyTiers

pytestmark = pytest.mark.xdist_group("tiers")  # its servers and processes are started once


def say(agent: Any, *numbers: int) -> None:
    for number in numbers:
        agent(f"t{number} {talk.KINDS[number % len(talk.KINDS)]}")


def settled(manager: TieredSessionManager) -> None:
    def everything_is_saved() -> bool:
        return manager.stats("librarian")["unsaved_messages"] == 0

    servers.wait_until(everything_is_saved, "saving everything")


def check(manager: TieredSessionManager, agent: Any, turns: int) -> None:
    """Every turn is in the log once and whole, and another process equals ``agent``."""
    wanted = [
        mark
        for n in range(turns)
        for mark in talk.wanted_marks(f"t{n}", talk.KINDS[n % len(talk.KINDS)])
    ]
    assert sorted(talk.marks(manager.history("librarian")).elements()) == sorted(wanted)
    assert talk.problems(agent.messages) == []


def restart(valkey: servers.Valkey) -> None:
    valkey.restart(empty=True)


def pause_for_three_seconds(valkey: servers.Valkey) -> threading.Timer:
    valkey.pause()
    timer = threading.Timer(3.0, valkey.resume)
    timer.start()
    return timer


@pytest.mark.parametrize("fault", [servers.Valkey.flush, restart, pause_for_three_seconds])
def test_the_hot_tier_loses_or_stalls(
    tiers: FaultyTiers, fault: Callable[[servers.Valkey], threading.Timer | None]
) -> None:
    manager = tiers.manager()
    agent = talk.new_agent(manager)
    say(agent, 0, 1, 2)
    settled(manager)
    timer = fault(tiers.valkey)
    say(agent, 3, 4, 5, 6)
    settled(manager)
    manager.flush()
    check(manager, agent, 7)
    other = tiers.manager()
    assert talk.plain(talk.new_agent(other).messages) == talk.plain(agent.messages)
    check(other, agent, 7)
    if timer is not None:
        timer.join()  # before the server is stopped


def test_the_hot_tier_goes_back_to_an_older_copy(tiers: FaultyTiers) -> None:
    manager = tiers.manager()
    agent = talk.new_agent(manager)
    say(agent, 0, 1)
    settled(manager)
    client = tiers.valkey.client()
    copies = {key: client.dump(key) for key in client.scan_iter("*:c:*")}
    say(agent, 2, 3)
    settled(manager)
    for key, copy in copies.items():
        client.restore(key, 3_600_000, copy, replace=True)
    say(agent, 4)
    settled(manager)
    check(manager, agent, 5)
    assert talk.plain(talk.new_agent(tiers.manager()).messages) == talk.plain(agent.messages)


@pytest.mark.parametrize("tier", ["hot", "durable"])
def test_a_write_whose_answer_is_lost_counts_once(tiers: FaultyTiers, tier: str) -> None:
    manager = tiers.manager(flush_every=1)
    agent = talk.new_agent(manager)
    say(agent, 0)
    settled(manager)
    proxy = tiers.hot_proxy if tier == "hot" else tiers.durable_proxy
    for number in range(1, 6):
        proxy.drop_next_answer()
        say(agent, number)
        settled(manager)
    manager.flush()
    check(manager, agent, 6)
    assert talk.plain(talk.new_agent(tiers.manager()).messages) == talk.plain(agent.messages)
    tiers.valkey.flush()
    assert talk.plain(talk.new_agent(tiers.manager()).messages) == talk.plain(agent.messages)


def test_a_flush_brings_the_hot_tier_up_to_date_after_an_outage(tiers: FaultyTiers) -> None:
    """The hot tier missed the last turns and has them without a further turn."""
    manager = tiers.manager()
    agent = talk.new_agent(manager)
    say(agent, 0)
    tiers.hot_proxy.reset()
    say(agent, 1, 2)
    settled(manager)
    assert manager.stats("librarian")["hot"] == "down"
    tiers.hot_proxy.passing()

    def is_up() -> bool:
        manager.flush()
        return manager.stats("librarian")["hot"] == "up"

    servers.wait_until(is_up, "a flush that reaches the hot tier")
    tiers.durable_proxy.reset()
    assert talk.plain(talk.new_agent(tiers.manager()).messages) == talk.plain(agent.messages)


def test_both_tiers_are_down_and_all_is_counted_and_saved_later(tiers: FaultyTiers) -> None:
    manager = tiers.manager()
    agent = talk.new_agent(manager)
    say(agent, 0)
    settled(manager)
    tiers.hot_proxy.reset()
    tiers.durable_proxy.reset()
    say(agent, 1, 2)
    stats = manager.stats("librarian")
    assert stats["unsaved_messages"] == len(agent.messages) - 2
    assert stats["hot"] == "down"
    with pytest.raises(StoreUnavailableError):
        manager.flush()
    tiers.hot_proxy.passing()
    tiers.durable_proxy.passing()
    settled(manager)
    manager.flush()
    check(manager, agent, 3)
    assert talk.plain(talk.new_agent(tiers.manager()).messages) == talk.plain(agent.messages)


def test_worker_and_hot_tier_lost_together_lose_no_flushed_turn(tiers: FaultyTiers) -> None:
    manager = tiers.manager(flush_every=3)
    agent = talk.new_agent(manager)
    say(agent, *range(5))
    settled(manager)
    servers.wait_until(lambda: len(logged_turns(tiers)) >= 3, "the flush")
    tiers.valkey.flush()
    other = tiers.manager()
    restored = talk.new_agent(other)
    kept = {mark.split()[0] for mark in talk.marks(restored.messages) if mark.startswith("user:")}
    assert {"user:t0", "user:t1", "user:t2"} <= kept
    assert other.stats("librarian")["possible_loss"] is True
    assert (
        talk.request_problems(talk.next_request(restored.messages)) == []
    )  # a flush may have had the beginning of a turn
    restored("t9 text")
    assert talk.request_problems(restored.model.requests[-1].messages) == []


def logged_turns(tiers: FaultyTiers) -> list[Any]:
    rows = tiers.durable().query(SESSION, attributes=[])
    return [row for row in rows if "#TURN#" in str(row["sk"])]


def test_a_restore_that_cannot_read_raises_and_is_never_empty(tiers: FaultyTiers) -> None:
    manager = tiers.manager()
    agent = talk.new_agent(manager)
    say(agent, 0, 1)
    manager.flush()
    tiers.hot_proxy.reset()
    tiers.durable_proxy.reset()
    with pytest.raises(StoreUnavailableError, match="could not be read"):
        talk.new_agent(tiers.manager())
    tiers.durable_proxy.passing()
    assert talk.plain(talk.new_agent(tiers.manager()).messages) == talk.plain(agent.messages)
    alone = TieredSessionManager(SESSION, hot=open_hot_store(tiers.hot_url))
    with pytest.raises(StoreUnavailableError, match="could not be read"):
        talk.new_agent(alone)


def test_twenty_managers_share_threads_and_connections(tiers: FaultyTiers) -> None:
    hot, durable = open_hot_store(tiers.hot_url), tiers.durable()
    assert isinstance(hot, RedisHotStore)
    before = talk.writer_threads()
    agents = []
    for number in range(20):
        manager = TieredSessionManager(f"many{number}", hot=hot, durable=durable)
        agents.append(talk.new_agent(manager))
        agents[-1]("t0 text")
    assert talk.writer_threads() - before <= 8
    assert len([c for c in tiers.valkey.client().client_list() if c["cmd"] != "client|list"]) <= 12
