"""A session is deleted while another process talks in it."""

from __future__ import annotations

import asyncio

import pytest
from strands.hooks import BeforeModelCallEvent

from strands_manga_memory.stores import open_table
from tests.faults import talk
from tests.faults.conftest import NewProcess
from tests.faults.kill import Stores


def keys(stores: Stores, session: str) -> list[str]:
    table = open_table(stores.durable)
    try:
        return sorted(str(row["sk"]) for row in table.query(session) if "librarian" in str(row["sk"]))
    finally:
        table.close()


@pytest.mark.parametrize("flush_every", [1, 5])
def test_nothing_comes_back(new_process: NewProcess, stores: Stores, flush_every: int, unique: str) -> None:
    talking = new_process(stores, flush_every=flush_every)
    talking.agent("t0 parallel")
    talking.settle()
    calls: list[int] = []

    async def delete(_: BeforeModelCallEvent) -> None:
        calls.append(1)
        if len(calls) == 2:
            other = new_process(stores)
            await asyncio.to_thread(other.manager.delete_session)

    talking.agent.hooks.add_callback(BeforeModelCallEvent, delete)
    talking.agent("t1 tool")
    talking.settle()
    assert keys(stores, unique) == ["A:librarian#HEAD"]
    looking = new_process(stores)
    assert looking.agent.messages == []
    assert looking.log() == []
    assert not looking.manager.exists("librarian")
    assert talking.stats()["dropped_messages"] > 0

    talking.agent("t2 tool")
    talking.manager.flush()
    wanted = sorted(talk.wanted_marks("t2", "tool"))
    found = new_process(stores)
    assert sorted(talk.marks(found.agent.messages)) == sorted(talk.marks(found.log())) == wanted
    assert sorted(talk.marks(talking.agent.messages)) == wanted
    assert all("#HEAD" in key or "#TURN#" in key for key in keys(stores, unique))
