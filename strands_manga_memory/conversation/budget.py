"""Token budgets of a request and of the history in the request.

The budget of the history is raised if the user's current message is long. The budget is also adjusted to the token counts that
the model reports.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from strands.hooks import AfterModelCallEvent
from strands.middleware import InvokeModelContext
from strands.types.content import ContentBlock, Message

from strands_manga_memory.arguments import whole
from strands_manga_memory.conversation.token_counter import TokenCounter, tokens_of
from strands_manga_memory.messages import is_turn_start
from strands_manga_memory.messages.model_calls import model_setting
from strands_manga_memory.messages.tokens import prompt_tokens

# --- The request ----------------------------------------------------------------------------------

HISTORY_OF_WINDOW = 4
"""Divisor of the context window. The quotient is the default budget of the history."""

MOST_HISTORY = 16_384
"""Largest default budget of the history. The limit saves costs, because each model call pays for the whole history again."""

UNKNOWN_HISTORY = 4_096
"""Default budget of the history for a model with an unknown context window. The number is from a published shop assistant."""


def history_tokens(window: int | None) -> int:
    """Return the default token budget of the history for a context window.

    The budget is a quarter of the window, but at most 16,384 tokens. The budget is 4,096 tokens if ``window`` is None. The rest
    of the window is for the system prompt, tools, quotes and the answer. The rest also holds the history's growth while a
    summary is written. The history may then reach twice the budget, and in no case more than three times the budget.

    Raises:
        ValueError: ``window`` is not positive.
    """
    if window is None:
        return UNKNOWN_HISTORY
    if window < 1:
        raise ValueError(f"window must be a positive number of tokens, got {window!r:.80}")
    return max(1, min(MOST_HISTORY, window // HISTORY_OF_WINDOW))


@dataclass(frozen=True, kw_only=True)
class BudgetPlan:
    """Tokens that are reserved for each part of a request.

    The defaults are a published example for a shop assistant.

    Attributes:
        system: System prompt and tool specifications.
        user_context: Data about the user.
        history: The conversation so far. Same as ``max_tokens`` of ``ImportanceWeightedConversationManager``.
        current: The current user message.
        tool_results: Results of the tools that are called for the answer.
        recall: Earlier messages that are quoted in one model call.
        state: Task state that is shown in one model call.
        output: The answer.

    Raises:
        ValueError: A part is negative or not a whole number.
    """

    system: int = 800
    user_context: int = 500
    history: int = 4_096
    current: int = 200
    tool_results: int = 1_000
    recall: int = 0
    state: int = 0
    output: int = 1_024

    def __post_init__(self) -> None:
        for part in fields(self):
            whole(part.name, getattr(self, part.name), least=0)

    @property
    def total(self) -> int:
        """Sum of all parts, in tokens."""
        return sum(getattr(self, part.name) for part in fields(self))

    def fits(self, window: int) -> bool:
        """Return whether the whole request fits a context window of ``window`` tokens."""
        return self.total <= window

    def left(self, window: int) -> int:
        """Return the free tokens in a context window of ``window`` tokens. Negative if the request does not fit."""
        return window - self.total


def budget_plan(*, window: int | None = None, history: int | None = None, **parts: int) -> BudgetPlan:
    """Plan the tokens of a whole request.

    ``BudgetPlan.fits(window)`` and ``BudgetPlan.left(window)`` compare the plan with a context window.

    ``ImportanceWeightedConversationManager`` counts the current message and its tool results within the history budget. A plan
    counts the current message and its tool results once more as separate parts. So the plan has room to spare.

    Args:
        window: Tokens of the model's context window. None if the window is unknown.
        history: Tokens for the conversation so far. The default is the budget that ``MangaMemory`` uses: a quarter of
            ``window``, but at most 16,384 tokens. Without a window, the default is 4,096 tokens.
        **parts: Tokens for the other parts. :class:`BudgetPlan` lists the names of the parts.

    Returns:
        The plan.

    Raises:
        ValueError: A part is negative or not a whole number, or ``window`` is not positive.
    """
    return BudgetPlan(history=history_tokens(window) if history is None else history, **parts)


# --- The context window ---------------------------------------------------------------------------

UNKNOWN_WINDOW = 128_000
"""Assumed size of an unknown context window, in tokens."""

CUSHION = 13_000
RESERVED_FOR_SUMMARY = 20_000
FULL_RESERVES_FROM = 100_000
"""Size of a context window, in tokens, below which both reserves are scaled down."""

_TARGET = 0.75
_HARD = 0.95


@dataclass(frozen=True)
class Thresholds:
    """Sizes of a request, in tokens, that control the compaction of the history.

    Attributes:
        window: Size of the model's context window.
        trigger: Size at which the history is compacted.
        target: Size that the compaction has to reach.
        hard: Size at which a model call waits for the end of the compaction.
    """

    window: int
    trigger: int
    target: int
    hard: int


def window_of(model: Any) -> int | None:
    """Return the size of a model's context window in tokens. Return None if the model does not state the size."""
    window = model_setting(model, "context_window_limit")
    return window if isinstance(window, int) and window > 0 else None


