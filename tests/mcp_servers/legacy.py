"""MCP server of the protocol 2025-06-18, with HTTP sessions and faults on request.

``python legacy.py stdio`` or ``python legacy.py http PORT``. It answers as servers on the 1.x SDK
do: the text of an exception, and of a pydantic error, is what the client sees. Over HTTP,
``POST /fault`` with a status, ``garbage`` or ``html`` decides how calls of tools end from then on;
``POST /fault`` with ``0`` ends that.
"""

import json
import os
import queue
import sys
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

_INT = {"type": "object", "properties": {"n": {"type": "integer"}}}
_NONE = {"type": "object", "properties": {}}
TOOLS: dict[str, dict[str, Any]] = {
    "ok": {"inputSchema": _INT, "annotations": {"readOnlyHint": True}},
    "boom": {"inputSchema": _NONE},
    "reports": {"inputSchema": _NONE},
    "hang": {"inputSchema": {"type": "object", "properties": {"seconds": {"type": "number"}}}},
    "blocks": {"inputSchema": {"type": "object", "properties": {"folder": {"type": "string"}}}},
    "crawls": {"inputSchema": _NONE},
    "floods": {"inputSchema": _NONE},
    "dies": {"inputSchema": _NONE},
    "flaky": {"inputSchema": _INT, "annotations": {"readOnlyHint": True}},
    "repair": {"inputSchema": {"type": "object", "properties": {"works": {"type": "boolean"}}}},
    "grow": {"inputSchema": {"type": "object", "properties": {"name": {"type": "string"}}}},
    "shrink": {"inputSchema": {"type": "object", "properties": {"name": {"type": "string"}}}},
    "pid": {"inputSchema": _NONE},
    "picky": {"inputSchema": _NONE},
    "refuses": {"inputSchema": _NONE},
    "asks": {"inputSchema": _NONE},
}
state = {"broken": True}
only_one_at_a_time = threading.RLock()


def text(words: str, *, is_error: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}], "isError": is_error}


def call(name: str, arguments: dict[str, Any], tell: Any, progress_token: Any) -> dict[str, Any]:
    if name not in TOOLS:
        return text(f"Unknown tool: {name}", is_error=True)
    if name == "boom":
        return text(
            "Error executing tool boom: cannot connect to postgres://shop:hunter2@db/orders",
            is_error=True,
        )
    if name == "reports":
        return text("Error executing tool reports: no such order: ORD-1", is_error=True)
    if name == "picky":  # its schema lets everything pass, the server does not
        return text(
            "Error executing tool picky: 1 validation error for pickyArguments\nn\n  Field"
            " required",
            is_error=True,
        )
    if name == "refuses":
        raise LookupError(-32602, "Invalid params")
    if name == "hang":
        time.sleep(arguments.get("seconds", 60))
    if name == "blocks":
        folder = Path(arguments["folder"])
        with only_one_at_a_time:
            (folder / "blocked").touch()
            while not (folder / "released").exists():
                time.sleep(0.01)
    if name == "crawls":
        for step in range(3):
            params = {
                "progressToken": progress_token,
                "progress": step + 1,
                "total": 10,
                "message": f"step {step + 1}",
            }
            tell("notifications/progress", params)
        time.sleep(60)
    if name == "floods":
        for number in range(1_000):
            tell(
                "notifications/progress",
                {"progressToken": progress_token, "progress": number + 1, "message": "x" * 2_000},
            )
        time.sleep(0.07)
        return text("flooded")
    if name == "dies":
        os._exit(1)
    if name == "flaky" and state["broken"]:
        return text("Error executing tool flaky: broken", is_error=True)
    if name == "repair":
        state["broken"] = not arguments.get("works", True)
    if name == "grow":
        TOOLS[arguments.get("name", "grown")] = {"inputSchema": _NONE}
        tell("notifications/tools/list_changed", {})
    if name == "shrink":
        TOOLS.pop(arguments.get("name", "grown"), None)
        tell("notifications/tools/list_changed", {})
    if name == "asks":
        schema = {"type": "object", "properties": {"sure": {"type": "boolean"}}}
        return text(
            tell("elicitation/create", {"message": "Are you sure?", "requestedSchema": schema})[
                "action"
            ]
        )
    if name == "pid":
        return text(json.dumps(os.getpid()))
    return text(f"{name} {arguments.get('n', 1)}")


