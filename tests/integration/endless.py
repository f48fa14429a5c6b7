"""A tool that goes on in its thread until somebody has the agent's answer."""

from __future__ import annotations

import threading
from typing import Any

from strands import tool


def endless_tool() -> tuple[Any, threading.Event, threading.Event]:
    """Return the tool, what to set once the agent has answered, and what is set when the tool
    ends.
    """
    answered, ended = threading.Event(), threading.Event()

    @tool
    def endless() -> str:
        """Go on until the agent has answered."""
        answered.wait(30)
        ended.set()
        return "ended"

    return endless, answered, ended
