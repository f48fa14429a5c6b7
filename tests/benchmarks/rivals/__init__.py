"""rivals: our session manager beside others, each in an environment of its own, on the same servers, in one run, one table.

``python -m tests.benchmarks rivals --json`` installs the others from PyPI below ``build/rivals`` (once), ``--write README.md``
puts the table there, ``--installed`` compares with Strands' own managers alone.
"""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import servers
from tests.benchmarks import progress
from tests.benchmarks.wire import Chunk, Wire, requests, rounds

ROOT = Path(__file__).parents[3]
BEGIN, END = "<!-- rivals: begin -->", "<!-- rivals: end -->"
AGES = (10, 100)
AWAY = 0.05
"""Seconds the stores are away while the stall of the event loop is measured."""

WORDS = "Which volume of Attack on Titan comes after 12, and is it in stock as a paperback? " * 3
CANARY = "canary-7Kx"
_STRANDS = "strands-agents==1.62.0"


@dataclass(frozen=True)
class Rival:
    """One of those that are compared.

    Args:
        name: What the table calls it.
        adapter: Its function or class in ``driver.py``.
        packages: What is installed for it, it first; none: it is in this environment.
        stores: What it writes to: ``redis``, ``dynamodb``, ``files``.
        note: What must be known about how it was run.
        remembers_window: Whether it is what gives an agent its window back; the others keep lists, and trimming is not theirs.
    """

    name: str
    adapter: str
    packages: tuple[str, ...] = ()
    stores: tuple[str, ...] = ("files",)
    note: str = ""
    remembers_window: bool = True


RIVALS = (
    Rival("strands_manga_memory", "ours", stores=("redis", "dynamodb")),
    Rival("Strands FileSessionManager", "strands_file"),
    Rival("Strands SnapshotSessionManager", "strands_snapshot", note="LocalFileStorage"),
    Rival("strands-dynamodb-storage (AWS)", "aws_storage", ("strands-dynamodb-storage==0.2.0", _STRANDS), ("dynamodb",)),
    Rival("strands-redis-session-manager", "redis_session", ("strands-redis-session-manager==0.1.0", _STRANDS), ("redis",)),
    Rival(
        "strands-valkey-session-manager",
        "valkey_session",
        ("strands-valkey-session-manager==0.1.0", _STRANDS),
        ("redis",),
        "JSON.GET and JSON.SET as GET and SET: no RedisJSON here",
    ),
    Rival(
        "strands-dynamodb-session-manager",
        "dynamodb_session",
        ("strands-dynamodb-session-manager==0.2.0", _STRANDS),
        ("dynamodb",),
    ),
    Rival("bedrock-agentcore", "agentcore", ("bedrock-agentcore==1.25.0", _STRANDS), ()),
    Rival(
        "openai-agents RedisSession",
        "openai_session",
        ("openai-agents[redis]==0.24.0",),
        ("redis",),
        "called as its runner does",
        remembers_window=False,
    ),
    Rival(
        "langgraph-checkpoint-aws",
        "langgraph_aws",
        ("langgraph-checkpoint-aws==1.2.6", "langgraph"),
        ("dynamodb",),
        "DynamoDBSaver",
        remembers_window=False,
    ),
    Rival(
        "langgraph-checkpoint-plainredis",
        "langgraph_redis",
        ("langgraph-checkpoint-plainredis==0.1.0", "langgraph"),
        ("redis",),
        "the redis saver needs RedisJSON",
        remembers_window=False,
    ),
)


class RivalError(Exception):
    """What a rival raised; its message begins with the name of the error."""


