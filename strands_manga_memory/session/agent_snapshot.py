"""Conversion of an agent's history and states to stored values, and back.

Each message is stored once, in its turn. The history (``agent.messages``) is stored as a list of
references (slots) to these messages. Each state, such as a value of ``agent.state``, is stored
under a name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from strands.types.content import Message

from strands_manga_memory.messages import is_message
from strands_manga_memory.session.protocol.record import Slot, TurnKey
from strands_manga_memory.stores.codec import dump, load

UNREADABLE_TEXT = "[message could not be read]"
"""Text of the placeholder for a message that cannot be read."""

Stored = Callable[[Slot], bytes | None]
"""Function that returns the serialized message of a reference; None if it cannot be read now."""

Found = Callable[[str], Iterable[tuple[TurnKey, int]]]
"""Function that returns turn key and index of each message in memory with a ``tracking_id``."""

INTERRUPTS, MODEL, ORCHESTRATOR = "interrupts", "model", "orchestrator"

STATE, META = "agent.", "meta."
"""Beginnings of the names of state entries: keys of ``agent.state``, and metadata."""

_WHOLE = {"interrupt_state": INTERRUPTS, "model_state": MODEL}
MANAGER_STATE = "conversation_manager_state"
"""Name of the conversation manager's state in a Strands snapshot."""


# History


def slots_of(
    messages: Sequence[Mapping[str, Any]],
    view: Sequence[Slot],
    stored: Stored,
    found: Found = lambda identity: (),
) -> tuple[Slot, ...]:
    """Convert the messages of an agent's history to references to stored messages.

    - A message that equals a stored message becomes a reference to that message.
    - An edited message has the ``tracking_id`` of a stored message. It becomes a reference to that
      message, with the edited text in the field ``body``.
    - A placeholder, which replaces a stored message that could not be read, becomes a reference to
      the stored message.
    - Any other message, such as a summary, belongs to no turn. It becomes a reference that contains
      the whole message.

    ``view`` has the references of the previous history, and of messages added since. ``found``
    finds a message in memory that ``view`` lacks, by its ``tracking_id``.
    """
    unmatched: dict[bytes, list[Slot]] = {}
    for slot in view:
        data = stored(slot)
        if data is not None:
            unmatched.setdefault(data, []).append(slot)
    dumped = [dump(message) for message in messages]
    unchanged = [unmatched[data].pop(0) if unmatched.get(data) else None for data in dumped]
    if None not in unchanged:
        return tuple(filter(None, unchanged))
    unreadable = {_placeholder_id(slot): slot for slot in view}
    shown = {slot[:2]: slot for slot in view if slot.key is not None}
    edited: dict[str, list[Slot]] = {}
    for data, slots in unmatched.items():
        if slots and (identity := identity_of(load(data))):
            edited.setdefault(identity, []).extend(slots)

    def changed_slot(message: Mapping[str, Any], data: bytes) -> Slot:
        identity = identity_of(message)
        if identity in unreadable and _is_placeholder(message):
            return unreadable[identity]  # its message may be readable again by now
        if identity and edited.get(identity):
            return edited[identity].pop(0)._replace(body=data)
        position = next(iter(found(identity)), None) if identity else None
        if position is None or position in shown:
            return Slot(None, 0, data)
        returned = shown[position] = Slot(*position)
        return returned if stored(returned) == data else returned._replace(body=data)

    matches = zip(unchanged, messages, dumped, strict=True)
    return tuple(slot or changed_slot(message, data) for slot, message, data in matches)


def messages_of(
    view: Sequence[Slot],
    stored: Stored,
    *,
    before: Sequence[Slot] = (),
    present: Sequence[Message] = (),
) -> list[Message]:
    """Convert references (``view``) to the messages of an agent's new history.

    Messages of the present history are reused. They are in ``present``, and their references in
    ``before``. A placeholder replaces each message that cannot be read.
    """
    kept = dict(zip(before, present, strict=True)) if len(before) == len(present) else {}
    messages: list[Message] = []
    for slot in view:
        known = kept.get(slot)
        if known is not None and not _is_placeholder(known):
            messages.append(known)
            continue
        data = stored(slot)
        if data is not None and is_message(found := load(data)):
            messages.append(found)
        else:
            messages.append(_placeholder(slot, messages))
    return messages


