"""Compaction stages, and the conversation manager that runs them.

A compaction stage is one step of making an agent's history smaller.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, Protocol

from strands import Agent
from strands.hooks import AgentInitializedEvent, HookOrder, HookRegistry
from strands.types.content import Message
from strands.types.exceptions import ContextWindowOverflowException

from strands_manga_memory.arguments import (
    Count,
    PositiveInt,
    PositiveShare,
    check_int,
    checked,
    with_repr,
)
from strands_manga_memory.conversation.budget import Thresholds, thresholds, window_of
from strands_manga_memory.conversation.importance import LOW, band_of, same_objects
from strands_manga_memory.conversation.importance_manager import (
    ImportanceWeightedConversationManager,
    StackedConversationManager,
)
from strands_manga_memory.conversation.message_truncation import (
    MessageTruncator,
    result_text,
    results_of,
    texts_of,
)
from strands_manga_memory.conversation.selection import is_pinned
from strands_manga_memory.conversation.summaries import SummaryTrigger
from strands_manga_memory.conversation.summarizing import VerifiedSummarizingConversationManager
from strands_manga_memory.conversation.summary_record import is_synthesized
from strands_manga_memory.conversation.trimmer import Trimmer
from strands_manga_memory.exceptions import logged_errors
from strands_manga_memory.messages import is_turn_start, tool_result_ids, turns

logger = logging.getLogger(__name__)

# --- Stages ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compaction:
    """Input of a compaction stage, which is one step of making an agent's history smaller.

    Attributes:
        agent: The agent.
        messages: The agent's history. A stage must not change a message in place.
        untouched: Number of latest messages that a stage must not remove or change. Only their tool
            results may be truncated.
        goal: Size of the history to reach, in tokens.
        overflow: Error that the model raised because its context window overflowed. None without an
            overflow.
        history: Trimmer, which counts the tokens of the history and keeps the full texts of
            truncated messages.
    """

    agent: Agent
    messages: Sequence[Message]
    untouched: int
    goal: int
    overflow: Exception | None
    history: Trimmer

    @property
    def excess(self) -> int:
        """Number of tokens by which the history exceeds the size to reach.

        The number is negative if the history is smaller.
        """
        return self.history.tokens(self.messages) - self.goal

    @property
    def touchable(self) -> int:
        """Number of messages at the start of the history that a stage may remove or change."""
        return max(0, len(self.messages) - self.untouched)


class Stage(Protocol):
    """Protocol for a compaction stage, which is one step of making an agent's history smaller.

    A stage has a ``name``, under which its statistics are listed.
    """

    name: str

    def apply(self, compaction: Compaction) -> Sequence[Message] | None:
        """Make the history of an agent smaller.

        Returns:
            The new history, for the manager to use. None if the stage changed nothing, or changed
            the agent's list in place.
        """


@with_repr("characters")
class ToolResultCap:
    """Compaction stage that truncates large tool results in all messages of the history.

    The latest messages are truncated, too. Pinned (protected) messages stay unchanged. The model
    can read the full text with the tool ``read_cut_message``.

    Args:
        characters: Maximum characters of a message's tool results, in total. Default 10,000.

    Raises:
        ValueError: ``characters`` is less than 200.
    """

    name = "tool-result cap"

    def __init__(self, characters: int = 10_000) -> None:
        self.characters = check_int("characters", characters, minimum=_FLOOR)

    def apply(self, compaction: Compaction) -> Sequence[Message] | None:
        """Truncate large tool results. Return the new history, or None if no result is large."""
        return _truncate_results(
            compaction, len(compaction.messages), lambda _: self.characters, until_enough=False
        )


@with_repr()
class TurnEviction:
    """Compaction stage that removes unimportant turns from the history, the oldest first.

    A turn is unimportant if all its messages have an importance score below 0.5, as greetings do.
    The first turn, the latest messages, and turns with summaries or pinned (protected) messages
    stay.
    """

    name = "turn eviction"

    def apply(self, compaction: Compaction) -> Sequence[Message] | None:
        """Remove the oldest unimportant turns, and return the new history.

        Turns are removed until the history is small enough. The result is None if no turn was
        removed.
        """
        messages = compaction.messages
        older = messages[: compaction.touchable]
        excess = compaction.excess
        gone: set[int] = set()
        for turn in turns(older)[1:]:  # the first one holds the original intent
            own = older[turn.start : turn.stop]
            is_unfinished = turn.stop < len(messages) and not is_turn_start(messages[turn.stop])
            if excess <= 0 or is_unfinished:
                break
            if all(_is_low(message, compaction) for message in own):
                gone.update(turn)
                excess -= compaction.history.tokens(own)
        return [message for at, message in enumerate(messages) if at not in gone] if gone else None


@with_repr("characters")
class MicroCompaction:
    """Compaction stage that truncates tool results in older messages, the oldest first.

    Truncation stops as soon as the history is small enough. The latest messages and pinned
    (protected) messages stay unchanged.

    Args:
        characters: Maximum characters of a message's tool results, multiplied by their number.
            Default 400: two results have at most 800 characters in total.

    Raises:
        ValueError: ``characters`` is less than 200.
    """

    name = "micro-compaction"

    def __init__(self, characters: int = 400) -> None:
        self.characters = check_int("characters", characters, minimum=_FLOOR)

    def apply(self, compaction: Compaction) -> Sequence[Message] | None:
        """Truncate older tool results. Return the new history, or None if it is unchanged."""
        return _truncate_results(
            compaction,
            compaction.touchable,
            lambda message: self.characters * len(tool_result_ids(message)),
            until_enough=True,
        )


@with_repr("manager")
class VerifiedSummary:
    """Compaction stage that replaces older turns of the history by a summary.

    A model writes the summary in the background. Each draft is compared with the facts in the
    messages, such as names and numbers.

    Args:
        manager: Manager that writes the summary. The default is a
            ``VerifiedSummarizingConversationManager`` with ``settings``.
        **settings: Settings of the default manager.
    """

    name = "summary"

    def __init__(
        self, manager: VerifiedSummarizingConversationManager | None = None, **settings: Any
    ) -> None:
        never = SummaryTrigger(turns=_NEVER, keep_recent_turns=5)
        self.manager = manager or VerifiedSummarizingConversationManager(
            **{"trigger": never, **settings}
        )

    def apply(self, compaction: Compaction) -> Sequence[Message] | None:
        """Replace older turns by a summary, if one is finished, and start to write the next one.

        The next summary is written in the background. After an overflow of the model's context
        window, no summary is used or started. A list of facts then replaces older turns at once.

        Returns:
            Always None, because the agent's list of messages is changed in place.
        """
        if compaction.overflow is not None:
            self.manager.replace_by_facts(compaction.agent, compaction.goal)
        else:
            self.manager.begin(compaction.agent)
        return None


@with_repr()
class OverflowReduction:
    """Compaction stage that halves the history if the model's context window has overflowed."""

    name = "overflow reduction"

    def apply(self, compaction: Compaction) -> Sequence[Message] | None:
        """Evict half of the history after an overflow, or at least a quarter if too much must stay.

        Returns:
            Always None: the agent's list of messages is changed in place.

        Raises:
            ContextWindowOverflowException: Over three quarters of the history must stay.
        """
        if compaction.overflow is not None:
            compaction.history.reduce(compaction.agent, compaction.overflow)
        return None