@dataclass
class Stage:
    """The servers of one run, behind wires that record what passes."""

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
        """End the process of a rival, so that another one can be driven here."""
        if self.driver is not None:
            self.driver.kill()
            self.driver = None

    def cut(self) -> list[Chunk]:
        """Return what passed since the last cut."""
        self._settle()
        chunks = list(self.log)
        self.log.clear()
        return chunks

    def _settle(self) -> None:
        """Wait until nothing passes any more: what is done in the background counts too."""
        pause, seen = threading.Event(), -1
        while seen != len(self.log):
            seen = len(self.log)
            pause.wait(0.15)

    def stored(self) -> bytes:
        """Return every byte that the stores have."""
        found: list[bytes] = [path.read_bytes() for path in self.folder.rglob("*") if path.is_file()]
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
            found += [repr(page["Items"]).encode() for page in client.get_paginator("scan").paginate(TableName=name)]
        return b"\n".join(found)


class Driver:
    """A rival in a process of its own."""

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
        """Have something done; raise ``RivalError`` if that failed."""
        assert self.process.stdin is not None
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
    """Open a conversation by a new manager, in the process that this stage has for it, or in a ``fresh`` one."""
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
    with servers.valkey() as valkey, servers.dynamodb() as dynamodb, tempfile.TemporaryDirectory() as folder:
        log: list[Chunk] = []
        with Wire(valkey, log) as redis_wire, Wire(dynamodb, log) as dynamodb_wire:
            stage = Stage(valkey, dynamodb, (redis_wire, dynamodb_wire), log, Path(folder))
            try:
                yield stage
            finally:
                stage.close()


# What is measured; each gives cells of the table


Cell = float | int | str | None


def by_age(rival: Rival, stage: Stage) -> dict[str, Cell]:
    """Count what a text turn takes and writes at each age, and what restoring takes at the last one."""
    cells: dict[str, Cell] = {}
    session, counted = stage.new_session(), 5
    with driven(rival, stage, session=session) as driver:
        for turn in range(AGES[-1]):
            if turn + counted in AGES:
                stage.cut()
                before = driver.written()
            driver.ask("turn", text=f"{turn} {WORDS}")
            if turn + 1 in AGES:
                wrote, chunks = driver.written() - before, stage.cut()
                size = sum(len(chunk.data) for chunk in chunks if chunk.sent) if rival.stores != ("files",) else wrote
                cells[f"bytes written a turn, after {turn + 1} turns"] = round(size / counted)
                if rival.stores != ("files",):
                    cells[f"round trips a turn, after {turn + 1} turns"] = round(rounds(chunks) / counted, 1)
                    cells[f"commands a turn, after {turn + 1} turns"] = round(commands(chunks, stage) / counted, 1)
        driver.ask("close")
    stage.cut()
    with driven(rival, stage, session=session) as driver:
        found = driver.texts()
        if rival.stores != ("files",):
            cells[f"round trips to restore {AGES[-1]} turns"] = rounds(stage.cut())
    cells[f"restored of {2 * AGES[-1]} messages"] = len(found)
    return cells


def commands(chunks: Sequence[Chunk], stage: Stage) -> int:
    """Count Redis commands and DynamoDB requests."""
    redis = stage.wires[0].port
    streams: dict[Any, bytearray] = {}
    for chunk in chunks:
        if chunk.sent and chunk.connection[0] == redis:
            streams.setdefault(chunk.connection, bytearray()).extend(chunk.data)
    count = sum(_commands_of(bytes(stream)) for stream in streams.values())
    return count + len(requests([chunk for chunk in chunks if chunk.connection[0] != redis]))


def _commands_of(stream: bytes) -> int:
    count = at = 0
    while stream[at : at + 1] == b"*":
        end = stream.index(b"\r\n", at)
        parts, at = int(stream[at + 1 : end]), end + 2
        for _ in range(parts):
            end = stream.index(b"\r\n", at)
            at = end + 2 + int(stream[at + 1 : end]) + 2
        count += 1
    return count


