"""Tool calls of cut or running turns, and direct tool calls, with another process."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from strands.hooks import BeforeModelCallEvent, BeforeToolCallEvent, MessageAddedEvent
from strands.types.exceptions import EventLoopException

from strands_manga_memory import ConflictError
from tests.faults import talk
from tests.faults.conftest import NewProcess
from tests.faults.talk import Stores


class UserError(Exception):
    """An error of a user's hook."""


def results(messages: list[Any]) -> list[str]:
    return [id_ for message in messages for id_ in talk.result_ids(message)]


async def fail(_: BeforeToolCallEvent) -> None:
    raise UserError


def test_a_result_that_strands_adds_for_a_crashed_tool_call_is_not_stored(
    new_process: NewProcess, stores: Stores
) -> None:
    process = new_process(stores)

    async def crash(_: BeforeToolCallEvent) -> None:
        await asyncio.to_thread(process.manager.flush)
        process.lose()
        raise UserError

    process.agent.hooks.add_callback(BeforeToolCallEvent, crash)
    with suppress(UserError, EventLoopException, ConflictError):
        process.agent("t1 parallel")
    other = new_process(stores)
    other.agent("t2 text")
    other.manager.flush()
    third = new_process(stores)
    for messages in (other.agent.messages, third.agent.messages, other.log(), third.log()):
        assert results(messages) == []
        assert [talk.use_ids(m) for m in messages] == [[], ["t1-0", "t1-1", "t1-2"], [], []]
    assert talk.plain(third.agent.messages) == talk.plain(other.agent.messages)
    assert talk.request_problems(talk.next_request(third.agent.messages)) == []


def test_a_process_that_restores_during_a_tool_call_stores_no_result_for_it(
    new_process: NewProcess, stores: Stores
) -> None:
    process = new_process(stores)
    others = []

    async def restore_elsewhere(_: BeforeToolCallEvent) -> None:
        if not others:
            await asyncio.to_thread(process.manager.flush)
            others.append(await asyncio.to_thread(new_process, stores))

    process.agent.hooks.add_callback(BeforeToolCallEvent, restore_elsewhere)
    process.agent("t1 tool")
    others[0].agent("t2 text")
    others[0].manager.flush()
    process.agent("t3 text")
    process.manager.flush()
    third = new_process(stores)
    for found in (process.log(), third.log(), third.agent.messages, process.agent.messages):
        assert results(found) == ["t1-0"]
        assert all(count == 1 for count in talk.marks(found).values())


@pytest.mark.parametrize("kind", ["tool", "parallel"])
def test_an_agent_goes_on_after_its_own_tool_call_failed(
    new_process: NewProcess, stores: Stores, kind: str
) -> None:
    process = new_process(stores)
    process.agent.hooks.add_callback(BeforeToolCallEvent, fail)
    with suppress(UserError, EventLoopException):
        process.agent(f"t1 {kind}")
    requests: list[Any] = []

    async def keep(event: BeforeModelCallEvent) -> None:
        requests.append(talk.next_request(event.agent.messages))

    process.agent.hooks.add_callback(BeforeModelCallEvent, keep)
    process.agent("t2 text")
    assert [talk.request_problems(request) for request in requests] == [[]]
    process.manager.flush()
    assert talk.plain(new_process(stores).agent.messages) == talk.plain(process.agent.messages)


def test_messages_of_a_direct_tool_call_stay_whole(new_process: NewProcess, stores: Stores) -> None:
    process, other = new_process(stores), new_process(stores)
    process.agent("t1 text")
    process.manager.flush()

    async def interleave(event: MessageAddedEvent) -> None:
        if talk.use_ids(event.message):
            await asyncio.to_thread(process.manager.flush)
            await asyncio.to_thread(other.agent, "t2 text")
            await asyncio.to_thread(other.manager.flush)

    process.agent.hooks.add_callback(MessageAddedEvent, interleave)
    process.agent.tool.lookup(query="direct")
    process.manager.flush()
    for found in (new_process(stores).log(), new_process(stores).agent.messages):
        (at,) = (at for at, message in enumerate(found) if talk.use_ids(message))
        direct = found[at - 1 : at + 3]
        assert [message["role"] for message in direct] == ["user", "assistant", "user", "assistant"]
        assert talk.use_ids(direct[1]) == talk.result_ids(direct[2])
        assert "lookup" in talk.texts(direct[3])[0]
