"""Redactions by a guardrail on the event loop neither block it nor keep an original."""

import asyncio
import json
from typing import Any

import pytest
from strands.hooks import BeforeModelCallEvent

from strands_manga_memory import ConversationScope, MangaMemory
from strands_manga_memory.stores import Codec, open_hot_store, open_table
from tests import clocks, servers
from tests.faults import talk
from tests.faults.conftest import Far, NewProcess, Process, patient_clients
from tests.faults.talk import Stores
from tests.support import GuardedModel

pytestmark = pytest.mark.xdist_group("services")

SECRET = "4111 1111 1111 1111"
REDACTED = "[redacted]"
PLAIN = {"codec": Codec(compress_from=1 << 30)}
AWAY = 0.2
"""Seconds for which an answer of a slow store is held back."""


def everything_stored(session: str, stores: Stores) -> str:
    """Return all that both tiers hold of a session."""
    with patient_clients():
        hot, durable = open_hot_store(stores.hot or ""), open_table(stores.durable)
    client = hot.client
    found = (
        [client.hgetall(key) for key in client.scan_iter(f"*:c:{session}/*")],
        list(durable.query(session)),
    )
    hot.close()
    durable.close()
    return str(found)


def redaction_seconds(process: Process) -> list[float]:
    """Measure from now on how long each redaction keeps the event loop."""
    redact, seconds = process.manager.redact_latest_message, list[float]()

    def measured(*arguments: Any, **named: Any) -> None:
        asyncio.get_running_loop()
        with clocks.Idle() as idle:
            redact(*arguments, **named)
        seconds.append(idle.seconds)

    process.manager.redact_latest_message = measured
    return seconds


def store_before_the_answer(process: Process) -> None:
    """Let both tiers have the user's message before the model answers."""

    async def flush(_: BeforeModelCallEvent) -> None:
        await asyncio.to_thread(process.manager.flush)

    process.agent.hooks.add_callback(BeforeModelCallEvent, flush)


@pytest.mark.parametrize(
    "slow", [*(pytest.param(tier, marks=pytest.mark.long) for tier in ("hot", "durable")), "both"]
)
def test_redaction_does_not_block_the_event_loop(
    new_process: NewProcess, far: Far, unique: str, slow: str
) -> None:
    """With slow stores the call returns at once; the turn ends with both tiers redacted."""
    process = new_process(far.stores, **PLAIN)
    process.agent.model = GuardedModel(talk.reply, secret=SECRET, shown=f"a1 text {REDACTED}")
    process.agent("a0 text")
    store_before_the_answer(process)
    seconds, redact = redaction_seconds(process), process.manager.redact_latest_message

    def slow_down(*arguments: Any) -> None:
        assert SECRET in everything_stored(unique, far.direct)
        for name, proxy in (("hot", far.hot), ("durable", far.durable)):
            proxy.delay = AWAY if slow in (name, "both") else 0.0
        redact(*arguments)

    process.manager.redact_latest_message = slow_down
    asyncio.run(process.agent.invoke_async(f"a1 text {SECRET}"))
    assert SECRET not in everything_stored(unique, far.direct)
    far.hot.delay = far.durable.delay = 0.0
    assert len(seconds) == 1
    assert seconds[0] < AWAY / 3
    process.agent("a2 text")
    process.manager.flush()
    assert SECRET not in everything_stored(unique, far.direct)
    assert sorted(talk.marks(process.log())) == sorted(
        mark for tag in ("a0", "a1", "a2") for mark in talk.wanted_marks(tag, "text")
    )


