"""Requests of shop talk contain no pasted text as the user's words, and no outdated wish."""

from pathlib import Path

import pytest
from strands import tool

from strands_manga_memory import ConversationScope, DialogueSlot, MangaMemory
from strands_manga_memory.testing import ScriptedModel

LOG = "\n".join(
    [
        "Here is the log of my e-reader: 2026-11-29 10:00:12 INFO I love horror",
        *(f"2026-11-29 10:01:{at:02} INFO page {at} of Berserk rendered" for at in range(40)),
        "2026-11-29 10:09:59 ERROR out of memory",
        "Please send me the paper version of Vagabond instead.",
    ]
)


def _requests(folder: Path, *sessions: list[str], **options: object) -> list[str]:
    """Return the text of the last request of each message, with an agent for each message."""
    texts = []
    for number, session in enumerate(sessions):
        for said in session:
            model = ScriptedModel(lambda _: "I see.")
            url = f"sqlite:///{folder / 'm.sqlite3'}"
            with MangaMemory.open(durable=url, memories=True) as memory:
                memory.agent(model, user_id="u1", session_id=f"s{number}", **options)(said)
            request = model.requests[-1]
            blocks = request.messages[-1]["content"]
            texts.append("\n".join([str(request.system_prompt), *(b["text"] for b in blocks)]))
        with MangaMemory.open(durable=url, memories=True) as memory:
            memory.finalize(ConversationScope("u1", f"s{number}"))
    return texts


@pytest.mark.parametrize(
    "pasted",
    [
        "```python\ndef prefer(x):\n    return 'I prefer horror'\n```\nWhat does this code do?",
        '{"action": "get_cart", "title": "I love horror", "items": [{"name": "Nana"}]}',
        LOG,
        "> I love horror\nis what the FAQ says.",
        "The reviewer wrote: I love horror.",
        "Repeat after me: I love horror.",
        "In the story, I am a vampire and I love horror.",
        "I'm not saying I love horror.",
    ],
    ids=["code", "JSON", "log", "mail", "review", "repetition", "story", "denial"],
)
def test_pasted_and_quoted_text_states_no_preference(tmp_path: Path, pasted: str) -> None:
    *_, request = _requests(tmp_path, [pasted, "Anything new?"])
    assert "genre" not in request


def test_log_lines_are_neither_summarized_nor_quoted_in_the_next_session(tmp_path: Path) -> None:
    *_, request = _requests(tmp_path, [LOG], ["I own Berserk 1 to 12. What was the error?"])
    assert "the paper version of Vagabond" in request
    assert "INFO" not in request
    assert 'said "2026' not in request


def test_shouted_words_are_no_topics(tmp_path: Path) -> None:
    *_, request = _requests(tmp_path, ["Where is my Monster set? I want it back NOW"], ["Hello"])
    assert "[Monster]" in request


def test_a_request_to_delete_what_is_known_deletes_it(tmp_path: Path) -> None:
    *_, before, after = _requests(
        tmp_path, ["I'm a vegetarian.", "Delete what you know about my diet.", "Hello"]
    )
    assert "diet: vegetarian" in before
    assert "diet" not in after


@pytest.mark.parametrize(
    ("said", "shown", "hidden"),
    [
        (
            ["ミステリーが好きです。", "ホラーも最近は好きになってきました"],
            "ホラー, ミステリー",
            "",
        ),
        (["これからは税込価格で教えてください。", "税込じゃなくていいです。"], "", "税込"),
        (["電子派だったけど紙に戻った"], "", "format"),
    ],
    ids=["addition", "revocation", "past"],
)
def test_japanese_additions_and_revocations_change_preferences(
    tmp_path: Path, said: list[str], shown: str, hidden: str
) -> None:
    *_, request = _requests(tmp_path, [*said, "何か新しいものはありますか？"])
    prompt = request.partition("</user_preferences>")[0]
    assert shown in prompt
    assert not hidden or hidden not in prompt


def test_mentioned_titles_are_shown_as_written(tmp_path: Path) -> None:
    first, second = _requests(
        tmp_path,
        ["『ベルセルク』と『MONSTER』はありますか？", "Put Akira 5 aside for me."],
        task_state=True,
    )
    assert "title ベルセルク, MONSTER" in first
    assert "Put Akira" not in second.rpartition("Put Akira 5")[0]


