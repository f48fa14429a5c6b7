"""Histories whose latest messages hold large tool results, or tool inputs."""

import json
from typing import Any

from strands import Agent, tool
from strands.agent.conversation_manager.compression.pin_message import pin_message
from strands.types.content import Message

from strands_manga_memory import MangaMemory, TieredCompactionConversationManager
from strands_manga_memory.conversation import ImportanceWeightedConversationManager, default_counter
from strands_manga_memory.testing import ScriptedModel
from tests.histories import problems
from tests.support import stub_tool, tool_results
from tests.unit.session.support import assistant, tool_result, tool_use, user

_WINDOW = 32_000
_TRIGGER = 21_440


def _tokens(messages: list[Message]) -> int:
    return sum(map(default_counter().count, messages))


def _call(number: int) -> list[dict[str, Any]]:
    return [tool_use(f"t{number}", "search", query=str(number))]


@tool
def search(query: str) -> dict[str, Any]:
    """Search the shop."""
    titles = [
        {"id": f"B{query}{at:04d}", "title": f"A Silent Voice {at}", "price": 4.5, "stock": at}
        for at in range(1_500)
    ]
    return {
        "status": "success",
        "content": [{"json": {"query": query, "titles": titles, "total": 1_500}}],
    }


def _agent(turns: int, **more: Any) -> Agent:
    replies: list[Any] = []
    for number in range(turns):
        replies += [_call(number), "It is in stock. " * 8]
    model = ScriptedModel(replies, usage=lambda _: 0)
    return Agent(
        model=model,
        tools=[search],
        conversation_manager=TieredCompactionConversationManager(window=_WINDOW),
        **more,
    )


def test_large_results_among_the_latest_messages_are_capped() -> None:
    """Two results over the trigger are cut to 10,000 characters each."""
    agent = _agent(2)
    for number in range(2):
        agent(f"What about {number}?")
    assert all(_tokens(request.messages) < _TRIGGER for request in agent.model.requests)
    assert all(problems(request.messages) == [] for request in agent.model.requests)
    assert all(len(r["content"][0]["text"]) <= 10_000 for r in tool_results(agent.messages))
    assert len(tool_results(agent.messages)) == 2


def test_capped_json_result_stays_json_and_can_be_read_in_full() -> None:
    """It keeps keys and some items, and names the tool for all of it."""
    agent = _agent(1)
    agent("What about 0?")
    text, _, note = tool_results(agent.messages)[0]["content"][0]["text"].partition("\n[... ")
    shown = json.loads(text)
    assert shown.keys() == {"query", "titles", "total"}
    assert shown["titles"][0] == {
        "id": "B00000",
        "title": "A Silent Voice 0",
        "price": 4.5,
        "stock": 0,
    }
    assert f"[... {1_500 - len(shown['titles']) + 1} more items ...]" in shown["titles"]
    assert len(shown["titles"]) > 50
    name = note.partition("read_cut_message('")[2].partition("'")[0]
    read, more = "", True
    while more:
        page = agent.tool.read_cut_message(
            name=name, offset=len(read), record_direct_tool_call=False
        )
        part, more, _ = page["content"][0]["text"].partition("\n[characters")
        read += part
    assert len(json.loads(read)["titles"]) == 1_500


def test_compaction_goes_on_after_runs_that_find_nothing_to_do() -> None:
    """Recent messages of fixed size do not stop later compactions."""
    pasted = "I read this review today. " * 2_400
    agent = _agent(30)
    agent.model = ScriptedModel(lambda messages: "Noted.", usage=lambda _: 0)
    for _ in range(2):
        agent(pasted)
    for number in range(4):
        agent(f"And number {number}?")
    stats = agent.conversation_manager.stats()
    assert stats.compactions >= 3
    assert (stats.failures, stats.stopped) == (0, False)
    agent.model = ScriptedModel([_call(7), "In stock."], usage=lambda _: 0)
    agent("What about 7?")
    assert len(tool_results(agent.messages)[-1]["content"][0]["text"]) <= 10_000


