"""Retrievers: what the archive keeps, finds and forgets, by words and by vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from strands_manga_memory.conversation import ArchivedMessage, DenseRetriever, MessageArchive

MEANINGS = (
    ("cat", "kitten", "feline"),
    ("ship", "deliver", "post"),
    ("price", "cost", "expensive"),
)


def embed(texts: Sequence[str]) -> list[list[float]]:
    """One number for each meaning, and one that all texts share."""
    return [
        [float(any(word in text.lower() for word in words)) for words in MEANINGS] + [2.0]
        for text in texts
    ]


def ids(archive: MessageArchive, question: str) -> list[str]:
    return [hit.message.id for hit in archive.search(question, 10)]


@pytest.mark.parametrize(
    "retriever", [None, DenseRetriever(embed)], ids=["words", "words and vectors"]
)
def test_it_keeps_the_latest_replaces_and_forgets(retriever: Any) -> None:
    archive = MessageArchive(retriever, limit=3)
    archive.add(
        ArchivedMessage(str(number), "user", f"cat number {number}", 7.0) for number in range(5)
    )
    assert len(archive) == 3
    archive.add([ArchivedMessage("x", "user", "something else")])
    assert set(ids(archive, "cat")) == {"3", "4"}
    assert set(archive.neighbours(4)) == {5, 6}
    archive.add([ArchivedMessage("4", "user", "nothing")])
    assert set(ids(archive, "cat")) == {"3"}
    assert archive.neighbours(4)[5] == ArchivedMessage(
        "4", "user", "nothing", 7.0
    )  # the time it was said is still known
    archive.forget("3")
    archive.forget("unknown")
    archive.add([ArchivedMessage("3", "user", "cat")])
    assert ids(archive, "cat") == []


class Flaky:
    """A retriever that can fail, and may find texts that the archive lacks."""

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}
        self.failing = ""

    def call(self, name: str, given: Any) -> list[Any]:
        listed = list(given)
        assert listed, f"{name} was called with nothing"
        if name == self.failing:
            raise ConnectionError(name)
        return listed

    def put(self, texts: Any) -> None:
        self.texts |= dict(self.call("put", texts))

    def remove(self, numbers: Any) -> None:
        for number in self.call("remove", numbers):
            self.texts.pop(number, None)

    def search(self, question: str, limit: int) -> dict[int, float]:
        self.call("search", [question])
        return dict.fromkeys(self.texts, 1.0)


@pytest.mark.parametrize("failing", ["put", "remove"])
def test_a_retriever_gets_later_what_it_did_not_take(failing: str) -> None:
    retriever = Flaky()
    archive = MessageArchive(retriever, limit=2)
    archive.add([ArchivedMessage("1", "user", "cat"), ArchivedMessage("2", "user", "ship")])
    archive.add([])
    retriever.failing = failing
    for _ in range(2):
        archive.add([ArchivedMessage("3", "user", "price")])
    assert archive.search("price", 1)[0].message.id == "3"
    retriever.failing = ""
    archive.add([ArchivedMessage("3", "user", "price")])
    assert retriever.texts == {2: "ship", 3: "price"}


def test_a_failing_retriever_leaves_the_search_by_words(caplog: pytest.LogCaptureFixture) -> None:
    retriever = Flaky()
    archive = MessageArchive(retriever)
    retriever.failing = "search"
    archive.add([ArchivedMessage("1", "user", "cat"), ArchivedMessage("2", "user", "ship")])
    assert ids(archive, "cat") == ["1"]
    assert "error=<ConnectionError> | the retriever failed, searching by words alone" in caplog.text


def test_numbers_that_the_archive_lacks_are_skipped() -> None:
    retriever = Flaky()
    archive = MessageArchive(retriever)
    archive.add([ArchivedMessage("1", "user", "cat")])
    retriever.texts[99] = "of another conversation"
    assert ids(archive, "cat") == ["1"]


def test_vectors_find_what_shares_no_word() -> None:
    lines = [
        "My kitten is called Momo.",
        "Please deliver it on Friday.",
        "That is too expensive.",
        "Fine.",
        "  ",
    ]
    retriever = DenseRetriever(embed)
    retriever.put(enumerate(lines))
    for question, number in (
        ("What is the name of my cat?", 0),
        ("When will it ship?", 1),
        ("What does it cost?", 2),
    ):
        (best, score), *others = retriever.search(question, 3).items()
        assert (best, score) == (number, pytest.approx(1.0))
        assert all(0 < other < 0.5 for _, other in others)
    assert retriever.search("", 3) == {}
    assert DenseRetriever(embed).search("cat", 3) == {}


def test_a_dense_retriever_keeps_the_latest_texts() -> None:
    retriever = DenseRetriever(embed, limit=2)
    retriever.put(enumerate(["cat", "kitten", "ship"]))
    assert list(retriever.search("feline", 3)) == [1]


def test_a_bad_embedding_is_refused() -> None:
    retriever = DenseRetriever(lambda texts: [[1.0]])
    retriever.put([(1, "one"), (2, "two")])
    with pytest.raises(ValueError, match="embed must return one vector for each text, got 1 for 2"):
        retriever.search("one", 3)
