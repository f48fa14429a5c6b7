"""TieredCompactionConversationManager: several ways to make room, each only if the one before did not make enough."""

from __future__ import annotations

import logging
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from strands.hooks import AgentInitializedEvent, BeforeModelCallEvent, HookOrder, HookRegistry
from strands.types.exceptions import ContextWindowOverflowException

from strands_manga_memory.arguments import whole
from strands_manga_memory.conversation.compaction.stages import Compaction, Stage, VerifiedSummary, default_stages
from strands_manga_memory.conversation.history.results import TOOL_NAME, ResultArchive
from strands_manga_memory.conversation.importance.importance import ImportanceWeightedConversationManager
from strands_manga_memory.conversation.importance.stacked import StackedConversationManager
from strands_manga_memory.conversation.summaries.writing.writing import Log
from strands_manga_memory.conversation.tokens.ledger import same_objects
from strands_manga_memory.conversation.tokens.thresholds import Thresholds, thresholds, window_of
from strands_manga_memory.conversation.tokens.token_counter import tokens_of
from strands_manga_memory.stores.encoding.values import as_json

if TYPE_CHECKING:
    from strands.agent.agent import Agent
    from strands.experimental.context_manager import ContextState

logger = logging.getLogger(__name__)

MOST_FAILURES = 3
UNTOUCHED = 10


@dataclass
class StageStats:
    """What a stage has done.

    Attributes:
        runs: How often it was tried.
        enough: How often nothing after it was needed.
        freed: Tokens it freed.
    """

    runs: int = 0
    enough: int = 0
    freed: int = 0


@dataclass
class CompactionStats:
    """What a manager has done.

    Attributes:
        compactions: How often the history was over the trigger.
        failures: Compactions in a row that failed: one raised, or changed the history without making it smaller.
        stopped: Whether it has given up for that reason, until something is freed again.
        stages: What each stage did, by its name.
    """

    compactions: int = 0
    failures: int = 0
    stopped: bool = False
    stages: dict[str, StageStats] = field(default_factory=dict)


