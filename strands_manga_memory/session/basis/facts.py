"""Facts: what is kept of a conversation beside what was said: states, and what is counted and noted. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from strands_manga_memory.session.core.merge import Copy
from strands_manga_memory.session.core.registers import States, is_derived, layer_of
from strands_manga_memory.stores.encoding.codec import load, trusted

FACTS = "#facts"
"""The layer of states that holds what is noted: the ids, and whether the hot tier is ahead. Writers tell the rest."""

STATES = "state"
"""The layer of states that are each one value; ``state.agent`` and ``meta`` are layers of their own, told apart by key."""

AGENT = "state.agent"
MANAGER = "state.manager"
INTERRUPTS = "state.interrupts"
CHECKPOINT = "state.checkpoint"
META = "meta"
ORCHESTRATOR = "state.multi"


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is noted of a life.

    Args:
        turns: User requests.
        messages: Messages.
        created: When it began, in seconds since 1970; 0 if it has not.
        active: When it was last saved; 0 if it never was.
        ids: The original ids of session, user, tenant and member.
        is_ahead: Whether the hot tier may have more than the durable one.
    """

    turns: int = 0
    messages: int = 0
    created: float = 0.0
    active: float = 0.0
    ids: Mapping[str, Any] = field(default_factory=dict)
    is_ahead: bool = False


def has_news(mine: Copy, other: Copy) -> bool:
    """Tell whether a copy has more than facts, and what is derived, that another one lacks."""
    if not mine.vector.at_least(other.vector):
        return True
    if any(revision > mine.redactions.get(name, 0) for name, revision in other.redactions.items()):
        return True
    if other.window is not None and (mine.window is None or mine.window.order < other.window.order):
        return True
    news = (
        path for path, register in other.states.items() if path not in mine.states or mine.states[path].stamp < register.stamp
    )
    return any(path[0] != FACTS and not is_derived(path) for path in news)


def facts_of(copy: Copy, record: str) -> Facts:
    """Return the facts of a copy; zeros if nothing is noted yet.

    Raises:
        CorruptRecordError: They cannot be read. Names ``record``.
    """
    with trusted(record):
        layer, tally = layer_of(copy.states, FACTS), copy.vector.tally
        return Facts(
            turns=tally.turns,
            messages=tally.messages,
            created=copy.created,
            active=tally.at,
            ids=dict(layer.get("ids") or {}),
            is_ahead=bool(layer.get("ahead")),
        )


def is_interrupted(fields: Mapping[str, bytes]) -> bool:
    """Tell whether an agent waits for the answer to an interrupt."""
    return bool(INTERRUPTS in fields and load(fields[INTERRUPTS]).get("activated"))


def pauses_after(fields: Mapping[str, bytes]) -> str | None:
    """Return the ``tracking_id`` of the message after which an agent paused at a checkpoint; None if it did not."""
    return load(fields[CHECKPOINT]).get("after") if CHECKPOINT in fields else None


def is_waiting(states: States) -> bool:
    """Tell whether an agent, or an orchestrator's run, waits for the answer to an interrupt, by what is stored."""
    layer = layer_of({path: register for path, register in states.items() if path[1:] in _WAITING}, STATES)
    is_activated = layer.get(INTERRUPTS, {}).get("activated")
    return bool(is_activated) or layer.get(ORCHESTRATOR, {}).get("status") == "interrupted"


_WAITING = {(INTERRUPTS,), (ORCHESTRATOR,)}
