"""Least privilege: the whole package runs with what it says it needs, and with nothing less."""

import asyncio
import json
import random
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from redis.exceptions import NoPermissionError
from strands import Agent

from strands_manga_memory import (
    USER_MEMORY,
    ConversationScope,
    DynamoDBTable,
    HotStore,
    MangaMemory,
    RedisHotStore,
    SQLiteTable,
    StoreError,
    Table,
    open_hot_store,
)
from strands_manga_memory.memory import (
    CallablePreferenceSink,
    KinesisPreferenceSink,
    Owner,
    Preference,
    PreferenceOutbox,
    PreferenceSink,
)
from strands_manga_memory.ops import iam_policy
from strands_manga_memory.stores import HotWrite, TieredStorage
from strands_manga_memory.testing import ScriptedModel
from tests import servers
from tests.support import run, settle, store_signal

pytestmark = pytest.mark.xdist_group("permissions")  # its servers and processes are started once

TABLES = "arn:aws:dynamodb:us-east-1:000000000000:table"
STREAM = "arn:aws:kinesis:us-east-1:000000000000:stream/s"


def live(memory: MangaMemory, sink: PreferenceSink | None = None) -> None:
    """Do everything that workers and sweepers do."""
    asked: dict[str, Any] = {"history": "summarize", "task_state": True, "recall": True}
    kwargs = memory.agent_kwargs(user_id="u1", session_id="s1", tenant="acme", **asked)
    agent = Agent(model=ScriptedModel(), **kwargs)
    for number in range(6):
        agent(
            f"I look for volume {number} of Titan. My favorite genre is horror {number}. "
            + "words " * 300
        )
    session: Any = agent._session_manager
    session.set_metadata(None, locale="ja")
    with session.lease():
        session.flush()
    agent("a large message: " + "x" * 400_000)
    session.flush()
    memory.changes(user_id="u1", session_id="s1", tenant="acme").publish()
    assert memory.changes(user_id="u1", session_id="s1", tenant="acme").version()
    user = memory.user("u1", tenant="acme")
    known = user.remember("likes titans")
    user.prefer("format", "paperback")
    assert user.recall(query="titans")
    assert memory.memories is not None
    outbox = PreferenceOutbox(memory.memories, sink or CallablePreferenceSink(lambda signal: None))
    store_signal(outbox, Owner("u1", "acme"), Preference("language", "ja"), 1.0)
    settle(memory)
    outbox.drain_all()
    settle(memory)
    again = MangaMemory.open(
        memory.hot,
        memory.durable,
        memories=memory.memories,
        create_tables=False,
        codec=memory.codec,
        hot_deadline=10.0,
    )
    kwargs = again.agent_kwargs(user_id="u1", session_id="s1", tenant="acme")
    restored = Agent(model=ScriptedModel(), **kwargs)
    assert restored.messages
    restored("and another")
    restored._session_manager.close()
    again.sweeper().run_once()
    assert again.finalize(ConversationScope("u1", "s1", tenant="acme"))
    assert again.export_user("u1", tenant="acme")["sessions"]
    assert user.forget(known.memory_id)
    settle(again)
    assert again.forget_user("u1", tenant="acme").complete
    again.close()
    settle(again)


# --- Redis ----------------------------------------------------------------------------------------


PAGE = (Path(__file__).parents[2] / "strands_manga_memory/guide/security.md").read_text(
    encoding="utf-8"
)
ACL = PAGE.partition("ACL SETUSER ")[2].partition("\n")[0]
"""The permissions as the page shows them to operators."""


@pytest.fixture(scope="module")
def guarded() -> Iterator[servers.Valkey]:
    with servers.valkey() as server:
        yield server


def allow(server: servers.Valkey, rules: str) -> str:
    """Make a user with these rights; return the URL with which they log in."""
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", *rules.replace("PASSWORD", "secret").split())
        client.execute_command("ACL", "LOG", "RESET")
        client.script_flush()
        client.flushall()
    return f"redis://{rules.split()[0]}:secret@{server.host}:{server.port}/0?deadline=5"


