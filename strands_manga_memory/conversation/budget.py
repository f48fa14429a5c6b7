"""Token budgets of a request and of its history, and corrections of token counts."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from strands.hooks import AfterModelCallEvent
from strands.middleware import InvokeModelContext
from strands.types.content import ContentBlock, Message
from strands.types.tools import ToolSpec

from strands_manga_memory.arguments import whole
from strands_manga_memory.conversation.token_counter import TokenCounter, tokens_of
from strands_manga_memory.messages import is_turn_start
from strands_manga_memory.messages.model_calls import model_setting
from strands_manga_memory.messages.provider_format import prompt_tokens

# --- The request ----------------------------------------------------------------------------------

HISTORY_OF_WINDOW = 4
"""Divisor of the context window that gives the default budget of the history."""

MOST_HISTORY = 16_384
"""Largest default budget of the history, in tokens.
It limits costs: each model call pays for the whole history again.
"""

UNKNOWN_HISTORY = 4_096
"""Default budget of the history, in tokens, if the context window is unknown.
A published shop assistant has this budget.
"""


def history_tokens(window: int | None) -> int:
    """Return the default token budget of the history for a context window.

    The budget is a quarter of the window, but at most 16,384 tokens. If the window is unknown
    (None), it is 4,096 tokens. The rest of the window is for the system prompt, tools, quotes of
    evicted messages and the answer.

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
    """Tokens reserved for each part of a request.

    The defaults are a published example for a shop assistant.

    Attributes:
        system: System prompt and tool specifications.
        user_context: Data about the user.
        history: The conversation so far. Same as ``max_tokens`` of
            ``ImportanceWeightedConversationManager``.
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
        """Return whether all parts together fit a context window of ``window`` tokens."""
        return self.total <= window

    def left(self, window: int) -> int:
        """Return the tokens of a context window that the request leaves free.

        Negative if the request does not fit.
        """
        return window - self.total


def budget_plan(
    *, window: int | None = None, history: int | None = None, **parts: int
) -> BudgetPlan:
    """Plan the tokens of a whole request, one number for each part.

    The sum is higher than the size of a request, because the plan counts the current message and
    its tool results twice: as parts of their own, and in the history.

    Args:
        window: Tokens of the model's context window. None if the window is unknown.
        history: Tokens for the conversation so far. Default: a quarter of ``window``, at most
            16,384 tokens; 4,096 tokens without a window.
        **parts: Tokens for the other parts, named as in :class:`BudgetPlan`.

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
"""Context windows of fewer tokens have smaller reserves than ``CUSHION`` and
``RESERVED_FOR_SUMMARY``.
"""

_TARGET = 0.75
_HARD = 0.95


