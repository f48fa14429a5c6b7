"""A redacted text is in no tier, raw or decoded, and in no queue."""

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from strands import Agent
from strands.agent.conversation_manager import (
    NullConversationManager,
    SlidingWindowConversationManager,
)
from strands.hooks import BeforeModelCallEvent, MessageAddedEvent

from strands_manga_memory.exceptions import CorruptRecordError, StoreUnavailableError
from strands_manga_memory.stores import Codec
from strands_manga_memory.testing import ScriptedModel
from tests import clocks
from tests.faulty_stores import FaultyHotStore, FaultyTable
from tests.servers import wait_until
from tests.support import GuardedModel, stub_tool
from tests.unit.session.support import (
    Stores,
    everything_stored,
    open_stores,
    same,
    texts,
    tool_use,
    user,
)

SECRET = "4111 1111 1111 1111"
REDACTED = "[redacted by the guardrail]"


@pytest.fixture
def stores(stores: Stores) -> Stores:
    stores.settings["codec"] = Codec(compress_from=1_000_000)  # so that it is found in a file too
    return stores


@pytest.fixture
def both(request: pytest.FixtureRequest) -> Stores:
    stores = open_stores("valkey+sqlite", request)
    stores.hot, stores.durable = FaultyHotStore(stores.hot), FaultyTable(stores.durable)
    return stores


def guarded(replies: Any = (), **settings: Any) -> GuardedModel:
    """Return a model whose guardrail rejects the secret."""
    return GuardedModel(replies, secret=SECRET, shown=REDACTED, **settings)


def in_memory(value: Any, seen: set[int] | None = None) -> bool:
    """Tell whether the secret is anywhere in what a conversation keeps in memory."""
    seen = set() if seen is None else seen
    if id(value) in seen or value is None:
        return False
    seen.add(id(value))
    if isinstance(value, bytes | str):
        return SECRET in (value.decode("utf-8", "replace") if isinstance(value, bytes) else value)
    return any(in_memory(part, seen) for part in _parts(value))


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.keys()
        yield from value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        yield from value
    elif type(value).__module__.startswith("strands_manga_memory.session"):
        for name in {*getattr(value, "__dict__", {}), *getattr(type(value), "__slots__", ())}:
            yield getattr(value, name, None)


def check_gone(stores: Stores, live: Agent) -> None:
    """The secret is nowhere now, nor after further turns, flushes and restores."""
    manager = live._session_manager
    for number in range(3):
        manager.flush()
        assert SECRET.encode() not in everything_stored(stores)
        assert SECRET not in str(list(manager.history()))
        assert SECRET not in str(live.messages)
        assert not in_memory(manager._conversations["A", "default"])
        assert same(stores.agent().messages, live.messages)
        live(f"and then {number}")
    manager.close()
    assert SECRET.encode() not in everything_stored(stores)
    assert REDACTED in str(list(stores.manager().history()))


def redact_first(agent: Any) -> None:
    """Redact the first message in the log."""
    message = next(agent._session_manager.records())["message"]
    agent._session_manager.redact_latest_message(
        {**message, "content": [{"text": REDACTED}]}, agent
    )


@pytest.mark.parametrize("kind", ["memory", "valkey+sqlite", "sqlite"])
def test_restored_agent_redacts_a_message_that_has_left_the_history(
    kind: str, request: pytest.FixtureRequest
) -> None:
    stores = open_stores(kind, request)
    stores.settings["codec"] = Codec(compress_from=1_000_000)
    live = stores.agent(conversation_manager=SlidingWindowConversationManager(2))
    for text in (f"my card is {SECRET}", "two", "three"):
        live(text)
    live._session_manager.close()
    restored: Any = stores.agent(conversation_manager=SlidingWindowConversationManager(2))
    message = next(stores.manager().records())["message"]
    restored._session_manager.redact_latest_message(
        {**message, "content": [{"text": REDACTED}]}, restored
    )
    assert texts(stores.manager().history())[:3] == [REDACTED, "ok", "two"]
    check_gone(stores, restored)


def flush_before_the_answer(event: BeforeModelCallEvent) -> None:
    event.agent._session_manager.flush()


