"""The ratio between what a model says a request had and what we counted."""

from __future__ import annotations

HIGHEST = 1.6
"""A tokenizer that needs more than this is not believed."""

LOWEST_EXACT, LOWEST_ESTIMATE = 1.0, 0.8

_PLAUSIBLE = (0.5, 2.5)
_SMALLEST = 200
_WHOLE_WEIGHT = 2_048
_RISE, _FALL = 0.5, 0.2
_STEP = 0.05


class Calibration:
    """Learns a model's own token ratio from the usage it reports: between 1.0, or 0.8 for a counter that estimates, and 1.6.

    The ratio rises quickly and falls slowly, small requests count for less (a provider's fixed preamble weighs most there),
    and reports that cannot be right are ignored: none at all, requests under 200 tokens, ratios under 0.5 or over 2.5.
    """

    __slots__ = ("_lowest", "ratio", "settled")

    def __init__(self, *, exact: bool) -> None:
        self._lowest = LOWEST_EXACT if exact else LOWEST_ESTIMATE
        self.ratio = 1.0
        self.settled = 1.0

    def observe(self, counted: int, reported: int) -> None:
        """Take in one request: the tokens we counted in all of it, and those the model reported."""
        if counted < _SMALLEST or reported <= 0 or not _PLAUSIBLE[0] <= reported / counted <= _PLAUSIBLE[1]:
            return
        seen = reported / counted
        step = (_RISE if seen > self.ratio else _FALL) * min(1.0, counted / _WHOLE_WEIGHT)
        self.restore(self.ratio + step * (seen - self.ratio), self.settled)
        if abs(self.ratio - self.settled) >= _STEP:
            self.settled = round(self.ratio, 2)

    def restore(self, ratio: float, settled: float | None = None) -> None:
        """Go on from a ratio learned earlier."""
        self.ratio = min(HIGHEST, max(self._lowest, ratio))
        self.settled = round(self.ratio, 2) if settled is None else settled

    def budget(self, max_tokens: int) -> int:
        """Return how many of our tokens keep within ``max_tokens`` both by our count and by the model's."""
        return int(max_tokens / max(1.0, self.ratio))

    def reported(self, counted: int) -> int:
        """Return what the model would say of ``counted`` tokens of ours, rounded up."""
        return -int(-counted * self.ratio // 1)
