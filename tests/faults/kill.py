"""The kill -9 campaign: a killed worker's successor finds every acknowledged turn.

Run it for long with ``python -m tests.faults.kill --rounds 200 --backend services --json``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from strands.agent.conversation_manager import SlidingWindowConversationManager

from strands_manga_memory.session import TieredSessionManager, session_agent
from strands_manga_memory.stores import open_hot_store, open_table
from tests import servers
from tests.faults import talk
from tests.faults.forks import Child, forked_child
from tests.support import CUT_TEXT

Backend = Literal["services", "sqlite"]

_ROUNDS_A_SESSION = 12
_WORKER_WITHIN = 30.0


@dataclass(frozen=True)
class Stores:
    """Where the workers keep their conversations; ``hot`` is None for a durable tier alone."""

    hot: str | None
    durable: str

    def manager(self, session: str, **settings: Any) -> TieredSessionManager:
        """Return a session manager with stores of its own."""
        hot = open_hot_store(self.hot) if self.hot else None
        return TieredSessionManager(session, hot=hot, durable=open_table(self.durable), **settings)


@dataclass
class Report:
    """What a campaign found.

    Each of ``lost``, ``doubled`` and ``invalid`` says what, and in which round.
    """

    backend: str
    seed: int
    rounds: int = 0
    kills: int = 0
    acknowledged: int = 0
    late: int = 0
    cut_turns: int = 0
    restores: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether nothing was lost, doubled or invalid."""
        return not (self.lost or self.doubled or self.invalid)


@dataclass
class Ledger:
    """What the workers of one session have acknowledged."""

    session: str
    window_size: int | None
    turns: list[tuple[str, str]] = field(default_factory=list)
    live: list[str] = field(default_factory=list)
    begun: tuple[str, str] | None = None
    next: int = 0


def _worker(stores: Stores, ledger: Ledger, seed: int, turns: int) -> Child:
    """Fork a child that restores the session and takes turns until it is killed."""
    return forked_child(lambda parent: _work(parent, stores, ledger, random.Random(seed), turns))


def _work(parent: Child, stores: Stores, ledger: Ledger, rng: random.Random, turns: int) -> None:
    logging.disable(logging.CRITICAL)
    # Often a turn is saved in its middle, as one of more than a quarter of a second would be.
    session_agent._PENDING_SECONDS = rng.choice([1.0, 0.02, 0.001])
    sessions = stores.manager(ledger.session, flush_every=rng.choice([1, 2, 5]))
    window = ledger.window_size
    trimmer = (
        SlidingWindowConversationManager(window, should_truncate_results=False) if window else None
    )
    agent = talk.new_agent(
        sessions,
        conversation_manager=trimmer,
        delay=rng.choice([0.0, 0.002, 0.006]),
        record_direct_tool_call=True,
    )
    parent.say(restored=talk.plain(agent.messages), log=talk.plain(sessions.history("librarian")))
    for number in range(ledger.next, ledger.next + turns):
        tag, kind = f"t{number}", rng.choice(talk.KINDS)
        if rng.random() < 0.15:
            agent.tool.lookup(query=f"direct{number}")
        parent.say(begin=[tag, kind])
        agent(f"{tag} {kind}")
        late = sessions.stats("librarian")["unsaved_messages"]
        requests = [
            problem
            for request in agent.model.requests
            for problem in talk.request_problems(request.messages)
        ]  # type: ignore[attr-defined]
        agent.model.requests.clear()  # type: ignore[attr-defined]
        parent.say(
            done=[tag, kind], late=late, live=_digests(talk.plain(agent.messages)), invalid=requests
        )
    sessions.close()
    parent.say(closed=True)


def _digests(messages: Sequence[dict[str, Any]]) -> list[str]:
    return [
        hashlib.sha1(json.dumps(message).encode(), usedforsecurity=False).hexdigest()[:12]
        for message in messages
    ]


def campaign(stores: Stores, *, backend: str, rounds: int, seed: int, name: str = "kill") -> Report:
    """Kill ``rounds`` workers and return what was found of their sessions."""
    rng = random.Random(f"{seed}{backend}")
    report = Report(backend, seed)
    ledger = _new_ledger(name, 0, rng)
    for number in range(rounds):
        report.rounds += 1
        if number % _ROUNDS_A_SESSION == 0 and number:
            _closing(stores, ledger, report, rng)
            ledger = _new_ledger(name, number, rng)
        _round(stores, ledger, report, rng)
    _closing(stores, ledger, report, rng)
    return report


def _new_ledger(name: str, number: int, rng: random.Random) -> Ledger:
    return Ledger(f"{name}-{number}", rng.choice([None, 12]))


def _round(stores: Stores, ledger: Ledger, report: Report, rng: random.Random) -> None:
    worker = _worker(stores, ledger, rng.getrandbits(32), 1000)
    acknowledged = 0
    if rng.random() < 0.1:
        time.sleep(rng.uniform(0.0, 0.2))  # perhaps in the middle of its restore
        _note(ledger, report, worker.kill())
        report.kills += 1
        return
    wanted, has_begun = rng.randrange(4), False
    while acknowledged < wanted or not has_begun:
        said = worker.listen(_WORKER_WITHIN)
        if not said or "error" in said:
            report.invalid.append(f"round {report.rounds}: the worker ended: {said}")
            worker.kill()
            return
        _note(ledger, report, [said])
        acknowledged += "done" in said
        has_begun = "begin" in said
    time.sleep(rng.choice([0.0, rng.uniform(0.0, 0.015), rng.uniform(0.0, 0.06)]))
    _note(ledger, report, worker.kill())
    report.kills += 1


