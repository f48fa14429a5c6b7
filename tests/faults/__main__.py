"""The fault campaign: ``python -m tests.faults --seeds 1000 --start 0 --jobs 2``.

Each seed is a scenario on real servers: Valkey (alone, with a replica, or a cluster of three) and
the DynamoDB API, SQLite or PostgreSQL, two to five worker processes with Strands agents, and
whatever goes wrong meanwhile. Afterwards the journals of the workers are compared with what is
stored. A seed always draws the same scenario; processes and servers keep their own time, so it may
take a few repetitions until one that failed fails again.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import queue
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, get_args

from tests.faults.scenario import Durable, Hot

_AWS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_EC2_METADATA_DISABLED": "true",
}
_MOST_WRONGS = 12


@contextmanager
def _bar(total: int) -> Iterator[Any]:
    """Show the progress of the seeds in a terminal; yield the function to call after each."""
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    with Progress(
        "seeds",
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    ) as progress:
        task = progress.add_task("seeds", total=total)
        yield lambda: progress.advance(task)


def _finished(journal: Path | None) -> dict[int, bool]:
    """Return the seeds that a journal of an earlier run has, and whether they passed."""
    if journal is None or not journal.exists():
        return {}
    found = {}
    for line in journal.read_text().splitlines():
        with suppress(json.JSONDecodeError):  # cut by a kill
            found[json.loads(line)["seed"]] = json.loads(line)["passed"]
    return found


def _repeat(seed: int, tiers: dict[str, Any]) -> str:
    options = "".join(f" --{name} {value}" for name, value in tiers.items() if value)
    return f"uv run python -m tests.faults --seeds 1 --start {seed}{options}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign from the command line; 1 if a seed failed, 130 if it was interrupted."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many (default 100)")
    parser.add_argument("--start", type=int, default=0, help="the first one (default 0)")
    parser.add_argument(
        "--jobs",
        type=int,
        default=1,
        help="how many at a time, each on servers of its own (default 1)",
    )
    parser.add_argument(
        "--resume", type=Path, metavar="FILE", help="skip the seeds FILE has, and note others in it"
    )
    parser.add_argument("--hot", choices=get_args(Hot), help="always this hot tier")
    parser.add_argument("--durable", choices=get_args(Durable), help="always this durable tier")
    options = parser.parse_args(arguments)
    if options.seeds < 1 or options.jobs < 1:
        parser.error("--seeds and --jobs must be at least 1")
    os.environ.update(_AWS)
    tiers = {"hot": options.hot, "durable": options.durable}
    wanted = range(options.start, options.start + options.seeds)
    passed = {seed: ok for seed, ok in _finished(options.resume).items() if seed in wanted}
    left = [seed for seed in wanted if seed not in passed]
    spawn = multiprocessing.get_context("spawn")
    seeds, results = spawn.Queue(), spawn.Queue()
    for seed in left:
        seeds.put(seed)
    jobs = _started(spawn, min(options.jobs, len(left)), seeds, results, tiers)
    is_interrupted = False
    running = len(jobs)
    with _bar(len(left)) as advance:
        while running:
            try:
                found = results.get(timeout=1.0)
            except queue.Empty:
                if not any(job.is_alive() for job in jobs):
                    print("the servers or the seeds' processes ended unexpectedly", file=sys.stderr)
                    break
                continue
            except KeyboardInterrupt:
                is_interrupted = True
                _take_back(seeds, len(jobs))
                continue
            if found is None:
                running -= 1
                continue
            seed, line, wrong, folder = found
            passed[seed] = not wrong
            print(line, flush=True)
            for what in wrong[:_MOST_WRONGS]:
                print(f"  {what}", flush=True)
            if wrong:
                print(
                    f"  {len(wrong)} in all; journals: {folder}; repeat: {_repeat(seed, tiers)}",
                    flush=True,
                )
            if options.resume is not None:
                with options.resume.open("a") as journal:
                    journal.write(
                        "\n" + json.dumps({"seed": seed, "passed": not wrong, "wrong": wrong[:3]})
                    )
            advance()
    for job in jobs:
        job.join()
    failed = [seed for seed, ok in sorted(passed.items()) if not ok]
    if is_interrupted:
        print(f"interrupted; {len(wanted) - len(passed)} seeds were not run", file=sys.stderr)
    elif len(passed) < len(wanted):
        failed += [seed for seed in wanted if seed not in passed]
    print(f"{sum(passed.values())} passed, {len(failed)} failed", flush=True)
    return 130 if is_interrupted else 1 if failed else 0


def _started(context: Any, number: int, *arguments: Any) -> list[Any]:
    if not number:
        return []
    from tests.faults.campaign import serve  # takes its time, as it imports all there is

    jobs = [context.Process(target=serve, args=arguments) for _ in range(number)]
    for job in jobs:
        arguments[0].put(None)
        job.start()
    return jobs


def _take_back(seeds: Any, jobs: int) -> None:
    """Let no further seed begin."""
    try:
        while True:
            seeds.get(timeout=0.05)
    except queue.Empty:
        for _ in range(jobs):
            seeds.put(None)


if __name__ == "__main__":
    sys.exit(main())
