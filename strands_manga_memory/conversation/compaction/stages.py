"""The stages of tiered compaction: small classes that each make a history smaller in one way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from strands.types.content import Message

from strands_manga_memory.arguments import whole
from strands_manga_memory.conversation.copying import CopiedAsNew
from strands_manga_memory.conversation.history.exchanges import exchanges
from strands_manga_memory.conversation.history.results import TOOL_NAME, ResultArchive, result_keys
from strands_manga_memory.conversation.history.shortening import cap_of
from strands_manga_memory.conversation.history.summary import is_synthesized
from strands_manga_memory.conversation.history.tool_texts import media_of, result_text, results_of
from strands_manga_memory.conversation.history.truncation import truncate_text
from strands_manga_memory.conversation.importance.choosing.groups import is_pinned
from strands_manga_memory.conversation.importance.weighing.scoring import Band
from strands_manga_memory.conversation.serving import trimmer_of
from strands_manga_memory.conversation.summaries.summary_policies import SummaryTrigger
from strands_manga_memory.conversation.summaries.verified import VerifiedSummarizingConversationManager
from strands_manga_memory.messages import is_turn_start, tool_result_ids, tool_use_ids

if TYPE_CHECKING:
    from strands.agent.agent import Agent


@dataclass(frozen=True)
class Compaction:
    """What a stage is given.

    Attributes:
        agent: The agent.
        messages: Its history. A stage changes no message in place.
        untouched: Number of latest messages that stay as they are; a cap on tool results holds for them, too.
        goal: Tokens the history should have.
        overflow: The error that said so, after a real overflow.
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
    archive: ResultArchive

    @property
    def excess(self) -> int:
        """Tokens over the goal; negative if there is room."""
        return self.tokens_of(self.messages) - self.goal

    @property
    def touchable(self) -> int:
        """How many messages from the beginning a stage may change."""
        return max(0, len(self.messages) - self.untouched)


class Stage(Protocol):
    """One way to make a history smaller; any object with a name and this method will do."""

    name: str

    def apply(self, compaction: Compaction) -> Sequence[Message] | None:
        """Return the history after this stage; None if the stage changed nothing, or has changed the agent's list itself."""


class ToolResultCap:
    """Cuts the tool results of each message, recent ones too, to a number of characters that they share, the longest first.

    They are truncated by their form; the full text can be read with the tool ``read_tool_result``.

    Args:
        characters: Most characters of all results in a message. Default 10,000.

    Raises:
        ValueError: ``characters`` is less than 200.
    """

    name = "tool-result cap"

    def __init__(self, characters: int = 10_000) -> None:
        self.characters = whole("characters", characters, least=_FLOOR)

    def apply(self, compaction: Compaction) -> Sequence[Message] | None:
        """Cut every message whose results are over the limit."""
        return _with_results(compaction, len(compaction.messages), lambda _: self.characters, until_enough=False)


class Snip:
    """Drops the oldest exchanges that are not essential: greetings, thanks, and what else is of low importance."""

    name = "snip"

    def apply(self, compaction: Compaction) -> Sequence[Message] | None:
        """Drop exchanges, the oldest first, until the goal is reached."""
        older = compaction.messages[: compaction.touchable]
        excess = compaction.excess
        gone: set[int] = set()
        for exchange in exchanges(older)[1:]:  # the first one holds the original intent
            positions = list(exchange.positions())
            own = [older[at] for at in positions]
            ends = max(positions) + 1
            if excess <= 0 or (ends == len(older) and not _is_whole(compaction.messages, ends)):
                break
            if all(_is_low(message, compaction) for message in own):
                gone.update(positions)
                excess -= compaction.tokens_of(own)
        return [message for at, message in enumerate(compaction.messages) if at not in gone] if gone else None


class MicroCompaction:
    """Compresses the results of tools in turns that are over: what they led to is in the answer.

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


class VerifiedSummary(CopiedAsNew):
    """Lets a verified summary take the place of older turns, beside the conversation.

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
        """Begin a summary, or use one that is finished; after an overflow turn older turns into facts at once."""
        if compaction.overflow is not None:
            self.manager.fold_at_once(compaction.agent, compaction.goal)
        else:
            self.manager.begin(compaction.agent)
        return None


class Reactive:
    """Halves the history after a real overflow of the model's window; does nothing else."""

    name = "reactive"

    def apply(self, compaction: Compaction) -> Sequence[Message] | None:
        """Keep the most important half of what there is.

        Raises:
            ContextWindowOverflowException: Nothing can be freed.
        """
        if compaction.overflow is None:
            return None
        trimmer = trimmer_of(compaction.agent)
        if trimmer is not None:
            trimmer.reduce_context(compaction.agent, compaction.overflow)
        return None


_FLOOR = 200
_NEVER = 1_000_000


def _is_low(message: Message, compaction: Compaction) -> bool:
    return not is_pinned(message) and not is_synthesized(message) and compaction.band_of(message) is Band.LOW


def _is_whole(messages: Sequence[Message], end: int) -> bool:
    """Whether an exchange is over at ``end``: the next message begins a turn."""
    return end >= len(messages) or (is_turn_start(messages[end]) and not tool_use_ids(messages[end - 1]))


def _with_results(
    compaction: Compaction, until: int, most: Callable[[Message], int], *, until_enough: bool
) -> Sequence[Message] | None:
    """Cut the tool results before a position to so many characters a message; return None if none had more."""
    history = list(compaction.messages)
    excess, found = compaction.excess, False
    for at, message in enumerate(history[:until]):
        if until_enough and excess <= 0:
            break
        if tool_result_ids(message) and not is_pinned(message):
            smaller = _capped(message, most(message), compaction.archive)
            if smaller is not message:
                excess -= compaction.tokens_of([message]) - compaction.tokens_of([smaller])
                history[at], found = smaller, True
    return history if found else None


def _capped(message: Message, characters: int, archive: ResultArchive) -> Message:
    """Return a message whose results have at most so many characters together; the message itself if they have no more."""
    sizes = [len(result_text(result)) for result in results_of(message)]
    if sum(sizes) <= characters:
        return message
    cap = cap_of(sizes, sum(sizes) - characters, _FLOOR // 2)
    content: list[Any] = []
    keys = iter(result_keys(message))
    for block in message["content"]:
        key = next(keys) if "toolResult" in block else ""
        if not key or len(text := result_text(block["toolResult"])) <= cap:
            content.append(block)
            continue
        result = block["toolResult"]
        archive.keep(key, text)
        note = f"\n[shortened; full text: {TOOL_NAME}(tool_use_id={key!r})]"
        shorter = truncate_text(text.removesuffix(note), max(0, cap - len(note)), len) + note
        content.append({**block, "toolResult": {**result, "content": [{"text": shorter}, *media_of(result)]}})
    smaller = cast("Message", {**message, "content": content})
    return smaller if sum(len(result_text(result)) for result in results_of(smaller)) < sum(sizes) else message


def default_stages(**summary: Any) -> list[Stage]:
    """Return the five stages in their order, with settings of their ``VerifiedSummary``."""
    return [ToolResultCap(), Snip(), MicroCompaction(), VerifiedSummary(**summary), Reactive()]
