"""How other packages store sessions: what a ``FileSessionManager`` has written, put where and as they would have put it.

All of them keep the records of Strands' ``RepositorySessionManager``, or the values of its ``Storage``; they differ in keys and
containers. Each function says which version of which package was run, and its stores looked at, to write it.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def records(folder: Path) -> Iterator[tuple[str, str | None, int | str | None, dict[str, Any]]]:
    """Yield session, agent (None: of the session itself), message number (``head``: of the agent) and record."""
    for root in sorted(folder.glob("session_*")):
        session = root.name.removeprefix("session_")
        yield session, None, None, json.loads((root / "session.json").read_text())
        for agent in sorted(root.glob("agents/agent_*")):
            id_ = agent.name.removeprefix("agent_")
            yield session, id_, "head", json.loads((agent / "agent.json").read_text())
            for message in agent.glob("messages/message_*.json"):
                record = json.loads(message.read_text())
                yield session, id_, record["message_id"], record


def orchestrators(folder: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for file in folder.glob("session_*/multi_agents/multi_agent_*/multi_agent.json"):
        session, id_ = file.parts[-4].removeprefix("session_"), file.parts[-2].removeprefix("multi_agent_")
        yield session, id_, json.loads(file.read_text())


def to_redis(folder: Path, client: Any, namespace: str = "strands:session") -> None:
    """As strands-redis-session-manager 0.1.0: JSON strings, a sorted set of numbers for each agent, a set of all keys."""

    def text(record: dict[str, Any]) -> str:
        return json.dumps(record, indent=0, ensure_ascii=False)

    for session, agent, number, record in records(folder):
        root = f"{namespace}:{session}"
        if agent is None:
            key = f"{root}:session"
        elif number == "head":
            key = f"{root}:agent:{agent}"
        else:
            key, index = f"{root}:agent:{agent}:msg:{number}", f"{root}:agent:{agent}:msgs"
            client.zadd(index, {str(number): float(number or 0)})
            client.sadd(f"{root}:__keys", index)
        client.set(key, text(record))
        client.sadd(f"{root}:__keys", key)
    for session, id_, state in orchestrators(folder):
        client.set(f"{namespace}:{session}:multi_agent:{id_}", text(state))


def to_valkey(folder: Path, put: Any) -> None:
    """As strands-valkey-session-manager 0.1.0, which calls ``JSON.SET key $ text``; ``put(key, text)`` does."""
    for session, agent, number, record in records(folder):
        key = f"session:{session}"
        if agent is not None:
            key += f":agent:{agent}" + ("" if number == "head" else f":message:{number}")
        put(key, json.dumps(record, ensure_ascii=False))


def to_key_value_table(folder: Path, client: Any, table: str) -> None:
    """As strands-session-dynamodb 0.2.0 over strands-agents-session 0.2.0: keys ``PK`` and ``SK``, JSON in ``data``."""
    make_table(client, table, "PK", "SK")
    for session, agent, number, record in records(folder):
        partition, sort = f"SESSION#{session}", "META"
        if agent is not None:
            sort = f"AGENT#{agent}"
            if number != "head":
                partition, sort = f"{partition}#AGENT#{agent}", f"MSG#{number:020d}"
        data = {"S": json.dumps(record)}
        client.put_item(TableName=table, Item={"PK": {"S": partition}, "SK": {"S": sort}, "data": data})


def to_aws_storage(folder: Path, client: Any, table: str, *, prefix: str = "", zipped: bool = False, s3: Any = None) -> None:
    """As AWS's strands-dynamodb-storage 0.2.0: the key's first two segments are ``pk``, the rest ``sk``, all of it ``k``.

    ``z`` marks what is compressed, ``s3`` what was too large for an item, ``expireAt`` when it ends. ``s3`` is a client and a
    bucket: values over 1 kB go there, below ``off/`` (the package does so from 380 kB on).
    """
    make_table(client, table, "pk", "sk")
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        key = prefix + file.relative_to(folder).as_posix()
        segments = key.split("/")
        item: dict[str, Any] = {"pk": {"S": "/".join(segments[:2])}, "sk": {"S": "/".join(segments[2:])}, "k": {"S": key}}
        data = file.read_bytes()
        if zipped:
            data, item["z"], item["expireAt"] = gzip.compress(data), {"BOOL": True}, {"N": "4000000000"}
        if s3 is not None and len(data) > 1_000:
            s3[0].put_object(Bucket=s3[1], Key=f"off/{key}", Body=data)
            item["s3"] = {"BOOL": True}
        else:
            item["data"] = {"B": data}
        client.put_item(TableName=table, Item=item)


def to_community_storage(folder: Path, client: Any, table: str) -> None:
    """As strands-storage-dynamodb 0.2.1: one partition, ``storage``, and the whole key as ``SK``."""
    make_table(client, table, "PK", "SK")
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        key, data = file.relative_to(folder).as_posix(), file.read_bytes()
        client.put_item(TableName=table, Item={"PK": {"S": "storage"}, "SK": {"S": key}, "data": {"B": data}})


def make_table(client: Any, table: str, partition: str, sort: str) -> None:
    client.create_table(
        TableName=table,
        KeySchema=[{"AttributeName": partition, "KeyType": "HASH"}, {"AttributeName": sort, "KeyType": "RANGE"}],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in (partition, sort)],
        BillingMode="PAY_PER_REQUEST",
    )