@dataclass(frozen=True)
class Thresholds:
    """Sizes of a request, in tokens, at which compaction starts, stops and blocks.

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
    """Return the context window of a model in tokens. None if the model does not state it."""
    window = model_setting(model, "context_window_limit")
    return window if isinstance(window, int) and window > 0 else None


def thresholds(window: int | None, *, trigger: float = 0.80) -> Thresholds:
    """Return the sizes at which a history is compacted (made smaller), for a context window.

    A request should leave some tokens of the window unused: 13,000 as a safety margin, and 20,000
    for writing a summary. A window of less than 100,000 tokens has proportionally smaller reserves.
    Compaction starts at the share ``trigger`` of the window, or earlier to keep the reserves
    unused.

    Args:
        window: Size of the context window in tokens. None for 128,000 tokens.
        trigger: Share of the window, above 0 and at most 1, that a request may fill before
            compaction.

    Raises:
        ValueError: ``trigger`` is not above 0 and at most 1, or ``window`` is not positive.
    """
    if not 0 < trigger <= 1:
        raise ValueError(f"trigger must be over 0 and at most 1, got {trigger!r:.80}")
    window = UNKNOWN_WINDOW if window is None else window
    if window < 1:
        raise ValueError(f"window must be positive, got {window!r:.80}")
    reserves = (CUSHION + RESERVED_FOR_SUMMARY) * min(1.0, window / FULL_RESERVES_FROM)
    tokens = max(1, min(int(window * trigger), int(window - reserves)))
    return Thresholds(
        window, tokens, max(1, int(tokens * _TARGET)), max(tokens, int(window * _HARD))
    )


# --- Tokens that the model reports ----------------------------------------------------------------

HIGHEST = 1.6
"""Largest ratio of a ``Calibration``."""

LOWEST_EXACT, LOWEST_ESTIMATE = 1.0, 0.8

_PLAUSIBLE = (0.5, 2.5)
_SMALLEST = 200
_WHOLE_WEIGHT = 2_048
_RISE, _FALL = 0.5, 0.2
_MOST_BELOW, _STEP = 0.02, 0.04


class Calibration:
    """Ratio of the model's token counts to the counts of the local ``TokenCounter``.

    Example: the local counter finds 1,000 tokens in a request, and the model reports 1,200. The
    ratio then moves toward 1.2. It rises faster than it falls, and changes less after a small
    request.

    The ratio is at least 1.0 (0.8 if the counter only estimates) and at most 1.6. Requests of less
    than 200 tokens, and implausible reports (a ratio below 0.5 or above 2.5), are ignored.

    Args:
        counter: The local counter.
    """

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._lowest = LOWEST_EXACT if getattr(counter, "exact", True) else LOWEST_ESTIMATE
        self.ratio = 1.0
        self._sent = 0
        self._model_class: type = type(None)

    def observe(self, counted: int, reported: int) -> None:
        """Adjust the ratio of the provider's token counts to the local counts, after a request."""
        if (
            counted < _SMALLEST
            or reported <= 0
            or not _PLAUSIBLE[0] <= reported / counted <= _PLAUSIBLE[1]
        ):
            return
        difference = round(reported / counted - self.ratio, 2)
        if -_MOST_BELOW <= difference <= 0:
            return
        part = (_RISE if difference > 0 else _FALL) * min(1.0, counted / _WHOLE_WEIGHT)
        step = min(abs(difference), max(_STEP, part * abs(difference)))
        self.restore(self.ratio + math.copysign(step, difference))

    def restore(self, ratio: float) -> None:
        """Set the ratio, limited to the allowed range."""
        self.ratio = min(HIGHEST, max(self._lowest, round(ratio, 2)))

    def budget(self, max_tokens: int) -> int:
        """Convert a limit in tokens of the model to a limit in tokens of the local counter.

        The result is at most ``max_tokens``.
        """
        return int(max_tokens / max(1.0, self.ratio))

    def reported(self, counted: int) -> int:
        """Convert a local token count to the count that the model would report, rounded up."""
        return -int(-counted * self.ratio // 1)

    def sending(
        self, context: InvokeModelContext, history_tokens: int, added: Sequence[ContentBlock]
    ) -> None:
        """Count the tokens of a request before it is sent.

        Args:
            context: The model call, with the system prompt and the tools.
            history_tokens: Tokens of the history in the request.
            added: Content blocks that are added to this request alone.
        """
        self._sent = self.prompt_tokens(context.system_prompt, context.tool_specs) + history_tokens
        self._sent += self._counter.count({"role": "user", "content": [*added]}) if added else 0
        self._model_class = type(context.model)

    def answered(self, event: AfterModelCallEvent) -> None:
        """Adjust the ratio after a model call, if the model reported its usage."""
        sent, self._sent = self._sent, 0
        if event.stop_response is not None:
            usage: Any = (event.stop_response.message.get("metadata") or {}).get("usage") or {}
            self.observe(sent, prompt_tokens(usage, self._model_class))

    def prompt_tokens(self, prompt: Any, tools: Sequence[ToolSpec]) -> int:
        """Return the tokens of the system prompt and the tool specifications."""
        text = (
            prompt
            if isinstance(prompt, str)
            else "\n".join([block.get("text", "") for block in prompt or []])
        )
        if not tools:
            return tokens_of(self._counter, text)
        specs = [
            {
                "name": spec.get("name"),
                "description": spec.get("description"),
                "inputSchema": spec.get("inputSchema"),
            }
            for spec in tools
        ]
        return tokens_of(self._counter, text, json.dumps(specs, default=str))


# --- The history ----------------------------------------------------------------------------------

_SHARE_OF_REQUEST = 16
"""Divisor of the budget: at the end of a turn, at most this part is left free for the next
request.
"""

_LEAST_WITH_ROOM = 1_024
"""Smallest budget, in tokens, of which a part is left free for the next request."""

_MOST_GIVEN_UP = 3
"""Divisor of the budget: at most this part is given up to make room for later turns."""


class HistoryLimits:
    """Limits of one agent's history, in tokens and in turns.

    Two counts of tokens occur: those of the model, and those of the local ``TokenCounter``. All
    sizes are counts of the model, except the property ``tokens``.

    Attributes:
        max_tokens: Budget of the history.
        grow_to: Size above which the history is trimmed. Default ``max_tokens``.
        trim_every: Number of later turns for which each trimming makes room. 0 to make no room.
        max_turns: Largest number of turns. None for as many turns as fit.
        reserved: Tokens of ``max_tokens`` that are reserved for quotes of evicted messages.
        calibration: Ratio between the token counts of the model and of the local counter.
    """

    def __init__(
        self, max_tokens: int, trim_every: int, max_turns: int | None, counter: TokenCounter
    ) -> None:
        self.max_tokens = self.grow_to = max_tokens
        self.trim_every = trim_every
        self.max_turns = max_turns
        self.reserved = 0
        self.calibration = Calibration(counter)

    @property
    def most(self) -> int:
        """Tokens for the history, without those reserved for quotes, as the model counts."""
        return self.max_tokens - self.reserved

    @property
    def tokens(self) -> int:
        """The size ``most``, as the local counter counts."""
        return self.calibration.budget(self.most)

    def reserve(self, tokens: int) -> int:
        """Reserve a part of the history's budget for quotes of evicted messages.

        The part is at most ``tokens``, and at most half of the budget. It stays reserved in
        requests without quotes, so that the history, and with it the provider's prompt cache, does
        not depend on quotes.

        Returns:
            The number of tokens for quotes, at least 1.
        """
        self.reserved = min(tokens, self.max_tokens // 2)
        return max(1, self.reserved)

    @property
    def lowest(self) -> int:
        """Smallest size to which a full history is trimmed, as the model counts.

        With ``trim_every``, a trimming may free up to a third of the tokens for the history.
        Without it, a full history is trimmed only until it fits.
        """
        return self.most - self.most // _MOST_GIVEN_UP if self.trim_every else self.most

    def low_mark(
        self, messages: Sequence[Message], total: Callable[[Sequence[Message]], int]
    ) -> int:
        """Return the size to which a full history is trimmed, as the model counts.

        With ``trim_every=3``, for example, the result leaves room for three turns as large as the
        latest three. It is never below ``lowest``.

        Args:
            messages: The latest messages, not truncated.
            total: Function that returns the tokens of messages.
        """
        if not self.trim_every:
            return self.most
        starts = (at for at in reversed(range(len(messages))) if is_turn_start(messages[at]))
        since = min(itertools.islice(starts, self.trim_every), default=0)
        return max(self.lowest, self.most - total(messages[since:]))

    def next_request(self, messages: Sequence[Message], count: Callable[[Message], int]) -> int:
        """Return the number of tokens to leave free for the user's next message.

        The next message is assumed to be as large as the largest of the user's last four. At most a
        sixteenth of the budget is left free, and nothing of a budget of less than 1,024 tokens.
        """
        if self.tokens < _LEAST_WITH_ROOM:
            return 0
        latest = itertools.islice(filter(is_turn_start, reversed(messages)), 4)
        return min(max(map(count, latest), default=0), self.tokens // _SHARE_OF_REQUEST)
