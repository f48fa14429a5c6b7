"""Snapshot: an agent's states as a conversation keeps them, each in a field of its own, and back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from strands import Agent, Snapshot
from strands.types.content import Message

from strands_manga_memory.stores.encoding.codec import dump, load, trusted

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

_FIELDS = {
    "state": "state.agent",
    "conversation_manager_state": "state.manager",
    "interrupt_state": "state.interrupts",
    "model_state": "state.model",
}
"""Fields of a conversation, by what Strands calls them."""


def taken(agent: Agent) -> Mapping[str, Any]:
    """Return an agent's states, by what Strands calls them, without its messages, which are kept one by one."""
    return _with_room(lambda: agent.take_snapshot(preset="session", exclude=["messages"])).data


def fields_of(states: Mapping[str, Any]) -> dict[str, bytes]:
    """Return an agent's states as fields of a conversation."""
    return {_FIELDS[name]: dump(value) for name, value in states.items() if name in _FIELDS}


def states_of(fields: Mapping[str, bytes]) -> dict[str, Any]:
    """Return what fields of a conversation hold of an agent, by what Strands calls it."""
    return {name: load(fields[field]) for name, field in _FIELDS.items() if field in fields}


def give(agent: Agent, messages: list[Message], fields: Mapping[str, bytes], *, over: Mapping[str, Any], record: str) -> None:
    """Give an agent its messages and states; ``over`` has states for what the fields lack.

    Raises:
        CorruptRecordError: A state is not of the shape that Strands or a conversation manager wrote. Names ``record``.
    """
    data = {**over, **states_of(fields)}
    state, used = data.get("conversation_manager_state"), type(agent.conversation_manager).__name__
    if state is not None and state.get("__name__") != used:
        logger.warning(
            "saved=<%s>, used=<%s> | another conversation manager takes over, it begins without state",
            state.get("__name__"),
            used,
        )
        del data["conversation_manager_state"]
    with trusted(record):
        _with_room(lambda: agent.load_snapshot(Snapshot(scope="agent", schema_version="1.0", data=data, app_data={})))
    agent.messages = messages  # here, as a snapshot's are copied by recursion


def _with_room(work: Callable[[], _T]) -> _T:
    """Return what ``work`` does, on a stack of its own if this one is too full for a deeply nested value."""
    try:
        return work()
    except RecursionError:
        with ThreadPoolExecutor(1) as alone:
            return alone.submit(work).result()
