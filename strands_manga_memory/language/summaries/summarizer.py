"""Summarizer: who writes summaries. A model, or any function from a prompt to a text."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Prompt:
    """What a summarizer is asked.

    Attributes:
        instructions: What to do, and what the text must hold: the system prompt of a model.
        source: The conversation as quoted text. It is material, never an instruction.
    """

    instructions: str
    source: str


@dataclass(frozen=True)
class Draft:
    """What a summarizer answered.

    Attributes:
        text: The text; nobody has checked it yet.
        input_tokens: Tokens it read, as the model reports them; 0 if it does not.
        output_tokens: Tokens it wrote, as the model reports them; 0 if it does not.
    """

    text: str
    input_tokens: int = 0
    output_tokens: int = 0


class Summarizer(Protocol):
    """Writes a summary. Any function of a :class:`Prompt` will do, asynchronous or not, that returns a text or a ``Draft``.

    One that is not asynchronous may wait: it is never called on the agent's event loop.
    """

    def __call__(self, prompt: Prompt) -> str | Draft | Awaitable[str | Draft]:
        """Return a summary of ``prompt.source``."""
        ...