def test_pinned_results_are_not_capped() -> None:
    """A message that is pinned keeps its results, however large."""
    agent = _agent(2)
    agent("What about 0?")
    large = tool_result("p", "found " * 4_000)
    use = tool_use("p", "search", query="p")
    agent.messages += [user("look"), assistant(use), user(large), assistant("found")]
    pin_message(agent.messages, len(agent.messages) - 2)
    agent("What about 1?")
    found = next(result for result in tool_results(agent.messages) if result["toolUseId"] == "p")
    assert found == large["toolResult"]


def test_capped_results_are_restored_and_read_from_the_session(tmp_path: Any) -> None:
    """An agent per request shows capped results and reads whole ones from the log."""
    url = f"sqlite:///{tmp_path}/memory.db"
    with MangaMemory.open(durable=url) as memory:
        for number in range(3):
            model = ScriptedModel([_call(number), "In stock."], usage=lambda _: 0)
            model.update_config(context_window_limit=_WINDOW)
            agent = memory.agent(
                model, user_id="u", session_id="s", history="compact", tools=[search]
            )
            agent(f"What about {number}?")
            assert all(_tokens(request.messages) < _TRIGGER for request in model.requests)
        agent = memory.agent(model, user_id="u", session_id="s", history="compact", tools=[search])
        assert all(len(r["content"][0]["text"]) <= 10_000 for r in tool_results(agent.messages))
        name = tool_results(agent.messages)[0]["content"][0]["text"].partition(
            "read_cut_message('"
        )[2][:8]
        page = agent.tool.read_cut_message(name=name, offset=12_000, record_direct_tool_call=False)
        assert "A Silent Voice" in page["content"][0]["text"]


def test_a_long_tool_input_is_shown_whole_or_not_at_all() -> None:
    """Within an input no marker stands, which the model might write into the next file."""
    written: list[str] = []

    @tool
    def save_file(path: str, content: str) -> str:
        """Save a file."""
        written.append(content)
        return f"saved {path}"

    content = "One line of the chapter about the shop.\n" * 700
    call = tool_use("t1", "save_file", path="chapter.md", content=content)
    model = ScriptedModel([[call], "Saved.", "Yes.", "Yes."])
    manager = ImportanceWeightedConversationManager(2_048)
    agent = Agent(model=model, tools=[save_file], conversation_manager=manager)
    agent("Save the chapter.")
    agent("Is it saved?")
    assert written == [content]
    blocks = [block for message in model.requests[1].messages for block in message["content"]]
    inputs = [block["toolUse"]["input"] for block in blocks if "toolUse" in block]
    assert inputs == [{"path": "chapter.md"}]
    assert any("Input of save_file not shown: content" in block.get("text", "") for block in blocks)
    assert all(problems(request.messages) == [] for request in model.requests)


def test_large_result_of_the_current_turn_leaves_room_for_earlier_words() -> None:
    """Trimming in steps truncates the result before it evicts all earlier words."""
    result = json.dumps(
        [
            {"id": f"B{n:04d}", "price": 500 + n, "description": "An edition of 300 pages. " * 12}
            for n in range(20)
        ]
    )

    search = stub_tool("search", lambda: result)
    statements = [f"My shelf number {n} holds {100 + n} volumes of series {n}." for n in range(20)]
    call = tool_use("c1", "search")
    model = ScriptedModel([*["Noted."] * len(statements), [call], "Here they are."])
    manager = ImportanceWeightedConversationManager(2_000, trim_every=7)
    agent = Agent(model=model, tools=[search], conversation_manager=manager)
    for text in [*statements, "Search, please."]:
        agent(text)
    request = str(model.requests[-1].messages)
    assert sum(text in request for text in statements) >= 8
    assert all(f"B{n:04d}" in request for n in range(20))
