from typing import Any

import pytest

from strands_manga_memory.memory import MemoryRecord, MemoryType, Owner
from strands_manga_memory.memory.records import item_of, record_of

OWNER = Owner("u")


def record(content: str, **metadata: Any) -> MemoryRecord:
    return MemoryRecord(
        memory_id="fact#1",
        type=MemoryType.FACT,
        content=content,
        importance=0.5,
        metadata=metadata,
        created_at=1.0,
        updated_at=1.0,
    )


@pytest.mark.parametrize("text", ["4fe-1", "Infinity and NaN", "the-", "1e+9", "-Infinity", "e-"])
def test_what_a_text_reads_like_does_not_decide_how_it_is_stored(text: str) -> None:
    item = item_of(record(text, source=text), OWNER, None)
    assert item["content"] == text
    assert item["metadata"] == {"source": text}


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 1e300, 1e-300, 1 << 80, "\ud800", [float("-inf")]]
)
def test_a_value_that_a_table_lacks_is_sealed_and_comes_back(value: Any) -> None:
    known = record("likes it", score=value)
    item = item_of(known, OWNER, None)
    assert "content" not in item
    assert repr(record_of(item, OWNER, None).metadata) == repr(known.metadata)
