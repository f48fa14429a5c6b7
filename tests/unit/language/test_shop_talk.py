"""Japanese shop talk: what lines do, and whether a question finds the line that answers it."""

from collections import Counter

import pytest

from strands_manga_memory.conversation import ArchivedMessage, MessageArchive
from strands_manga_memory.language import dialogue_act
from strands_manga_memory.language.search import query_terms, search_terms
from strands_manga_memory.language.text_features import text_features
from tests.lines import rows

ACTS, PARAPHRASES = rows("shop_acts"), rows("paraphrases")
CLASSES = {"farewell": "greeting", "unmatched": "other", "constraint": "other", "decision": "other"}


def guessed(role: str, text: str) -> str:
    act = dialogue_act(text, role).value
    return CLASSES.get(act, act)


@pytest.mark.parametrize(
    "act", ["preference", "correction", "recommendation", "acknowledgement", "greeting"]
)
def test_acts_of_a_hundred_lines_are_told_with_an_f1_of_nine_tenths(act: str) -> None:
    assert len(ACTS) == 100
    outcome = Counter((gold == act, guessed(role, text) == act) for role, text, gold in ACTS)
    f1 = (
        2
        * outcome[True, True]
        / (2 * outcome[True, True] + outcome[False, True] + outcome[True, False])
    )
    wrong = [text for role, text, gold in ACTS if (gold == act) != (guessed(role, text) == act)]
    assert f1 >= 0.9, wrong


def test_a_question_finds_its_answer_among_the_first_three() -> None:
    archive = MessageArchive()
    lines = [text for _, text in PARAPHRASES] + [text for _, text, _ in ACTS]
    archive.add(ArchivedMessage(str(at), "user", text) for at, text in enumerate(lines))
    missed = [
        question
        for question, answer in PARAPHRASES
        if answer not in [hit.message.text for hit in archive.search(question, 3)]
    ]
    assert len(PARAPHRASES) == 40
    assert len(missed) <= 2, missed


def test_terms_are_stems_and_pairs_of_characters() -> None:
    assert search_terms("The cats were running, weren't they?") == ["cat", "run", "weren"]
    assert search_terms("新装版") == ["新", "装", "版", "新装", "装版"]
    assert set(search_terms("ＡＢＣ１２")) == {"abc12"}
    assert set(search_terms("価格")) <= set(query_terms("値段は?"))


def test_traits_of_a_text() -> None:
    found, said = text_features("On Friday I bought 3 books by Naoki Urasawa, do you have more?")
    assert (found.has_number, found.has_time, found.ends_with_question, found.is_about_speaker) == (
        True,
        True,
        True,
        True,
    )
    assert found.name_count >= 2
    assert {"books", "bought"} <= said
    assert text_features("I have booked the table for you.")[0].is_about_speaker is False
    japanese, said = text_features("私は来週、『夏の塔』を三冊買いたいです。")
    assert (
        japanese.has_number,
        japanese.has_time,
        japanese.has_wish,
        japanese.is_about_speaker,
    ) == (True, True, True, True)
    assert "夏" in "".join(said)
