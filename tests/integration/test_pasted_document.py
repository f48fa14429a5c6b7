"""A pasted long document is whole in its turn, and readable later."""

import random
from typing import Any

import pytest
from strands import Agent
from strands.session.file_session_manager import FileSessionManager

from strands_manga_memory.conversation import (
    ImportanceWeightedConversationManager,
    SummarySchedule,
    SummaryTrigger,
    TieredCompactionConversationManager,
    VerifiedSummarizingConversationManager,
    default_counter,
)
from strands_manga_memory.session import TieredSessionManager
from strands_manga_memory.stores import open_table
from strands_manga_memory.testing import ScriptedModel

MANAGERS = {
    "importance": lambda: ImportanceWeightedConversationManager(4_096),
    "in steps": lambda: ImportanceWeightedConversationManager(4_096, trim_every=7),
    "summarizing": lambda: VerifiedSummarizingConversationManager(
        SummaryTrigger(tokens=4_000), schedule=SummarySchedule(wait_seconds=0.1)
    ),
    "compaction": TieredCompactionConversationManager,
}
_ENGLISH = (
    "The supplier", "the buyer", "shall deliver", "each invoice", "within", "a month", "the goods",
    "in good order",
)  # fmt: skip
_JAPANESE = (
    "甲は", "乙に対し", "商品を", "納品する", "ものとし、", "期日までに", "検収を", "行う。",
)  # fmt: skip
DOCUMENTS = {
    "English": (_ENGLISH, " ", "Clause 57: the penalty for late delivery is 4,217 dollars a day.",
        "What is the penalty?"),
    "Japanese": (_JAPANESE, "", "第57条　遅延損害金は一日につき4,217円とする。",
        "遅延損害金はいくらですか。"),
}  # fmt: skip


def pasted(language: str) -> tuple[str, str]:
    """Return a document of 47 KB with a clause and a question behind it, and the clause."""
    words, space, clause, question = DOCUMENTS[language]
    rand = random.Random(7)
    half: list[str] = []
    while len(space.join(half).encode()) < 23_500:
        half += rand.choices(words, k=200)
    text = space.join(half)
    return f"{text}\n{clause}\n{text}\n{question}", clause


def last_request(model: ScriptedModel) -> Any:
    """Return the last request that is not one for a summary."""
    return next(request for request in reversed(model.requests) if request.system_prompt is None)


def said(request: Any) -> str:
    return "\n".join(block.get("text", "") for m in request.messages for block in m["content"])


@pytest.mark.parametrize("language", DOCUMENTS)
@pytest.mark.parametrize("name", MANAGERS)
@pytest.mark.parametrize("earlier", [0, 12])
def test_what_the_user_says_in_the_current_turn_is_never_cut_while_the_window_has_room(
    name: str, language: str, earlier: int
) -> None:
    model = ScriptedModel(lambda _: "An answer of some words. " * 20)
    agent = Agent(model=model, conversation_manager=MANAGERS[name]())
    for number in range(earlier):
        agent(f"An earlier question {number}, with some words around it. " * 5)
    document, _ = pasted(language)
    agent(document)
    assert document in said(last_request(model))
    assert len(agent.messages) > 2 or not earlier


@pytest.mark.parametrize("language", DOCUMENTS)
@pytest.mark.parametrize("name", MANAGERS)
def test_what_was_cut_of_it_later_is_read_back_by_a_tool(name: str, language: str) -> None:
    document, clause = pasted(language)
    model = ScriptedModel(lambda _: "An answer of some words. " * 20)
    model.config["context_window_limit"] = 200_000 if name != "compaction" else 24_000
    agent = Agent(model=model, conversation_manager=MANAGERS[name]())
    agent(document)
    number = 0
    while clause in said(last_request(model)):
        number += 1
        assert number < 60
        agent(f"Something else, number {number}. " * (40 if name == "compaction" else 5))
    cut = [message for message in agent.messages if "read_cut_message('" in str(message)]
    assert cut or name in ("summarizing", "compaction")  # there a summary may stand in its place
    assert not cut or read_back(agent, cut) == document


