"""The cache of drafts: by content, for a day, readable only by who holds the content."""

import pytest

from strands_manga_memory.conversation import SummaryCache
from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.stores import InMemoryHotStore
from strands_manga_memory.testing import FakeClock
from tests.faulty_stores import FaultyHotStore

KEY = ("model", "instructions", "what was said: CANARY")


def test_the_same_content_is_found_for_a_day() -> None:
    clock = FakeClock()
    cache = SummaryCache(InMemoryHotStore(clock=clock))
    assert cache.get(*KEY) is None
    cache.put(*KEY, text="the draft 要約")
    assert cache.get(*KEY) == "the draft 要約"
    assert (cache.hits, cache.misses, cache.hit_rate) == (1, 1, 0.5)
    clock.advance(24 * 3600 - 1)
    assert cache.get(*KEY) is not None
    clock.advance(2)
    assert cache.get(*KEY) is None


@pytest.mark.parametrize(
    "other",
    [
        ("other", *KEY[1:]),
        (KEY[0], "other", KEY[2]),
        (*KEY[:2], "other"),
        ("modelinstructions", "", KEY[2]),
    ],
)
def test_other_content_is_not(other: tuple[str, str, str]) -> None:
    cache = SummaryCache(InMemoryHotStore())
    cache.put(*KEY, text="draft")
    assert cache.get(*other) is None


def test_the_store_holds_neither_content_nor_draft_nor_key() -> None:
    store = InMemoryHotStore()
    cache = SummaryCache(store)
    cache.put(*KEY, text="DRAFT " * 100)
    held = repr(vars(store))
    assert "DRAFT" not in held
    assert "CANARY" not in held
    (name,) = store._values
    assert SummaryCache(store).get(*KEY) == "DRAFT " * 100
    other = (*KEY[:2], "what another conversation says")
    cache.put(*other, text="another draft")
    (moved,) = store._values.keys() - {name}
    store.put_value(moved, store.get_value(name) or b"", ttl=60)
    assert SummaryCache(store).get(*other) is None


def test_a_store_that_fails_or_was_damaged_is_a_cache_with_nothing() -> None:
    store = InMemoryHotStore()
    faulty = FaultyHotStore(store)
    cache = SummaryCache(faulty)
    cache.put(*KEY, text="draft")
    faulty.fail_next(error=StoreUnavailableError("down"))
    assert cache.get(*KEY) is None
    (name,) = store._values
    store.put_value(name, b"garbage", ttl=60)
    assert cache.get(*KEY) is None
    faulty.down = True
    cache.put(*KEY, text="draft")
