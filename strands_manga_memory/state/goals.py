"""Goals of an agent: an active goal with subtasks, and an archive of ended goals."""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from typing import ClassVar

from pydantic import BaseModel, Field

from strands_manga_memory.exceptions import StateError
from strands_manga_memory.language.text_features import normalized
from strands_manga_memory.messages.injection import escape_line
from strands_manga_memory.messages.texts import estimate_tokens, shorten_line
from strands_manga_memory.state.session_state import StatePart, change
from strands_manga_memory.state.state_item import StateItem, item_of

logger = logging.getLogger(__name__)

MAX_KINDS, ARCHIVED_PATTERNS = 20, 5
MAX_SUBTASKS, MAX_FINDINGS = 50, 10
MAX_LINES = 3
"""Maximum number of items of one kind, such as findings, that are shown to the model."""

_VARIABLE = re.compile(
    r"0x[0-9a-f]+|[0-9a-f]{8}-[0-9a-f-]{27}|\d+(?:[.,:]\d+)*|'[^']*'|\"[^\"]*\"", re.IGNORECASE
)


def added_finding(known: tuple[str, ...], text: str, limit: int) -> tuple[str, ...]:
    """Return the findings ``known``, followed by the new finding ``text``.

    A finding is, for example, a fact from a tool result. Only the last ``limit`` findings are kept.
    Nothing is added if ``text`` is blank or repeats a known finding.
    """
    line = shorten_line(text, 300)
    if not line or normalized(line) in map(normalized, known):
        return known
    return (*known, line)[-limit:]


def counted_kind(counts: Mapping[str, object], kind: str) -> str:
    """Return the key in ``counts`` for events of a kind, such as calls of a tool.

    The key is ``kind``, or ``other`` if ``counts`` has 20 other keys already.
    """
    return kind if kind in counts or len(counts) < MAX_KINDS else "other"


def add_count(counts: Mapping[str, int], kind: str) -> dict[str, int]:
    """Return a copy of ``counts``, in which the count of ``kind`` is higher by 1."""
    name = counted_kind(counts, kind)
    return {**counts, name: counts.get(name, 0) + 1}


def error_pattern(text: str) -> str:
    """Return an error text with ``#`` in place of numbers, ids and quoted values, to count errors.

    For example, ``order 12 not found`` becomes ``order # not found``.
    """
    return shorten_line(_VARIABLE.sub("#", text[:400]), 80)


class SubtaskStatus(StrEnum):
    """Status of a subtask of a goal: open, completed or failed."""

    OPEN = "open"
    COMPLETED = "completed"
    FAILED = "failed"


class Subtask(StateItem):
    """Piece of work for a goal, which may depend on other subtasks of the goal.

    Attributes:
        id: Id of the subtask, unique within the goal.
        text: Description of the work.
        theme: Category of the work. The record of an ended goal (``GoalArchive``) has the number of
            subtasks of each category.
        depends_on: Ids of subtasks that must be completed first.
        status: Status of the subtask.
        result: Result of the subtask, or the reason of its failure.
    """

    id: str = Field(pattern=r"^[\w.-]{1,60}$")
    text: str = Field(min_length=1, max_length=300)
    theme: str = Field(default="general", min_length=1, max_length=60)
    depends_on: tuple[str, ...] = ()
    status: SubtaskStatus = SubtaskStatus.OPEN
    result: str = Field(default="", max_length=300)


class GoalStatus(StrEnum):
    """Status of a goal: active, completed, failed or superseded (replaced by another goal)."""

    ACTIVE = "active"
    COMPLETED = "completed"
    FAILED = "failed"
    SUPERSEDED = "superseded"


class Execution(StateItem):
    """One tool call made for a goal.

    ``note`` is the shortened result or error, and ``ms`` the duration in milliseconds.
    """

    tool: str
    ok: bool
    ms: float = 0.0
    note: str = ""


