"""What is found for a question, and how much of a request it may take."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strands_manga_memory.conversation import (
    ArchivedMessage,
    EstimateCounter,
    HistoryRecall,
    MessageArchive,
    RecallHit,
    default_counter,
)
from strands_manga_memory.conversation import archive as archives
from strands_manga_memory.conversation.quotes import QuoteFormatter
from strands_manga_memory.conversation.recall import complete_question, find_messages
from strands_manga_memory.language.search import query_terms
from tests.unit.conversation.messages import assistant, user

DAY = 86_400.0
NOW = 1_764_000_000.0


def archive(*texts: str) -> list[ArchivedMessage]:
    return [
        ArchivedMessage(f"id{at}", "user", text, NOW - (len(texts) - at) * DAY)
        for at, text in enumerate(texts)
    ]


def found(question: str, messages: Iterable[ArchivedMessage]) -> list[RecallHit]:
    said = MessageArchive()
    said.add(messages)
    return find_messages(said, question)


def test_a_message_without_a_word_of_the_question_is_no_hit() -> None:
    filler = [f"The weather in town {at} is fine." for at in range(30)]
    said = archive(
        "My sister Aiko moved to Sendai.", *filler, "Aiko found work at the aquarium.", *filler
    )
    texts = [hit.message.text for hit in found("Where does my sister live?", said)]
    assert texts == ["My sister Aiko moved to Sendai."]


@pytest.mark.parametrize(
    ("speaker", "text", "quoted"),
    [
        ("assistant", "The workshop in Kyoto teaches glazing on Mondays.", True),
        ("user", "Two friends joined the workshop.", True),
        ("assistant", "It rains in Osaka.", False),
        ("assistant", "Noted, seat 12 at a pottery workshop.", False),
        ("assistant", "The workshop costs 4,500 yen.", True),
        ("assistant", "Thank you for telling me, that sounds great.", False),
        ("user", "Row 12 was free.", False),
        ("user", "Is the workshop open?", False),
        ("tool", "workshop: Kyoto, day: Monday", False),
        ("assistant", "The workshop has a long history. " * 30, False),
        ("assistant", "その教室は京都にあります。", False),
    ],
)
@pytest.mark.parametrize("after", [True, False])
def test_a_neighbour_that_shares_a_content_word_with_a_hit_is_found(
    speaker: str, text: str, quoted: bool, after: bool
) -> None:
    """A neighbour needs a content word of the hit. Common words and short numbers do not count."""
    filler = [
        ArchivedMessage(f"f{at}", "user", f"The weather in town {at} is fine.") for at in range(9)
    ]
    hit = ArchivedMessage("hit", "user", "I paint at a pottery workshop, seat 12.")
    pair = [hit, ArchivedMessage("near", speaker, text)]
    hits = found("Where do I paint?", [*filler, *(pair if after else reversed(pair))])
    assert [each.message.id for each in hits] == ["hit", *["near"] * quoted]


def test_an_answer_that_shares_a_word_only_with_the_question_before_it_is_not_found() -> None:
    """Neither a question of the user nor a tool result brings the answer about another title."""
    said = [
        ArchivedMessage("a", "user", "Is Akira in stock?"),
        ArchivedMessage("b", "assistant", "Akira has six volumes."),
        ArchivedMessage("c", "tool", "title: Pluto, stock: 3 in stock"),
        ArchivedMessage("d", "assistant", "Pluto has eight volumes."),
    ]
    assert "b" not in [hit.message.id for hit in found("Is Monster in stock?", said)]
    assert "d" not in [hit.message.id for hit in found("Is Monster in stock?", said)]


@pytest.mark.parametrize(
    ("question", "carried"),
    [
        ("And the second one?", True),
        ("それは?", True),
        ("What about paperback?", True),
        ("How many volumes of Monster are there in the new hardcover edition?", False),
        ("新装版の寄生獣は何巻まで出ていますか?", False),
    ],
)
def test_a_question_that_follows_another_carries_its_words(question: str, carried: bool) -> None:
    history = [
        user("Where did I buy the first Akira volume?"),
        assistant("In Kyoto."),
        user(question),
    ]
    assert ("Akira" in complete_question(question, history)) is carried


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


LONG = (
    "The shelves were dusted in the morning. Nobody came in before noon. A cat slept beside the"
    " till. "
)


HITS = st.lists(
    st.tuples(
        st.text(alphabet="ab <&>。か\n", max_size=400),
        st.floats(0, 1),
        st.sampled_from([None, 1.7e9, 1.7e9 + 90_000]),
    ),
    max_size=30,
)


@settings(max_examples=60)
@given(HITS, st.integers(1, 400), st.sampled_from([default_counter(), EstimateCounter()]))
def test_quotes_are_never_over_their_budget(drawn: list[Any], budget: int, counter: Any) -> None:
    hits = [
        RecallHit(at, ArchivedMessage(f"id{at}", "user", text, when), score)
        for at, (text, score, when) in enumerate(drawn, 1)
    ]
    text = QuoteFormatter(budget, counter).format(hits, query_terms("ab"))
    assert (
        counter.count({"role": "user", "content": [{"text": f"\n\n{text}"}]}) <= budget or not text
    )


@pytest.mark.parametrize("budget", [256, 512, 1_024])
def test_a_long_answer_is_quoted_by_the_passages_that_fit_the_question(budget: int) -> None:
    fact = "Parcels to Norway are handed over on Thursdays."
    recall = HistoryRecall(budget)
    others = [ArchivedMessage(f"id{at}", "assistant", LONG * 10, 1.7e9) for at in range(20)]
    recall.archive.add(
        [*others, ArchivedMessage("wanted", "assistant", f"{LONG * 20}{fact} {LONG * 20}", 1.7e9)]
    )
    assert fact in recall.quote("On which days are parcels to Norway handed over?", [])


def hits(*texts: str, speaker: str = "tool") -> list[RecallHit]:
    return [
        RecallHit(at, ArchivedMessage(f"id{at}", speaker, text, 1.7e9 + at), 1.0)
        for at, text in enumerate(texts, 1)
    ]


STOCK = "Uzumaki, volume 3, is on shelf 12 beside the window."
ASKED = query_terms("On which shelf is Uzumaki?")


def test_what_several_messages_say_is_quoted_once() -> None:
    quoting = QuoteFormatter(1_000, default_counter())
    assert quoting.format(hits(STOCK, f"  {STOCK}\n", STOCK), ASKED).count(STOCK) == 1


def test_of_long_results_that_share_passages_each_passage_is_quoted_once() -> None:
    quoting = QuoteFormatter(400, default_counter())
    one, other = (
        f"Listed at {hour} o'clock by the till. {LONG * 10}\n{STOCK}\nShelf {hour} was dusted."
        for hour in (9, 10)
    )
    assert quoting.format(hits(one, other), ASKED).count(STOCK) == 1


def test_what_is_shown_anyway_is_not_quoted_of_another_message() -> None:
    quoting = QuoteFormatter(1_000, default_counter())
    assert quoting.format(hits(STOCK), ASKED, shown={f"Here it is: {STOCK}": None}) == ""
    assert quoting.format(hits(STOCK), ASKED, shown={"Here it is.": None}).count(STOCK) == 1


def test_a_short_reply_is_quoted_as_often_as_it_was_given() -> None:
    text = QuoteFormatter(1_000, default_counter()).format(
        hits("Shelf 12?", "Yes.", "Shelf 14?", "Yes.", speaker="user"), ASKED
    )
    assert text.count("Yes.") == 2


def test_results_without_news_do_not_end_the_search() -> None:
    text = QuoteFormatter(4_000, default_counter()).format(
        hits(*[STOCK] * 60, "Shelf 12 is on the second floor."), ASKED
    )
    assert text.count(STOCK) == 1
    assert "second floor" in text
