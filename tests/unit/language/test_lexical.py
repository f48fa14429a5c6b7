"""The lexical index: what is found in English and Japanese, and that no query breaks it."""

from hypothesis import given
from hypothesis import strategies as st

from strands_manga_memory.language import LexicalIndex
from strands_manga_memory.language.search import term_overlap


def index(*texts: str) -> LexicalIndex[str]:
    made = LexicalIndex[str]()
    made.put((str(number), text, "") for number, text in enumerate(texts))
    return made


def test_by_stem_rank_and_rarity() -> None:
    found = index("I collect horror manga", "I read manga", "delivery on Saturday").search(
        "collecting manga?"
    )
    assert list(found) == ["0", "1"]
    assert found["0"] == 1.0
    assert 0 < found["1"] < 1


def test_japanese_without_spaces_and_full_width() -> None:
    found = index(
        "寄生獣の新装版を買いました", "ドラゴンボールの最新刊", "ＵＺＵＭＡＫＩを読んだ"
    ).search("寄生獣はありますか？")
    assert list(found) == ["0"]
    assert list(index("ＵＺＵＭＡＫＩを読んだ").search("uzumaki")) == ["0"]


def test_neighbours_count_less() -> None:
    made = LexicalIndex[str]()
    made.put(
        [
            ("answer", "Yes, on Friday", "When does Uzumaki arrive?"),
            ("question", "When does Uzumaki arrive?", ""),
        ]
    )
    assert list(made.search("uzumaki arrive")) == ["question", "answer"]


def test_replaced_and_removed_texts_are_gone() -> None:
    made = index("horror", "romance")
    made.put([("0", "comedy", "")])
    made.remove(["1", "unknown"])
    assert made.search("horror romance") == {}
    assert list(made.search("comedy")) == ["0"]
    assert len(made) == 1


@given(st.text(max_size=80))
def test_no_query_breaks_it(query: str) -> None:
    found = index("horror manga", 'quo"ted AND (near) OR * col:umn').search(query)
    assert all(0 < value <= 1 for value in found.values())


def test_overlap() -> None:
    assert term_overlap("horror manga", "He reads horror") == 0.5
    assert term_overlap("", "anything") == 1.0