def denied(server: servers.Valkey) -> list[str]:
    with server.client() as client:
        found: Any = client.acl_log()
    return [f"{e['reason']} {e['object']}" for e in found if "setinfo" not in str(e["object"])]


def test_all_redis_calls_run_with_the_acl(guarded: servers.Valkey, tmp_path: Path) -> None:
    url = allow(guarded, ACL)
    durable, users = SQLiteTable(tmp_path / "m"), SQLiteTable(tmp_path / "m", USER_MEMORY)
    live(MangaMemory.open(open_hot_store(url), durable, memories=users, hot_deadline=10.0))
    calls(open_hot_store(url))
    assert denied(guarded) == []
    with guarded.client(username="manga-memory", password="secret") as client:
        for forbidden in (
            "KEYS *", "SCAN 0", "FLUSHALL", "GET other", "CONFIG GET *", "PUBLISH c m",
            "SUBSCRIBE c", "DUMP smm:x",
        ):  # fmt: skip
            with pytest.raises(NoPermissionError):
                client.execute_command(*forbidden.split())


def test_each_command_of_the_acl_is_needed(guarded: servers.Valkey) -> None:
    """Without any one of them something is refused: no right is granted that is never used."""
    for left_out in re.findall(r" \+(\S+)", ACL):
        calls(open_hot_store(allow(guarded, f"{ACL} -{left_out}")))
        assert any(left_out in what for what in denied(guarded)), left_out


def calls(store: HotStore) -> None:
    """Make every call of a hot store; go on when one is refused."""

    def write(name: str, **changes: Any) -> HotWrite:
        one = {"expect": None, "epoch": 1, "version": 1, "ttl": 5.0}
        return HotWrite(**{**one, "fields": {"a": b"b"}, **changes})

    name, other = "u:s/A:a", "u:s/A:b"
    steps: list[Callable[[], object]] = [
        lambda: store.load("none/A:a", ["a"]),
        lambda: store.write(name, write(name)),
        lambda: store.write(name, write(name, expect=(1, 1), version=2, removed=["a"])),
        lambda: store.write(name, write(name, expect=(1, 2), epoch=2, version=3, replace=True)),
        lambda: store.load(name, None, touch=True),
        lambda: store.claim(name, expired_only=False),
        lambda: store.drop(name, expect=(2, 3)),
        lambda: store.write(other, write(other, ttl=0.001)),
        lambda: list(store.expired(limit=10)),
        lambda: store.put_tombstone(other, ttl=5.0),
        lambda: store.put_value(name, b"x", ttl=1.0),
        lambda: store.replace_value(name, b"y", expect=b"x", ttl=1.0),
        lambda: store.replace_value(name, b"", expect=b"y", ttl=0.0),
        lambda: store.get_value(name),
    ]
    for step in steps:
        with suppress(StoreError):
            step()


# --- IAM ------------------------------------------------------------------------------------------


class Authorizer:
    """Refuses whatever a policy does not grant, as IAM does, and remembers what was used."""

    def __init__(self, policy: dict[str, Any]) -> None:
        self.granted = {
            (action, resource)
            for statement in policy["Statement"]
            for action in statement["Action"]
            for resource in statement["Resource"]
        }
        self.used: set[tuple[str, str]] = set()

    def guard(self, client: Any) -> Any:
        client.meta.events.register("before-parameter-build.*.*", self._check)
        return client

    def _check(self, params: dict[str, Any], model: Any, **_: Any) -> None:
        service = model.service_model.endpoint_prefix
        for action, resource in _needed(service, model.name, params):
            self._grant(action, resource, model.name)

    def _grant(self, action: str, resource: str, operation: str) -> None:
        hits = {
            (a, r) for a, r in self.granted if fnmatchcase(action, a) and fnmatchcase(resource, r)
        }
        if not hits:
            answer: Any = {
                "Error": {
                    "Code": "AccessDeniedException",
                    "Message": f"not authorized: {action} on {resource}",
                }
            }
            raise ClientError(answer, operation)
        self.used |= hits


