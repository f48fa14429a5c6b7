"""HotStates: an agent's states in the hot tier, of which a turn writes only what changed. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from strands_manga_memory.session.checking import STATE_FIELDS, checked_fields
from strands_manga_memory.session.difference import applied, difference
from strands_manga_memory.stores.codec import MOST_UNPACKED, trusted

_SINCE = {field: f"{field}.since" for field in STATE_FIELDS}
"""Beside a state that is written whole: the field with what it became since, as the difference to that."""

_WHOLE = 512
"""States below so many bytes are always written whole."""

_LARGE = 5
"""A difference over this part of the whole is not worth it: the state is written whole again."""


@dataclass(frozen=True)
class StatesWrite:
    """What a write brings of the states.

    Attributes:
        fields: Fields to set.
        removed: Fields to remove.
        digests: A digest of each state that is stored afterwards.
        whole: Those that are stored whole afterwards and are large enough to be compared with.
        differs: Those beside which there is a difference afterwards.
    """

    fields: Mapping[str, bytes]
    removed: tuple[str, ...]
    digests: Mapping[str, int]
    whole: Mapping[str, bytes]
    differs: frozenset[str]


class HotStates:
    """The states of one conversation, and what this process knows to be there.

    Args:
        name: Name of the conversation.
    """

    FIELDS = (*STATE_FIELDS, *_SINCE.values())
    """Where they are."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.forget()

    def forget(self) -> None:
        """Take nothing for granted: the next write brings everything."""
        self._there = _NOTHING

    def read(self, opened: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return the states in the unsealed fields of a conversation, and remember them.

        Raises:
            CorruptRecordError: One is damaged.
        """
        states = {field: opened[field] for field in STATE_FIELDS if field in opened}
        for field in [field for field in states if _SINCE[field] in opened]:
            with trusted(f"{self._name}#{_SINCE[field]}"):
                states[field] = applied(opened[_SINCE[field]], opened[field])
        states = checked_fields(states, self._name)
        self._there = StatesWrite(
            fields={},
            removed=(),
            digests={field: hash(state) for field, state in states.items()},
            whole={field: opened[field] for field in states if len(opened[field]) >= _WHOLE},
            differs=frozenset(field for field in states if _SINCE[field] in opened),
        )
        return states

    def changed(self, states: Mapping[str, bytes]) -> StatesWrite:
        """Return what has to be written."""
        digests = {field: hash(state) for field, state in states.items()}
        fields: dict[str, bytes] = {}
        whole, differs = dict(self._there.whole), set(self._there.differs)
        for field in [field for field in states if self._there.digests.get(field) != digests[field]]:
            comparable = field in whole and len(states[field]) <= MOST_UNPACKED
            since = difference(states[field], whole[field]) if comparable else None
            if since is not None and _LARGE * len(since) <= len(whole[field]):
                fields[_SINCE[field]] = since
                differs.add(field)
                continue
            fields[field] = states[field]
            whole.pop(field, None)
            differs.discard(field)
            if len(states[field]) >= _WHOLE:
                whole[field] = states[field]
        removed = tuple(_SINCE[field] for field in sorted(self._there.differs - differs))
        return StatesWrite(fields, removed, digests, whole, frozenset(differs))

    def written(self, write: StatesWrite) -> None:
        """Take note that a write was done."""
        self._there = write


_NOTHING = StatesWrite({}, (), {}, {}, frozenset())
