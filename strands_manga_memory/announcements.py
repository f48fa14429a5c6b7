"""What is told of an agent's conversation beside its messages, for whoever keeps the conversation."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

from strands import Agent

_announcers: weakref.WeakKeyDictionary[Agent, Callable[[], Mapping[str, Any]]] = weakref.WeakKeyDictionary()


def announces(agent: Agent, told: Callable[[], Mapping[str, Any]]) -> None:
    """Let ``told`` say what is told of an agent's conversation; it is asked whenever the conversation is saved.

    Args:
        agent: The agent.
        told: Returns it by name, without I/O; it must not keep the agent alive.
    """
    _announcers[agent] = told


def announced(agent: Agent) -> Mapping[str, Any]:
    """Return what is told of an agent's conversation now."""
    told = _announcers.get(agent)
    return {} if told is None else told()
