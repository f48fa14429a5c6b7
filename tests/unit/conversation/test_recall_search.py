"""What is found for a question, and how much of a request it may take."""

from collections.abc import Iterable

import pytest

from strands_manga_memory.conversation import ArchivedMessage, MessageArchive, RecallHit
from strands_manga_memory.conversation.recall import complete_question, find_messages
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
