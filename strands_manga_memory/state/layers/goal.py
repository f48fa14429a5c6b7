"""Goal: what is worked on with its tool calls and subtasks, and GoalArchive, what is kept of one that ended. Pure."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from strands_manga_memory.exceptions import StateError
from strands_manga_memory.messages.tokens import estimate_tokens, shorten_line
from strands_manga_memory.state.layers.execution import added_finding, counted, error_pattern
from strands_manga_memory.state.layers.layer import Part
from strands_manga_memory.state.layers.subtasks import Subtask, SubtaskStatus, check_graph

MOST_RECENT, MOST_FAILED = 20, 5
MOST_CONTEXT, ARCHIVED_CONTEXT = 2_000, 500
MOST_SUBTASKS, MOST_TOOLS, MOST_FINDINGS = 50, 30, 10
OTHER_TOOLS = "(other tools)"


class GoalStatus(StrEnum):
    """What became of a goal; one that gave way to the next is superseded."""

    ACTIVE = "active"
    COMPLETED = "completed"
    FAILED = "failed"
    SUPERSEDED = "superseded"


class Execution(Part):
    """A tool call of a goal, in short: whether it succeeded, its milliseconds, and what came of it or went wrong."""

    tool: str
    ok: bool
    ms: float = 0.0
    note: str = ""


class ToolUsage(Part):
    """How a goal used one tool: calls, those that failed, and milliseconds in all."""

    calls: int = 0
    failures: int = 0
    ms: float = 0.0


class Goal(Part):
    """A goal that is worked on.

    Attributes:
        id: Its number in the session, from 1.
        text: What is to be reached.
        context: What is known for it, at most 2,000 characters; of more, the end stays.
        started_at: When it was set, in seconds since 1970.
        first_at: When its first tool was called; None before that.
        last_at: When its last tool was called.
        calls: Tool calls.
        raw_characters: Size of what those calls were given and returned, for the compression ratio.
        tools: How each tool was used.
        errors: How often what went wrong, by pattern.
        recent: The last 20 calls.
        findings: What was found out, each once, the last 10.
        subtasks: Parts of it, by id.
    """

    id: int = Field(ge=1)
    text: str = Field(min_length=1, max_length=300)
    context: str = Field(default="", max_length=MOST_CONTEXT)
    started_at: float = 0.0
    first_at: float | None = None
    last_at: float | None = None
    calls: int = 0
    raw_characters: int = 0
    tools: dict[str, ToolUsage] = Field(default_factory=dict)
    errors: dict[str, int] = Field(default_factory=dict)
    recent: tuple[Execution, ...] = ()
    findings: tuple[str, ...] = ()
    subtasks: dict[str, Subtask] = Field(default_factory=dict, max_length=MOST_SUBTASKS)

    def executed(self, execution: Execution, *, at: float, error: str = "", raw_characters: int = 0) -> Goal:
        """Return the goal after a tool call. However many there are, the goal stays as small."""
        name = execution.tool if execution.tool in self.tools or len(self.tools) < MOST_TOOLS else OTHER_TOOLS
        used = self.tools.get(name, _UNUSED)
        usage = used.replaced(
            calls=used.calls + 1, failures=used.failures + (not execution.ok), ms=round(used.ms + execution.ms, 1)
        )
        return self.replaced(  # the execution was validated when it was made
            first_at=at if self.first_at is None else self.first_at,
            last_at=at,
            calls=self.calls + 1,
            raw_characters=self.raw_characters + raw_characters,
            tools={**self.tools, name: usage},
            errors=self.errors if execution.ok else counted(self.errors, error_pattern(error) or "failed"),
            recent=(*self.recent, execution)[-MOST_RECENT:],
        )

    def with_context(self, text: str) -> Goal:
        """Return the goal with a text more in its context."""
        return self.changed(context=f"{self.context}\n{text}".strip()[-MOST_CONTEXT:])

    def with_finding(self, text: str) -> Goal:
        """Return the goal with something found out."""
        return self.changed(findings=added_finding(self.findings, text, MOST_FINDINGS))

    def with_subtask(self, subtask: Subtask) -> Goal:
        """Return the goal with a subtask more, or one changed.

        Raises:
            StateError: It depends on itself, or on what is not there, or there are 50 already.
        """
        if subtask.id not in self.subtasks and len(self.subtasks) == MOST_SUBTASKS:
            raise StateError(f"a goal has at most {MOST_SUBTASKS} subtasks; complete it, or set a further goal")
        subtasks = {**self.subtasks, subtask.id: subtask}
        check_graph(subtasks)
        return self.changed(subtasks=subtasks)

    def subtask(self, id_: str) -> Subtask:
        """Return a subtask.

        Raises:
            StateError: There is none of this id.
        """
        if id_ not in self.subtasks:
            raise StateError(f"there is no subtask {id_!r:.80}; there are: {', '.join(map(repr, self.subtasks)) or 'none'}")
        return self.subtasks[id_]

    @property
    def ready(self) -> list[Subtask]:
        """Open subtasks whose dependencies are completed."""
        done = {id_ for id_, each in self.subtasks.items() if each.status is SubtaskStatus.COMPLETED}
        return [
            each for each in self.subtasks.values() if each.status is SubtaskStatus.OPEN and done.issuperset(each.depends_on)
        ]

    @property
    def success_rate(self) -> float:
        """Share of the calls that succeeded; 1 if there were none."""
        calls = sum(used.calls for used in self.tools.values())
        return 1 - sum(used.failures for used in self.tools.values()) / calls if calls else 1.0

    def archived(self, status: GoalStatus, outcome: str) -> GoalArchive:
        """Return what is kept of the goal when it ends."""
        themes: dict[str, dict[str, int]] = {}
        for subtask in self.subtasks.values():
            counts = themes.setdefault(subtask.theme, {})
            counts[subtask.status] = counts.get(subtask.status, 0) + 1
        failed = [
            shorten_line(f"{each.text}: {each.result or 'failed'}", 120)
            for each in self.subtasks.values()
            if each.status is SubtaskStatus.FAILED
        ]
        common = sorted(self.errors.items(), key=lambda item: (-item[1], item[0]))
        return GoalArchive(
            id=self.id,
            text=shorten_line(self.text, 120),
            status=status,
            outcome=shorten_line(outcome or "; ".join(self.findings), 300),
            context=shorten_line(self.context, ARCHIVED_CONTEXT),
            calls=self.calls,
            success_rate=round(self.success_rate, 3),
            tools={name: [used.calls, used.failures] for name, used in self.tools.items()},
            errors=dict(common[:MOST_FAILED]),
            themes=themes,
            failed=tuple(failed[-MOST_FAILED:]),
            first_at=self.first_at,
            last_at=self.last_at,
            raw_characters=self.raw_characters,
        )


_UNUSED = ToolUsage()


class GoalArchive(Part):
    """What is kept of a goal that ended.

    Attributes:
        id: Its number.
        text: What was to be reached.
        status: What became of it.
        outcome: What was found.
        context: What was known for it, at most 500 characters.
        calls: Tool calls.
        success_rate: Share of them that succeeded.
        tools: Calls and failures of each tool.
        errors: The 5 most common patterns of errors, with counts.
        themes: Of the subtasks: counts by theme and status.
        failed: Up to 5 subtasks that failed, with why.
        first_at: When its first tool was called, in seconds since 1970.
        last_at: When its last one was.
        raw_characters: Size of what its calls were given and returned.
    """

    id: int
    text: str
    status: GoalStatus
    outcome: str = ""
    context: str = ""
    calls: int = 0
    success_rate: float = 1.0
    tools: dict[str, list[int]] = Field(default_factory=dict)
    errors: dict[str, int] = Field(default_factory=dict)
    themes: dict[str, dict[str, int]] = Field(default_factory=dict)
    failed: tuple[str, ...] = ()
    first_at: float | None = None
    last_at: float | None = None
    raw_characters: int = 0

    @property
    def tokens(self) -> int:
        """Its estimated size."""
        return estimate_tokens(self.model_dump_json(exclude_defaults=True))

    def line(self) -> str:
        """Return it in one line."""
        used = ", ".join(
            f"{name} {calls}x" for name, (calls, _) in sorted(self.tools.items(), key=lambda item: -item[1][0])[:3]
        )
        work = f" ({self.calls} calls, {self.success_rate:.0%} ok: {used})" if self.calls else ""
        return f"{self.text}: {self.status}{work}{f' - {self.outcome}' if self.outcome else ''}"
