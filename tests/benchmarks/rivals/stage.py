"""Servers of a comparison, and processes that drive rivals there."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import servers
from tests.benchmarks.rivals.catalogue import ROOT, Rival, python_of
from tests.benchmarks.wire import Chunk, Wire

_EXPIRY = ("ttl", "expireAt", "expires_at")
"""Attributes in which the rivals store the expiry of an item, in seconds since 1970."""


class RivalError(Exception):
    """Error that a rival raised. The message begins with the name of the error."""


@dataclass
class Stage:
    """Servers of one run, behind wires that record the traffic."""

    valkey: servers.Valkey
    dynamodb: servers.DynamoDB
    wires: Sequence[Wire]
    log: list[Chunk]
    folder: Path
    sessions: int = 0
    driver: Driver | None = None

    def new_session(self) -> str:
        self.sessions += 1
        return f"s{self.sessions}x"

    def close(self) -> None:
        """End the process of a rival, so that another rival can run."""
        if self.driver is not None:
            self.driver.kill()
            self.driver = None

    def cut(self) -> list[Chunk]:
        """Return the traffic since the last call."""
        self._settle()
        chunks = list(self.log)
        self.log.clear()
        return chunks

    def expire(self, seconds: float) -> None:
        """Wait a little longer than ``seconds``, then delete the expired items, as DynamoDB may."""
        threading.Event().wait(seconds + 0.2 if seconds else 0)
        client, now = self.dynamodb.client(), time.time()
        for name in client.list_tables()["TableNames"]:
            keys = [
                each["AttributeName"]
                for each in client.describe_table(TableName=name)["Table"]["KeySchema"]
            ]
            for page in client.get_paginator("scan").paginate(TableName=name):
                for item in page["Items"]:
                    times = [float(item[f]["N"]) for f in _EXPIRY if f in item and "N" in item[f]]
                    if times and min(times) <= now:
                        client.delete_item(TableName=name, Key={key: item[key] for key in keys})

    def _settle(self) -> None:
        """Wait until there is no more traffic, so that background work counts."""
        pause, seen = threading.Event(), -1
        while seen != len(self.log):
            seen = len(self.log)
            pause.wait(0.15)

    def stored(self) -> bytes:
        """Return every byte in the stores."""
        found: list[bytes] = [p.read_bytes() for p in self.folder.rglob("*") if p.is_file()]
        with self.valkey.client() as client:
            for key in client.scan_iter():
                kind: Any = client.type(key)
                read: dict[bytes, Callable[[Any], Any]] = {
                    b"hash": client.hgetall,
                    b"string": client.get,
                    b"list": lambda key: client.lrange(key, 0, -1),
                }
                found.append(repr(read[kind](key)).encode() if kind in read else b"")
        client = self.dynamodb.client()
        for name in client.list_tables()["TableNames"]:
            found += [
                repr(page["Items"]).encode()
                for page in client.get_paginator("scan").paginate(TableName=name)
            ]
        return b"\n".join(found)


class Driver:
    """Rival in a process of its own."""

    def __init__(self, rival: Rival, stage: Stage) -> None:
        redis, dynamodb = stage.wires
        environment = {
            **os.environ,
            "RIVAL_REDIS": f"redis://{redis.host}:{redis.port}/0",
            "RIVAL_DYNAMODB": f"http://{dynamodb.host}:{dynamodb.port}",
            "RIVAL_FOLDER": str(stage.folder),
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "PYTHONPATH": "" if rival.packages else str(ROOT),
        }
        self.process = subprocess.Popen(
            [str(python_of(rival)), str(Path(__file__).with_name("driver.py")), rival.adapter],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """Send a request to the rival. Raises ``RivalError`` if it fails."""
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"do": do, **request}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "it ended"}
        if "error" in answer:
            raise RivalError(answer["error"])
        return answer

    def texts(self) -> list[str]:
        found: list[str] = self.ask("texts")["texts"]
        return found

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def written(self) -> int:
        """Return the bytes that the process has written to files and sockets."""
        lines = Path(f"/proc/{self.process.pid}/io").read_text().splitlines()
        return int(dict(line.split(": ") for line in lines)["wchar"])


@contextmanager
def driven(rival: Rival, stage: Stage, *, fresh: bool = False, **opened: Any) -> Iterator[Driver]:
    """Open a conversation with a new manager, in this stage's process or a ``fresh`` one."""
    driver = Driver(rival, stage) if fresh else stage.driver or Driver(rival, stage)
    if not fresh:
        stage.driver = driver
    try:
        driver.ask("open", **opened)
        yield driver
    finally:
        if fresh:
            driver.kill()


@contextmanager
def stage_of() -> Iterator[Stage]:
    """Run the servers."""
    with (
        servers.valkey() as valkey,
        servers.dynamodb() as dynamodb,
        tempfile.TemporaryDirectory() as folder,
    ):
        log: list[Chunk] = []
        with Wire(valkey, log) as redis_wire, Wire(dynamodb, log) as dynamodb_wire:
            stage = Stage(valkey, dynamodb, (redis_wire, dynamodb_wire), log, Path(folder))
            try:
                yield stage
            finally:
                stage.close()
