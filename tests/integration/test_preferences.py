"""Preferences of a session: shared cache, outbox, sinks, and the model's view."""

import itertools
import json
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from strands_manga_memory import MangaMemory, UserMemoryStore
from strands_manga_memory.exceptions import CorruptRecordError, StoreError, StoreUnavailableError
from strands_manga_memory.memory import (
    CallablePreferenceSink,
    KinesisPreferenceSink,
    Owner,
    Preference,
    PreferenceOutbox,
    PreferenceSignal,
    ProfileCache,
    TablePreferenceSink,
)
from strands_manga_memory.stores import (
    USER_MEMORY,
    InMemoryHotStore,
    RedisHotStore,
    SQLiteTable,
    Table,
)
from strands_manga_memory.testing import FakeClock, ScriptedModel
from tests import servers
from tests.faults.forks import result_of_child
from tests.faulty_stores import FaultyHotStore, FaultyTable
from tests.servers import wait_until
from tests.support import (
    apply_preferences,
    background_writer,
    emit,
    finish_writes,
    store_signal,
)

pytestmark = pytest.mark.xdist_group("kinesis")  # its servers and processes are started once

OWNER = Owner("u1")


@pytest.fixture
def table(tables: tuple[Table, Table]) -> Table:
    return tables[1]


@pytest.fixture(params=["memory", "valkey"])
def hot(request: pytest.FixtureRequest, unique: str) -> Iterator[Any]:
    if request.param == "memory":
        yield InMemoryHotStore()
        return
    server: servers.Valkey = request.getfixturevalue("valkey_server")
    with server.client() as client:
        yield RedisHotStore(client, prefix=unique, deadline=2)


class Sink:
    """Takes signals, or refuses them."""

    def __init__(self) -> None:
        self.taken: list[PreferenceSignal] = []
        self.refusing = False

    def send(self, signal: PreferenceSignal) -> None:
        if self.refusing:
            raise StoreUnavailableError("throttled")
        self.taken.append(signal)


# The spool


def store(
    outbox: PreferenceOutbox, preference: Preference, *, at: float, owner: Owner = OWNER
) -> None:
    """Store a signal as a process that ends before it sends the signal."""
    store_signal(outbox, owner, preference, at)


@pytest.mark.parametrize("damage", [{"statements": 7}, {"removals": ["x"]}, {"sealed": b"x"}])
def test_a_damaged_log_is_not_taken_for_empty(table: Table, damage: dict[str, Any]) -> None:
    store = UserMemoryStore(table, user_id="u1")
    apply_preferences(
        store.preference_log, Preference("genre", "horror"), at=time.time(), message_id="m1"
    )
    key = (OWNER.preference_log_partition, "~changes")
    damaged = {**(table.get(*key) or {}), **damage}
    table.put(damaged)
    change = partial(
        apply_preferences,
        store.preference_log,
        Preference("format", "paperbacks"),
        at=time.time(),
        message_id="m2",
    )
    for work in (
        change,
        lambda: store.prefer("genre", "romance"),
        lambda: store.retract("m1"),
        store.preference_log.read,
    ):
        with pytest.raises(CorruptRecordError):
            work()
    assert [record.content for record in store.recall(type="preference")] == ["genre: horror"]
    assert table.get(*key) == damaged
    # The repair of guide/troubleshooting.md.
    store.partition.table.delete(store.owner.preference_log_partition, "~changes")
    store.prefer("genre", "romance")
    change()
    assert sorted(record.content for record in store.recall(type="preference")) == [
        "format: paperbacks",
        "genre: romance",
    ]


def test_a_damaged_statement_is_named_on_one_line_without_its_values(table: Table) -> None:
    store = UserMemoryStore(table, user_id="u1")
    row = {"preference": {"slot": "genre", "value": "horror", "liked": "7"}, "at": 1.0}
    table.put(
        {
            "user_id": OWNER.preference_log_partition,
            "memory_id": "~changes",
            "statements": [row],
            "removals": [],
        }
    )
    with pytest.raises(
        CorruptRecordError,
        match=r"is damaged: ValidationError: statements.0.preference.liked: Input should [^\n]*$",
    ):
        store.preference_log.read()


