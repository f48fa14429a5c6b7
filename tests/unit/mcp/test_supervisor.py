"""ServerSupervisor without a server, and the internals of Strands' client that it uses."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from strands.tools.mcp import MCPClient

from strands_manga_memory.mcp import ServerSupervisor
from strands_manga_memory.mcp.client import keep_exceptions, progress_callback_of, restart, stop
from strands_manga_memory.testing import FakeClock
from tests import mcp_servers
from tests.integration.mcp_support import until


class Server:
    """Counts connections, and refuses them while it is down."""

    def __init__(self, *, up: bool = True) -> None:
        self.up = up
        self.attempts = 0
        self.may_answer = threading.Event()
        self.may_answer.set()

    def connect(self, client: MCPClient) -> None:
        self.attempts += 1
        self.may_answer.wait(10)
        if not self.up:
            raise ConnectionError("refused")


def supervisor_of(server: Server) -> tuple[ServerSupervisor, FakeClock]:
    clock = FakeClock()
    client = MCPClient(url="http://127.0.0.1:9/mcp")
    return ServerSupervisor(client, clock=clock, connect=server.connect), clock


def disconnected(server: Server) -> ServerSupervisor:
    """Return a supervisor that lost its connection a second ago."""
    supervisor, clock = supervisor_of(server)
    supervisor.report_loss(supervisor.generation)
    clock.advance(1)
    return supervisor


async def test_news_of_a_connection_that_was_replaced_is_no_news() -> None:
    supervisor, clock = supervisor_of(Server())
    old = supervisor.generation
    supervisor.report_loss(old)
    clock.advance(1)
    await supervisor.ensure_connected(wait=10)
    supervisor.report_loss(old)
    assert supervisor.is_up
    supervisor.report_loss(supervisor.generation)
    assert not supervisor.is_up


async def test_attempts_that_fail_come_less_and_less_often() -> None:
    server = Server(up=False)
    supervisor, clock = supervisor_of(server)
    supervisor.report_loss(supervisor.generation)
    waits = []
    for _ in range(8):
        waits.append(supervisor.retry_after)
        clock.advance(waits[-1])
        assert not await supervisor.ensure_connected(wait=10)
    assert all(
        low <= wait <= 2 * low
        for wait, low in zip(waits, [0.25, 0.5, 1, 2, 4, 8, 15, 15], strict=True)
    )
    server.up = True
    clock.advance(30)
    assert await supervisor.ensure_connected(wait=10)


def test_one_attempt_at_a_time_over_all_threads_and_loops() -> None:
    server = Server()
    server.may_answer.clear()
    supervisor = disconnected(server)
    first = ThreadPoolExecutor(1)
    waiting = first.submit(lambda: asyncio.run(supervisor.ensure_connected(wait=10)))
    while supervisor.state != "reconnecting":
        pass
    with ThreadPoolExecutor(16) as threads:
        others = list(
            threads.map(lambda _: asyncio.run(supervisor.ensure_connected(wait=10)), range(16))
        )
    assert others == [False] * 16  # at once, while the first still waits
    server.may_answer.set()
    assert waiting.result(timeout=10)
    first.shutdown()
    assert (server.attempts, supervisor.reconnects) == (1, 1)


async def test_an_attempt_that_takes_long_goes_on_without_its_caller() -> None:
    server = Server()
    server.may_answer.clear()
    supervisor = disconnected(server)
    assert not await supervisor.ensure_connected(wait=0.01)
    assert supervisor.state == "reconnecting"
    server.may_answer.set()
    await until(lambda: supervisor.is_up)
    assert server.attempts == 1


def test_connect_says_why_it_failed() -> None:
    server = Server(up=False)
    supervisor, _ = supervisor_of(server)
    with pytest.raises(ConnectionError):
        supervisor.connect()
    assert supervisor.state == "down"
    server.up = True
    supervisor.connect()
    assert supervisor.state == "up"


def test_the_tool_that_was_asked_first_is_blamed_for_silence() -> None:
    supervisor, _ = supervisor_of(Server())
    blocking = supervisor.record_call("blocks")
    assert supervisor.record_timeout(supervisor.record_call("ok"))
    assert not supervisor.record_timeout(blocking)
    assert not supervisor.record_timeout(supervisor.record_call("ok"))


def test_nobody_blocks_a_server_that_answered_meanwhile() -> None:
    supervisor, _ = supervisor_of(Server())
    supervisor.record_call("hang")
    slow = supervisor.record_call("slow")
    supervisor.record_answer()
    assert not supervisor.record_timeout(slow)


def test_a_call_that_was_withdrawn_blocks_nobody() -> None:
    supervisor, _ = supervisor_of(Server())
    supervisor.remove_call(supervisor.record_call("cancelled"))
    assert not supervisor.record_timeout(supervisor.record_call("slow"))


def test_streams_that_are_dropped_together_are_one_event() -> None:
    supervisor, clock = supervisor_of(Server())
    assert [supervisor.record_lost_answer() for _ in range(3)] == [False, True, True]
    clock.advance(1)
    assert not supervisor.record_lost_answer()


def test_what_we_know_of_the_inside_of_the_client_is_there() -> None:
    """If this fails, Strands has moved what ``mcp/client.py`` relies on."""

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        raise AssertionError

    with mcp_servers.client_of("legacy", "stdio", progress_callback=progressed) as client:
        assert progress_callback_of(client) is progressed
        keep_exceptions(client)
        keep_exceptions(client)
        assert str(client._handle_tool_execution_error("t", RuntimeError("x")).exception) == "x"
        client.start()
        client.add_consumer("somebody")
        for name in (
            "_consumers",
            "_loaded_tools",
            "_tool_provider_started",
            "_background_thread",
            "_background_thread_event_loop",
        ):
            assert hasattr(client, name)
        assert client._init_future.done()
        restart(client)
        assert client._consumers == {"somebody"}
        assert "stop" not in vars(client)
        stop(client)
        stop(client)
