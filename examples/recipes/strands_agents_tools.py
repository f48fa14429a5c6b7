"""Guarded tools of ``strands-agents-tools``: HTTP, files, AWS, and a question for the user."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import DummyInput
from prompt_toolkit.output import DummyOutput
from strands import Agent
from strands_tools import file_read, handoff_to_user, http_request, use_aws

from strands_manga_memory import BreakerPolicy, InstructionFiles, MangaMemory, guard_tool
from strands_manga_memory.mcp import CallOutcome, Outcome, Verdict
from strands_manga_memory.testing import ScriptedModel


def judge(call: CallOutcome) -> Verdict | None:
    """Count no refusal as a failure of the tool, and keep no HTTP error as a good answer."""
    text = str(call.result["content"][0].get("text")) if call.result else ""
    refused = r"Operation canceled by user|HTTP request cancelled|.*AccessDenied|Status Code: [345]"
    return Verdict(Outcome.IGNORED, "tool_error") if re.match(refused, text) else None


def shop_tools() -> list[Any]:
    """Return guarded tools that reach other services."""
    # One failure opens this breaker, for a short example. The default is 5.
    quick = BreakerPolicy(failures=1, timeout=10.0, read_only=True, classify=judge)
    return [
        # read_only: while the shop is down, the user's last good answer of the same call stands in.
        guard_tool(http_request, quick, stale_ttl=3600.0),
        guard_tool(use_aws, BreakerPolicy(timeout=20.0, classify=judge)),
        guard_tool(handoff_to_user),  # with breakout_of_loop=True it does not wait for the user
    ]


def run() -> Iterator[str]:
    """Call each tool, and yield its name, status and result."""
    Path("AGENT.md").write_text("Answer in one sentence.", encoding="utf-8")
    Path("shelf.txt").write_text("Parasyte 1-7", encoding="utf-8")
    user: dict[str, Any] = {"user_id": "hanako", "callback_handler": None}
    with MangaMemory.open() as memory, shop_server() as url, without_terminal():
        # An agent of its own: http_request and use_aws can write files, so with them the
        # instruction files are refused.
        model = scripted(("file_read", {"path": "shelf.txt", "mode": "view"}))
        reader = memory.agent(
            model,
            session_id="reader",
            tools=[guard_tool(file_read)],
            instructions=InstructionFiles(["."], read_only=["file_read"]),
            **user,
        )
        reader("Which volumes do I have?")
        yield f"AGENT.md is in the prompt: {'one sentence' in str(model.requests[0])}"
        yield from results(reader)
        once = {"max_retries": 0}
        fetch = ("http_request", {"method": "GET", "url": url, "session_config": once})
        model = scripted(fetch, fetch, fetch, ("use_aws", DELETION), ("handoff_to_user", QUESTION))
        shop = memory.agent(model, session_id="shop", tools=shop_tools(), **user)
        shop("What is in stock? Then delete the orders.")
        yield from results(shop)


# --- stand-ins for a model, a server and a service without a terminal -----------------------------

DELETION = {
    "service_name": "dynamodb",
    "operation_name": "delete_table",
    "parameters": {"TableName": "orders"},
    "region": "us-east-1",
    "label": "Delete the orders",
}
QUESTION = {"message": "Which volume do you want?", "breakout_of_loop": True}


def scripted(*calls: tuple[str, dict[str, Any]]) -> ScriptedModel:
    """Return a model that makes these calls, one in each request."""
    uses = [
        {"toolUseId": f"t{at}", "name": name, "input": given}
        for at, (name, given) in enumerate(calls)
    ]
    return ScriptedModel([[{"toolUse": use}] for use in uses])


def results(agent: Agent) -> Iterator[str]:
    """Yield name, status and text of each tool result."""
    blocks = [block for message in agent.messages for block in message["content"]]
    names = [block["toolUse"]["name"] for block in blocks if "toolUse" in block]
    given = [block["toolResult"] for block in blocks if "toolResult" in block]
    for name, result in zip(names, given, strict=True):
        texts = [part["text"] for part in result["content"] if "text" in part]
        lines = "\n".join(text for text in texts if not text.startswith("Headers: "))
        yield f"{name} ({result['status']}): {lines}"


@contextmanager
def without_terminal() -> Iterator[None]:
    """Answer no prompt for consent, as in a service. A missing answer denies the call."""
    with create_app_session(input=DummyInput(), output=DummyOutput()):
        yield


@contextmanager
def shop_server() -> Iterator[str]:
    """Serve one good answer, then errors."""
    answers = iter([(200, b"in stock: 3")])

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = next(answers, (503, b"down"))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


if __name__ == "__main__":
    for line in run():
        print(line)
