"""Recall quotes answers to the question within a fixed part of the budget, and no noise."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, tool
from strands.agent.conversation_manager import SlidingWindowConversationManager

from strands_manga_memory import HistoryRecall, ImportanceWeightedConversationManager, MangaMemory
from strands_manga_memory.testing import FakeClock, ScriptedModel
from tests.support import stub_tool
from tests.unit.session.support import tool_use

GUARD = {"code": "timeout", "retry_after_s": 30.0}


def build_agent(replies: Any, *tools: Any, manager: Any = None) -> Agent:
    return Agent(
        model=ScriptedModel(replies),
        tools=list(tools),
        conversation_manager=manager or SlidingWindowConversationManager(4),
        plugins=[HistoryRecall(offer_tool=False)],
    )


def quotes_of(agent: Agent) -> str:
    """Return the quotes in the last request."""
    model: Any = agent.model
    blocks = [block for message in model.requests[-1].messages for block in message["content"]]
    return "".join(b.get("text", "") for b in blocks if "<recalled_history>" in b.get("text", ""))


def quotes_for(
    question: str, *said: str, replies: Sequence[Any] = (), tools: Sequence[Any] = ()
) -> str:
    """Return the quotes for a question, which follows four turns about the weather."""
    agent = build_agent([*replies, *["Noted."] * (len(said) + 5)], *tools)
    for text in (*said, *["Tell me about the weather."] * 4, question):
        agent(text)
    return quotes_of(agent)


def lines_of(quotes: str, speaker: str = "") -> list[str]:
    """Return the quoted texts, of one speaker or of all."""
    lines = [line for line in quotes.splitlines() if line.startswith(f"[{speaker}")]
    return [line.partition("] ")[2] for line in lines]


def call(number: int) -> Any:
    return [tool_use(f"call-{number}", "stock")]


def test_failed_results_and_the_json_of_a_guard_are_not_quoted() -> None:
    """After six failures the question is answered with the user's words alone."""
    failed = {
        "status": "error",
        "content": [{"text": "Uzumaki: the shop timed out"}, {"json": GUARD}],
    }
    stale = {
        "status": "success",
        "content": [{"text": "Uzumaki is on shelf 12."}, {"json": {**GUARD, "shop": "Uzumaki"}}],
    }
    results = iter([failed] * 6 + [stale])

    stock = stub_tool("stock", lambda: next(results))
    replies = [reply for number in range(7) for reply in (call(number), "Sorry.")]
    said = ["Please try the shop again."] * 7
    question = "On which shelf of the shop is Uzumaki?"
    quotes = quotes_for(question, *said, replies=replies, tools=[stock])
    assert "Uzumaki is on shelf 12." in quotes
    assert "timed out" not in quotes
    assert "retry_after_s" not in quotes


def test_json_results_are_quoted_as_values() -> None:
    """A quote has the fitting records as names and values; prose has no repetitions."""

    @tool
    def stock() -> dict[str, Any]:
        """Look up the stock."""
        titles = [
            {"title": "Uzumaki", "shelf": 12, "price": 19.5, "note": None,
                "about": "A spiral. " * 40},
        ]  # fmt: skip
        titles += [{"title": "Monster", "shelf": 7}]
        return {
            "status": "success",
            "content": [{"json": {"query": "Uzumaki", "total": 2, "titles": titles}}],
        }

    quotes = quotes_for(
        "On which shelf is Uzumaki?", "Please check.", replies=[call(1)], tools=[stock]
    )
    lines = [line for line in quotes.splitlines() if line.startswith(("[", "  "))]
    found = [line.partition("] ")[2] for line in lines]
    assert found == ["title: Uzumaki, shelf: 12, price: 19.5, about: A spiral. [...]"]


def test_a_quote_from_the_middle_of_a_record_names_the_record() -> None:
    """It begins with the first fields of the record, not with the separator behind a sentence."""
    title = {
        "asin": "B07X1234",
        "title": "灯台守の星郵便",
        "about_ja": "流れ星に手紙を託す灯台守と少女の静かな物語。",
    }
    title["about_en"] = "A lighthouse keeper posts letters by shooting star."

    stock = stub_tool(
        "stock",
        lambda: {"status": "success", "content": [{"json": {"total": 1, "titles": [title]}}]},
    )
    question = "Who posts letters by shooting star?"
    quotes = quotes_for(question, "Please check.", replies=[call(1)], tools=[stock])
    assert lines_of(quotes, "tool") == [
        "asin: B07X1234, title: 灯台守の星郵便 [...] about_en: A lighthouse keeper posts letters by"
        " shooting star. [...]"
    ]


