"""Passages of a text, and those that fit a question."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strands_manga_memory.language.search import GAP, excerpt_for_query, query_terms, split_passages
from tests.lines import rows

FILLER = (
    "The shelves of the shop were dusted in the morning. Nobody came in before noon. A cat slept"
    " beside the till. "
)


def characters(text: str) -> int:
    return len(text)


@given(st.text(max_size=2_000) | st.text(st.sampled_from("ab .!?。！」`\n|-*1\t"), max_size=300))
def test_passages_of_any_text_joined_are_the_text(text: str) -> None:
    found = split_passages(text)
    assert "".join(found) == text
    assert all(0 < len(passage) <= 600 for passage in found)


@pytest.mark.parametrize(("text", "expected"), rows("passages"))
def test_a_sentence_an_item_a_row_and_code_are_passages(text: str, expected: list[str]) -> None:
    assert split_passages(text) == expected


@pytest.mark.parametrize(
    ("fact", "question"),
    [
        ("Parcels to Norway are handed over on Thursdays.", "When do parcels to Norway leave?"),
        ("ノルウェー宛の荷物は木曜日に発送します。", "ノルウェーへの発送はいつですか？"),
    ],
)
def test_the_answer_is_quoted_from_the_middle_of_a_long_text(fact: str, question: str) -> None:
    text = f"{FILLER * 12}{fact} {FILLER * 12}"
    found = excerpt_for_query(text, query_terms(question), 300, characters)
    assert fact in found
    assert len(found) <= 300
    assert GAP.strip() in found


def test_what_shares_nothing_with_the_question_is_left_out() -> None:
    text = f"{FILLER * 3}Volume nine is out of print. {FILLER * 3}"
    assert (
        "cat"
        not in excerpt_for_query(
            text, query_terms("Is volume nine in print?"), 400, characters
        ).split("print.")[0]
    )


def test_a_text_that_shares_nothing_with_the_question_gives_its_beginning() -> None:
    assert excerpt_for_query(FILLER * 9, query_terms("zebra"), 120, characters).startswith(
        "The shelves"
    )


def test_a_large_text_is_not_counted_whole() -> None:
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return len(text)

    assert len(excerpt_for_query(FILLER * 3_000, query_terms("zebra"), 300, count)) > 200
    assert len(counted) < 100


@pytest.mark.parametrize("records", [False, True])
@given(
    st.text(max_size=600) | st.text(st.sampled_from("ab: ,;。.\n"), max_size=200),
    st.text(max_size=40) | st.just("ab ba aab"),
    st.integers(0, 400),
)
def test_an_excerpt_stays_within_its_budget(
    records: bool, text: str, question: str, most: int
) -> None:
    excerpt = excerpt_for_query(text, query_terms(question), most, characters, records=records)
    assert len(excerpt) <= max(most, 0)


RECORDS = (
    "asin: B07X1234, title: 灯台守の星郵便, about_ja: 少女の静かな物語。, about_en: A keeper posts"
    " letters by star.\nasin: B07X2201, title: 硝子町の夜回り探偵, about_ja: 夜回りの探偵。"
    " 手がかりは硝子。, about_en: The clue is a reflection."
)


def test_a_part_of_a_record_begins_at_a_field_or_a_sentence() -> None:
    assert [part.strip() for part in split_passages(RECORDS)] == [
        "asin: B07X1234, title: 灯台守の星郵便, about_ja: 少女の静かな物語。,",
        "about_en: A keeper posts letters by star.",
        "asin: B07X2201, title: 硝子町の夜回り探偵, about_ja: 夜回りの探偵。",
        "手がかりは硝子。,",
        "about_en: The clue is a reflection.",
    ]


def test_a_long_record_is_cut_before_a_field() -> None:
    text = ", ".join(f"field_{number}: some words on number {number}" for number in range(60))
    assert all(part.startswith("field_") and len(part) <= 600 for part in split_passages(text))


def test_a_quote_from_the_middle_of_a_record_begins_with_its_first_fields() -> None:
    found = excerpt_for_query(
        RECORDS, query_terms("Who posts letters?"), 120, characters, records=True
    )
    assert (
        found
        == "asin: B07X1234, title: 灯台守の星郵便 [...] about_en: A keeper posts letters by star."
        " [...]"
    )
    found = excerpt_for_query(
        RECORDS, query_terms("手がかりは硝子？ reflection"), 120, characters, records=True
    )
    assert (
        found
        == "asin: B07X2201, title: 硝子町の夜回り探偵 [...] 手がかりは硝子。, about_en: The clue is"
        " a reflection. [...]"
    )


def test_a_quote_of_whole_records_is_the_records() -> None:
    assert (
        excerpt_for_query(
            RECORDS,
            query_terms("letters 探偵 reflection 手がかり 物語"),
            600,
            characters,
            records=True,
        )
        == RECORDS
    )