@pytest.mark.parametrize("flushed", [False, True])
def test_a_redacted_question(stores: Stores, flushed: bool) -> None:
    live = stores.agent(guarded(), flush_every=1)
    live("hello")
    if flushed:
        live.hooks.add_callback(BeforeModelCallEvent, flush_before_the_answer)
    live(f"my card is {SECRET}")
    assert texts(live.messages) == ["hello", "ok", REDACTED, "ok"]
    check_gone(stores, live)


card = stub_tool("card", lambda: f"it is {SECRET}, " + "valid " * 100)


def shorten_results(event: MessageAddedEvent) -> None:
    """Shorten a tool result in the history: the log has the full one."""
    for block in event.message["content"]:
        if "toolResult" in block:
            block["toolResult"]["content"] = [
                {"text": block["toolResult"]["content"][0]["text"][:40]}
            ]


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize(
    ("replies", "is_shortened", "asked"),
    [
        ([], False, f"my card is {SECRET}"),
        ([f"your card is {SECRET}"], False, "what is my card"),
        ([[tool_use("t", "card")], "done"], False, "look it up"),
        ([[tool_use("t", "card")], "done"], True, "look it up"),
    ],
    ids=["first question", "answer", "tool result", "shortened tool result"],
)
def test_a_redacted_part_of_the_first_turn(
    both: Stores, replies: list[Any], is_shortened: bool, asked: str, flushed: bool
) -> None:
    live = both.agent(guarded(replies), tools=[card])
    if is_shortened:
        live.hooks.add_callback(MessageAddedEvent, shorten_results)
    if flushed:
        live.hooks.add_callback(BeforeModelCallEvent, flush_before_the_answer)
    live(asked)
    assert REDACTED in str(live.messages)
    check_gone(both, live)


def test_the_same_list_was_said_before(both: Stores) -> None:
    """A caller passes one list twice: the agent redacts one object that stands for two messages."""
    model = guarded()
    live = both.agent(model)
    prompt = [user(f"my card is {SECRET}")]
    guard, GuardedModel.stream = GuardedModel.stream, ScriptedModel.stream
    try:
        live(prompt)
    finally:
        GuardedModel.stream = guard
    assert SECRET.encode() in everything_stored(both)
    live(prompt)
    check_gone(both, live)


@pytest.mark.parametrize("flushed", [False, True])
def test_a_model_that_keeps_the_conversation_itself(both: Stores, flushed: bool) -> None:
    live = both.agent(guarded(stateful=True))
    live("hello")
    if flushed:
        live.hooks.add_callback(BeforeModelCallEvent, flush_before_the_answer)
    live(f"my card is {SECRET}")
    live._session_manager.flush()
    assert SECRET.encode() not in everything_stored(both)
    assert texts(both.manager().history()) == ["hello", "ok", REDACTED, "ok"]
    assert not in_memory(live._session_manager._conversations["A", "default"])


@pytest.mark.parametrize("down", ["hot", "durable", "both"])
@pytest.mark.parametrize("flushed", [False, True])
def test_while_a_tier_is_down(both: Stores, down: str, flushed: bool) -> None:
    """The tier gets the redacted form later; a late flush brings back no original."""
    live = both.agent(guarded(), flush_every=1, hot_deadline=0.5, durable_deadline=0.5)
    live("hello")
    down_now = [t for n, t in (("hot", both.hot), ("durable", both.durable)) if down in (n, "both")]

    def cut_off(event: BeforeModelCallEvent) -> None:
        if flushed:
            event.agent._session_manager.flush()
        for tier in down_now:
            tier.down = True

    live.hooks.add_callback(BeforeModelCallEvent, cut_off)
    live(f"my card is {SECRET}")
    live.hooks._registered_callbacks[BeforeModelCallEvent].clear()
    if down != "hot":
        with pytest.raises(StoreUnavailableError):
            live._session_manager.flush()
    for tier in down_now:
        tier.down = False
    flush_soon(live)
    check_gone(both, live)


