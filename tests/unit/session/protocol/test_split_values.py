import random
from typing import Any

import pytest

from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.session.protocol.durable_tier import (
    MAX_BYTES,
    part_keys,
    put_split,
    read_split,
)
from tests.unit.session.support import MemoryTable

KEY = ("p", "s")


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def put(table: MemoryTable, data: bytes, before: Any = None) -> Any:
    return put_split(table, KEY, data, {}, before=before)


def test_a_refused_value_leaves_nothing_behind() -> None:
    table = MemoryTable()
    put(table, noise(900_000))
    before = dict(table.rows)
    assert put(table, noise(900_000, seed=2)) is None
    assert table.rows == before


def test_a_value_that_was_stored_before_keeps_its_parts() -> None:
    """The first try's answer was lost; the second keeps its parts."""
    table, data = MemoryTable(), noise(900_000)
    put(table, data)
    assert put(table, data) is None
    assert read_split(table, table.get(*KEY))[1] == data


def test_a_put_whose_answer_was_lost_counts_as_put() -> None:
    """The driver repeats the put, and the condition is not met any more."""

    class RepeatingTable(MemoryTable):
        def put(self, item: Any, **options: Any) -> bool:
            return super().put(item, **options) and "~" in item["sk"]

    table, data = RepeatingTable(), noise(900_000)
    item = put(table, data)
    assert item is not None
    assert read_split(table, table.get(*KEY))[1] == data


@pytest.mark.parametrize("size", [10, 900_000])
def test_a_value_that_cleans_leaves_no_part_of_a_try_that_died(size: int) -> None:
    """A redacted text may be in the parts of a writer that died."""
    table = MemoryTable()
    item = put(table, noise(900_000))
    put(table, noise(900_000, seed=3), before=item)
    dead = {**item, "v": "dead"}
    for part in part_keys(dead):
        table.put({table.schema.partition: part[0], table.schema.sort: part[1], "data": b"secret"})
    another = {
        table.schema.partition: KEY[0],
        table.schema.sort: f"{KEY[1]}2",
        "data": b"of another value",
    }
    table.put(another)

    new, before = noise(size, seed=2), table.get(*KEY)
    assert put_split(table, KEY, new, {}, before=before, scrub=True)

    assert read_split(table, table.get(*KEY))[1] == new
    assert len(table.rows) == -(-size // MAX_BYTES) + 1


def test_who_is_late_to_discard_what_it_replaced_takes_nothing_of_an_equal_value() -> None:
    """Another writer puts the first value back before the cleanup."""
    first, second = noise(900_000), noise(900_000, seed=2)

    class Late(MemoryTable):
        is_late = True

        def batch_write(self, **given: Any) -> None:
            if self.is_late:
                self.is_late = False
                assert put(self, first, before=self.get(*KEY))
            super().batch_write(**given)

    table = Late()
    before = put(table, first)
    put(table, second, before=before)
    assert read_split(table, table.get(*KEY))[1] == first


def test_replaced_by_the_same() -> None:
    table, data = MemoryTable(), noise(900_000)
    assert put(table, data, before=put(table, data))
    assert read_split(table, table.get(*KEY))[1] == data


def test_two_writers_never_mix_their_parts() -> None:
    table, mine, theirs = MemoryTable(), noise(900_000), noise(900_000, seed=2)
    put(table, mine)
    stored = dict(table.rows)
    table.rows.pop(KEY)
    put(table, theirs)
    table.rows.update(stored)
    assert read_split(table, table.get(*KEY))[1] == mine


@pytest.mark.parametrize("damage", ["missing", "no bytes", "first"])
def test_a_part_that_is_missing_is_told(damage: str) -> None:
    table = MemoryTable()
    put(table, noise(900_000))
    item = table.get(*KEY)
    key = part_keys(item)[1]
    if damage == "missing":
        del table.rows[key]
    elif damage == "no bytes":
        table.rows[key]["data"] = "text"
    else:
        item.pop("data")
        table.rows[KEY].pop("data")
    with pytest.raises(CorruptRecordError) as error:
        read_split(table, item)
    assert error.value.record == "p/s"


@pytest.mark.parametrize("parts", ["3", -1, 0, 10**9, 2.5, True])
def test_a_number_of_parts_that_makes_no_sense(parts: Any) -> None:
    table = MemoryTable()
    put(table, b"data")
    with pytest.raises(CorruptRecordError):
        read_split(table, {**table.get(*KEY), "parts": parts, "v": 1})


def test_a_split_value_costs_one_more_round_trip() -> None:
    table = MemoryTable()
    for key, size in (("small", 10), ("large", 900_010)):
        put_split(table, ("p", key), noise(size), {})
    asked: list[int] = []
    batch_get = table.batch_get
    table.batch_get = lambda keys: (asked.append(len(keys)), batch_get(keys))[1]
    assert len(read_split(table, table.get("p", "small"))[1]) == 10
    assert asked == []
    assert len(read_split(table, table.get("p", "large"))[1]) == 900_010
    assert asked == [2]
