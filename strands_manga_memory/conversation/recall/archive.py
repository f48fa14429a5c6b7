"""The archive: every message of a conversation, findable by what it says."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from strands_manga_memory.arguments import positive
from strands_manga_memory.language.search import LexicalIndex


@dataclass(frozen=True, slots=True)
class Archived:
    """A message as the archive keeps it.

    Attributes:
        id: Its tracking id.
        speaker: ``"user"``, ``"assistant"`` or ``"tool"``.
        text: What it says.
        at: When, in seconds since the epoch; None if that is not known.
    """

    id: str
    speaker: str
    text: str
    at: float | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """A message that was found: its number in the order of speech, from 1, itself, and how well it fits."""

    number: int
    message: Archived
    score: float


class Retriever(Protocol):
    """Finds messages by what they say. Called from several threads, one at a time; never on an event loop."""

    def add(self, messages: Iterable[Archived]) -> None:
        """Take in messages, in the order of speech; one whose id is known takes the place of what was said before under it."""

    def search(self, question: str, limit: int) -> list[Hit]:
        """Return up to ``limit`` messages that fit best, the best first, with scores above 0."""

    def around(self, number: int) -> dict[int, Archived]:
        """Return the two messages before and the two after one, by number."""

    def forget(self, id_: str) -> None:
        """Remove a message, so that nothing of it is found any more."""

    def clear(self) -> None:
        """Remove everything."""


class Index(Protocol):
    """Texts by number, each with what is beside it, and how well they fit a question."""

    def put(self, texts: Iterable[tuple[int, str, str]]) -> None:
        """Add or replace texts."""

    def remove(self, numbers: Iterable[int], /) -> None:
        """Forget texts."""

    def search(self, query: str, *, limit: int | None = None) -> dict[int, float]:
        """Return the texts that fit a question, the best first; its score is 1."""


class Shelf:
    """The last messages of a conversation by number, in the order of speech, from 1, found by an index. Thread-safe.

    Args:
        most: Most messages to keep; the oldest go first.
        index: Makes an empty index.

    Raises:
        ValueError: ``most`` is not a positive whole number.
    """

    def __init__(self, most: int, index: Callable[[], Index]) -> None:
        self._most = positive("most", most)
        self._make = index
        self._lock = threading.Lock()
        self.clear()

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, messages: Iterable[Archived]) -> None:
        """Take in messages, in the order of speech; one whose id is known takes the place of what was said before under it."""
        with self._lock:
            changed: dict[int, Archived] = {}
            for message in list(messages):  # all of them or, if they cannot be read, none
                number = self._numbers.get(message.id) or self._numbers.setdefault(message.id, next(self._next))
                known = self._messages.get(number)
                if known is None or known.text != message.text:
                    at = message.at if known is None or message.at is not None else known.at
                    self._messages[number] = changed[number] = message if at == message.at else replace(message, at=at)
            gone = list(itertools.islice(self._messages, max(0, len(self) - self._most)))
            for number in gone:
                del self._numbers[self._messages.pop(number).id]
                changed.pop(number, None)
            self._index.remove(gone)
            self._index.put((number, message.text, "") for number, message in changed.items())

    def search(self, question: str, limit: int) -> list[Hit]:
        """Return up to ``limit`` messages that fit the question, the best first; its score is 1."""
        with self._lock:
            found = self._index.search(question, limit=limit)
            return [Hit(number, self._messages[number], score) for number, score in found.items()]

    def number_of(self, id_: str) -> int | None:
        """Return the number of a message in the order of speech; None if it is not known."""
        with self._lock:
            return self._numbers.get(id_)

    def around(self, number: int) -> dict[int, Archived]:
        """Return the two messages before and the two after one, by number."""
        near = (number - 2, number - 1, number + 1, number + 2)
        with self._lock:
            return {at: self._messages[at] for at in near if at in self._messages}

    def forget(self, id_: str) -> None:
        """Remove a message."""
        with self._lock:
            number = self._numbers.pop(id_, None)
            if number is not None:
                del self._messages[number]
                self._index.remove([number])

    def clear(self) -> None:
        """Remove everything."""
        with self._lock:
            self._numbers: dict[str, int] = {}
            self._messages: dict[int, Archived] = {}
            self._next = itertools.count(1)
            self._index = self._make()


class Bm25Retriever(Shelf):
    """BM25 over single messages, English and Japanese, in memory: nothing of it outlives the process. Thread-safe.

    A message that shares a term with the question is found. Common words are left out of a question where rarer ones say
    enough, so that a question takes milliseconds.

    Args:
        most: Most messages to keep; the oldest go first. A message takes some 700 bytes beside its text.

    Raises:
        ValueError: ``most`` is not a positive whole number.
    """

    _index: LexicalIndex[int]

    def __init__(self, *, most: int = 50_000) -> None:
        super().__init__(most, LexicalIndex[int])

    @property
    def index_bytes(self) -> int:
        """The size of the inverted index, without the messages."""
        with self._lock:
            return self._index.size
