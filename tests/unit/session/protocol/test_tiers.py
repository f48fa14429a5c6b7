"""A record in each kind of store is read back: compare-and-set, readable JSON."""

import json
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from strands_manga_memory.session.protocol.durable_tier import DurableTier
from strands_manga_memory.session.protocol.hot_tier import HotTier
from strands_manga_memory.session.protocol.record import (
    Record,
    Replacement,
    Slot,
    StateValue,
    Turn,
    TurnKey,
    Version,
    head_record,
)
from strands_manga_memory.session.tiers import ConversationKey, Tiers
from strands_manga_memory.stores import (
    AesGcmCipher,
    Codec,
    HotStore,
    SQLiteTable,
    Table,
    open_hot_store,
)
from strands_manga_memory.stores.codec import dump
from tests.unit.session.support import MemoryTable, SurvivingHotStore, dynamodb_table

FIRST, SECOND = TurnKey(1, "aa"), TurnKey(3, "bb")
CIPHER = AesGcmCipher({"k1": bytes(range(32))}, current="k1")


@pytest.fixture(params=["valkey", "memory"])
def store(request: pytest.FixtureRequest) -> Iterator[HotStore]:
    """A hot store."""
    if request.param == "memory":
        yield SurvivingHotStore()
        return
    store = open_hot_store(request.getfixturevalue("valkey_server").url)
    yield store
    store.close()


@pytest.fixture(params=["dynamodb", "sqlite"])
def table(request: pytest.FixtureRequest) -> Iterator[Table]:
    """A table."""
    if request.param == "dynamodb":
        yield dynamodb_table(request.getfixturevalue("dynamodb_server"))
        return
    table = SQLiteTable(Path(request.getfixturevalue("tmp_path")) / "sessions.sqlite3")
    table.create_if_missing()
    yield table
    table.close()


def message(role: str, text: Any) -> bytes:
    """Return a dumped message."""
    return dump({"role": role, "content": [{"text": text}]})


def make_record(answer: str = "Berserk, 巻 42") -> Record:
    """Return a record with every kind of content."""
    turns = {
        FIRST: Turn((message("user", "hello"), message("assistant", "hi")), (1.5, 2.0),
            about={"intent": "greeting"}),
        SECOND: Turn((message("user", "which volume?"), message("assistant", answer)), (3.0, 4.0),
            {0: 1}, is_open=True),
    }  # fmt: skip
    edited = Slot(FIRST, 1, message("assistant", "[shortened]"))
    return Record(
        version=Version(4, "cc", 1),
        incarnation=2,
        deleted_below=1,
        window=(
            Slot(None, 0, message("user", "[summary]")),
            Slot(FIRST, 0),
            edited,
            Slot(SECOND, 0),
            Slot(SECOND, 1),
        ),
        manager_state={"summary": 3},
        seen={FIRST: 2, SECOND: 2, TurnKey(2, "evicted"): 4},
        states={
            "agent": StateValue(Version(3, "dd"), {"cart": [1, 2]}),
            "odd": StateValue(Version(3, "dd"), b"\x00bytes"),
        },
        redactions={SECOND: {0: Replacement(1, message("user", "which volume?"))}},
        turns=turns,
        unlogged={SECOND},
        last_used=12.5,
        created=1.0,
        turn_count=3,
        message_count=8,
    )


def durable(table: Table, unique: str, **options: Any) -> DurableTier:
    """Return a durable tier as a new process makes it."""
    return DurableTier(
        ConversationKey(f"s-{unique}", "A:a"), Tiers.of(None, table, clock=time.time, **options), {}
    )


def hot(store: HotStore, session: str, *, keeps_log: bool = False, **options: Any) -> HotTier:
    """Return a hot tier as a new process makes it."""
    tiers = Tiers.of(
        SurvivingHotStore(), None if keeps_log else MemoryTable(), clock=time.time, **options
    )
    return HotTier(ConversationKey(session, "A:a"), replace(tiers, hot=store))


def test_evicted_turns_are_readable_in_a_hash_log(store: HotStore, unique: str) -> None:
    """A hot tier alone keeps evicted turns, which a restore does not decode."""
    tier = hot(store, f"s-{unique}", keeps_log=True)
    tier.read()
    record = replace(make_record(), unlogged=frozenset())
    assert tier.write(record)
    evicted = replace(
        record,
        version=Version(7, "e"),
        window=(Slot(SECOND, 0), Slot(SECOND, 1)),
        turns={SECOND: record.turns[SECOND]},
    )
    assert tier.write(evicted)
    reader = hot(store, f"s-{unique}", keeps_log=True)
    assert reader.read() == evicted
    assert reader.get_turns(2, {FIRST}) == {FIRST: record.turns[FIRST]}


def test_another_turn_writes_little_beside_itself(unique: str) -> None:
    store = SurvivingHotStore()
    tier = hot(store, f"s-{unique}")
    tier.read()
    turn = Turn((message("user", "a question"), message("assistant", "an answer")), (1.5, 2.0))

    def grown(count: int) -> Record:
        turns = {TurnKey(number, "w"): turn for number in range(1, count + 1)}
        window = tuple(
            Slot(key, at) for key in turns for at in range(1 if 10 < key.time <= 30 else 2)
        )
        seen = dict.fromkeys(turns, 2)
        evicted = {TurnKey(1, "a"): 2, TurnKey(20, "a"): 2}  # between the others
        return replace(
            make_record(),
            version=Version(count, "w"),
            window=window,
            turns=turns,
            seen={**evicted, **seen},
        )

    assert tier.write(grown(40))
    before = store._conversations[f"s-{unique}/A:a"].fields
    assert tier.write(grown(41))
    after = store._conversations[f"s-{unique}/A:a"].fields
    assert {n for n, d in after.items() if before.get(n) != d} == {"head", f"turn.{41:013d}.w"}
    window = json.loads(after["head"])["window"]
    assert window == "+1.w:0 +10:0-" + " +1:0" * 20 + " +10:1-"
    assert hot(store, f"s-{unique}").read() == grown(41)