def identity_of(message: Any) -> str | None:
    """Return the ``tracking_id`` of a message; None if it is missing, empty or not text."""
    identity = message.get("tracking_id") if isinstance(message, Mapping) else None
    return identity if identity and isinstance(identity, str) else None


def has_identity(data: bytes | None, identity: str | None) -> bool:
    """Return whether a serialized message has the ``tracking_id`` ``identity``."""
    if not data or not identity:
        return False
    # Other characters than ASCII have two serialized forms.
    return (not identity.isascii() or dump(identity) in data) and identity_of(
        load(data)
    ) == identity


def _placeholder(slot: Slot, before: Sequence[Message]) -> Message:
    # The roles of messages must alternate.
    is_next = bool(before) and before[-1]["role"] == "user"
    role: Literal["user", "assistant"] = "assistant" if is_next else "user"
    return {
        "role": role,
        "content": [{"text": UNREADABLE_TEXT}],
        "tracking_id": _placeholder_id(slot),
    }


def _placeholder_id(slot: Slot) -> str:
    return f"unreadable-{slot.key}-{slot.number}"


def _is_placeholder(message: Mapping[str, Any]) -> bool:
    return bool(message.get("content") == [{"text": UNREADABLE_TEXT}])


# States


def entries_of(snapshot: Mapping[str, Any]) -> tuple[dict[str, bytes], bytes | None]:
    """Convert the states in a Strands snapshot to named, serialized values, which can be stored.

    Returns:
        A dict with the values of ``agent.state``, the interrupts and the state of the model; and
        the serialized state of the conversation manager, or None.
    """
    state, notes = snapshot.get("state") or {}, snapshot.get(MANAGER_STATE)
    entries = {f"{STATE}{key}": dump([value]) for key, value in state.items()}
    for name, entry in _WHOLE.items():
        if (found := snapshot.get(name)) is not None:
            entries[entry] = dump(found)
    return entries, None if notes is None else dump(notes)


def serialize_states(values: Mapping[str, Any]) -> dict[str, bytes]:
    """Serialize the states of an agent: values of ``agent.state``, interrupts and model state.

    ``values`` are all values stored with the conversation, keyed by name. Deleted states and other
    values, such as metadata, are left out.
    """
    return {
        name: dump(value)
        for name, value in values.items()
        if (name.startswith(STATE) or name in _WHOLE.values()) and value != []
    }


def snapshot_of(states: Mapping[str, Any], notes: Any) -> dict[str, Any]:
    """Convert the stored states of an agent to the data of a Strands snapshot.

    ``states`` are the values stored with the conversation, keyed by name. Values that are no
    states, such as metadata, are ignored. ``notes`` is the stored state of the conversation
    manager, or None.

    Raises:
        ValueError: A value does not have the stored form of a state.
    """
    kept = {name[len(STATE) :]: one for name, one in states.items() if name.startswith(STATE)}
    for name, value in kept.items():
        if not isinstance(value, list) or len(value) > 1:
            raise ValueError(f"the state entry {name!r:.80} must be a list of at most one value")
    found = {name: states[entry] for name, entry in _WHOLE.items() if entry in states}
    if kept:
        found["state"] = {key: value[0] for key, value in kept.items() if value}
    if notes is not None:
        found[MANAGER_STATE] = notes
    for name, value in found.items():
        if not isinstance(value, dict):
            raise ValueError(f"{name} must be an object, got {type(value).__name__}")
    # Copies, because the agent may change them.
    return {name: load(dump(value)) for name, value in found.items()}


def is_interrupted(states: Mapping[str, Any]) -> bool:
    """Return whether an agent, Graph or Swarm waits for the user's answer to an interrupt.

    ``states`` are the values stored with the conversation, keyed by name.
    """
    interrupts, run = states.get(INTERRUPTS), states.get(ORCHESTRATOR)
    if isinstance(interrupts, dict) and interrupts.get("activated"):
        return True
    return isinstance(run, dict) and run.get("status") == "interrupted"
