"""Rendering of the state for the model: a few readable lines, the most useful first, within a token limit. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from operator import is_
from typing import NamedTuple

from strands_manga_memory.messages.injection import escape_line
from strands_manga_memory.messages.tokens import estimate_tokens
from strands_manga_memory.messages.turn_context import render_section
from strands_manga_memory.state.active_entities import Confidence, EntityLayer
from strands_manga_memory.state.dialogue import ConversationLayer, Phase, SlotStatus
from strands_manga_memory.state.environment import Environment
from strands_manga_memory.state.goals import Goal, GoalsLayer, SubtaskStatus
from strands_manga_memory.state.task import ExecutionLayer, StepStatus, TaskLayer, TaskStep

_NAME = "conversation_state"

_NO_REFERENTS = frozenset(("language", "phone", "email"))
"""Entity types that no pronoun refers to. Contact data is in the user's message and need not be repeated."""
_MOST_ENTITIES, _MOST_ITEMS, _MOST_LINES = 12, 5, 3
_LOW = 0.25
"""Remaining share of the time budget from which on the rendered state mentions it."""


class View(NamedTuple):
    """Snapshot of the layers; ``now`` is the time of the task's clock, ``wall`` seconds since 1970."""

    conversation: ConversationLayer
    task: TaskLayer
    entities: EntityLayer
    goals: GoalsLayer
    execution: ExecutionLayer
    environment: Environment
    now: float
    wall: float


_tokens = lru_cache(1_024)(estimate_tokens)
"""Cached, because most lines equal those of the previous call."""


_Rendered = tuple[tuple[object, ...], list[tuple[str, int]]]
"""Inputs of a part, and its lines with their tokens."""

_NOTHING: _Rendered = (), []


class StateRenderer:
    """Renders the state within a token limit and reuses parts that have not changed.

    Layers are immutable, so a part is unchanged if its inputs are the same objects.
    """

    def __init__(self, max_tokens: int, count: Callable[[str], int] = _tokens) -> None:
        self._most = max_tokens - count(render_section(_NAME, []))
        self._count = count
        self._rendered: dict[str, _Rendered] = {}

    def __call__(self, view: View) -> str:
        """Return the block, empty without data. Lines that do not fit are left out as a whole."""
        left, kept = self._most, list[str]()
        for name, part, made_from in _PARTS:
            made = made_from(view)
            before, lines = self._rendered.get(name, _NOTHING)
            if len(before) != len(made) or not all(map(is_, before, made)):
                lines = [(line, self._tokens(line)) for line in part(view)]
                self._rendered[name] = made, lines
            for line, tokens in lines:
                if tokens <= left:
                    kept.append(line)
                    left -= tokens
        return render_section(_NAME, kept) if kept else ""

    def _tokens(self, line: str) -> int:
        """Return an upper bound of a line's tokens. Items are counted one by one, because most are cached."""
        items = line.split("; ")
        return sum(map(self._count, items)) + len(items)


def _time_left(view: View) -> tuple[object, ...]:
    """Return the budget, whether it is used up, and whether it is low; empty before the first step."""
    task = view.task
    if not task.steps:
        return ()
    left = task.remaining_ms(view.now)
    return task.budget_ms, left == 0, left < _LOW * task.budget_ms


def urgency(view: View) -> tuple[bool, bool]:
    """Return whether the time budget is used up, and whether it is low. Both are reasons to render again within a turn."""
    _, is_over, is_low = _time_left(view) or (0, False, False)
    return bool(is_over), bool(is_low)


def _time(view: View) -> Iterator[str]:
    budget_ms, is_over, is_low = _time_left(view) or (0, False, False)
    if is_over:
        yield f"The time budget of {budget_ms:.0f} ms is used up: call no more tools, answer now with what you have."
    elif is_low:
        yield f"Of the time budget of {budget_ms:.0f} ms, less than {_LOW:.0%} is left: call only what you must."


_UNSURE = {SlotStatus.INFERRED: " (inferred, to be confirmed)"}


def _dialogue(view: View) -> Iterator[str]:
    layer = view.conversation
    if layer.phase is Phase.HANDOFF:
        yield "The conversation is being handed to a human."
    if layer.intent:
        yield f"The user's intent: {escape_line(layer.intent)}"
    filled = [slot for slot in layer.slots.values() if slot.value is not None]
    if filled:
        yield "Known: " + "; ".join(f"{slot.name} = {escape_line(slot.value)}{_UNSURE.get(slot.status, '')}" for slot in filled)
    missing = [slot for slot in layer.missing if slot.value is None]
    if missing:
        choices = {slot.name: " / ".join(slot.allowed) for slot in missing}
        yield "Missing: " + "; ".join(f"{name} ({escape_line(among)})" if among else name for name, among in choices.items())
    if layer.next_question:
        yield f"Ask the user next: {escape_line(layer.next_question, 200)}"


