"""Saves of other processes do not bring back the original of a redacted message."""

import asyncio
from typing import Any

import pytest
from strands.agent.conversation_manager import SlidingWindowConversationManager
from strands.hooks import BeforeModelCallEvent

from strands_manga_memory.stores import Codec
from tests.faults import talk
from tests.faults.conftest import NewProcess, Process
from tests.faults.talk import Stores
from tests.support import GuardedModel

SECRET = "4111 1111 1111 1111"


def stored(process: Process, session: str) -> str:
    """Return all that both tiers hold of a session."""
    found: list[Any] = []
    if process.hot is not None:
        client = process.hot.client
        found += [client.hgetall(key) for key in client.scan_iter(f"*:c:{session}/*")]
    return str([*found, *process.durable.query(session)])


@pytest.mark.parametrize("others_flush", [False, True], ids=["they save", "they flush"])
@pytest.mark.parametrize("evicts", [False, True], ids=["in the window", "evicted"])
def test_the_original_does_not_come_back(
    new_process: NewProcess, stores: Stores, unique: str, others_flush: bool, evicts: bool
) -> None:
    way_of = {"codec": Codec(compress_from=1 << 30), "flush_every": 5}
    one = new_process(stores, **way_of)
    one.agent.model = GuardedModel(talk.reply, secret=SECRET, shown="a1 text [redacted]")
    one.agent("a0 tool")
    others: list[Process] = []

    async def come_in(_: BeforeModelCallEvent) -> None:
        if not others:
            await asyncio.to_thread(one.settle)
            window = {
                "conversation_manager": SlidingWindowConversationManager(
                    2, should_truncate_results=False
                )
            }
            others.append(
                await asyncio.to_thread(
                    new_process, stores, agent=window if evicts else {}, **way_of
                )
            )
            await asyncio.to_thread(others[0].agent, "b1 text")
            if others_flush:
                await asyncio.to_thread(others[0].manager.flush)

    one.agent.hooks.add_callback(BeforeModelCallEvent, come_in)
    one.agent(f"a1 text {SECRET}")
    for process in (one, others[0], one):
        process.settle()
        process.manager.flush()
    assert SECRET not in stored(one, unique)
    others[0].agent("b2 tool")
    one.agent("a2 text")
    for process in (others[0], one, others[0]):
        process.manager.flush()
    assert SECRET not in stored(one, unique)
    for there in (stores, Stores(None, stores.durable)):
        found = new_process(there, **way_of)
        assert SECRET not in str([found.agent.messages, found.log()])
        turns = {"a0": "tool", "a1": "text", "a2": "text", "b1": "text", "b2": "tool"}
        assert sorted(talk.marks(found.log())) == sorted(
            mark for turn in turns.items() for mark in talk.wanted_marks(*turn)
        )
