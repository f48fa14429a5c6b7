"""Commands ``doctor``, ``sweep`` and ``bench``, which run against the stores of a deployment."""

from __future__ import annotations

import signal
import threading
import time
import uuid
from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text
from strands import Agent

from strands_manga_memory.cli.options import (
    CodecName,
    Durable,
    Hot,
    Json,
    ModelName,
    Users,
    load_codec,
    load_object,
    open_memory,
    read_settings,
)
from strands_manga_memory.cli.output import (
    FAILED,
    console,
    messages,
    print_json,
    print_lines,
    print_table,
    progress,
)
from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.ops.doctor import diagnose
from strands_manga_memory.ops.stand_in import StandInModel
from strands_manga_memory.ops.store_checks import Finding, Level
from strands_manga_memory.telemetry import FLUSH, OperationStats, recorder

_SIGNS = {
    Level.OK: Text("ok", "green"),
    Level.WARNING: Text("warning", "yellow"),
    Level.PROBLEM: Text("PROBLEM", "red"),
}


def doctor(
    hot: Hot = None,
    durable: Durable = None,
    users: Users = None,
    codec: CodecName = None,
    as_json: Json = False,
) -> int:
    """Check a deployment and print problems with remedies. Exits with 1 if there is a problem."""
    found: list[Finding] = []
    settings = read_settings(hot_url=hot, durable_url=durable, users_url=users)
    with progress("checks") as advance:
        for finding in diagnose(settings, codec=load_codec(codec)):
            found.append(finding)
            advance()
    counts = {level: sum(finding.level is level for finding in found) for level in Level}
    failed = counts[Level.PROBLEM] > 0
    if as_json:
        print_json({"ok": not failed, "findings": [asdict(finding) for finding in found]})
    else:
        lines: list[tuple[str | Text, ...]] = []
        for finding in found:
            lines.append((_SIGNS[finding.level], finding.check, finding.detail))
            lines += [("", "", f"-> {finding.remedy}")] if finding.remedy else []
        print_lines(lines)
        console().print(
            f"{counts[Level.PROBLEM]} problems, {counts[Level.WARNING]} warnings,"
            f" {counts[Level.OK]} checks passed"
        )
    return FAILED if failed else 0


_DEADLINES = {
    "hot.load": 0.05,
    "durable.batch_get": 0.05,
    "serialization": 0.01,
    "breaker.check": 0.001,
}
"""Seconds that the 99th percentile of an operation may take, keyed by operation."""


def bench(
    turns: Annotated[int, typer.Option(min=1, max=100_000, help="Number of turns.")] = 200,
    rate: Annotated[float, typer.Option(min=0.1, help="Maximum turns per second.")] = 50.0,
    sessions: Annotated[int, typer.Option(min=1, help="Number of conversations.")] = 10,
    size: Annotated[int, typer.Option(min=1, help="Bytes of each message.")] = 500,
    hot: Hot = None,
    durable: Durable = None,
    as_json: Json = False,
) -> None:
    """Hold scripted conversations on the stores, and show the time this package takes per turn.

    The results depend on your machine and network. The conversations are deleted at the end.
    Benchmarks that compare results with fixed limits are in the package's repository:
    ``python -m tests.benchmarks``.
    """
    memory = open_memory(hot_url=hot, durable_url=durable, telemetry=True)
    memory.durable.create_if_missing()
    recorder.stats()
    user = f"bench-{uuid.uuid4().hex}"
    text = ("manga " * (size // 6 + 1))[:size]
    model = StandInModel(text)

    def agent(number: int) -> Agent:
        return memory.agent(
            model, user_id=user, session_id=str(number), agent_id="bench", callback_handler=None
        )

    made = [agent(number) for number in range(sessions)]
    try:
        with progress("turns held") as advance:
            start = time.monotonic()
            for turn in range(turns):
                time.sleep(max(0.0, start + turn / rate - time.monotonic()))
                made[turn % sessions](text)
                advance()
            seconds = time.monotonic() - start
        for number in range(sessions):  # restore each conversation, as another process would
            agent(number)
        stats = memory.stats()["operations"]
    finally:
        with messages.status("deleting the conversations"):
            memory.forget_user(user)
            memory.close()
    _show(stats, turns / seconds, as_json=as_json)


def _show(stats: dict[str, OperationStats], rate: float, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "turns_a_second": round(rate, 1),
                "operations": {name: asdict(each) for name, each in stats.items()},
            }
        )
        return
    rows = []
    for name, each in stats.items():
        if name == FLUSH.name:  # not a time of work, but the age of messages
            continue
        values = [f"{1000 * value:,.2f}" for value in (each.p50, each.p95, each.p99, each.longest)]
        late = ""
        if (deadline := _DEADLINES.get(name)) is not None:
            late = f"{1000 * deadline:g}: {'met' if each.p99 <= deadline else 'MISSED'}"
        rows.append((name, f"{each.count:,}", *values, late))
    turn = stats["turn"]
    mean = f"{1000 * turn.sums['layer'] / turn.count:,.2f}"
    rows.append(("layer, mean of a turn", f"{turn.count:,}", mean, "", "", "", ""))
    print_table(
        f"{rate:,.1f} turns per second, times in milliseconds",
        ("operation", "count", "p50", "p95", "p99", "max", "deadline"),
        rows,
        right=(1, 2, 3, 4, 5),
    )


def sweep(
    loop: Annotated[
        bool, typer.Option("--loop/--once", help="Repeat until SIGTERM or Ctrl-C, or sweep once.")
    ] = False,
    every: Annotated[
        float, typer.Option(min=1.0, max=3600.0, help="Seconds between two sweeps of --loop.")
    ] = 60.0,
    limit: Annotated[
        int, typer.Option(min=1, help="Maximum conversations per tier and sweep.")
    ] = 100,
    hot: Hot = None,
    durable: Durable = None,
    users: Users = None,
    model: ModelName = None,
    codec: CodecName = None,
    as_json: Json = False,
) -> None:
    """Save and end expired sessions, and delete logs of sessions that ended long ago."""
    stop = threading.Event()
    if loop:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
    memory = open_memory(hot_url=hot, durable_url=durable, users_url=users, codec=codec)
    sweeper = memory.sweeper(None if model is None else load_object("--model", model))
    try:
        while True:
            start = time.monotonic()
            try:
                finished = sweeper.run_once(limit=limit)
            except StoreUnavailableError as error:
                if not loop:
                    raise
                messages.print(f"a store is unavailable, retrying: {error}")
                finished = 0
            seconds = time.monotonic() - start
            if as_json:
                print_json({"finished": finished, "seconds": round(seconds, 3)})
            elif finished or not loop:
                messages.print(f"{finished} conversations finalized in {seconds:.1f} s")
            # A sweep that reached its limit has left some for the next one.
            if not loop or stop.wait(0.0 if finished >= limit else every):
                break
    finally:
        memory.close()