def test_damaged_values_stay_as_they_are_and_stop_no_change(table: Table) -> None:
    store = UserMemoryStore(table, user_id="u1")
    for key, value, stored in (("genre", "horror", {"value": "horror"}), ("author", "Ito", ["x"])):
        memory_id = store.prefer(key, value).memory_id
        item = table.get(OWNER.partition, memory_id) or {}
        table.put({**item, "metadata": {**item["metadata"], "set": stored}})
    stated = [Preference("genre", "romance", adds=True), Preference("format", "paperbacks")]
    for at, preference in enumerate(stated, start=1):
        now = time.time() + at
        apply_preferences(store.preference_log, preference, at=now, message_id=f"m{at}")
    contents = sorted(record.content for record in store.recall(type="preference"))
    assert contents == ["author: Ito", "format: paperbacks", "genre: horror"]
    with pytest.raises(CorruptRecordError, match="is damaged, so it is not replaced; call forget"):
        store.prefer("author", "Urasawa")
    assert store.forget(memory_id)
    assert store.get(memory_id) is None
    assert store.prefer("author", "Urasawa").content == "author: Urasawa"


def test_a_worker_that_dies_after_sending_sends_again_with_the_same_id(table: Table) -> None:
    taken: list[PreferenceSignal] = []

    def die_after_sending(signal: PreferenceSignal) -> None:
        taken.append(signal)
        if len(taken) == 1:
            raise SystemError("killed")

    outbox = PreferenceOutbox(table, CallablePreferenceSink(die_after_sending))
    store(outbox, Preference("genre", "horror"), at=1.0)
    with pytest.raises(SystemError):
        outbox.drain(OWNER)
    assert outbox.drain(OWNER) == 1
    assert taken[0] == taken[1]


def test_workers_whose_clocks_differ_agree_on_the_order(table: Table) -> None:
    sink = Sink()
    ahead, behind = (
        PreferenceOutbox(table, sink, clock=FakeClock(now)) for now in (9_000.0, 1_000.0)
    )
    store(ahead, Preference("genre", "first"), at=9_000.0)
    store(behind, Preference("genre", "second"), at=1_000.0)
    ahead.drain(OWNER)
    assert [signal.value for signal in sink.taken] == ["first", "second"]


def test_one_worker_at_a_time_sends_a_users_signals(table: Table) -> None:
    inside, go_on, sent = threading.Event(), threading.Event(), []

    def slow(signal: PreferenceSignal) -> None:
        inside.set()
        assert go_on.wait(20)
        sent.append(signal.value)

    outbox = PreferenceOutbox(table, CallablePreferenceSink(slow))
    store(outbox, Preference("genre", "horror"), at=1.0)
    thread = threading.Thread(target=outbox.drain, args=(OWNER,))
    thread.start()
    assert inside.wait(20)
    with pytest.raises(StoreUnavailableError, match="another worker"):
        PreferenceOutbox(table, Sink()).drain(OWNER)
    go_on.set()
    thread.join()
    assert sent == ["horror"]


def test_a_table_as_sink_keeps_the_latest_whatever_comes_twice(table: Table) -> None:
    sink = TablePreferenceSink(table)

    def signal(number: int, value: str) -> PreferenceSignal:
        return PreferenceSignal(
            id=str(number), number=number, user_id="u1", key="genre", value=value, at=float(number)
        )

    for number, value in ((1, "a"), (2, "b"), (1, "a"), (3, "c"), (2, "b")):
        sink.send(signal(number, value))
    [known] = UserMemoryStore(table, user_id="u1").recall()
    assert known.content == "genre: c"


def test_personal_data_never_reaches_a_sink(table: Table) -> None:
    sink = Sink()
    sink.refusing = True
    outbox = PreferenceOutbox(table, sink)
    store = UserMemoryStore(table, user_id="u1", hot=InMemoryHotStore(), outbox=outbox)
    ProfileCache(store).add_statements(
        [Preference("contact", "call 090-1234-5678")], at=time.time()
    )
    servers.wait_until(lambda: list(outbox.waiting(OWNER)) != [], "the signal to be stored")
    assert "1234" not in repr(list(table.query("u1")))
    sink.refusing = False
    servers.wait_until(lambda: sink.taken, "the signal to be sent")
    assert sink.taken[0].value == "call [phone]"


