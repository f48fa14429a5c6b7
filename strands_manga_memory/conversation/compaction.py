"""TieredCompactionConversationManager: makes room in stages, each only if those before did not free enough."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast

from strands.hooks import AgentInitializedEvent, BeforeModelCallEvent, HookOrder, HookRegistry
from strands.types.content import Message
from strands.types.exceptions import ContextWindowOverflowException

from strands_manga_memory.arguments import whole
from strands_manga_memory.conversation.budget import Thresholds, thresholds, window_of
from strands_manga_memory.conversation.copying import Template
from strands_manga_memory.conversation.features import same_objects
from strands_manga_memory.conversation.full_texts import FullTextArchive
from strands_manga_memory.conversation.importance_manager import ImportanceWeightedConversationManager, history_manager_of
from strands_manga_memory.conversation.message_truncation import cap_of, name_of, result_text, results_of, truncate_result
from strands_manga_memory.conversation.scoring import Band
from strands_manga_memory.conversation.selection import is_pinned
from strands_manga_memory.conversation.stacked_manager import StackedConversationManager
from strands_manga_memory.conversation.summaries import SummaryTrigger
from strands_manga_memory.conversation.summarizing import VerifiedSummarizingConversationManager
from strands_manga_memory.conversation.summary_record import is_synthesized
from strands_manga_memory.conversation.summary_writing import Log
from strands_manga_memory.conversation.token_counter import tokens_of
from strands_manga_memory.conversation.truncation import LEAST_WITH_NAME
from strands_manga_memory.messages import is_turn_start, tool_result_ids, tool_use_ids, turns
from strands_manga_memory.stores.encoding.values import as_json

if TYPE_CHECKING:
    from strands.agent.agent import Agent
    from strands.experimental.context_manager import ContextState

logger = logging.getLogger(__name__)

# --- Stages -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compaction:
    """Input of a stage.

    Attributes:
        agent: The agent.
        messages: Its history. A stage changes no message in place.
        untouched: Number of latest messages that stay unchanged; a cap on tool results holds for them, too.
        goal: Tokens the history should have.
        overflow: The error of a real overflow.
        tokens_of: Counts messages.
        band_of: Returns the importance of a message.
        archive: Where full texts of cut results are kept.
    """

    agent: Agent
    messages: Sequence[Message]
    untouched: int
    goal: int
    overflow: Exception | None
    tokens_of: Callable[[Sequence[Message]], int]
    band_of: Callable[[Message], Band]
    archive: FullTextArchive

    @property
    def excess(self) -> int:
        """Tokens over the target; negative if the history is below it."""
        return self.tokens_of(self.messages) - self.goal

    @property
    def touchable(self) -> int:
        """Number of messages from the beginning that a stage may change."""
        return max(0, len(self.messages) - self.untouched)


class Stage(Protocol):
    """A step that reduces a history: any object with a name and this method."""

    name: str

    def apply(self, compaction: Compaction) -> Sequence[Message] | None:
        """Return the changed history; None if the stage changed nothing, or changed the agent's list itself."""


class ToolResultCap:
    """Truncates the tool results of each message, recent ones too, to a number of characters that they share.

    They are truncated by their form; the full text can be read with the tool ``read_cut_message``.

    Args:
        characters: Most characters of all results in a message. Default 10,000.

    Raises:
        ValueError: ``characters`` is less than 200.
    """

    name = "tool-result cap"

    def __init__(self, characters: int = 10_000) -> None:
        self.characters = whole("characters", characters, least=_FLOOR)

    def apply(self, compaction: Compaction) -> Sequence[Message] | None:
        """Truncate every message whose results are over the limit."""
        return _with_results(compaction, len(compaction.messages), lambda _: self.characters, until_enough=False)


class Snip:
    """Drops the oldest turns that are not essential: greetings, thanks, and others of low importance."""

    name = "snip"

    def apply(self, compaction: Compaction) -> Sequence[Message] | None:
        """Drop turns, the oldest first, until the goal is reached."""
        older = compaction.messages[: compaction.touchable]
        excess = compaction.excess
        gone: set[int] = set()
        for turn in turns(older)[1:]:  # the first one holds the original intent
            own = older[turn.start : turn.stop]
            if excess <= 0 or (turn.stop == len(older) and not _is_whole(compaction.messages, turn.stop)):
                break
            if all(_is_low(message, compaction) for message in own):
                gone.update(turn)
                excess -= compaction.tokens_of(own)
        return [message for at, message in enumerate(compaction.messages) if at not in gone] if gone else None


