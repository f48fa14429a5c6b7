"""Messages larger than a record of DynamoDB, and of an image's bytes."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from strands import tool
from strands.agent.conversation_manager import SlidingWindowConversationManager

from strands_manga_memory import AesGcmCipher, Codec, ConversationScope, MangaMemory
from strands_manga_memory.stores import open_table
from tests.faults import talk
from tests.faults.conftest import PATIENCE, NewProcess, patient_clients
from tests.faults.talk import Stores

RESULT = os.urandom(800_000).hex()
IMAGE = os.urandom(400_000)


@pytest.fixture(autouse=True)
def _patient_clients() -> Iterator[None]:
    with patient_clients():
        yield


@pytest.fixture
def new_process(new_process: NewProcess) -> NewProcess:
    return partial(new_process, hot_deadline=PATIENCE, durable_deadline=PATIENCE)


@tool(name="lookup")
def large_lookup(query: str) -> str:
    """Return 1.6 MB that do not compress below 800 KB."""
    return RESULT


@contextmanager
def table_of(stores: Stores) -> Iterator[Any]:
    table = open_table(stores.durable)
    try:
        yield table
    finally:
        table.close()


def keys(stores: Stores, session: str) -> list[str]:
    with table_of(stores) as table:
        return sorted(
            str(row["sk"])
            for row in table.query(session, attributes=[])
            if "librarian" in str(row["sk"])
        )


def parts(stores: Stores, session: str) -> int:
    """Return the number of further records of values that no single record holds."""
    with table_of(stores) as table:
        further = [
            row
            for row in table.query(session)
            if "librarian" in str(row["sk"]) and "~" in str(row["sk"])
        ]
    return len(further)


def test_a_large_result_and_image(new_process: NewProcess, stores: Stores, unique: str) -> None:
    window = {
        "conversation_manager": SlidingWindowConversationManager(6, should_truncate_results=False)
    }
    process = new_process(stores, flush_every=1, agent=window)
    process.agent.tool_registry.registry["lookup"] = large_lookup
    process.agent("t0 tool")
    image: Any = [{"text": "t1 text"}, {"image": {"format": "png", "source": {"bytes": IMAGE}}}]
    process.agent(image)
    process.manager.flush()
    for there in (stores, Stores(None, stores.durable)):
        found = new_process(there, agent=window)
        assert found.agent.messages == process.agent.messages
        assert [message["content"] for message in found.log()] == [
            message["content"] for message in process.agent.messages
        ]
    assert parts(stores, unique) >= 3

    for number in range(2, 6):  # the large messages leave the window
        process.agent(f"t{number} tool" if number == 2 else f"t{number} text")
    process.manager.flush()
    found = new_process(stores, agent=window)
    assert found.agent.messages == process.agent.messages
    assert len(found.log()) == 4 + 2 + 4 + 3 * 2

    redacted: Any = {**process.agent.messages[-1], "content": [{"text": "[gone]"}]}
    process.manager.redact_latest_message(redacted, process.agent)
    process.manager.flush()
    found.manager.delete_session()
    assert keys(stores, unique) == ["A:librarian#HEAD"]
    assert parts(stores, unique) == 0


def test_a_large_message_that_is_redacted_leaves_no_parts(
    new_process: NewProcess, stores: Stores, unique: str
) -> None:
    process = new_process(stores, flush_every=1)
    image: Any = [{"text": "t0 text"}, {"image": {"format": "png", "source": {"bytes": IMAGE}}}]
    process.agent(image)
    process.manager.flush()
    assert parts(stores, unique) >= 1
    first = process.agent.messages[0]
    first["content"] = [{"text": "t0 text"}]
    process.manager.redact_latest_message(first, process.agent)
    process.manager.flush()
    assert parts(stores, unique) == 0
    for there in (stores, Stores(None, stores.durable)):
        found = new_process(there)
        assert found.agent.messages == process.agent.messages
        assert found.log()[0]["content"] == [{"text": "t0 text"}]


def test_an_edited_large_message_leaves_no_parts(
    new_process: NewProcess, stores: Stores, unique: str
) -> None:
    """The window holds it in another form than the log; when that form goes, its parts go."""
    process = new_process(stores, flush_every=1)
    process.agent("t0 text")
    process.agent.messages[0]["content"].append(
        {"image": {"format": "png", "source": {"bytes": IMAGE}}}
    )
    process.agent("t1 text")
    process.manager.flush()
    assert parts(stores, unique) >= 1
    assert new_process(Stores(None, stores.durable)).agent.messages == process.agent.messages
    process.agent.messages[0]["content"].pop()
    process.agent("t2 text")
    process.manager.flush()
    assert parts(stores, unique) == 0
    assert new_process(Stores(None, stores.durable)).agent.messages == process.agent.messages


def test_two_writers_store_one_large_message(new_process: NewProcess, services: Stores) -> None:
    process = new_process(services)
    process.agent.tool_registry.registry["lookup"] = large_lookup
    process.agent("t0 tool")
    others = [new_process(services) for _ in range(3)]
    for each in (*others, process):
        each.manager.flush()
    assert new_process(Stores(None, services.durable)).agent.messages == process.agent.messages


def test_large_values_are_encrypted_and_forgotten_with_the_user(services: Stores) -> None:
    secret = "the secret of the blade " + os.urandom(400_000).hex()
    codec = Codec(cipher=AesGcmCipher({"k1": b"1" * 32}, current="k1"))
    patient = {"codec": codec, "hot_deadline": PATIENCE, "durable_deadline": PATIENCE}
    with MangaMemory.open(services.hot, services.durable, memories=False, **patient) as memory:
        ids = {"user_id": "u1", "session_id": "s1"}
        agent = memory.agent(talk.ScriptedModel(), **ids)
        agent(secret)
        asyncio.run(memory.storage(user_id="u1").write("key", os.urandom(400_000)))
        agent._session_manager.flush()
        rows = list(memory.durable.query(ConversationScope("u1", "s1").storage_session_id))
        assert any("~" in str(row["sk"]) for row in rows)
        assert not any(b"secret" in v for row in rows for v in row.values() if isinstance(v, bytes))
        with MangaMemory.open(None, services.durable, memories=False, **patient) as other:
            assert memory.export_user("u1")["sessions"]
            assert other.agent(talk.ScriptedModel(), **ids).messages == agent.messages
        agent._session_manager.close()
        assert memory.forget_user("u1").complete
        rows = list(memory.durable.query(ConversationScope("u1", "s1").storage_session_id))
        assert not any("~" in str(row["sk"]) for row in rows)


def test_large_state_ends_with_the_time_to_live_of_its_session(
    new_process: NewProcess, services: Stores, unique: str
) -> None:
    process = new_process(services, flush_every=1)
    process.agent.state.set("notes", os.urandom(400_000).hex())
    process.agent("t0 text")
    process.manager.flush()
    with table_of(services) as table:
        heads = [row for row in table.query(unique) if "#HEAD" in str(row["sk"])]
    assert len(heads) > 1
    assert all(row["expires_at"] for row in heads)
    assert new_process(Stores(None, services.durable)).agent.state.get(
        "notes"
    ) == process.agent.state.get("notes")