def test_answers_that_report_a_failed_tool_are_not_quoted() -> None:
    """After the tool answers again, nothing says any more that it does not."""

    stock = stub_tool("stock", lambda: {"status": "error", "content": [{"text": "timed out"}]})
    quotes = quotes_for(
        "What was the order number again?",
        "Where is my order ORD-12345?",
        replies=[call(1), "I cannot reach the order system."],
        tools=[stock],
    )
    assert lines_of(quotes) == ["Where is my order ORD-12345?"]


@pytest.mark.parametrize(
    ("said", "question"),
    [
        ("One copy of it costs 2,800 yen.",
            "She already has volume 1. What about volume 2 of Natsume?"),
        ("Volume 2 will be wrapped.", "Put volume 1 of PTSD Radio on my wish list."),
        ("We still have it, sorry, if you need it again.",
            "I still need an answer about shipping again, please."),
        ("I could recommend something like Uzumaki.", "Recommend a cookbook with soups."),
        ("I love horror manga.", "She loved it. What does she get next?"),
        ("OK, then Uzumaki it is. Actually, make it two copies.",
            "Actually I prefer paperback, not hardcover."),
        ("カード番号はチャットに送らないでください。",
            "ハードカバーではなくペーパーバックがいいです。"),
        ("カード番号はチャットに送らないでください。", "注文番号は何でしたっけ？"),
        ("システムに接続できません。", "ホラーはもういいです。今はミステリーが好きです。"),
        ("予算は3000円です。", "いくらですか？"),
        ("「うずまき」2冊にします。", "それにします。ありがとう、さようなら。"),
        ("My friend Tom says Gitzo is better.", "What did we say about the repair?"),
    ],
)  # fmt: skip
def test_words_of_every_request_bring_no_quotes(said: str, question: str) -> None:
    """A number, "again", or a part of a katakana word is no match."""
    assert quotes_for(question, said) == ""


def test_a_passage_that_was_said_again_with_another_number_is_not_quoted() -> None:
    """Only the assistant's latest price is quoted, but all user statements."""
    prices = [
        f"The printed edition of Uzumaki costs {price} yen a volume here."
        for price in (2800, 2900, 3100)
    ]
    said = [f"I bought volume {number} of Uzumaki in the shop at the station." for number in "123"]
    quotes = quotes_for("How much is a printed Uzumaki?", *said, replies=prices)
    assert quotes.count("costs") == 1
    assert "costs 3100 yen" in quotes
    assert quotes.count("I bought volume") == 3


def test_questions_of_the_user_are_not_quoted() -> None:
    """A question answers nothing, unless it holds an identifier or a number."""
    quotes = quotes_for("What of Uzumaki?", "Do you sell Uzumaki?", "Is Uzumaki B07X1234?")
    assert "Do you sell" not in quotes
    assert "B07X1234" in quotes


def test_small_talk_and_neighbours_without_a_word_of_the_question_are_not_quoted() -> None:
    """Only the message that shares a content word with the question is quoted."""
    said = ["Thanks, that is all about my cat!", "My cat is called Momo.", "I had noodles."]
    quotes = quotes_for("What is the name of my cat?", *said, replies=["You're welcome!"])
    assert lines_of(quotes) == ["My cat is called Momo."]


def test_the_same_words_of_one_speaker_are_quoted_once() -> None:
    """Replies to different quoted questions may be the same."""
    said = ["I like Kyoto.", "It rains.", "I like Kyoto.", "What do I like about Kyoto?"]
    assert lines_of(quotes_for(said.pop(), *said)) == ["I like Kyoto."]
    said = ["Hello, I am new here.", "In spring.", "Tell me more.", "In spring."]
    replies = ["When do you go to Kyoto?", "Noted.", "When do you leave Kyoto?", "Noted."]
    assert lines_of(quotes_for("When was Kyoto?", *said, replies=replies)) == [
        "When do you go to Kyoto?",
        "In spring.",
        "When do you leave Kyoto?",
        "In spring.",
    ]


