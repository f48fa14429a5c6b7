"""GoalKeeper: what is done with goals and their subtasks."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from strands_manga_memory.exceptions import StateError
from strands_manga_memory.language.tokens import shortened
from strands_manga_memory.state.goals import SESSION_TOKENS, WARN_TOKENS, Goal, GoalArchive, GoalsLayer, GoalStatus
from strands_manga_memory.state.keeper import Keeper
from strands_manga_memory.state.subtasks import Subtask, SubtaskStatus

logger = logging.getLogger(__name__)


class GoalKeeper(Keeper):
    """Keeps the goals' layer."""

    _warned = False

    def set_goal(self, text: str, *, context: str = "") -> Goal:
        """Set a goal; the one before is archived. Tool calls and subtasks from now on belong to it.

        Args:
            text: What is to be reached; of more than 300 characters the beginning is kept.
            context: What is known for it; of more than 2,000 characters the end is kept.

        Raises:
            ValueError: ``text`` is empty.
        """
        with self.layers.changing(GoalsLayer):
            self._keep_goals(self.goals.setting(shortened(text, 300), at=self._wall(), context=context))
            return self.goals.goal()

    def complete_goal(self, outcome: str = "") -> GoalArchive:
        """Archive the active goal as completed and return what is kept of it.

        Raises:
            StateError: There is no active goal. So with the other methods of goals.
        """
        return self._end_goal(GoalStatus.COMPLETED, outcome)

    def fail_goal(self, reason: str = "") -> GoalArchive:
        """Archive the active goal as failed and return what is kept of it."""
        return self._end_goal(GoalStatus.FAILED, reason)

    def _end_goal(self, status: GoalStatus, outcome: str) -> GoalArchive:
        start = time.perf_counter()
        with self.layers.changing(GoalsLayer):
            self._keep_goals(self.goals.ending(status, outcome))
            self._timings.add("archive", start)
            return self.goals.archive[-1]

    def add_goal_context(self, text: str) -> None:
        """Add what is known for the active goal; of more than 2,000 characters the end stays."""
        with self.layers.changing(GoalsLayer):
            self._keep_goals(self.goals.with_goal(self.goals.goal().with_context(text)))

    def add_subtask(self, subtask_id: str, text: str, *, theme: str = "general", depends_on: Iterable[str] = ()) -> Subtask:
        """Add a subtask to the active goal, or change one that is there.

        Raises:
            StateError: It would depend on itself, or on what is not there.
        """
        subtask = Subtask(id=subtask_id, text=shortened(text, 300), theme=theme, depends_on=tuple(depends_on))
        return self._with_subtask(subtask)

    def complete_subtask(self, subtask_id: str, result: str = "") -> Subtask:
        """Complete a subtask.

        Raises:
            StateError: What it depends on is not completed.
        """
        with self.layers.changing(GoalsLayer):
            goal = self.goals.goal()
            subtask = goal.subtask(subtask_id)
            if subtask.status is not SubtaskStatus.OPEN or subtask not in goal.ready:
                ready = ", ".join(repr(each.id) for each in goal.ready) or "none"
                raise StateError(f"subtask {subtask_id!r} is not ready; ready are: {ready}")
            return self._with_subtask(subtask.changed(status=SubtaskStatus.COMPLETED, result=shortened(result, 300)))

    def fail_subtask(self, subtask_id: str, reason: str) -> Subtask:
        """Say that a subtask failed."""
        with self.layers.changing(GoalsLayer):
            subtask = self.goals.goal().subtask(subtask_id)
            return self._with_subtask(subtask.changed(status=SubtaskStatus.FAILED, result=shortened(reason, 300)))

    def ready_subtasks(self) -> list[Subtask]:
        """Return the open subtasks of the active goal whose dependencies are completed."""
        goal = self.goals.active
        return [] if goal is None else goal.ready

    def _with_subtask(self, subtask: Subtask) -> Subtask:
        with self.layers.changing(GoalsLayer):
            self._keep_goals(self.goals.with_goal(self.goals.goal().with_subtask(subtask)))
            return subtask

    def _keep_goals(self, layer: GoalsLayer) -> None:
        self._keep(layer.within(SESSION_TOKENS))
        self._warn_of_size()

    def _warn_of_size(self) -> None:
        tokens = self.goals.tokens
        if tokens > WARN_TOKENS and not self._warned:
            logger.warning(
                "tokens=<%d>, cap=<%d> | the goals of the session are nearly as large as they may be", tokens, SESSION_TOKENS
            )
        self._warned = tokens > WARN_TOKENS

    def keep_within_caps(self) -> None:
        """Bring the goals, as they are stored, back under their cap after a turn with tool calls."""
        with self.layers.lock:
            if self.layers.size(GoalsLayer) <= SESSION_TOKENS // 2:  # a character has at most 2 tokens
                return
            try:
                self.layers.put_if_readable(self.goals.within(SESSION_TOKENS))
            except StateError:
                logger.debug("the active goal alone is over its cap")
            self._warn_of_size()
