"""Conversion of an agent's states, such as ``agent.state`` and interrupts, to named values for storage, and back.

Messages are not included.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from strands import Agent, Snapshot
from strands.types.content import Message

from strands_manga_memory.exceptions import StoreError
from strands_manga_memory.messages import tool_result_ids
from strands_manga_memory.stores.encoding.codec import dump, load, trusted

logger = logging.getLogger(__name__)

INTERRUPTS, MODEL, ORCHESTRATOR = "interrupts", "model", "orchestrator"

STATE, META = "agent.", "meta."
"""Beginnings of the names of state entries: keys of ``agent.state``, and metadata."""

_WHOLE = {"interrupt_state": INTERRUPTS, "model_state": MODEL}
_NOTES = "conversation_manager_state"


def entries_of(snapshot: Mapping[str, Any]) -> tuple[dict[str, bytes], bytes | None]:
    """Return the states of a Strands snapshot as named, serialized values.

    Returns:
        A tuple of two values. The first is a dict with one value for each key of ``agent.state``, one for interrupts and one
        for the state of the model. The second is the state of the conversation manager, serialized; None without one.
    """
    entries = {f"{STATE}{key}": dump([value]) for key, value in (snapshot.get("state") or {}).items()}
    entries |= {entry: dump(snapshot[name]) for name, entry in _WHOLE.items() if snapshot.get(name) is not None}
    return entries, dump(snapshot[_NOTES]) if snapshot.get(_NOTES) is not None else None


def given_entries(states: Mapping[str, Any]) -> dict[str, bytes]:
    """Select an agent's states from the values stored with its conversation. Return them serialized, keyed by name.

    Other stored values, such as metadata, and deleted states are left out.
    """
    names = (name for name in states if name.startswith(STATE) or name in _WHOLE.values())
    return {name: dump(states[name]) for name in names if states[name] != []}


def snapshot_of(states: Mapping[str, Any], notes: Any) -> dict[str, Any]:
    """Return stored states of an agent, keyed as in a Strands snapshot.

    Args:
        states: The values stored with the conversation, keyed by name. Values that are no states, such as metadata, are left
            out.
        notes: State of the conversation manager; None if there is none.

    Raises:
        ValueError: A value does not have the stored form of a state.
    """
    kept = {name.removeprefix(STATE): value for name, value in states.items() if name.startswith(STATE)}
    for name, value in kept.items():
        if not isinstance(value, list) or len(value) > 1:
            raise ValueError(f"the state entry {name!r:.80} must be a list of at most one value")
    found = {name: states[entry] for name, entry in _WHOLE.items() if entry in states}
    if kept:
        found["state"] = {key: value[0] for key, value in kept.items() if value}
    if notes is not None:
        found[_NOTES] = notes
    for name, value in found.items():
        if not isinstance(value, dict):
            raise ValueError(f"{name} must be an object, got {type(value).__name__}")
    return {name: load(dump(value)) for name, value in found.items()}  # a copy that the agent may change


def is_interrupted(states: Mapping[str, Any]) -> bool:
    """Return whether an agent or orchestrator waits for the answer to an interrupt."""
    interrupts, run = states.get(INTERRUPTS), states.get(ORCHESTRATOR)
    if isinstance(interrupts, dict) and interrupts.get("activated"):
        return True
    return isinstance(run, dict) and run.get("status") == "interrupted"


_T = TypeVar("_T")


def take_states(agent: Agent) -> Mapping[str, Any]:
    """Return an agent's states without its messages, keyed as in a Strands snapshot."""
    return _with_room(partial(agent.take_snapshot, preset="session", exclude=["messages"])).data


def restore_agent(agent: Agent, messages: list[Message], states: Mapping[str, Any], *, record: str) -> None:
    """Restore the messages and the states of an agent.

    If another class of conversation manager stored its state, that state is not restored, and a warning is logged.

    Args:
        agent: The agent.
        messages: The messages of its history.
        states: Its states, keyed as in a Strands snapshot.
        record: Name of the stored conversation, for the error message.

    Raises:
        CorruptRecordError: A state does not have the shape that Strands or a conversation manager writes.
    """
    data, used = dict(states), type(agent.conversation_manager).__name__
    saved = data[_NOTES].get("__name__") if data.get(_NOTES) is not None else used
    if saved != used:
        logger.warning("saved=<%s>, used=<%s> | another conversation manager takes over, it begins without state", saved, used)
        del data[_NOTES]
    with trusted(record):
        _with_room(partial(agent.load_snapshot, Snapshot(scope="agent", schema_version="1.0", data=data, app_data={})))
    agent.messages = messages  # not with the snapshot, whose messages are copied recursively


def _with_room(work: Callable[[], _T]) -> _T:
    """Call ``work``, and return its result. At Python's recursion limit, call it again in a new thread with an empty stack."""
    try:
        return work()
    except RecursionError:
        with ThreadPoolExecutor(1) as alone:
            return alone.submit(work).result()


_REFERENCES = re.compile(r"\[refs?: ([^\]\n\\]{1,1000})\]")
"""Pattern of references to messages in the agent's stash, each with an id, an underscore and a number."""


def refill_stash(agent: Agent, history: Callable[[], Iterable[Message]]) -> None:
    """Fill an agent's stash (storage for offloaded messages) with the messages to which references in its history point.

    A stash that survives the process is not changed. If the log cannot be read, no message is restored, and a warning is
    logged.

    Args:
        agent: The agent.
        history: Returns the messages of the log. It is called only if the agent's history has references.
    """
    manager = agent.context_manager
    if manager is None or manager.stash is None or manager.stash_is_durable:
        return
    texts = [dump(message["content"]).decode() for message in agent.messages]
    names = [name for text in texts for group in _REFERENCES.findall(text) for name in group.split(",")]
    wanted, stash = {name.strip().rpartition("_")[0] for name in names}, manager.stash
    if not wanted:
        return
    try:
        originals = [message for message in history() if wanted & {message.get("tracking_id"), *tool_result_ids(message)}]
    except StoreError as error:
        logger.warning("error=<%s> | what was put aside cannot be read just now, it is not restored", type(error).__name__)
        return

    async def store() -> None:
        for message in originals:
            await stash.store_message(message)

    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, store()).result()


def stash_replacement(agent: Agent | None, message: Message) -> Callable[[], None] | None:
    """Return a function that replaces a redacted message in an agent's stash (storage for offloaded messages).

    The function may do I/O, and must be called in a thread without an event loop. The result is None if the agent has no stash.
    """
    manager = agent.context_manager if agent is not None else None
    stash = manager.stash if manager is not None else None
    return None if stash is None else lambda: asyncio.run(stash.store_message(message))
