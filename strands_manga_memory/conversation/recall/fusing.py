"""FusedRetriever: messages that two retrievers find, ranked by both."""

from __future__ import annotations

from collections.abc import Iterable

from strands_manga_memory.conversation.recall.archive import Archived, Bm25Retriever, Hit, Retriever

_OTHER = 0.25
"""What the scores of the other retriever count beside those by words."""


class FusedRetriever:
    """Finds what BM25 or another retriever finds; the score of a message is the sum of both, a quarter of the other one's."""

    def __init__(self, words: Bm25Retriever, other: Retriever) -> None:
        self._words = words
        self._other = other

    def add(self, messages: Iterable[Archived]) -> None:
        """Take in messages, in the order of speech; one whose id is known takes the place of what was said before under it."""
        said = list(messages)
        self._words.add(said)
        self._other.add(said)

    def search(self, question: str, limit: int) -> list[Hit]:
        """Return up to ``limit`` messages that one of both finds, the best first."""
        found = {hit.number: hit for hit in self._words.search(question, limit)}
        for hit in self._other.search(question, limit):
            number = self._words.number_of(hit.message.id)
            if number is not None:
                before = found[number].score if number in found else 0.0
                found[number] = Hit(number, hit.message, before + _OTHER * hit.score)
        return sorted(found.values(), key=lambda hit: (-hit.score, -hit.number))[:limit]

    def around(self, number: int) -> dict[int, Archived]:
        """Return the two messages before and the two after one, by number."""
        return self._words.around(number)

    def forget(self, id_: str) -> None:
        """Remove a message from both."""
        self._words.forget(id_)
        self._other.forget(id_)

    def clear(self) -> None:
        """Remove everything from both."""
        self._words.clear()
        self._other.clear()
