"""Finding: what one check has found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    """As it should be."""
    WARNING = "warning"
    """It works, with a risk that should be known."""
    PROBLEM = "problem"
    """Something does not work, or data can be lost."""


@dataclass(frozen=True)
class Finding:
    """What one check has found.

    Args:
        check: What was looked at, such as ``hot.eviction``.
        level: How bad it is.
        detail: What was found.
        remedy: What to do; empty if there is nothing to do.
    """

    check: str
    level: Level
    detail: str
    remedy: str = ""


def ok(check: str, detail: str) -> Finding:
    """Return that all is well."""
    return Finding(check, Level.OK, detail)


def warning(check: str, detail: str, remedy: str) -> Finding:
    """Return a risk."""
    return Finding(check, Level.WARNING, detail, remedy)


def problem(check: str, detail: str, remedy: str) -> Finding:
    """Return something that does not work."""
    return Finding(check, Level.PROBLEM, detail, remedy)


def clock_finding(check: str, skew: float, where: str) -> Finding:
    """Judge how far a server's clock is ahead of ours, in seconds."""
    said = f"the clock of {where} is {abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} this machine's"
    remedy = "synchronize both clocks (NTP, chrony); sessions expire by them"
    if abs(skew) > 30:
        return problem(check, said, remedy)
    return warning(check, said, remedy) if abs(skew) > 2 else ok(check, f"clocks agree within {max(0.1, abs(skew)):.1f} s")
