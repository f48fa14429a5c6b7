"""States: what is stored of an agent or orchestrator beside its messages. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from strands_manga_memory.stores.encoding.codec import load

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


def run_waits(fields: Mapping[str, bytes]) -> bool:
    """Tell whether an orchestrator's run waits for the answer to an interrupt."""
    return ORCHESTRATOR in fields and load(fields[ORCHESTRATOR]).get("status") == "interrupted"
