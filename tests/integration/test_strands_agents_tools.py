"""Every tool of the installed ``strands-agents-tools`` is guarded, and called if it works offline.

The calls go through an agent with a scripted model. A tool that needs a network, a key or another
package is listed with the reason.
"""

import gc
import importlib
import os
import pkgutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import strands_tools
from PIL import Image
from strands import Agent

from strands_manga_memory import BreakerPolicy, guard_tool
from strands_manga_memory.testing import ScriptedModel
from tests.integration.test_guarded_tool_kinds import calling_agent
from tests.support import tool_results

# Most tools are deprecated, and a prompt for consent leaves its event loop open.
pytestmark = [
    pytest.mark.xdist_group("strands_agents_tools"),  # its modules are imported once
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

MODULES = sorted(module.name for module in pkgutil.iter_modules(strands_tools.__path__))

HELPERS = {"utils"}

MISSING_PACKAGES = {
    "browser": "nest_asyncio", "chat_video": "twelvelabs", "diagram": "graphviz",
    "elasticsearch_memory": "elasticsearch", "mem0_memory": "mem0", "mongodb_memory": "pymongo",
    "rss": "feedparser", "search_video": "twelvelabs", "use_computer": "cv2",
}  # fmt: skip
"""Modules that need a package which ``strands-agents-tools`` does not install."""

NOT_CALLED = {
    "generate_image": "Amazon Bedrock",
    "generate_image_stability": "the API of Stability AI",
    "memory": "a knowledge base of Amazon Bedrock",
    "nova_reels": "Amazon Bedrock",
    "retrieve": "a knowledge base of Amazon Bedrock",
    "use_llm": "Amazon Bedrock: this deprecated tool ignores the model of its agent",
}
"""Tools that need a service, and the service."""

_AWS = {"region": "us-east-1", "label": "orders", "service_name": "dynamodb"}

PROVIDERS: dict[str, Callable[[Any], list[Any]]] = {
    "a2a_client": lambda module: module.A2AClientToolProvider().tools,
    "agent_core_memory": lambda module: (
        module.AgentCoreMemoryToolProvider(
            memory_id="m1", actor_id="a1", session_id="s1", namespace="n1", region="us-east-1"
        ).tools
    ),
    "code_interpreter": lambda module: [
        module.AgentCoreCodeInterpreter(region="us-east-1").code_interpreter
    ],
}
"""Modules whose tools are methods of an object. Calls of these tools need a service."""

CALLS: dict[str, tuple[Mapping[str, Any], str]] = {
    "agent_graph": ({"action": "list"}, "Listed 0 active agent graphs"),
    "batch": ({"invocations": []}, "with 0 tool(s)"),
    "calculator": ({"expression": "6 * 7"}, "42"),
    "cron": ({"action": "list"}, "No cron jobs"),
    "current_time": ({"timezone": "Asia/Tokyo"}, "+09:00"),
    "editor": ({"command": "view", "path": "shelf.txt"}, "Gyo"),
    "environment": ({"action": "get", "name": "SHELF"}, "Gyo"),
    "file_read": ({"path": "shelf.txt", "mode": "view"}, "Gyo"),
    "file_write": ({"path": "new.txt", "content": "Uzumaki"}, "new.txt"),
    "graph": ({"action": "list"}, "Listed 0 graphs"),
    "handoff_to_user": ({"message": "Which?", "breakout_of_loop": True}, "handoff completed"),
    "http_request": ({"method": "GET", "url": "{server}"}, "Status Code: 200"),
    "image_reader": ({"image_path": "cover.png"}, "'format': 'png'"),
    "journal": ({"action": "write", "content": "Sold Gyo"}, "Added entry"),
    "load_tool": ({"path": "price.py", "name": "price"}, "loaded successfully"),
    "mcp_client": ({"action": "list_connections"}, "Found 0 MCP connections"),
    "python_repl": ({"code": "print(6 * 7)", "interactive": False}, "42"),
    "shell": ({"command": "echo Gyo"}, "Gyo"),
    "slack": ({"action": "get_recent_events"}, "No events found"),
    "sleep": ({"seconds": 0.01}, "slept for 0.01"),
    "speak": ({"text": "Gyo", "mode": "fast", "play_audio": False}, "not played"),
    "stop": ({"reason": "sold out"}, "sold out"),
    "swarm": ({"task": "Sell", "agents": [{"name": "clerk", "system_prompt": "-"}]}, "Complete"),
    "think": ({"thought": "Gyo", "cycle_count": 1, "system_prompt": "-"}, "done"),
    "use_agent": ({"prompt": "Hello", "system_prompt": "-"}, "done"),
    "use_aws": ({**_AWS, "operation_name": "get_item"}, "Parameter validation failed"),
    "workflow": ({"action": "list"}, "No workflows"),
}
"""Tools that work offline: arguments, and a part of the result."""

KEYS_MISSING: dict[str, tuple[Mapping[str, Any], str]] = {
    "bright_data": ({"action": "search_engine", "query": "Gyo"}, "BRIGHTDATA_API_KEY"),
    "exa_get_contents": ({"urls": ["https://shop.example"]}, "EXA_API_KEY"),
    "exa_search": ({"query": "Gyo"}, "EXA_API_KEY"),
    "slack_send_message": ({"channel": "C1", "text": "Gyo"}, "SLACK_BOT_TOKEN"),
    "tavily_crawl": ({"url": "https://shop.example"}, "TAVILY_API_KEY"),
    "tavily_extract": ({"urls": "https://shop.example"}, "TAVILY_API_KEY"),
    "tavily_map": ({"url": "https://shop.example"}, "TAVILY_API_KEY"),
    "tavily_search": ({"query": "Gyo"}, "TAVILY_API_KEY"),
}
"""Tools of services that need a key: arguments, and the missing variable that the result names."""

DENIED: dict[str, Mapping[str, Any]] = {
    "editor": {"command": "create", "path": "new.txt", "file_text": "-"},
    "file_write": {"path": "new.txt", "content": "-"},
    "http_request": {"method": "POST", "url": "{server}"},
    "load_tool": {"path": "price.py", "name": "price"},
    "python_repl": {"code": "open('new.txt', 'w')", "interactive": False},
    "shell": {"command": "touch new.txt"},
    "use_aws": {**_AWS, "operation_name": "delete_table", "parameters": {"TableName": "orders"}},
}
"""Calls that need the consent of a person, who is absent without a terminal."""


class Shop(BaseHTTPRequestHandler):
    """HTTP server that answers each request with a title, and counts the requests."""

    requests = 0

    def do_GET(self) -> None:
        type(self).requests += 1
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"Gyo")

    do_POST = do_GET  # noqa: N815

    def log_message(self, *args: Any) -> None:
        """Log nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    Shop.requests = 0
    with ThreadingHTTPServer(("127.0.0.1", 0), Shop) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}/"
        http.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder of the test, without credentials of the machine."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith(("AWS_", "SLACK_", "STRANDS_")) or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "crontab").write_text("#!/bin/sh\necho 'no crontab for shop' >&2\nexit 1\n")
    (programs / "crontab").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYTHON_REPL_PERSISTENCE_DIR", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("SHELF", "Gyo")
    monkeypatch.delenv("BYPASS_TOOL_CONSENT", raising=False)
    (tmp_path / "shelf.txt").write_text("Gyo\n")
    (tmp_path / "price.py").write_text(
        "from strands import tool\n\n\n@tool\ndef price() -> str:\n"
        '    """Return a price."""\n    return "12 dollars"\n'
    )
    buffer = BytesIO()
    Image.new("RGB", (1, 1)).save(buffer, "PNG")
    (tmp_path / "cover.png").write_bytes(buffer.getvalue())
    return tmp_path


@pytest.fixture
def without_terminal() -> Iterator[None]:
    """Free the event loop that a prompt leaves open, while its warning is ignored."""
    yield
    gc.collect()


def _module(name: str) -> Any:
    return importlib.import_module(f"strands_tools.{name}")


def _module_of(tool: str) -> Any:
    return _module(max((name for name in MODULES if f"{tool}_".startswith(f"{name}_")), key=len))


def _tools(name: str) -> Any:
    """Return a module with tools, or the tools of its provider."""
    return PROVIDERS[name](_module(name)) if name in PROVIDERS else _module(name)


def _specs(tools: Any) -> dict[str, Any]:
    """Return the specifications of tools as an agent sends them to its model."""
    agent = Agent(model=ScriptedModel(), tools=[tools])
    return {spec["name"]: spec for spec in agent.tool_registry.get_all_tool_specs()}


def _call(tool: str, arguments: Mapping[str, Any], server: str) -> tuple[Any, dict[str, Any]]:
    """Have an agent call a guarded tool; return the tool and its result."""
    given = {key: server if value == "{server}" else value for key, value in arguments.items()}
    agent = calling_agent(
        [guard_tool(_module_of(tool), BreakerPolicy(timeout=60.0))], (tool, given)
    )
    agent("Please")
    return agent.tool_registry.registry[tool], tool_results(agent.messages)[0]


def test_each_tool_is_known_here_and_keeps_its_name_and_schema() -> None:
    """A new version of the package fails here if it has a tool that this module does not know."""
    assert {*HELPERS, *MISSING_PACKAGES, *PROVIDERS} <= set(MODULES)
    tools: set[str] = set()
    for name in MODULES:
        if name not in {*HELPERS, *MISSING_PACKAGES}:
            specs = _specs(_tools(name))
            assert _specs(guard_tool(_tools(name))) == specs != {}
            tools |= set() if name in PROVIDERS else specs.keys()
    assert tools == {*NOT_CALLED, *CALLS, *KEYS_MISSING}


@pytest.mark.parametrize("name", sorted(MISSING_PACKAGES))
def test_a_module_with_a_reason_cannot_be_imported(name: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=MISSING_PACKAGES[name]):
        _module(name)


@pytest.mark.parametrize("tool", sorted(CALLS))
def test_a_guarded_tool_works(tool: str, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYPASS_TOOL_CONSENT", "true")
    arguments, expected = CALLS[tool]
    guarded, result = _call(tool, arguments, server)
    assert expected in str(result["content"])
    assert result["status"] == ("error" if tool == "use_aws" else "success"), result
    assert guarded.status()["calls"] == 1


@pytest.mark.parametrize("tool", sorted(KEYS_MISSING))
def test_a_result_names_the_missing_key(tool: str, server: str) -> None:
    arguments, expected = KEYS_MISSING[tool]
    _, result = _call(tool, arguments, server)
    assert expected in str(result["content"])


@pytest.mark.parametrize("tool", sorted(DENIED))
@pytest.mark.usefixtures("without_terminal")
@pytest.mark.skipif(sys.platform == "win32", reason="without a terminal, Windows has no input")
def test_without_a_terminal_consent_is_denied(tool: str, server: str, folder: Path) -> None:
    _, result = _call(tool, DENIED[tool], server)
    assert result["status"] == "error"
    assert "cancel" in str(result["content"]).lower()
    assert Shop.requests == 0
    assert not (folder / "new.txt").exists()


@pytest.mark.usefixtures("without_terminal")
def test_without_a_terminal_a_question_has_an_empty_answer(server: str) -> None:
    _, result = _call("handoff_to_user", {"message": "Which?"}, server)
    assert result["content"] == [{"text": "User response received: "}]
