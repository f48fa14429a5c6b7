"""SummaryTrigger, SummarySizes and SummarySchedule: when a summary is due, how large it is, and who waits for it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from strands_manga_memory.arguments import function, whole

Strategy = Literal["background", "async", "inline"]
"""Who waits for a summary: nobody, the next model call, or the turn that made it due."""


@dataclass(frozen=True, kw_only=True)
class SummaryTrigger:
    """When older turns are summarized, and which turns are older.

    Attributes:
        tokens: Tokens of history from which on they are. None: nearly twice the trimmer's budget, at most half the context
            window of the agent's model. Default 8,000.
        turns: Turns since the last summary from which on they are. Default 20.
        keep_recent_turns: Turns that stay whole, the current one among them. Default 3.
        hard_tokens: Tokens of history at which a model call waits for the summary. Default: one and a half times ``tokens``.
        on_warning: Called with the tokens of history and the trigger when the history comes near it.

    Raises:
        ValueError: A number is not positive, ``hard_tokens`` is below ``tokens``, or ``on_warning`` is no function.
    """

    tokens: int | None = 8_000
    turns: int = 20
    keep_recent_turns: int = 3
    hard_tokens: int | None = None
    on_warning: Callable[[int, int], None] | None = None

    def __post_init__(self) -> None:
        numbers = {"turns": self.turns, "keep_recent_turns": self.keep_recent_turns}
        numbers |= {} if self.tokens is None else {"tokens": self.tokens}
        numbers |= {} if self.hard_tokens is None else {"hard_tokens": self.hard_tokens}
        for name, number in numbers.items():
            whole(name, number, least=1)
        if self.hard_tokens is not None and self.tokens is None:
            raise ValueError(f"hard_tokens must be None if tokens is None, got {self.hard_tokens!r:.80}")
        if self.hard_tokens is not None and self.tokens is not None and self.hard_tokens < self.tokens:
            raise ValueError(f"hard_tokens must be at least tokens ({self.tokens}), got {self.hard_tokens!r:.80}")
        if self.on_warning is not None:
            function("on_warning", self.on_warning)


@dataclass(frozen=True, kw_only=True)
class SummarySizes:
    """How large a summary is, and what stays beside it.

    Attributes:
        summary_tokens: Most tokens of the summary. Default 500.
        facts_tokens: Most tokens of the facts that do not fit into it. Default: three quarters of the trimmer's budget.
        source_tokens: Most tokens of raw turns the summarizer reads at a time. Default 12,000, or 60 % of the model's window.
        keep_important: Whether covered turns of high importance stay as well, as far as the trimmer's budget allows.

    Raises:
        ValueError: A number is not a whole one, or not positive; ``facts_tokens`` may be 0.
    """

    summary_tokens: int = 500
    facts_tokens: int | None = None
    source_tokens: int | None = None
    keep_important: bool = False

    def __post_init__(self) -> None:
        whole("summary_tokens", self.summary_tokens, least=1)
        if self.facts_tokens is not None:
            whole("facts_tokens", self.facts_tokens, least=0)
        if self.source_tokens is not None:
            whole("source_tokens", self.source_tokens, least=1)


@dataclass(frozen=True, kw_only=True)
class SummarySchedule:
    """Who waits for a summary, and how long.

    Attributes:
        strategy: ``background`` (default): the summary is written beside the conversation. ``async``: the next model call waits
            for it, the event loop does not. ``inline``: the turn ends when it is there; blocks the event loop.
        wait_seconds: How long a model call waits at most. Default 30; then the trimmer makes room.
        rest_seconds: How long a summarizer that failed three times in a row is left alone. Default 300.

    Raises:
        ValueError: ``strategy`` is none of these, or a time is below 0.
    """

    strategy: Strategy = "background"
    wait_seconds: float = 30.0
    rest_seconds: float = 300.0

    def __post_init__(self) -> None:
        if self.strategy not in get_args(Strategy):
            raise ValueError(f"strategy must be one of {', '.join(map(repr, get_args(Strategy)))}, got {self.strategy!r:.80}")
        for name, seconds in (("wait_seconds", self.wait_seconds), ("rest_seconds", self.rest_seconds)):
            if not seconds >= 0:
                raise ValueError(f"{name} must be 0 or more, got {seconds!r:.80}")
