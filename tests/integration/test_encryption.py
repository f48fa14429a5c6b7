"""Client-side encryption on real servers: nothing stored is readable without the key."""

import base64
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import redis
from moto import mock_aws
from strands import Agent

import strands_manga_memory
from strands_manga_memory import (
    AesGcmCipher,
    Codec,
    ConversationScope,
    CorruptRecordError,
    DynamoDBTable,
    KeyMissingError,
    MangaMemory,
    RedisHotStore,
    SQLiteTable,
    Table,
    UserMemoryStore,
)
from strands_manga_memory.memory import (
    CallablePreferenceSink,
    MemoryType,
    Owner,
    Preference,
    PreferenceOutbox,
)
from strands_manga_memory.stores import KeyProvider, TenantCipher, TenantKeys
from strands_manga_memory.testing import ScriptedModel
from strands_manga_memory.user_data import forget_user
from tests import servers
from tests.support import UNREADABLE_TEXT, run, settle, store_signal, stub_tool
from tests.unit.session.support import tool_use

CANARY = "カナリアZq7Kx"
IMAGE = b"\x89PNG" + CANARY.encode() + os.urandom(40)
ACME, OTHER = os.urandom(32), os.urandom(32)

Make = Callable[..., MangaMemory]


@pytest.fixture
def make(tables: tuple[Table, Table], valkey_server: servers.Valkey, unique: str) -> Iterator[Make]:
    """Open the same stores with a new codec, like a new process."""
    opened: list[MangaMemory] = []
    with valkey_server.client() as client:

        def open_(codec: Codec | None = None, **settings: Any) -> MangaMemory:
            kept = {} if codec is None else {"codec": codec}
            hot = RedisHotStore(client, prefix=unique, deadline=5)
            opened.append(
                MangaMemory.open(
                    hot,
                    _elsewhere(tables[0]),
                    memories=_elsewhere(tables[1]),
                    hot_deadline=10.0,
                    **kept,
                    **settings,
                )
            )
            return opened[-1]

        yield open_
        for memory in opened:
            settle(memory)


def _elsewhere(table: Table) -> Table:
    if isinstance(table, SQLiteTable):
        return SQLiteTable(table.path, table.schema)
    assert isinstance(table, DynamoDBTable)
    return DynamoDBTable(table.client, table.schema, name=table.name, deadline=10)


def codec(keys: KeyProvider | None = None, **settings: Any) -> Codec:
    keys = keys or TenantKeys(
        {"acme": {"k1": ACME}, "other": {"k1": OTHER}, None: {"k0": os.urandom(32)}}
    )
    return Codec(cipher=TenantCipher(keys), **settings)


look_up = stub_tool("look_up", lambda title: f"{title} {CANARY} is in stock")


SAID = [
    [tool_use("t1", "look_up", title=CANARY)],
    f"here is {CANARY}",
    *[f"more of {CANARY} and of chapter 12"] * 60,
]


def talk(
    memory: MangaMemory, tenant: str | None = "acme", session: str = "s1", **kwargs: Any
) -> Agent:
    """Bring the canary into everything that is stored of a user but ids and keys of preferences."""
    arguments = memory.agent_kwargs(
        user_id="u1", tenant=tenant, session_id=session, task_state=True, **kwargs
    )
    agent = Agent(model=ScriptedModel(SAID), tools=[look_up], **arguments)
    agent.state.set("note", CANARY)
    image = {"image": {"format": "png", "source": {"bytes": IMAGE}}}
    agent([image, {"text": f"find {CANARY}, order {CANARY}-112. My favorite genre is {CANARY}."}])
    for number in range(24 if kwargs.get("history") == "summarize" else 2):
        agent(f"and volume {number} of {CANARY}? " + "it is about titans and walls. " * 20)
    agent._session_manager.set_metadata(None, cart=[CANARY])
    agent._session_manager.flush()
    user = memory.user("u1", tenant=tenant)
    user.remember(f"likes {CANARY}", metadata={"title": CANARY})
    user.prefer("genre", CANARY)
    user.record_feedback(f"{CANARY} was late", rating=2)
    settle(memory)
    return agent