def stall(rival: Rival, stage: Stage) -> dict[str, Cell]:
    """Measure for how long the event loop stands still in a turn while the stores are away."""
    if rival.stores == ("files",):
        return {}
    with driven(rival, stage, session=stage.new_session()) as driver:
        driver.ask("turn", text="first")
        for wire in stage.wires:
            wire.hold = AWAY
        try:
            found = sorted(driver.ask("turn", text=f"turn {number}")["stall"] for number in range(3))
        finally:
            for wire in stage.wires:
                wire.hold = 0.0
    return {f"event loop stall in a turn, stores {AWAY * 1000:.0f} ms away, ms": round(found[1])}


def window(rival: Rival, stage: Stage) -> dict[str, Cell]:
    """Compare the window of a live agent that trimmed its history, and pinned its beginning, with that of a restored one."""
    if not rival.remembers_window:
        return {}
    session = stage.new_session()
    with driven(rival, stage, session=session, window=8) as driver:
        for number in range(10):
            driver.ask("turn", text=f"turn {number}")
        live = driver.texts()
        driver.ask("close")
    with driven(rival, stage, session=session, window=8) as driver:
        return {"window after trimming with pins restored exactly": "yes" if driver.texts() == live else "no"}


def two_writers(rival: Rival, stage: Stage) -> dict[str, Cell]:
    """Count the turns that are lost when two processes that both know a session make one each."""
    session = stage.new_session()
    with driven(rival, stage, session=session) as one:
        one.ask("turn", text="turn 0")
        one.ask("close")
        with driven(rival, stage, fresh=True, session=session) as other:
            one.ask("turn", text="turn of one")
            other.ask("turn", text="turn of other")
            for driver in (one, other):
                driver.ask("close")
    with driven(rival, stage, session=session) as driver:
        found = driver.texts()
    wanted = ("turn 0", "turn of one", "turn of other")
    return {"of 3 turns of two writers lost": sum(text not in found for text in wanted)}


def killed(rival: Rival, stage: Stage) -> dict[str, Cell]:
    """Count the finished turns that are lost by kill -9, right after the last of them."""
    session = stage.new_session()
    with driven(rival, stage, fresh=True, session=session) as driver:
        for number in range(4):
            driver.ask("turn", text=f"turn {number}")
        driver.kill()
    with driven(rival, stage, session=session) as driver:
        found = driver.texts()
    return {"of 4 turns lost by kill -9": sum(f"turn {number}" not in found for number in range(4))}


def oversized(rival: Rival, stage: Stage) -> dict[str, Cell]:
    """Say a message of 500 KB; it must be there afterwards, with the turn behind it."""
    session, large = stage.new_session(), "large " + "x" * 500_000
    name = "a message of 500 KB"
    with driven(rival, stage, session=session) as driver:
        try:
            driver.ask("turn", text=large)
            driver.ask("turn", text="next")
            driver.ask("close")
        except RivalError as error:
            return {name: str(error).partition(":")[0]}
    with driven(rival, stage, session=session) as driver:
        found = driver.texts()
    return {name: "kept" if large in found and "next" in found else "lost"}


def redacted(rival: Rival, stage: Stage) -> dict[str, Cell]:
    """Let a guardrail redact what the user said, and look for it in every byte that is stored."""
    if not rival.remembers_window:
        return {}
    with driven(rival, stage, session=stage.new_session()) as driver:
        driver.ask("turn", text="before")
        driver.ask("turn", text=f"REDACT {CANARY}")
        driver.ask("turn", text="after")
        driver.ask("close")
    return {"traces of a redacted message": stage.stored().count(CANARY.encode())}