def test_a_signal_that_is_stored_during_a_retry_is_sent(table: Table) -> None:
    inside, go_on, taken = threading.Event(), threading.Event(), list[str]()
    failures = iter([ConnectionError()])

    def sink(signal: PreferenceSignal) -> None:
        for error in failures:
            raise error
        inside.set()
        assert go_on.wait(20)
        taken.append(signal.value)

    outbox = PreferenceOutbox(table, CallablePreferenceSink(sink))
    emit(outbox, OWNER, Preference("genre", "horror"))
    assert inside.wait(20)  # the retry has read the log
    emit(outbox, OWNER, Preference("genre", "romance"))
    servers.wait_until(lambda: len(outbox.waiting(OWNER)) == 2, "the second signal to be stored")
    background_writer(None, table).submit(("preferences", OWNER), lambda: None).result(20)
    go_on.set()
    servers.wait_until(lambda: taken == ["horror", "romance"], "both signals")


def test_signals_that_take_longer_than_a_lease_are_sent_once_and_in_order(table: Table) -> None:
    clock, taken = FakeClock(), list[int]()

    def slow(signal: PreferenceSignal) -> None:
        taken.append(signal.number)
        clock.advance(7)
        if len(taken) == 6:
            with pytest.raises(StoreUnavailableError, match="another worker"):
                PreferenceOutbox(table, Sink(), clock=clock).drain(OWNER)

    outbox = PreferenceOutbox(table, CallablePreferenceSink(slow), clock=clock)
    for number in range(10):
        store(outbox, Preference("genre", f"value {number}"), at=1.0)
    assert outbox.drain(OWNER) == 10
    assert taken == list(range(taken[0], taken[0] + 10))


def test_a_user_whose_last_signal_was_deleted_is_no_longer_listed(table: Table) -> None:
    outbox = PreferenceOutbox(table, Sink())
    store(outbox, Preference("genre", "horror"), at=time.time())
    [bucket] = (key for key in map("spool/{:02d}".format, range(16)) if list(table.query(key)))
    user = UserMemoryStore(table, user_id="u1")
    assert user.forget(user.recall()[0].memory_id)
    assert not outbox.waiting(OWNER)
    assert not list(table.query(bucket))


def test_the_preferences_of_other_agents_are_seen_with_a_damaged_log(memory: MangaMemory) -> None:
    user = memory.user("u1")
    user.prefer("author", "Ito")
    user.partition.table.put(
        {"user_id": OWNER.preference_log_partition, "memory_id": "~changes", "statements": 7}
    )
    model = ScriptedModel()
    first, second = (
        memory.agent(model, user_id="u1", session_id=name, session=False) for name in ("s1", "s2")
    )
    second("Hello!")
    first("I only read paperbacks.")

    def is_seen() -> bool:
        second("What do I read?")
        return "paperbacks" in str(model.requests[-1].messages)

    wait_until(is_seen, "the shared preference")  # patterns are compiled at first use
    user.partition.table.delete(OWNER.preference_log_partition, "~changes")


# Kinesis


@pytest.fixture(scope="module")
def kinesis_server() -> Iterator[servers.DynamoDB]:
    server = servers.DynamoDB()
    server._env["SERVICES"] = "kinesis"
    server.start()
    yield server
    server.kill()


def kinesis_client(endpoint: str) -> Any:
    config = Config(retries={"mode": "standard", "total_max_attempts": 1})
    return boto3.client("kinesis", region_name="us-east-1", endpoint_url=endpoint, config=config)


@pytest.fixture
def kinesis(kinesis_server: servers.DynamoDB) -> Any:
    return kinesis_client(kinesis_server.endpoint)


@pytest.fixture
def stream(kinesis: Any, unique: str) -> str:
    kinesis.create_stream(StreamName=unique, ShardCount=1)
    servers.wait_until(
        lambda: (
            kinesis.describe_stream(StreamName=unique)["StreamDescription"]["StreamStatus"]
            == "ACTIVE"
        ),
        "the stream",
    )
    return unique


