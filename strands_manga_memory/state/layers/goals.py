"""GoalsLayer: what is worked on, and what came of the goals before, in short. Pure."""

from __future__ import annotations

from typing import Any, ClassVar

from strands_manga_memory.exceptions import StateError
from strands_manga_memory.messages.tokens import estimate_tokens
from strands_manga_memory.state.layers.goal import ARCHIVED_CONTEXT, MOST_CONTEXT, Goal, GoalArchive, GoalStatus
from strands_manga_memory.state.layers.layer import Layer

MOST_GOALS = 10
ARCHIVES_TOKENS, SESSION_TOKENS, WARN_TOKENS = 6_000, 12_000, 10_000


class GoalsLayer(Layer):
    """The goal that is worked on, and those before.

    Attributes:
        active: The goal that is worked on; None if there is none.
        archive: The last 10 goals that ended, within 6,000 tokens, the older first.
        total: Goals there were.
    """

    KEY: ClassVar[str] = "manga_state.goals"

    active: Goal | None = None
    archive: tuple[GoalArchive, ...] = ()
    total: int = 0

    def setting(self, text: str, *, at: float, context: str = "") -> GoalsLayer:
        """Return the layer with another goal; the one before is archived."""
        before = self if self.active is None else self.ending(GoalStatus.SUPERSEDED, "")
        goal = Goal(id=self.total + 1, text=text, context=context[-MOST_CONTEXT:], started_at=at)
        return before.changed(active=goal, total=self.total + 1)

    def goal(self) -> Goal:
        """Return the active goal.

        Raises:
            StateError: There is none.
        """
        if self.active is None:
            raise StateError("there is no active goal; set one first")
        return self.active

    def ending(self, status: GoalStatus, outcome: str) -> GoalsLayer:
        """Return the layer with the active goal archived.

        Raises:
            StateError: There is none.
        """
        kept = [*self.archive, self.goal().archived(status, outcome)][-MOST_GOALS:]
        sizes = [each.tokens for each in kept]
        while len(kept) > 1 and sum(sizes) > ARCHIVES_TOKENS:
            del kept[0], sizes[0]
        return self.changed(active=None, archive=tuple(kept))

    def within(self, most: int = SESSION_TOKENS) -> GoalsLayer:
        """Return the layer with at most so many tokens: the oldest archives go first, then the context, then results.

        Raises:
            StateError: The goal's own texts are more than that.
        """
        layer = self
        while layer.archive and layer.tokens > most:
            layer = layer.replaced(archive=layer.archive[1:])
        goal = layer.active
        if goal is None or layer.tokens <= most:
            return layer
        done = {id_: each.replaced(result="") for id_, each in goal.subtasks.items()}
        smaller: dict[str, Any]
        for smaller in ({"context": goal.context[-ARCHIVED_CONTEXT:]}, {"context": ""}, {"context": "", "subtasks": done}):
            layer = layer.with_goal(goal.replaced(**smaller))
            if layer.tokens <= most:
                return layer
        raise StateError(f"the goal and its subtasks are more than {most} tokens; complete it, or say it in fewer words")

    def with_goal(self, goal: Goal) -> GoalsLayer:
        """Return the layer with the active goal changed."""
        return self.replaced(active=goal)

    @property
    def tokens(self) -> int:
        """Its estimated size."""
        return estimate_tokens(self.model_dump_json(exclude_defaults=True))
