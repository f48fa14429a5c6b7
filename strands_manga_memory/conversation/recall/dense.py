"""DenseRetriever: finds messages by what they mean, with vectors that the user's own function makes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import islice

from strands_manga_memory.arguments import function
from strands_manga_memory.conversation.recall.archive import Shelf
from strands_manga_memory.language.search import Embed, dot, embed_texts

_AT_A_TIME = 64


class DenseRetriever(Shelf):
    """Compares a question with every message, by vectors. In memory; thread-safe.

    A message is embedded when a question first needs it; those are found that are more like the question than most are. 1,000
    messages of 384 numbers take a question about 15 ms; for more than some thousands put a vector database behind the
    ``Retriever`` protocol.

    Args:
        embed: From texts to vectors of one length; may wait for a model, it is never called on the event loop.
        most: Most messages to keep; the oldest go first.

    Raises:
        ValueError: ``embed`` is not a function, or ``most`` is not a positive whole number. From ``search``: ``embed`` did not
            return one vector of one length for each text.
    """

    def __init__(self, embed: Embed, *, most: int = 5_000) -> None:
        super().__init__(most, partial(_Vectors, function("embed", embed, "a function from texts to vectors")))


class _Vectors:
    """Texts by number, and their vectors as far as a question needed them."""

    def __init__(self, embed: Embed) -> None:
        self._embed = embed
        self._vectors: dict[int, list[float]] = {}
        self._missing: dict[int, str] = {}

    def put(self, texts: Iterable[tuple[int, str, str]]) -> None:
        """Add or replace texts; blank ones are like nothing."""
        for number, text, _ in texts:
            self.remove([number])
            if text.strip():
                self._missing[number] = text

    def remove(self, numbers: Iterable[int]) -> None:
        """Forget texts."""
        for number in numbers:
            self._vectors.pop(number, None)
            self._missing.pop(number, None)

    def search(self, query: str, *, limit: int | None = None) -> dict[int, float]:
        """Return the texts that are more like a question than usual, the best first; its score is 1."""
        while part := dict(islice(self._missing.items(), _AT_A_TIME)):
            vectors = embed_texts(self._embed, list(part.values()))
            self._vectors.update(zip(part, vectors, strict=True))
            for number in part:
                del self._missing[number]
        if not self._vectors or not query.strip():
            return {}
        asked = embed_texts(self._embed, [query])[0]
        alike = {number: dot(asked, vector) for number, vector in self._vectors.items()}
        # Vectors of one model are all somewhat alike: what counts is by how much more than usual.
        usual = sum(alike.values()) / len(alike) if len(alike) > 1 else 0.0
        best = max(alike.values()) - usual
        found = sorted((number for number in alike if alike[number] > usual), key=lambda number: -alike[number])
        return {number: (alike[number] - usual) / best for number in found[:limit]}
