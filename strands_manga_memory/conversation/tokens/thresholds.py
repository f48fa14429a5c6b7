"""Thresholds: from which size on a request is compacted, for any context window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from strands_manga_memory.messages.model_calls import model_setting

UNKNOWN_WINDOW = 128_000
"""Taken for a model that does not say how large its window is."""

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
        trigger: From here on it is compacted.
        target: What compaction aims at.
        hard: From here on a model call waits for it.
    """

    window: int
    trigger: int
    target: int
    hard: int


def window_of(model: Any) -> int | None:
    """Return the tokens of a model's context window; None where it does not say."""
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