def thresholds(window: int | None, *, share: float = 0.80) -> Thresholds:
    """Return the compaction thresholds for a context window.

    The trigger is the smaller of two sizes. The first size is the given share of the window. The second size is the window
    without two reserves, 13,000 tokens as a safety margin and 20,000 tokens for the summary. The reserves are scaled down for
    windows of less than 100,000 tokens.

    Args:
        window: Size of the context window in tokens. 128,000 tokens are assumed if the size is None.
        share: Largest share of the window that a request may fill before compaction. Above 0, and at most 1.

    Raises:
        ValueError: ``share`` is not above 0 and at most 1, or ``window`` is not positive.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share must be over 0 and at most 1, got {share!r:.80}")
    window = UNKNOWN_WINDOW if window is None else window
    if window < 1:
        raise ValueError(f"window must be positive, got {window!r:.80}")
    reserves = (CUSHION + RESERVED_FOR_SUMMARY) * min(1.0, window / FULL_RESERVES_FROM)
    trigger = max(1, min(int(window * share), int(window - reserves)))
    return Thresholds(window, trigger, max(1, int(trigger * _TARGET)), max(trigger, int(window * _HARD)))


# --- Tokens that the model reports ----------------------------------------------------------------

HIGHEST = 1.6
"""Highest ratio between a model's token count and the counter's token count that a calibration uses."""

LOWEST_EXACT, LOWEST_ESTIMATE = 1.0, 0.8

_PLAUSIBLE = (0.5, 2.5)
_SMALLEST = 200
_WHOLE_WEIGHT = 2_048
_RISE, _FALL = 0.5, 0.2
_MOST_BELOW, _STEP = 0.02, 0.04


class Calibration:
    """Learns the ratio between a model's token count and the counter's token count.

    The ratio is learned from the usage that the model reports for each request. The ratio is at most 1.6, and at least 1.0 for
    an exact counter or 0.8 for an estimate. The ratio rises quickly and falls slowly. Small requests change the ratio less,
    because a provider's fixed preamble distorts the counts of small requests most. Requests of less than 200 tokens are
    ignored. A report is also ignored if its ratio is below 0.5 or above 2.5. The ratio is rounded to two decimals. So a
    restored session computes budgets from exactly the same ratio.
    """

    __slots__ = ("_lowest", "ratio")

    def __init__(self, *, exact: bool) -> None:
        self._lowest = LOWEST_EXACT if exact else LOWEST_ESTIMATE
        self.ratio = 1.0

    def observe(self, counted: int, reported: int) -> None:
        """Adjust the ratio to one request, given the counted tokens and the tokens that the model reported."""
        if counted < _SMALLEST or reported <= 0 or not _PLAUSIBLE[0] <= reported / counted <= _PLAUSIBLE[1]:
            return
        difference = round(reported / counted - self.ratio, 2)
        if -_MOST_BELOW <= difference <= 0:
            return
        part = (_RISE if difference > 0 else _FALL) * min(1.0, counted / _WHOLE_WEIGHT)
        step = min(abs(difference), max(_STEP, part * abs(difference)))
        self.restore(self.ratio + math.copysign(step, difference))

    def restore(self, ratio: float) -> None:
        """Restore a ratio that was learned earlier. The ratio is limited to the allowed range."""
        self.ratio = min(HIGHEST, max(self._lowest, round(ratio, 2)))

    def budget(self, max_tokens: int) -> int:
        """Convert the budget ``max_tokens`` to tokens of the token counter.

        A history within this budget has at most ``max_tokens`` tokens in the counts of both the counter and the model.
        """
        return int(max_tokens / max(1.0, self.ratio))

    def reported(self, counted: int) -> int:
        """Convert a token count of the counter to a token count of the model, rounded up."""
        return -int(-counted * self.ratio // 1)


_OPEN_REQUESTS = 16


class RequestMeter:
    """Compares the counted tokens of each request with the usage that the model reports.

    The meter adjusts a calibration after each request.
    """

    __slots__ = ("_calibration", "_counted", "_counter", "_prompt")

    def __init__(self, counter: TokenCounter, calibration: Calibration) -> None:
        self._counter = counter
        self._calibration = calibration
        self._counted: dict[int, tuple[int, type]] = {}
        self._prompt: tuple[Any, int] = (None, 0)

    def sending(self, context: InvokeModelContext, history_tokens: int, added: Sequence[ContentBlock]) -> None:
        """Count the tokens of a request before it is sent.

        Args:
            context: The model call, with the system prompt and the tools.
            history_tokens: Tokens of the history in the request.
            added: Content blocks that are added to this request alone.
        """
        tokens = self._prompt_tokens(context) + history_tokens
        if added:
            tokens += self._counter.count({"role": "user", "content": [*added]})
        if len(self._counted) >= _OPEN_REQUESTS:  # cancelled ones are never answered
            self._counted.clear()
        self._counted[id(context.invocation_state)] = tokens, type(context.model)

    def answered(self, event: AfterModelCallEvent) -> None:
        """Adjust the calibration to the reported usage of a request. Nothing changes if the model reported no usage."""
        counted, model_class = self._counted.pop(id(event.invocation_state), (0, type(None)))
        if event.stop_response is None:
            return
        usage: Any = (event.stop_response.message.get("metadata") or {}).get("usage") or {}
        self._calibration.observe(counted, prompt_tokens(usage, model_class))

    def _prompt_tokens(self, context: InvokeModelContext) -> int:
        """Return the tokens of the system prompt and the tools.

        The tokens are counted again only if the prompt or the names of the tools have changed.
        """
        prompt = context.system_prompt
        text = prompt if isinstance(prompt, str) else "\n".join(block.get("text", "") for block in prompt or [])
        key = (text, *[spec["name"] for spec in context.tool_specs])
        if self._prompt[0] != key:
            parts = ("name", "description", "inputSchema")
            specs = [{part: spec.get(part) for part in parts} for spec in context.tool_specs]
            self._prompt = key, tokens_of(self._counter, text, json.dumps(specs, default=str) if specs else "")
        return self._prompt[1]


# --- The history ----------------------------------------------------------------------------------

_SHARE_OF_REQUEST = 16
"""Divisor of the budget. At the end of a turn, at most the quotient is left free for the next request."""

_LEAST_WITH_ROOM = 1_024
"""Smallest budget of which a part is left free for the next request."""

_MOST_GIVEN_UP = 3
"""Divisor of the budget. At most the quotient is given up to make room for later turns."""

_LARGE_RESULTS = 8
"""Divisor of the history's budget. The quotient is the size from which tool results of an ended turn count as large.

