"""State of an agent in ``agent.state``. It consists of layers: a layer is one part of the state, such as the goals."""

from __future__ import annotations

import json
import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError
from strands import Agent

from strands_manga_memory.arguments import whole
from strands_manga_memory.exceptions import CorruptRecordError, StateError
from strands_manga_memory.language.entities import EntityTypes
from strands_manga_memory.stores.encoding.codec import MALFORMED

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StateLimits:
    """Limits of an agent's goals and steps.

    Args:
        goal_tokens: Estimated tokens of the active goal and the archived goals together.
        goal_warn_tokens: Tokens of all goals from which a warning is logged.
        goal_archive_tokens: Tokens of the archived goals.
        goals_kept: Number of archived goals. 0: goals that end are not archived.
        executions_kept: Number of the active goal's last tool calls that are kept one by one; older ones are only counted.
        failed_subtasks_kept: Number of failed subtasks in the archive record of a goal.
        goal_context_characters: Characters of a goal's context, of which the end is kept.
        steps_kept: Number of tool calls of a task, and of its other steps.

    Raises:
        ValueError: A value is not a positive whole number; ``goals_kept`` may be 0.
    """

    goal_tokens: int = 12_000
    goal_warn_tokens: int = 10_000
    goal_archive_tokens: int = 6_000
    goals_kept: int = 10
    executions_kept: int = 20
    failed_subtasks_kept: int = 5
    goal_context_characters: int = 2_000
    steps_kept: int = 100

    def __post_init__(self) -> None:
        for limit in fields(self):
            whole(limit.name, getattr(self, limit.name), least=0 if limit.name == "goals_kept" else 1)


class Part(BaseModel):
    """Immutable value within an agent's state. Unknown fields are kept, because later releases may have added them."""

    model_config = ConfigDict(frozen=True, extra="allow")

    def replaced(self, **fields: Any) -> Self:
        """Return a copy with some fields changed, without validation."""
        return self.model_copy(update=fields)


class Layer(BaseModel):
    """Part of an agent's state that is stored under its own key, such as the goals.

    Methods of a layer replace the values of its fields and change none of them in place. Unknown fields are kept.
    """

    model_config = ConfigDict(extra="allow")

    KEY: ClassVar[str]
    """Key in ``agent.state``."""

    VERSION: ClassVar[int] = 1

    _store: StateStore = PrivateAttr()

    def bind(self, store: StateStore) -> Self:
        """Set the store that writes later changes of the layer, and return the layer."""
        self._store = store
        return self

    def values(self) -> dict[str, Any]:
        """Return the values of all fields, unknown ones included."""
        return {**self.__dict__, **(self.model_extra or {})}

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
            CorruptRecordError: The text is damaged, or was written in another version of the format.
        """
        problem = "is damaged"
        with suppress(*MALFORMED):
            fields = json.loads(value)
            version = fields.pop("version")
            if type(version) is int:
                if version == cls.VERSION:
                    return cls.model_validate(fields)
                remedy = ": install a newer release" if version > cls.VERSION else ""
                problem = f"has version {version}, this release supports {cls.VERSION}{remedy}"
        advice = "it was not changed. Delete the key from agent.state to start with an empty state"
        raise CorruptRecordError(f"record={cls.KEY!r} {problem}; {advice}", record=cls.KEY)

    def restore(self, values: Mapping[str, Any]) -> None:
        """Replace the values of all fields by ``values``, a result of ``Layer.values()``."""
        extra: dict[str, Any] = self.model_extra  # type: ignore[assignment]  # ``extra="allow"``
        extra.clear()
        for name, value in values.items():
            if name in type(self).model_fields:
                setattr(self, name, value)
            else:  # ``setattr`` would hide a method of the same name
                extra[name] = value

    def merge(self, base: Mapping[str, Any], other: Mapping[str, Any]) -> None:
        """Merge the values of another agent's layer into this layer.

        Mappings are merged by key, tuples by item, and increases of counts are added. If both agents changed a field of another
        type, this layer's value stays.

        Args:
            base: Values that both agents had before their changes.
            other: Current values of the other agent's layer.
        """
        if other != base:
            mine = self.values()
            self.restore(
                {**mine, **other, **{name: _merged(mine[name], base[name], other[name]) for name in type(self).model_fields}}
            )


def _merged(mine: Any, base: Any, other: Any) -> Any:
    if mine == base:
        return other
    if isinstance(mine, dict):
        kept = {key: value for key, value in other.items() if key in mine or key not in base}
        return kept | {key: value for key, value in mine.items() if key not in base or base[key] != value}
    if isinstance(mine, tuple):
        kept_items = [each for each in other if each in mine or each not in base]
        return (*kept_items, *(each for each in mine if each not in base and each not in other))
    return max(0, other + mine - base) if type(mine) is int else mine


def _problems(error: ValidationError) -> str:
    """Return the problems of a pydantic error on one line, each with the field, the rule and the value."""
    found = [(".".join(map(str, each["loc"])), each["msg"], each["input"]) for each in error.errors()]
    return "; ".join(f"{name}: {rule}, got {value!r:.80}" for name, rule, value in found)


_Layer = TypeVar("_Layer", bound=Layer)

REVISION = "manga_state.revision"
"""Key in ``agent.state`` of the last revision of the session's shared state that the agent has merged."""