def neighbours(rival: Rival, stage: Stage) -> dict[str, Cell]:
    """Delete a session whose id is a pattern of, or a beginning of, another one's; and ask for an agent by a pattern."""
    cells: dict[str, Cell] = {}
    base = stage.new_session()
    for label, victim, deleted in (("pattern", f"{base}u1", f"{base}u?"), ("beginning", f"{base}p0", f"{base}p")):
        with driven(rival, stage, session=victim) as driver:
            driver.ask("turn", text="mine")
            driver.ask("close")
        name = f"deleting a session whose id is a {label} of another's deletes that too"
        try:
            with driven(rival, stage, session=deleted) as driver:
                driver.ask("turn", text="yours")
                driver.ask("delete", session=deleted)
        except RivalError as error:
            cells[name] = "no delete" if "NotImplemented" in str(error) else "id refused"
            continue
        with driven(rival, stage, session=victim) as driver:
            cells[name] = "no" if "mine" in driver.texts() else "YES"
    if rival.remembers_window:
        with driven(rival, stage, session=f"{base}g", agent="a1") as driver:
            driver.ask("turn", text="secret of a1")
            driver.ask("close")
        try:
            with driven(rival, stage, session=f"{base}g", agent="a?") as driver:
                cells["an agent 'a?' gets the messages of 'a1'"] = "YES" if "secret of a1" in driver.texts() else "no"
        except RivalError:
            cells["an agent 'a?' gets the messages of 'a1'"] = "id refused"
    return cells


def crowded(rival: Rival, stage: Stage) -> dict[str, Cell]:
    """Count round trips to restore one turn beside 5,000 keys of somebody else."""
    if "redis" not in rival.stores:
        return {}
    session = stage.new_session()
    with driven(rival, stage, session=session) as driver:
        driver.ask("turn", text="mine")
        driver.ask("close")
    with stage.valkey.client() as client:
        client.mset({f"foreign:{number}": "x" for number in range(5_000)})
    stage.cut()
    with driven(rival, stage, session=session) as driver:
        driver.texts()
        cells: dict[str, Cell] = {"round trips to restore 1 turn beside 5,000 foreign keys": rounds(stage.cut())}
    with stage.valkey.client() as client:
        client.delete(*(f"foreign:{number}" for number in range(5_000)))
    return cells


MEASURES: tuple[Callable[[Rival, Stage], dict[str, Cell]], ...] = (
    by_age,
    stall,
    window,
    two_writers,
    killed,
    oversized,
    redacted,
    neighbours,
    crowded,
)


@dataclass
class Column:
    """What was found of one rival."""

    rival: Rival
    version: str
    cells: dict[str, Cell] = field(default_factory=dict)
    failed: str = ""


def measured(rival: Rival, version: str) -> Column:
    """Measure everything of one rival, each question on empty servers of its own run."""
    column = Column(rival, version)
    with stage_of() as stage:
        for measure in MEASURES:
            try:
                column.cells |= measure(rival, stage)
            except RivalError as error:
                if measure is by_age:
                    column.failed = str(error)
                    return column
                column.cells[f"{measure.__name__} failed"] = str(error)[:60]
    return column


# Environments


def folder_of(rival: Rival) -> Path:
    return ROOT / "build" / "rivals" / rival.packages[0].partition("=")[0].partition("[")[0]


def python_of(rival: Rival) -> Path:
    return folder_of(rival) / "bin" / "python" if rival.packages else Path(sys.executable)


def installed(rival: Rival) -> tuple[str, str]:
    """Install a rival if it is not; return its version, and why that failed, if it did."""
    if not rival.packages:
        name = "strands-manga-memory" if rival.adapter == "ours" else "strands-agents"
        return importlib.metadata.version(name), ""
    mark = folder_of(rival) / "installed"
    wanted = " ".join(rival.packages)
    if not mark.exists() or mark.read_text() != wanted:
        here = f"{sys.version_info.major}.{sys.version_info.minor}"
        steps = [
            ["uv", "venv", "--quiet", "--clear", "--seed", "--python", sys.executable, str(folder_of(rival))],
            # Not by uv: one of them declares a later Python than it needs.
            [str(python_of(rival)), "-m", "pip", "install", "--quiet", "--ignore-requires-python", *rival.packages],
        ]
        for step in steps:
            done = subprocess.run(step, capture_output=True, text=True, check=False, timeout=300)
            if done.returncode:
                lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
                return "", f"not installed on Python {here}: {lines[-1][:120]}"
        mark.write_text(wanted)
    return rival.packages[0].partition("==")[2], ""