def dumped(memory: MangaMemory, prefix: str) -> bytes:
    """Return every byte of the stores: Valkey, SQLite files, DynamoDB items."""
    found: list[bytes] = []
    hot: Any = memory.hot
    for key in hot.client.scan_iter(f"{prefix}:*"):
        kind = hot.client.type(key).decode()
        read = {
            "hash": hot.client.hgetall,
            "string": hot.client.get,
            "zset": lambda key: hot.client.zrange(key, 0, -1),
        }
        found += [key, repr(read[kind](key)).encode(), *_flat(read[kind](key))]
    for table in (memory.durable, memory.memories):
        if isinstance(table, SQLiteTable):
            found += [path.read_bytes() for path in table.path.parent.glob(f"{table.path.name}*")]
        else:
            assert isinstance(table, DynamoDBTable)
            for page in table.client.get_paginator("scan").paginate(TableName=table.name):
                found += _flat(page["Items"])
    return b"\n".join(found)


def _flat(value: Any) -> list[bytes]:
    if isinstance(value, dict):
        return [each for pair in value.items() for half in pair for each in _flat(half)]
    if isinstance(value, list | tuple | set):
        return [each for item in value for each in _flat(item)]
    return [value if isinstance(value, bytes) else str(value).encode()]


def traces(data: bytes) -> list[str]:
    """Return in which forms the canary is in ``data``."""
    plain = CANARY.encode()
    forms = {
        "utf-8": plain,
        "utf-16": CANARY.encode("utf-16-le"),
        "ascii": b"Zq7Kx",
        "json": json.dumps(CANARY)[1:-1].encode(),
    }
    # base64 of the canary behind 0, 1 or 2 other bytes, without the characters that depend on them
    for shift in range(3):
        forms[f"base64+{shift}"] = base64.b64encode(b"x" * shift + plain)[4 if shift else 0 : -4]
    return [name for name, form in forms.items() if form in data]


def messages(memory: MangaMemory, session: str = "s1", tenant: str | None = "acme") -> Any:
    scope = ConversationScope("u1", session, tenant=tenant)
    return [record["message"] for record in memory.session(scope).records()]


@pytest.mark.parametrize(
    "history", ["importance", pytest.param("summarize", marks=pytest.mark.long)]
)
def test_no_byte_of_the_stores_shows_what_was_said(make: Make, unique: str, history: str) -> None:
    memory = make(codec(TenantKeys({"acme": {"k1": ACME}})))
    talk(memory, history=history)
    data = dumped(memory, unique)
    memory.finalize(ConversationScope("u1", "s1", tenant="acme"))
    assert memory.memories is not None
    outbox = PreferenceOutbox(
        memory.memories, CallablePreferenceSink(lambda signal: None), codec=memory.codec
    )
    store_signal(outbox, Owner("u1", "acme"), Preference("format", CANARY), 1.0)
    settle(memory)
    data += dumped(memory, unique)
    assert len(data) > 10_000
    assert traces(data) == []
    ids = [str(row["memory_id"]) for row in memory.memories.query("acme:u1")]
    assert {id_.partition("#")[0] for id_ in ids} >= {
        "preference", "fact", "feedback", MemoryType.SUMMARY, "episode",
    }  # fmt: skip
    anew = make(codec(TenantKeys({"acme": {"k1": ACME}})))
    assert CANARY in repr(messages(anew))
    assert any(CANARY in record.content for record in anew.user("u1", tenant="acme").recall())


def test_the_search_finds_traces_where_nothing_is_encrypted(make: Make, unique: str) -> None:
    memory = make(Codec(compress_from=1 << 40))
    talk(memory)
    assert {"utf-8", "ascii"} <= set(traces(dumped(memory, unique)))


def fields_of(client: redis.Redis, unique: str) -> dict[tuple[bytes, bytes], bytes]:
    """Return the sealed fields of every hash, and of every value."""
    found = {}
    for key in client.scan_iter(f"{unique}:*:c:*"):
        fields: Any = client.hgetall(key)
        found.update({(key, field): v for field, v in fields.items() if v[:1] == b"\xb7"})
    return found


