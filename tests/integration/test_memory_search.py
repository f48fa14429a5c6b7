"""Searches of memories: words of the query, relevant results, and older memories."""

import asyncio
import re
import threading
from collections.abc import Iterator
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

from strands_manga_memory import (
    ConversationScope,
    Environment,
    MangaMemory,
    SQLiteTable,
    UserMemoryStore,
)
from strands_manga_memory.memory import extract_user_query
from strands_manga_memory.stores import USER_MEMORY, open_table
from strands_manga_memory.testing import ScriptedModel
from strands_manga_memory.user_data import forget_user
from tests.support import finish_writes, stub_tool
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


class Memories:
    """Memory table of one user, with a clock that each new memory moves by a second."""

    def __init__(self, path: Path) -> None:
        self.table = SQLiteTable(path / "memories.sqlite3", schema=USER_MEMORY)
        self.table.create_if_missing()
        self.now = 1_800_000_000.0

    def store(self) -> UserMemoryStore:
        """Return a store of another process."""
        return UserMemoryStore(self.table, user_id="u1", clock=lambda: self.now)

    def remember(self, *texts: str) -> list[str]:
        """Store facts, and return their ids."""
        store, ids = self.store(), []
        for text in texts:
            self.now += 1
            ids.append(store.remember(text).memory_id)
        return ids


@pytest.fixture
def memories(tmp_path: Path) -> Iterator[Memories]:
    found = Memories(tmp_path)
    yield found
    found.table.close()


def contents(store: UserMemoryStore, query: str, limit: int = 5) -> list[str]:
    return [record.content for record in store.recall(query=query, limit=limit)]


def test_recall_compares_all_matching_memories(memories: Memories) -> None:
    """A recent match does not hide older ones."""
    matching = [f"allergy {word}" for word in ("peanuts", "shellfish", "latex")]
    memories.remember(
        *matching, *(f"parcel number {number}" for number in range(200)), "allergy pollen"
    )
    for _ in range(2):  # the second recall reads the stored list of words
        found = sorted(contents(memories.store(), "allergy", 4))
        assert found == sorted([*matching, "allergy pollen"])


def test_search_after_a_recall_finds_an_old_preference(memories: Memories) -> None:
    """There are more preferences than a session start reads."""
    writer = memories.store()
    for number in range(60):
        memories.now += 1
        writer.prefer(f"topic{number:02d}", f"value{number:02d}")
    memories.remember(*(f"parcel number {number}" for number in range(100)))
    for _ in range(2):
        store = memories.store()
        store.recall(query="something else", limit=2)
        found = [record.content for record in store.reader.search("topic03 value03", limit=1)]
        assert found == ["topic03: value03"]


def test_facts_are_found_after_the_latest_are_forgotten(memories: Memories) -> None:
    """The list of the latest facts names deleted ones."""
    ids = memories.remember(*(f"fact {number} about thing{number}" for number in range(100)))
    store = memories.store()
    for id_ in ids[-64:]:
        store.forget(id_)
    assert len(memories.store().recall(limit=5)) == 5
    assert contents(memories.store(), "thing7", 1) == ["fact 7 about thing7"]


@pytest.mark.parametrize("damage", [{"latest": 5}, {"latest": []}])
def test_facts_are_found_without_the_latest(memories: Memories, damage: dict[str, Any]) -> None:
    memories.remember(*(f"volume {number} of Uzumaki" for number in range(3)))
    memories.table.put({**(memories.table.get("u1", "~by_age") or {}), **damage})
    assert (
        len(contents(memories.store(), "Uzumaki"))
        == len(memories.store().reader.search("Uzumaki"))
        == 3
    )
    memories.remember("volume 4 of Uzumaki")
    assert (
        len(contents(memories.store(), "Uzumaki"))
        == len(memories.store().reader.search("Uzumaki"))
        == 4
    )
    assert len(memories.store().recall(type="fact", query="Uzumaki")) == 4


def test_new_words_of_an_old_summary_are_found(memories: Memories) -> None:
    """The summary is replaced after the list of words was stored."""
    store = memories.store()
    for number in range(150):
        memories.now += 60
        store.store_session_summary(f"s{number}", f"The user asked about book{number}.")
    assert contents(memories.store(), "book2", 1) == ["The user asked about book2."]
    memories.now += 60
    memories.store().store_session_summary("s2", "The user cancelled the gazebo delivery.")
    assert contents(memories.store(), "gazebo", 1) == ["The user cancelled the gazebo delivery."]


class PausedSearch:
    """Table whose read of the word list waits until the user's memories are deleted."""

    def __init__(self, table: SQLiteTable) -> None:
        self._table = table
        self.paused, self.deleted, self.searched = (
            threading.Event(),
            threading.Event(),
            threading.Event(),
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def batch_get(self, keys: Any) -> Any:
        if any(id_.startswith("~words#") for _, id_ in keys) and not self.paused.is_set():
            self.paused.set()
            assert self.deleted.wait(20)
        return self._table.batch_get(keys)

    def batch_write(self, **writes: Any) -> None:
        self._table.batch_write(**writes)
        if any(partition == "u1" for partition, _ in writes.get("deletes", ())):
            self.deleted.set()
            assert self.searched.wait(20)


def test_words_of_an_erased_user_are_not_stored(memories: Memories, tmp_path: Path) -> None:
    """A search that makes the list between two steps of the erasure leaves nothing behind."""
    memories.remember(*(f"parcel number {number}" for number in range(100)))
    table: Any = PausedSearch(memories.table)
    sessions = SQLiteTable(tmp_path / "sessions.sqlite3")
    sessions.create_if_missing()

    def search() -> None:
        UserMemoryStore(table, user_id="u1", clock=lambda: memories.now).recall(
            query="parcel", limit=5
        )
        table.searched.set()

    thread = threading.Thread(target=search)
    thread.start()
    assert table.paused.wait(20)
    report = forget_user(
        "u1", hot=None, durable=sessions, memories=table, clock=lambda: memories.now
    )
    thread.join()
    assert report.complete, report.left
    sessions.close()


def test_searches_share_a_hanging_read(memories: Memories, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each search waits for the first read, and queues no other one."""
    memories.remember("volume 3 of Uzumaki")
    reader = memories.store().reader
    answers, reads = threading.Event(), list[float]()
    monkeypatch.setattr("strands_manga_memory.memory.memory_reader._PATIENCE", 0.05)
    partition_type = type(memories.store().partition)
    load_recent = partition_type.load_recent

    def silent(partition: Any, latest: Any) -> Any:
        reads.append(memories.now)
        answers.wait(10)
        return load_recent(partition, latest)

    monkeypatch.setattr(partition_type, "load_recent", silent)
    for _ in range(3):
        reader.search("Uzumaki")
    answers.set()
    assert [hit.content for hit in reader.search("Uzumaki")] == ["volume 3 of Uzumaki"]
    finish_writes(None, memories.table)
    assert len(reads) == 1
