"""StateStats: what is known of all layers together."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict

from strands_manga_memory.state.layers.goals import ARCHIVES_TOKENS, SESSION_TOKENS, WARN_TOKENS

if TYPE_CHECKING:
    from strands_manga_memory.state.layers.kept import KeptLayers
    from strands_manga_memory.state.rendering import View

logger = logging.getLogger(__name__)


class Timing(TypedDict):
    """How often something was done, and milliseconds: on average, and at most."""

    count: int
    mean_ms: float
    max_ms: float


class StateStats(TypedDict):
    """What is known of an agent's state.

    Attributes:
        phase: Phase of the conversation.
        turns: User requests.
        slots: Slots by status.
        entities: Active entities.
        steps: Steps of the task by status.
        remaining_ms: What is left of the task's budget.
        executions: Steps in the execution memory, and in all.
        loops: How often the same tool call was made again and again, with the same result.
        drifts: Fields of the environment that were found to be otherwise than was known, without word of it.
        goals: Goals there were, and those that are archived.
        tokens: Estimated tokens of each stored layer.
        caps: The most allowed, and from where a warning is due, of the session's and the archives' tokens.
        over_warning: Whether the session's tokens are over the warning.
        compression: Share by which archives are smaller than what the tool calls of their goals were given and returned;
            None before there is one.
        timings: Of ``update``, ``injection`` and ``archive``.
        writes: How often a layer was written into ``agent.state``.
        environment_reloads: How often the environment was read.
        unreadable: Why stored layers are left as they are, by key.
    """

    phase: str
    turns: int
    slots: dict[str, int]
    entities: int
    steps: dict[str, int]
    remaining_ms: float
    executions: tuple[int, int]
    loops: int
    drifts: int
    goals: tuple[int, int]
    tokens: dict[str, int]
    caps: dict[str, int]
    over_warning: bool
    compression: float | None
    timings: dict[str, Timing]
    writes: int
    environment_reloads: int
    unreadable: dict[str, str]


@dataclass
class Timings:
    """Durations by what was done."""

    _of: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, start: float) -> None:
        """Add something that was done from ``start``, by the performance counter, until now."""
        took = 1000 * (time.perf_counter() - start)
        known = self._of.setdefault(name, [0.0, 0.0, 0.0])
        known[0] += 1
        known[1] += took
        known[2] = max(known[2], took)

    def as_dict(self) -> dict[str, Timing]:
        """Return them."""
        return {
            name: Timing(count=int(count), mean_ms=round(total / count, 4), max_ms=round(most, 4))
            for name, (count, total, most) in self._of.items()
        }


def stats_of(
    view: View, layers: KeptLayers, timings: Timings, count: Callable[[str], int], *, reloads: int, drifts: int, loops: int
) -> StateStats:
    """Return the statistics of the layers."""
    stored = {"conversation": view.conversation, "entities": view.entities, "goals": view.goals}
    tokens = {name: count(layer.stored()) for name, layer in stored.items()}
    archived = view.goals.archive
    raw = sum(each.raw_characters for each in archived)
    kept = sum(len(each.model_dump_json(exclude_defaults=True)) for each in archived)
    return StateStats(
        phase=view.conversation.phase.value,
        turns=view.conversation.turn_count,
        slots=dict(Counter(str(slot.status) for slot in view.conversation.slots.values())),
        entities=len(view.entities.all_active()),
        steps=dict(Counter(str(step.status) for step in view.task.steps.values())),
        remaining_ms=round(view.task.remaining_ms(view.now), 1),
        executions=(len(view.execution.steps), view.execution.total),
        loops=loops,
        drifts=drifts,
        goals=(view.goals.total, len(archived)),
        tokens=tokens,
        caps={"session": SESSION_TOKENS, "warning": WARN_TOKENS, "archives": ARCHIVES_TOKENS},
        over_warning=sum(tokens.values()) > WARN_TOKENS,
        compression=round(1 - kept / raw, 4) if raw else None,
        timings=timings.as_dict(),
        writes=layers.writes,
        environment_reloads=reloads,
        unreadable=layers.unreadable(),
    )
