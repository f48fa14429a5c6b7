"""Worker process with the agent, which answers JSON lines on its standard input.

``quickstart.py`` starts it, kills it with SIGKILL, and starts another one, which must restore the
whole conversation. With ``--memory strands`` the agent has Strands' own sliding window and file
session, for comparison.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from mcp import StdioServerParameters, stdio_client
from strands import Agent
from strands.hooks import (
    AfterToolCallEvent,
    AgentInitializedEvent,
    BeforeModelCallEvent,
    HookOrder,
    HookRegistry,
    MessageAddedEvent,
)
from strands.middleware import InvokeModelContext, InvokeModelStage, MiddlewareNext, TypedEvent
from strands.session.file_session_manager import FileSessionManager
from strands.tools.mcp import MCPClient
from strands.types.exceptions import MaxTokensReachedException

from mangaassist.checks import digest
from mangaassist.model import open_model
from mangaassist.tools import calculator, current_time
from strands_manga_memory import MangaMemory

if TYPE_CHECKING:
    from strands.tools.mcp.mcp_types import MCPTransport

USER_ID, AGENT_ID = "aoi", "librarian"
CATALOGUE_SERVER = Path(__file__).with_name("catalogue_server.py")
SYSTEM_PROMPT = (
    "You are MangaAssist, the librarian of a manga shop. Answer in the language of the customer,"
    " Japanese or English. Look titles, stock and orders up with your tools; never invent them."
)


@dataclass(frozen=True)
class Memory:
    """Memory of an agent, and answers to the parent's questions about it.

    Attributes:
        kwargs: Keyword arguments of the agent.
        history: Function that returns all stored messages.
        unsaved: Function that returns the number of messages that are not stored yet.
        outcomes: Function that returns the outcome of each message: kept or dropped, and why.
        close: Function that closes the memory.
    """

    kwargs: dict[str, Any]
    history: Callable[[], Sequence[Any]]
    unsaved: Callable[[], int]
    outcomes: Callable[[Agent], list[dict[str, Any]]]
    close: Callable[[], None]


def open_memory(session: str) -> Memory:
    """Return the memory layer. An application only passes ``MangaMemory.agent_kwargs`` on."""
    memory = MangaMemory.from_env()
    kwargs = memory.agent_kwargs(
        user_id=USER_ID, session_id=session, agent_id=AGENT_ID, max_tokens=4_096
    )
    sessions, manager = kwargs["session_manager"], kwargs["conversation_manager"]
    return Memory(
        kwargs,
        history=lambda: sessions.history(AGENT_ID),
        unsaved=lambda: sessions.stats(AGENT_ID)["unsaved_messages"],
        outcomes=lambda agent: [asdict(outcome) for outcome in manager.explain(agent)],
        close=memory.close,
    )


def open_strands(session: str) -> Memory:
    """Return Strands' own memory: a window of 40 messages, and a session in files."""
    sessions = FileSessionManager(session, storage_dir="strands-sessions")
    return Memory(
        {"session_manager": sessions, "agent_id": AGENT_ID},
        history=lambda: [
            stored.to_message() for stored in sessions.list_messages(session, AGENT_ID)
        ],
        unsaved=lambda: 0,
        outcomes=lambda _agent: [],
        close=lambda: None,
    )


class RestoreTimer:
    """Timer of an agent's restore, without the start of Python and of the tools."""

    def __init__(self) -> None:
        self._begun = 0.0
        self.seconds = 0.0

    def register_hooks(self, registry: HookRegistry, **_: Any) -> None:
        """Register hooks before and after the session manager's."""
        registry.add_callback(AgentInitializedEvent, self._begin, order=HookOrder.SDK_FIRST - 1)
        registry.add_callback(AgentInitializedEvent, self._end, order=HookOrder.SDK_LAST + 1)

    def _begin(self, _event: AgentInitializedEvent) -> None:
        self._begun = time.perf_counter()

    def _end(self, _event: AgentInitializedEvent) -> None:
        self.seconds = time.perf_counter() - self._begun


def build_agent(model: str, memory_kwargs: dict[str, Any], timer: RestoreTimer) -> Agent:
    """Return the shop's agent."""
    server = StdioServerParameters(
        command=sys.executable, args=[str(CATALOGUE_SERVER)], cwd=os.getcwd()
    )
    catalogue = MCPClient(lambda: cast("MCPTransport", stdio_client(server)))
    return Agent(
        model=open_model(model),
        tools=[catalogue, calculator, current_time],
        system_prompt=SYSTEM_PROMPT,
        callback_handler=None,
        hooks=[timer],
        **memory_kwargs,
    )


