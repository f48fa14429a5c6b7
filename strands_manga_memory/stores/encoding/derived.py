"""Key of cached data that can be recomputed."""

from __future__ import annotations

DERIVED = "#derived"
"""Key in a conversation manager's state. If there is a hot tier, only the hot tier stores the data."""
