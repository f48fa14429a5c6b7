"""Retention and ranking: what is kept how long, and what it is worth."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strands_manga_memory.memory import RETENTION, MemoryRecord, MemoryType
from strands_manga_memory.memory.memory_search import score
from tests.support import DAY


def record(type_: MemoryType = MemoryType.FEEDBACK, **fields: Any) -> MemoryRecord:
    defaults: dict[str, Any] = {
        "importance": 0.5,
        "created_at": 0.0,
        "updated_at": 0.0,
        "content": "c",
        "memory_id": "x",
    }
    return MemoryRecord(type=type_, **{**defaults, **fields})


def worth(record: MemoryRecord, now: float = 0.0, **named: Any) -> float:
    return score(
        record, **{"now": now, "half_life": RETENTION[MemoryType(record.type)].half_life, **named}
    )


def test_types_have_the_retention_and_importance_of_the_requirement() -> None:
    expected = {
        "preference": (None, 0.9),
        "interaction_summary": (1000 + 90 * DAY, 0.6),
        "feedback": (1000 + 180 * DAY, 0.7),
        "behavioral_pattern": (1000 + 30 * DAY, 0.4),
    }
    rules = {name: RETENTION[MemoryType(name)] for name in expected}
    assert {n: (rule.expires_at(1000.0), rule.importance) for n, rule in rules.items()} == expected


def test_a_memory_ends_with_its_second() -> None:
    assert not record(expires_at=100).expired(99.9)
    assert record(expires_at=100).expired(100.0)
    assert not record(expires_at=None).expired(math.inf)


def test_preferences_do_not_fade_and_others_halve() -> None:
    assert worth(record(MemoryType.PREFERENCE), 1000 * DAY) == worth(record(MemoryType.PREFERENCE))
    fresh, old = (worth(record(MemoryType.FEEDBACK), now) for now in (0.0, 60 * DAY))
    assert old == pytest.approx(fresh / 2**0.25)


def test_use_keeps_a_memory_fresh_and_counts() -> None:
    unused, used = (
        worth(record(), 50 * DAY),
        worth(record(access_count=3, accessed_at=49 * DAY), 50 * DAY),
    )
    assert used > unused


def test_a_clock_that_is_behind_makes_nothing_better_than_fresh() -> None:
    assert worth(record(updated_at=500.0), 0.0) == worth(record(updated_at=0.0), 0.0)


@given(
    importance=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    age=st.floats(0, 400 * DAY),
    uses=st.integers(0, 1000),
    similarity=st.floats(0, 1),
)
def test_more_of_anything_is_never_worth_less(
    importance: tuple[float, float], age: float, uses: int, similarity: float
) -> None:
    low, high = sorted(importance)
    base = worth(record(importance=low, access_count=uses), age, similarity=similarity)
    assert 0 <= base < math.inf
    assert worth(record(importance=high, access_count=uses), age, similarity=similarity) >= base
    assert worth(record(importance=low, access_count=uses), age / 2, similarity=similarity) >= base
    assert worth(record(importance=low, access_count=uses + 1), age, similarity=similarity) >= base
    assert worth(record(importance=low, access_count=uses), age, similarity=1.0) >= base
