"""Helpers of several folders: command line, child processes, background writes, models."""

import subprocess
import sys
import time
from collections.abc import AsyncIterable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from strands import Agent, tool
from strands.session import FileSessionManager, SnapshotSessionManager
from strands.storage import LocalFileStorage
from strands.types.exceptions import ContextWindowOverflowException

from strands_manga_memory import ConversationScope, MangaMemory, TieredSessionManager
from strands_manga_memory.cli import main
from strands_manga_memory.conversation import EstimateCounter
from strands_manga_memory.memory import (
    MemoryType,
    Owner,
    Preference,
    PreferenceOutbox,
    PreferenceSignal,
)
from strands_manga_memory.memory.preference_log import PreferenceLog
from strands_manga_memory.memory.statements import PreferenceChange, Statement
from strands_manga_memory.state import StateCoordinator, coordinator_of
from strands_manga_memory.stores import HotRecord, HotStore
from strands_manga_memory.stores.writer import Writer, shared_writer
from strands_manga_memory.testing import ScriptedModel

UNREADABLE_TEXT = "[message could not be read]"
CUT_TEXT = "[This turn was interrupted before it was finished.]"
PLACEHOLDER = "[…]"
"""Texts that the package writes into histories and requests."""

DAY = 86_400.0

estimate_tokens = EstimateCounter().text


def store_signal(
    outbox: PreferenceOutbox, owner: Owner, preference: Preference, at: float | None = None
) -> None:
    """Store the signal of a preference as a process that ends before it sends the signal."""
    statement = Statement(preference, time.time() if at is None else at)
    log = PreferenceLog(outbox.log_of(owner).partition)
    log.apply(
        PreferenceChange(
            statements=[statement], signals=[PreferenceSignal.from_statement(owner, statement)]
        )
    )


def apply_preferences(
    log: PreferenceLog, *stated: Preference, at: float, message_id: str = "", later: bool = False
) -> None:
    """Store preferences of one message in a user's log, at once or in the background."""
    change = PreferenceChange(statements=[Statement(each, at, message_id) for each in stated])
    (log.apply_later if later else log.apply)(change)


def emit(outbox: PreferenceOutbox, owner: Owner, *stated: Preference, at: Any = None) -> None:
    """Store and send the preferences of a message, as the cache of an agent does."""
    log, now = outbox.log_of(owner), time.time() if at is None else at
    statements = [Statement(each, now) for each in stated]
    log.apply_later(PreferenceChange(statements=statements, signals=log.signals_of(statements)))


def summary_id(session: str, ended_at: float) -> str:
    """Return the memory id of the summary of a session that ended at a time."""
    return f"{MemoryType.SUMMARY}#{round(ended_at * 1000):012x}#{session}"


def run(arguments: Sequence[str]) -> int:
    """Run ``strands-manga-memory`` with arguments in this process and return its exit status."""
    with mock.patch.object(sys, "argv", ["strands-manga-memory", *arguments]):
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0)
    raise AssertionError("main() returned")


def hot_copy(store: HotStore, name: str) -> HotRecord | None:
    """Return the hot copy of a conversation without messages, or None."""
    found = store.load(name, ["head"], touch=False)
    return (
        None if found is None or found.state == "deleted" or "head" not in found.fields else found
    )


def background_writer(hot: object, durable: object) -> Writer:
    """Return the writer that saves in the background for all users of a pair of stores."""
    return shared_writer(hot, durable)


def finish_writes(hot: object, durable: object) -> None:
    """Wait until nothing is left to write to a pair of stores in the background."""
    assert background_writer(hot, durable).drain(20)


def settle(*memories: MangaMemory) -> None:
    """Wait until nothing is left to write in the background of the stores."""
    for memory in memories:
        for pair in ((memory.hot, memory.durable), (memory.hot, None), (None, memory.memories)):
            finish_writes(*pair)


def open_session(kind: str, folder: Path | str, session: str | ConversationScope = "s") -> Any:
    """Return a session manager of a kind on a folder's data; None for "none"."""
    if kind == "file":
        return FileSessionManager("s", storage_dir=str(folder))
    if kind == "snapshot":
        return SnapshotSessionManager("s", storage=LocalFileStorage(str(folder)))
    return (
        None
        if kind == "none"
        else TieredSessionManager(session, durable=f"sqlite:///{folder}/sessions.sqlite3")
    )


class WatchedStore:
    """A store that tells functions of its calls: they may wait, raise, or change the store.

    ``before`` and ``after`` get the name of the method and its arguments.
    """

    def __init__(
        self,
        store: Any,
        before: Callable[..., object] | None = None,
        after: Callable[..., object] | None = None,
    ) -> None:
        self._store, self._before, self._after = store, before, after
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not callable(method):
            return method

        def call(*arguments: Any, **named: Any) -> Any:
            self.calls.append(name)
            if self._before is not None:
                self._before(name, *arguments, **named)
            answer = method(*arguments, **named)
            if self._after is not None:
                answer = iter(list(answer)) if name == "query" else answer
                self._after(name, *arguments, **named)
            return answer

        return call


def state_of(agent: Agent) -> StateCoordinator:
    """Return the task state of an agent."""
    found = coordinator_of(agent)
    assert found is not None
    return found


def printed_by(*arguments: object, **settings: Any) -> str:
    """Run Python in a child, which must succeed, and return what it printed."""
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=100, check=False, **settings
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def stub_tool(name: str, answer: Any) -> Any:
    """Return a tool that calls a function, returns an answer or raises an exception."""

    def use() -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    function: Any = answer if callable(answer) else use
    return tool(function, name=name, description=name)


class SmallModel(ScriptedModel):
    """A model whose context window holds ``size`` characters of contents."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    async def stream(self, messages: Any, *arguments: Any, **named: Any) -> AsyncIterable[Any]:
        """Refuse messages that are too long."""
        if sum(len(str(message["content"])) for message in messages) > self._size:
            raise ContextWindowOverflowException("too long")
        async for event in super().stream(messages, *arguments, **named):
            yield event


class GuardedModel(ScriptedModel):
    """A model whose guardrail replaces a secret at the end of the stream, as Bedrock's does."""

    def __init__(
        self, replies: Any = (), *, secret: str, shown: str = "[redacted]", **settings: Any
    ) -> None:
        super().__init__(replies, **settings)
        self._secret, self._shown = secret, shown

    async def stream(self, messages: Any, *arguments: Any, **named: Any) -> AsyncIterable[Any]:
        """Answer as the script says, and redact the message and the answer."""
        is_refused, is_answer_refused = self._secret in str(messages[-1]), False
        async for event in super().stream(messages, *arguments, **named):
            is_answer_refused = is_answer_refused or self._secret in str(event)
            yield event
        if is_refused:
            yield {"redactContent": {"redactUserContentMessage": self._shown}}
        if is_answer_refused:
            yield {"redactContent": {"redactAssistantContentMessage": self._shown}}


def tool_results(messages: Iterable[Any]) -> list[Any]:
    """Return the tool results in messages."""
    return [
        block["toolResult"]
        for message in messages
        for block in message["content"]
        if "toolResult" in block
    ]