def test_record_is_refused_in_another_place(
    make: Make, unique: str, valkey_server: servers.Valkey
) -> None:
    """Copies over a record of another field, session, user, tenant, kind or table."""
    one = {"k": ACME}
    memory = make(codec(TenantKeys({"acme": one, "other": one, None: one})))
    for tenant, session in (("acme", "s1"), ("acme", "s2"), ("other", "s1"), (None, "s1")):
        talk(memory, tenant, session)
    settle(memory)
    cold: list[tuple[Table, Any, str]] = []
    for table, attribute, partitions in (
        (memory.durable, "data", ["acme:u1:s1", "acme:u1:s2", "other:u1:s1", ":u1:s1"]),
        (memory.memories, "sealed", ["acme:u1", "other:u1", "u1"]),
    ):
        cold += [
            (table, row, attribute)
            for each in partitions
            for row in table.query(each)
            if attribute in row
        ]
    assert len(cold) > 12
    used = codec(TenantKeys({"acme": one, "other": one, None: one}))
    places = ["/".join((row[t.schema.partition], row[t.schema.sort])) for t, row, _ in cold]
    for (_, row, attribute), own in zip(cold, places, strict=True):
        used.unseal(row[attribute], own)
        for place in {*places, *(f"{own}#head", own.upper())} - {own}:
            with pytest.raises(CorruptRecordError):
                used.unseal(row[attribute], place)
    # The same through the package itself: the victim's record is replaced by the thief's.
    heads = {
        row["session_id"]: row
        for table, row, _ in cold
        if table is memory.durable and row["sk"].endswith("#HEAD")
    }
    for thief, victim in (
        ("acme:u1:s2", "acme:u1:s1"),
        ("other:u1:s1", "acme:u1:s1"),
        (":u1:s1", "other:u1:s1"),
    ):
        memory.durable.put({**heads[victim], "data": heads[thief]["data"]})
        with valkey_server.client() as client:
            for key in client.scan_iter(f"{unique}:*:c:*"):
                client.delete(key)
        tenant, _, session = victim.split(":")
        with pytest.raises(CorruptRecordError):
            messages(make(used), session, tenant)
        memory.durable.put(heads[victim])
        assert CANARY in repr(messages(make(used), session, tenant))
    known = [
        row
        for table, row, _ in cold
        if table is memory.memories and row["memory_id"].startswith("preference#genre")
    ]
    assert len(known) == 3
    memory.memories.put({**known[0], "sealed": known[1]["sealed"]})
    assert all(
        each.memory_id != "preference#genre"
        for each in make(used).user("u1", tenant="acme").recall()
    )


def test_fields_of_the_hot_tier_are_refused_in_another_field_session_or_tenant(
    make: Make, unique: str, valkey_server: servers.Valkey
) -> None:
    one = {"k": ACME}
    used = codec(TenantKeys({"acme": one, "other": one}))
    memory = make(used)
    for tenant, session in (("acme", "s1"), ("acme", "s2"), ("other", "s1")):
        talk(memory, tenant, session)
    with valkey_server.client() as client:
        fields = fields_of(client, unique)
        own = {place: value for place, value in fields.items() if b"acme:u1:s1/" in place[0]}
        assert len({field for _, field in own}) >= 5
        refused, wanted = 0, repr(restored(make(used)))
        for (key, field), value in own.items():
            number = field[3:]
            if field.startswith(b"f:m") and number.isdigit() and int(number) > 4:
                continue
            strangers = [o for place, o in fields.items() if place[1] == field and place[0] != key]
            strangers += [other for place, other in own.items() if place[1] != field][:1]
            for stranger in strangers:
                client.hset(key, field, stranger)
                # a message costs itself, unless the other tier has it; anything else is an error
                try:
                    found = restored(make(used))
                except CorruptRecordError:
                    pass
                else:
                    assert repr(found) == wanted or (
                        number.isdigit() and UNREADABLE_TEXT in repr(found)
                    )
                refused += 1
            client.hset(key, field, value)
        assert refused >= 12
        assert CANARY in repr(restored(make(used)))


def restored(memory: MangaMemory) -> Any:
    arguments = memory.agent_kwargs(user_id="u1", tenant="acme", session_id="s1")
    return Agent(model=ScriptedModel(), **arguments).messages


