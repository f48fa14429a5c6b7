"""scale: percentiles at 12 and 50 messages per second, a peak, a soak test.

At 12 and 50 messages per second, each message is answered by an agent that is restored for it, over
Valkey and the DynamoDB API. At 500 per second, the agents of 10,000 sessions stay in two processes,
over a Valkey cluster of three nodes and SQLite, because the DynamoDB emulator is a Python process
that would need the processors for itself.

``--minutes`` is the duration of the peak (10), ``--soak`` the minutes of 50 messages per second
with sessions that end and begin (none), ``--plot`` the folder for plots.
"""

import multiprocessing
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from tests import servers
from tests.benchmarks import progress
from tests.benchmarks.load import work

MOST_RUNS = 1
"""Runs of this benchmark.
A missed timing is not repeated automatically, because a run takes long.
"""

MINUTES = 10.0
SOAK = 0.0
PLOT: Path | None = None

RATES = (12, 50)
PEAK = 500
SESSIONS = 10_000
PROCESSES = 2

_RATE_SECONDS = 40
_BARE_SECONDS = 10
_RATE_SESSIONS = 400
_SOAK_SESSIONS = 200
_CHECKED = 100

BUDGETS: dict[str, str | float] = {
    **{
        f"{what}_{share}_ms_at_{rate}": f"<= {most}"
        for rate in RATES
        for what, limits in {
            "hot_load": (0.3, 0.8),
            "durable_load": (3, 8),
            "serialization": (0.1, 0.5),
            "breaker_check": (0.01, 0.05),
            "layer": (4, 10),
        }.items()
        for share, most in zip(("p50", "p99"), limits, strict=True)
    },
    "peak_share_of_messages_answered": ">= 0.99",
    "peak_turns_lost": "== 0",
    "peak_unsaved_at_end": "== 0",
    "peak_backlog_at_end": "== 0",
    "peak_backlog_late_over_early": "<= 2",
    "peak_threads_of_a_process": "<= 40",
    "peak_sockets_of_a_process": "<= 160",
}
_SOAK_BUDGETS = {
    f"soak_{what}_late_over_early": "<= 1.1" for what in ("resident_mb", "threads", "descriptors")
}

_firsts = count(0, 10_000_000)


