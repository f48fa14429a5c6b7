"""DenseRetriever: finds messages by what they mean, with vectors that the user's own function makes."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from strands_manga_memory.arguments import function
from strands_manga_memory.conversation.recall.archive import Archived, Hit, Shelf
from strands_manga_memory.language.search.embedding import Embed, dot, embedded

_AT_A_TIME = 64


class DenseRetriever:
    """Compares a question with every message, by vectors. In memory; thread-safe.

    A message is embedded when a question first needs it. 1,000 messages of 384 numbers take a question about 15 ms; for more
    than some thousands put a vector database behind the ``Retriever`` protocol.

    Args:
        embed: From texts to vectors of one length; may wait for a model, it is never called on the event loop.
        most: Most messages to keep; the oldest go first.

    Raises:
        ValueError: ``embed`` is not a function, or ``most`` is not a positive whole number.
    """

    def __init__(self, embed: Embed, *, most: int = 5_000) -> None:
        self._embed = function("embed", embed, "a function from texts to vectors")
        self._lock = threading.Lock()
        self._shelf = Shelf(most)
        self._vectors: dict[int, list[float]] = {}
        self._missing: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._shelf)

    def add(self, messages: Iterable[Archived]) -> None:
        """Take in messages, in the order of speech; one whose id is known takes the place of what was said before under it."""
        with self._lock:
            changed, gone = self._shelf.put(messages)
            for number in (*changed, *gone):
                self._vectors.pop(number, None)
                self._missing.pop(number, None)
            self._missing.update((number, message.text) for number, message in changed.items() if message.text.strip())

    def search(self, question: str, limit: int) -> list[Hit]:
        """Return up to ``limit`` messages more like the question than most are, the best first; its score is 1.

        Raises:
            ValueError: ``embed`` did not return one vector of one length for each text.
        """
        with self._lock:
            missing = list(self._missing.items())
            for start in range(0, len(missing), _AT_A_TIME):
                part = missing[start : start + _AT_A_TIME]
                vectors = embedded(self._embed, [text for _, text in part])
                self._vectors.update((number, vector) for (number, _), vector in zip(part, vectors, strict=True))
                for number, _ in part:
                    del self._missing[number]
            if not self._vectors or not question.strip():
                return []
            asked = embedded(self._embed, [question])[0]
            alike = {number: dot(asked, vector) for number, vector in self._vectors.items()}
            # Vectors of one model are all somewhat alike: what counts is by how much more than usual.
            usual = sum(alike.values()) / len(alike) if len(alike) > 1 else 0.0
            best = max(alike.values()) - usual
            found = sorted((number for number in alike if alike[number] > usual), key=lambda number: -alike[number])
            return [Hit(number, self._shelf[number], (alike[number] - usual) / best) for number in found[:limit]]

    def around(self, number: int) -> dict[int, Archived]:
        """Return the two messages before and the two after one, by number."""
        with self._lock:
            return self._shelf.around(number)

    def forget(self, id_: str) -> None:
        """Remove a message."""
        with self._lock:
            number = self._shelf.remove(id_)
            if number is not None:
                self._vectors.pop(number, None)
                self._missing.pop(number, None)

    def clear(self) -> None:
        """Remove everything."""
        with self._lock:
            self._shelf = Shelf(self._shelf.most)
            self._vectors.clear()
            self._missing.clear()
