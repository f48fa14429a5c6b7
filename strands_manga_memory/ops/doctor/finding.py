"""Result of one check of a deployment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from strands_manga_memory.exceptions import StoreError


class Level(StrEnum):
    """Severity of a check's result."""

    OK = "ok"
    """The check found no problem."""
    WARNING = "warning"
    """The checked part works, but there is a risk."""
    PROBLEM = "problem"
    """The checked part does not work, or data can be lost."""


@dataclass(frozen=True)
class Finding:
    """Result of one check of a deployment.

    Args:
        check: Name of the check, such as ``hot.eviction``.
        level: Severity.
        detail: Description of the result.
        remedy: Action to take; empty if none is needed.
    """

    check: str
    level: Level
    detail: str
    remedy: str = ""


def ok(check: str, detail: str) -> Finding:
    """Return the result of a check with the level ``OK``."""
    return Finding(check, Level.OK, detail)


def warning(check: str, detail: str, remedy: str) -> Finding:
    """Return the result of a check with the level ``WARNING``."""
    return Finding(check, Level.WARNING, detail, remedy)


def problem(check: str, detail: str, remedy: str) -> Finding:
    """Return the result of a check with the level ``PROBLEM``."""
    return Finding(check, Level.PROBLEM, detail, remedy)


def first_failure(steps: Mapping[str, Callable[[], object]]) -> tuple[str, StoreError] | None:
    """Call functions in order until one fails. Return the name and the error of this function, or None if none fails.

    Args:
        steps: Functions that use a store, keyed by name.
    """
    for name, work in steps.items():
        try:
            work()
        except StoreError as error:
            return name, error
    return None


def clock_finding(check: str, skew: float, where: str) -> Finding:
    """Return the result of the check that compares a server's clock with this machine's clock.

    Args:
        check: Name of the check.
        skew: Seconds by which the server's clock is ahead of this machine's clock; negative if behind.
        where: Name of the server.
    """
    detail = f"the clock of {where} is {abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} this machine's"
    remedy = "synchronize both clocks (NTP, chrony); sessions expire by them"
    if abs(skew) > 30:
        return problem(check, detail, remedy)
    return warning(check, detail, remedy) if abs(skew) > 2 else ok(check, f"clocks agree within {max(0.1, abs(skew)):.1f} s")
