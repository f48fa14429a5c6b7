"""GoalKeeper: sets and ends goals, and works on their subtasks."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from strands_manga_memory.exceptions import StateError
from strands_manga_memory.messages.tokens import shorten_line
from strands_manga_memory.state.keepers.keeper import Keeper
from strands_manga_memory.state.layers.goal import Execution, Goal, GoalArchive, GoalStatus
from strands_manga_memory.state.layers.goals import SESSION_TOKENS, WARN_TOKENS, GoalsLayer
from strands_manga_memory.state.layers.subtasks import Subtask, SubtaskStatus

logger = logging.getLogger(__name__)


class GoalKeeper(Keeper[GoalsLayer]):
    """Keeps the goals: one that is active, with its subtasks, and those before.

    Raises:
        CorruptRecordError: From every method that changes it: the stored layer cannot be read, and is not overwritten.
    """

    KIND = GoalsLayer
    _warned = False

    def set(self, text: str, *, context: str = "") -> Goal:
        """Set a goal; the one before is archived. Tool calls and subtasks from now on belong to it.

        Args:
            text: What is to be reached; of more than 300 characters the beginning is kept.
            context: What is known for it; of more than 2,000 characters the end is kept.

        Raises:
            ValueError: ``text`` is empty.
        """
        with self._changing():
            self._keep_goals(self.layer.setting(shorten_line(text, 300), at=self._shared.wall(), context=context))
            return self.layer.goal()

    def complete(self, outcome: str = "") -> GoalArchive:
        """Archive the active goal as completed and return what is kept of it.

        Raises:
            StateError: There is no active goal. So with the other methods of goals.
        """
        return self._end(GoalStatus.COMPLETED, outcome)

    def fail(self, reason: str = "") -> GoalArchive:
        """Archive the active goal as failed and return what is kept of it."""
        return self._end(GoalStatus.FAILED, reason)

    def _end(self, status: GoalStatus, outcome: str) -> GoalArchive:
        start = time.perf_counter()
        with self._changing():
            self._keep_goals(self.layer.ending(status, outcome))
            self._shared.timings.add("archive", start)
            return self.layer.archive[-1]

    def add_context(self, text: str) -> None:
        """Add what is known for the active goal; of more than 2,000 characters the end stays."""
        with self._changing():
            self._keep_goals(self.layer.with_goal(self.layer.goal().with_context(text)))

    def add_subtask(self, subtask_id: str, text: str, *, theme: str = "general", depends_on: Iterable[str] = ()) -> Subtask:
        """Add a subtask to the active goal, or change one that is there.

        Raises:
            StateError: It would depend on itself, or on what is not there.
        """
        subtask = Subtask(id=subtask_id, text=shorten_line(text, 300), theme=theme, depends_on=tuple(depends_on))
        return self._with_subtask(subtask)

    def complete_subtask(self, subtask_id: str, result: str = "") -> Subtask:
        """Complete a subtask.

        Raises:
            StateError: What it depends on is not completed.
        """
        with self._changing():
            goal = self.layer.goal()
            subtask = goal.subtask(subtask_id)
            if subtask.status is not SubtaskStatus.OPEN or subtask not in goal.ready:
                ready = ", ".join(repr(each.id) for each in goal.ready) or "none"
                raise StateError(f"subtask {subtask_id!r:.80} is not ready; ready are: {ready}")
            return self._with_subtask(subtask.changed(status=SubtaskStatus.COMPLETED, result=shorten_line(result, 300)))

    def fail_subtask(self, subtask_id: str, reason: str) -> Subtask:
        """Say that a subtask failed."""
        with self._changing():
            subtask = self.layer.goal().subtask(subtask_id)
            return self._with_subtask(subtask.changed(status=SubtaskStatus.FAILED, result=shorten_line(reason, 300)))

    def ready_subtasks(self) -> list[Subtask]:
        """Return the open subtasks of the active goal whose dependencies are completed."""
        goal = self.layer.active
        return [] if goal is None else goal.ready

    def _with_subtask(self, subtask: Subtask) -> Subtask:
        with self._changing():
            self._keep_goals(self.layer.with_goal(self.layer.goal().with_subtask(subtask)))
            return subtask

    def _keep_goals(self, layer: GoalsLayer) -> None:
        self._keep(layer.within(SESSION_TOKENS))
        self._warn_of_size()

    def _warn_of_size(self) -> None:
        tokens = self.layer.tokens
        if tokens > WARN_TOKENS and not self._warned:
            logger.warning(
                "tokens=<%d>, cap=<%d> | the goals of the session are nearly as large as they may be", tokens, SESSION_TOKENS
            )
        self._warned = tokens > WARN_TOKENS

    def record(self, done: Execution, *, error: str, size: int) -> None:
        """Record a tool call under the active goal, if there is one; ``size`` are the characters that went in and came out."""
        goals = self.layer
        if goals.active is not None:
            goal = goals.active.executed(done, at=round(self._shared.wall(), 3), error=error, raw_characters=size)
            self._layers.put_if_readable(goals.with_goal(goal))

    def add_finding(self, text: str) -> None:
        """Add something found out, once, to the active goal if there is one."""
        with self._changing():
            if self.layer.active is not None:
                self._keep_goals(self.layer.with_goal(self.layer.active.with_finding(text)))

    def keep_within_caps(self) -> None:
        """Bring the goals, as they are stored, back under their cap after a turn with tool calls."""
        with self._layers.lock:
            if self._layers.size(GoalsLayer) <= SESSION_TOKENS // 2:  # a character has at most 2 tokens
                return
            try:
                self._layers.put_if_readable(self.layer.within(SESSION_TOKENS))
            except StateError:
                logger.debug("the active goal alone is over its cap")
            self._warn_of_size()