class Goal(StateItem):
    """Active goal of an agent, with subtasks and statistics of tool calls.

    When the goal ends, a shorter record of the goal is added to the archive (``GoalArchive``).

    Attributes:
        id: Number of the goal in the session, from 1.
        text: Description of the goal.
        context: Background for the goal; in the archive at most 500 characters.
        calls: Number of tool calls.
        tools: Number of calls and number of failures, keyed by tool name.
        errors: Number of errors, keyed by error text without numbers and ids. The archive has only
            the 5 most frequent.
        first_at: Time of the goal's first tool call, in seconds since 1970.
        last_at: Time of the goal's last tool call, in seconds since 1970.
        raw_characters: Total characters of the tool calls' arguments and results.
        recent: The last tool calls, 20 by default; not in the archive.
        findings: The last 10 findings, without repetitions; not in the archive.
        subtasks: Subtasks, keyed by id; not in the archive.
    """

    id: int = Field(ge=1)
    text: str = Field(min_length=1, max_length=300)
    context: str = ""
    calls: int = 0
    tools: dict[str, tuple[int, int]] = Field(default_factory=dict)
    errors: dict[str, int] = Field(default_factory=dict)
    first_at: float | None = None
    last_at: float | None = None
    raw_characters: int = 0
    recent: tuple[Execution, ...] = ()
    findings: tuple[str, ...] = ()
    subtasks: dict[str, Subtask] = Field(default_factory=dict)

    @property
    def success_rate(self) -> float:
        """Share of the goal's tool calls that succeeded, from 0 to 1. Without calls, it is 1."""
        failures = sum(failed for _, failed in self.tools.values())
        return 1 - failures / max(1, self.calls)

    def subtask(self, id_: str) -> Subtask:
        """Return the subtask with the given id.

        Raises:
            StateError: The subtask does not exist.
        """
        return item_of(self.subtasks, "subtask", id_)

    def with_status(self, status: SubtaskStatus) -> list[Subtask]:
        """Return the subtasks of the goal that have the given status."""
        return [each for each in self.subtasks.values() if each.status is status]

    @property
    def ready(self) -> list[Subtask]:
        """Subtasks of the goal that can be started: open, with all dependencies completed."""
        done = {each.id for each in self.with_status(SubtaskStatus.COMPLETED)}
        return [
            each
            for each in self.with_status(SubtaskStatus.OPEN)
            if done.issuperset(each.depends_on)
        ]

    def lines(self) -> Iterator[str]:
        """Yield the text lines that show the goal, its subtasks and its findings to the model."""
        failed = self.with_status(SubtaskStatus.FAILED)[-MAX_LINES:]
        parts = {
            "Goal": [escape_line(self.text, 200)],
            "To do next": [escape_line(each.text, 80) for each in self.ready[:MAX_LINES]],
            "Failed": [
                f"{escape_line(each.text, 60)} ({escape_line(each.result, 60)})" for each in failed
            ],
            "Found so far": map(escape_line, self.findings[-MAX_LINES:]),
        }
        for title, items in parts.items():
            if text := "; ".join(items):
                yield f"{title}: {text}"

    def archived(self, status: GoalStatus, outcome: str, *, failed_kept: int) -> GoalArchive:
        """Return a short record of the goal for the archive of ended goals.

        Args:
            status: Final status of the goal.
            outcome: Outcome of the goal. If it is empty, the findings are used.
            failed_kept: Maximum number of failed subtasks in the record. The last ones are kept.
        """
        themes = defaultdict[str, Counter[str]](Counter)
        for each in self.subtasks.values():
            themes[each.theme][each.status] += 1
        failed = self.with_status(SubtaskStatus.FAILED)[-failed_kept:]
        values = {
            "text": shorten_line(self.text, 120),
            "context": shorten_line(self.context, 500),
            "errors": dict(Counter(self.errors).most_common(ARCHIVED_PATTERNS)),
            "recent": (),
            "findings": (),
            "subtasks": {},
            "status": status,
            "outcome": shorten_line(outcome or "; ".join(self.findings), 300),
            "themes": themes,
            "failed": [
                shorten_line(f"{each.text}: {each.result or 'failed'}", 120) for each in failed
            ],
        }
        return GoalArchive.model_validate(dict(self) | values)


class GoalArchive(Goal):
    """Short record of an ended goal, with statistics instead of subtasks and tool calls.

    Attributes:
        status: Final status of the goal.
        outcome: Outcome of the goal.
        themes: Number of subtasks, keyed by theme (category of the subtask) and then by status.
        failed: The last failed subtasks with reasons, 5 by default.
    """

    status: GoalStatus
    outcome: str = ""
    themes: dict[str, dict[str, int]] = Field(default_factory=dict)
    failed: tuple[str, ...] = ()

    def line(self) -> str:
        """Return the text line that shows the ended goal: status, tool calls and outcome."""
        text = f"{self.text}: {self.status}"
        if self.calls:
            most_used = sorted(self.tools.items(), key=lambda item: -item[1][0])[:3]
            used = ", ".join(f"{name} {calls}x" for name, (calls, _) in most_used)
            plural = "s" * (self.calls > 1)
            text += f" ({self.calls} call{plural}, {self.success_rate:.0%} ok: {used})"
        return f"{text} - {self.outcome}" if self.outcome else text


