"""Internals of Strands' ``MCPClient`` on which the package relies."""

from strands_manga_memory.mcp.client import keep_exceptions, progress_callback_of, restart, stop
from tests import mcp_servers


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
