"""The conversation's own vocabulary: which words it has used, and how far its assistant speaks of itself."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

_MOST_WORDS = 20_000
_PRIOR = 10
_SERVES, _KEEPS_COMPANY = 0.05, 0.15
_AS_LONG, _MUCH_LONGER = 2.0, 4.0
"""Among companions one says about as much as the other; who writes many times what he is asked in serves."""


class Vocabulary:
    """What a conversation has used so far; of more than 20,000 words the oldest half is forgotten."""

    __slots__ = ("_said", "_telling", "_texts", "_words")

    def __init__(self) -> None:
        self._words: dict[str, None] = {}
        self._texts = 0
        self._telling = 0
        self._said = {"user": 0, "assistant": 0}

    def learn(self, words: Sequence[str]) -> int:
        """Take in the words of a message; return how many of them are new."""
        before = len(self._words)
        self._words.update(dict.fromkeys(words))  # made from a set, a dictionary would take half as much again
        new = len(self._words) - before
        if len(self._words) > _MOST_WORDS:
            self._words = dict.fromkeys(islice(self._words, _MOST_WORDS // 2, None))
        return new

    def hears(self, role: str, *, tells: bool, tokens: int = 0) -> None:
        """Take note of a text: whether the assistant tells of itself in it, and how long it is."""
        self._said[role] = self._said.get(role, 0) + tokens
        if role == "assistant":
            self._texts += 1
            self._telling += tells

    @property
    def said(self) -> tuple[int, int, int, int]:
        """Texts of the assistant, those in which it told of itself, and the tokens of the user and of the assistant."""
        return self._texts, self._telling, self._said["user"], self._said["assistant"]

    def take_over(self, texts: int, telling: int, user: int, assistant: int) -> None:
        """Go on from what :attr:`said` was."""
        self._texts, self._telling = texts, telling
        self._said = {"user": user, "assistant": assistant}

    @property
    def service(self) -> float:
        """How far the assistant serves, 1, or keeps company, 0.

        Companions tell of themselves in 15 % of their messages or more, and say about as much as they are told. Of an assistant
        that has said little, service is assumed.
        """
        rate = self._telling / (self._texts + _PRIOR)
        tells = min(1.0, max(0.0, (rate - _SERVES) / (_KEEPS_COMPANY - _SERVES)))
        longer = self._said["assistant"] / max(1, self._said["user"])
        writes = min(1.0, max(0.0, (longer - _AS_LONG) / (_MUCH_LONGER - _AS_LONG)))
        return max(1.0 - tells, writes)
