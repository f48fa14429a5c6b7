"""World: stores with a conversation and memories that can be damaged and mended."""

import random
from collections.abc import Callable
from typing import Any

import redis
from strands import Agent

from strands_manga_memory import ConversationScope, MangaMemory
from strands_manga_memory.exceptions import CorruptRecordError, MangaMemoryError
from strands_manga_memory.ops import inspect
from strands_manga_memory.session.protocol.record_format import open_json, seal_json
from strands_manga_memory.session.tiers import ConversationKey
from strands_manga_memory.stores import USER_MEMORY, Codec, RedisHotStore, SQLiteTable, Table
from strands_manga_memory.stores.codec import dump, load, parsing
from strands_manga_memory.testing import ScriptedModel
from tests.faults.hostile import planted
from tests.support import settle

SCOPE = ConversationScope("u1", "s1", tenant="acme")
_CODEC = Codec()
PLACE = ConversationKey.of(SCOPE.storage_session_id, "A", "default")


class World:
    """Stores with a conversation and memories in them, which can be damaged and mended."""

    def __init__(self, client: redis.Redis, prefix: str, durable: Table, memories: Table) -> None:
        self.client: Any = client
        self.prefix = prefix
        self.durable, self.memories = durable, memories
        self._memories: list[MangaMemory] = []
        self.planted: tuple[Any, ...] = ()
        agent = self.agent(self.memory())
        for text in (
            "find volume 3 of Titan. My favorite genre is horror.",
            "and volume 4?",
            "and the one after ASIN B07X123456?",
        ):
            agent(text)
        agent.state.set("note", {"pages": [1, 2, 3]})
        agent._session_manager.set_metadata(None, locale="ja", cart=["a"])
        agent._session_manager.flush()
        memory = self.memory()
        memory.changes(user_id="u1", session_id="s1", tenant="acme").publish()
        user = memory.user("u1", tenant="acme")
        user.remember("likes horror", metadata={"title": "Titan"})
        user.prefer("format", "paperback")
        earlier = self.memory()
        arguments = earlier.agent_kwargs(user_id="u1", session_id="s0", tenant="acme")
        Agent(model=ScriptedModel(), callback_handler=None, **arguments)(
            "I look for volume 7 of Titan. Where is my order?"
        )
        earlier.finalize(ConversationScope("u1", "s0", tenant="acme"))
        self.settle()
        self._was = self._everything()

    def memory(self) -> MangaMemory:
        """Open the stores as another process would."""
        hot = RedisHotStore(self.client, prefix=self.prefix, deadline=5)
        durable, memories = self.durable, self.memories
        if isinstance(durable, SQLiteTable) and isinstance(memories, SQLiteTable):
            durable, memories = SQLiteTable(durable.path), SQLiteTable(memories.path, USER_MEMORY)
        memory = MangaMemory.open(
            hot, durable, memories=memories, create_tables=False, hot_deadline=10.0
        )
        self._memories.append(memory)
        return memory

    def agent(self, memory: MangaMemory) -> Agent:
        arguments = memory.agent_kwargs(
            user_id="u1", session_id="s1", tenant="acme", task_state=True
        )
        return Agent(model=ScriptedModel(), callback_handler=None, **arguments)

    def settle(self) -> None:
        """Wait until nothing is written any more, also not by earlier uses of damaged records."""
        settle(*self._memories)
        for memory in self._memories:
            for table in (memory.durable, memory.memories):
                if isinstance(table, SQLiteTable):
                    table.close()
        self._memories.clear()

    def _everything(self) -> tuple[dict[bytes, Any], list[tuple[Table, Any]]]:
        hashes = {
            key: self.client.hgetall(key) for key in self.client.scan_iter(f"{self.prefix}:*:c:*")
        }
        tables = ((self.durable, "acme:u1:s1"), (self.memories, "acme:u1"))
        return hashes, [(t, row) for t, partition in tables for row in t.query(partition)]

    def mend(self) -> None:
        """Put everything back as it was."""
        self.settle()
        for key in self.client.scan_iter(f"{self.prefix}:*:c:*"):
            self.client.delete(key)
        hashes, rows = self._was
        for key, fields in hashes.items():
            self.client.hset(key, mapping=fields)
        for table, partition in ((self.durable, "acme:u1:s1"), (self.memories, "acme:u1")):
            keep = {row[owner.schema.sort] for owner, row in rows if owner is table}
            there = [row[table.schema.sort] for row in table.query(partition, attributes=[])]
            table.batch_write(deletes=[(partition, sort) for sort in there if sort not in keep])
        for table, row in rows:
            table.put(row)

    def rows(self, table: Table) -> list[Any]:
        return [row for owner, row in self._was[1] if owner is table]

    def hash_key(self, ending: str) -> bytes:
        return next(key for key in self._was[0] if key.decode().endswith(ending))

    def forget_hot(self) -> None:
        self.client.delete(self.hash_key("A:default"))

    def plant(self, rng: random.Random) -> bool:
        """Damage a record; return False if the damage cannot be written."""
        try:
            return rng.choice(
                [self._row, self._row, self._field, self._field, self._bytes_of_a_row]
            )(rng)
        except (TypeError, ValueError, RecursionError, MangaMemoryError):
            return False

    def _row(self, rng: random.Random) -> bool:
        table, row = rng.choice(self._was[1])
        place = "/".join((row[table.schema.partition], row[table.schema.sort]))
        sealed = next((name for name in ("data", "turn") if name in row), None)
        if sealed is not None and rng.random() < 0.7:
            data = row[sealed].encode() if sealed == "turn" else row[sealed]
            name, value = sealed, _damaged_data(data, place, rng)
            if sealed == "turn" and isinstance(value, bytes):
                value = value.decode(errors="replace")
        else:
            name = rng.choice(
                [name for name in row if name not in (table.schema.partition, table.schema.sort)]
            )
            value = rng.choice(planted.LEAVES)()
        self._forget_hot(rng)
        self.planted = place, name, value
        table.put({**row, name: value})
        return True

    def _field(self, rng: random.Random) -> bool:
        key, fields = rng.choice(list(self._was[0].items()))
        field, value = rng.choice(list(fields.items()))
        damaged: Any = rng.choice(planted.NUMBERS)
        if value[:1] in (b"\xb7", b"{"):
            place = f"{key.decode().split(':c:')[1]}#{field.decode()[2:]}"
            damaged = (
                rng.choice(list(planted.raw(rng)))
                if rng.random() < 0.2
                else _damaged_data(value, place, rng)
            )
        self.planted = key, field, damaged
        self.client.hset(key, field, damaged)
        return True

    def _bytes_of_a_row(self, rng: random.Random) -> bool:
        """Below the table: what SQLite has in a row is any bytes."""
        table, row = rng.choice(self._was[1])
        assert isinstance(table, SQLiteTable)
        self._forget_hot(rng)
        with table._connected() as connection:
            write = f"UPDATE {table.schema.name} SET item = ? WHERE partition = ? AND sort = ?"
            key = (row[table.schema.partition], row[table.schema.sort])
            self.planted = *key, rng.choice(list(planted.payloads(rng)))
            connection.execute(write, (self.planted[-1], *key))
        return True

    def _forget_hot(self, rng: random.Random) -> None:
        if rng.random() < 0.8:
            self.forget_hot()

    def uses(self) -> list[Callable[[], Any]]:
        """Everything that reads."""

        def turn() -> int:
            agent = self.agent(self.memory())
            restored = len(agent.messages)
            if not agent._interrupt_state.activated:
                agent("next")
            agent._session_manager.flush()
            return restored

        return [
            turn,
            lambda: len(list(self.memory().session(SCOPE).records())),
            lambda: self.memory().session(SCOPE).metadata()["turn_count"],
            lambda: self.memory().session(SCOPE).stats()["turns"],
            lambda: inspect(PLACE, hot=self.memory().hot, durable=self.memory().durable),
            lambda: len(self.memory().user("u1", tenant="acme").recall()),
            lambda: self.memory().user("u1", tenant="acme").build_agent_context(),
            lambda: self.memory().export_user("u1", tenant="acme")["sessions"],
            lambda: self.memory().changes(user_id="u1", session_id="s1", tenant="acme").version(),
        ]

    def tried(self, *, may_be_new: bool = True) -> list[MangaMemoryError]:
        """Use everything; return the errors, which must be this package's and name the record."""
        errors: list[MangaMemoryError] = []
        for use in self.uses():
            try:
                found = use()
                assert may_be_new or found, "taken for empty"
            except MangaMemoryError as error:
                errors.append(error)
            except Exception as error:
                error.add_note(f"after this was planted: {self.planted!r:.3000}")
                raise
        assert all(str(error) for error in errors)
        assert all(error.record for error in errors if isinstance(error, CorruptRecordError))
        return errors


def _damaged_data(data: bytes, place: str, rng: random.Random) -> Any:
    if rng.random() < 0.2:
        return rng.choice(list(planted.raw(rng)))
    if rng.random() < 0.3:
        return planted.forged(rng.choice(list(planted.payloads(rng))), place)
    try:
        record = open_json(data, place, _CODEC)
    except CorruptRecordError:  # a memory's
        return _CODEC.seal(planted.mutated_dump(_CODEC.unseal(data, place), rng), place)
    if not isinstance(record, dict):
        return seal_json(planted.mutated_dump(dump(record), rng), place, _CODEC)
    name = rng.choice(sorted(record))
    if rng.random() < 0.1:
        del record[name]
    else:
        record[name] = _mutated(record[name], place, rng)
    return seal_json(dump(record), place, _CODEC)


def _mutated(header: Any, place: str, rng: random.Random) -> Any:
    try:
        with parsing(place):
            return load(planted.mutated_dump(dump(header), rng))
    except CorruptRecordError:
        return None
