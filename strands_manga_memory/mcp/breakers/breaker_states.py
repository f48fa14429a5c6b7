"""The states of a breaker, and what they say of what it guards. Pure."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """State of a breaker."""

    CLOSED = "closed"
    """Calls are made."""
    OPEN = "open"
    """Calls are rejected."""
    HALF_OPEN = "half_open"
    """One call at a time, the probe, is made; the others are rejected."""


class Health(StrEnum):
    """What the state of a breaker says about what it guards."""

    HEALTHY = "healthy"
    """Closed, with fewer than half the failures that open it."""
    DEGRADED = "degraded"
    """Closed, with half of them or more (3 of 5); or half-open."""
    UNAVAILABLE = "unavailable"
    """Open."""