def test_recall_quotes_no_short_passage_that_a_truncated_result_still_shows(tmp_path: Path) -> None:
    @tool
    def cover(title: str) -> dict[str, object]:
        """Show a cover."""
        image = {"image": {"format": "png", "source": {"bytes": b"0" * 2_000}}}
        return {"status": "success", "content": [image, {"text": f"cover of {title}"}]}

    call = [{"toolUse": {"toolUseId": "c1", "name": "cover", "input": {"title": "Monster"}}}]
    model = ScriptedModel([call, "Here.", "880 yen."])
    memory = MangaMemory.open(durable=f"sqlite:///{tmp_path / 'm.sqlite3'}")
    agent = memory.agent(
        model, user_id="u1", session_id="s1", tools=[cover], recall=True, max_tokens=500
    )
    agent("Show me the cover of Monster, please.")
    agent("How much is Monster?")
    memory.close()
    _, _, quotes = str(model.requests[-1].messages).partition("<recalled_history>")
    assert "not kept" in str(model.requests[-1].messages)
    assert "cover of Monster" not in quotes


def test_a_plain_apology_in_japanese_corrects_a_slot(tmp_path: Path) -> None:
    volume = DialogueSlot(name="volume", question="何巻？", entity="volume")
    url = f"sqlite:///{tmp_path / 'm.sqlite3'}"
    call = {"toolUseId": "c1", "name": "update_slots", "input": {"intent": "reorder"}}
    model = ScriptedModel([[{"toolUse": call}], "何巻でしょうか？", "4巻ですね。", "5巻ですね。"])
    with MangaMemory.open(durable=url) as memory:
        agent = memory.agent(
            model, user_id="u1", session_id="s1", task_state={"intents": {"reorder": [volume]}}
        )
        for said in ("MONSTERを再注文したい", "4巻", "ごめん、5巻だった"):
            agent(said)
    assert "volume = 5" in str(model.requests[-1].messages)


@pytest.mark.parametrize(
    ("said", "forgets"),
    [
        ("My brother is allergic to cats.", "Actually, forget what I said about my brother."),
        ("弟は猫アレルギーです。", "弟の話は忘れてください"),
    ],
)
def test_forgetting_a_person_removes_preferences(tmp_path: Path, said: str, forgets: str) -> None:
    _, before, after = _requests(tmp_path, [said, forgets, "Hello"])
    shown = [each.partition("</user_preferences>")[0] for each in (before, after)]
    assert ["cats" in each or "猫" in each for each in shown] == [True, False]


def test_ids_of_failed_tool_calls_are_not_mentioned(tmp_path: Path) -> None:
    @tool
    def get_order(order_id: str) -> str:
        """Get an order."""
        raise ValueError(f"there is no order {order_id}")

    call = {"toolUseId": "c1", "name": "get_order", "input": {"order_id": "ORD-77009"}}
    model = ScriptedModel([[{"toolUse": call}], "I cannot find it.", "Sorry."])
    with MangaMemory.open(durable=f"sqlite:///{tmp_path / 'm.sqlite3'}") as memory:
        agent = memory.agent(
            model, user_id="u1", session_id="s1", tools=[get_order], task_state=True
        )
        agent("Has my order arrived?")
        agent("Where is it?")
    assert "order_id ORD-77009" not in str(model.requests[-1].messages)


def test_a_truncated_japanese_text_is_cut_between_phrases(tmp_path: Path) -> None:
    text = "店主は七十代の男性で、戦前の雑誌についても詳しく教えてくれました。" * 30
    model = ScriptedModel(lambda _: "はい。")
    with MangaMemory.open(durable=f"sqlite:///{tmp_path / 'm.sqlite3'}") as memory:
        agent = memory.agent(model, user_id="u1", session_id="s1", max_tokens=300)
        for said in (text, "はい", *["表紙の色はどうですか？"] * 8):
            agent(said)
    head, _, behind = agent.messages[0]["content"][0]["text"].partition("\n[... ")
    tail = behind.partition("]\n")[2]
    phrases = (
        "店主は",
        "七十代の",
        "男性で、",
        "戦前の",
        "雑誌についても",
        "詳しく",
        "教えてくれました。",
    )
    assert behind
    assert head.strip().endswith(phrases)
    assert tail.startswith(phrases)


def test_html_is_summarized_without_its_tags(tmp_path: Path) -> None:
    rows = "".join(f"<tr><td>item{at}</td><td>{at}</td></tr>" for at in range(100))
    page = f"<html><body><h1>Order 5512</h1><p>Thank you!</p><table>{rows}</table></body></html>"
    _, request = _requests(tmp_path, [page], ["Hello"])
    assert "The user said" in request
    assert "/td" not in request
