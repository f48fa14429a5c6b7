"""Records of memories, and texts of turns for recall."""

from typing import Any

import pytest

from strands_manga_memory.memory import MemoryRecord, MemoryType, Owner
from strands_manga_memory.memory.extraction import passages_of
from strands_manga_memory.memory.records import item_of, record_of
from strands_manga_memory.messages.transcripts import Utterance


def _passages(*said: tuple[str, str]) -> list[str]:
    texts = [
        (role, text, turn)
        for turn, pair in enumerate(said)
        for role, text in zip(("user", "assistant"), pair, strict=True)
    ]
    return passages_of([Utterance(role, text, turn, 1.0) for role, text, turn in texts])


def test_a_number_of_the_assistant_does_not_choose_the_corrected_turn() -> None:
    passages = _passages(
        ("Which year was Uzumaki printed?", "In 2024."),
        ("My budget is 40 pounds.", "Noted."),
        ("Actually make that 60.", "Noted for 2024."),
    )
    assert ["Actually make that 60." in passage for passage in passages] == [False, True]


def test_a_correction_of_a_long_turn_is_quoted_with_the_corrected_words() -> None:
    answer = "Here is what I found for you in our catalogue. " * 7
    passages = _passages(("I need order ORD-55120.", answer), ("No, I meant ORD-55210.", answer))
    [first, *rest] = passages
    assert first == "User: I need order ORD-55120.\nUser: No, I meant ORD-55210."
    assert all(len(passage) <= 400 for passage in rest)


def test_a_long_answer_is_split_into_passages_of_whole_sentences() -> None:
    answer = " ".join(
        f"Volume {number} has {number * 10} pages and a cover in colour." for number in range(1, 40)
    )
    passages = _passages(("How long are they?", answer))
    assert passages[0].startswith("User: How long are they?\nAssistant: Volume 1 ")
    assert all(
        passage.startswith("Assistant: Volume ") and passage.endswith("colour.")
        for passage in passages[1:]
    )
    assert max(map(len, passages)) <= 400


OWNER = Owner("u")


def record(content: str, **metadata: Any) -> MemoryRecord:
    return MemoryRecord(
        memory_id="fact#1",
        type=MemoryType.FACT,
        content=content,
        importance=0.5,
        metadata=metadata,
        created_at=1.0,
        updated_at=1.0,
    )


@pytest.mark.parametrize("text", ["4fe-1", "Infinity and NaN", "the-", "1e+9", "-Infinity", "e-"])
def test_what_a_text_reads_like_does_not_decide_how_it_is_stored(text: str) -> None:
    item = item_of(record(text, source=text), OWNER, None)
    assert item["content"] == text
    assert item["metadata"] == {"source": text}


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 1e300, 1e-300, 1 << 80, "\ud800", [float("-inf")]]
)
def test_a_value_that_a_table_lacks_is_sealed_and_comes_back(value: Any) -> None:
    known = record("likes it", score=value)
    item = item_of(known, OWNER, None)
    assert "content" not in item
    assert repr(record_of(item, OWNER, None).metadata) == repr(known.metadata)
