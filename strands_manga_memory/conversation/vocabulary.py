"""The conversation's own vocabulary: which words it has used, and how far its assistant speaks of itself."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

_MOST_WORDS = 20_000
_PRIOR = 10
_SERVES, _KEEPS_COMPANY = 0.05, 0.15


class Vocabulary:
    """What a conversation has used so far; of more than 20,000 words the oldest half is forgotten."""

    def __init__(self) -> None:
        self._words: dict[str, None] = {}
        self._texts = 0
        self._telling = 0

    def learn(self, words: Sequence[str]) -> int:
        """Take in the words of a message; return how many of them are new."""
        before = len(self._words)
        self._words.update(dict.fromkeys(words))  # made from a set, a dictionary would take half as much again
        new = len(self._words) - before
        if len(self._words) > _MOST_WORDS:
            self._words = dict.fromkeys(islice(self._words, _MOST_WORDS // 2, None))
        return new

    def hears(self, role: str, *, tells: bool) -> None:
        """Take note of a text: whether the assistant tells of itself in it."""
        if role == "assistant":
            self._texts += 1
            self._telling += tells

    @property
    def service(self) -> float:
        """How far the assistant serves, 1, or keeps company, 0.

        Companions tell of themselves in 15 % of their messages or more. Of an assistant that has said little, service is
        assumed.
        """
        rate = self._telling / (self._texts + _PRIOR)
        return 1.0 - min(1.0, max(0.0, (rate - _SERVES) / (_KEEPS_COMPANY - _SERVES)))
