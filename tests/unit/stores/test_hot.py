"""Leases and versions of hot stores. The contract of hot stores has the rest."""

from strands_manga_memory.stores import InMemoryHotStore
from strands_manga_memory.stores.hot import acquire_lease, new_version, release_lease
from strands_manga_memory.testing import FakeClock


def test_versions_are_random_and_exact_in_every_store() -> None:
    found = {new_version() for _ in range(1000)}
    assert len(found) == 1000
    assert 0 < min(found) <= max(found) < 10**15


def test_a_lease_has_one_owner() -> None:
    clock = FakeClock()
    store = InMemoryHotStore(clock=clock)
    assert acquire_lease(store, "c", owner="a", ttl=60.0)
    assert acquire_lease(store, "c", owner="a", ttl=0.3)
    assert not acquire_lease(store, "c", owner="b", ttl=60.0)
    assert acquire_lease(store, "d", owner="b", ttl=60.0)
    release_lease(store, "c", owner="b")
    assert not acquire_lease(store, "c", owner="b", ttl=60.0)
    clock.advance(0.4)
    assert acquire_lease(store, "c", owner="b", ttl=60.0)
    release_lease(store, "c", owner="a")
    assert not acquire_lease(store, "c", owner="a", ttl=60.0)
    release_lease(store, "c", owner="b")
    assert acquire_lease(store, "c", owner="a", ttl=60.0)
    assert store.load("c", []) is None
