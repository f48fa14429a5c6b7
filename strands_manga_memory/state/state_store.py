"""Storage of an agent's state in ``agent.state``.

The parts of the state are the dialogue with the user, the goals, and the entities (such as an
order) that the conversation is about.
"""

from __future__ import annotations

import json
import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError
from strands import Agent

from strands_manga_memory.arguments import check_int, checked, with_known_fields
from strands_manga_memory.exceptions import CorruptRecordError, StateError
from strands_manga_memory.language.entities import EntityTypes
from strands_manga_memory.stores.codec import MALFORMED

logger = logging.getLogger(__name__)

P = ParamSpec("P")
_Item = TypeVar("_Item")
_Part = TypeVar("_Part", bound="StatePart")


@with_known_fields
@dataclass(frozen=True)
class StateLimits:
    """Limits of an agent's goals and steps.

    Args:
        goal_tokens: Maximum estimated tokens of the active goal and the archived goals together.
        goal_warn_tokens: If all goals together have more estimated tokens, a warning is logged.
        goal_archive_tokens: Maximum estimated tokens of the archived goals.
        goals_kept: Maximum number of archived goals. 0: goals that end are not archived.
        executions_kept: Number of the active goal's last tool calls that are kept one by one. Older
            ones are only counted.
        failed_subtasks_kept: Maximum number of failed subtasks in the archive record of a goal. The
            last ones are kept.
        goal_context_characters: Maximum characters of the background of a goal. The end is kept.
        steps_kept: Maximum number of steps of a task, such as tool calls and thoughts. The last
            ones are kept.

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
        for name, limit in vars(self).items():
            check_int(name, limit, minimum=0 if name == "goals_kept" else 1)


class StateItem(BaseModel):
    """Immutable value within an agent's state, such as an entity or a subtask.

    Unknown fields in stored data are kept, because later releases may have added them.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    def replaced(self, **fields: Any) -> Self:
        """Return a copy of this value with some fields replaced, without validation."""
        return self.model_copy(update=fields)


class StatePart(BaseModel):
    """Part of an agent's state, such as the goals, that is stored under its own key.

    Methods assign new values to fields and never change a value in place. Unknown fields in stored
    data are kept, because later releases may have added them.
    """

    model_config = ConfigDict(extra="allow")

    KEY: ClassVar[str]
    """Key in ``agent.state``."""

    VERSION: ClassVar[int] = 1

    _store: StateStore = PrivateAttr()

    def reduce(self) -> None:
        """Drop values of this part of the state until it fits its maximum size.

        By default, a part has no maximum size, and nothing is dropped.
        """

    def values(self) -> dict[str, Any]:
        """Return the values of all fields in this part of the state, keyed by field.

        Unknown fields, which a later release has stored, are included.
        """
        return {**self.__dict__, **(self.model_extra or {})}

    def stored(self) -> str:
        """Return this part of the state as JSON text, to be stored in ``agent.state``.

        The text contains the version of its format, and leaves out default values. Strands copies
        and checks the nested values of a dict at each save, so a text is faster.
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

    def restore(self, values: Mapping[str, Any]) -> None:
        """Set this part of the state back to earlier values, for example after a failed change.

        ``values`` is the result of an earlier call of the method ``values``. All fields are set.
        """
        extra: dict[str, Any] = self.model_extra  # type: ignore[assignment]  # ``extra="allow"``
        extra.clear()
        for name, value in values.items():
            if name in type(self).model_fields:
                setattr(self, name, value)
            else:  # ``setattr`` would hide a method of the same name
                extra[name] = value

    def merge(self, base: Mapping[str, Any], other: Mapping[str, Any]) -> None:
        """Merge the changes that another agent made to its copy of this part of the state.

        Mappings are merged key by key, and tuples item by item. Increases of a count by both agents
        are added. If both agents changed any other value, the value of this agent is kept.

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


def _problems(error: ValueError) -> str:
    """Return an error's text on one line; for invalid values, with field, rule and value."""
    if not isinstance(error, ValidationError):
        return str(error)
    return "; ".join(
        f"{'.'.join(map(str, each['loc']))}: {each['msg']}, got {each['input']!r:.80}"
        for each in error.errors()
    )


