"""What is known about one message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from strands.types.content import Message

from strands_manga_memory.language.dialogue_acts import DialogueAct
from strands_manga_memory.language.text_features import TextFeatures

_NO_TRAITS = TextFeatures()


@dataclass(eq=False, slots=True)
class Note:
    """What is known about a message.

    Attributes:
        tokens: Its tokens.
        score: The scorer's score, 0 to 1.
        act: What it does: a dialogue act, ``"tool_use"`` or ``"tool_result"``.
        traits: What its text shows.
        answers: Whether the message before it asked a question.
        new: How many of its words the conversation had not seen before.
        referenced: How many of its words the next messages took up.
        worth: The sum of its signals that do not change, and the weights they were added up with.
        worth_by: See ``worth``.
        gist: Of tool results and of several texts: the message cut down to its gist, and its tokens.
        takes_back: Whether it ends an instruction that stood till then.
    """

    tokens: int
    score: float
    act: str = "unmatched"
    traits: TextFeatures = _NO_TRAITS
    answers: bool = False
    new: int = 0
    referenced: int = 0
    worth: float | None = None
    worth_by: Any = None
    gist: tuple[Message, int] | None = None
    takes_back: bool = False

    @property
    def asks(self) -> bool:
        """Whether the message asks for something that it does not say itself: an offer does."""
        return self.traits.asks and self.act != DialogueAct.RECOMMENDATION