@dataclass
class _Entry:
    """Layer of an agent's state, with its values at earlier times.

    Attributes:
        error: Reason why the stored text cannot be read; empty if it can be read.
        text: Stored text.
        written: Values when the layer was last read from ``agent.state`` or written there.
        shared: Values when the layer was last read, shared with the session, or merged with the session's layer.
        shared_text: Stored text of the session's layer that was last shared or merged, and so can be read.
        turn_end: Values at the end of the last turn.
    """

    layer: Layer
    error: str = ""
    text: Any = None
    written: dict[str, Any] = field(default_factory=dict)
    shared: dict[str, Any] = field(default_factory=dict)
    shared_text: str = ""
    turn_end: dict[str, Any] = field(default_factory=dict)


class StateStore:
    """Layers (parts of an agent's state, such as the goals) that are stored in ``agent.state`` when they change.

    When a session manager replaces ``agent.state``, the layers are read again at their next use. A stored layer that is damaged
    or has another version stays unchanged in ``agent.state``; the layer then begins empty and is not stored.

    Args:
        kinds: Classes of the stored layers.
        types: Entity types.
        intents: Slots of each intent, keyed by the intent's name.
        clock: Monotonic seconds.
        wall: Seconds since 1970.
        limits: Limits of the goals and steps.
    """

    def __init__(
        self,
        kinds: Iterable[type[Layer]],
        types: EntityTypes,
        intents: Mapping[str, tuple[Any, ...]],
        clock: Callable[[], float],
        wall: Callable[[], float],
        limits: StateLimits,
    ) -> None:
        self.types, self.intents, self.clock, self.wall, self.limits = types, intents, clock, wall, limits
        self.lock = threading.RLock()
        self.writes = self.revision = 0
        self.agent_id = ""
        self.is_new = True
        self._agent: Callable[[], Agent | None] = lambda: None
        self._state: Any = None
        self._entries = {kind: _Entry(kind().bind(self), written=kind().values()) for kind in kinds}

    def attach(self, agent: Agent) -> None:
        """Read the layers of an agent. Changes made before are kept, except those of layers that ``agent.state`` has."""
        with self.lock:
            self._agent = weakref.ref(agent)
            self.agent_id = agent.agent_id
            before = [(entry, entry.layer.values()) for entry in self._entries.values()]
            self._read(agent)
            for entry, values in before:
                if entry.text is None:
                    entry.layer.restore(values)
            self.write()

    @property
    def agent(self) -> Agent | None:
        """Agent whose state is stored; None before ``attach``, and after the agent was garbage-collected."""
        return self._agent()

    def get(self, kind: type[_Layer]) -> _Layer:
        """Return the layer of the class ``kind``, read again if ``agent.state`` was replaced."""
        self.refresh()
        return self._entries[kind].layer  # type: ignore[return-value]

    def refresh(self) -> None:
        """Read the layers again if ``agent.state`` was replaced."""
        agent = self._agent()
        if agent is not None and agent.state is not self._state:
            with self.lock:
                self._read(agent)

    @contextmanager
    def changing(self, layer: Layer) -> Iterator[None]:
        """Hold the lock while a layer is changed, then validate and write the layer. An error undoes the change.

        Raises:
            CorruptRecordError: The stored layer cannot be read. It stays unchanged.
            StateError: A value is not allowed. The message names the field and its rule.
        """
        with self.lock:
            self.refresh()
            if error := self._entries[type(layer)].error:
                raise CorruptRecordError(error, record=layer.KEY)
            before = layer.values()
            try:
                yield
                layer.model_validate(layer.values())
            except BaseException as error:
                layer.restore(before)
                if isinstance(error, ValidationError):
                    raise StateError(_problems(error)) from error
                raise
            self.write()

    def size(self, layer: Layer) -> int:
        """Return the number of characters of a layer's stored text."""
        return len(str(self._entries[type(layer)].text or ""))

    def unreadable(self) -> dict[str, str]:
        """Return the reasons why stored layers cannot be read, keyed by ``Layer.KEY``."""
        return {kind.KEY: entry.error for kind, entry in self._entries.items() if entry.error}

    def write(self) -> None:
        """Write the changed layers into ``agent.state``."""
        with self.lock:
            agent = self.agent
            if agent is None or agent.state is not self._state:
                return  # ``agent.state`` was replaced; ``get`` reads the new one
            for kind, entry in self._entries.items():
                values = entry.layer.values()
                if not entry.error and values != entry.written:
                    entry.text, entry.written = entry.layer.stored(), values
                    agent.state.set(kind.KEY, entry.text)
                    self.writes += 1

    def take_over(self) -> None:
        """If a session manager replaced ``agent.state``, read it, and merge the changes since the last turn into it."""
        with self.lock:
            agent = self.agent
            if agent is not None and agent.state is not self._state:
                ours = [(entry.layer, entry.layer.values(), entry.turn_end) for entry in self._readable()]
                self._read(agent)
                for layer, values, base in ours:
                    if values != base:
                        theirs = layer.values()
                        layer.restore(values)
                        layer.merge(base, theirs)
            self.turn_ended()

    def turn_ended(self) -> None:
        """Write the changed layers at the end of a turn. Later changes count as changes between turns."""
        with self.lock:
            self.write()
            for entry in self._entries.values():
                entry.turn_end = entry.layer.values()

    # Layers that the agents of a session share

    def _readable(self) -> list[_Entry]:
        return [entry for entry in self._entries.values() if not entry.error]

    def has_changed(self) -> bool:
        """Return whether a layer has changed since it was read, or last exchanged with the session's other agents."""
        with self.lock:
            return any(entry.layer.values() != entry.shared for entry in self._readable())

    def share(self, known: Mapping[str, str]) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
        """Return the stored texts and the values of the layers to share with the session, keyed by ``Layer.KEY``.

        The texts of ``known``, which the session shares, stay for layers that cannot be read here or there.
        """
        texts, shared = dict(known), {}
        for entry in self._readable():
            layer = entry.layer
            shared[layer.KEY] = values = layer.values()
            with suppress(CorruptRecordError):
                if layer.KEY in known and known[layer.KEY] != entry.shared_text:
                    layer.loaded(known[layer.KEY])
                entry.shared_text = entry.text if entry.text and values == entry.written else layer.stored()
                texts[layer.KEY] = entry.shared_text
        return texts, shared

    def merge(self, shared: Mapping[str, str], revision: int) -> None:
        """Merge the layers that another agent of the session shared. Damaged layers are skipped.

        Args:
            shared: Stored texts of the layers, keyed by ``Layer.KEY``.
            revision: Revision of the shared layers. If it is below the last merged revision, the shared layers are outdated,
                and all values of this agent are applied to them.
        """
        with self.lock:
            for entry in self._readable():
                layer = entry.layer
                try:
                    other = layer.loaded(shared.get(layer.KEY)).values()
                except CorruptRecordError:
                    continue
                layer.merge(entry.shared if revision >= self.revision else type(layer)().values(), other)
                entry.shared, entry.shared_text = other, shared[layer.KEY]
            self.write()
            self.note_shared({}, max(revision, self.revision))

    def note_shared(self, shared: Mapping[str, dict[str, Any]], revision: int) -> None:
        """Remember the layers of the session, as the base of the next merge.

        Args:
            shared: Values of the layers that the session now has, keyed by ``Layer.KEY``. Other layers are unchanged.
            revision: Revision of the session's layers that this agent now has.
        """
        with self.lock:
            for kind, entry in self._entries.items():
                entry.shared = shared.get(kind.KEY, entry.shared)
            self.revision, self.is_new = revision, False
            agent = self.agent
            if agent is not None and agent.state is self._state:
                agent.state.set(REVISION, revision)

    def _read(self, agent: Agent) -> None:
        self._state = agent.state
        revision = agent.state.get(REVISION)
        self.revision = revision if type(revision) is int else 0
        for kind, entry in self._entries.items():
            loaded, entry.error, entry.text = kind(), "", agent.state.get(kind.KEY)
            try:
                loaded = loaded if entry.text is None else kind.loaded(entry.text)
            except CorruptRecordError as failure:
                entry.error = str(failure)
                logger.warning("record=<%s> | cannot be read; it is not used and not changed", kind.KEY)
            entry.layer.restore(loaded.values())
            entry.written = entry.shared = entry.turn_end = loaded.values()
        self.is_new = not self.revision and all(entry.text is None for entry in self._entries.values())
