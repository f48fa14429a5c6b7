"""Budgets in tokens: of a whole request, of the history in it, and of the history now.

The budget of the history grows for the user's message of the current turn, and follows the tokens that the model reports.
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
"""Default share of the history in a model's context window: one part in this number."""

MOST_HISTORY = 16_384
"""Largest default budget of the history: each model call pays for the whole history again."""

UNKNOWN_HISTORY = 4_096
"""Default budget of the history if the model does not know its context window; also that of a published shop assistant."""


def history_tokens(window: int | None) -> int:
    """Return the default budget of the history for a context window: a quarter, at most 16,384; 4,096 if it is unknown.

    The rest is for the system prompt, tools, quotes and the answer, and for a summary in progress: a history that is
    summarized may grow to twice its budget, and to three times at most.

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
    """The tokens set aside for each part of a request. The defaults are a published example for a shop assistant.

    Attributes:
        system: System prompt and tool specifications.
        user_context: Data about the user.
        history: The conversation so far; the limit of ``ImportanceWeightedConversationManager(max_tokens=...)``.
        current: The current user message.
        tool_results: Results of tools called while answering.
        recall: Earlier messages brought back for one call.
        state: Task state shown for one call.
        output: The answer.

    Raises:
        ValueError: A part is negative or no whole number.
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
        """All parts together, in tokens."""
        return sum(getattr(self, part.name) for part in fields(self))

    def fits(self, window: int) -> bool:
        """Whether the whole request fits a context window of ``window`` tokens."""
        return self.total <= window

    def left(self, window: int) -> int:
        """Free tokens in a context window of ``window`` tokens; negative if the request does not fit."""
        return window - self.total


def budget_plan(*, window: int | None = None, history: int | None = None, **parts: int) -> BudgetPlan:
    """Plan the tokens of a whole request; see :class:`BudgetPlan` for the parts.

    ``history`` is by default the budget of ``MangaMemory`` for a model of this ``window``: a quarter of it, at most 16,384
    tokens; 4,096 without one. ``BudgetPlan.fits(window)`` and ``left(window)`` compare the plan with a window.

    The history budget already includes the current message and its tool results when
    ``ImportanceWeightedConversationManager`` keeps it, so a plan with them set apart has room to spare.

    Raises:
        ValueError: A part is negative or no whole number, or ``window`` is not positive.
    """
    return BudgetPlan(history=history_tokens(window) if history is None else history, **parts)


# --- The context window ---------------------------------------------------------------------------

UNKNOWN_WINDOW = 128_000
"""Tokens of the context window of a model that does not know them."""

CUSHION = 13_000
RESERVED_FOR_SUMMARY = 20_000
FULL_RESERVES_FROM = 100_000
"""Windows below this have reserves scaled down."""

_TARGET = 0.75
_HARD = 0.95


@dataclass(frozen=True)
class Thresholds:
    """Sizes of a whole request, in tokens.

    Attributes:
        window: The context window.
        trigger: Size at which the request is compacted.
        target: Size after compaction.
        hard: Size at which a model call waits for the compaction.
    """

    window: int
    trigger: int
    target: int
    hard: int


def window_of(model: Any) -> int | None:
    """Return the tokens of a model's context window; None if the model does not know them."""
    window = model_setting(model, "context_window_limit")
    return window if isinstance(window, int) and window > 0 else None