def change(
    method: Callable[Concatenate[_Part, P], _Item],
) -> Callable[Concatenate[_Part, P], _Item]:
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
    def run(part: _Part, /, *args: P.args, **kwargs: P.kwargs) -> _Item:
        store = part._store  # noqa: SLF001 - the store of the part
        with store.lock:
            store.refresh()
            if error := store.unreadable().get(part.KEY):
                raise CorruptRecordError(error, record=part.KEY)
            before = part.values()
            try:
                result = typed(part, *args, **kwargs)
                part.reduce()
                part.model_validate(part.values())
            except BaseException as error:
                part.restore(before)
                if isinstance(error, ValueError) and not isinstance(error, StateError):
                    raise StateError(_problems(error)) from error
                raise
            store.write()
            store.publish()
            return result

    return run


def item_of(items: Mapping[str, _Item], kind: str, name: str) -> _Item:
    """Return the item of ``items``, such as a slot, subtask or step, that has the given name.

    ``kind`` is the word for such an item in the error message, for example "slot". The message
    lists the existing names.

    Raises:
        StateError: There is no item with this name.
    """
    if name not in items:
        known = ", ".join(map(repr, list(items)[-50:])) or "none"
        raise StateError(f"there is no {kind} {name!r:.80}; there are: {known}")
    return items[name]


REVISION = "manga_state.revision"
"""Key in ``agent.state`` of the revision of the shared state that was merged last."""


@dataclass
class _TrackedPart:
    """Part of an agent's state, with values at earlier times, from which changes are detected.

    Attributes:
        part: The part of the state with its current values.
        error: Reason why the part's text in ``agent.state`` is unreadable; empty if it is readable.
        written: Values when the part was last read from ``agent.state`` or written there.
        shared: Values in the session's shared state when this agent last read or wrote that state.
        turn_end: Values at the end of the last turn.
    """

    part: StatePart
    error: str = ""
    written: dict[str, Any] = field(default_factory=dict)
    shared: dict[str, Any] = field(default_factory=dict)
    turn_end: dict[str, Any] = field(default_factory=dict)


