"""KeptLayers: the layers that are stored, in ``agent.state``, one key each, written only when they changed."""

from __future__ import annotations

import json
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from pydantic import ValidationError
from strands import Agent

from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.state.layers.dialogue import ConversationLayer
from strands_manga_memory.state.layers.entity_layer import EntityLayer
from strands_manga_memory.state.layers.goals import GoalsLayer
from strands_manga_memory.state.layers.layer import Layer

logger = logging.getLogger(__name__)

_Layer = TypeVar("_Layer", bound=Layer)

_STORED: tuple[type[Layer], ...] = (ConversationLayer, EntityLayer, GoalsLayer)


class KeptLayers:
    """The stored layers of one agent.

    A session manager replaces ``agent.state`` when it restores; the layers are then read anew, at their next use. What cannot
    be read, because a newer release wrote it or it is damaged, is left as it is; the layer is empty here and cannot be changed.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._agent: Callable[[], Agent | None] = _no_agent
        self._state: Any = None
        self._layers: dict[type[Layer], Layer] = {kind: kind() for kind in _STORED}
        self._stored: dict[type[Layer], Any] = {}
        self._unwritten: set[type[Layer]] = set()
        self._unreadable: dict[type[Layer], str] = {}
        self._between_turns: set[type[Layer]] = set()
        self.writes = 0

    def attach(self, agent: Agent) -> None:
        """Take an agent's layers; what was changed before there was an agent is written into its state."""
        with self.lock:
            self._agent = weakref.ref(agent)
            before = {kind: self._layers[kind] for kind in self._unwritten}
            self._read(agent)
            for kind, layer in before.items():
                if kind not in self._stored and kind not in self._unreadable:
                    self._layers[kind] = layer
                    self._unwritten.add(kind)
            self.write()

    @property
    def agent(self) -> Agent | None:
        """The agent; None before it is built, or when it is gone."""
        return self._agent()

    def get(self, kind: type[_Layer]) -> _Layer:
        """Return a layer."""
        agent = self._agent()
        if agent is not None and agent.state is not self._state:
            with self.lock:
                self._read(agent)
        return self._layers[kind]  # type: ignore[return-value]

    def put(self, layer: Layer) -> None:
        """Put a layer in place of the one before; ``write`` brings it into ``agent.state``.

        Raises:
            CorruptRecordError: What is stored cannot be read, and is not overwritten.
        """
        kind = type(layer)
        with self.lock:
            if layer is self.get(kind):
                return
            if kind in self._unreadable:
                raise CorruptRecordError(self._unreadable[kind], record=kind.KEY)
            self._put(layer)

    def _put(self, layer: Layer) -> None:
        kind = type(layer)
        self._layers[kind] = layer
        self._unwritten.add(kind)
        self._between_turns.add(kind)

    @contextmanager
    def changing(self, kind: type[Layer]) -> Iterator[None]:
        """Hold the lock while a layer is changed.

        Raises:
            CorruptRecordError: What is stored of it cannot be read, and is not overwritten.
        """
        with self.lock:
            if not self.is_readable(kind):
                raise CorruptRecordError(self._unreadable[kind], record=kind.KEY)
            yield

    def put_if_readable(self, layer: Layer) -> None:
        """Put a layer in place, unless what is stored cannot be read: what happens by itself breaks no turn."""
        with self.lock:
            if layer is not self.get(type(layer)) and type(layer) not in self._unreadable:
                self._put(layer)

    def is_readable(self, kind: type[Layer]) -> bool:
        """Tell whether a layer was read, and can be changed."""
        with self.lock:
            self.get(kind)
            return kind not in self._unreadable

    def size(self, kind: type[Layer]) -> int:
        """Return the characters of a layer as it was last written."""
        with self.lock:
            return len(str(self._stored.get(kind, "")))

    def unreadable(self) -> dict[str, str]:
        """Return why layers are left as they are, by key."""
        with self.lock:
            return {kind.KEY: reason for kind, reason in self._unreadable.items()}

    def write(self, *kinds: type[Layer]) -> None:
        """Write the layers that changed into ``agent.state``; with ``kinds``, only those."""
        with self.lock:
            agent = self.agent
            if agent is None or not self._unwritten or agent.state is not self._state:
                return  # replaced by another state: ``get`` reads that
            for kind in self._unwritten.intersection(kinds or _STORED):
                value = self._layers[kind].stored()
                if value != self._stored.get(kind):
                    agent.state.set(kind.KEY, value)
                    self._stored[kind] = value
                    self.writes += 1
                self._unwritten.discard(kind)

    def take_over(self) -> None:
        """Read what a session manager took over from another process; what was changed here since the last turn stays.

        Of a layer that both changed, the one of this process wins, as with everything a session manager merges.
        """
        with self.lock:
            agent = self.agent
            ours = {kind: self._layers[kind] for kind in self._between_turns}
            if agent is not None and agent.state is not self._state:
                self._read(agent)
                for layer in ours.values():
                    self.put_if_readable(layer)
                self.write()
            self._between_turns.clear()

    def turn_ended(self) -> None:
        """Write what changed; what is changed from now on is changed between turns."""
        with self.lock:
            self.write()
            self._between_turns.clear()

    def _read(self, agent: Agent) -> None:
        self._state = agent.state
        self._between_turns.clear()
        self._stored, self._unreadable = {}, {}
        self._unwritten.clear()
        for kind in _STORED:
            value = agent.state.get(kind.KEY)
            self._layers[kind] = kind()
            if value is None:
                continue
            try:
                self._layers[kind] = _loaded(kind, value)
                self._stored[kind] = value
            except CorruptRecordError as error:
                self._unreadable[kind] = str(error)
                self._stored[kind] = value
                logger.warning("record=<%s> | cannot be read, it is left as it is and not used", kind.KEY)


def _no_agent() -> None:
    return None


def _loaded(kind: type[_Layer], value: Any) -> _Layer:
    record = kind.KEY
    try:
        fields = json.loads(value) if isinstance(value, str) else None
    except ValueError:
        fields = None
    version = fields.pop("version", None) if isinstance(fields, dict) else None
    if type(version) is not int or version < 1:
        raise CorruptRecordError(f"record={record!r} is no state of this package; it is left as it is", record=record)
    if version > kind.VERSION:
        raise CorruptRecordError(
            f"record={record!r} has version {version}, this release knows {kind.VERSION}: install a newer release, or delete "
            f"the key from agent.state to start anew",
            record=record,
        )
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise CorruptRecordError(
            f"record={record!r} is damaged ({error.error_count()} fields are wrong); it is left as it is", record=record
        ) from error