def read_back(agent: Agent, cut: list[Any]) -> str:
    """Read the message that was cut, page by page, as its mark tells the model to."""
    [(text, name)] = [
        (text, text.split("read_cut_message('")[1].split("')")[0])
        for message in cut
        for block in message["content"]
        if "read_cut_message('" in (text := block.get("text", ""))
    ]
    assert name
    whole = ""
    while True:
        result = agent.tool.read_cut_message(
            name=name, offset=len(whole), record_direct_tool_call=False
        )
        assert result["status"] == "success"
        page, more, _ = result["content"][0]["text"].partition("\n[characters ")
        whole += page
        if not more:
            return whole


def test_it_is_read_back_after_a_restart_from_what_the_session_keeps(tmp_path: Any) -> None:
    document, _ = pasted("English")
    table = open_table(f"sqlite:///{tmp_path / 'sessions.sqlite3'}")
    table.create_if_missing()

    def made() -> tuple[Agent, TieredSessionManager]:
        session = TieredSessionManager("pasted", durable=table)
        manager = ImportanceWeightedConversationManager(4_096, log=session.history)
        model = ScriptedModel()
        return (Agent(model=model, conversation_manager=manager, session_manager=session), session)

    agent, session = made()
    agent(document)
    agent("Thanks.")
    session.close()
    restored, session = made()
    assert "read_cut_message" in restored.tool_names
    found = read_back(
        restored,
        [message for message in restored.messages if "read_cut_message('" in str(message)],
    )
    assert found == document
    session.close()
    table.close()


@pytest.mark.parametrize("name", MANAGERS)
def test_no_room_cuts_it_and_says_so(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="strands_manga_memory")
    document, _ = pasted("English")
    model = ScriptedModel()
    model.config["context_window_limit"] = 8_000
    agent = Agent(model=model, conversation_manager=MANAGERS[name]())
    agent(document)
    request = last_request(model)
    assert sum(map(default_counter().count, request.messages)) <= 6_000
    assert "read_cut_message('" in said(request)
    assert "read_cut_message" in [spec["name"] for spec in request.tool_specs]
    assert "truncated messages" in caplog.text
    assert read_back(agent, agent.messages) == document


def test_an_agent_of_which_nothing_was_cut_has_no_tool_for_it(tmp_path: Any) -> None:
    session = FileSessionManager("plain", storage_dir=str(tmp_path))
    manager = ImportanceWeightedConversationManager(4_096)
    agent = Agent(model=ScriptedModel(), conversation_manager=manager, session_manager=session)
    agent("Hello")
    assert "read_cut_message" not in agent.tool_names


@pytest.mark.parametrize("trim_every", [0, 7])
@pytest.mark.parametrize("place", ["before the log", "within the log", "behind the log"])
def test_a_wish_in_a_pasted_log_stays_and_the_log_goes(place: str, trim_every: int) -> None:
    """The log does not evict earlier statements."""
    manager = ImportanceWeightedConversationManager(4_096, trim_every=trim_every)
    model = ScriptedModel(["Understood, I will remember that for our whole conversation."] * 50)
    agent = Agent(model=model, conversation_manager=manager)
    statements = [
        f"My shelf number {at} holds {at + 3} volumes of the series by author number {at}."
        for at in range(40)
    ]
    for statement in statements:
        agent(statement)
    rows = [
        f"2026-03-{at % 28 + 1:02} 12:{at % 60:02}:07 worker-{at} INFO request {at * 7919} took"
        f" {at} ms"
        for at in range(140)
    ]
    wish = "I prefer the simple way: why is request 7919 slow?"
    lines = {
        "before the log": [wish, *rows],
        "within the log": [*rows[:40], wish, *rows[40:]],
        "behind the log": [*rows, wish],
    }[place]
    assert 3_400 < default_counter().text("\n".join(lines)) < 3_800
    agent("\n".join(lines))
    assert "\n".join(lines) in said(model.requests[-1]), "whole in its own turn"
    agent("And what should I look at next?")
    shown = said(model.requests[-1])
    assert [statement for statement in statements if statement not in shown] == []
    assert wish in shown
    assert rows[20] not in shown
    assert "read_cut_message" in shown