class MicroCompaction:
    """Compresses tool results of finished turns, whose answers contain the outcome.

    Args:
        characters: Characters kept of each result. Default 400.

    Raises:
        ValueError: ``characters`` is less than 200.
    """

    name = "micro-compaction"

    def __init__(self, characters: int = 400) -> None:
        self.characters = whole("characters", characters, least=_FLOOR)

    def apply(self, compaction: Compaction) -> Sequence[Message] | None:
        """Compress results, the oldest first, until the goal is reached."""
        return _with_results(
            compaction, compaction.touchable, lambda message: self.characters * len(tool_result_ids(message)), until_enough=True
        )


class VerifiedSummary(Template):
    """Replaces older turns by a verified summary that is written in the background.

    Args:
        manager: Writes it; default: a ``VerifiedSummarizingConversationManager`` with the settings given. When it is due is
            decided by the compaction.
        **settings: Settings of the default one.
    """

    name = "summary"

    def __init__(self, manager: VerifiedSummarizingConversationManager | None = None, **settings: Any) -> None:
        never = SummaryTrigger(turns=_NEVER, keep_recent_turns=5)
        self.manager = manager or VerifiedSummarizingConversationManager(**{"trigger": never, **settings})

    def apply(self, compaction: Compaction) -> Sequence[Message] | None:
        """Start a summary, or install a finished one; after an overflow replace older turns by facts."""
        if compaction.overflow is not None:
            self.manager.fold_at_once(compaction.agent, compaction.goal)
        else:
            self.manager.begin(compaction.agent)
        return None


class Reactive:
    """Halves the history after a real overflow of the model's window; does nothing else."""

    name = "reactive"

    def apply(self, compaction: Compaction) -> Sequence[Message] | None:
        """Keep the most important half of the history.

        Raises:
            ContextWindowOverflowException: Nothing can be freed.
        """
        if compaction.overflow is None:
            return None
        trimmer = history_manager_of(compaction.agent)
        if trimmer is not None:
            trimmer.reduce_context(compaction.agent, compaction.overflow)
        return None


_FLOOR = 200
_NEVER = 1_000_000


def _is_low(message: Message, compaction: Compaction) -> bool:
    return not is_pinned(message) and not is_synthesized(message) and compaction.band_of(message) is Band.LOW


def _is_whole(messages: Sequence[Message], end: int) -> bool:
    """Return whether a turn ends at ``end``: the next message begins another."""
    return end >= len(messages) or (is_turn_start(messages[end]) and not tool_use_ids(messages[end - 1]))


def _with_results(
    compaction: Compaction, until: int, most: Callable[[Message], int], *, until_enough: bool
) -> Sequence[Message] | None:
    """Truncate the tool results before a position; return None if none was over its limit."""
    excess, cut = compaction.excess, dict[int, Message]()
    for at, message in enumerate(compaction.messages[:until]):
        if until_enough and excess <= 0:
            break
        if tool_result_ids(message) and not is_pinned(message):
            smaller = _capped(message, most(message))
            if smaller is not message:
                excess -= compaction.tokens_of([message]) - compaction.tokens_of([smaller])
                cut[at] = smaller
    compaction.archive.keep_cut(compaction.agent, compaction.messages, cut)
    return [cut.get(at, message) for at, message in enumerate(compaction.messages)] if cut else None


def _capped(message: Message, characters: int) -> Message:
    """Return a message whose results have at most ``characters`` characters together; itself if it is within the limit."""
    sizes = [len(result_text(result)) for result in results_of(message)]
    if sum(sizes) <= characters:
        return message
    cap, name = cap_of(sizes, sum(sizes) - characters, LEAST_WITH_NAME), name_of(message)
    content: list[Any] = []
    for block in message["content"]:
        content += truncate_result(cast("dict[str, Any]", block), cap, len, name) if "toolResult" in block else [block]
    smaller = cast("Message", {**message, "content": content})
    return smaller if sum(len(result_text(result)) for result in results_of(smaller)) < sum(sizes) else message


def default_stages(**summary: Any) -> list[Stage]:
    """Return the five stages in their order, with settings of their ``VerifiedSummary``."""
    return [ToolResultCap(), Snip(), MicroCompaction(), VerifiedSummary(**summary), Reactive()]


