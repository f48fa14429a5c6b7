"""The sweep campaign: killed sweepers on expiring sessions, and one summary per session.

Run it in full with ``python -m tests.faults.sweep --sessions 1000 --sweepers 50 --json``.
"""

import argparse
import json
import logging
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from strands import Agent

from strands_manga_memory import (
    USER_MEMORY,
    ConversationScope,
    SessionFinalizer,
    SessionSweeper,
    StoreError,
    TieredSessionManager,
    TtlPolicy,
    UserMemoryStore,
    open_hot_store,
    open_table,
)
from strands_manga_memory.testing import ScriptedModel
from tests import servers
from tests.faults.forks import Child, forked_child

_TTL = TtlPolicy(seconds=0.2)
_LEASE = 2.0


@dataclass(frozen=True)
class Stores:
    """Where sessions and memories are kept."""

    hot: str
    durable: str
    memories: str


@dataclass
class Report:
    """What a campaign found."""

    sessions: int
    sweepers: int
    seed: int
    kills: int = 0
    rounds: int = 0
    missing: int = 0
    doubled: int = 0
    rewritten: int = 0
    hot_left: int = 0
    seconds: float = 0.0

    @property
    def is_clean(self) -> bool:
        """Whether every session has one summary, and nothing is left in the hot tier."""
        return not (self.missing or self.doubled or self.rewritten or self.hot_left)


def campaign(
    stores: Stores, *, sessions: int, sweepers: int, seed: int, within: float = 600.0
) -> Report:
    """Hold the sessions, let them expire, sweep and kill until all is done, and count."""
    report, chance, start = Report(sessions, sweepers, seed), random.Random(seed), time.monotonic()
    _hold(stores, sessions)
    children = [forked_child(lambda parent: _sweep(parent, stores)) for _ in range(sweepers)]
    try:
        while time.monotonic() - start < within:
            report.rounds += 1
            victim = chance.randrange(len(children))
            said = children[victim].listen(chance.uniform(0.0, 0.2))
            if said and "error" in said:
                raise RuntimeError(said["error"])
            if report.kills < 4 * sweepers:
                children[victim].kill()
                report.kills += 1
                children[victim] = forked_child(lambda parent: _sweep(parent, stores))
            if report.rounds % 10 == 0 and not any(_left(stores)):
                break
    finally:
        for child in children:
            child.kill()
    report.hot_left = sum(1 for _ in _left(stores))
    table = open_table(stores.memories, USER_MEMORY)
    for number in range(sessions):
        found = UserMemoryStore(table, user_id=f"u{number}").recall(
            type="interaction_summary", limit=None
        )
        report.missing += not found
        report.doubled += max(0, len(found) - 1)
        report.rewritten += any(record.version > 1 for record in found)
    table.close()
    report.seconds = round(time.monotonic() - start, 1)
    return report


def _hold(stores: Stores, sessions: int) -> None:
    hot, durable = open_hot_store(stores.hot), open_table(stores.durable)
    for number in range(sessions):
        manager = TieredSessionManager(
            ConversationScope(f"u{number}", "s"),
            hot=hot,
            durable=durable,
            ttl=_TTL,
            hot_deadline=10.0,
            durable_deadline=10.0,
        )
        agent = Agent(
            model=ScriptedModel(["Noted."] * 2),
            session_manager=manager,
            agent_id="default",
            callback_handler=None,
        )
        agent(f"I want volume {number} of 『Series {number % 7}』, my favorite genre is horror.")
        manager.close()
    hot.close()
    durable.close()


def _sweep(parent: Child, stores: Stores) -> None:
    logging.disable(logging.WARNING)
    hot, durable, memories = (
        open_hot_store(stores.hot),
        open_table(stores.durable),
        open_table(stores.memories, USER_MEMORY),
    )
    finalizer = SessionFinalizer(hot=hot, durable=durable, memories=memories, ttl=_TTL)
    sweeper = SessionSweeper(hot=hot, durable=durable, finalizer=finalizer, ttl=_TTL, lease=_LEASE)
    while True:
        try:
            if not sweeper.run_once(limit=10):
                parent.listen(0.05)
        except StoreError:  # a busy machine: the next round does it
            parent.listen(0.05)


def _left(stores: Stores) -> Iterator[str]:
    hot = open_hot_store(stores.hot)
    yield from (name for name in hot.expired(limit=1_000_000) if not name.startswith("profile/"))
    hot.close()


@contextmanager
def running() -> Iterator[Stores]:
    """Run Valkey, and keep the tables in a file."""
    # What is put off in this process may open the file once more while the folder is deleted.
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        servers.valkey() as valkey,
    ):
        stores = Stores(
            f"{valkey.url}?deadline=5",
            *[f"sqlite:///{Path(folder) / name}" for name in ("durable", "memories")],
        )
        for table in (open_table(stores.durable), open_table(stores.memories, USER_MEMORY)):
            table.create_if_missing()
            table.close()
        yield stores


def main() -> int:
    """Run a campaign from the command line; 1 if a summary is missing, doubled or written twice."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--sweepers", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object on one line")
    arguments = parser.parse_args()
    os.environ.update(
        AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test", AWS_EC2_METADATA_DISABLED="true"
    )
    with running() as stores:
        report = campaign(
            stores, sessions=arguments.sessions, sweepers=arguments.sweepers, seed=arguments.seed
        )
    print(json.dumps(asdict(report)) if arguments.json else report)
    return 0 if report.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