def _needed(service: str, operation: str, params: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the actions and resources that AWS checks for a request."""
    if service == "kinesis":
        yield (
            f"kinesis:{operation}",
            STREAM if params["StreamName"] == "s" else params["StreamName"],
        )
    elif operation == "TransactWriteItems":
        actions = {
            "Put": "PutItem",
            "Delete": "DeleteItem",
            "Update": "UpdateItem",
            "ConditionCheck": "ConditionCheckItem",
        }
        for item in params["TransactItems"]:
            [(kind, what)] = item.items()
            yield f"dynamodb:{actions[kind]}", f"{TABLES}/{what['TableName']}"
    elif operation.startswith("Batch"):
        for name in params["RequestItems"]:
            yield f"dynamodb:{operation}", f"{TABLES}/{name}"
    else:
        index = f"/index/{params['IndexName']}" if "IndexName" in params else ""
        yield f"dynamodb:{operation}", f"{TABLES}/{params['TableName']}{index}"


class _Stream:
    """Takes records, as a Kinesis client does."""

    def __init__(self, check: Callable[..., None], client: Any) -> None:
        self._check, self._model = check, client.meta.service_model.operation_model("PutRecord")

    def put_record(self, **params: Any) -> None:
        self._check(params, self._model)


def test_the_iam_policy_is_enough_and_nothing_of_it_is_unused(
    dynamodb_server: servers.DynamoDB, valkey_server: servers.Valkey, unique: str
) -> None:
    with valkey_server.client() as redis_client:
        names = [f"{unique}s", f"{unique}u"]
        arns = [f"{TABLES}/{name}" for name in names]
        policy = iam_policy(arns[0], memories=arns[1], setup=True, stream=STREAM)
        iam = Authorizer(json.loads(json.dumps(policy)))

        def table(name: str, **kwargs: Any) -> Table:
            return DynamoDBTable(
                iam.guard(dynamodb_server.client()), name=name, deadline=10, **kwargs
            )

        durable = table(names[0])
        users = table(names[1], schema=USER_MEMORY)
        sink = KinesisPreferenceSink(
            _Stream(iam._check, boto3.client("kinesis", region_name="us-east-1")), stream_name="s"
        )

        def opened() -> MangaMemory:
            return MangaMemory.open(
                RedisHotStore(redis_client, prefix=unique, deadline=5),
                durable,
                memories=users,
                sink=sink,
                hot_deadline=10.0,
            )

        live(opened(), sink)
        storage = opened().storage(user_id="u1", tenant="acme")
        asyncio.run(storage.write("large", random.Random(1).randbytes(400_000)))
        cold = TieredStorage(durable=durable, user_id="u1", tenant="acme", codec=opened().codec)
        assert asyncio.run(cold.read("large"))
        asyncio.run(storage.delete("large"))
        assert (iam.granted - iam.used) == set()
        other = DynamoDBTable(
            iam.guard(dynamodb_server.client()), name=f"{unique}other", deadline=1
        )
        with pytest.raises(StoreError, match="not authorized"):
            other.get("a", "b")


def test_the_command_prints_the_policy(capsys: Any) -> None:
    durable = "dynamodb://sessions?region=x"
    arguments = ["--durable", durable, "--users", "true", "--region", "us-east-1", "--account", "1"]
    assert run(["permissions", *arguments, "--stream", STREAM, "--setup"]) == 0
    policy = json.loads(capsys.readouterr().out)
    arns = [f"arn:aws:dynamodb:us-east-1:1:table/{n}" for n in ("sessions", "manga_user_memory")]
    assert policy == iam_policy(arns[0], memories=arns[1], setup=True, stream=STREAM)


def test_an_empty_table_name_is_refused() -> None:
    with pytest.raises(ValueError, match="ARN of a table"):
        iam_policy("")
