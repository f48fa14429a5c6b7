"""Runner: output and exit status on made-up benchmarks; and the counts of the wires."""

import asyncio
import importlib
import json
import socket
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.benchmarks import __main__ as runner
from tests.benchmarks import wire

Register = Callable[..., None]


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Register:
    """Return a function that adds a benchmark with the given values, one mapping for each run."""

    def add(name: str, budgets: dict[str, Any], *runs: dict[str, float]) -> None:
        values = iter(runs)
        monkeypatch.setitem(
            sys.modules,
            f"tests.benchmarks.{name}",
            SimpleNamespace(BUDGETS=budgets, run=lambda: next(values)),
        )
        monkeypatch.setattr(runner, "NAMES", [*runner.NAMES, name])

    return add


def test_json_is_the_last_line(register: Register, capsys: pytest.CaptureFixture[str]) -> None:
    register("made_up", {"trips": "== 1", "size": 10}, {"trips": 1, "size": 11, "seen": 0.123456})
    assert runner.main(["made_up", "--json"]) == 0
    shown = capsys.readouterr()
    assert "missed: made_up size" in shown.err
    assert json.loads(shown.out.splitlines()[-1]) == {
        "made_up": {
            "trips": {"value": 1.0, "budget": "== 1", "ok": True},
            "size": {"value": 11.0, "budget": "<= 10", "ok": False},
            "seen": {"value": 0.1235, "budget": None, "ok": True},
        }
    }


@pytest.mark.parametrize(
    ("budget", "status"), [("<= 5", 0), ("< 5", 1), ("== 5", 0), (">= 6", 1), (5, 0), (4.9, 1)]
)
def test_check_exits_with_1_on_a_missed_budget(
    register: Register, budget: str | float, status: int
) -> None:
    register("made_up", {"trips": budget}, {"trips": 5})
    assert runner.main(["made_up", "--check"]) == status


def test_missed_timings_are_run_again_and_each_keeps_its_best(
    register: Register, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [{"one_ms": 0.5, "two_ms": 9.0, "trips": 1}, {"one_ms": 7.0, "two_ms": 0.25, "trips": 1}]
    register("made_up", {"one_ms": "< 1", "two_ms": "< 1", "trips": "== 1"}, *runs)
    assert runner.main(["made_up", "--json", "--check"]) == 0
    shown = capsys.readouterr().out
    assert "best timings of 2 runs" in shown
    assert {
        name: row["value"] for name, row in json.loads(shown.splitlines()[-1])["made_up"].items()
    } == {"one_ms": 0.5, "two_ms": 0.25, "trips": 1.0}


@pytest.mark.parametrize("name", runner.NAMES)
def test_every_benchmark_has_a_run_and_budgets_that_can_be_read(name: str) -> None:
    module = importlib.import_module(f"tests.benchmarks.{name.replace('-', '_')}")
    assert callable(module.run)
    assert module.BUDGETS
    for row in runner.rows_of(dict.fromkeys(module.BUDGETS, 0.0), module.BUDGETS):
        assert row.ok in (True, False)


def chunk(*, sent: bool, data: bytes = b"", connection: int = 1) -> wire.Chunk:
    return wire.Chunk((9, connection), sent, data)


def test_requests_that_are_under_way_together_are_one_round() -> None:
    ask, answer = chunk(sent=True), chunk(sent=False)
    assert wire.rounds([]) == 0
    assert wire.rounds([ask, ask, answer, answer]) == 1
    assert wire.rounds([ask, answer, ask, ask, answer, answer]) == 2


def http(operation: str, body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    head = (
        f"POST / HTTP/1.1\r\nX-Amz-Target: DynamoDB_20120810.{operation}\r\nContent-Length:"
        f" {len(data)}\r\n\r\n"
    )
    return head.encode() + data


def test_requests_are_read_from_the_bytes_of_each_connection() -> None:
    one, two = http("GetItem", {"n": 1}) + http("PutItem", {"n": 2}), http("Query", {"n": 3})
    log = [
        chunk(sent=True, data=one[:50]),
        chunk(sent=True, data=two, connection=2),
        chunk(sent=False, data=b"HTTP/1.1 200 OK"),
        chunk(sent=True, data=one[50:]),
    ]
    assert [(request.operation, request.body["n"]) for request in wire.requests(log)] == [
        ("GetItem", 1),
        ("PutItem", 2),
        ("Query", 3),
    ]


def test_a_write_costs_a_unit_for_each_begun_kb_of_the_larger_item() -> None:
    units = wire.Units()
    key = {"session_id": {"S": "s"}, "sk": {"S": "k"}}

    def write_units(operation: str, size: int = 0) -> float:
        item = {**key, "data": {"B": "QUJD" * (size // 3)}}
        before = units.writes
        units.take([wire.Request(operation, {"TableName": "t", "Item": item, "Key": key})])
        return units.writes - before

    assert [write_units("PutItem", size) for size in (900, 3000, 900)] == [1, 3, 3], (
        "a replaced item counts"
    )
    assert write_units("GetItem") == 0
    assert write_units("DeleteItem") == 1


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_sockets_used_on_an_event_loop_are_told_from_others(listener: socket.socket) -> None:
    port = listener.getsockname()[1]

    async def use() -> None:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"x")

    with wire.socket_use(port) as found:
        asyncio.run(use())
        on_loop = found.on_loops
        asyncio.run(
            asyncio.to_thread(lambda: socket.create_connection(("127.0.0.1", port)).close())
        )
    assert on_loop == 2
    assert found.on_loops == 2
    assert found.elsewhere == 1
    assert "sendall" not in socket.socket.__dict__
