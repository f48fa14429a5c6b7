"""Turns that end badly: a hook that raises, a client that goes away.

What was said is saved, once.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import pytest
from strands.hooks import (
    AfterInvocationEvent,
    AfterToolCallEvent,
    BeforeInvocationEvent,
    BeforeModelCallEvent,
    MessageAddedEvent,
)
from strands.types.exceptions import EventLoopException

from strands_manga_memory import ConflictError
from tests import clocks, servers
from tests.faults import talk
from tests.faults.conftest import NewProcess, Process
from tests.faults.talk import Stores

SAVED_WITHIN = 3.0


class UserError(Exception):
    """What a user's hook raises."""


class Failing:
    """A hook that raises until it is mended."""

    def __init__(self, process: Process, event: Any) -> None:
        self.is_mended = False
        process.agent.hooks.add_callback(event, self.run)

    def run(self, _: Any) -> None:
        if not self.is_mended:
            raise UserError


def said(messages: list[Any]) -> list[str]:
    return list(talk.marks(messages).elements())


def check(process: Process, new_process: NewProcess, stores: Stores) -> None:
    """The live agent's messages are saved once; then a next turn and a restore work."""
    with clocks.Idle() as idle:
        servers.wait_until(lambda: process.stats()["unsaved_messages"] == 0, "the save")
    assert idle.seconds < SAVED_WITHIN
    assert said(process.log()) == said(process.agent.messages)
    process.agent("t9 tool")
    process.manager.flush()
    other = new_process(stores)
    assert said(other.log()) == said(process.log()) == said(process.agent.messages)
    assert talk.plain(other.agent.messages) == talk.plain(process.agent.messages)
    assert all(count == 1 for count in talk.marks(other.log()).values())


@pytest.mark.parametrize(
    "event", [MessageAddedEvent, AfterInvocationEvent, AfterToolCallEvent, BeforeModelCallEvent]
)
def test_a_hook_of_the_user_raises(new_process: NewProcess, stores: Stores, event: Any) -> None:
    process = new_process(stores)
    process.agent("t0 text")
    hook = Failing(process, event)
    if event is AfterToolCallEvent:
        with suppress(UserError, EventLoopException):
            process.agent("t1 tool")
    else:
        with pytest.raises((UserError, EventLoopException)):
            process.agent("t1 tool")
    hook.is_mended = True
    check(process, new_process, stores)


def test_a_hook_raises_before_the_turn_begins(new_process: NewProcess, stores: Stores) -> None:
    process = new_process(stores)
    process.agent("t0 text")
    hook = Failing(process, BeforeInvocationEvent)
    with pytest.raises(UserError):
        process.agent("t1 tool")
    process.agent.tool.lookup(query="direct")
    hook.is_mended = True
    check(process, new_process, stores)


async def cancel_scope(process: Process) -> None:
    with anyio.move_on_after(0.02):
        async for _ in process.agent.stream_async("t1 sequential"):
            pass


async def task_cancel(process: Process) -> None:
    task = asyncio.create_task(process.agent.invoke_async("t1 sequential"))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def abandoned_loop(process: Process) -> None:
    stream = process.agent.stream_async("t1 sequential")
    async for event in stream:
        if "message" in event:
            break
    await stream.aclose()


async def forgotten_stream(process: Process) -> None:
    """Nobody closes it: the end of the event loop does."""
    async for event in process.agent.stream_async("t1 sequential"):
        if "message" in event:
            return


async def timeout(process: Process) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(process.agent.invoke_async("t1 sequential"), 0.02)


@pytest.mark.parametrize(
    "goes", [cancel_scope, task_cancel, abandoned_loop, forgotten_stream, timeout]
)
def test_a_client_disconnects_in_mid_stream(
    new_process: NewProcess, stores: Stores, goes: Callable[[Process], Any]
) -> None:
    process = new_process(stores, agent={"delay": 0.01})
    process.agent("t0 text")
    asyncio.run(goes(process))
    assert said(process.agent.messages)[2:3] == ["user:t1 sequential"]
    assert len(said(process.agent.messages)) < 2 + 6
    check(process, new_process, stores)


def test_a_turn_that_a_crash_cut_stays_closed_for_those_who_only_look(
    new_process: NewProcess, services: Stores, unique: str
) -> None:
    """A process that restores and closes must not mark the turn as finished."""
    process = new_process(services)
    process.agent("t0 text")

    async def dies(_: BeforeModelCallEvent) -> None:
        await asyncio.to_thread(process.manager.flush)
        process.lose()
        raise UserError

    process.agent.hooks.add_callback(BeforeModelCallEvent, dies)
    with suppress(UserError, EventLoopException, ConflictError):
        process.agent("t1 text")
    client = process.hot.client
    client.delete(*client.scan_iter(f"*:c:{unique}/*"))
    for _ in range(3):
        other = new_process(services)
        assert said(other.agent.messages) == ["user:t0 text", "assistant:t0 answer", "user:t1 text"]
        assert talk.request_problems(talk.next_request(other.agent.messages)) == []
        other.manager.close()
