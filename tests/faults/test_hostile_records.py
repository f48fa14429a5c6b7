"""Hostile stored data causes an error of this package: no other error, hang or empty result."""

import random
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from strands_manga_memory import USER_MEMORY, Codec, MangaMemory, SQLiteTable
from strands_manga_memory.exceptions import CorruptRecordError, MangaMemoryError
from strands_manga_memory.ops import import_user
from strands_manga_memory.session.protocol.record_format import open_json, seal_json
from strands_manga_memory.session.tiers import ConversationKey, ExpiryIndex
from strands_manga_memory.stores.codec import dump, parsing
from tests import servers
from tests.faults.hostile import planted
from tests.faults.hostile.world import World
from tests.support import finish_writes

CODEC = Codec()

pytestmark = pytest.mark.xdist_group("services")


@pytest.fixture(scope="module")
def world(
    valkey_server: servers.Valkey, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    path = tmp_path_factory.mktemp("hostile") / "m.db"
    durable, memories = SQLiteTable(path), SQLiteTable(path, USER_MEMORY)
    for table in (durable, memories):
        table.create_if_missing()
    with valkey_server.client() as client:
        yield World(client, f"hostile{path.parent.name}", durable, memories)


@pytest.fixture(autouse=True)
def _mended(world: World) -> Iterator[None]:
    yield
    world.mend()


def test_what_is_not_damaged_can_be_used(world: World) -> None:
    assert world.tried(may_be_new=False) == []


@pytest.mark.parametrize(
    ("seed", "records"), [(0, 15), pytest.param(1, 100, marks=pytest.mark.long)]
)
def test_whatever_is_stored_is_read_or_refused(world: World, seed: int, records: int) -> None:
    rng = random.Random(seed)
    refused = 0
    for _ in range(records):
        if world.plant(rng):
            refused += bool(world.tried())
        world.mend()
    assert refused > records / 8  # what one tier has damaged the other one may have whole
    assert world.tried(may_be_new=False) == []


def test_lists_that_name_very_many_messages_take_little_memory(world: World) -> None:
    row = next(row for row in world.rows(world.durable) if row["sk"].endswith("#HEAD"))
    place = f"{row['session_id']}/{row['sk']}"
    parts = open_json(row["data"], place, CODEC)
    world.forget_hot()
    many = 99_999_999_999
    key = parts["head"]["seen"].split()[0].partition(":")[0]
    for damage in (
        {"window": f"{key}:{many}"},
        {"window": f"{key}:0 :{many}-"},
        {"window": ["1"]},
        {"seen": f"{key}:{many}", "window": f"{key}:0"},
        {"seen": f"{key}:{many} +1:-{many}", "window": f"{key}:0"},
        {"unlogged": {key: many}},
        {"message_count": many, "turn_count": many},
    ):
        text = dump({**parts, "head": {**parts["head"], **damage}})
        world.durable.put({**row, "data": seal_json(text, place, CODEC)})
        tracemalloc.start()
        try:
            with suppress(CorruptRecordError):
                world.agent(world.memory())
            assert tracemalloc.get_traced_memory()[1] < 64_000_000
        finally:
            tracemalloc.stop()
        world.mend()
        world.forget_hot()


def test_an_export_with_deeply_nested_metadata_is_refused_by_name(world: World) -> None:
    exported = world.memory().export_user("u1", tenant="acme")
    nested: list[object] = []
    for _ in range(600):
        nested = [nested]
    exported["sessions"][0]["metadata"]["created"] = nested
    with pytest.raises(ValueError, match=r"must be a result of export_user.*levels"):
        import_user(exported, world.memory())


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 3))]
)
def test_exports_that_are_none(seed: int, tmp_path: Path, world: World) -> None:
    """The import of any file names the problem, or stores the valid data."""
    rng = random.Random(seed)
    exported = world.memory().export_user("u1", tenant="acme")
    table = SQLiteTable(tmp_path / "i.sqlite3")
    users = SQLiteTable(tmp_path / "i.sqlite3", USER_MEMORY)
    memory = MangaMemory.open("memory://", table, memories=users)
    refused: list[str] = []
    for number in range(60):
        damaged = planted.mutated(exported, rng)
        if isinstance(damaged, dict):
            damaged["user_id"] = damaged.get("user_id") if rng.random() < 0.1 else f"u{number}"
        try:
            import_user(damaged, memory)
        except (ValueError, MangaMemoryError) as error:
            refused.append(str(error))
    assert len(refused) > 5
    assert all(refused)
    memory.close()
    finish_writes(None, table)


@pytest.mark.parametrize("states", ["x", {"state": "x"}, {"state": ["x"]}])
def test_an_export_whose_states_are_no_mappings_is_refused(states: object, world: World) -> None:
    exported = world.memory().export_user("u1", tenant="acme")
    exported["sessions"][0]["states"] = states
    with pytest.raises(ValueError, match="exported must be a result of export_user"):
        import_user(exported, world.memory())


def test_whatever_reading_raises_names_the_record() -> None:
    for error in (
        KeyError("x"),
        TypeError("x"),
        ValueError("x"),
        AttributeError("x"),
        OverflowError("x"),
        RecursionError("x"),
    ):
        with pytest.raises(CorruptRecordError, match="'r' is damaged") as caught, parsing("r"):
            raise error
        assert caught.value.record == "r"
    with pytest.raises(OSError, match="no record's fault"), parsing("r"):
        raise OSError("no record's fault")


def test_an_entry_that_makes_no_sense_does_not_keep_the_sweeper_from_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = SQLiteTable(tmp_path / "e.sqlite3")
    table.create_if_missing()
    index, good = ExpiryIndex(table), ConversationKey.of("s", "A", "a")
    table.batch_write(puts=index.items(good, {"session": "s"}, due=5.0))
    for number, sort in enumerate(
        ("0000000000001#", "000000000000x#s/A:a", "0000000000002#s/A:b", "0000000000003#no-slash")
    ):
        table.put(
            {
                "session_id": f"expiry/{number:02d}",
                "sk": sort,
                "claimed": "soon" if number == 2 else 0.0,
            }
        )
    assert [entry.key for entry in index.due(10.0)] == [good]
    assert "skipped a damaged entry" in caplog.text
