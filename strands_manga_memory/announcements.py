"""Metadata providers of agents. Session managers store their metadata with the conversation."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

from strands import Agent

_providers: weakref.WeakKeyDictionary[Agent, Callable[[], Mapping[str, Any]]] = weakref.WeakKeyDictionary()


def announces(agent: Agent, provider: Callable[[], Mapping[str, Any]]) -> None:
    """Register the metadata provider of an agent. It is called at each save of the conversation.

    Args:
        agent: The agent.
        provider: Returns the metadata by key, without I/O. It must not hold a reference to the agent.
    """
    _providers[agent] = provider


def announced(agent: Agent) -> Mapping[str, Any]:
    """Return the current metadata of an agent's conversation; an empty mapping without a provider."""
    provider = _providers.get(agent)
    return {} if provider is None else provider()