_FLOOR = 200
_NEVER = 1_000_000


def _is_low(message: Message, compaction: Compaction) -> bool:
    return (
        not is_pinned(message)
        and not is_synthesized(message)
        and band_of(compaction.history.score(message)) is LOW
    )


def _truncate_results(
    compaction: Compaction, until: int, max_size: Callable[[Message], int], *, until_enough: bool
) -> Sequence[Message] | None:
    """Truncate the tool results in the first ``until`` messages, except in pinned messages.

    With ``until_enough``, stop as soon as the history is small enough. If nothing was truncated,
    return None.
    """
    history, messages = compaction.history, list(compaction.messages)
    excess = compaction.excess
    for at, message in enumerate(messages[:until]):
        if until_enough and excess <= 0:
            break
        if tool_result_ids(message) and not is_pinned(message):
            messages[at] = _truncate_message(message, max_size(message))
            excess -= history.tokens([message]) - history.tokens([messages[at]])
    if same_objects(messages, compaction.messages):
        return None
    history.tail.update(compaction.messages)  # keeps the full texts
    history.tail.record_selection(compaction.messages, messages)
    return messages


def _truncate_message(message: Message, characters: int) -> Message:
    total = _characters(message)
    of_results = sum(len(result_text(result)) for result in results_of(message))
    truncator = MessageTruncator({0: message}, {0: total}, _characters, frozenset())
    truncator.truncate("toolResult", [0], total - of_results + characters, _FLOOR // 2)
    return truncator.messages[0]


def _characters(message: Message) -> int:
    return sum(map(len, texts_of(message)))


def default_stages(**summary: Any) -> list[Stage]:
    """Create the five default stages of ``TieredCompactionConversationManager``, in their order.

    Args:
        **summary: Settings of the stage ``VerifiedSummary``.
    """
    return [
        ToolResultCap(),
        TurnEviction(),
        MicroCompaction(),
        VerifiedSummary(**summary),
        OverflowReduction(),
    ]


# --- Manager --------------------------------------------------------------------------------------


MOST_FAILURES = 3
UNTOUCHED = 10


@dataclass
class StageStats:
    """Statistics of one compaction stage (a step of making an agent's history smaller).

    Attributes:
        runs: Number of times that the stage has run.
        enough: Number of runs after which the history was small enough.
        freed: Tokens that the stage freed.
    """

    runs: int = 0
    enough: int = 0
    freed: int = 0


@dataclass
class CompactionStats:
    """Statistics of a ``TieredCompactionConversationManager``.

    Attributes:
        compactions: Number of compactions. Calls of ``reduce_context`` are not counted.
        failures: Number of compactions in a row that raised an error, or changed the history
            without making it smaller.
        stages: Statistics of the stages, keyed by the name of the stage.
    """

    compactions: int = 0
    failures: int = 0
    stages: dict[str, StageStats] = field(default_factory=dict)

    @property
    def stopped(self) -> bool:
        """Whether compaction has stopped after three failures in a row.

        Compaction resumes once ``reduce_context`` frees tokens.
        """
        return self.failures >= MOST_FAILURES


class TieredCompactionConversationManager(StackedConversationManager):
    """Conversation manager that reduces a history in stages before it fills the context window.

    There are five default stages. The first truncates large tool results. The second removes
    unimportant turns. The third shortens older tool results further. The fourth replaces older
    turns by a summary. The last halves the history, but only after the context window has
    overflowed. Each stage runs only if the earlier stages did not free enough tokens.

    The last 10 messages stay, except that their large tool results are truncated. If these messages
    alone are too large, some of them are truncated further or removed, too.

    After three failures in a row, compaction logs a warning and stops. A compaction that finds
    nothing to do is not a failure.

    One manager serves one agent. After a restart, the manager restores exactly the history that the
    agent had.

    Args:
        stages: The stages in their order. Default: all five.
        trigger: Share of the context window at which the history is compacted. Default 0.80.
            Compaction starts earlier to keep 33,000 tokens free: in a window of 128,000, at 95,000.
            Of a window below 100,000, 33 % are kept free.
        untouched: Number of latest messages that stay unchanged, apart from truncated tool results.
            Default 10.
        window: Tokens of the context window. Default: as the model states, or 128,000.
        trimmer: Manager that evicts messages if the stages free too little. Its budget follows from
            the context window. Not with the stage ``VerifiedSummary``, which has a trimmer.
            Default: an ``ImportanceWeightedConversationManager``.

    Raises:
        ValueError: An argument is out of range or has the wrong type. From the agent's constructor:
            the manager already serves another agent.
    """

    @checked
    def __init__(
        self,
        stages: Sequence[Stage] | None = None,
        *,
        trigger: PositiveShare = 0.80,
        untouched: Count = UNTOUCHED,
        window: PositiveInt | None = None,
        trimmer: ImportanceWeightedConversationManager | None = None,
    ) -> None:
        self.stages: list[Stage] = default_stages() if stages is None else list(stages)
        self._share, self._untouched, self._window = trigger, untouched, window
        summaries = [stage.manager for stage in self.stages if isinstance(stage, VerifiedSummary)]
        if len(summaries) > 1:
            raise ValueError(f"stages must hold at most one VerifiedSummary, got {len(summaries)}")
        self._summarizing = summaries[0] if summaries else None
        if self._summarizing is None:
            trimmer = trimmer or ImportanceWeightedConversationManager()
        elif trimmer is None:
            trimmer = self._summarizing.trimmer
        else:
            raise ValueError(
                "trimmer and a VerifiedSummary exclude each other: give the trimmer to"
                " VerifiedSummary(trimmer=...)"
            )
        super().__init__(self._summarizing or trimmer, trimmer)
        self._stats = CompactionStats(stages={stage.name: StageStats() for stage in self.stages})
        self._awaited_size = 0

    def __repr__(self) -> str:
        return (
            f"TieredCompactionConversationManager(stages={[stage.name for stage in self.stages]},"
            f" trigger={self._share})"
        )

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        """Register the hooks of this manager and, last, those of the managers that it wraps."""
        registry.add_callback(AgentInitializedEvent, self._attach, order=HookOrder.SDK_FIRST)
        super().register_hooks(registry, **kwargs)

    def _attach(self, event: AgentInitializedEvent[Agent]) -> None:
        # At once, not with the first cut: the tools are a part of the cached prefix.
        self._history.archive.has_tool = True
        self._history.archive.add_tool(event.agent, ())
        self._set_limits(event.agent)

    # --- The contract of a conversation manager ---------------------------------------------------

    def reduce_context(self, agent: Agent, e: Exception | None = None, **kwargs: Any) -> None:
        """Make the history smaller because the model's context window is full or almost full.

        Args:
            agent: The agent. Its list of messages is changed in place.
            e: The overflow error, or None. With an error, the stages run until half of the history
                is freed. Without an error, they run until a quarter is freed.
            **kwargs: Not used.

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
            self._stats.failures = 0
        elif e is not None:
            raise error or ContextWindowOverflowException(
                f"the window is full and no stage could free anything of the {before} tokens of"
                " history"
            ) from e

    # --- Inspection -------------------------------------------------------------------------------

    def stats(self) -> CompactionStats:
        """Return the statistics of the compactions so far, in total and of each stage.

        The tokens that a summary frees are counted when the summary replaces the older turns.
        """
        for stage in self.stages:
            if isinstance(stage, VerifiedSummary):
                written, known = stage.manager.stats(), self._stats.stages[stage.name]
                known.freed, known.enough = written.tokens_freed, written.enough
        return self._stats

    def thresholds(self, agent: Agent) -> Thresholds:
        """Return the sizes of a request, in tokens, that control the compaction of the history.

        They are computed from the context window, see ``budget.thresholds``.
        """
        return thresholds(self._window or window_of(agent.model), trigger=self._share)

    # --- Compacting -------------------------------------------------------------------------------

    def _tokens(self, agent: Agent) -> int:
        return self._history.tokens(agent.messages[:])

    def _set_limits(self, agent: Agent) -> Thresholds:
        """Set the wrapped managers' limits, reduced by prompt and tools. Return these limits."""
        window, *sizes = astuple(self.thresholds(agent))
        overhead = self.trimmer.prompt_tokens(agent)
        trigger, target, hard = (max(1, size - overhead) for size in sizes)
        if self._summarizing is not None:
            self._summarizing.set_limits(trigger, target, hard)
        else:
            self._history.max_tokens, self._history.high_water_mark = target, hard
        return Thresholds(window, trigger, target, hard)

    def _manage(self, agent: Agent) -> None:
        has_failed = True
        with logged_errors(logger, "the history could not be compacted, leaving it as it is"):
            has_failed = self._compact(agent)
        if has_failed:
            self._stats.failures += 1
            if self._stats.stopped:
                logger.warning(
                    "failures=<%d> | compaction failed too often and stops", self._stats.failures
                )

    def _compact(self, agent: Agent) -> bool:
        """Run the stages if the history is too large. Return whether the compaction failed.

        A compaction fails if it changes the history without making it smaller.
        """
        bounds = self._set_limits(agent)
        history, before = agent.messages[:], self._tokens(agent)
        if before < bounds.trigger:
            self._awaited_size = 0
            return False
        if self._stats.stopped or before == self._awaited_size:
            return False  # given up, or nothing has come since a summary was begun
        self._stats.compactions += 1
        self._run_stages(agent, bounds.target, None)
        after = self._tokens(agent)
        self._awaited_size = after if after >= bounds.trigger else 0
        if after < before:
            self._stats.failures = 0
        return after >= before and not same_objects(history, agent.messages)

    def _run_stages(self, agent: Agent, goal: int, overflow: Exception | None) -> None:
        for stage in self.stages:
            history = agent.messages[:]
            before = self._history.tokens(history)
            if before <= goal:
                return
            compaction = Compaction(
                agent, tuple(history), self._untouched, goal, overflow, self._history
            )
            stats = self._stats.stages[stage.name]
            stats.runs += 1
            changed = stage.apply(compaction)
            if changed is not None and same_objects(agent.messages[: len(history)], history):
                agent.messages[: len(history)] = changed
            after = self._tokens(agent)
            stats.freed += max(0, before - after)
            stats.enough += after <= goal
            logger.debug(
                "stage=<%s>, tokens_before=<%d>, tokens_after=<%d> | compacted",
                stage.name,
                before,
                after,
            )