class TieredCompactionConversationManager(StackedConversationManager):
    """Makes room in stages when a request comes near the model's context window.

    By default: cap tool results, drop what is not essential, compress results in place, summarize; and, only after a real
    overflow, halve the history. Each stage runs only if those before it did not free enough. The last 10 messages are not
    touched, unless they alone are too large; only their tool results are capped like all others. Compaction that fails three
    times in a row stops and logs a warning. A run that finds nothing to do is no failure.

    One manager serves one agent. It restores exactly under every session manager, as its trimmer does.

    Args:
        stages: The stages in their order; default: all five.
        trigger: Share of the context window from which on there is compaction; less, if the reserves for a cushion and for the
            summary demand it. Default 0.80.
        untouched: Latest messages that stay as they are, their tool results up to the cap. Default 10.
        window: Tokens of the context window; default: what the model says, 128,000 if it does not.
        log: Returns the raw messages from the beginning, as a session keeps them: from there cut results are read after a
            restart.
        trimmer: Keeps the history within the window when no stage can; its budget is set by the window. Default: that of the
            summary stage, or an ``ImportanceWeightedConversationManager``.

    Raises:
        ValueError: An argument is out of range or not of its kind. From the agent's constructor: the manager already serves
            another agent.
    """

    def __init__(
        self,
        stages: Sequence[Stage] | None = None,
        *,
        trigger: float = 0.80,
        untouched: int = UNTOUCHED,
        window: int | None = None,
        log: Log | None = None,
        trimmer: ImportanceWeightedConversationManager | None = None,
    ) -> None:
        self.stages: list[Stage] = default_stages() if stages is None else list(stages)
        for stage in self.stages:
            if not isinstance(getattr(stage, "name", None), str) or not callable(getattr(stage, "apply", None)):
                raise ValueError(f"stages must each have a name and a method apply(compaction), got {stage!r:.80}")
        whole("untouched", untouched, least=0)
        thresholds(window, share=trigger)  # refuses what is out of range
        self._share, self._untouched, self._window = trigger, untouched, window
        summaries = [stage.manager for stage in self.stages if isinstance(stage, VerifiedSummary)]
        if len(summaries) > 1:
            raise ValueError(f"stages must hold at most one VerifiedSummary, got {len(summaries)}")
        if summaries and trimmer is not None:
            raise ValueError(
                "trimmer and a VerifiedSummary exclude each other: give the trimmer to VerifiedSummary(trimmer=...)"
            )
        self._summarizing = summaries[0] if summaries else None
        trimmer = self._summarizing.trimmer if self._summarizing else trimmer or ImportanceWeightedConversationManager()
        super().__init__(self._summarizing or trimmer, trimmer)
        self.archive = ResultArchive(log)
        self._stats = CompactionStats(stages={stage.name: StageStats() for stage in self.stages})
        self._prompt: tuple[Any, int] = (None, 0)
        self._waiting = 0

    def _register(self, registry: HookRegistry) -> None:
        registry.add_callback(AgentInitializedEvent, self._attach, order=HookOrder.SDK_FIRST)
        super()._register(registry)

    def _attach(self, event: AgentInitializedEvent[Agent]) -> None:
        if TOOL_NAME not in event.agent.tool_names:
            event.agent.tool_registry.register_tool(self.archive.read_tool_result)
        self._bind(event.agent)

    async def _before_model_call(self, event: BeforeModelCallEvent | ContextState) -> None:
        await self.trimmer.workload.off_loop(event.agent.messages, lambda: self._compact(event.agent))

    # --- The contract of a conversation manager -----------------------------------------------------------------------------

    def _manage(self, agent: Agent) -> None:
        """Compact if the history is over the trigger; then those below do what is due."""
        self._compact(agent)
        super()._manage(agent)

    def reduce_context(self, agent: Agent, e: Exception | None = None, **kwargs: Any) -> None:
        """Make the history smaller because the model's context window is full, or filling up.

        Args:
            agent: The agent; its list of messages is changed in place.
            e: The overflow, if there was one. Then the stages run until at least half of the history is free.
            **kwargs: For extensions of the contract.

        Raises:
            ContextWindowOverflowException: ``e`` is given, and nothing could be freed.
        """
        before = self._tokens(agent)
        error: ContextWindowOverflowException | None = None
        try:
            self._run_stages(agent, before // 2 if e else before * 3 // 4, e)
        except ContextWindowOverflowException as raised:
            error = raised
        freed = before - self._tokens(agent)
        if freed > 0:
            self._stats.failures, self._stats.stopped = 0, False
        elif e is not None:
            raise error or ContextWindowOverflowException(
                f"the window is full and no stage could free anything of the {before} tokens of history"
            ) from e

    # --- What users ask -----------------------------------------------------------------------------------------------------

    def stats(self) -> CompactionStats:
        """Return what was done so far, stage by stage; what a summary frees is known when it is swapped in."""
        for stage in self.stages:
            if isinstance(stage, VerifiedSummary):
                written, known = stage.manager.stats(), self._stats.stages[stage.name]
                known.freed, known.enough = written.tokens_freed, written.enough
        return self._stats

    def thresholds(self, agent: Agent) -> Thresholds:
        """Return the sizes that hold for the agent's model."""
        return thresholds(self._window or window_of(agent.model), share=self._share)

    # --- Compacting ---------------------------------------------------------------------------------------------------------

    def _tokens(self, agent: Agent) -> int:
        return self.trimmer.tokens(agent.messages[:])

    def _bind(self, agent: Agent) -> Thresholds:
        """Give trimmer and summary the bounds that the model's window leaves to the history."""
        bounds = self.thresholds(agent)
        overhead = self._overhead(agent)
        trigger, target, hard = (max(1, size - overhead) for size in (bounds.trigger, bounds.target, bounds.hard))
        if self._summarizing is not None:
            self._summarizing.bound_to(trigger_tokens=trigger, target_tokens=target, hard_tokens=hard)
        else:
            self.trimmer.max_tokens, self.trimmer.grow_to = target, hard
        return Thresholds(bounds.window, trigger, target, hard)

    def _overhead(self, agent: Agent) -> int:
        """Count system prompt and tool specifications; anew only when the prompt or the names of the tools have changed."""
        prompt, names = agent.system_prompt or "", tuple(agent.tool_names)
        if self._prompt[0] != (prompt, names):
            specs = agent.tool_registry.get_all_tool_specs()
            self._prompt = (prompt, names), tokens_of(self.trimmer.counter, prompt, as_json(specs))
        return self._prompt[1]

    def _compact(self, agent: Agent) -> None:
        try:
            bounds = self._bind(agent)
            before = self._tokens(agent)
            if before < bounds.trigger:
                self._waiting = 0
                return
            if self._stats.stopped or before == self._waiting:
                return  # given up, or nothing has come since a summary was begun
            self._stats.compactions += 1
            history = agent.messages[:]
            self._run_stages(agent, bounds.target, None)
            after = self._tokens(agent)
            self._waiting = after if after >= bounds.trigger else 0
            if after < before:
                self._stats.failures = 0
            elif not same_objects(history, agent.messages):
                self._note_failure()
        except Exception as error:
            logger.warning("error=<%s> | the history could not be compacted, leaving it as it is", type(error).__name__)
            logger.debug("the history could not be compacted", exc_info=True)
            self._note_failure()

    def _note_failure(self) -> None:
        self._stats.failures += 1
        if self._stats.failures >= MOST_FAILURES:
            self._stats.stopped = True
            logger.warning("failures=<%d> | compaction failed too often and stops", self._stats.failures)

    def _run_stages(self, agent: Agent, goal: int, overflow: Exception | None) -> None:
        """Run stage after stage until the goal is reached."""
        for stage in self.stages:
            history = agent.messages[:]
            before = self.trimmer.tokens(history)
            if before <= goal:
                return
            compaction = Compaction(
                agent=agent,
                messages=tuple(history),
                untouched=self._untouched,
                goal=goal,
                overflow=overflow,
                tokens_of=self.trimmer.tokens,
                band_of=lambda message: self.trimmer.bands.of(self.trimmer.score(message)),
                archive=self.archive,
            )
            stats = self._stats.stages[stage.name]
            stats.runs += 1
            changed = stage.apply(compaction)
            if changed is not None and all(map(operator.is_, agent.messages, history)):
                agent.messages[: len(history)] = changed
                stays = {id(message) for message in changed}
                self.trimmer.trimming.evicted([message for message in history if id(message) not in stays])
            after = self._tokens(agent)
            stats.freed += max(0, before - after)
            stats.enough += after <= goal
            logger.debug("stage=<%s>, tokens_before=<%d>, tokens_after=<%d> | compacted", stage.name, before, after)
