"""Exit statuses of the command line; 0 is success."""

from __future__ import annotations

FAILED, USAGE, UNAVAILABLE = 1, 2, 3
"""A problem was found or an operation failed; the command line is invalid; a store is unavailable."""
