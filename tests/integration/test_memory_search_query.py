"""The query of Strands' memory search has the user's words and no injected text."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from strands import Agent
from strands.memory import (
    InjectionQueryContext,
    MemoryEntry,
    MemoryManager,
    MemoryStore,
    SearchOptions,
)
from strands.vended_plugins.context_injector import ContextInjector

from strands_manga_memory import ConversationScope, Environment, MangaMemory, UserMemoryStore
from strands_manga_memory.memory import extract_user_query
from strands_manga_memory.stores import USER_MEMORY, open_table
from strands_manga_memory.testing import ScriptedModel
from tests.support import stub_tool
from tests.unit.session.support import tool_use, user

QUESTION = "Recommend a cookbook with soups"
SMALL_TALK = [
    "Thanks, bye bye!",
    "Thank you so much, see you!",
    "Great, thanks!",
    "Hello there, nice to see you again!",
]


class RecordingStore(MemoryStore):
    """A memory store of somebody else that records its queries."""

    name = "recording"
    description = None
    max_search_results = None
    writable = False
    extraction = None

    def __init__(self) -> None:
        self.queries: list[str] = []

    async def search(self, query: str, options: SearchOptions | None = None) -> list[MemoryEntry]:
        self.queries.append(query)
        return []


def read_cart(scope: ConversationScope) -> Environment:
    """Return the cart, which the state coordinator injects."""
    return Environment(tier="vip", cart=("Thank you and goodbye, volume 2",))


def open_memory(path: Path) -> MangaMemory:
    return MangaMemory.open(
        durable=f"sqlite:///{path / 'shop.sqlite3'}", memories=True, environment=read_cart
    )


def remember_earlier_sessions(memory: MangaMemory) -> None:
    for number, farewell in enumerate(SMALL_TALK):
        scope = ConversationScope("u1", f"earlier-{number}")
        arguments = memory.agent_kwargs(user_id="u1", session_id=scope.session_id)
        agent = Agent(model=ScriptedModel(["You're welcome!"] * 9), **arguments)
        agent("My favorite genre is horror, call me on 090-1234-5678.")
        agent(farewell)
        memory.finalize(scope)


look_up = stub_tool("look_up", lambda title: "Thanks, bye bye! 3 copies")


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the queries that Strands' memory manager passes to the user's store."""
    recorded: list[str] = []
    search = UserMemoryStore.search

    async def recording(
        self: UserMemoryStore, query: str, options: SearchOptions | None = None
    ) -> list[MemoryEntry]:
        recorded.append(query)
        return await search(self, query, options)

    monkeypatch.setattr(UserMemoryStore, "search", recording)
    return recorded


def test_a_search_has_the_words_of_the_user_alone(tmp_path: Path, queries: list[str]) -> None:
    """All injecting parts are on, with one of another package."""
    with open_memory(tmp_path) as memory:
        remember_earlier_sessions(memory)
        queries.clear()
        call = [tool_use("1", "look_up", title="Soups")]
        model = ScriptedModel(["Gladly.", call, "Here it is.", "You're welcome!"])
        arguments = memory.agent_kwargs(
            user_id="u1", session_id="today", recall=True, task_state=True
        )
        arguments["plugins"] = [ContextInjector(lambda _: "It is raining."), *arguments["plugins"]]
        agent = Agent(model=model, tools=[look_up], **arguments)
        questions = ["I live in Kyoto and prefer paperbacks.", QUESTION, "スープの本は？"]
        for question in questions:
            agent(question)
        assert queries == questions
        request = repr(model.requests[1].messages)
        assert "Thank you and goodbye, volume 2" in request, "the cart is injected"
        assert "horror" in repr(model.requests[1]), "the preferences are injected"
        assert "bye bye" not in request


def test_a_message_without_text_starts_no_search(tmp_path: Path, queries: list[str]) -> None:
    """An image alone asks nothing, although text is injected beside it."""
    image: Any = {"image": {"format": "png", "source": {"bytes": b"x"}}}
    with open_memory(tmp_path) as memory:
        remember_earlier_sessions(memory)
        queries.clear()
        arguments = memory.agent_kwargs(user_id="u1", session_id="today", task_state=True)
        agent = Agent(model=ScriptedModel(["A cat."]), **arguments)
        agent([image])
        assert queries == []


@pytest.mark.parametrize("text", ["Thanks, bye!", "Hello!", "ありがとうございます。"])
def test_small_talk_starts_no_search(tmp_path: Path, queries: list[str], text: str) -> None:
    """A greeting, thanks or a farewell is not answered with the small talk of earlier sessions."""
    with open_memory(tmp_path) as memory:
        remember_earlier_sessions(memory)
        queries.clear()
        model = ScriptedModel(["Yes?", "Gladly."])
        agent = memory.agent(model, user_id="u1", session_id="today")
        agent(text)
        assert queries == []
        agent(f"{text} {QUESTION}.")
        assert queries == [f"{text} {QUESTION}."]


def test_a_store_of_somebody_else_receives_no_injected_block(tmp_path: Path) -> None:
    """``extract_user_query`` removes injected blocks for other stores."""
    with open_memory(tmp_path) as memory:
        remember_earlier_sessions(memory)
        arguments = memory.agent_kwargs(
            user_id="u1", session_id="today", recall=True, task_state=True
        )
        store = RecordingStore()
        injection: Any = {"query": extract_user_query, "trigger": "everyTurn"}
        arguments["memory_manager"] = MemoryManager(stores=[store], injection=injection)
        call = [tool_use("1", "look_up", title="Soups")]
        agent = Agent(model=ScriptedModel([call, "Here."]), tools=[look_up], **arguments)
        agent(QUESTION)
        assert store.queries == [QUESTION, QUESTION]


def test_the_store_strips_injected_blocks_from_a_query(tmp_path: Path) -> None:
    """Blocks before or after the words change no result."""
    table = open_table(f"sqlite:///{tmp_path / 'users'}", USER_MEMORY)
    table.create_if_missing()
    store = UserMemoryStore(table, user_id="u1")
    for text in [*SMALL_TALK, "Cooks soups every Sunday", "Owns volume 3 of Uzumaki"]:
        store.remember(text)
    block = "<user_memory>\nThanks, bye bye! Uzumaki\n</user_memory>"
    state = "<conversation_state>\nCart: Thank you, volume 3\n</conversation_state>"
    found = [entry.content for entry in asyncio.run(store.search(QUESTION))]
    assert found == ["Cooks soups every Sunday"]
    for query in (
        f"{QUESTION}\n\n{state}\n\n{block}",
        f"{state}\n{block}\n{QUESTION}",
        f"{block}{QUESTION}{block}",
    ):
        assert [entry.content for entry in asyncio.run(store.search(query))] == found
    assert asyncio.run(store.search(f"{state}\n\n{block}")) == []


def test_a_query_of_many_opening_tags_takes_linear_time() -> None:
    """Opening tags without their closing ones stay, as a user wrote them."""
    context = InjectionQueryContext(messages=[user("<user_memory>" * 200_000)])
    assert len(extract_user_query(context) or "") == 200_000 * len("<user_memory>")
