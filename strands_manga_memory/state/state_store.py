"""State of an agent in ``agent.state``, shared with the other agents of its session through the hot store.

The state consists of layers. A layer is one part of the state, such as the goals.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from strands import Agent

from strands_manga_memory import telemetry
from strands_manga_memory.exceptions import CorruptRecordError, MangaMemoryError
from strands_manga_memory.language.entities import EntityTypes
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.stores.encoding.codec import Codec, trusted
from strands_manga_memory.stores.health import TierHealth
from strands_manga_memory.stores.hot import HotStore
from strands_manga_memory.stores.writer import shared_writer

logger = logging.getLogger(__name__)


class Part(BaseModel):
    """Immutable value within an agent's state. Unknown fields are kept, because later releases may have added them."""

    model_config = ConfigDict(frozen=True, extra="allow")

    def changed(self, **fields: Any) -> Self:
        """Return a validated copy with some fields changed.

        Raises:
            ValueError: A value is not allowed.
        """
        return type(self).model_validate({**dict(self), **fields})

    def replaced(self, **fields: Any) -> Self:
        """Return a copy with some fields changed, without validation."""
        return self.model_copy(update=fields)


class Layer(Part):
    """Part of an agent's state that is stored under its own key, such as the goals."""

    KEY: ClassVar[str]
    """Key in ``agent.state``."""

    VERSION: ClassVar[int] = 1

    def stored(self) -> str:
        """Return the JSON text to store, with a format version and without default values.

        A text is faster than a dict, of which Strands copies and checks every nested value at each write and save.
        """
        text = self.model_dump_json(exclude_defaults=True)
        comma = "," if len(text) > 2 else ""
        return f'{text[:-1]}{comma}"version":{self.VERSION}}}'

    @classmethod
    def loaded(cls, value: Any) -> Self:
        """Restore a layer from its stored text.

        Raises:
            CorruptRecordError: The text is damaged, or was written by a newer release.
        """
        record = cls.KEY
        try:
            fields = json.loads(value) if isinstance(value, str) else None
        except ValueError:
            fields = None
        version = fields.pop("version", None) if isinstance(fields, dict) else None
        if type(version) is not int or version < 1:
            raise CorruptRecordError(f"record={record!r} is not a state of this package; it was not changed", record=record)
        if version > cls.VERSION:
            raise CorruptRecordError(
                f"record={record!r} has version {version}, this release supports {cls.VERSION}: install a newer release, or "
                f"delete the key from agent.state to start with an empty state",
                record=record,
            )
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            raise CorruptRecordError(
                f"record={record!r} is damaged ({error.error_count()} invalid fields); it was not changed", record=record
            ) from error

    def merged(self, base: Self, other: Self) -> Self:
        """Return ``other`` with the differences between ``base`` and this object applied.

        Mappings are merged by key, tuples by item, and increases of counts are added. If both this object and ``other`` changed
        a field with none of these types, this object's value is used.
        """
        if other == base:
            return self
        names = type(self).model_fields
        return other.replaced(
            **{name: _merged(getattr(self, name), getattr(base, name), getattr(other, name)) for name in names}
        )


def _merged(mine: Any, base: Any, other: Any) -> Any:
    if mine == base:
        return other
    if isinstance(mine, dict) and isinstance(base, dict) and isinstance(other, dict):
        kept = {key: value for key, value in other.items() if key in mine or key not in base}
        return kept | {key: value for key, value in mine.items() if key not in base or base[key] != value}
    if isinstance(mine, tuple) and isinstance(base, tuple) and isinstance(other, tuple):
        kept_items = [each for each in other if each in mine or each not in base]
        return (*kept_items, *(each for each in mine if each not in base and each not in other))
    if type(mine) is int and type(base) is int and type(other) is int:
        return max(0, other + mine - base)
    return mine


_Layer = TypeVar("_Layer", bound=Layer)

SHARED_TTL = 86_400.0
"""Seconds that shared state and published changes are stored. Sessions should not live longer."""

REVISION = "manga_state.revision"
"""Key in ``agent.state`` of the last revision of the session's shared state that the agent has merged."""


