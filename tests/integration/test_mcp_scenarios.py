"""Failures between an agent and an MCP server, on real servers of each kind."""

import asyncio
import json
import os
import signal
import threading
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from strands.tools.mcp import MCPClient

from strands_manga_memory import BreakerPolicy, GuardedMCPTools
from strands_manga_memory.mcp import ServerSupervisor
from strands_manga_memory.mcp.call import Call
from strands_manga_memory.testing import FakeClock
from tests import mcp_servers
from tests.integration.mcp_support import Answer, Shop, call, pass_time, policy, until
from tests.servers import wait_until

pytestmark = pytest.mark.xdist_group("mcp scenarios")  # its servers and processes are started once

IS_CLIENT_1 = version("mcp").startswith("1.")
LONG = (
    ("sdk", "stdio"),
    ("legacy", "http"),
)  # the others have both kinds of servers and both transports
KINDS = [
    pytest.param(kind, id="-".join(kind), marks=pytest.mark.long if kind in LONG else ())
    for kind in mcp_servers.KINDS
]
QUICK = {"hang": policy(timeout=0.15)}


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> tuple[str, str]:
    return request.param


@pytest.fixture(scope="module")
def client(kind: tuple[str, str]) -> Iterator[MCPClient]:
    """A client that no test of this module breaks."""
    with mcp_servers.client_of(*kind) as client:
        client.start()
        yield client


@pytest.fixture
def shop(client: MCPClient) -> Shop:
    """Its tools, with breakers that know of nothing yet."""
    return Shop(GuardedMCPTools(client, policy(), overrides=QUICK))


# --- a server that lives --------------------------------------------------------------------------


async def test_a_tool_that_works_is_answered_as_without_a_guard(shop: Shop) -> None:
    answer = await shop.call("ok", n=3)
    assert answer.result == (await call(shop["ok"].tool, {"n": 3})).result
    assert answer.result["content"] == [{"text": "ok 3"}]
    assert shop["ok"].status()["calls"] == 1


@pytest.mark.parametrize("name", ["boom", "reports"])
async def test_errors_of_a_tool_open_its_breaker_and_no_other(shop: Shop, name: str) -> None:
    answers = [await shop.call(name) for _ in range(6)]
    assert [answer.code for answer in answers] == ["tool_error"] * 5 + ["circuit_open"]
    assert "hunter2" not in json.dumps([answer.result for answer in answers])
    assert shop.state(name) == "open"
    assert shop[name].status()["calls"] == 5
    assert (await shop.call("ok")).status == "success"
    assert answers[-1].details["retry_after"] == pytest.approx(60, abs=30)


async def test_what_a_tool_reports_is_told_to_the_model(kind: tuple[str, str], shop: Shop) -> None:
    assert "no such order: ORD-1" in (await shop.call("reports")).text


async def test_wrong_arguments_never_count(shop: Shop) -> None:
    answers = [await shop.call("ok", n="many") for _ in range(20)]
    assert {answer.code for answer in answers} == {"invalid_arguments"}
    assert not answers[0].details["retryable"]
    assert "n" in answers[0].text
    status = shop["ok"].status()
    assert status["calls"] == 0
    assert status["rejected"] == 20
    assert status["state"] == "closed"
    assert status["health"] == "healthy"


async def test_an_unknown_tool_never_counts(client: MCPClient, shop: Shop) -> None:
    shop["ok"].tool.mcp_tool.name = "no_such_tool"
    assert {answer.code for answer in [await shop.call("ok") for _ in range(6)]} == {"unknown_tool"}
    assert shop.state("ok") == "closed"


async def test_a_hanging_tool_ends_in_time_and_cuts_nobody_elses_call(shop: Shop) -> None:
    other = asyncio.create_task(
        call(Shop(GuardedMCPTools(shop.guarded.client, policy()))["hang"], {"seconds": 0.9})
    )
    answers = [await shop.call("hang") for _ in range(5)]
    assert {answer.code for answer in answers} == {"timeout"}
    assert answers[0].details["side_effects_unknown"]
    assert (await other).status == "success"
    assert shop.state("hang") == "open"
    assert shop.guarded.supervisor.reconnects == 0
    assert (await shop.call("ok")).status == "success"