def _closing(stores: Stores, ledger: Ledger, report: Report, rng: random.Random) -> None:
    """End a session in good order, and look at what the durable tier alone has of it."""
    for alone in (False, True):
        worker = _worker(
            Stores(None, stores.durable) if alone else stores, ledger, rng.getrandbits(32), 2
        )
        said = worker.end()
        _note(ledger, report, said)
        if not said or "closed" not in said[-1]:
            report.invalid.append(f"round {report.rounds}: a last worker ended: {said[-1:]}")


def _note(ledger: Ledger, report: Report, said: list[dict[str, Any]]) -> None:
    for line in said:
        if "restored" in line:
            report.restores += 1
            _compare(ledger, report, line["restored"], line["log"])
            ledger.begun = None
        elif "begin" in line:
            ledger.begun = tuple(line["begin"])
            ledger.next += 1
        elif "done" in line:
            report.acknowledged += 1
            report.late += line["late"] > 0
            ledger.turns.append(tuple(line["done"]))
            ledger.live = line["live"]
            report.invalid += [
                f"round {report.rounds}: the request of {line['done']}: {problem}"
                for problem in line["invalid"]
            ]
            ledger.begun = None
        elif "error" in line:
            report.invalid.append(f"round {report.rounds}: {line['error']}")


def _compare(ledger: Ledger, report: Report, window: list[Any], log: list[Any]) -> None:
    where = f"round {report.rounds}, session {ledger.session}"
    request = talk.next_request(window)
    report.invalid += [f"{where}: {problem}" for problem in talk.request_problems(request)]
    report.cut_turns += bool(window) and (
        window[-1]["role"] == "user" or bool(talk.use_ids(window[-1]))
    )
    report.invalid += [
        f"{where}: a closing message is stored"
        for message in log
        if CUT_TEXT in json.dumps(message)
    ]
    for name, messages in (("window", window), ("log", log)):
        counted = talk.marks(messages)
        report.doubled += [
            f"{where}: {mark} in the {name} {n} times" for mark, n in counted.items() if n > 1
        ]
        expected = ledger.turns if name == "log" or not ledger.window_size else []
        report.lost += [
            f"{where}: {mark} is not in the {name}"
            for tag, kind in expected
            for mark in talk.wanted_marks(tag, kind)
            if mark not in counted
        ]
    order = [mark for message in log for mark in talk.marks([message]) if mark.startswith("user:t")]
    numbers = [int(mark[6:].split()[0]) for mark in order]
    if numbers != sorted(numbers):
        report.invalid.append(f"{where}: the log is out of order: {numbers}")
    acknowledged = {tag for tag, _ in ledger.turns}
    report.invalid += [
        f"{where}: in the log {pair}"
        for pair in talk.split_pairs(log)
        if any(f"'{tag}-" in pair for tag in acknowledged)
    ]
    restored = _digests(window)
    if ledger.window_size is None and restored[: len(ledger.live)] != ledger.live:
        report.invalid.append(f"{where}: the restored window is not the one that was acknowledged")
    ended = bool(ledger.turns) and f"{ledger.turns[-1][0]} answer" in str(window[-1:])
    if ledger.window_size and ended and restored != ledger.live:
        report.invalid.append(f"{where}: the restored window is not the one that was acknowledged")


@contextmanager
def running(backend: Backend) -> Iterator[Stores]:
    """Run the servers of a backend; a SQLite file for ``sqlite``."""
    with ExitStack() as stack:
        if backend == "sqlite":
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            stores = Stores(None, f"sqlite:///{Path(folder) / 'sessions.sqlite3'}")
        else:
            valkey, dynamodb = (
                stack.enter_context(servers.valkey()),
                stack.enter_context(servers.dynamodb()),
            )
            stores = Stores(valkey.url, dynamodb.table_url("kill_sessions"))
        table = open_table(stores.durable)
        table.create_if_missing()
        table.close()
        yield stores


def main() -> int:
    """Run a campaign from the command line; 1 if anything was lost, doubled or invalid."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--backend", choices=["services", "sqlite"], default="services")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object, with counts, on one line"
    )
    arguments = parser.parse_args()
    os.environ.update(
        AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test", AWS_EC2_METADATA_DISABLED="true"
    )
    with running(arguments.backend) as stores:
        report = campaign(
            stores, backend=arguments.backend, rounds=arguments.rounds, seed=arguments.seed
        )
    findings = [*report.lost, *report.doubled, *report.invalid]
    if arguments.json:
        counts = {
            key: len(value) if isinstance(value, list) else value
            for key, value in asdict(report).items()
        }
        print(json.dumps(counts))
    else:
        print(report)
    for finding in findings[:50]:
        print(finding, file=sys.stderr)
    return 0 if report.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
