"""A tool that goes on in its thread until somebody has the agent's answer."""

import threading
from typing import Any

from strands import tool


def endless_tool() -> tuple[Any, threading.Event, threading.Event]:
    """Return the tool, the event that ends it, and the event that it sets at its end."""
    answered, ended = threading.Event(), threading.Event()

    @tool
    def endless() -> str:
        """Go on until the agent has answered."""
        answered.wait(30)
        ended.set()
        return "ended"

    return endless, answered, ended
