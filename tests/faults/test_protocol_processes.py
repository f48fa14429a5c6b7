"""Real processes share a conversation in real stores, and are killed at any moment."""

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from strands_manga_memory.stores.codec import load
from tests import servers
from tests.faults.protocol.process import Opener

KILLS = 2


def acknowledged_in(journal: Path) -> list[str]:
    """Return the names of the turns that a process journalled; a line that a kill cut is none."""
    return journal.read_text(encoding="utf-8").split("\n")[:-1] if journal.exists() else []


def start(
    urls: tuple[str, str], session: str, worker: str, journal: Path, *, seconds: float
) -> subprocess.Popen[bytes]:
    """Start a process that takes turns for some seconds."""
    command = [
        sys.executable,
        "-m",
        "tests.faults.protocol.process",
        *urls,
        session,
        worker,
        str(journal),
        str(seconds),
    ]
    return subprocess.Popen(command)


def check(opener: Opener, acknowledged: list[str], *, tiers: list[dict[str, bool]]) -> None:
    """Check that each acknowledged turn is whole, once and in order, and restores are equal."""
    storage = opener.load()
    storage.flush()
    log = [[load(m)["content"][0]["text"] for m in turn.messages] for _, turn in storage.history()]
    assert [name for name, count in Counter(turn[0] for turn in log).items() if count > 1] == []
    whole = [turn[0] for turn in log if turn == [turn[0], f"answer to {turn[0]}"]]
    assert [name for name in acknowledged if name not in whole] == []
    for worker in {name.partition(".")[0] for name in whole}:
        numbers = [int(n.partition(".")[2]) for n in whole if n.partition(".")[0] == worker]
        assert numbers == sorted(numbers)
    windows = [
        [reader.local.message(slot) for slot in reader.local.window]
        for reader in (opener.load(**one) for one in tiers)
    ]
    assert None not in windows[0]
    assert all(window == windows[0] for window in windows)


@pytest.fixture(
    params=[
        "valkey+dynamodb",
        *(pytest.param(kind, marks=pytest.mark.long) for kind in ("valkey", "valkey+sqlite")),
    ]
)
def urls(
    request: pytest.FixtureRequest, tmp_path: Path, unique: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, str]:
    """URLs of the stores."""
    hot = request.getfixturevalue("valkey_server").url
    if request.param == "valkey":
        return hot, ""
    if request.param == "valkey+sqlite":
        return hot, f"sqlite:///{tmp_path}/sessions.sqlite3"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    return hot, request.getfixturevalue("dynamodb_server").table_url(f"protocol_{unique}")


def test_processes_that_are_killed_lose_no_acknowledged_turn(
    urls: tuple[str, str], tmp_path: Path, unique: str
) -> None:
    """One of three processes at a time is killed and replaced."""
    opener = Opener(*urls, f"s-{unique}")
    opener.load()
    running = {
        f"w{at}": start(urls, f"s-{unique}", f"w{at}", tmp_path / f"w{at}", seconds=120)
        for at in range(3)
    }
    for kill in range(KILLS):
        servers.wait_until(
            lambda: [name for name in running if acknowledged_in(tmp_path / name)],
            "an acknowledged turn",
        )
        time.sleep(random.uniform(0.1, 0.4))
        name = random.choice([name for name in running if acknowledged_in(tmp_path / name)])
        process = running.pop(name)
        process.kill()
        process.wait()
        running[f"w{kill + 3}"] = start(
            urls, f"s-{unique}", f"w{kill + 3}", tmp_path / f"w{kill + 3}", seconds=120
        )
    servers.wait_until(
        lambda: sum(len(acknowledged_in(path)) for path in tmp_path.glob("w*")) >= 10,
        "ten acknowledged turns",
    )
    for process in running.values():
        process.kill()
        process.wait()
    acknowledged = [line for path in tmp_path.glob("w*") for line in acknowledged_in(path)]
    both = [{}, {"hot": False}, {"durable": False}] if urls[1] else [{}]
    check(opener, acknowledged, tiers=both)


def test_hot_tier_that_loses_everything_costs_at_most_the_unflushed_turns(
    tmp_path: Path, unique: str, monkeypatch: pytest.MonkeyPatch, dynamodb_server: servers.DynamoDB
) -> None:
    """A live agent stores its turns again; without it, unflushed turns go."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with servers.valkey() as valkey:
        urls = valkey.url, dynamodb_server.table_url(f"protocol_{unique}")
        opener = Opener(*urls, f"s-{unique}")
        opener.load()
        running = [
            start(urls, f"s-{unique}", f"w{at}", tmp_path / f"w{at}", seconds=2.5)
            for at in range(2)
        ]
        client = valkey.client()
        for _ in range(3):
            servers.wait_until(
                lambda: any(acknowledged_in(path) for path in tmp_path.glob("w*")),
                "an acknowledged turn",
            )
            time.sleep(0.3)
            client.flushall()
        assert [process.wait(60) for process in running] == [0, 0]
        client.close()
        acknowledged = [line for path in tmp_path.glob("w*") for line in acknowledged_in(path)]
        assert len(acknowledged) >= 10
        log = {
            load(turn.messages[0])["content"][0]["text"]: len(turn.messages)
            for _, turn in opener.load().history()
        }
        # Where an agent is built for each request, turns since the last flush go with the hot tier
        # and their agent. A turn that was saved in parts may have been flushed between them: its
        # second part goes.
        assert len([name for name in acknowledged if log.get(name) != 2]) <= 3 * 10
        kept = [name for name in acknowledged if log.get(name) == 2]
        check(opener, kept, tiers=[{}, {"hot": False}, {"durable": False}])