@pytest.mark.parametrize("down", ["hot", "durable", pytest.param("both", marks=pytest.mark.long)])
def test_redaction_in_an_outage_reaches_each_tier_later(
    new_process: NewProcess, far: Far, unique: str, down: str
) -> None:
    """A tier gets the redacted form once it answers; the loop does not wait."""
    process = new_process(far.stores, hot_deadline=0.2, durable_deadline=0.5, **PLAIN)
    process.agent.model = GuardedModel(talk.reply, secret=SECRET, shown=f"a1 text {REDACTED}")
    process.agent("a0 text")
    store_before_the_answer(process)
    seconds, redact = redaction_seconds(process), process.manager.redact_latest_message

    def cut_off(*arguments: Any) -> None:
        for name, proxy in (("hot", far.hot), ("durable", far.durable)):
            if down in (name, "both"):
                proxy.blackhole()
        redact(*arguments)

    process.manager.redact_latest_message = cut_off
    asyncio.run(process.agent.invoke_async(f"a1 text {SECRET}"))
    assert seconds[0] < 0.1
    assert SECRET not in json.dumps(process.agent.messages)
    far.hot.passing()
    far.durable.passing()
    servers.wait_until(
        lambda: SECRET not in everything_stored(unique, far.direct),
        "the redaction in both tiers",
    )
    with patient_clients():
        other = new_process(far.direct, **PLAIN)
    assert SECRET not in str([other.agent.messages, other.log()])
    assert REDACTED in str(other.log())


def test_no_write_after_a_redaction_has_the_original(new_process: NewProcess, far: Far) -> None:
    """Saves and flushes that were requested before store the redacted form."""
    process = new_process(far.stores, flush_every=1, **PLAIN)
    process.agent.model = GuardedModel(talk.reply, secret=SECRET, shown=f"a1 text {REDACTED}")
    process.agent("a0 text")
    written: list[str] = []
    is_redacted: list[bool] = []
    hot, durable = process.hot, process.durable
    assert hot is not None
    assert durable is not None
    for store, name in ((hot, "write"), (durable, "put"), (durable, "batch_write")):
        original = getattr(store, name)

        def recorded(*arguments: Any, original: Any = original, **named: Any) -> Any:
            if is_redacted:
                written.append(str((arguments, named)))
            return original(*arguments, **named)

        setattr(store, name, recorded)
    redact = process.manager.redact_latest_message

    def redact_and_note(*arguments: Any) -> None:
        conversation = process.manager._session_agent(process.agent).conversation
        with conversation.lock:  # a save takes its values before or after, never in between
            conversation.saver.request_flush()
            redact(*arguments)
            is_redacted.append(True)

    process.manager.redact_latest_message = redact_and_note
    far.hot.delay = far.durable.delay = 0.05
    asyncio.run(process.agent.invoke_async(f"a1 text {SECRET}"))
    process.agent("a2 text")
    process.manager.flush()
    far.hot.delay = far.durable.delay = 0.0
    assert REDACTED in str(written)
    assert SECRET not in str(written)


def test_redaction_with_memories_summaries_and_recall_keeps_no_original(
    unique: str, far: Far, dynamodb_server: servers.DynamoDB
) -> None:
    """The durable tier is away during the redaction."""
    model = GuardedModel(lambda messages: "a answer", secret=SECRET, shown=f"a1 text {REDACTED}")
    memory = MangaMemory.open(
        far.stores.hot or "",
        far.stores.durable,
        memories=True,
        hot_deadline=0.5,
        durable_deadline=0.5,
        **PLAIN,
    )
    scope = ConversationScope(unique, unique)
    agent = memory.agent(model, user_id=unique, session_id=unique, history="summarize", recall=True)
    agent("hello there")
    agent._session_manager.flush()
    far.durable.blackhole()
    asyncio.run(agent.invoke_async(f"I love the genre {SECRET} and my author is {SECRET}."))
    far.durable.passing()
    for number in range(4):
        agent(f"which card number did I say, number {number}?")
    agent._session_manager.flush()
    servers.wait_until(
        lambda: not agent._session_manager.stats()["unsaved_messages"], "saving everything"
    )
    assert SECRET not in str(model.requests[2:])
    agent._session_manager.close()
    memory.finalize(scope)
    memory.close()

    client = dynamodb_server.client()
    found = [everything_stored(scope.storage_session_id, far.direct)]
    for name in client.list_tables()["TableNames"]:
        pages = client.get_paginator("scan").paginate(TableName=name)
        found += [str(item) for page in pages for item in page["Items"] if unique in str(item)]
    assert REDACTED in str(found)
    assert SECRET not in str(found)