class Goals(StatePart):
    """Goals of an agent: the active goal, and the archive of ended goals.

    Methods that need an active goal raise ``StateError`` if no goal is active. While the stored
    goals are unreadable, methods that change goals raise ``CorruptRecordError``, and the stored
    data stay unchanged. ``StateLimits`` sets the maximum size of the goals.

    Attributes:
        active: The active goal, or None.
        archive: The last ended goals, oldest first.
        total: Number of goals set so far.
    """

    KEY: ClassVar[str] = "manga_state.goals"
    VERSION: ClassVar[int] = 2

    active: Goal | None = None
    archive: tuple[GoalArchive, ...] = ()
    total: int = 0

    _warned: bool = False

    def goal(self) -> Goal:
        """Return the agent's active goal.

        Raises:
            StateError: There is no active goal.
        """
        if self.active is None:
            raise StateError("there is no active goal; set one first")
        return self.active

    def lines(self) -> Iterator[str]:
        """Yield the text lines that show the active goal and the last ended goals to the model."""
        if self.active is not None:
            yield from self.active.lines()
        for archived in reversed(self.archive[-MAX_LINES:]):
            yield f"Earlier goal: {escape_line(archived.line(), 240)}"

    @change
    def set(self, text: str, *, context: str = "") -> Goal:
        """Set a new active goal, and archive the previous goal.

        Args:
            text: Description of the goal, truncated to 300 characters.
            context: Background for the goal; by default, the last 2,000 characters are kept.

        Raises:
            StateError: ``text`` is empty.
        """
        if self.active is not None:
            self._end(GoalStatus.SUPERSEDED, "")
        self.total += 1
        self.active = Goal(
            id=self.total,
            text=shorten_line(text, 300),
            context=context[-self._store.limits.goal_context_characters :],
        )
        return self.active

    @change
    def complete(self, outcome: str = "") -> GoalArchive:
        """Complete the active goal, move it to the archive, and return its archive record."""
        return self._end(GoalStatus.COMPLETED, outcome)

    @change
    def fail(self, reason: str = "") -> GoalArchive:
        """Mark the active goal as failed, move it to the archive, and return its archive record."""
        return self._end(GoalStatus.FAILED, reason)

    def _end(self, status: GoalStatus, outcome: str) -> GoalArchive:
        limits = self._store.limits
        ended = self.goal().archived(status, outcome, failed_kept=limits.failed_subtasks_kept)
        kept = deque([*self.archive, ended], maxlen=limits.goals_kept)
        while len(kept) > 1 and sum(map(part_tokens, kept)) > limits.goal_archive_tokens:
            kept.popleft()
        self.active, self.archive = None, tuple(kept)
        return ended

    @change
    def add_finding(self, text: str) -> None:
        """Add a finding, such as a fact from a tool result, to the active goal."""
        goal = self.goal()
        self.active = goal.replaced(findings=added_finding(goal.findings, text, MAX_FINDINGS))

    @change
    def add_subtask(
        self, subtask_id: str, text: str, *, theme: str = "general", depends_on: Iterable[str] = ()
    ) -> Subtask:
        """Add a subtask to the active goal, or replace the subtask with the same id.

        Raises:
            StateError: No goal is active, or the subtask is not allowed. Examples are an empty
                text, an unknown dependency, a cycle of dependencies, and a goal with over 50
                subtasks.
        """
        subtask = Subtask(
            id=subtask_id, text=shorten_line(text, 300), theme=theme, depends_on=tuple(depends_on)
        )
        self._put(subtask)
        subtasks = self.goal().subtasks
        if len(subtasks) > MAX_SUBTASKS:
            raise StateError(
                f"a goal has at most {MAX_SUBTASKS} subtasks; complete it, or set a further goal"
            )
        for each in subtask.depends_on:
            self.goal().subtask(each)
        try:
            TopologicalSorter({id_: each.depends_on for id_, each in subtasks.items()}).prepare()
        except CycleError as error:
            raise StateError(
                f"the dependencies of subtasks form a cycle: {' -> '.join(error.args[1])};"
                " remove one of them"
            ) from error
        return subtask

    @change
    def complete_subtask(self, subtask_id: str, result: str = "") -> Subtask:
        """Mark a subtask of the active goal as completed, and return it.

        Raises:
            StateError: The subtask does not exist, is not open, or depends on an uncompleted
                subtask.
        """
        goal = self.goal()
        subtask = goal.subtask(subtask_id)
        if subtask not in goal.ready:
            ready = ", ".join(repr(each.id) for each in goal.ready) or "none"
            raise StateError(
                f"subtask {subtask_id!r:.80} has ended, or waits for another subtask; ready are:"
                f" {ready}"
            )
        return self._put(
            subtask.replaced(status=SubtaskStatus.COMPLETED, result=shorten_line(result, 300))
        )

    @change
    def fail_subtask(self, subtask_id: str, reason: str) -> Subtask:
        """Mark a subtask of the active goal as failed, and return it.

        Raises:
            StateError: The subtask does not exist, or is completed.
        """
        subtask = self.goal().subtask(subtask_id)
        if subtask.status is SubtaskStatus.COMPLETED:
            raise StateError(f"subtask {subtask_id!r:.80} is completed and cannot fail")
        return self._put(
            subtask.replaced(status=SubtaskStatus.FAILED, result=shorten_line(reason, 300))
        )

    def _put(self, subtask: Subtask) -> Subtask:
        goal = self.goal()
        self.active = goal.replaced(subtasks={**goal.subtasks, subtask.id: subtask})
        return subtask

    def reduce(self) -> None:
        """Reduce the stored goals to at most ``StateLimits.goal_tokens`` estimated tokens.

        Parts are dropped in this order, until the goals fit: the oldest archived goals, the
        background of the active goal (``context``), the results of its subtasks.

        Raises:
            StateError: The remaining texts of the active goal exceed the limit.
        """
        limits = self._store.limits
        while (tokens := part_tokens(self)) > limits.goal_tokens:
            if self.archive:
                self.archive = self.archive[1:]
                continue
            goal = self.goal()
            if goal.context:
                self.active = goal.replaced(context="")
            elif any(each.result for each in goal.subtasks.values()):
                short = {id_: each.replaced(result="") for id_, each in goal.subtasks.items()}
                self.active = goal.replaced(subtasks=short)
            else:
                self._warn("cap=<%d> | the active goal alone exceeds the size limit")
                raise StateError(
                    f"the goal and its subtasks have {tokens} tokens, over the limit of"
                    f" {limits.goal_tokens}; complete the goal or shorten its texts"
                )
        if tokens > limits.goal_warn_tokens:
            self._warn("cap=<%d> | the goals of the session are close to their size limit")
        else:
            self._warned = False

    def _warn(self, text: str) -> None:
        if not self._warned:
            logger.warning(text, self._store.limits.goal_tokens)
        self._warned = True

    @change
    def enforce_limits(self) -> None:
        """Reduce the stored goals at the end of a turn if they exceed their size limit.

        The oldest archived goals are dropped first, as ``reduce`` describes.

        Raises:
            StateError: The active goal alone exceeds the limit. Nothing is dropped, and a warning
                is logged.
        """

    # Events of a turn; they do not raise

    def record(self, done: Execution, *, error: str, size: int) -> None:
        """Add a tool call to the statistics of the active goal, if there is one.

        Args:
            done: The tool call.
            error: Error text of a failed call.
            size: Number of characters of the call's arguments and result.
        """
        goal = self.active
        if goal is None:
            return
        name, now = counted_kind(goal.tools, done.tool), round(self._store.wall(), 3)
        calls, failures = goal.tools.get(name, (0, 0))
        errors = goal.errors
        if not done.ok:
            errors = add_count(errors, error_pattern(error) or "failed")
        self.active = goal.replaced(
            first_at=goal.first_at or now,
            last_at=now,
            calls=goal.calls + 1,
            raw_characters=goal.raw_characters + size,
            tools={**goal.tools, name: (calls + 1, failures + (not done.ok))},
            errors=errors,
            recent=(*goal.recent, done)[-self._store.limits.executions_kept :],
        )


def part_tokens(part: BaseModel) -> int:
    """Estimate the tokens of a part of an agent's state, such as a goal, written as JSON."""
    return estimate_tokens(part.model_dump_json(exclude_defaults=True))