def compare(rivals: Sequence[Rival]) -> list[Column]:
    """Install and measure, one after the other."""
    columns = []
    for rival in progress(list(rivals), "rivals"):
        version, failed = installed(rival)
        columns.append(Column(rival, version, failed=failed) if failed else measured(rival, version))
    return columns


# The table


def markdown(columns: Sequence[Column], *, today: dt.date, breakers: Mapping[str, float] | None = None) -> str:
    """Return the tables as Markdown: a row for each rival, its cells in the order of the questions."""
    questions = list(dict.fromkeys(name for column in columns for name in column.cells))
    lines = [
        f"Measured on {today:%Y-%m-%d} by `python -m tests.benchmarks rivals`, Strands Agents "
        f"{importlib.metadata.version('strands-agents')}. Counts are exact; the stall is a timing on a busy machine.",
        "",
        "| question | " + " | ".join(f"{_name(column)}" for column in columns if not column.failed) + " |",
        "|---|" + "---|" * sum(not column.failed for column in columns),
    ]
    shown = [column for column in columns if not column.failed]
    for question in questions:
        cells = [_cell(column.cells.get(question)) for column in shown]
        lines.append(f"| {question} | " + " | ".join(cells) + " |")
    lines += ["", *(f"- {column.rival.name}: {column.rival.note}." for column in shown if column.rival.note)]
    failed = [column for column in columns if column.failed]
    lines += [f"- {_name(column)} could not be measured: {column.failed}." for column in failed]
    if breakers:
        lines += ["", *_breaker_lines(breakers)]
    return "\n".join(lines)


def _name(column: Column) -> str:
    return f"{column.rival.name} {column.version}"


def _cell(value: Cell) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int | float) else value


def _breaker_lines(values: Mapping[str, float]) -> Iterator[str]:
    """Yield the scenario table of the benchmark ``breaker``."""
    from tests.benchmarks.breaker import LIBRARIES

    names = ["strands_manga_memory", *LIBRARIES]
    asked = [name.removeprefix("strands_manga_memory_") for name in values if name.startswith("strands_manga_memory_")]
    yield "| breaker | " + " | ".join(names) + " |"
    yield "|---|" + "---|" * len(names)
    for question in asked:
        cells = [values.get(f"{name}_{question}") for name in names]
        yield f"| {question.replace('_', ' ')} | " + " | ".join("–" if cell is None else f"{cell:g}" for cell in cells) + " |"


def write(path: Path, table: str) -> None:
    """Put the table between its markers in a file.

    Raises:
        ValueError: The file has no markers.
    """
    text = path.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise ValueError(f"{path} must have the markers {BEGIN} and {END}")
    head, tail = text.partition(BEGIN)[0], text.partition(END)[2]
    path.write_text(f"{head}{BEGIN}\n{table}\n{END}{tail}", encoding="utf-8")


def main(*, as_json: bool, into: Path | None, only_installed: bool) -> int:
    """Run it, print the table, and write it where that is asked for."""
    rivals = [rival for rival in RIVALS if not rival.packages] if only_installed else list(RIVALS)
    columns = compare(rivals)
    breakers: Mapping[str, float] | None = None
    if not only_installed:
        from tests.benchmarks import breaker

        breakers = breaker.run()
    today = dt.datetime.now(dt.UTC).date()
    table = markdown(columns, today=today, breakers=breakers)
    print(table)
    if into is not None:
        write(into, table)
    if as_json:
        found = [
            {
                "name": column.rival.name,
                "version": column.version,
                "note": column.rival.note,
                "failed": column.failed,
                "cells": column.cells,
            }
            for column in columns
        ]
        print(json.dumps({"rivals": {"date": today.isoformat(), "columns": found, "breakers": dict(breakers or {})}}))
    return 0