def _entities(view: View) -> Iterator[str]:
    """Yield the entities by type, the most recently named first."""
    mentioned: dict[str, list[str]] = {}
    referents = [entity for entity in view.entities.all_active() if entity.type not in _NO_REFERENTS]
    for entity in referents[:_MOST_ENTITIES]:
        sure = "" if entity.confidence is Confidence.CONFIRMED else " (inferred)"
        mentioned.setdefault(entity.type, []).append(f"{escape_line(entity.spelling, 60)}{sure}")
    if mentioned:
        yield "Mentioned lately: " + "; ".join(
            f"{escape_line(type_, 30)} {' or '.join(values)}" for type_, values in mentioned.items()
        )


def _goal(view: View) -> Iterator[str]:
    goal = view.goals.active
    if goal is not None:
        yield f"Goal: {escape_line(goal.text, 200)}"
        if goal.ready:
            yield "To do next: " + "; ".join(escape_line(each.text, 80) for each in goal.ready[:_MOST_LINES])
        failed = [each for each in goal.subtasks.values() if each.status is SubtaskStatus.FAILED]
        if failed:
            yield "Failed: " + "; ".join(
                f"{escape_line(each.text, 60)} ({escape_line(each.result, 60)})" for each in failed[-_MOST_LINES:]
            )
        if goal.findings:
            yield "Found so far: " + "; ".join(escape_line(each) for each in goal.findings[-_MOST_LINES:])
    for archived in reversed(view.goals.archive[-_MOST_LINES:]):
        yield f"Earlier goal: {escape_line(archived.line(), 240)}"


def _goal_inputs(goal: Goal | None) -> tuple[object, ...]:
    """Return the inputs of a goal's lines. Its tool calls are not rendered."""
    return () if goal is None else (goal.text, goal.subtasks, goal.findings)


def _failed_steps(view: View) -> tuple[TaskStep, ...]:
    return tuple(step for step in view.task.steps.values() if step.status in (StepStatus.FAILED, StepStatus.TIMED_OUT))


def _steps(view: View) -> Iterator[str]:
    """Yield the failed steps of this request. The conversation itself shows the successful ones."""
    failed = _failed_steps(view)
    if failed:
        yield "Did not work in this request: " + "; ".join(
            f"{escape_line(step.name, 60)} ({escape_line(step.error or step.status, 80)})" for step in failed[-_MOST_LINES:]
        )


def _environment(view: View) -> Iterator[str]:
    known = view.environment
    if known.cart:
        more = f" and {len(known.cart) - _MOST_ITEMS} more" if len(known.cart) > _MOST_ITEMS else ""
        total = f" (total {escape_line(known.cart_total)})" if known.cart_total else ""
        yield f"In the cart: {'; '.join(escape_line(item, 60) for item in known.cart[:_MOST_ITEMS])}{more}{total}"
    user = {
        "tier": known.tier,
        "language": known.language,
        "locale": known.locale,
        "time of day": known.part_of_day(view.wall),
    }
    if any(user.values()):
        yield "The user: " + "; ".join(f"{name} {escape_line(value, 40)}" for name, value in user.items() if value)
    if known.promotions:
        yield f"On offer: {'; '.join(escape_line(each, 60) for each in known.promotions[:_MOST_LINES])}"


def _learned(view: View) -> Iterator[str]:
    if view.execution.findings:
        yield "Found in this task: " + "; ".join(escape_line(each) for each in view.execution.findings[-_MOST_LINES:])
    if view.execution.plan_changes:
        yield f"The plan was changed: {escape_line(view.execution.plan_changes[-1])}"


_PARTS: tuple[tuple[str, Callable[[View], Iterator[str]], Callable[[View], tuple[object, ...]]], ...] = (
    ("time", _time, _time_left),
    (
        "dialogue",
        _dialogue,
        lambda view: (
            view.conversation.phase is Phase.HANDOFF,
            view.conversation.intent,
            view.conversation.slots,
            view.conversation.clarifications,
        ),
    ),
    ("entities", _entities, lambda view: (view.entities,)),
    ("goal", _goal, lambda view: (view.goals.archive, *_goal_inputs(view.goals.active))),
    ("steps", _steps, _failed_steps),
    ("environment", _environment, lambda view: (view.environment, view.environment.part_of_day(view.wall))),
    ("learned", _learned, lambda view: (view.execution.findings, view.execution.plan_changes)),
)
"""Name, lines and inputs of each part, the most useful first. The fixed order keeps equal states equal."""
