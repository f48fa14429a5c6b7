"""usermemory: requests, processor time and tokens of a user's memories."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from strands import Agent
from strands.memory import MemoryManager

from strands_manga_memory import ConversationScope, MangaMemory, PiiPolicy, UserMemoryStore
from strands_manga_memory.conversation import TiktokenCounter
from strands_manga_memory.memory import MemoryKeeper, MemoryRecord, MemoryType
from strands_manga_memory.memory.records import DAY, content_id, episode_id, new_record, summary_id
from strands_manga_memory.messages.transcripts import Transcript, Utterance
from strands_manga_memory.stores import USER_MEMORY, DynamoDBTable, InMemoryHotStore, SQLiteTable
from strands_manga_memory.stores.writer import shared_writer
from strands_manga_memory.testing import FakeClock, ScriptedModel
from tests import servers
from tests.benchmarks import progress, text
from tests.benchmarks.wire import READS, Wire, requests
from tests.support import WatchedStore

BUDGETS: dict[str, str | float] = {
    "durable_requests_at_session_start": "<= 5",  # two of them in the background
    "durable_reads_in_10_turns_after_it": "== 0",
    "durable_reads_of_a_recall_of_1_mb": "<= 7",
    "requests_of_a_first_turn_with_10000_memories_by_1": "<= 1.5",
    "requests_of_a_live_turn_with_10000_memories_by_1": "<= 1.5",
    "requests_of_a_recall_with_10000_memories_by_1": "<= 1.5",
    "requests_of_finalizing_with_10000_memories_by_1": "<= 1.5",
    "requests_of_prefer": "<= 3",
    "requests_of_a_stated_preference": "<= 3",
    "ledger_writes_of_a_recall": "== 1",
    "context_tokens_after_500_sessions": "<= 800",
    "current_preferences_missing_from_it": "== 0",
    "open_questions_missing_from_it": "== 0",
}
_WRITES = ("PutItem", "TransactWriteItems")
_SESSIONS, _DAYS = 500, 90


def run() -> dict[str, float]:
    """Measure everything."""
    with servers.dynamodb() as server, tempfile.TemporaryDirectory() as folder:
        return {
            **_measure_requests(server),
            **_measure_growth(Path(folder)),
            **_measure_context(Path(folder)),
        }


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


_NUMBERS = (1, 100, 10_000)
_ROUNDS = 7


def _measure_growth(folder: Path) -> dict[str, float]:
    """Compare each step of a session of users with 1, 100 and 10,000 memories."""
    table, durable = SQLiteTable(folder / "growth", USER_MEMORY), SQLiteTable(folder / "sessions")
    for each in (table, durable):
        each.create_if_missing()
    for number in _NUMBERS:
        _fill(table, f"u{number}", number)
    rounds = [
        {number: _measure_session(table, durable, f"u{number}", f"s{at}") for number in _NUMBERS}
        for at in progress(range(_ROUNDS + 1), "sessions of users with 1, 100 and 10,000 memories")
    ][1:]
    values: dict[str, float] = {}
    for step in rounds[0][1]:
        requests, seconds = (
            {number: median(each[number][step][of] for each in rounds) for number in _NUMBERS}
            for of in (0, 1)
        )
        name = f"{step}_with_10000_memories_by_1"
        values[f"requests_of_{name}"] = max(requests.values()) / max(1, min(requests.values()))
        values[f"cpu_of_{name}"] = max(seconds.values()) / min(seconds.values())
        for number in _NUMBERS:
            values[f"requests_of_{step}_with_{number}_memories"] = requests[number]
            values[f"cpu_ms_of_{step}_with_{number}_memories"] = 1000 * seconds[number]
    return values


def _fill(table: SQLiteTable, user: str, memories: int) -> None:
    """Store memories of a user: half facts, a fourth each summaries and messages."""
    store, now = UserMemoryStore(table, user_id=user), time.time()
    fact = store.remember("Owns volume 3 of Uzumaki")
    records = list[MemoryRecord]()
    for number in range(1, memories):
        content, ended_at = text(80), now - number * 60
        if number % 4 < 2:
            records.append(
                replace(
                    fact,
                    memory_id=content_id(MemoryType.FACT, content),
                    content=content,
                    updated_at=ended_at,
                )
            )
            continue
        summary = new_record(
            summary_id(f"old{number}", ended_at),
            0.6,
            ended_at,
            content=content,
            metadata={"ended_at": ended_at},
        )
        passages = {"passages": [text(80) for _ in range(3)], "ended_at": ended_at}
        episode = replace(
            summary,
            memory_id=episode_id(summary.memory_id, 0),
            type=MemoryType.EPISODE,
            metadata=passages,
        )
        records.append(summary if number % 4 == 2 else episode)
    table.batch_write(puts=map(store.partition.item_of, records))
    facts = [fact.memory_id, *(each.memory_id for each in records if each.type == MemoryType.FACT)]
    store.partition.add_to_latest(*facts[:64])
    store.reader.search("Any lighthouses?")  # lists the words
    assert shared_writer(None, table).drain(30)


def _measure_session(
    table: SQLiteTable, durable: SQLiteTable, user: str, session: str
) -> dict[str, tuple[int, float]]:
    """Return the requests and processor seconds of each step of a session."""
    found: dict[str, tuple[int, float]] = {}
    stores: dict[str, Any] = {"memories": WatchedStore(table), "durable": WatchedStore(durable)}
    with MangaMemory(hot=InMemoryHotStore(), **stores) as memory:

        def first_turn() -> None:
            kwargs.update(memory.agent_kwargs(user_id=user, session_id=session))
            agents.append(Agent(model=ScriptedModel(), callback_handler=None, **kwargs))
            agents[0]("Which volume of Uzumaki is next?")

        kwargs, agents = dict[str, Any](), list[Agent]()
        for step, work in (
            ("a_first_turn", first_turn),
            ("a_live_turn", lambda: agents[0]("Which volume of Uzumaki is next, please?")),
            ("a_recall", lambda: memory.user(user).recall(query="Uzumaki", limit=1)),
            ("finalizing", lambda: memory.finalize(ConversationScope(user, session))),
        ):
            if step == "finalizing":
                kwargs["session_manager"].close()
                assert shared_writer(memory.hot, None).drain(30)
                UserMemoryStore(
                    table, user_id=user
                ).partition.count_accesses()  # one write for each recalled memory
            for store in stores.values():
                store.calls.clear()
            start = time.process_time()
            work()
            assert shared_writer(None, memory.memories).drain(30)
            calls = sum(len(store.calls) for store in stores.values())
            found[step] = calls, time.process_time() - start
    return found


def _transcript(user: str, session: str, said: list[Utterance], ended_at: float) -> Transcript:
    return Transcript(
        user_id=user,
        tenant=None,
        session_id=session,
        agent_id="default",
        mark="1",
        utterances=tuple(said),
        turns=said[-1].turn,
        covered=len(said),
        revisions=0,
        ended_at=ended_at,
    )


def _measure_context(folder: Path) -> dict[str, float]:
    """Hold 500 sessions over 90 days, and measure the memories that a new session would show."""
    clock = FakeClock(1_700_000_000.0)
    table = SQLiteTable(folder / "context", USER_MEMORY)
    table.create_if_missing()
    keeper = MemoryKeeper(table=table, pii=PiiPolicy(), clock=clock)
    store = UserMemoryStore(table, user_id="u1", clock=clock)
    for number in range(12):
        store.prefer(f"taste {number}", f"value {number}")
    asked: list[str] = []
    for number in progress(range(_SESSIONS), "500 sessions"):
        clock.advance(_DAYS * DAY / _SESSIONS)
        question = f"Is volume {number} of 『Series {number % 40}』 in stock?"
        is_open = number % 25 == 0
        if is_open and _SESSIONS - number < 7 * _SESSIONS / _DAYS:
            asked.append(f"volume {number} ")
        said = [
            Utterance("user", text(150), 1, clock()),
            Utterance("assistant", text(300), 1, clock()),
            Utterance("user", question, 2, clock()),
            Utterance("assistant", "Let me check that." if is_open else "Yes, it is.", 2, clock()),
        ]
        keeper.finalize(_transcript("u1", f"s{number}", said, clock()))
    context = UserMemoryStore(table, user_id="u1", clock=clock).build_agent_context()
    return {
        "context_tokens_after_500_sessions": float(TiktokenCounter().text(context)),
        "current_preferences_missing_from_it": float(
            sum(f"value {number}" not in context for number in range(12))
        ),
        "open_questions_missing_from_it": float(sum(question not in context for question in asked)),
    }
