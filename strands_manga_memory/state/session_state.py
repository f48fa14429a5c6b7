"""State of an agent in ``agent.state``, and its exchange with the other agents of the session."""

from __future__ import annotations

import json
import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError
from strands import Agent

from strands_manga_memory.arguments import Clock, checked
from strands_manga_memory.deadline import BackgroundRead
from strands_manga_memory.exceptions import (
    CorruptRecordError,
    MangaMemoryError,
    StateError,
    logged_errors,
)
from strands_manga_memory.language.entities import EntityTypes
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.state.state_item import StateLimits
from strands_manga_memory.stores.codec import MALFORMED, Codec

logger = logging.getLogger(__name__)

P = ParamSpec("P")
_Result = TypeVar("_Result")
_Part = TypeVar("_Part", bound="StatePart")
Values = Mapping[str, Any]
"""Values of the fields of a part of the state, keyed by field."""

HOT_DEADLINE = 0.05

_MAX_ATTEMPTS = 8
"""Most attempts to replace shared state that other agents keep changing."""

SHARED_TTL = 86_400.0
"""Seconds from the last write until the hot store deletes shared state and announced changes."""

REVISION = "manga_state.revision"
"""Key in ``agent.state`` of the revision number of the latest shared state that was merged."""


class StatePart(BaseModel):
    """Part of an agent's state, such as the goals, that is stored under its own key.

    Methods assign new values to fields and never change a value in place. Unknown fields in stored
    data are kept, because later releases may have added them.
    """

    model_config = ConfigDict(extra="allow")

    KEY: ClassVar[str]
    """Key of this part in ``agent.state``, such as ``manga_state.goals``."""

    VERSION: ClassVar[int] = 1

    _store: SessionState = PrivateAttr()

    def reduce(self) -> None:
        """Drop values of this part of the state until it fits its maximum size.

        By default, a part has no maximum size, and nothing is dropped.
        """

    def values(self) -> Values:
        """Return the values of all fields in this part of the state, keyed by field.

        Unknown fields of a later release are included.
        """
        return {**self.__dict__, **(self.model_extra or {})}

    def stored(self) -> str:
        """Return this part of the state as JSON text for ``agent.state``.

        The text contains the version of its format, and leaves out default values.
        """
        text = self.model_dump_json(exclude_defaults=True)
        comma = "," if len(text) > 2 else ""
        return f'{text[:-1]}{comma}"version":{self.VERSION}}}'

    @classmethod
    def loaded(cls, value: Any) -> Self:
        """Create this part of the state from the JSON text that ``stored`` returned.

        Raises:
            CorruptRecordError: The text is damaged, or has another version of the format.
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

    def restore(self, values: Values) -> None:
        """Set all fields to earlier ``values`` of this part, for example after a failed change."""
        fields = type(self).model_fields
        # ``setattr`` with an unknown name could hide a method.
        self.__pydantic_extra__ = {key: values[key] for key in values.keys() - fields}
        for name in fields:
            setattr(self, name, values[name])

    def merge(self, base: Values, other: Values) -> None:
        """Merge the changes that another agent made to its copy of this part of the state.

        Mappings are merged key by key, and tuples item by item. If each agent added 1 to a number,
        it grows by 2. If both changed another value, such as a text, this agent's value is kept.

        Args:
            base: Values before the changes of both agents, keyed by field.
            other: Current values in the other agent's copy.
        """
        if other != base:
            mine = self.values()
            merged = {
                name: _merged(mine[name], base[name], other[name])
                for name in type(self).model_fields
            }
            self.restore({**mine, **other, **merged})


def _merged(mine: Any, base: Any, other: Any) -> Any:
    if mine == base:
        return other
    if isinstance(mine, dict):
        kept = {key: value for key, value in other.items() if key in mine or key not in base}
        return kept | {
            key: value for key, value in mine.items() if key not in base or base[key] != value
        }
    if isinstance(mine, tuple):
        kept_items = [each for each in other if each in mine or each not in base]
        return (*kept_items, *(each for each in mine if each not in base and each not in other))
    return max(0, other + mine - base) if type(mine) is int else mine


def _error_text(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    return "; ".join(
        f"{'.'.join(map(str, each['loc']))}: {each['msg']}, got {each['input']!r:.80}"
        for each in error.errors()
    )


def change(
    method: Callable[Concatenate[_Part, P], _Result],
) -> Callable[Concatenate[_Part, P], _Result]:
    """Decorate a method that changes a part of an agent's state, such as ``goals.set``.

    The decorator checks the new values, and writes them to ``agent.state``. If the method fails or
    a new value is not allowed, the earlier values are restored. The state is locked during the
    call.

    Raises:
        CorruptRecordError: The stored part of the state cannot be read. Nothing is changed.
        StateError: A value is not allowed. The message names the field and its rule.
    """
    typed = checked(method)

    @wraps(method)
    def run(part: _Part, /, *args: P.args, **kwargs: P.kwargs) -> _Result:
        store = part._store  # noqa: SLF001 - the store of the part
        with store.lock:
            store.reload()
            if error := store.unreadable.get(part.KEY):
                raise CorruptRecordError(error, record=part.KEY)
            before = part.values()
            try:
                result = typed(part, *args, **kwargs)
                part.reduce()
                part.model_validate(part.values())
            except BaseException as error:
                part.restore(before)
                if isinstance(error, ValueError) and not isinstance(error, StateError):
                    raise StateError(_error_text(error)) from error
                raise
            store.write()
            if not store.is_in_turn:
                store.publish()
            return result

    return run


class _SharedState(BaseModel):
    """Stored form of the state that the agents of a session share.

    Attributes:
        parts: Texts of the state's parts, such as the goals, keyed by ``StatePart.KEY``.
        revision: Revision number, which increases at each write.
        agents: Ids of the agents that wrote the shared state.
    """

    parts: dict[str, str] = {}
    revision: int = 0
    agents: frozenset[str] = frozenset()


@dataclass(eq=False, repr=False)
class SessionState:
    """State of an agent: its parts, their copy in ``agent.state``, and the session's shared state.

    Changed parts are written to ``agent.state``. If a session manager replaces ``agent.state``, the
    parts are read again at their next use. A stored part that is damaged or has another version is
    not changed. The agent then works with an empty part, which is not stored.

    With a hot store, all agents of a session share the state. Before each turn, an agent reads the
    shared state. After the turn, the agent merges its own changes into the shared state, value by
    value. If another agent has written since the read, or the hot store does not answer, the merge
    is repeated. If the hot store loses the shared state, the next agent with changes stores its
    copy again.

    Args:
        kinds: Classes of the parts.
        types: Types of entities, such as ASIN and title.
        intents: Slots (values that an intent needs) of each intent, keyed by the intent's name.
        clock: Function that returns monotonic seconds.
        wall: Function that returns seconds since 1970.
        hot: Hot store for the shared state. None: the agent shares no state.
        scope: Scope of the session; required with ``hot``.
        is_stored: Function that takes an agent's id and returns whether the session still has its
            conversation. If the result is False for all agents that wrote shared state, a new agent
            ignores it. None: no check.
        deadline: Seconds that a turn waits for the shared state.

    Attributes:
        unreadable: Reasons why stored parts of the state cannot be read, by their key in
            ``agent.state``.
        is_in_turn: True: changes are shared at the end of the current turn. False: each change is
            shared at once.
    """

    kinds: Iterable[type[StatePart]]
    types: EntityTypes
    intents: Mapping[str, tuple[Any, ...]]
    clock: Clock
    wall: Clock
    limits: StateLimits
    hot: Any
    scope: Any
    codec: Codec
    is_stored: Callable[[str], bool] | None
    deadline: float

    def __post_init__(self) -> None:
        self.lock = threading.RLock()
        self.agent_id = ""
        self.is_in_turn = True
        self.unreadable: dict[str, str] = {}
        self._agent: Callable[[], Agent | None] = lambda: None
        self._state: Any = None
        self._is_new = True
        self._revision = self._ignored_revision = 0
        self._parts = {kind: kind() for kind in self.kinds}
        for part in self._parts.values():
            part._store = self  # noqa: SLF001
        # Values of the parts at earlier times, from which changes are detected
        self._written = self._turn_end = self._shared = self._values()
        if self.hot is not None:
            self._name = self.name_of(self.scope)
            self._reading = BackgroundRead(
                self.pull, name="state", deadline=self.deadline, key=self._name, hot=self.hot
            )
            self._writer, self._health = self._reading.writer, self._reading.health

    @staticmethod
    def name_of(scope: ConversationScope) -> str:
        """Return the key of a session's shared state in the hot store."""
        return f"state/{scope.storage_session_id}/shared"

    def _readable(self) -> list[StatePart]:
        return [part for part in self._parts.values() if part.KEY not in self.unreadable]

    def _values(self) -> dict[str, Values]:
        return {part.KEY: part.values() for part in self._parts.values()}

    # The copy in ``agent.state``

    def attach(self, agent: Agent) -> None:
        """Connect the state to an agent, and read the parts of the state from ``agent.state``.

        Changes made to a part before this call are merged into the stored part.
        """
        self._agent = weakref.ref(agent)
        self.agent_id = agent.agent_id
        self.begin_turn()

    @property
    def agent(self) -> Agent | None:
        """Agent whose state is stored; None before ``attach``, and after the agent is deleted."""
        return self._agent()

    def get(self, kind: type[_Part]) -> _Part:
        """Return a part of the agent's state, such as the goals, by its class.

        The part is read again if ``agent.state`` was replaced by another object.
        """
        self.reload()
        return self._parts[kind]  # type: ignore[return-value]

    def reload(self, base: Mapping[str, Values] | None = None) -> None:
        """Read the agent's state again if ``agent.state`` was replaced by another object.

        Args:
            base: Values of all parts of the state, such as the goals, at the last read or write, by
                key. This agent's changes since then are merged into the newly read values. None:
                the changes are discarded.
        """
        with self.lock:
            agent = self.agent
            if agent is None or agent.state is self._state:
                return
            self._state, self.unreadable = agent.state, {}
            revision, base = agent.state.get(REVISION), base or self._values()
            self._revision = revision if type(revision) is int else 0
            self._is_new, read = not self._revision, {}
            for kind, part in self._parts.items():
                loaded, text = kind(), agent.state.get(kind.KEY)
                if text is not None:
                    self._is_new = False
                    try:
                        loaded = kind.loaded(text)
                    except CorruptRecordError as failure:
                        self.unreadable[kind.KEY] = str(failure)
                        logger.warning(
                            "record=<%s> | cannot be read; it is not used and not changed", kind.KEY
                        )
                read[kind.KEY] = loaded.values()
                part.merge(base[kind.KEY], read[kind.KEY])
            self._written = self._turn_end = self._shared = read

    def write(self) -> None:
        """Write the changed parts of the state into ``agent.state``.

        Nothing is written if a session manager has replaced ``agent.state`` since the last read:
        the replacement may have newer values, which must be read first.
        """
        with self.lock:
            agent, values = self.agent, self._values()
            if agent is None or agent.state is not self._state:
                return
            for part in self._readable():
                if values[part.KEY] != self._written[part.KEY]:
                    agent.state.set(part.KEY, part.stored())
            self._written = values
            if self._revision != (agent.state.get(REVISION) or 0):
                agent.state.set(REVISION, self._revision)

    def begin_turn(self) -> None:
        """Prepare the state for a new turn, and take over changes that other processes stored.

        If a session manager has replaced ``agent.state``, its values are read again, and this
        agent's changes since the previous turn are merged into these values.
        """
        with self.lock:
            self.is_in_turn = True
            self.reload(self._turn_end)
            self.write()
            self._turn_end = self._values()

    def end_turn(self) -> None:
        """Write changed parts at the end of a turn, and share them with the session's agents."""
        with self.lock:
            self.write()
            self._turn_end, self.is_in_turn = self._values(), False
        self.publish()

    # The state that the agents of a session share

    async def refresh(self) -> None:
        """Merge the changes of the session's other agents into this agent's state.

        The event loop is not blocked. Changes that arrive after the deadline are not merged.
        """
        if self.hot is not None:
            await self._reading.run()

    def pull(self) -> None:
        """Read the session's shared state, and merge it into this agent's state.

        This method blocks. If the hot store does not answer, nothing happens.
        """
        shared = self._decoded(self._health.call(lambda: self.hot.get_value(self._name)))
        if shared is not None:
            self._merge(shared)

    def publish(self) -> None:
        """Write this agent's changes of the state to the hot store, for the session's other agents.

        Without changes or without a hot store, nothing is written.
        """
        if self.hot is None or not self._has_changed():
            return
        if self.hot.survives_process:
            self._writer.submit(self._name, self._push)
        else:
            self._push()  # the memory of this process does not block

    def _has_changed(self) -> bool:
        with self.lock:
            return self._values() != self._shared

    def _push(self) -> None:
        if self._has_changed() and not self._health.call(self._write_shared):
            key, delay = (self._name, self.agent_id), self._health.wait + 0.01
            self._writer.later(key, delay, self._push_again, is_needed=lambda: False)

    def _push_again(self) -> None:
        with suppress(MangaMemoryError):
            if self.is_stored is not None and not self.is_stored(self.agent_id):
                return  # a deleted session must not get its shared state back
        self._writer.submit(self._name, self._push, is_needed=lambda: False)

    def _write_shared(self) -> bool:
        """Merge this agent's changes into the shared state, and store it.

        Return False if other agents changed the shared state during each attempt.
        """
        for _ in range(_MAX_ATTEMPTS):
            found = self.hot.get_value(self._name)
            shared = self._decoded(found) if found else _SharedState()
            if shared is None:
                return True  # unreadable, such as with another key: kept until it expires
            if not self._merge(shared):
                shared = _SharedState(revision=shared.revision)
            with self.lock:
                values, texts = self._values(), shared.parts
                for part in self._readable():
                    with suppress(CorruptRecordError):  # a text of a newer release stays
                        if part.KEY in texts:
                            part.loaded(texts[part.KEY])
                        texts[part.KEY] = part.stored()
                shared.revision = 1 + max(self._revision, shared.revision)
            if self.is_stored is not None:  # the agent may be gone, its id is still known
                shared.agents |= {self.agent_id}
            value = self.codec.encode(shared.model_dump(mode="json"), self._name)
            if self.hot.replace_value(self._name, value, expect=found, ttl=SHARED_TTL):
                self._remember(values, shared.revision)
                return True
        return False

    def _decoded(self, value: bytes | None) -> _SharedState | None:
        with logged_errors(logger, "the shared state of a session cannot be read"):
            if value:
                return _SharedState.model_validate(self.codec.decode(value, self._name))
        return None

    def _merge(self, shared: _SharedState) -> bool:
        """Merge a new revision of the session's shared state into this agent's state.

        Return False if the shared state comes from a deleted session and is therefore ignored.
        """
        if shared.revision == self._ignored_revision:
            return False
        if shared.revision == self._revision:
            return True
        if self._is_new and not self._is_alive(shared):
            self._ignored_revision = shared.revision
            return False
        with self.lock:
            # The hot store has lost newer state: all values of this agent count as changes.
            is_outdated, others = shared.revision < self._revision, {}
            for part in self._readable():
                with suppress(CorruptRecordError):
                    other = others[part.KEY] = part.loaded(shared.parts.get(part.KEY)).values()
                    base = type(part)().values() if is_outdated else self._shared[part.KEY]
                    part.merge(base, other)
            self._remember(others, max(shared.revision, self._revision))
        return True

    def _is_alive(self, shared: _SharedState) -> bool:
        if self.is_stored is None or not shared.agents:
            return True
        try:
            return any(map(self.is_stored, sorted(shared.agents)))
        except MangaMemoryError:
            return False

    def _remember(self, shared: Mapping[str, Values], revision: int) -> None:
        with self.lock:
            self._shared, self._is_new = {**self._shared, **shared}, False
            self._revision = revision
            self.write()
