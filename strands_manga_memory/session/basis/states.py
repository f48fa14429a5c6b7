"""States: what is stored of an agent or orchestrator beside its messages. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from strands_manga_memory.session.core.registers import States, layer_of
from strands_manga_memory.stores.encoding.codec import dump, load

STATES = "state"
"""The layer of states that are each one value; ``state.agent`` and ``meta`` are layers of their own, told apart by key."""

AGENT = "state.agent"
MANAGER = "state.manager"
INTERRUPTS = "state.interrupts"
CHECKPOINT = "state.checkpoint"
META = "meta"
ORCHESTRATOR = "state.multi"


def is_interrupted(fields: Mapping[str, bytes]) -> bool:
    """Tell whether an agent waits for the answer to an interrupt."""
    return bool(INTERRUPTS in fields and load(fields[INTERRUPTS]).get("activated"))


def pauses_after(fields: Mapping[str, bytes]) -> str | None:
    """Return the ``tracking_id`` of the message after which an agent paused at a checkpoint; None if it did not."""
    return load(fields[CHECKPOINT]).get("after") if CHECKPOINT in fields else None


def is_waiting(states: States) -> bool:
    """Tell whether an agent, or an orchestrator's run, waits for the answer to an interrupt, by what is stored."""
    layer = layer_of({path: register for path, register in states.items() if path[1:] in _WAITING}, STATES)
    fields = {name: dump(value) for name, value in layer.items()}
    return is_interrupted(fields) or layer.get(ORCHESTRATOR, {}).get("status") == "interrupted"


_WAITING = {(INTERRUPTS,), (ORCHESTRATOR,)}