# --- Manager ------------------------------------------------------------------------------------------------------------------


MOST_FAILURES = 3
UNTOUCHED = 10


@dataclass
class StageStats:
    """Counts of a stage.

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
    """Counts of a compaction manager.

    Attributes:
        compactions: How often the history was over the trigger.
        failures: Compactions in a row that failed: one raised, or changed the history without making it smaller.
        stopped: Whether it has given up for that reason, until something is freed again.
        stages: Results of the stages, by name.
    """

    compactions: int = 0
    failures: int = 0
    stopped: bool = False
    stages: dict[str, StageStats] = field(default_factory=dict)


class TieredCompactionConversationManager(StackedConversationManager):
    """Makes room in stages when a request comes near the model's context window.

    By default: cap tool results, drop unimportant exchanges, compress results in place, summarize; and, only after a real
    overflow, halve the history. Each stage runs only if those before it did not free enough. The last 10 messages are not
    touched, unless they alone are too large; only their tool results are capped like all others. Compaction that fails three
    times in a row stops and logs a warning. A run that finds nothing to do is no failure.

    One manager serves one agent. It restores exactly under every session manager, as its trimmer does.

    Args:
        stages: The stages in their order; default: all five.
        trigger: Share of the context window from which on there is compaction; less, if the reserves for a cushion and for the
            summary demand it. Default 0.80.
        untouched: Latest messages that stay unchanged, their tool results up to the cap. Default 10.
        window: Tokens of the context window; default: the model's own figure, 128,000 if it has none.
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
        if log is not None:
            trimmer.archive.log = log
        self._stats = CompactionStats(stages={stage.name: StageStats() for stage in self.stages})
        self._prompt: tuple[Any, int] = (None, 0)
        self._waiting = 0

    def __repr__(self) -> str:
        return f"TieredCompactionConversationManager(stages={[stage.name for stage in self.stages]}, trigger={self._share})"

    def _register(self, registry: HookRegistry) -> None:
        registry.add_callback(AgentInitializedEvent, self._attach, order=HookOrder.SDK_FIRST)
        super()._register(registry)

    def _attach(self, event: AgentInitializedEvent[Agent]) -> None:
        # At once, not with the first cut: the tools are a part of the cached prefix.
        self.trimmer.archive.is_offered = True
        self.trimmer.archive.offer(event.agent, ())
        self._bind(event.agent)

    async def _before_model_call(self, event: BeforeModelCallEvent | ContextState) -> None:
        await self.trimmer.off_loop(event.agent.messages, lambda: self._compact(event.agent))

    # --- The contract of a conversation manager -----------------------------------------------------------------------------

    def _manage(self, agent: Agent) -> None:
        """Compact if the history is over the trigger, then run the managers below."""
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

    # --- Inspection -----------------------------------------------------------------------------------------------------

    def stats(self) -> CompactionStats:
        """Return the counts of each stage; tokens freed by a summary are known when it is installed."""
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
        """Set the bounds of trimmer and summary from the model's window."""
        bounds = self.thresholds(agent)
        overhead = self._overhead(agent)
        trigger, target, hard = (max(1, size - overhead) for size in (bounds.trigger, bounds.target, bounds.hard))
        if self._summarizing is not None:
            self._summarizing.bound_to(trigger_tokens=trigger, target_tokens=target, hard_tokens=hard)
        else:
            self.trimmer.max_tokens, self.trimmer.grow_to = target, hard
        return Thresholds(bounds.window, trigger, target, hard)

    def _overhead(self, agent: Agent) -> int:
        """Count system prompt and tool specifications, again only when the prompt or the names of the tools change."""
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
                archive=self.trimmer.archive,
            )
            stats = self._stats.stages[stage.name]
            stats.runs += 1
            changed = stage.apply(compaction)
            if changed is not None and all(map(operator.is_, agent.messages, history)):
                agent.messages[: len(history)] = changed
                stays = {id(message) for message in changed}
                self.trimmer.report_evicted([message for message in history if id(message) not in stays])
            after = self._tokens(agent)
            stats.freed += max(0, before - after)
            stats.enough += after <= goal
            logger.debug("stage=<%s>, tokens_before=<%d>, tokens_after=<%d> | compacted", stage.name, before, after)
