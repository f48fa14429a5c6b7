"""Registration of functions that provide metadata of an agent's conversation.

A session manager calls these functions at each save. The session manager stores the metadata with the conversation.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

from strands import Agent

_providers: weakref.WeakKeyDictionary[Agent, Callable[[], Mapping[str, Any]]] = weakref.WeakKeyDictionary()


def announces(agent: Agent, provider: Callable[[], Mapping[str, Any]]) -> None:
    """Register a function that provides metadata of an agent's conversation.

    The function is called at each save of the conversation.

    Args:
        agent: The agent.
        provider: Function that returns the metadata by key, without I/O. It must not hold a reference to the agent.
    """
    _providers[agent] = provider


def announced(agent: Agent) -> Mapping[str, Any]:
    """Return the current metadata of an agent's conversation.

    The mapping is empty if no function is registered for the agent.
    """
    provider = _providers.get(agent)
    return {} if provider is None else provider()