def flush_soon(live: Agent) -> None:
    """Flush as soon as the tiers are tried again, and wait until both have it."""
    conversation = live._session_manager._conversations["A", "default"]

    def everywhere() -> bool:
        with suppress(StoreUnavailableError):
            live._session_manager.flush()
            return not conversation.local.is_dirty and conversation.storage.hot.health.is_up
        return False

    wait_until(everywhere, "the return of the tiers")


@pytest.mark.parametrize("read_from_log", [False, True], ids=["a live agent", "a restored agent"])
def test_a_message_that_returned_is_redacted_there_too(both: Stores, read_from_log: bool) -> None:
    """A returned message is that of the log, not a copy."""
    live = both.agent(conversation_manager=NullConversationManager())
    for text in (f"my card is {SECRET}", "two", "three"):
        live(text)
    evicted = live.messages[:2]
    del live.messages[:2]
    live("four")
    live._session_manager.flush()
    if read_from_log:
        live = both.agent(conversation_manager=NullConversationManager())
        assert SECRET not in str(live.messages)
        evicted = [record["message"] for record in live._session_manager.records()][:2]
    live.messages[:0] = evicted
    live("five")
    live._session_manager.flush()
    assert same(both.agent().messages, live.messages)

    redact_first(both.agent())
    assert SECRET not in str(both.agent().messages)
    assert texts(both.agent().messages)[0] == REDACTED


@pytest.mark.parametrize("refresh", ["turn", "never"])
@pytest.mark.parametrize("by_another", [False, True], ids=["here", "by another agent"])
def test_live_agent_has_a_redacted_message_at_its_next_turn(
    both: Stores, by_another: bool, refresh: str
) -> None:
    live = both.agent(model := ScriptedModel(), refresh=refresh)
    for text in (f"my card is {SECRET}", "two"):
        live(text)
    live._session_manager.flush()
    redact_first(both.agent() if by_another else live)
    unchanged = live.messages[1:]
    live("three")
    assert texts(live.messages)[0] == REDACTED
    assert all(now is before for now, before in zip(live.messages[1:], unchanged, strict=False))
    assert SECRET not in str(model.requests[-1])
    assert same(both.agent().messages, live.messages)


def test_agent_that_redacted_while_no_tier_answered_keeps_its_states(both: Stores) -> None:
    live = both.agent(
        guarded(),
        conversation_manager=SlidingWindowConversationManager(2),
        hot_deadline=0.5,
        durable_deadline=0.5,
    )
    live("hello")
    both.hot.down = both.durable.down = True
    live(f"my card is {SECRET}")
    history = live.messages
    live("three")
    assert live.messages is history
    assert live.conversation_manager.removed_message_count == 4
    both.hot.down = both.durable.down = False
    flush_soon(live)
    check_gone(both, live)


def test_edit_of_a_redacted_message_stays_in_a_live_agent(both: Stores) -> None:
    live = both.agent(refresh="turn")
    live(f"my card is {SECRET}")
    live._session_manager.flush()
    redact_first(both.agent())
    live("two")
    live.messages[0]["content"] = [{"text": "[redacted]"}]
    history = live.messages
    for text in ("three", "four"):
        live(text)
    assert live.messages is history
    assert texts(live.messages)[0] == "[redacted]"
    assert texts(both.agent().messages)[0] == REDACTED