def damages(value: bytes) -> Iterator[bytes]:
    """Yield the value with a bit flipped in it, here and there, and cut."""
    for at in [*range(0, min(60, len(value)), 3), *range(60, len(value), max(1, len(value) // 8))]:
        yield value[:at] + bytes([value[at] ^ (1 << at % 8)]) + value[at + 1 :]
    for length in (0, 6, 7, 8, 12, 20, len(value) // 2, len(value) - 1):
        yield value[:length]


def test_damaged_and_cut_values_are_refused_even_with_a_checksum_that_fits() -> None:
    """The checksum is no secret: whoever changes a value can change that too."""
    used, place = codec(), "acme:u1:s1/A:default#head"
    value = used.encode({"said": CANARY}, place)
    assert used.decode(value, place) == {"said": CANARY}
    for damaged in damages(value):
        with pytest.raises(CorruptRecordError) as caught:
            used.decode(damaged, place)
        assert caught.value.record == place
    for payload in damages(value[7:]):
        forged = Codec(cipher=_Given(payload)).seal(b"", place)
        with pytest.raises(CorruptRecordError):
            used.decode(forged, place)
    with pytest.raises(CorruptRecordError, match="not encrypted"):
        used.decode(Codec().encode({"said": "I was put here"}, place), place)
    found = codec(allow_plain=True).decode(Codec().encode("from before", place), place)
    assert found == "from before"


class _Given:
    """A cipher whose result is what was given: with it anybody makes values whose checksum fits."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload

    def encrypt(self, data: bytes, place: str) -> bytes:
        return self._payload

    def decrypt(self, data: bytes, place: str) -> bytes:
        return data


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        TenantKeys({"other": {"k1": OTHER}}),
        TenantKeys({"acme": {"k2": ACME}}),
        TenantKeys({"acme": {"k1": OTHER}}),
    ],
    ids=["no codec", "no key of the tenant", "no key of that name", "another key of that name"],
)
def test_a_wrong_or_missing_key_is_an_error_and_overwrites_nothing(
    make: Make, unique: str, wrong: TenantKeys | None, capsys: Any, tables: tuple[Table, Table]
) -> None:
    good = codec(TenantKeys({"acme": {"k1": ACME}}))
    memory = make(good)
    talk(memory)
    before = {row["sk"]: row for row in memory.durable.query("acme:u1:s1")}
    known = list(memory.memories.query("acme:u1"))
    other = make(None if wrong is None else codec(wrong))
    kind = (
        CorruptRecordError
        if wrong is not None and "k1" in wrong._keys.get("acme", {})
        else KeyMissingError
    )
    for attempt in (
        lambda: restored(other),
        lambda: messages(other),
        lambda: other.user("u1", tenant="acme").recall(),
        lambda: other.export_user("u1", tenant="acme"),
        lambda: other.session(ConversationScope("u1", "s1", tenant="acme")).exists(),
    ):
        with pytest.raises(kind) as caught:
            attempt()
        assert caught.value.record
        assert ACME.hex() not in str(caught.value)
    settle(other)
    assert {row["sk"]: row for row in memory.durable.query("acme:u1:s1")} == before
    assert list(memory.memories.query("acme:u1")) == known
    assert CANARY in repr(restored(make(good)))


def test_new_values_have_the_new_key_and_old_ones_are_read_with_theirs(
    make: Make, unique: str, valkey_server: servers.Valkey
) -> None:
    live = talk(make(codec(TenantKeys({"acme": {"2025": ACME}}))))
    # Does not fit into one item.
    live("a large one: " + CANARY + base64.b64encode(os.urandom(400_000)).decode())
    live._session_manager.close()
    both = codec(TenantKeys({"acme": {"2025": ACME, "2026": OTHER}}))
    memory = make(both)
    live = talk(memory)
    live("and after the rotation?")
    memory.user("u1", tenant="acme").remember("after the rotation")
    live._session_manager.flush()
    settle(memory)
    with valkey_server.client() as client:
        for hot in client.scan_iter(f"{unique}:*:c:*"):
            client.delete(hot)
    with pytest.raises(KeyMissingError, match="2025"):
        messages(make(codec(TenantKeys({"acme": {"2026": OTHER}}))))
    again = make(both)
    found = [one["content"] for one in messages(again)]
    assert found == [one["content"] for one in messages(memory)]
    assert len(again.user("u1", tenant="acme").recall()) >= 4


def test_a_tenant_without_keys_is_unreadable_and_can_be_forgotten(make: Make, unique: str) -> None:
    keys = TenantKeys({"acme": {"k1": ACME}, "other": {"k1": OTHER}})
    memory = make(codec(keys))
    talk(memory)
    talk(memory, "other")
    memory.finalize(ConversationScope("u1", "s1", tenant="acme"))
    settle(memory)
    keys = TenantKeys({"other": {"k1": OTHER}})
    after = make(codec(keys))
    summary = next(
        str(row["memory_id"])
        for row in after.memories.query("acme:u1", first=f"{MemoryType.SUMMARY}#")
    )
    for attempt in (
        lambda: restored(after),
        lambda: messages(after),
        lambda: after.user("u1", tenant="acme").recall(),
        lambda: after.user("u1", tenant="acme").remember("nothing new either"),
    ):
        with pytest.raises(KeyMissingError, match="destroyed"):
            attempt()
    assert CANARY in repr(messages(after, tenant="other"))
    assert after.user("u1", tenant="acme").forget(summary)
    assert list(after.memories.query("acme:u1", first="episode#", last="episode$")) == []
    report = after.forget_user("u1", tenant="acme")
    assert report.complete, report.left
    assert report.counts["sessions"] == 1
    with pytest.raises(KeyError):
        keys.current("acme")
    assert CANARY in repr(messages(after, tenant="other"))
    assert forget_user(
        "u1", tenant="acme", hot=after.hot, durable=after.durable, memories=after.memories
    ).complete
    # The tenant comes back, with another key.
    again = TenantKeys({"acme": {"k2": os.urandom(32)}, "other": {"k1": OTHER}})
    assert restored(make(codec(again))) == []


GIVEN: dict[str, Codec] = {}


def test_the_doctor_says_when_the_codec_is_missing_or_has_another_key(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/m.db"
    memory = MangaMemory.open("memory://", url, memories=url, codec=codec())
    talk(memory)
    memory.close()
    settle(memory)

    def found(given: Codec | None) -> dict[str, Any]:
        arguments = ["doctor", "--json", "--durable", url, "--users", url]
        if given is not None:
            GIVEN["codec"] = given
            monkeypatch.setattr(f"{__name__}.given", given, raising=False)
            arguments += ["--codec", f"{__name__}:given"]
        run(arguments)
        findings = json.loads(capsys.readouterr().out)["findings"]
        return next(each for each in findings if each["check"] == "durable.records")

    missing = found(None)
    assert missing["level"] == "problem"
    assert "no cipher was given" in missing["detail"]
    assert "--codec" in missing["remedy"]
    wrong = found(codec(TenantKeys({"acme": {"k1": OTHER}})))
    assert wrong["level"] == "problem"
    assert "another key" in wrong["detail"]
    shown = found(codec(TenantKeys({"other": {"k1": OTHER}})))["detail"]
    assert "was not given, or is destroyed" in shown
    assert found(codec(TenantKeys({"acme": {"k1": ACME}})))["level"] == "ok"


def test_ids_of_preferences_tell_nothing_and_outlive_the_keys(tables: tuple[Table, Table]) -> None:
    table = tables[1]

    def store(keys: dict[str, bytes], current: str) -> UserMemoryStore:
        return UserMemoryStore(
            table, user_id="u1", codec=Codec(cipher=AesGcmCipher(keys, current=current))
        )

    old, new = {"k1": bytes(32)}, {"k2": bytes([1]) * 32}
    for _ in range(2):
        first = store(old, "k1").prefer("Secret hiding place", "the cellar")
    store(old, "k1").prefer("genre", "horror")
    assert {str(i["memory_id"]) for i in table.query("u1")} >= {"preference#genre", first.memory_id}
    assert not any(
        "secret" in str(item).lower() or "hiding" in str(item).lower() for item in table.query("u1")
    )
    again = store(old | new, "k2")
    assert again.prefer("secret  hiding place", "the attic").memory_id == first.memory_id
    assert {record.content for record in again.recall()} == {
        "genre: horror",
        "secret hiding place: the attic",
    }
    assert (
        UserMemoryStore(table, user_id="u2", codec=Codec(cipher=AesGcmCipher(new, current="k2")))
        .prefer("secret hiding place", "none")
        .memory_id
        != first.memory_id
    )


def test_recipe_of_the_guide_unwraps_the_keys_of_each_tenant_with_kms(tmp_path: Path) -> None:
    page = Path(strands_manga_memory.__file__).parent / "guide" / "security.md"
    [recipe] = [
        code
        for code in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.S)
        if "UnwrappedKeys" in code
    ]
    names: dict[str, Any] = {}
    exec(recipe, names)
    with mock_aws():
        client = boto3.client("kms", region_name="us-east-1")
        master = client.create_key()["KeyMetadata"]["Arn"]

        def wrapped(tenant: str) -> bytes:
            context = {"tenant": tenant}
            answer = client.generate_data_key_without_plaintext(
                KeyId=master, KeySpec="AES_256", EncryptionContext=context
            )
            return bytes(answer["CiphertextBlob"])

        keys = names["UnwrappedKeys"](client, master, {"acme": {"1": wrapped("acme")}})
        url = f"sqlite:///{tmp_path}/m.db"
        with MangaMemory.open(durable=url, codec=codec(keys)) as memory:
            memory.agent(ScriptedModel(), user_id="u1", session_id="s1", tenant="acme")(CANARY)
        keys.wrapped["acme"]["2"] = wrapped("acme")
        assert keys.current("acme").id == "2"
        with MangaMemory.open(durable=url, codec=codec(keys)) as memory:
            assert CANARY in repr(
                memory.agent(ScriptedModel(), user_id="u1", session_id="s1", tenant="acme").messages
            )
        assert CANARY.encode() not in b"".join(f.read_bytes() for f in tmp_path.glob("m.db*"))
        keys.wrapped["other"] = keys.wrapped.pop("acme")
        with pytest.raises(client.exceptions.InvalidCiphertextException):
            keys.current("other")