async def test_a_healthy_tool_answers_while_another_hangs(client: MCPClient) -> None:
    shop = Shop(GuardedMCPTools(client, policy(timeout=50)))
    hanging = [asyncio.create_task(shop.call("hang")) for _ in range(3)]
    healthy = [await shop.call("ok", n=n) for n in range(20)]
    assert {answer.status for answer in healthy} == {"success"}
    assert not any(task.done() for task in hanging)
    for task in hanging:
        task.cancel()
    await asyncio.wait(hanging)
    assert shop["hang"].breaker.failures == 0


async def test_progress_is_a_partial_result(
    kind: tuple[str, str], shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, record = [], Call.record_progress

    def count(one: Call, *progress: Any) -> None:
        record(one, *progress)
        seen.append(progress)

    monkeypatch.setattr(Call, "record_progress", count)
    has_stream = kind != ("legacy", "http")  # from the server to the client
    crawling = asyncio.create_task(shop.call("crawls"))
    await until(lambda: len(seen) == 3 if has_stream else shop["crawls"].status()["in_flight"])
    pass_time(20.0)
    answer = await crawling
    assert answer.code == "timeout"
    if has_stream:
        assert [s["message"] for s in answer.details["partial"]] == ["step 1", "step 2", "step 3"]
        assert "step 3" in answer.text


async def test_flood_of_progress_is_no_timeout(
    client: MCPClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    redacted: list[str] = []

    def redact(text: str) -> str:
        redacted.append(text)
        return text

    monkeypatch.setattr("strands_manga_memory.mcp.call.redact_secrets", redact)
    shop = Shop(GuardedMCPTools(client, policy()))
    other = asyncio.create_task(shop.call("hang", seconds=0.07))
    answer = await shop.call("floods")
    assert (answer.status, answer.text) == ("success", "flooded")
    assert (await other).status == "success"
    for name in ("floods", "hang"):
        status = shop[name].status()
        assert (status["failures"], status["failures_in_a_row"]) == ({}, 0)
    assert shop.guarded.supervisor.reconnects == 0
    assert redacted == [], "what is told to nobody is not worked on"


async def test_only_a_tool_that_blocks_its_server_is_blamed(shop: Shop, tmp_path: Path) -> None:
    held_up = Shop(GuardedMCPTools(shop.guarded.client, policy(timeout=1.0)))
    blocking = asyncio.create_task(held_up.call("blocks", folder=str(tmp_path)))
    await until((tmp_path / "blocked").exists)
    answer = await held_up.call("ok")
    (tmp_path / "released").touch()
    assert (await blocking).code == "timeout"
    assert answer.code == "server_blocked"
    assert (held_up["blocks"].breaker.failures, held_up["ok"].breaker.failures) == (1, 0)
    assert held_up.guarded.supervisor.reconnects == 0
    while (await held_up.call("ok")).status == "error":
        pass  # until the server has slept enough


async def test_a_cancelled_task_counts_for_nothing_and_stops_at_once(shop: Shop) -> None:
    task = asyncio.create_task(shop.call("hang"))
    await until(lambda: shop["hang"].status()["in_flight"])
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    status = shop["hang"].status()
    assert status["failures"] == {"cancelled": 1}
    assert status["failures_in_a_row"] == 0
    assert status["in_flight"] == {}


async def test_a_probe_finds_that_a_tool_works_again(client: MCPClient) -> None:
    clock = FakeClock()
    shop = Shop(GuardedMCPTools(client, policy(failures=2), clock=clock))
    await shop.call("repair", works=False)
    assert [(await shop.call("flaky")).code for _ in range(3)] == [
        "tool_error",
        "tool_error",
        "circuit_open",
    ]
    await shop.call("repair")
    clock.advance(60.0)
    answers = await asyncio.gather(*(shop.call("flaky") for _ in range(20)))
    assert [answer.status for answer in answers].count("success") == 1
    assert {answer.code for answer in answers if answer.status == "error"} == {"circuit_open"}
    assert (await shop.call("flaky")).status == "success"


async def test_an_answer_is_stale_rather_than_none(client: MCPClient) -> None:
    shop = Shop(GuardedMCPTools(client, policy(failures=1), stale_ttl=60))
    await shop.call("repair")
    assert (await shop.call("flaky", n=7)).text == "flaky 7"
    await shop.call("repair", works=False)
    assert (await shop.call("flaky", n=7)).code == "tool_error"
    stale = await shop.call("flaky", n=7)
    assert stale.status == "success"
    assert stale.details["stale"]
    assert stale.details["age_s"] >= 0
    assert "flaky 7" in stale.text
    assert "last good answer" in stale.text
    assert (await shop.call("flaky", n=8)).code == "circuit_open"  # never asked before


async def test_another_tool_answers_instead(client: MCPClient) -> None:
    shop = Shop(GuardedMCPTools(client, policy(failures=1), fallbacks={"boom": ["reports", "ok"]}))
    await shop.call("boom")
    answer = await shop.call("boom")
    assert answer.status == "success"
    assert "ok 1" in answer.text
    assert answer.details["fallback"] == "ok"
    assert shop["reports"].breaker.failures == 1
    assert shop["boom"].status()["fallbacks"] == 1


# --- a server that dies ---------------------------------------------------------------------------


@pytest.fixture
def mortal(kind: tuple[str, str]) -> Iterator[tuple[Shop, mcp_servers.HttpServer | None]]:
    """Tools of a server that may be killed, on a clock that only ``_recovered`` moves."""
    with mcp_servers.mortal(*kind) as (client, server):
        yield Shop(GuardedMCPTools(client, policy(timeout=60), clock=FakeClock())), server


async def _killed(shop: Shop, server: mcp_servers.HttpServer | None) -> None:
    if server is not None:
        server.kill()
        return
    pid = int((await shop.call("pid")).text)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not _alive(pid), "death of the server")


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def _back_off(shop: Shop) -> None:
    shop.guarded.supervisor._clock.advance(60.0)


async def _recovered(shop: Shop) -> Answer:
    """Return the first answer after the backoff."""
    _back_off(shop)
    return await shop.call("ok", n=5)


async def test_killed_server_is_reconnected(
    mortal: tuple[Shop, Any], kind: tuple[str, str]
) -> None:
    shop, server = mortal
    await shop.call("ok")
    await _killed(shop, server)
    assert (await shop.call("ok")).code == "server_unavailable"
    assert str(shop.guarded.supervisor.state) == "down"
    rejected = await shop.call("boom")
    assert rejected.code == "server_unavailable"
    assert rejected.details["health"] == "unavailable"
    assert rejected.details["failures"] == 0
    if server is not None:
        server.start()
    assert (await _recovered(shop)).text == "ok 5"
    assert shop.guarded.supervisor.reconnects == 1
    assert {shop.state(name) for name in ("ok", "boom", "hang")} == {"closed"}


async def test_killed_server_opens_no_breaker(
    mortal: tuple[Shop, Any], kind: tuple[str, str]
) -> None:
    if IS_CLIENT_1 and kind == ("sdk", "http"):
        pytest.skip("the client of the 1.x SDK waits until the deadline of each call")
    shop, server = mortal
    calls = [asyncio.create_task(shop.call("hang")) for _ in range(6)]
    await until(lambda: shop["hang"].status()["calls"] == 6)
    await _killed(shop, server)
    answers = await asyncio.gather(*calls)
    # A server on the 1.x SDK ends its streams first: one of them may count, and the connection is
    # found lost by the next call.
    assert {answer.code for answer in answers} <= {"server_unavailable", "protocol_error"}
    assert all(answer.details["side_effects_unknown"] for answer in answers)
    assert shop.state("hang") == "closed"
    assert shop["hang"].breaker.failures <= 1
    if shop.guarded.supervisor.is_up:
        assert (await shop.call("ok")).code == "server_unavailable"
    if server is not None:
        server.start()
    assert (await _recovered(shop)).text == "ok 5"


@pytest.mark.parametrize("kind", [("legacy", "stdio"), ("legacy", "http")], ids="-".join)
async def test_a_tool_that_kills_its_server_harms_no_other(mortal: tuple[Shop, Any]) -> None:
    shop, server = mortal
    assert (await shop.call("dies")).code == "server_unavailable"
    if server is not None:
        server.kill()  # it is dead already: this only tidies up
        server.start()
    assert (await _recovered(shop)).text == "ok 5"


@pytest.mark.parametrize("kind", [("legacy", "stdio"), ("legacy", "http")], ids="-".join)
async def test_parallel_callers_reconnect_once_in_all_for_all(mortal: tuple[Shop, Any]) -> None:
    shop, server = mortal
    await _killed(shop, server)
    assert (await shop.call("ok")).code == "server_unavailable"
    if server is not None:
        server.start()
    _back_off(shop)
    supervisor, others_ended = shop.guarded.supervisor, threading.Event()
    connect = supervisor._connect

    def connect_late(client: MCPClient) -> None:
        others_ended.wait(20)
        connect(client)

    supervisor._connect = connect_late
    calls = [asyncio.create_task(shop.call("ok")) for _ in range(20)]
    await until(lambda: sum(call.done() for call in calls) == 19)
    others_ended.set()
    answers = await asyncio.gather(*calls)
    assert [answer.status for answer in answers].count("success") == 1
    assert {answer.code for answer in answers if answer.status == "error"} == {"server_unavailable"}
    assert shop.guarded.supervisor.reconnects == 1


# --- a server that talks nonsense -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("401", "server_error"),
        ("503", "server_error"),
        ("garbage", "protocol_error"),
        ("html", "protocol_error"),
    ],
)
async def test_nonsense_counts_against_the_tool_alone(fault: str, code: str) -> None:
    with mcp_servers.mortal("legacy", "http") as (client, server):
        shop = Shop(GuardedMCPTools(client, policy(failures=2), clock=FakeClock()))
        server.misbehave(fault)
        answers = [await shop.call("ok") for _ in range(3)]
        if (
            IS_CLIENT_1
        ):  # its session ends with such an answer, so there is nothing left to go on with
            assert {answer.code for answer in answers} <= {"server_unavailable"}
            server.misbehave("0")
            assert (await _recovered(shop)).text == "ok 5"
            assert shop.state("ok") == "closed"
            return
        assert [answer.code for answer in answers] == [code, code, "circuit_open"]
        server.misbehave("0")
        assert (await shop.call("reports")).code == "tool_error"  # the connection is the same
        assert shop.guarded.supervisor.reconnects == 0


async def test_protocol_errors_of_the_caller_never_count() -> None:
    with mcp_servers.client_of("legacy", "stdio") as client:
        shop = Shop(GuardedMCPTools(client, policy()))
        answers = [await shop.call(name) for name in ("refuses", "picky") * 6]
        assert {answer.code for answer in answers} == {"invalid_arguments"}
        assert (shop.state("refuses"), shop.state("picky")) == ("closed", "closed")


def test_one_supervisor_a_client() -> None:
    client, other = (MCPClient(url="http://127.0.0.1:1/mcp") for _ in range(2))
    assert (
        GuardedMCPTools(client).supervisor
        is GuardedMCPTools(client).supervisor
        is ServerSupervisor.of(client)
    )
    assert ServerSupervisor.of(client) is not ServerSupervisor.of(other)
    assert BreakerPolicy() == BreakerPolicy(5, 30.0, 2.0)