Large tool results are truncated before the history is full. Otherwise large tool results would displace other messages until
then, and seldom leave room for the next request."""


class Headroom(NamedTuple):
    """Additional budget for a long message of the user.

    Attributes:
        tokens: Tokens that are added to the budget.
        is_enough: Whether the user's message fits the raised budget without truncation.
    """

    tokens: int
    is_enough: bool


NO_HEADROOM = Headroom(0, is_enough=False)


class HistoryLimits:
    """Token limits of one agent's history.

    The limits exist in token counts of the counter and in token counts of the model. A calibration converts between both.

    Attributes:
        max_tokens: Budget of the history in tokens. Neither the counter nor the model may count more tokens.
        grow_to: Size in tokens at which the history is brought back to ``max_tokens``.
        trim_to: Size in tokens to which a full history is trimmed. None for a size just below ``max_tokens``.
        trim_every: Number of later turns for which trimming makes room. None to make no room.
        max_turns: Largest number of turns. None for as many turns as fit.
        reserved: Tokens of ``max_tokens`` that every request reserves for quotes.
        calibration: Ratio between the model's token count and the counter's token count.
    """

    def __init__(
        self, max_tokens: int, trim_to: int | None, trim_every: int | None, max_turns: int | None, *, exact: bool
    ) -> None:
        self.max_tokens = self.grow_to = max_tokens
        self.trim_to = trim_to
        self.trim_every = trim_every
        self.max_turns = max_turns
        self.reserved = 0
        self.calibration = Calibration(exact=exact)

    @property
    def most(self) -> int:
        """Budget of the history without the part for quotes, as the model counts tokens."""
        return self.max_tokens - self.reserved

    @property
    def tokens(self) -> int:
        """Budget of the history without the part for quotes, as the counter counts tokens."""
        return self.calibration.budget(self.most)

    def reserve(self, tokens: int) -> int:
        """Reserve up to half of the budget for quotes.

        The number of reserved tokens is the same for every request. So the quotes change neither the history nor the prefix
        that a provider caches.

        Args:
            tokens: Tokens to reserve.

        Returns:
            Tokens that the quotes may take.
        """
        self.reserved = min(tokens, self.max_tokens // 2)
        return max(1, self.reserved)

    @property
    def full_tokens(self) -> int:
        """Size above which the history is trimmed, as the counter counts tokens."""
        return self.calibration.budget(max(self.most, self.grow_to - self.reserved))

    @property
    def has_low_mark(self) -> bool:
        """Whether trimming a full history makes room for later turns. If not, it is trimmed a little in every turn."""
        return self.trim_every is not None or self._low < self.most

    @property
    def lowest(self) -> int:
        """Smallest size to which a full history may be trimmed, as the model counts tokens."""
        if self.trim_every is None:
            return self._low
        return min(self._low, self.most - self.most // _MOST_GIVEN_UP)

    @property
    def large_results(self) -> int:
        """Size from which the tool results of an ended turn are a reason to trim, as the model counts tokens."""
        return self.most // _LARGE_RESULTS

    @property
    def _low(self) -> int:
        return self.most if self.trim_to is None else min(self.trim_to, self.most)

    def low_mark(self, messages: Sequence[Message], total: Callable[[Sequence[Message]], int]) -> int:
        """Return the size to which a full history is trimmed, as the model counts tokens.

        Args:
            messages: The latest messages, not truncated.
            total: Function that returns the tokens of messages.
        """
        if self.trim_every is None:
            return self._low
        starts = (at for at in reversed(range(len(messages))) if is_turn_start(messages[at]))
        since = min(itertools.islice(starts, self.trim_every), default=0)
        return min(self._low, max(self.lowest, self.most - total(messages[since:])))

    def headroom(self, messages: Sequence[Message], budget: int, model: Any, count: Callable[[Message], int]) -> Headroom:
        """Return the additional budget for the user's message of the current turn.

        The user's message may take half of the budget. Further tokens of the message are added to the budget. The raised budget
        is at most three quarters of the model's context window. Without a model nothing is added.
        """
        said = next(filter(is_turn_start, reversed(messages)), None)
        if said is None or model is None:
            return NO_HEADROOM
        wanted = count(said) - budget // 2
        if wanted <= 0:
            return Headroom(0, is_enough=True)
        room = max(0, self.calibration.budget((window_of(model) or UNKNOWN_WINDOW) * 3 // 4) - budget)
        return Headroom(min(wanted, room), wanted <= room)

    def next_request(self, messages: Sequence[Message], count: Callable[[Message], int]) -> int:
        """Return the tokens to leave free for the user's next message.

        The number is the size of the largest of the user's last four messages, but at most a sixteenth of the budget. The
        number is 0 for a budget of less than 1,024 tokens.
        """
        if self.tokens < _LEAST_WITH_ROOM:
            return 0
        latest = itertools.islice(filter(is_turn_start, reversed(messages)), 4)
        return min(max(map(count, latest), default=0), self.tokens // _SHARE_OF_REQUEST)