def thresholds(window: int | None, *, share: float = 0.80) -> Thresholds:
    """Return the thresholds for a window.

    The trigger is the smaller of ``share`` of the window, and the window less a cushion of 13,000 tokens and 20,000 reserved
    for the summary; both reserves are scaled down for windows under 100,000.

    Args:
        window: Tokens of the context window; None if it is unknown, which counts as 128,000.
        share: Share of the window.

    Raises:
        ValueError: ``share`` is not over 0 and at most 1, or ``window`` is not positive.
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
"""A tokenizer that needs more than this is not believed."""

LOWEST_EXACT, LOWEST_ESTIMATE = 1.0, 0.8

_PLAUSIBLE = (0.5, 2.5)
_SMALLEST = 200
_WHOLE_WEIGHT = 2_048
_RISE, _FALL = 0.5, 0.2
_MOST_BELOW, _STEP = 0.02, 0.04


class Calibration:
    """Learns a model's own token ratio from the usage it reports: between 1.0, or 0.8 for a counter that estimates, and 1.6.

    The ratio rises quickly and falls slowly, small requests count for less (a provider's fixed preamble weighs most there),
    and reports that cannot be right are ignored: none at all, requests under 200 tokens, ratios under 0.5 or over 2.5. The
    ratio has two decimals and moves in few steps: budgets are made of the very value that a session stores.
    """

    __slots__ = ("_lowest", "ratio")

    def __init__(self, *, exact: bool) -> None:
        self._lowest = LOWEST_EXACT if exact else LOWEST_ESTIMATE
        self.ratio = 1.0

    def observe(self, counted: int, reported: int) -> None:
        """Adjust the ratio by one request: the tokens that were counted, and those that the model reported."""
        if counted < _SMALLEST or reported <= 0 or not _PLAUSIBLE[0] <= reported / counted <= _PLAUSIBLE[1]:
            return
        difference = round(reported / counted - self.ratio, 2)
        if -_MOST_BELOW <= difference <= 0:
            return
        part = (_RISE if difference > 0 else _FALL) * min(1.0, counted / _WHOLE_WEIGHT)
        step = min(abs(difference), max(_STEP, part * abs(difference)))
        self.restore(self.ratio + math.copysign(step, difference))

    def restore(self, ratio: float) -> None:
        """Go on from a ratio learned earlier."""
        self.ratio = min(HIGHEST, max(self._lowest, round(ratio, 2)))

    def budget(self, max_tokens: int) -> int:
        """Return the tokens of the counter that are within ``max_tokens`` by the counter and by the model."""
        return int(max_tokens / max(1.0, self.ratio))

    def reported(self, counted: int) -> int:
        """Return the tokens of the model for ``counted`` tokens of the counter, rounded up."""
        return -int(-counted * self.ratio // 1)


_OPEN_REQUESTS = 16


class RequestMeter:
    """Counts the tokens of requests, and adjusts a calibration by the usage that the model reports for them."""

    __slots__ = ("_calibration", "_counted", "_counter", "_prompt")

    def __init__(self, counter: TokenCounter, calibration: Calibration) -> None:
        self._counter = counter
        self._calibration = calibration
        self._counted: dict[int, tuple[int, type]] = {}
        self._prompt: tuple[Any, int] = (None, 0)

    def sending(self, context: InvokeModelContext, history_tokens: int, added: Sequence[ContentBlock]) -> None:
        """Count the tokens of a request: its prompt and tools, its history, and the blocks ``added`` for it."""
        tokens = self._prompt_tokens(context) + history_tokens
        if added:
            tokens += self._counter.count({"role": "user", "content": [*added]})
        if len(self._counted) >= _OPEN_REQUESTS:  # cancelled ones are never answered
            self._counted.clear()
        self._counted[id(context.invocation_state)] = tokens, type(context.model)

    def answered(self, event: AfterModelCallEvent) -> None:
        """Compare the usage reported for a request, if there is any, with the count."""
        counted, model_class = self._counted.pop(id(event.invocation_state), (0, type(None)))
        if event.stop_response is None:
            return
        usage: Any = (event.stop_response.message.get("metadata") or {}).get("usage") or {}
        self._calibration.observe(counted, prompt_tokens(usage, model_class))

    def _prompt_tokens(self, context: InvokeModelContext) -> int:
        """Count system prompt and tool specifications, again only when the prompt or the names of the tools have changed."""
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
"""At the end of a turn at most this part of the budget is left free for the next request."""

_LEAST_WITH_ROOM = 1_024
"""A smaller budget has nothing to spare, and selecting twice from so few messages costs little."""

_MOST_GIVEN_UP = 3
"""At most one part in this number of a history is given up for the turns to come."""

_LARGE_RESULTS = 8
"""Results of an ended turn that take one part in this number of a history are truncated before it is full: until it is, they
would keep other messages from staying, and the request after them seldom finds room."""


class Headroom(NamedTuple):
    """Tokens by which the budget grows, and whether they are enough to leave the user's message whole."""

    tokens: int
    is_enough: bool


NO_HEADROOM = Headroom(0, is_enough=False)


class HistoryLimits:
    """The limits of the history of one agent, by the counter's tokens and by those that the model reports.

    Attributes:
        max_tokens: Most tokens, by both.
        grow_to: Tokens to which the history may grow before it is brought back to ``max_tokens``.
        trim_to: Tokens to which a full history is brought; None: just below ``max_tokens``.
        trim_every: Number of turns like the last ones for which a full history makes room; None: for none.
        max_turns: Most turns; None: as many as fit.
        reserved: Tokens that are reserved for quotes in every request.
        calibration: The ratio of the model's tokens to the counter's.
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
        """Most tokens that are not reserved for quotes, as the model counts."""
        return self.max_tokens - self.reserved

    @property
    def tokens(self) -> int:
        """Most tokens that are not reserved for quotes, as the counter counts."""
        return self.calibration.budget(self.most)

    def reserve(self, tokens: int) -> int:
        """Reserve tokens for quotes, at most half of the budget; return the number that quotes may have.

        The part is fixed, so that the history, and with it the cached prefix, does not depend on the quotes of a question.
        """
        self.reserved = min(tokens, self.max_tokens // 2)
        return max(1, self.reserved)

    @property
    def full_tokens(self) -> int:
        """The high-water mark, as the counter counts: a history over it is trimmed."""
        return self.calibration.budget(max(self.most, self.grow_to - self.reserved))

    @property
    def has_low_mark(self) -> bool:
        """Whether a full history makes room for later turns; else it is trimmed a little in every turn."""
        return self.trim_every is not None or self._low < self.most

    @property
    def lowest(self) -> int:
        """The lowest value of the low-water mark, as the model counts."""
        if self.trim_every is None:
            return self._low
        return min(self._low, self.most - self.most // _MOST_GIVEN_UP)

    @property
    def large_results(self) -> int:
        """Tokens from which on the results of an ended turn are a reason to trim, as the model counts."""
        return self.most // _LARGE_RESULTS

    @property
    def _low(self) -> int:
        return self.most if self.trim_to is None else min(self.trim_to, self.most)

    def low_mark(self, messages: Sequence[Message], total: Callable[[Sequence[Message]], int]) -> int:
        """Return the low-water mark, as the model counts: tokens to which a full history is brought.

        Args:
            messages: The last messages, each whole.
            total: Returns the tokens of messages.
        """
        if self.trim_every is None:
            return self._low
        starts = (at for at in reversed(range(len(messages))) if is_turn_start(messages[at]))
        since = min(itertools.islice(starts, self.trim_every), default=0)
        return min(self._low, max(self.lowest, self.most - total(messages[since:])))

    def headroom(self, messages: Sequence[Message], budget: int, model: Any, count: Callable[[Message], int]) -> Headroom:
        """Return the tokens on top of a budget for the user's message of the current turn.

        Half of the budget is for that message. Its further tokens come on top, as long as the whole fits into three quarters
        of the model's window. Without a model nothing comes on top.
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
        """Return the tokens that are left free for the user's next message: those of the largest of the last four."""
        if self.tokens < _LEAST_WITH_ROOM:
            return 0
        latest = itertools.islice(filter(is_turn_start, reversed(messages)), 4)
        return min(max(map(count, latest), default=0), self.tokens // _SHARE_OF_REQUEST)