def test_a_reply_to_a_quoted_question_of_the_assistant_is_quoted_with_it() -> None:
    """The reply itself shares no word with the later question."""
    said = [
        "I came home yesterday.",
        "Sendai, with two friends of mine.",
        "Is there a novel on Japan?",
    ]
    replies = ["Which city of Japan did you see?", "Noted.", "It has twelve chapters."]
    assert lines_of(quotes_for("Where in Japan was I?", *said, replies=replies)) == [
        "Which city of Japan did you see?",
        "Sendai, with two friends of mine.",
    ]


@pytest.mark.parametrize(
    "question",
    ["How long was my course?", "How long was my course? Answer in number of semesters."],
)
def test_an_instruction_how_to_answer_does_not_change_the_quotes(question: str) -> None:
    """A sentence that only says how to answer brings no messages of its own."""
    said = [
        text
        for number in range(6)
        for text in (
            f"My course in pottery had part {number}, and was long.",
            f"The number {number} is an answer to nothing.",
        )
    ]
    quotes = quotes_for(question, *said)
    assert quotes.count("My course in pottery") == 6
    assert "answer to nothing" not in quotes


def test_quotes_leave_the_history_of_a_request_alone() -> None:
    """With quotes every request holds the whole window within the budget."""
    manager = ImportanceWeightedConversationManager(1_200, includes_recall=True, trim_every=4)
    agent = build_agent(lambda _: "answer " * 20, manager=manager)
    model: Any = agent.model
    for number in range(40):
        agent(f"My cat number {number} is called Momo{number} and was born in Kyoto, by the sea.")
    windows, quoted = [], 0
    for number in range(12):
        agent(f"What is the name of cat number {number}?")
        quoted += bool(quotes_of(agent))
        texts = [block["text"] for m in model.requests[-1].messages for block in m["content"]]
        windows.append([text for text in texts if "<recalled_history>" not in text])
        assert sum(map(manager.counter.count, model.requests[-1].messages)) <= 1_200
    assert quoted >= 8
    texts = [json.dumps(window)[:-1] for window in windows]
    assert sum(later.startswith(earlier) for earlier, later in pairwise(texts)) >= 8


def test_room_left_by_few_quotes_is_filled_with_the_next_hits() -> None:
    """A much weaker match is quoted while the budget has room."""
    quotes = quotes_for(
        "Where in Sendai does my sister Aiko work, at the aquarium?",
        "My sister Aiko moved to Sendai and works in the aquarium of Sendai.",
        "The aquarium is closed on Mondays.",
        "I had noodles for lunch.",
    )
    assert "works in the aquarium of Sendai" in quotes
    assert "closed on Mondays" in quotes
    assert "noodles" not in quotes


def embed(texts: Sequence[str]) -> list[list[float]]:
    """Return a vector with one number for pets and one for shops."""
    return [[float("kitten" in t or "pet" in t), float("shop" in t), 0.1] for t in texts]


def test_a_vector_function_finds_messages_without_a_word_of_the_question(tmp_path: Path) -> None:
    """A question about a pet finds a kitten by vectors, not by words."""
    found = {}
    for name, function in (("words", None), ("vectors", embed)):
        memory = MangaMemory.open(durable=f"sqlite:///{tmp_path}/{name}.sqlite3", embed=function)
        model = ScriptedModel(lambda _: "Noted, and that was a long answer about it. " * 12)
        agent = memory.agent(model, user_id="u", session_id="s", max_turns=2, recall=True)
        agent("Good morning.")
        agent("We picked up a kitten called Momo.")
        for number in range(12):
            agent(f"I walked past the shop number {number}.")
        agent("What is the name of our pet?")
        found[name] = "kitten called Momo" in quotes_of(agent)
        memory.close()
    assert found == {"words": False, "vectors": True}


def test_quotes_show_the_times_of_the_log_after_a_restart(tmp_path: Path) -> None:
    """A restored agent quotes a message with its own time."""
    clock = FakeClock(datetime(2026, 3, 4, 9, 30, tzinfo=UTC).timestamp())
    memory = MangaMemory.open(durable=f"sqlite:///{tmp_path}/t.sqlite3", clock=clock)

    def build() -> Agent:
        model = ScriptedModel(lambda _: "Noted, and that was a long answer about it. " * 12)
        return memory.agent(model, user_id="u", session_id="s", max_turns=2, recall=True)

    agent = build()
    agent("Good morning.")
    agent("My cat is called Momo.")
    clock.advance(5 * 3_600)
    agent = build()
    agent("It is raining outside.")
    clock.advance(20 * 3_600)
    for number in range(12):
        agent(f"I walked past the shop number {number}.")
    agent("What is the name of my cat?")
    assert "2026-03-04\n[user 09:30] My cat is called Momo." in quotes_of(agent)
    memory.close()


