"""What is noted about each message, once: its tokens and what it is worth."""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from strands.types.content import Message

from strands_manga_memory.conversation.ledger import Ledger
from strands_manga_memory.conversation.scoring import ImportanceScorer, ImportanceWeights
from strands_manga_memory.conversation.tokens import TokenCounter

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Note:
    """The tokens of a message and its score, 0 to 1."""

    tokens: int
    score: float


class Notes(Ledger[Note]):
    """Notes on the messages of one history.

    A scorer that fails, or gives no number, leaves a message at the score of one that no rule knows; that is logged once.

    Args:
        counter: Counts the tokens of a message.
        scorer: Says what a message is worth; its ``score`` may take the message alone or the history as well.
        history: Returns the present history, for the scorer.
    """

    def __init__(self, counter: TokenCounter, scorer: ImportanceScorer, history: Callable[[], Sequence[Message]]) -> None:
        super().__init__(self._note)
        self._counter = counter
        self._scorer = scorer
        self._history = history
        self._takes_history = _takes_history(scorer)
        self._warned = False

    def total(self, messages: Iterable[Message]) -> int:
        """Return the tokens of all ``messages`` together."""
        return sum(self(message).tokens for message in messages)

    def _note(self, message: Message) -> Note:
        return Note(self._counter.count(message), self._score(message))

    def _score(self, message: Message) -> float:
        try:
            value = self._scorer.score(message, self._history()) if self._takes_history else self._scorer.score(message)
            if not math.isnan(value):
                return min(1.0, max(0.0, float(value)))
            problem = "it is no number"
        except Exception as error:  # a scorer is the user's own code and must not end the conversation
            problem = type(error).__name__
            logger.debug("the scorer failed", exc_info=True)
        if not self._warned:
            self._warned = True
            logger.warning("scorer=<%s>, problem=<%s> | a score is unusable", type(self._scorer).__name__, problem)
        return ImportanceWeights().unmatched


def _takes_history(scorer: ImportanceScorer) -> bool:
    try:
        inspect.signature(scorer.score).bind({}, [])
    except (TypeError, ValueError):
        return False
    return True
