"""What the archive keeps, finds and forgets, by words and by vectors."""

from collections.abc import Sequence
from typing import Any

import pytest

from strands_manga_memory.conversation import ArchivedMessage, MessageArchive
from strands_manga_memory.conversation import archive as archives

MEANINGS = (
    ("cat", "kitten", "feline"),
    ("ship", "deliver", "post"),
    ("price", "cost", "expensive"),
)


def embed(texts: Sequence[str]) -> list[list[float]]:
    """One number for each meaning, and one that all texts share."""
    return [[float(any(word in t.lower() for word in w)) for w in MEANINGS] + [2.0] for t in texts]


def ids(archive: MessageArchive, question: str) -> list[str]:
    return [hit.message.id for hit in archive.search(question, 10)]


@pytest.mark.parametrize("vectors", [None, embed], ids=["words", "words and vectors"])
def test_it_keeps_the_last_and_forgets(vectors: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_MESSAGES", 3)
    archive = MessageArchive(vectors)
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


def filled(lines: Sequence[str], vectors: Any = embed) -> MessageArchive:
    archive = MessageArchive(vectors)
    archive.add(ArchivedMessage(str(at), "user", line) for at, line in enumerate(lines))
    return archive


def test_a_failing_embedding_leaves_the_search_by_words(caplog: pytest.LogCaptureFixture) -> None:
    failures = [ConnectionError("down")]

    def flaky(texts: Sequence[str]) -> list[list[float]]:
        if failures:
            raise failures.pop()
        return embed(texts)

    archive = filled(["cat", "ship"], flaky)
    assert ids(archive, "kitten") == []
    assert "error=<ConnectionError> | the embedding failed, searching by words alone" in caplog.text
    assert ids(archive, "kitten") == ["0"]


def test_vectors_find_what_shares_no_word() -> None:
    lines = ["My kitten is called Momo.", "Please deliver it on Friday.", "That is too expensive."]
    archive = filled([*lines, "Fine."])
    for question, number in (
        ("What is the name of my cat?", 0),
        ("When will it ship?", 1),
        ("What does it cost?", 2),
    ):
        best, *others = archive.search(question, 3)
        assert (best.message.text, best.is_by_words) == (lines[number], False)
        assert all(other.score < best.score / 2 for other in others)
    assert archive.search("", 3) == []
    assert MessageArchive(embed).search("cat", 3) == []


def test_a_replaced_message_is_found_by_its_new_meaning() -> None:
    archive = filled(["My kitten is called Momo.", "Fine."])
    assert ids(archive, "feline") == ["0"]
    archive.add([ArchivedMessage("0", "user", "It is too expensive.")])
    assert ids(archive, "price") == ["0"]


def test_only_the_latest_messages_have_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_MOST_EMBEDDED", 2)
    assert ids(filled(["cat", "kitten", "ship"]), "feline") == ["1"]


def test_a_bad_embedding_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    assert ids(filled(["one", "two"], lambda texts: [[1.0]]), "one") == ["0"]
    assert "error=<ValueError> | the embedding failed" in caplog.text