class Worker:
    """Handle of a process under load."""

    def __init__(self, hot: str, durable: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, there = context.Pipe()
        self._process = context.Process(
            target=work, args=(there, hot, durable, next(_firsts)), daemon=True
        )
        self._process.start()
        there.close()

    def call(self, name: str, *arguments: Any, **named: Any) -> Any:
        """Call a method of the process's ``Load``, and return its result."""
        self._pipe.send((name, arguments, named))
        return self._pipe.recv()

    def end(self) -> None:
        """Have the process close everything and exit."""
        self._pipe.send(("end",))
        if not self._pipe.poll(120) or self._pipe.recv() != "ended":
            raise RuntimeError("a process under load did not end in good order")
        self._process.join()


@contextmanager
def _workers(number: int, hot: str, durable: str) -> Iterator[list[Worker]]:
    workers = [Worker(hot, durable) for _ in range(number)]
    yield workers
    for worker in workers:
        worker.end()


def _each(workers: Sequence[Worker], name: str, *arguments: Any, **named: Any) -> list[Any]:
    """Call a method of all workers at the same time."""
    with ThreadPoolExecutor(len(workers)) as pool:
        return list(pool.map(lambda worker: worker.call(name, *arguments, **named), workers))


@contextmanager
def _waiting(seconds: float, label: str) -> Iterator[None]:
    """Show the progress of a block that takes about ``seconds``, in another thread."""
    over = threading.Event()

    def show() -> None:
        for _ in progress(range(max(1, round(seconds))), label):
            if over.wait(1.0):
                return

    threading.Thread(target=show, daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _run(
    workers: Sequence[Worker], rate: float, seconds: float, label: str, **named: Any
) -> list[dict[str, Any]]:
    with _waiting(seconds, f"{rate:g} messages a second for {seconds:g} s ({label})"):
        return _each(workers, "run", rate / len(workers), seconds, **named)


def _percentiles(name: str, seconds: Sequence[float]) -> dict[str, float]:
    if len(seconds) < 2:
        return {f"{name}_p50_ms": float("nan"), f"{name}_p99_ms": float("nan")}
    cuts = quantiles(seconds, n=100, method="inclusive")
    return {f"{name}_p50_ms": 1000 * cuts[49], f"{name}_p99_ms": 1000 * cuts[98]}


def _at(rows: Mapping[str, float], rate: float) -> dict[str, float]:
    return {f"{name}_at_{rate:g}": value for name, value in rows.items()}


def _rates(hot: str, dynamodb: servers.DynamoDB) -> dict[str, float]:
    """Measure a stateless worker, and the servers' clients alone."""
    rows: dict[str, float] = {}
    with _workers(1, hot, dynamodb.table_url("manga_scale")) as [worker]:
        worker.call("begin", _RATE_SESSIONS)
        worker.call("run", 20, 5, stateless=True)
        for rate in RATES:
            [found] = _run([worker], rate, _RATE_SECONDS, "restored for each", stateless=True)
            turns = found["turns"]
            bare = worker.call("bare", hot, dynamodb.endpoint, rate, _BARE_SECONDS)
            rows |= _at(
                {
                    **_percentiles("hot_load", found["hot.load"]),
                    **_percentiles("hot_write", found["hot.write"]),
                    **_percentiles("durable_load", found["durable.get"]),
                    **_percentiles("serialization", turns["serialization"]),
                    **_percentiles("breaker_check", turns["breaker_check"]),
                    **_percentiles("breaker_outcome", turns["breaker_outcome"]),
                    **_percentiles("layer", turns["layer"]),
                    **_percentiles("turn", turns["seconds"]),
                    **_percentiles("bare_hot_read", bare["hot"]),
                    **_percentiles("bare_durable_read", bare["durable"]),
                    "messages_answered": len(turns["layer"]),
                },
                rate,
            )
    return rows


def _peak(hot: str, nodes: Sequence[servers.Valkey]) -> dict[str, float]:
    """Measure a sustained load of ten times the peak."""
    seconds = 60 * MINUTES
    with (
        tempfile.TemporaryDirectory() as folder,
        _workers(PROCESSES, hot, f"sqlite:///{folder}/scale.sqlite3") as workers,
    ):
        with _waiting(SESSIONS / 100, f"beginning {SESSIONS:,} sessions"):
            begun = _each(workers, "begin", SESSIONS // PROCESSES)
        parts = _run(workers, PEAK, seconds, "agents stay", stateless=False)
        clients = sum(_clients(node) for node in nodes)
        lost = sum(_each(workers, "lost", _CHECKED // PROCESSES))
    turns = {
        name: [value for part in parts for value in part["turns"][name]]
        for name in ("late", "seconds", "layer")
    }
    answered = len(turns["late"])
    asked = answered + sum(part["turned_away"] for part in parts)
    on_time = sum(late < 1.0 for late in turns["late"])
    timelines = [part["timeline"] for part in parts]
    if PLOT is not None:
        _plot_timeline("peak", timelines)
    backlogs = [
        [
            sum(moment)
            for moment in zip(
                *([point["backlog"] for point in line] for line in timelines), strict=False
            )
        ]
    ]
    return {
        "peak_sessions": SESSIONS,
        "peak_messages": answered,
        "peak_messages_a_second": answered / seconds,
        "peak_share_of_messages_answered": on_time / max(1, asked),
        **{f"peak_{name}": value for name, value in _percentiles("layer", turns["layer"]).items()},
        **{f"peak_{name}": value for name, value in _percentiles("turn", turns["seconds"]).items()},
        **{f"peak_{name}": value for name, value in _percentiles("late", turns["late"]).items()},
        "peak_turns_lost": lost,
        "peak_unsaved_at_end": sum(part["unsaved_at_end"] for part in parts),
        "peak_backlog_at_end": sum(part["backlog_at_end"] for part in parts),
        "peak_backlog_at_most": max(map(max, backlogs)),
        "peak_backlog_late_over_early": _late_over_early(backlogs[0]),
        "peak_threads_of_a_process": max(point["threads"] for line in timelines for point in line),
        "peak_sockets_of_a_process": max(point["sockets"] for line in timelines for point in line),
        "peak_connections_to_valkey": clients,
        "peak_resident_mb_of_a_process": max(
            point["resident_mb"] for line in timelines for point in line
        ),
        "kb_of_memory_per_session": max(part["kb_per_session"] for part in begun),
        "kb_of_memory_per_session_at_end": max(part["kb_per_session"] for part in parts),
        "kb_of_memory_per_bare_agent": max(part["kb_per_bare_agent"] for part in begun),
    }


def _clients(node: servers.Valkey) -> int:
    with node.client() as client:
        return int(client.info("clients")["connected_clients"])


def _late_over_early(values: Sequence[float]) -> float:
    """Return the ratio of the last quarter to the second.

    During the first quarter, everything fills up.
    """
    quarter = max(1, len(values) // 4)
    return (1 + median(values[-quarter:])) / (1 + median(values[quarter : 2 * quarter] or values))


def _soak(hot: str) -> dict[str, float]:
    """Measure sessions that end and begin for a long time: nothing may keep growing."""
    with (
        tempfile.TemporaryDirectory() as folder,
        _workers(1, hot, f"sqlite:///{folder}/soak.sqlite3") as workers,
    ):
        workers[0].call("begin", _SOAK_SESSIONS)
        parts = _run(workers, RATES[-1], 60 * SOAK, "soak", stateless=False, churn=True)
    if PLOT is not None:
        _plot_timeline("soak", [part["timeline"] for part in parts])
    [line] = [part["timeline"] for part in parts]
    rows = {f"soak_{w}_late_over_early": _late_over_early([p[w] for p in line]) for w in _GROWS}
    return {
        "soak_minutes": SOAK,
        "soak_messages": sum(point["messages"] for point in line),
        **{f"soak_{what}_at_end": line[-1][what] for what in _GROWS},
        **rows,
    }


_WORDS = {
    "layer_p50_ms": "layer, median, ms",
    "layer_p99_ms": "layer, 99 %, ms",
    "messages": "messages a second",
    "resident_mb": "memory, MB",
    "threads": "threads",
    "backlog": "work that waits",
}
"""Labels of the measurements in plots."""

_GROWS = ("resident_mb", "threads", "descriptors")


def _plot_timeline(name: str, timelines: Sequence[Sequence[Mapping[str, float]]]) -> None:
    pyplot = _pyplot()
    shown = ("layer_p50_ms", "layer_p99_ms", "messages", "resident_mb", "threads", "backlog")
    figure, axes = pyplot.subplots(len(shown), 1, figsize=(9, 12), sharex=True)
    for axis, what in zip(axes, shown, strict=True):
        for number, line in enumerate(timelines, 1):
            axis.plot([p["at"] for p in line], [p[what] for p in line], label=f"process {number}")
        axis.set_ylabel(_WORDS[what])
        axis.set_ylim(bottom=0)
    axes[-1].set_xlabel("seconds")
    axes[0].legend()
    _save(figure, name)


def _pyplot() -> Any:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    return plt


def _save(figure: Any, name: str) -> None:
    PLOT.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(PLOT / f"{name}.png")


def run() -> dict[str, float]:
    """Measure everything; the soak test only on request."""
    global BUDGETS
    os.environ.update(
        AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test", AWS_EC2_METADATA_DISABLED="true"
    )
    rows: dict[str, float] = {}
    with servers.valkey() as valkey, servers.dynamodb() as dynamodb:
        rows |= _rates(valkey.url, dynamodb)
    with servers.valkey_cluster() as cluster:
        rows |= _peak(cluster.url, cluster.nodes)
        if SOAK:
            BUDGETS = {**BUDGETS, **_SOAK_BUDGETS}
            rows |= _soak(cluster.url)
    return rows