def answer(message: dict[str, Any], tell: Any) -> dict[str, Any] | None:
    """Return the response to a message, or None: it needs none."""
    method, params = message.get("method"), message.get("params") or {}
    if "id" not in message or method is None:
        return None
    response: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
    with only_one_at_a_time:
        pass  # a tool that keeps the server busy keeps everybody waiting
    try:
        if method == "initialize":
            response["result"] = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "legacy", "version": "1"},
            }
        elif method == "ping":
            response["result"] = {}
        elif method == "tools/list":
            response["result"] = {
                "tools": [
                    {"name": name, "description": name, **tool} for name, tool in TOOLS.items()
                ]
            }
        elif method == "tools/call":
            token = (params.get("_meta") or {}).get("progressToken")
            response["result"] = call(params["name"], params.get("arguments") or {}, tell, token)
        else:
            raise LookupError(-32601, "Method not found")
    except LookupError as error:
        response["error"] = {"code": error.args[0], "message": error.args[1]}
    return response


def serve_stdio() -> None:
    lock = threading.Lock()
    answers: queue.Queue[dict[str, Any]] = queue.Queue()

    def send(message: dict[str, Any]) -> None:
        with lock:
            sys.stdout.write(json.dumps(message) + "\n")
            sys.stdout.flush()

    def work(message: dict[str, Any]) -> None:
        def tell(method: str, params: dict[str, Any]) -> Any:
            if method.startswith("notifications/"):
                return send({"jsonrpc": "2.0", "method": method, "params": params})
            send(
                {"jsonrpc": "2.0", "id": f"ask-{message['id']}", "method": method, "params": params}
            )
            return answers.get(timeout=30)

        response = answer(message, tell)
        if response is not None:
            send(response)

    for line in sys.stdin:
        message = json.loads(line)
        if "result" in message:
            answers.put(message["result"])
        else:
            threading.Thread(target=work, args=(message,), daemon=True).start()
    os._exit(0)


class Handler(BaseHTTPRequestHandler):
    """Streamable HTTP: one JSON answer a request, as a server may; and sessions."""

    protocol_version = "HTTP/1.1"
    sessions: ClassVar[set[str]] = set()
    fault = "0"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/fault":
            Handler.fault = body.decode()
            self._send(200, b"{}")
            return
        message = json.loads(body)
        method = message.get("method")
        if method == "initialize":
            session = uuid.uuid4().hex
            self.sessions.add(session)
            self._send(
                200, json.dumps(answer(message, self._tell)).encode(), {"Mcp-Session-Id": session}
            )
            return
        if method == "server/discover" or self.headers.get("Mcp-Session-Id") not in self.sessions:
            error = {"code": -32600, "message": "Session not found"}
            if "Mcp-Session-Id" not in self.headers:
                error = {"code": -32601, "message": "Method not found"}
            self._send(
                404 if "Mcp-Session-Id" in self.headers else 400, _json(message, error=error)
            )
            return
        if method == "tools/call" and Handler.fault != "0":
            self._misbehave(Handler.fault)
            return
        response = answer(message, self._tell)
        if response is None:
            self._send(202, b"")
        else:
            self._send(200, json.dumps(response).encode())

    def do_GET(self) -> None:
        self._send(405, b"")

    def do_DELETE(self) -> None:
        self._send(200, b"")

    def _misbehave(self, fault: str) -> None:
        if fault == "garbage":
            self._send(200, b"{this is no JSON")
        elif fault == "html":
            self._send(200, b"<html>maintenance</html>", kind="text/html")
        else:
            self._send(int(fault), b"nope", {"Retry-After": "7"})

    def _tell(self, method: str, params: dict[str, Any]) -> None:
        """Nobody listens: there is no stream from the server to the client."""

    def _send(
        self,
        status: int,
        body: bytes,
        headers: dict[str, str] | None = None,
        kind: str = "application/json",
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""


def _json(message: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": message.get("id"), **fields}).encode()


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        serve_stdio()
    else:
        ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
