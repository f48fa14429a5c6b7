"""Telemetry as an OpenTelemetry SDK receives it, in a process of its own."""

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from strands import Agent

from strands_manga_memory import MangaMemory, telemetry
from strands_manga_memory.stores import SQLiteTable
from strands_manga_memory.testing import ScriptedModel
from tests.integration import telemetry_child

pytestmark = pytest.mark.xdist_group("telemetry")  # its servers and processes are started once


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    command = [
        sys.executable,
        "-W",
        "error",
        telemetry_child.__file__,
        str(tmp_path_factory.mktemp("told")),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return {
        "text": done.stdout,
        "stats": json.loads(done.stderr.splitlines()[-1]),
        **json.loads(done.stdout),
    }


def test_everything_that_happens_has_a_span(told: dict[str, Any]) -> None:
    names = {span["name"] for span in told["spans"]}
    assert names >= {
        *("manga_memory.turn", "manga_memory.trim", "manga_memory.summary", "manga_memory.recall",
            "manga_memory.handoff"),
        *("manga_memory.breaker.transition", "manga_memory.restore", "put manga_sessions",
            "query manga_user_memory"),
    }  # fmt: skip
    assert all(span["seconds"] >= 0 for span in told["spans"])


def test_store_calls_of_a_turn_belong_to_it(told: dict[str, Any]) -> None:
    parents = {span["parent"] for span in told["spans"] if span["name"] == "put manga_sessions"}
    assert any(parent and parent.startswith("invoke_agent") for parent in parents)


def test_metrics_have_the_names_and_bounds_they_are_listed_with(told: dict[str, Any]) -> None:
    seen = {metric["name"]: metric for metric in told["metrics"]}
    listed = {metric.name: metric for metric in telemetry.metrics()}
    assert set(seen) == set(listed)  # every one of them happened
    for name, metric in seen.items():
        assert metric["unit"] == listed[name].unit
        if listed[name].buckets:
            shown = tuple(metric["data"]["data_points"][0]["explicit_bounds"])
            assert shown == listed[name].buckets
    assert {
        point["attributes"]["manga_memory.tier"]: point["value"]
        for point in seen["manga_memory.tier.up"]["data"]["data_points"]
    } == {"hot": 1, "durable": 1}
    calls = seen["db.client.operation.duration"]["data"]["data_points"]
    found = {"db.system.name", "db.operation.name", "manga_memory.tier"}
    assert found <= set(calls[0]["attributes"])


def test_a_missed_deadline_is_counted_by_its_tier(told: dict[str, Any]) -> None:
    missed = next(m for m in told["metrics"] if m["name"] == "manga_memory.deadlines.missed")
    tiers = {
        point["attributes"]["manga_memory.tier"]: point["value"]
        for point in missed["data"]["data_points"]
    }
    assert tiers["durable"] >= 1
    assert told["stats"]["missed_deadlines"] >= 1


class Held(SQLiteTable):
    """A table whose writes do not end while it is held."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.free = threading.Event()
        self.free.set()

    def put(self, *args: Any, **kwargs: Any) -> bool:
        self.free.wait(30)
        return super().put(*args, **kwargs)

    def transact(self, writes: Any) -> bool:
        self.free.wait(30)
        return super().transact(writes)


def test_a_turn_that_waits_in_vain_and_a_slow_build_are_counted(tmp_path: Path) -> None:
    table = Held(tmp_path / "s.db")
    memory = MangaMemory.open("memory://", table)

    def missed() -> int:
        return memory.stats()["missed_deadlines"]

    before = missed()
    kwargs = memory.agent_kwargs(user_id="u1", session_id="s1", durable_deadline=1.0)
    agent = Agent(model=ScriptedModel(), **kwargs)
    agent("hello")
    assert missed() == before
    table.free.clear()
    agent("and again")
    assert missed() == before + 1
    table.free.set()
    memory.agent(ScriptedModel(), user_id="u1", session_id="s2", durable_deadline=1e-9)
    assert missed() == before + 2
    memory.close()


def test_no_content_and_no_id_is_told(told: dict[str, Any]) -> None:
    for secret in (telemetry_child.CANARY, "secret-user", "secret-session"):
        assert secret not in told["text"]


def test_the_same_is_known_in_process(told: dict[str, Any]) -> None:
    calls = next(m for m in told["metrics"] if m["name"] == "db.client.operation.duration")
    counted: dict[str, int] = {}
    for point in calls["data"]["data_points"]:
        name = (
            f"{point['attributes']['manga_memory.tier']}.{point['attributes']['db.operation.name']}"
        )
        counted[name] = counted.get(name, 0) + point["count"]
    for name, count in told["operations"].items():
        if name.partition(".")[0] in ("hot", "durable", "memories"):
            assert counted[name] >= count > 0  # closing makes some more
    assert told["operations"]["turn"] == 36
    stats = told["stats"]
    assert (stats["hot"], stats["durable"], stats["turns"]) == ("up", "up", 31)
    assert 0 < stats["compression"] < 1
    assert stats["tokens"] <= stats["token_budget"]