def records_of(kinesis: Any, stream: str) -> list[dict[str, Any]]:
    shard = kinesis.describe_stream(StreamName=stream)["StreamDescription"]["Shards"][0]["ShardId"]
    iterator = kinesis.get_shard_iterator(
        StreamName=stream, ShardId=shard, ShardIteratorType="TRIM_HORIZON"
    )["ShardIterator"]
    return list(kinesis.get_records(ShardIterator=iterator)["Records"])


def test_kinesis_gets_json_in_order_by_user(kinesis: Any, stream: str, table: Table) -> None:
    outbox = PreferenceOutbox(table, KinesisPreferenceSink(kinesis, stream_name=stream))
    owner = Owner("u1", "tenant")
    for number in range(5):
        store(outbox, Preference("genre", f"ホラー {number}"), at=1.0, owner=owner)
    assert outbox.drain(owner) == 5
    records = records_of(kinesis, stream)
    bodies = [json.loads(record["Data"]) for record in records]
    assert [body["value"] for body in bodies] == [f"ホラー {number}" for number in range(5)]
    assert {record["PartitionKey"] for record in records} == {"tenant:u1"}
    assert bodies[0]["number"] == 1_000, "milliseconds of the first message"


def test_a_stream_that_throttles_gets_everything_in_order_later(
    kinesis_server: servers.DynamoDB, kinesis: Any, stream: str, table: Table
) -> None:
    with servers.FaultyProxy(servers.HOST, kinesis_server.port) as proxy:
        client = kinesis_client(f"http://{proxy.host}:{proxy.port}")
        outbox = PreferenceOutbox(table, KinesisPreferenceSink(client, stream_name=stream))
        proxy.refuse("ProvisionedThroughputExceededException")
        for number in range(20):
            emit(outbox, OWNER, Preference("genre", f"value {number}"))
        servers.wait_until(
            lambda: proxy.refused >= 3 and len(list(outbox.waiting(OWNER))) == 20,
            "the stream to refuse",
        )
        assert records_of(kinesis, stream) == []
        proxy.passing()
        servers.wait_until(lambda: list(outbox.waiting(OWNER)) == [], "the stream")
    values = [json.loads(record["Data"])["value"] for record in records_of(kinesis, stream)]
    assert values == [f"value {number}" for number in range(20)]


def test_many_signals_of_one_moment_do_not_put_one_another_off(table: Table) -> None:
    """Each of them fails; all are tried again after the first one's wait."""
    taken: list[str] = []
    tries: list[float] = []
    is_down = threading.Event()
    is_down.set()

    def sink(signal: PreferenceSignal) -> None:
        tries.append(time.monotonic())
        if is_down.is_set():
            raise ConnectionError
        taken.append(signal.value)

    outbox = PreferenceOutbox(table, CallablePreferenceSink(sink))
    for number in range(20):
        emit(outbox, OWNER, Preference("genre", f"value {number}"))
    servers.wait_until(lambda: len(list(outbox.waiting(OWNER))) == 20, "all to wait")
    background_writer(None, table).submit(("preferences", OWNER), lambda: None).result(20)
    assert len(tries) <= 6  # it is tried after .2 s, .4 s and so on, however many wait
    is_down.clear()
    servers.wait_until(lambda: len(taken) == 20, "what waits to be taken")
    assert taken == [f"value {number}" for number in range(20)]


def test_signals_of_an_outage_of_the_table_are_stored_in_order(table: Table) -> None:
    taken: list[str] = []
    faulty = FaultyTable(table)
    outbox = PreferenceOutbox(faulty, CallablePreferenceSink(lambda s: taken.append(s.value)))
    faulty.down = True
    for number in range(3):
        emit(outbox, OWNER, Preference("genre", f"value {number}"))
    servers.wait_until(lambda: faulty.calls.count("batch_get") >= 3, "some tries")
    for number in range(3, 6):
        emit(outbox, OWNER, Preference("genre", f"value {number}"))
    faulty.down = False
    servers.wait_until(lambda: len(taken) == 6, "what was heard to be stored and sent")
    assert taken == [f"value {number}" for number in range(6)]