def test_a_tool_result_is_not_quoted_for_the_names_of_its_fields() -> None:
    """A question for one title's stock brings back only its result."""

    @tool
    def stock(title: str) -> dict[str, Any]:
        """Look up the stock of a title."""
        return {
            "status": "success",
            "content": [{"json": {"title": title, "stock": len(title), "shelf": 1}}],
        }

    titles = ["Uzumaki", "Monster", "Akira", "Dororo", "Pluto", "Bleach", "Naruto", "Berserk"]
    replies: list[Any] = []
    for number, title in enumerate(titles):
        replies += [[tool_use(f"call-{number}", "stock", title=title)], "Here it is."]
    said = [f"Please look up {title}." for title in titles]
    quotes = quotes_for("Is Monster in stock?", *said, replies=replies, tools=[stock])
    assert lines_of(quotes, "tool") == ["title: Monster, stock: 7, shelf: 1"]


def test_records_that_the_truncated_result_still_shows_are_not_quoted() -> None:
    """Only other records of a truncated result are quoted."""

    @tool
    def stock() -> dict[str, Any]:
        """Look up the stock."""
        records = [{"title": f"Uzumaki, hardcover edition {n:03}", "shelf": n} for n in range(200)]
        return {"status": "success", "content": [{"json": {"titles": records}}]}

    manager = ImportanceWeightedConversationManager(1_500)
    agent = build_agent([call(1), *["Fine weather."] * 9], stock, manager=manager)
    for text in ["Please check.", "Tell me about the weather.", "Where is Uzumaki?"]:
        agent(text)
    model: Any = agent.model
    history = json.dumps(model.requests[-1].messages[2])
    quoted = [
        line.rpartition("] ")[2].strip()
        for line in quotes_of(agent).splitlines()
        if "shelf: " in line
    ]
    assert "hardcover edition 000" in history
    assert 0 < len(quoted) <= 8
    assert not [line for line in quoted if "edition 000" in line]


def test_a_short_number_alone_does_not_make_a_message_relevant() -> None:
    """A log line that shares a number with the question is not quoted.

    The number counts if the question has nothing else.
    """
    said = [
        "The pool_size is 12 since the audit.",
        "10:12:00 worker-3 started.",
        "The fee is 12 euros.",
    ]
    quotes = quotes_for("Why did we choose pool_size=12 at the audit?", *said)
    assert lines_of(quotes, "user") == [said[0]]


def test_announcements_of_tool_calls_are_not_quoted() -> None:
    """Announcements share words with many questions; a fact beside a call is quoted."""
    said = ["Let me check that for you.", "Sure! One moment.", "確認しますね。"]
    told = "Your check-in desk is on level 2. Let me check the queue."
    replies = [
        each
        for number, text in enumerate([*said, told])
        for each in ([{"text": text}, tool_use(f"call-{number}", "stock")], "Done.")
    ]
    stock = stub_tool("stock", lambda: "ok")
    for question in ("Can I check the moment of boarding online?", "確認できますか。"):
        quotes = quotes_for(question, *["Please."] * 4, replies=replies, tools=[stock])
        assert lines_of(quotes) == ([told] if "check" in question else [])
    assert not quotes_for("Let me know, please.", "My parents let me travel.")


@pytest.mark.parametrize("padding", range(0, 50, 7))
def test_the_quote_of_a_long_result_ends_with_a_whole_field(padding: int) -> None:
    """Only the beginning of a long result is searched. It ends between two fields."""
    found = [
        {"sku": f"S-{at:02}", "series": "Monster", "publisher": "Yen Press Kansas", "stock": at}
        for at in range(40)
    ]
    result = json.dumps([{"note": "x" * padding}, *found])
    stock = stub_tool("stock", lambda: result)
    quotes = quotes_for("S-29 or S-30?", "Please check.", replies=[call(1)], tools=[stock])
    fields = {f"{name}: {value}" for each in found for name, value in each.items()}
    shown = [each.strip(", ") for each in lines_of(quotes, "tool")[0].split(", ")]
    assert {each.replace(" [...]", "") for each in shown} <= fields
