"""A memory is injected only if its own text shares a content word with the user's question."""

import re
from pathlib import Path

import pytest

from strands_manga_memory import ConversationScope, MangaMemory
from strands_manga_memory.testing import ScriptedModel

ENGLISH = (
    ("Hello, I'm looking for a book.", "Welcome!"),
    ("Is the spiral horror book gory?", "No, it is quiet."),
    ("How much is shipping?", "350 yen."),
    ("Oh, sorry, that is all if anything comes up.", "You're welcome!"),
    ("Thanks, bye bye!", "Goodbye!"),
)
JAPANESE = (
    ("こんにちは。本を探しています。", "いらっしゃいませ。"),
    ("うずまきの漫画はグロいですか？", "いいえ、静かです。"),
    ("送料はいくらですか？", "350円です。"),
    ("注文番号は何でしたっけ？", "ORD-12345です。"),
    ("ありがとう、さようなら。", "またお待ちしております。"),
)


def _injected(folder: Path, talk: tuple[tuple[str, str], ...], question: str) -> str:
    """Return the text injected into the first request of a session after given turns."""
    url = f"sqlite:///{folder / 'm.sqlite3'}"
    with MangaMemory.open(durable=url, memories=True) as memory:
        model = ScriptedModel([answer for _, answer in talk])
        agent = memory.agent(model, user_id="u1", session_id="s1")
        for text, _ in talk:
            agent(text)
        memory.finalize(ConversationScope("u1", "s1"))
    with MangaMemory.open(durable=url, memories=True) as memory:
        model = ScriptedModel(["Let me see."])
        memory.agent(model, user_id="u1", session_id="s2")(question)
        texts = [b["text"] for b in model.requests[0].messages[-1]["content"] if "text" in b]
        return "\n".join(
            line
            for text in texts
            for line in text.splitlines()
            if re.match(r"- \d{4}-\d\d-\d\d: (User|Assistant):", line)
        )


@pytest.mark.parametrize(
    ("talk", "question"),
    [
        (ENGLISH, "Recommend a cookbook with soups."),
        (ENGLISH, "Do you have anything new for me?"),
        (ENGLISH, "How much is it?"),
        (JAPANESE, "スープの料理の本はありますか？"),
        (JAPANESE, "これはいくつですか？"),
    ],
)
def test_unrelated_passages_stay_out(
    tmp_path: Path, talk: tuple[tuple[str, str], ...], question: str
) -> None:
    """Greetings and other subjects stay out, also next to a related passage."""
    found = _injected(tmp_path, talk, question)
    for unrelated in ("bye", "comes up", "さようなら", "注文番号", "gory", "グロ"):
        assert unrelated not in found


@pytest.mark.parametrize(
    ("talk", "question", "expected"),
    [(ENGLISH, "What did shipping cost?", "350 yen"), (JAPANESE, "送料を忘れました。", "350円")],
)
def test_related_passage(
    tmp_path: Path, talk: tuple[tuple[str, str], ...], question: str, expected: str
) -> None:
    """A passage that shares a content word with the question is quoted."""
    assert expected in _injected(tmp_path, talk, question)


def test_small_talk_is_no_memory(tmp_path: Path) -> None:
    """A turn of thanks and a farewell is not quoted, even to a question that shares its words."""
    assert "Goodbye" not in _injected(tmp_path, ENGLISH, "Is there a manga with bye in its title?")


def test_summary_that_stands_under_the_latest_sessions_is_not_quoted_again(
    memory: MangaMemory,
) -> None:
    """Even if the list of sessions shortens the summary."""
    agent = memory.agent(ScriptedModel(), user_id="u1", session_id="s1")
    agent(
        "Is volume 3 of 『Uzumaki』 in stock, in the large format that was printed for the"
        " anniversary?"
    )
    agent("And does the parcel with it arrive before the weekend, if I order today?")
    memory.finalize(ConversationScope("u1", "s1"))
    model = ScriptedModel()
    memory.agent(model, user_id="u1", session_id="s2")("Which volume of Uzumaki did I ask about?")
    request = "\n".join(b.get("text", "") for b in model.requests[0].messages[-1]["content"])
    assert request.count("The user said") == 1


def test_passage_of_a_long_message_that_answers_the_question_is_quoted(tmp_path: Path) -> None:
    """The beginning of a log or answer does not hide it."""
    log = "\n".join(f"10:00:{at:02} worker-{at} finished job {at * 37}" for at in range(90))
    answer = (
        f"{'There are several causes, as always in such cases. ' * 12}Raise the limit of ci_user to"
        " 40 connections."
    )
    talk = (
        (
            f"Here is the log:\n{log}\nERROR too many connections for role ci_user\nWhat is wrong?",
            answer,
        ),
    )
    found = _injected(tmp_path, talk, "Which connection limit did we choose for ci_user?")
    assert "too many connections for role ci_user" in found
    assert "worker-70" not in found, "the role of a speaker is no word of a passage"
    assert "Raise the limit of ci_user to 40 connections." in found
