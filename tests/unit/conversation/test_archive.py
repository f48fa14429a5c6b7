"""Retrievers: what the archive keeps, finds and forgets, by words and by vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from strands_manga_memory.conversation import ArchivedMessage, Bm25Retriever, DenseRetriever, Retriever

MEANINGS = (("cat", "kitten", "feline"), ("ship", "deliver", "post"), ("price", "cost", "expensive"))


def embed(texts: Sequence[str]) -> list[list[float]]:
    """One number for each meaning, and one that all texts share."""
    return [[float(any(word in text.lower() for word in words)) for words in MEANINGS] + [2.0] for text in texts]


def bm25(most: int = 50) -> Retriever:
    return Bm25Retriever(most=most)


def dense(most: int = 50) -> Retriever:
    return DenseRetriever(embed, most=most)


@pytest.mark.parametrize("made", [bm25, dense])
def test_it_keeps_the_latest_replaces_and_forgets(made: Any) -> None:
    retriever = made(3)
    retriever.add(ArchivedMessage(str(number), "user", f"cat number {number}", 7.0) for number in range(5))
    assert len(retriever) == 3
    retriever.add([ArchivedMessage("x", "user", "something else")])
    assert {hit.message.id for hit in retriever.search("cat", 10)} == {"3", "4"}
    assert set(retriever.around(4)) == {5, 6}
    retriever.add([ArchivedMessage("4", "user", "nothing")])
    assert {hit.message.id for hit in retriever.search("cat", 10)} == {"3"}
    assert retriever.around(4)[5] == ArchivedMessage("4", "user", "nothing", 7.0)  # the time it was said is still known
    retriever.forget("3")
    retriever.forget("unknown")
    assert retriever.search("cat", 10) == []
    retriever.clear()
    assert len(retriever) == 0
    retriever.add([ArchivedMessage("3", "user", "cat"), ArchivedMessage("4", "user", "ship")])
    assert [hit.message.id for hit in retriever.search("cat", 10)] == ["3"]


def test_vectors_find_what_shares_no_word() -> None:
    lines = ["My kitten is called Momo.", "Please deliver it on Friday.", "That is too expensive.", "Fine.", "  "]
    retriever = dense()
    retriever.add(ArchivedMessage(str(at), "user", line) for at, line in enumerate(lines))
    for question, id_ in (("What is the name of my cat?", "0"), ("When will it ship?", "1"), ("What does it cost?", "2")):
        best, *others = retriever.search(question, 3)
        assert (best.message.id, best.score) == (id_, pytest.approx(1.0))
        assert all(0 < hit.score < 0.5 for hit in others)
    assert retriever.search("", 3) == []
    assert DenseRetriever(embed).search("cat", 3) == []


@pytest.mark.parametrize("made", [bm25, dense])
@pytest.mark.parametrize("most", [0, -1, True, 1.5])
def test_a_bad_bound_is_refused(made: Any, most: Any) -> None:
    with pytest.raises(ValueError, match=f"most must be a positive whole number, got {most}"):
        made(most)


def test_a_bad_embedding_is_refused() -> None:
    with pytest.raises(ValueError, match="embed must be a function from texts to vectors, got 3"):
        DenseRetriever(3)  # type: ignore[arg-type]
    retriever = DenseRetriever(lambda texts: [[1.0]])
    retriever.add([ArchivedMessage("1", "user", "one"), ArchivedMessage("2", "user", "two")])
    with pytest.raises(ValueError, match="embed must return one vector for each text, got 1 for 2"):
        retriever.search("one", 3)
