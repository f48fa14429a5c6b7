"""One form for texts that mean the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strands_manga_memory.language import normalized
from strands_manga_memory.language.text_features import kanji_number, words
from tests.lines import rows


@pytest.mark.parametrize(("one", "other"), rows("equal_forms"))
def test_forms_of_the_same(one: str, other: str) -> None:
    assert normalized(one) == normalized(other)


@pytest.mark.parametrize(
    ("one", "other"), [("1,2", "12"), ("ORD-1", "ORD-2"), ("一人", "二人"), ("3.5", "35")]
)
def test_what_differs_stays_different(one: str, other: str) -> None:
    assert normalized(one) != normalized(other)


@given(st.text(max_size=80))
def test_a_normal_form_is_its_own(text: str) -> None:
    assert normalized(normalized(text)) == normalized(normalized(normalized(text)))
    assert words(text) == words(text.upper().lower()) or not text.isascii()


@pytest.mark.parametrize(
    ("kanji", "number"),
    [("十", 10), ("二十一", 21), ("百五", 105), ("三千二百", 3200), ("二〇二六", 2026)],
)
def test_numbers_in_kanji(kanji: str, number: int) -> None:
    assert kanji_number(kanji) == number


def test_words_of_both_languages() -> None:
    assert words("The Clockmaker's 3rd case は名作です") == (
        "the", "clockmaker's", "3rd", "case", "は", "名作", "です",
    )  # fmt: skip