def test_retry_of_one_spool_does_not_replace_that_of_another(table: Table) -> None:
    """Two spools of one user on one table both store their signals after an outage."""
    faulty, taken = FaultyTable(table), list[str]()
    spools = [
        PreferenceOutbox(faulty, CallablePreferenceSink(lambda signal: taken.append(signal.value)))
        for _ in range(2)
    ]
    faulty.down = True
    for number, outbox in enumerate(spools):
        emit(outbox, OWNER, Preference("genre", f"g{number}"))
        background_writer(None, faulty).submit(("preferences", OWNER), lambda: None).result()
    faulty.down = False
    servers.wait_until(lambda: sorted(taken) == ["g0", "g1"], "sending both signals")


def test_what_was_heard_before_a_fork_is_the_parents_to_store(tmp_path: Path) -> None:
    taken: list[str] = []
    table = SQLiteTable(tmp_path / "memories.sqlite3", USER_MEMORY)
    table.create_if_missing()
    faulty = FaultyTable(table)
    outbox = PreferenceOutbox(faulty, CallablePreferenceSink(lambda s: taken.append(s.value)))
    faulty.down = True
    emit(outbox, OWNER, Preference("genre", "horror"))
    servers.wait_until(lambda: faulty.calls.count("batch_get") >= 1, "a try")

    def emit_in_child() -> list[str]:
        faulty.down = False
        emit(outbox, OWNER, Preference("genre", "romance"))
        servers.wait_until(lambda: taken, "the child's own signal")
        finish_writes(None, faulty)  # who dies while it sends keeps its lease
        return taken

    assert result_of_child(emit_in_child) == ["romance"]
    faulty.down = False
    servers.wait_until(lambda: taken, "the parent's signal")
    assert taken == ["horror"]


def test_a_signal_that_cannot_be_stored_at_all_keeps_no_other_one(table: Table) -> None:
    taken: list[str] = []
    outbox = PreferenceOutbox(table, CallablePreferenceSink(lambda s: taken.append(s.value)))
    emit(outbox, OWNER, Preference("genre", "horror"), at="never")
    emit(outbox, OWNER, Preference("genre", "romance"))
    servers.wait_until(lambda: taken, "the next one")
    assert taken == ["romance"]


def test_a_stream_that_is_missing_is_an_error_and_signals_wait(kinesis: Any, table: Table) -> None:
    outbox = PreferenceOutbox(table, KinesisPreferenceSink(kinesis, stream_name="nothing"))
    store(outbox, Preference("genre", "horror"), at=1.0)
    with pytest.raises(StoreError, match="ResourceNotFoundException"):
        outbox.drain(OWNER)
    assert len(list(outbox.waiting(OWNER))) == 1


# The cache


@pytest.fixture
def user_table(tmp_path: Path) -> Iterator[SQLiteTable]:
    table = SQLiteTable(tmp_path / "user.sqlite3", USER_MEMORY)
    table.create_if_missing()
    UserMemoryStore(table, user_id="u1").prefer("genre", "horror")
    yield table
    finish_writes(None, table)
    table.close()


def device(table: Table, hot: Any) -> ProfileCache:
    """Start a session on another device."""
    found = ProfileCache(UserMemoryStore(table, user_id="u1", hot=hot))
    found.load()
    return found


def overrides(table: Table, hot: Any) -> dict[str, str]:
    """Return the recently stated preferences that the hot tier has."""
    profile: Any = UserMemoryStore(table, user_id="u1", hot=hot).hot
    return profile.load().overrides


def stated(device: ProfileCache) -> dict[str, str]:
    """Return the recently stated preferences of a device."""
    return {slot: state.value for slot, state in device.stated.items()}


def say(device: ProfileCache, slot: str, value: str) -> None:
    device.add_statements([Preference(slot, value)], at=time.time())


