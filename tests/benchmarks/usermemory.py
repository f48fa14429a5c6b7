"""usermemory: requests of a user's memories."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from strands import Agent
from strands.memory import MemoryManager

from strands_manga_memory import MangaMemory, UserMemoryStore
from strands_manga_memory.stores import USER_MEMORY, DynamoDBTable, InMemoryHotStore
from strands_manga_memory.stores.writer import shared_writer
from strands_manga_memory.testing import ScriptedModel
from tests import servers
from tests.benchmarks import text
from tests.benchmarks.wire import READS, Wire, requests

BUDGETS: dict[str, str | float] = {
    "durable_requests_at_session_start": "<= 5",  # two of them in the background
    "durable_reads_in_10_turns_after_it": "== 0",
    "durable_reads_of_a_recall_of_1_mb": "<= 7",
    "requests_of_prefer": "<= 3",
    "requests_of_a_stated_preference": "<= 3",
    "ledger_writes_of_a_recall": "== 1",
}
_WRITES = ("PutItem", "TransactWriteItems")


def run() -> dict[str, float]:
    """Count the requests."""
    with servers.dynamodb() as server:
        return _measure_requests(server)


@dataclass
class RecordedTable:
    """Memory table behind a recording proxy."""

    table: DynamoDBTable
    wire: Wire

    def seen(self) -> list[Any]:
        """Return the requests since the last call."""
        assert shared_writer(None, self.table).drain(30)
        found = requests(self.wire.log)
        self.wire.log.clear()
        return found


@contextmanager
def _recorded_table(server: servers.DynamoDB, name: str) -> Iterator[RecordedTable]:
    log: list[Any] = []
    with Wire(server, log) as wire:
        table = DynamoDBTable(
            server.client(f"http://{servers.HOST}:{wire.port}", proxies={}, read_timeout=30),
            USER_MEMORY,
            name=name,
            deadline=10,
        )
        table.create_if_missing()
        log.clear()
        yield RecordedTable(table, wire)
        table.close()


def _measure_requests(server: servers.DynamoDB) -> dict[str, float]:
    values: dict[str, float] = {}
    with _recorded_table(server, "user-memory") as watched:
        store = UserMemoryStore(watched.table, user_id="u1")
        store.prefer("genre", "horror")
        values["requests_of_prefer"] = len(watched.seen())
        owned = store.remember("Owns volume 3 of Uzumaki")
        filler = store.remember(text(900))
        for start in range(0, 900, 25):
            items = [
                store.partition.item_of(filler) | {"memory_id": f"fact#~{n:032x}"}
                for n in range(start, start + 25)
            ]
            watched.table.batch_write(puts=items)
            store.partition.add_to_latest(*(item["memory_id"] for item in items))
        store.partition.add_to_latest(owned.memory_id)  # the turns below ask for it
        store.recall(query="uzumaki")  # reads all memories, and stores the list of their words
        watched.seen()
        store.recall(query="uzumaki")
        found = watched.seen()
        values["durable_reads_of_a_recall_of_1_mb"] = sum(r.operation in READS for r in found)
        values["ledger_writes_of_a_recall"] = sum(request.operation in _WRITES for request in found)
        memory = MangaMemory(
            hot=InMemoryHotStore(),
            durable=watched.table,
            memories=watched.table,
            create_tables=False,
        )
        kwargs = memory.agent_kwargs(user_id="u1", session_id="s1", session=False)
        agent = Agent(model=ScriptedModel(), callback_handler=None, **kwargs)
        values["durable_requests_at_session_start"] = len(watched.seen())
        for _ in range(10):
            agent("Which volume of Uzumaki is next?")
        values["durable_reads_in_10_turns_after_it"] = sum(
            request.operation in READS for request in watched.seen()
        )
        agent("Any lighthouses?")  # no recent memory matches, so older ones are searched
        watched.seen()
        agent("My favorite author is Junji Ito.")
        assert shared_writer(memory.hot, None).drain(30)
        found = [  # without the count of recalls, and the search with the words of the message
            each
            for each in watched.seen()
            if "~ledger#" not in str(each.body) and "~words#" not in str(each.body)
        ]
        values["requests_of_a_stated_preference"] = len(found)
        assert isinstance(kwargs["memory_manager"], MemoryManager)
    return values
