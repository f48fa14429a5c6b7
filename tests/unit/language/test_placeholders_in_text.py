"""What the package itself writes into a history is nobody's words."""

from typing import Any

import pytest

from strands_manga_memory.conversation.truncation import cut_marker
from strands_manga_memory.language import SHOP, RuleFactExtractor, RuleSessionSummarizer
from strands_manga_memory.language.text_features import text_features
from strands_manga_memory.messages.injection import message_text, strip_placeholders
from strands_manga_memory.messages.message_parts import CUT_TEXT, PLACEHOLDER

MARKS = [
    CUT_TEXT,
    PLACEHOLDER,
    cut_marker(5_000),
    cut_marker(5_000, "4cfc3cbc"),
    '[image "Receipt May 3", 48 KB, not kept]',
]


def said(role: str, text: str) -> Any:
    return {"role": role, "content": [{"text": text}], "tracking_id": role}


@pytest.mark.parametrize("mark", MARKS)
def test_a_mark_says_nothing(mark: str) -> None:
    text = message_text(said("assistant", mark))
    assert text == ""
    assert SHOP.find(text) == []
    assert RuleFactExtractor().extract([said("user", mark), said("assistant", mark)]) == []
    assert text_features(text)[1] == frozenset()


@pytest.mark.parametrize("mark", MARKS)
def test_the_topics_of_a_session_are_not_taken_from_our_marks(mark: str) -> None:
    lines = [
        ("user", "tell me of it"),
        ("assistant", mark),
        ("user", "and of it again"),
        ("assistant", mark),
    ]
    summary = RuleSessionSummarizer()(lines, max_tokens=60)
    assert summary.topics == RuleSessionSummarizer()([lines[0], lines[2]], max_tokens=60).topics
    assert "[" not in summary.text


def test_what_is_said_around_a_mark_and_brackets_of_others_stay() -> None:
    assert strip_placeholders(f"Before.{cut_marker(12)}After.") == "Before.\n\nAfter."
    for text in ("[note] This turn was interrupted", "[1, 2]", "[...]", "nothing"):
        assert strip_placeholders(text) == text