class StateStore:
    """Store of an agent's state, which writes changed parts of the state into ``agent.state``.

    If a session manager replaces ``agent.state``, the parts are read again at their next use. A
    stored part that is damaged or has another version is not changed. The agent then works with an
    empty part, which is not stored.

    Args:
        kinds: Classes of the parts.
        types: Types of entities, such as ASIN and title.
        intents: Slots (values that an intent needs) of each intent, keyed by the intent's name.
        clock: Function that returns monotonic seconds.
        wall: Function that returns seconds since 1970.
        limits: Limits of the goals and steps.

    Attributes:
        publish: Function that shares a change with the session's other agents. During a turn it
            does nothing, because the end of the turn shares all changes.
    """

    def __init__(
        self,
        kinds: Iterable[type[StatePart]],
        types: EntityTypes,
        intents: Mapping[str, tuple[Any, ...]],
        clock: Callable[[], float],
        wall: Callable[[], float],
        limits: StateLimits,
    ) -> None:
        self.types, self.intents, self.limits = types, intents, limits
        self.clock, self.wall = clock, wall
        self.lock = threading.RLock()
        self.revision = 0
        self.agent_id = ""
        self.is_new = True
        self.publish: Callable[[], None] = lambda: None
        self._agent: Callable[[], Agent | None] = lambda: None
        self._state: Any = None
        self._entries = {kind: _TrackedPart(kind()) for kind in kinds}
        for entry in self._entries.values():
            entry.written = entry.shared = entry.part.values()
            entry.part._store = self  # noqa: SLF001
        self.end_turn()

    def attach(self, agent: Agent) -> None:
        """Connect the store to an agent, and read the parts of the state from ``agent.state``.

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
        self.refresh()
        return self._entries[kind].part  # type: ignore[return-value]

    def refresh(self) -> None:
        """Read the agent's state again if ``agent.state`` was replaced by another object."""
        agent = self._agent()
        if agent is not None and agent.state is not self._state:
            with self.lock:
                self._read(agent)

    def unreadable(self) -> dict[str, str]:
        """Return the reasons why stored parts of the state cannot be read.

        The reasons are keyed by the parts' keys in ``agent.state``.
        """
        return {kind.KEY: entry.error for kind, entry in self._entries.items() if entry.error}

    def write(self) -> None:
        """Write the changed parts of the state into ``agent.state``.

        Nothing is written if a session manager has replaced ``agent.state`` since the last read,
        because the replacement may have newer values. They must be read first.
        """
        with self.lock:
            agent = self.agent
            if agent is None or agent.state is not self._state:
                return  # ``agent.state`` was replaced; ``get`` reads the new one
            for kind, entry in self._entries.items():
                values = entry.part.values()
                if not entry.error and values != entry.written:
                    entry.written = values
                    agent.state.set(kind.KEY, entry.part.stored())

    def begin_turn(self) -> None:
        """Prepare the state for a new turn, and take over changes that other processes stored.

        1. If a session manager has replaced ``agent.state``, which it does when it reads a stored
           conversation, read the parts of the state from the replacement.
        2. Merge the changes that this agent made since its last turn into the parts.
        3. Write the changed parts to ``agent.state``.
        """
        with self.lock:
            agent = self.agent
            if agent is not None and agent.state is not self._state:
                ours = [
                    (entry.part, entry.part.values(), entry.turn_end) for entry in self._readable()
                ]
                self._read(agent)
                for part, values, base in ours:
                    if values != base:
                        theirs = part.values()
                        part.restore(values)
                        part.merge(base, theirs)
            self.end_turn()

    def end_turn(self) -> None:
        """Write the changed parts of the state at the end of a turn, and remember all values.

        At the next turn, ``begin_turn`` compares the current values with the remembered values, to
        find the changes made between the two turns.
        """
        with self.lock:
            self.write()
            for entry in self._entries.values():
                entry.turn_end = entry.part.values()

    # Parts that the agents of a session share

    def _readable(self) -> list[_TrackedPart]:
        return [entry for entry in self._entries.values() if not entry.error]

    def has_changed(self) -> bool:
        """Return whether this agent's state has changes that the session's other agents lack."""
        with self.lock:
            return any(entry.part.values() != entry.shared for entry in self._readable())

    def state_to_share(
        self, known: Mapping[str, str]
    ) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
        """Return this agent's state in two forms, to share it with the session's other agents.

        Args:
            known: JSON texts of the parts that the shared state has now. A text that this release
                cannot read is returned unchanged. This agent's parts replace the other texts.

        Returns:
            The JSON text of each part, to be stored in the shared state, and the values of each
            part, for ``set_shared``. All mappings are keyed by ``StatePart.KEY``.
        """
        texts, shared = dict(known), {}
        for entry in self._readable():
            part = entry.part
            shared[part.KEY] = part.values()
            with suppress(CorruptRecordError):
                if part.KEY in known:
                    part.loaded(known[part.KEY])
                texts[part.KEY] = part.stored()
        return texts, shared

    def merge(self, shared: Mapping[str, str], revision: int) -> None:
        """Merge the shared state of the session into this agent's state.

        Damaged parts of the shared state are skipped.

        Args:
            shared: Texts of the state's parts in the shared state, keyed by ``StatePart.KEY``.
            revision: Revision number of the shared state, which increases at each write. If it is
                lower than at the last merge, the hot store has lost newer shared state. This
                agent's values, except defaults, then count as changes, so that they are shared
                again.
        """
        with self.lock:
            for entry in self._readable():
                part = entry.part
                try:
                    other = part.loaded(shared.get(part.KEY)).values()
                except CorruptRecordError:
                    continue
                is_outdated = revision < self.revision
                part.merge(type(part)().values() if is_outdated else entry.shared, other)
                entry.shared = other
            self.write()
            self.set_shared({}, max(revision, self.revision))

    def set_shared(self, shared: Mapping[str, dict[str, Any]], revision: int) -> None:
        """Remember the session's shared state, to find later which values this agent has changed.

        Args:
            shared: Values of each part of the shared state, keyed by ``StatePart.KEY``. For a
                missing part, the values remembered before are kept.
            revision: Revision number of the shared state, which is also stored in ``agent.state``.
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
        self.is_new = not self.revision
        for kind, entry in self._entries.items():
            loaded, entry.error, text = kind(), "", agent.state.get(kind.KEY)
            self.is_new &= text is None
            try:
                if text is not None:
                    loaded = kind.loaded(text)
            except CorruptRecordError as failure:
                entry.error = str(failure)
                logger.warning(
                    "record=<%s> | cannot be read; it is not used and not changed", kind.KEY
                )
            entry.part.restore(loaded.values())
            entry.written = entry.shared = entry.turn_end = loaded.values()