@dataclass
class _Entry:
    """Layer of an agent's state, with its stored text.

    Attributes:
        base: The layer when the agent last read it, shared it with the session, or merged the session's layer.
        error: Reason why the stored text cannot be read; empty if it can be read.
        is_later: Whether the layer has changed since the last turn ended.
    """

    layer: Any
    base: Any
    stored: Any = None
    error: str = ""
    is_written: bool = True
    is_later: bool = False


class StateStore:
    """Layers (parts of an agent's state, such as the goals) that are stored in ``agent.state`` when they change.

    When a session manager replaces ``agent.state``, the layers are read again at their next use. A stored layer that is damaged
    or from a newer release stays unchanged in ``agent.state``. The store then has an empty layer that cannot be changed.

    Args:
        kinds: Classes of the stored layers.
        types: Entity types.
        clock: Monotonic seconds.
        wall: Seconds since 1970.
    """

    def __init__(
        self,
        kinds: tuple[type[Layer], ...],
        types: EntityTypes,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.types, self.clock, self.wall = types, clock, wall
        self.lock = threading.RLock()
        self.writes = 0
        self.revision = 0
        self.agent_id = ""
        self._agent: Callable[[], Agent | None] = lambda: None
        self._state: Any = None
        self._is_restored = False
        self._entries = {kind: _Entry(kind(), kind()) for kind in kinds}

    def attach(self, agent: Agent) -> None:
        """Read the layers of an agent. Layers that were changed before and that ``agent.state`` lacks are written."""
        with self.lock:
            self._agent = weakref.ref(agent)
            self.agent_id = agent.agent_id
            before = [entry.layer for entry in self._entries.values() if not entry.is_written]
            self._read(agent)
            for layer in before:
                if self._entries[type(layer)].stored is None:
                    self.put_if_readable(layer)
            self.write()

    @property
    def agent(self) -> Agent | None:
        """Agent whose state is stored; None before ``attach``, and after the agent was garbage-collected."""
        return self._agent()

    def get(self, kind: type[_Layer]) -> _Layer:
        """Return the current value of the layer of the class ``kind``."""
        return self._entry(kind).layer  # type: ignore[no-any-return]

    def _entry(self, kind: type[Layer]) -> _Entry:
        agent = self._agent()
        if agent is not None and agent.state is not self._state:
            with self.lock:
                self._read(agent)
        return self._entries[kind]

    @contextmanager
    def changing(self, kind: type[Layer]) -> Iterator[None]:
        """Hold the lock while a layer is changed.

        Raises:
            CorruptRecordError: The stored layer cannot be read. It stays unchanged.
        """
        with self.lock:
            if error := self._entry(kind).error:
                raise CorruptRecordError(error, record=kind.KEY)
            yield

    def put_if_readable(self, layer: Layer) -> None:
        """Replace a layer in memory, unless its stored text cannot be read. The next ``write`` stores the layer."""
        with self.lock:
            entry = self._entry(type(layer))
            if layer is not entry.layer and not entry.error:
                entry.layer, entry.is_written, entry.is_later = layer, False, True

    def size(self, kind: type[Layer]) -> int:
        """Return the number of characters of a layer's stored text."""
        with self.lock:
            return len(str(self._entries[kind].stored or ""))

    def unreadable(self) -> dict[str, str]:
        """Return the reasons why stored layers cannot be read, keyed by ``Layer.KEY``."""
        with self.lock:
            return {kind.KEY: entry.error for kind, entry in self._entries.items() if entry.error}

    def write(self, *kinds: type[Layer]) -> None:
        """Write the changed layers into ``agent.state``. If ``kinds`` are given, write only layers of these classes."""
        with self.lock:
            agent = self.agent
            if agent is None or agent.state is not self._state:
                return  # ``agent.state`` was replaced; ``get`` reads the new one
            for kind, entry in self._entries.items():
                if entry.is_written or (kinds and kind not in kinds):
                    continue
                value = entry.layer.stored()
                if value != entry.stored:
                    agent.state.set(kind.KEY, value)
                    entry.stored = value
                    self.writes += 1
                entry.is_written = True

    def take_over(self) -> None:
        """Read the state again if a session manager replaced it, and keep changes that were made here since the last turn.

        If another process changed the same part of the state, the value of this process wins.
        """
        with self.lock:
            agent = self.agent
            ours = [entry.layer for entry in self._entries.values() if entry.is_later]
            if agent is not None and agent.state is not self._state:
                self._read(agent)
                for layer in ours:
                    self.put_if_readable(layer)
            self.turn_ended()

    def turn_ended(self) -> None:
        """Write the changed layers at the end of a turn. Later changes count as changes between turns."""
        with self.lock:
            self.write()
            for entry in self._entries.values():
                entry.is_later = False

    # Layers that the agents of a session share

    @property
    def is_new(self) -> bool:
        """Whether the state was neither restored from ``agent.state`` nor exchanged with the session's other agents."""
        with self.lock:
            return self.revision == 0 and not self._is_restored

    def has_changed(self) -> bool:
        """Return whether a layer has changed since it was read, or last exchanged with the session's other agents."""
        with self.lock:
            entries = map(self._entry, list(self._entries))
            return any(entry.layer is not entry.base and entry.layer != entry.base for entry in entries)

    def share(self) -> list[Layer]:
        """Return the layers to share with the session. Layers that cannot be read are left out."""
        with self.lock:
            return [entry.layer for entry in map(self._entry, list(self._entries)) if not entry.error]

    def merge(self, shared: Mapping[str, str], revision: int) -> None:
        """Merge the layers that another agent of the session shared. Damaged layers are skipped.

        Args:
            shared: Stored texts of the layers, keyed by ``Layer.KEY``.
            revision: Revision of the shared layers. If it is below the last merged revision, the shared layers are outdated,
                and all values of this agent are applied to them.
        """
        with self.lock:
            for kind in list(self._entries):
                if kind.KEY not in shared:
                    continue
                entry = self._entry(kind)
                try:
                    other = kind.loaded(shared[kind.KEY])
                except CorruptRecordError as error:
                    logger.debug("record=<%s>, error=<%s> | shared state is not used", kind.KEY, type(error).__name__)
                    continue
                base = entry.base if revision >= self.revision else kind()
                self.put_if_readable(entry.layer.merged(base, other))
                entry.base = other
            self.write()
            self.note_shared([], max(revision, self.revision))

    def note_shared(self, layers: list[Layer], revision: int) -> None:
        """Note that the session now has the given layers, and that this agent has merged the session's ``revision``."""
        with self.lock:
            for layer in layers:
                self._entries[type(layer)].base = layer
            self.revision = revision
            agent = self.agent
            if agent is not None and agent.state is self._state:
                agent.state.set(REVISION, revision)

    def _read(self, agent: Agent) -> None:
        self._state = agent.state
        revision = agent.state.get(REVISION)
        self.revision = revision if type(revision) is int else 0
        for kind in self._entries:
            layer, error, value = kind(), "", agent.state.get(kind.KEY)
            try:
                layer = layer if value is None else kind.loaded(value)
            except CorruptRecordError as failure:
                error = str(failure)
                logger.warning("record=<%s> | cannot be read; it is not used and not changed", kind.KEY)
            self._entries[kind] = _Entry(layer, layer, value, error)
        self._is_restored = any(entry.stored is not None for entry in self._entries.values())


class LayerAccessor(Generic[_Layer]):
    """Access to one layer (stored part of the state, such as the goals). Changes are made under the lock of the store."""

    KIND: ClassVar[type[Layer]]

    def __init__(self, store: StateStore) -> None:
        self._store = store

    @property
    def layer(self) -> _Layer:
        """Current, immutable value of the layer."""
        return self._store.get(self.KIND)  # type: ignore[return-value]

    def _changing(self) -> AbstractContextManager[None]:
        return self._store.changing(self.KIND)

    def _keep(self, layer: _Layer) -> None:
        self._store.put_if_readable(layer)
        self._store.write()


class _SharedLayers(NamedTuple):
    """State that the agents of a session share: stored layer texts, revision, and ids of the agents that contributed."""

    layers: dict[str, str]
    revision: int
    agents: frozenset[str]


class SessionState:
    """State of a session that its agents share through the hot store.

    An agent reads the shared state before each turn, and merges its changes key by key after the turn. Each agent keeps a copy
    in its ``agent.state``. If the hot store loses the shared state, the next agent stores its copy there. If two agents in two
    processes end a turn within milliseconds, one may overwrite the changes of the other.

    Args:
        hot: The hot store.
        scope: Scope of the session.
        store: Store of this agent's state.
        codec: Codec of the shared data.
        is_stored: Function that takes an agent id and returns whether the session still has the agent's conversation. A new
            agent ignores the shared state if the conversations of all agents that wrote it are deleted. None: no check.
        deadline: Seconds that a turn waits for the shared state. Default 1.
    """

    def __init__(
        self,
        hot: HotStore,
        scope: ConversationScope,
        store: StateStore,
        *,
        codec: Codec | None = None,
        is_stored: Callable[[str], bool] | None = None,
        deadline: float = 1.0,
    ) -> None:
        self._hot, self._store, self._deadline = hot, store, deadline
        self._name = self.name_of(scope)
        self._codec = codec or Codec()
        self._is_stored = is_stored
        self._writer = shared_writer(hot, None)
        self._health = TierHealth(clock=store.clock)
        self._abandoned = 0
        self._late: Future[None] | None = None

    @staticmethod
    def name_of(scope: ConversationScope) -> str:
        """Return the key of a session's shared state in the hot store."""
        return f"state/{scope.storage_session_id}"

    async def refresh(self) -> None:
        """Merge the changes of the session's other agents into this agent's state, without blocking the event loop.

        Changes that do not arrive within the deadline are not merged.
        """
        if not self._hot.survives_process:
            self._pull()  # the memory of this process does not block
            return
        if self._late is None or self._late.done():
            self._late = self._writer.submit(self._name, self._pull)
        done, _ = await asyncio.wait([asyncio.wrap_future(self._late)], timeout=self._deadline)
        if not done:
            telemetry.missed("state")

    def publish(self) -> None:
        """Share the state changes of this agent with the session, in the background."""
        if self._store.has_changed():
            self._push() if not self._hot.survives_process else self._writer.submit(self._name, self._push)

    def _pull(self) -> None:
        shared = self._health.tried(self._read)
        if shared is not None:
            self._merge(shared)

    def _push(self) -> None:
        self._health.tried(self._write)

    def _write(self) -> None:
        shared = self._read()
        if shared is None or not self._merge(shared):
            shared = _SharedLayers({}, 0 if shared is None else shared.revision, frozenset())
        with self._store.lock:
            layers = self._store.share()
            revision = 1 + max(self._store.revision, shared.revision)
        # The agent itself may be gone: its last turn is shared in the background.
        agents = shared.agents if self._is_stored is None else shared.agents | {self._store.agent_id}
        rows = {"layers": {each.KEY: each.stored() for each in layers}, "revision": revision, "agents": sorted(agents)}
        self._hot.put_value(self._name, self._codec.encode(rows, self._name), ttl=SHARED_TTL)
        self._store.note_shared(layers, revision)

    def _read(self) -> _SharedLayers | None:
        value = self._hot.get_value(self._name)
        if not value:
            return None
        try:
            rows = self._codec.decode(value, self._name)
            with trusted(self._name):
                layers = {str(key): str(text) for key, text in rows["layers"].items()}
                return _SharedLayers(layers, int(rows["revision"]), frozenset(map(str, rows["agents"])))
        except CorruptRecordError as error:
            logger.warning("error=<%s> | the shared state of a session cannot be read", type(error).__name__)
            return None

    def _merge(self, shared: _SharedLayers) -> bool:
        """Merge shared state that is new to this agent. Return False if it belongs to a deleted session."""
        if shared.revision == self._abandoned:
            return False
        if shared.revision != self._store.revision:
            if self._store.is_new and not self._is_alive(shared):
                self._abandoned = shared.revision
                return False
            self._store.merge(shared.layers, shared.revision)
        return True

    def _is_alive(self, shared: _SharedLayers) -> bool:
        if self._is_stored is None or not shared.agents:
            return True
        try:
            return any(map(self._is_stored, sorted(shared.agents)))
        except MangaMemoryError:
            return False
