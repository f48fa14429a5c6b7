"""Exit statuses of the command line; 0 is done."""

from __future__ import annotations

FAILED, USAGE, UNAVAILABLE = 1, 2, 3
"""Something is wrong, or was not done; the command line is wrong; a store does not answer."""
