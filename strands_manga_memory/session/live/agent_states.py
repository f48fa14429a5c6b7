"""The states of an agent as entries of a record, and back. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strands_manga_memory.session.protocol.record import CLOSED
from strands_manga_memory.stores.encoding.codec import dump, load

INTERRUPTS, MODEL, CHECKPOINT, ORCHESTRATOR = "interrupts", "model", "checkpoint", "orchestrator"

_STATE, _META = "agent.", "meta."
_WHOLE = {"interrupt_state": INTERRUPTS, "model_state": MODEL}
_NOTES = "conversation_manager_state"


def entries_of(snapshot: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the dumped state entries of a Strands snapshot; each key of the agent's state is an entry of its own.

    Args:
        snapshot: The states, by the names of a Strands snapshot.
    """
    entries = {f"{_STATE}{key}": dump([value]) for key, value in (snapshot.get("state") or {}).items()}
    return entries | {entry: dump(snapshot[name]) for name, entry in _WHOLE.items() if snapshot.get(name) is not None}


def notes_of(snapshot: Mapping[str, Any]) -> bytes | None:
    """Return the dumped state of the conversation manager; None if it has none."""
    return dump(snapshot[_NOTES]) if snapshot.get(_NOTES) is not None else None


def removed_entries(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return entries for keys that were removed from the agent's state."""
    return {name: dump([]) for name in before.keys() - after.keys() if name.startswith(_STATE)}


def given_entries(states: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the dumped entries of a record that an agent is given."""
    names = (name for name in states if name.startswith(_STATE) or name in _WHOLE.values())
    return {name: dump(states[name]) for name in names if states[name] != []}


def snapshot_of(states: Mapping[str, Any], notes: Any) -> dict[str, Any]:
    """Return the states in a record by the names of a Strands snapshot; what the record lacks is missing.

    Raises:
        ValueError: An entry is not of the form that ``entries_of`` writes.
    """
    found: dict[str, Any] = {}
    kept = {name.removeprefix(_STATE): value for name, value in states.items() if name.startswith(_STATE)}
    for name, value in kept.items():
        if not isinstance(value, list) or len(value) > 1:
            raise ValueError(f"the state entry {name!r:.80} must be a list of at most one value")
    if kept:
        found["state"] = {key: value[0] for key, value in kept.items() if value}
    for name, entry in _WHOLE.items():
        if entry in states:
            found[name] = states[entry]
    if notes is not None:
        found[_NOTES] = notes
    for name, value in found.items():
        if not isinstance(value, dict):
            raise ValueError(f"{name} must be an object, got {type(value).__name__}")
    return {name: load(dump(value)) for name, value in found.items()}  # a copy that the agent may change


def meta_entries(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata as state entries."""
    return {f"{_META}{name}": value for name, value in values.items()}


def meta_of(states: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata in a record."""
    return {name.removeprefix(_META): value for name, value in states.items() if name.startswith(_META)}


def is_interrupted(states: Mapping[str, Any]) -> bool:
    """Tell whether an agent, or the run of an orchestrator, waits for the answer to an interrupt."""
    interrupts, run = states.get(INTERRUPTS), states.get(ORCHESTRATOR)
    if isinstance(interrupts, dict) and interrupts.get("activated"):
        return True
    return isinstance(run, dict) and run.get("status") == "interrupted"


def is_note(name: str) -> bool:
    """Tell whether a state entry only notes something about the record."""
    return name == CLOSED