def test_devices_that_write_at_once_lose_nothing(hot: Any, user_table: Table) -> None:
    devices = [device(user_table, hot) for _ in range(8)]
    threads = [
        threading.Thread(target=say, args=(device, f"key {n}", "x"))
        for n, device in enumerate(devices)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    devices[0].refresh()
    assert set(stated(devices[0])) == {f"key {number}" for number in range(8)}


def test_while_the_hot_tier_is_down_a_device_keeps_statements_for_later(user_table: Table) -> None:
    store = InMemoryHotStore()
    faulty: Any = FaultyHotStore(store)
    faulty.down = True
    here = device(user_table, faulty)
    assert here.context.preferences.endswith("- genre: horror")
    say(here, "genre", "romance")
    assert stated(here) == {"genre": "romance"}
    faulty.down = False

    def refreshed() -> bool:
        here.refresh()
        return overrides(user_table, store) == {"genre": "romance"}

    servers.wait_until(refreshed, "write of the preference")


def test_retraction_reaches_other_processes_before_the_table(tmp_path: Path) -> None:
    """Live agents stop showing the statement while the table is down."""
    table = SQLiteTable(tmp_path / "m.db", USER_MEMORY)
    table.create_if_missing()
    faulty: Any = FaultyTable(table)
    hot = InMemoryHotStore()
    here, there = device(table, hot), device(table, hot)
    here.add_statements([Preference("genre", "romance")], message_id="m1", at=1.0)
    there.refresh()
    assert stated(there) == {"genre": "romance"}
    faulty.down = True
    with pytest.raises(StoreUnavailableError):
        UserMemoryStore(faulty, user_id="u1", hot=hot).retract("m1")
    there.refresh()
    assert stated(there) == {}
    faulty.down = False
    finish_writes(None, faulty)
    log = UserMemoryStore(table, user_id="u1").preference_log
    apply_preferences(log, Preference("genre", "romance"), at=1.0, message_id="m1")
    assert UserMemoryStore(table, user_id="u1").recall() == []


def test_close_reports_unsaved_preferences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = MangaMemory.open("memory://", f"sqlite:///{tmp_path}/m.db", memories=True)
    table: Any = FaultyTable(plain.memories)
    memory = MangaMemory(hot=plain.hot, durable=plain.durable, memories=table)
    monkeypatch.setattr("strands_manga_memory.assembly.process_stores._DRAIN_SECONDS", 0.5)
    monkeypatch.setattr(table, "close", lambda: None)
    table.down = True
    memory.agent(ScriptedModel(), user_id="u1", session_id="s")("My favorite genre is horror.")
    with pytest.raises(StoreUnavailableError, match="has not accepted all preferences"):
        memory.close()


def test_signals_keep_their_numbers_when_an_earlier_one_is_deleted(table: Table) -> None:
    """A receiver ignores numbers that are not above those of signals that it has."""
    may_send, sent = threading.Event(), list[PreferenceSignal]()

    def send(signal: PreferenceSignal) -> None:
        if not may_send.is_set():
            raise ConnectionError("down")
        sent.append(signal)

    outbox = PreferenceOutbox(table, CallablePreferenceSink(send))
    facts = {"genre": "horror", "format": "print", "language": "ja"}
    emit(outbox, OWNER, *itertools.starmap(Preference, facts.items()), at=1.0)
    wait_until(lambda: len(list(outbox.waiting(OWNER))) == 3, "the signals to wait")
    left = [each.number for each in outbox.waiting(OWNER)][1:]
    assert UserMemoryStore(table, user_id="u1").forget("preference#genre")
    assert [each.number for each in outbox.waiting(OWNER)] == left
    may_send.set()
    wait_until(lambda: [each.number for each in sent] == left, "the other signals to be sent")


def test_signals_after_an_erasure_have_higher_numbers(tmp_path: Path) -> None:
    """A receiver drops lower numbers of a subject."""
    sent = list[PreferenceSignal]()
    url = f"sqlite:///{tmp_path}/m.db"
    with MangaMemory.open(
        "memory://", url, memories=True, sink=CallablePreferenceSink(sent.append)
    ) as memory:
        for session_id in ("before", "after"):
            agent = memory.agent(ScriptedModel(), user_id="u1", session_id=session_id)
            for genre in ("horror", "romance"):
                agent(f"My favorite genre is {genre}.")
            wait_until(
                lambda session=session_id: (
                    len(sent) % 2 == 0 and sent and sent[-1].session_id == session
                ),
                "the signals",
            )
            assert memory.forget_user("u1").complete
    numbers = [each.number for each in sent]
    assert len(set(numbers)) == 4
    assert numbers == sorted(numbers)


class BufferSink(list[PreferenceSignal]):
    """Sink that is false while it is empty."""

    send = list.append


def test_sink_that_is_an_empty_collection_gets_signals(tmp_path: Path) -> None:
    sink = BufferSink()
    url = f"sqlite:///{tmp_path}/m.db"
    with MangaMemory.open("memory://", url, memories=True, sink=sink) as memory:
        agent = memory.agent(ScriptedModel(), user_id="u1", session_id="s")
        agent("My favorite genre is horror.")
        wait_until(lambda: len(sink) == 1, "the signal")


def test_close_accepts_a_sink_that_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signals that the table has are not lost, so a slow sink is no error of the table."""
    is_sending, may_end = threading.Event(), threading.Event()

    def send(signal: PreferenceSignal) -> None:
        is_sending.set()
        may_end.wait(20)

    sink = CallablePreferenceSink(send)
    memory = MangaMemory.open("memory://", f"sqlite:///{tmp_path}/m.db", memories=True, sink=sink)
    monkeypatch.setattr("strands_manga_memory.assembly.process_stores._DRAIN_SECONDS", 0.2)
    memory.agent(ScriptedModel(), user_id="u1", session_id="s")("My favorite genre is horror.")
    assert is_sending.wait(20)
    memory.close()
    may_end.set()
    finish_writes(None, memory._stores["memories"])


def test_background_errors_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = SQLiteTable(tmp_path / "m.db", USER_MEMORY)
    table.create_if_missing()
    faulty: Any = FaultyTable(table)
    faulty.fail_next(error=RuntimeError("broken"))
    log = UserMemoryStore(faulty, user_id="u1").preference_log
    apply_preferences(log, Preference("genre", "romance"), at=1.0, message_id="m1", later=True)
    finish_writes(None, faulty)
    assert "error=<RuntimeError> | failed to store data in the background" in caplog.messages


@pytest.mark.parametrize("is_set", [False, True])
def test_removal_under_another_hot_tier_is_seen_after_a_statement(
    tmp_path: Path, *, is_set: bool
) -> None:
    """The statement must not hide an unread removal in the table."""
    table = SQLiteTable(tmp_path / "m.db", USER_MEMORY)
    table.create_if_missing()
    hot = InMemoryHotStore()
    here = UserMemoryStore(table, user_id="u1", hot=hot)
    there = UserMemoryStore(table, user_id="u1", hot=InMemoryHotStore())
    medication = here.prefer("medication", "insulin")
    live = ProfileCache(here, reads_revision=True)
    live.load()
    assert "insulin" in repr((live.context, live.stated))
    there.forget(medication.memory_id)
    if is_set:
        here.prefer("genre", "horror")
    else:
        say(live, "genre", "horror")
    finish_writes(None, table)
    live.refresh()
    assert "insulin" not in repr((live.context, live.stated))
    assert "horror" in repr((live.context, live.stated))


def test_a_late_write_does_not_bring_back_what_was_erased(hot: Any, user_table: Table) -> None:
    here = device(user_table, hot)
    say(here, "genre", "romance")
    hot.put_tombstone("profile/u1/cache", ttl=1000)
    assert overrides(user_table, hot) == {}
    say(here, "size", "large")
    assert overrides(user_table, hot) == {"size": "large"}


# In an agent


def test_memories_beside_the_durable_tier_and_none_without(tmp_path: Path) -> None:
    memory = MangaMemory.open("memory://", f"sqlite:///{tmp_path}/m.db")
    assert set(memory.agent_kwargs(user_id="u", session_id="s")) == {
        "conversation_manager",
        "session_manager",
    }
    with pytest.raises(ValueError, match="memories is None"):
        memory.user("u")
    memory.close()
    with pytest.raises(ValueError, match="memories must be a URL or a table"):
        MangaMemory.open("memory://", SQLiteTable(tmp_path / "x"), memories=True)