def slow_down(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delay each write of the durable tier so that only a waiting caller finds it done."""
    put = stores.durable.put
    monkeypatch.setattr(
        stores.durable,
        "put",
        lambda *arguments, **named: time.sleep(0.2) or put(*arguments, **named),
    )


def test_redaction_waits_for_every_tier(both: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside of an event loop every tier has the redacted form when the call returns."""
    live = both.agent(flush_every=1)
    live(f"my card is {SECRET}")
    live._session_manager.flush()
    assert SECRET.encode() in everything_stored(both)
    live.messages[-2]["content"] = [{"text": REDACTED}]
    slow_down(both, monkeypatch)
    live._session_manager.redact_latest_message(live.messages[-2], live)
    assert SECRET.encode() not in everything_stored(both)


def test_turn_waits_until_every_tier_has_its_redaction(
    both: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn in which a guardrail redacted ends when every tier has the redacted form."""
    live = both.agent(guarded())
    live("hello")
    live.hooks.add_callback(BeforeModelCallEvent, flush_before_the_answer)
    manager = live._session_manager
    redact, seen = manager.redact_latest_message, []

    def look_and_redact(message: Any, agent: Agent, **named: Any) -> None:
        seen.append(SECRET.encode() in everything_stored(both))
        slow_down(both, monkeypatch)
        redact(message, agent, **named)

    manager.redact_latest_message = look_and_redact
    live(f"my card is {SECRET}")
    assert seen == [True]
    assert SECRET.encode() not in everything_stored(both)


def test_a_window_that_slides_in_the_same_turn(both: Stores) -> None:
    live = both.agent(
        guarded([[tool_use("t", "card")], "done"]),
        tools=[card],
        conversation_manager=SlidingWindowConversationManager(2, per_turn=True),
    )
    live("look it up")
    live._session_manager.flush()
    assert SECRET.encode() not in everything_stored(both)


@pytest.mark.parametrize("by_another", [False, True], ids=["here", "by another process"])
def test_an_evicted_message_is_redacted_in_memory_too(both: Stores, by_another: bool) -> None:
    """Its kept text is replaced in memory, log and hot tier."""
    live = both.agent(conversation_manager=SlidingWindowConversationManager(4), refresh="turn")
    for text in (f"my card is {SECRET}", "two", "three", "four"):
        live(text)
    manager = live._session_manager
    manager.flush()
    assert SECRET not in str(live.messages)
    assert in_memory(manager._conversations["A", "default"])
    record = next(manager.records())["message"]
    redacted = {**record, "content": [{"text": REDACTED}]}
    if by_another:
        redact_first(both.agent())
        live("five")
    else:
        manager.redact_latest_message(redacted, live)
    check_gone(both, live)


def reads_that_wait_for_the_loop(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let each read of the durable tier wait for the event loop; return the list of the seconds."""
    waits: list[float] = []
    loop = asyncio.get_running_loop()
    for name in ("get", "batch_get", "query"):
        read = getattr(stores.durable, name)

        def slow(*arguments: Any, read: Any = read, **named: Any) -> Any:
            if loop.is_running():
                has_run = threading.Event()
                loop.call_soon_threadsafe(has_run.set)
                with clocks.Idle() as idle:
                    has_run.wait(20)
                waits.append(idle.seconds)
            return read(*arguments, **named)

        monkeypatch.setattr(stores.durable, name, slow)
    return waits


def redacting_older_secret(stores: Stores, **settings: Any) -> tuple[Any, Any, Any]:
    """Return the agent of ``restored_with_older_secret``, its manager, and a redacted message."""
    restored = restored_with_older_secret(stores, **settings)
    message = {**next(stores.manager().records())["message"], "content": [{"text": REDACTED}]}
    return restored, restored._session_manager, message


def restored_with_older_secret(stores: Stores, **settings: Any) -> Any:
    """Return a restored agent whose log has a secret that its history lacks."""
    manager = SlidingWindowConversationManager(2)
    live = stores.agent(conversation_manager=manager)
    for text in (f"my card is {SECRET}", "two", "three"):
        live(text)
    live._session_manager.close()
    manager = SlidingWindowConversationManager(2)
    return stores.agent(conversation_manager=manager, **settings)


@pytest.mark.parametrize("ends", ["a turn", "a flush"])
def test_redaction_of_a_logged_message_does_not_block_the_event_loop(
    both: Stores, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """The next turn, or a flush in a thread, ends when both tiers have the redacted form."""
    restored = restored_with_older_secret(both, durable_deadline=10.0)
    message = next(both.manager().records())["message"]

    async def redact_and_continue() -> list[float]:
        waits = reads_that_wait_for_the_loop(both, monkeypatch)
        redacted = {**message, "content": [{"text": REDACTED}]}
        restored._session_manager.redact_latest_message(redacted, restored)
        if ends == "a turn":
            await restored.invoke_async("four")
        else:
            await asyncio.to_thread(restored._session_manager.flush)
        return waits

    assert max(asyncio.run(redact_and_continue())) < 0.1
    assert SECRET.encode() not in everything_stored(both)
    monkeypatch.undo()
    check_gone(both, restored)


@pytest.mark.parametrize("on_loop", [False, True], ids=["in a thread", "on an event loop"])
def test_redaction_of_a_log_is_repeated_after_an_outage(both: Stores, on_loop: bool) -> None:
    restored = restored_with_older_secret(both, durable_deadline=0.2)
    message = next(both.manager().records())["message"]
    both.durable.down = True

    async def redact() -> None:
        restored._session_manager.redact_latest_message(
            {**message, "content": [{"text": REDACTED}]}, restored
        )

    if on_loop:
        asyncio.run(redact())
    else:
        with suppress(StopIteration):
            redact().send(None)
    both.durable.down = False
    wait_until(
        lambda: SECRET.encode() not in everything_stored(both),
        "the redaction of the log",
    )
    check_gone(both, restored)


@pytest.mark.parametrize("waited", ["the call", "a turn"])
def test_flush_waits_for_a_redaction_over_its_deadline(both: Stores, waited: str) -> None:
    restored, manager, message = redacting_older_secret(both, durable_deadline=0.2)
    both.durable.down = True

    async def redact_in_a_turn() -> None:
        manager.redact_latest_message(message, restored)
        await restored.invoke_async("four")

    if waited == "a turn":
        asyncio.run(redact_in_a_turn())
    else:
        manager.redact_latest_message(message, restored)
    both.durable.down = False
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            manager.flush()
            break
        except StoreUnavailableError:
            time.sleep(0.05)
    assert SECRET.encode() not in everything_stored(both)
    check_gone(both, restored)


def test_redaction_in_a_log_that_cannot_be_read_is_an_error(
    both: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    restored, manager, message = redacting_older_secret(both)

    def query(*arguments: Any, **named: Any) -> Any:
        raise CorruptRecordError("damaged", record="head")

    monkeypatch.setattr(both.durable, "query", query)
    with pytest.raises(CorruptRecordError):
        manager.redact_latest_message(message, restored)
    monkeypatch.undo()
    manager.flush()
    manager.redact_latest_message(message, restored)
    check_gone(both, restored)


@pytest.mark.parametrize("identity", [None, "unknown"])
def test_redaction_of_a_message_in_no_store_changes_nothing(both: Stores, identity: Any) -> None:
    restored = restored_with_older_secret(both)
    manager = restored._session_manager
    before = list(manager.records())
    both.durable.calls.clear()
    message = {"role": "user", "content": [{"text": REDACTED}], "tracking_id": identity}
    manager.redact_latest_message(message, restored)
    assert bool(both.durable.calls) == bool(identity), "the log is searched for an id only"
    manager.close()
    assert list(both.manager().records()) == before


def test_deletion_while_the_log_is_searched_for_a_redaction_leaves_nothing(
    both: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    restored, manager, message = redacting_older_secret(both)
    read = both.durable.query

    def query(*arguments: Any, **named: Any) -> Any:
        rows = list(read(*arguments, **named))
        monkeypatch.undo()
        manager.delete_session()
        return iter(rows)

    monkeypatch.setattr(both.durable, "query", query)
    manager.redact_latest_message(message, restored)
    manager.close()
    assert not both.manager().exists()
    assert SECRET.encode() not in everything_stored(both)
    assert REDACTED.encode() not in everything_stored(both)


def test_forks_leave_a_redaction_to_parents(both: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    restored, manager, message = redacting_older_secret(both, durable_deadline=10.0)
    both.durable.down = True

    async def redact() -> None:
        manager.redact_latest_message(message, restored)

    asyncio.run(redact())
    if not (child := os.fork()):
        both.durable.down = False
        try:
            with clocks.Idle() as idle:
                manager.flush()
        finally:
            os._exit(int(idle.seconds > 5))
    assert os.waitpid(child, 0)[1] == 0
    both.durable.down = False
    manager.flush()
    check_gone(both, restored)