class Pipe:
    """JSON lines to and from the parent. Other standard output goes to standard error."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        self._lock = threading.Lock()
        os.dup2(2, 1)

    def send(self, event: str, **data: Any) -> None:
        """Send one event."""
        line = json.dumps({"event": event, **data}, ensure_ascii=False)
        with self._lock:
            self._out.write(line + "\n")
            self._out.flush()

    def requests(self) -> Iterator[dict[str, Any]]:
        """Yield the parent's requests until the pipe is closed."""
        for line in sys.stdin:
            yield json.loads(line)


class Observer:
    """Hook that sends added messages, tool calls and model requests to the parent."""

    def __init__(self, agent: Agent, pipe: Pipe) -> None:
        self._pipe = pipe
        self._model_calls = 0
        self._hold_before_call = 0
        self.added: dict[str, Any] = {}
        agent.add_hook(self._on_message, MessageAddedEvent)
        agent.add_hook(self._on_tool, AfterToolCallEvent)
        agent.add_hook(self._on_model_call, BeforeModelCallEvent, order=HookOrder.SDK_LAST)
        agent.add_middleware(InvokeModelStage, self._on_request)

    def begin_turn(self, hold_before_call: int) -> None:
        """Start a turn that halts before model call ``hold_before_call`` (0: never) for a kill."""
        self.added.clear()
        self._model_calls, self._hold_before_call = 0, hold_before_call

    def _on_message(self, event: MessageAddedEvent) -> None:
        self.added[event.message["tracking_id"]] = copy.deepcopy(
            event.message
        )  # unchanged by later truncation

    def _on_tool(self, event: AfterToolCallEvent) -> None:
        self._pipe.send("tool", name=event.tool_use["name"], status=event.result["status"])

    async def _on_model_call(self, event: BeforeModelCallEvent) -> None:
        self._model_calls += 1
        if self._model_calls == self._hold_before_call:
            self._pipe.send("waiting", messages=event.agent.messages)
            await asyncio.Event().wait()

    async def _on_request(
        self, context: InvokeModelContext, next_fn: MiddlewareNext[InvokeModelContext, TypedEvent]
    ) -> AsyncGenerator[TypedEvent, None]:
        sent = [
            {"role": message["role"], "content": message["content"]} for message in context.messages
        ]
        self._pipe.send("request", messages=sent)
        async for event in next_fn(context):
            yield event


class RequestCounter:
    """Counter of this process's requests to DynamoDB, by Python's audit events."""

    def __init__(self) -> None:
        self.count = 0
        sys.addaudithook(self._on_event)

    def _on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "http.client.send" and bytes(arguments[1][:12]) == b"POST / HTTP/":
            self.count += 1


def serve(
    agent: Agent, memory: Memory, pipe: Pipe, requests: RequestCounter, restore_seconds: float
) -> None:
    """Answer the parent's requests until it asks to close, or has ended."""
    observer = Observer(agent, pipe)
    pipe.send(
        "ready",
        messages=agent.messages,
        digest=digest(agent.messages),
        durable_requests=requests.count,
        restore_seconds=restore_seconds,
    )
    for request in pipe.requests():
        match request["op"]:
            case "turn":
                observer.begin_turn(request["hold_before_call"])
                answer = _answer(agent, request["text"])
                pipe.send(
                    "done",
                    text=answer,
                    messages=agent.messages,
                    digest=digest(agent.messages),
                    added=list(observer.added.values()),
                    durable_requests=requests.count,
                )
            case "settle":
                pipe.send(
                    "settled",
                    saved=_wait_until_saved(memory),
                    outcomes=memory.outcomes(agent),
                )
            case "history":
                pipe.send("history", messages=list(memory.history()))
            case "close":
                break


def _answer(agent: Agent, text: str) -> str:
    try:
        return str(agent(text)).strip()
    except MaxTokensReachedException:
        return "(the model's answer was cut at its token limit)"


def _wait_until_saved(memory: Memory, seconds: float = 10.0) -> bool:
    """Wait until all messages are saved; a slow tier delays only the save."""
    deadline = time.monotonic() + seconds
    while memory.unsaved():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def main() -> int:
    """Open the memory, build the agent, and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--session", required=True)
    parser.add_argument("--memory", choices=("manga", "strands"), default="manga")
    arguments = parser.parse_args()
    pipe, requests, timer = Pipe(), RequestCounter(), RestoreTimer()
    try:
        memory = (open_memory if arguments.memory == "manga" else open_strands)(arguments.session)
        agent = build_agent(arguments.model, memory.kwargs, timer)
        serve(agent, memory, pipe, requests, timer.seconds)
        agent.cleanup()
        memory.close()
        pipe.send("closed", durable_requests=requests.count)
    except Exception as error:
        traceback.print_exc()
        pipe.send("failed", error=f"{type(error).__name__}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