@pytest.mark.parametrize("seed", range(20))
def test_any_history_is_read_as_it_was_written(unique: str, seed: int) -> None:
    """Histories with runs, gaps, edited messages, summaries and turns out of order."""
    numbers = random.Random(seed)
    seen = {TurnKey(numbers.randrange(99), numbers.choice("ab")): numbers.randint(1, 4)
            for _ in range(12)}  # fmt: skip
    known = [Slot(key, at) for key in sorted(seen) for at in range(seen[key] + (seed % 4 == 1))]
    slots = [slot for slot in known if numbers.random() < 0.8]
    for _ in range(3):
        at = numbers.randrange(len(slots))
        slots[at] = slots[at]._replace(body=message("user", f"edited {at}"))
        slots.insert(numbers.randrange(9), Slot(None, 0, message("user", "summary")))
        slots.append(slots.pop(numbers.randrange(len(slots))))
    record = replace(
        make_record(), window=tuple(slots), seen=seen, turns={}, redactions={}, unlogged=set()
    )
    tier = hot(store := SurvivingHotStore(), f"s-{unique}")
    tier.read()
    assert tier.write(record)
    assert hot(store, f"s-{unique}").read() == record


def test_the_head_of_a_long_conversation_stays_small(unique: str, table: Table) -> None:
    """The keys of a process's 500 turns, which the head lists, take few bytes."""
    turn = Turn((message("user", "a question"), message("assistant", "an answer")), (1.5, 2.0))

    def size(count: int) -> int:
        turns = {TurnKey(2 * number + number // 5, "5c8e01f2"): turn for number in range(count)}
        window = tuple(Slot(key, at) for key in turns for at in range(2))
        record = replace(make_record(), window=window, turns=turns, seen=dict.fromkeys(turns, 2))
        tier = durable(table, f"{unique}-{count}")
        tier.read()
        head = head_record(record, set(), Record())
        assert tier.write(head)
        assert durable(table, f"{unique}-{count}").read() == head
        [item] = (row for row in table.query(f"s-{unique}-{count}") if "data" in row)
        return len(item["data"])

    assert size(500) - size(50) < 100


@pytest.mark.parametrize(
    "odd",
    ["\ud800", 10**30, {"name": ["\ud800", b"\x00"]}],
    ids=["half a character", "large", "bytes"],
)
def test_values_that_the_fast_encoder_refuses_are_stored(
    store: HotStore, table: Table, unique: str, odd: Any
) -> None:
    record = make_record("\ud83d is half a character")
    states = {"agent.\udc00": StateValue(Version(3, "dd"), [odd]), **record.states}
    record = replace(record, states=states, manager_state={"said": "\ud800"})
    writer = hot(store, f"s-{unique}")
    writer.read()
    assert writer.write(record)
    assert hot(store, f"s-{unique}").read() == record
    tier = durable(table, unique)
    tier.read()
    assert tier.write(head_record(record, record.unlogged, Record()))
    found = durable(table, unique).read()
    assert (found.states, found.manager_state, found.turns) == (
        record.states,
        record.manager_state,
        {SECOND: record.turns[SECOND]},
    )


def test_fields_of_the_hash_are_json_with_role_and_content(unique: str) -> None:
    """An operator reads a turn with redis-cli; an encrypted one says nothing."""
    store = SurvivingHotStore()
    tier = hot(store, f"s-{unique}")
    tier.read()
    tier.write(make_record())
    fields = store._conversations[f"s-{unique}/A:a"].fields
    found = json.loads(fields[f"turn.{FIRST}"])
    assert found["messages"][0] == {"role": "user", "content": [{"text": "hello"}]}
    assert found["about"] == {"intent": "greeting"}
    assert all(isinstance(json.loads(data), dict) for data in fields.values())
    sealed = hot(store, f"t-{unique}", codec=Codec(cipher=CIPHER))
    sealed.read()
    sealed.write(make_record())
    stored = b"".join(store._conversations[f"t-{unique}/A:a"].fields.values())
    assert b"hello" not in stored
    assert b"cart" not in stored


def test_turn_in_the_table_is_readable_json_with_its_measures(table: Table, unique: str) -> None:
    """Another service reads role, content, intent, tools, latency and cache hits of a turn."""
    call = {"toolUse": {"toolUseId": "u1", "name": "find", "input": {"title": "Berserk"}}}
    metadata = {"usage": {"cacheReadInputTokens": 900}, "metrics": {"latencyMs": 420}}
    answer = dump({"role": "assistant", "content": [call], "metadata": metadata})
    turn = Turn((message("user", "find Berserk"), answer), (1.0, 2.0), about={"intent": "search"})
    durable(table, unique).put_turn(1, FIRST, turn)
    (item,) = table.query(f"s-{unique}")
    messages = json.loads(item["turn"])["messages"]
    assert [one["role"] for one in messages] == ["user", "assistant"]
    assert messages[1]["content"] == [call]
    assert (item["intent"], item["tool_calls"], item["latency_ms"], item["cache_hit"]) == (
        "search",
        ["find"],
        420,
        True,
    )
