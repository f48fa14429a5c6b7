"""Messages larger than a record of DynamoDB, and of an image's bytes."""

from __future__ import annotations

import os
from typing import Any

from strands import tool
from strands.agent.conversation_manager import SlidingWindowConversationManager

from strands_manga_memory.stores import open_table
from tests.faults.conftest import NewProcess, Way
from tests.faults.kill import Stores

RESULT = os.urandom(1_500_000).hex()
IMAGE = os.urandom(1_000_000)


@tool(name="lookup")
def large_lookup(query: str) -> str:
    """Return 3 MB that do not compress below 1.5 MB.

    Args:
        query: What to look for.
    """
    return RESULT


def keys(stores: Stores, session: str) -> list[str]:
    table = open_table(stores.durable)
    try:
        return sorted(str(row["sk"]) for row in table.query(session, attributes=[]) if "librarian" in str(row["sk"]))
    finally:
        table.close()


def parts(stores: Stores, session: str) -> int:
    return sum("~" in key for key in keys(stores, session))


def test_a_3_mb_tool_result_and_a_1_mb_image(new_process: NewProcess, way: Way, unique: str) -> None:
    stores = way.stores
    window = {"conversation_manager": SlidingWindowConversationManager(6, should_truncate_results=False)}
    process = new_process(stores, save_on=way.save_on, flush_every=1, agent=window)
    process.agent.tool_registry.registry["lookup"] = large_lookup
    process.agent("t0 tool")
    image: Any = [{"text": "t1 text"}, {"image": {"format": "png", "source": {"bytes": IMAGE}}}]
    process.agent(image)
    process.manager.flush()
    for there in (stores, Stores(None, stores.durable)):
        found = new_process(there, agent=window)
        assert found.agent.messages == process.agent.messages
        assert [message["content"] for message in found.log()] == [message["content"] for message in process.agent.messages]
    assert parts(stores, unique) >= 5

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


def test_a_large_message_that_is_redacted_leaves_no_parts(new_process: NewProcess, stores: Stores, unique: str) -> None:
    process = new_process(stores, flush_every=1)
    image: Any = [{"text": "t0 text"}, {"image": {"format": "png", "source": {"bytes": IMAGE}}}]
    process.agent(image)
    process.manager.flush()
    assert parts(stores, unique) >= 2
    first = process.agent.messages[0]
    first["content"] = [{"text": "t0 text"}]
    process.manager.redact_latest_message(first, process.agent)
    process.manager.flush()
    assert parts(stores, unique) == 0
    for there in (stores, Stores(None, stores.durable)):
        found = new_process(there)
        assert found.agent.messages == process.agent.messages
        assert found.log()[0]["content"] == [{"text": "t0 text"}]


def test_an_edited_large_message_leaves_no_parts(new_process: NewProcess, stores: Stores, unique: str) -> None:
    """The window holds it in another form than the log; when that form goes, its parts go."""
    process = new_process(stores, flush_every=1)
    process.agent("t0 text")
    process.agent.messages[0]["content"].append({"image": {"format": "png", "source": {"bytes": IMAGE}}})
    process.agent("t1 text")
    process.manager.flush()
    assert parts(stores, unique) >= 2
    assert new_process(Stores(None, stores.durable)).agent.messages == process.agent.messages
    process.agent.messages[0]["content"].pop()
    process.agent("t2 text")
    process.manager.flush()
    assert parts(stores, unique) == 0
    assert new_process(Stores(None, stores.durable)).agent.messages == process.agent.messages


def test_two_writers_store_the_same_large_message(new_process: NewProcess, services: Stores) -> None:
    """Both flush what the hot tier has; the one who comes second must not delete the parts of the first."""
    process = new_process(services)
    process.agent.tool_registry.registry["lookup"] = large_lookup
    process.agent("t0 tool")
    others = [new_process(services) for _ in range(3)]
    for each in (*others, process):
        each.manager.flush()
    found = new_process(Stores(None, services.durable))
    assert found.agent.messages == process.agent.messages
