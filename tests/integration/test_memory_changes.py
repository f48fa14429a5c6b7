"""A change of memories reaches every copy: tables, caches, signals, agents, sessions."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, tool

from strands_manga_memory import (
    USER_MEMORY,
    ConversationScope,
    DynamoDBTable,
    HotStore,
    InMemoryHotStore,
    MangaMemory,
    RedisHotStore,
    SQLiteTable,
    Table,
)
from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.language import SessionSummary
from strands_manga_memory.memory import (
    CallablePreferenceSink,
    PreferenceOutbox,
    PreferenceSignal,
    TablePreferenceSink,
    UserMemoryStore,
)
from strands_manga_memory.testing import ScriptedModel
from tests.faulty_stores import FaultyHotStore, FaultyTable
from tests.servers import wait_until
from tests.support import WatchedStore, settle
from tests.unit.session.support import tool_use

USER = "u1"


class Deployment:
    """Stores, the application with its live agents, and a settings page in another process."""

    def __init__(self, open_one: Callable[[], MangaMemory]) -> None:
        self._open = open_one
        self.app = open_one()
        self.page = open_one()
        self.models: dict[str, ScriptedModel] = {}

    def agent(self, session: str, **named: Any) -> Agent:
        model = self.models[session] = ScriptedModel()
        kwargs = self.app.agent_kwargs(user_id=USER, session_id=session, **named)
        return Agent(model=model, **kwargs)

    def settle(self) -> None:
        settle(self.app, self.page)

    def injected(self, session: str) -> str:
        """Return the text in a session's last request beyond user's and model's words."""
        request = self.models[session].requests[-1]
        blocks = [block.get("text", "") for m in request.messages for block in m["content"]]
        system = [block.get("text", "") for block in request.system_prompt_content or []]
        return "\n".join(text for text in [*system, *blocks] if "<user_" in text)

    def asked(self, session: str, text: str = "Hello, what can you recommend?") -> str:
        """Start a session, and return what its first request tells of the user."""
        self.agent(session)(text)
        self.settle()
        return self.injected(session)

    def end(self, session: str, **named: Any) -> None:
        self.settle()
        self.app.finalize(ConversationScope(USER, session), **named)

    def preferences(self) -> set[str]:
        self.settle()
        return {r.content for r in self.page.user(USER).recall(type="preference", limit=None)}

    def id_of(self, content: str) -> str:
        self.settle()
        known = self.page.user(USER).recall(type="preference", limit=None)
        [found] = [record.memory_id for record in known if record.content == content]
        return found

    def rows(self) -> list[dict[str, Any]]:
        return [*self.app.memories.query(USER), *self.app.memories.query(f"changes/{USER}")]

    def close(self) -> None:
        self.app.close()
        self.page.close()


@pytest.fixture(params=["embedded", pytest.param("servers", marks=pytest.mark.long)])
def shop(request: pytest.FixtureRequest, tmp_path: Path, unique: str) -> Iterator[Deployment]:
    """The embedded stores, and a Valkey and a DynamoDB server, in turn."""
    clients: list[Any] = []

    def embedded() -> MangaMemory:
        return MangaMemory.open(InMemoryHotStore(), f"sqlite:///{tmp_path}/m.db", memories=True)

    def on_servers() -> MangaMemory:
        clients.append(request.getfixturevalue("valkey_server").client())
        dynamodb = request.getfixturevalue("dynamodb_server").client()
        hot: HotStore = RedisHotStore(clients[-1], prefix=unique, deadline=5)
        tables: list[Table] = [
            DynamoDBTable(dynamodb, name=unique, deadline=10),
            DynamoDBTable(dynamodb, USER_MEMORY, name=f"{unique}m", deadline=10),
        ]
        return MangaMemory.open(hot, tables[0], memories=tables[1])

    made = Deployment(embedded if request.param == "embedded" else on_servers)
    yield made
    made.close()
    for client in clients:
        client.close()


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Deployment]:
    hot = InMemoryHotStore()
    made = Deployment(lambda: MangaMemory.open(hot, f"sqlite:///{tmp_path}/m.db", memories=True))
    yield made
    made.close()


# Stating


def test_statement_in_another_process_reaches_live_and_new_sessions(shop: Deployment) -> None:
    """The system prompt of a live session does not change."""

    def say(text: str) -> None:
        shop.page.agent(ScriptedModel(), user_id=USER, session_id="phone")(text)
        shop.settle()

    say("My favorite genre is horror.")
    agent = shop.agent("monday")
    agent("Hello, what can you recommend?")
    prompt = shop.models["monday"].requests[-1].system_prompt
    assert "genre: horror" in shop.injected("monday")
    for session, genre in (("tuesday", "mystery"), ("wednesday", "fantasy")):
        say(f"My favorite genre is {genre}.")
        say("I don't like romance.")
        agent("And what else?")
        for told in (shop.injected("monday"), shop.asked(session)):
            assert f"genre: {genre}" in told
            assert "dislikes: romance" in told
    assert shop.models["monday"].requests[-1].system_prompt == prompt
    say("I don't like fantasy.")
    assert "genre" not in shop.asked("thursday").partition("replace")[2]


# Forgetting


@pytest.mark.parametrize("by", ["app", "page"])
def test_forgotten_preference_leaves_live_and_new_sessions(shop: Deployment, by: str) -> None:
    """Any process may forget it, and the session's end does not learn it again."""
    agent = shop.agent("monday")
    agent("My favorite genre is horror.")
    agent("Hello, what can you recommend?")
    assert "horror" in shop.injected("monday")
    assert getattr(shop, by).user(USER).forget(shop.id_of("genre: horror"))
    agent("And what else?")
    assert "horror" not in shop.injected("monday")
    assert "horror" not in shop.asked("tuesday")
    shop.end("monday")
    assert shop.preferences() == set()
    assert "horror" not in shop.asked("wednesday")


class SlowTable(SQLiteTable):
    """Table whose transactions take a fifth of a second."""

    def transact(self, writes: Sequence[Any]) -> bool:
        time.sleep(0.2)
        return super().transact(writes)


def test_recall_and_context_right_after_a_turn_have_its_preferences(tmp_path: Path) -> None:
    table = SlowTable(tmp_path / "memories.sqlite3", USER_MEMORY)
    table.create_if_missing()
    with MangaMemory.open("memory://", memories=table) as memory:
        agent = memory.agent(ScriptedModel(), user_id=USER, session_id="monday")
        agent("My favorite genre is horror.")
        assert "genre: horror" in memory.user(USER).build_agent_context()
        agent("Actually, make that romance.")
        [record] = memory.user(USER).recall(type="preference")
        assert record.content == "genre: romance"


def test_context_of_a_store_object_that_is_kept_is_current(shop: Deployment) -> None:
    kept = shop.page.user(USER)
    assert kept.build_agent_context() == "No prior interaction history."
    shop.agent("monday")("My favorite genre is horror.")
    shop.settle()
    shop.app.user(USER).store_session_summary("shop", "The user ordered Uzumaki.")
    assert "genre: horror" in kept.build_agent_context()
    assert "The user ordered Uzumaki" in kept.build_agent_context()
    shop.app.user(USER).forget(shop.id_of("genre: horror"))
    assert "horror" not in kept.build_agent_context()
    shop.app.forget_user(USER)
    assert kept.build_agent_context() == "No prior interaction history."


def test_forgotten_preference_leaves_the_system_prompt_of_a_live_session(shop: Deployment) -> None:
    """Other preferences from the session's start stay."""
    shop.app.user(USER).prefer("genre", "horror")
    shop.app.user(USER).prefer("format", "paperback")
    agent = shop.agent("monday")
    agent("Hello, what can you recommend?")
    assert "horror" in shop.injected("monday")
    shop.page.user(USER).forget(shop.id_of("genre: horror"))
    agent("And what else?")
    assert "horror" not in shop.injected("monday")
    assert "paperback" in shop.injected("monday")


def test_statement_after_forgetting_counts(shop: Deployment) -> None:
    """A forgotten preference that is stated again is known in live and later sessions."""
    agent = shop.agent("monday")
    agent("My favorite genre is horror.")
    shop.page.user(USER).forget(shop.id_of("genre: horror"))
    agent("Hello, what can you recommend?")
    agent("My favorite genre is horror.")
    agent("And what else?")
    assert "horror" in shop.injected("monday")
    assert shop.preferences() == {"genre: horror"}
    shop.end("monday")
    assert shop.preferences() == {"genre: horror"}


def test_forgotten_statement_without_a_slot_is_not_learned_again(shop: Deployment) -> None:
    """A fact that belongs to no slot stays forgotten when its session ends."""
    agent = shop.agent("monday")
    agent("I work as a nurse on night shifts.")
    [content] = shop.preferences()
    shop.page.user(USER).forget(shop.id_of(content))
    agent("Hello, what can you recommend?")
    assert "nurse" not in shop.injected("monday")
    shop.end("monday")
    assert shop.preferences() == set()


def test_model_summary_does_not_learn_a_forgotten_preference(embedded: Deployment) -> None:
    """Neither under another key nor from the same message."""
    embedded.agent("monday")("My favorite genre is horror.")
    embedded.page.user(USER).forget(embedded.id_of("genre: horror"))

    def summarize(lines: Any, *, max_tokens: int) -> SessionSummary:
        return SessionSummary(text="The user reads books.", preferences={"interests": "horror"})

    embedded.end("monday", model=summarize)
    assert embedded.preferences() == set()


def test_forgotten_fact_leaves_the_search_of_a_live_session(shop: Deployment) -> None:
    """A live agent searches the facts that other processes left or added."""
    fact = shop.page.user(USER).remember("The parcel is at the locker GX1.")
    agent = shop.agent("monday")
    agent("Where is the parcel?")
    assert "GX1" in shop.injected("monday")
    shop.page.user(USER).forget(fact.memory_id)
    shop.page.user(USER).remember("The parcel is at the locker GX2.")
    agent("Where is the parcel?")
    assert "GX1" not in shop.injected("monday")
    assert "GX2" in shop.injected("monday")


def test_memory_forgotten_within_a_turn_leaves_its_further_requests(shop: Deployment) -> None:
    """The memory is forgotten while a tool runs."""
    fact = shop.page.user(USER).remember("The parcel is at the locker GX1.")

    @tool
    def forget_it() -> str:
        """Forget the fact on the settings page."""
        shop.page.user(USER).forget(fact.memory_id)
        return "done"

    call: Any = [tool_use("t1", "forget_it")]
    model = shop.models["monday"] = ScriptedModel([call, "ok"])
    kwargs = shop.app.agent_kwargs(user_id=USER, session_id="monday", tools=[forget_it])
    Agent(model=model, **kwargs)("Where is the parcel?")
    assert len(model.requests) == 2
    assert "GX1" in str(model.requests[0].messages)
    assert "GX1" not in str(model.requests[1].messages)


def test_forgotten_summary_is_not_made_again(embedded: Deployment) -> None:
    """A session that is finalized again summarizes the messages after the forgetting alone."""
    agent = embedded.agent("monday")
    agent("Do you have Uzumaki?")
    embedded.end("monday")
    [summary] = embedded.page.user(USER).recall(type="interaction_summary")
    embedded.page.user(USER).forget(summary.memory_id)
    embedded.agent("monday")("Do you have Berserk?")
    embedded.end("monday")
    kept = embedded.page.user(USER)
    found = str(kept.recall(type="interaction_summary") + kept.recall(type="episode"))
    assert "Uzumaki" not in found
    assert "Berserk" in str(kept.recall(type="interaction_summary"))


@pytest.mark.parametrize("writes", range(3))
def test_no_summary_is_remade_after_a_failed_deletion(embedded: Deployment, writes: int) -> None:
    """The table fails after some writes of the deletion, which is then repeated."""

    def refuse(name: str, *arguments: Any, **named: Any) -> None:
        if name in ("put", "delete", "write", "delete_many", "transact"):
            written.append(name)
            if len(written) == writes + 1:
                raise StoreUnavailableError("no writes")

    embedded.agent("monday")("Do you have Uzumaki?")
    embedded.end("monday")
    [summary] = embedded.page.user(USER).recall(type="interaction_summary")
    written: list[str] = []
    failing: Any = WatchedStore(embedded.page.memories, before=refuse)
    user = MangaMemory(hot=InMemoryHotStore(), durable=embedded.page.durable, memories=failing)
    for _ in range(2):
        with suppress(StoreUnavailableError):
            user.user(USER).forget(summary.memory_id)
    assert len(written) > writes
    embedded.agent("monday")("Do you have Berserk?")
    embedded.end("monday")
    kept = embedded.page.user(USER)
    found = kept.recall(type="interaction_summary") + kept.recall(type="episode")
    assert "Berserk" in str(found)
    assert "Uzumaki" not in str(found)


def test_forgotten_pattern_is_not_derived_again(embedded: Deployment) -> None:
    """A pattern comes back only with enough sessions after it was forgotten."""
    for number in range(3):
        embedded.agent(f"s{number}")("Do you have 『Uzumaki』?")
        embedded.end(f"s{number}")
    [pattern] = embedded.page.user(USER).recall(type="behavioral_pattern")
    embedded.page.user(USER).forget(pattern.memory_id)
    embedded.agent("s3")("Do you have 『Uzumaki』?")
    embedded.end("s3")
    assert embedded.page.user(USER).recall(type="behavioral_pattern") == []


def test_forgetting_drops_the_signal_that_waits_for_the_sink(tmp_path: Path) -> None:
    """A sink that was down does not get a preference that was forgotten meanwhile."""
    taken: list[PreferenceSignal] = []
    down = threading.Event()
    down.set()

    def send(signal: PreferenceSignal) -> None:
        if down.is_set():
            raise ConnectionError("down")
        taken.append(signal)

    shop = Deployment(
        lambda: MangaMemory.open(
            "memory://",
            f"sqlite:///{tmp_path}/m.db",
            memories=True,
            sink=CallablePreferenceSink(send),
        )
    )
    agent = shop.agent("monday")
    agent("My favorite genre is horror. My name is Ken.")
    assert shop.app.memories is not None
    outbox = PreferenceOutbox(shop.app.memories, CallablePreferenceSink(send))
    owner = shop.app.user(USER).owner
    wait_until(lambda: len(list(outbox.waiting(owner))) == 2, "the signals to wait")
    shop.app.user(USER).forget(shop.app.user(USER).prefer("genre", "horror").memory_id)
    wait_until(
        lambda: [one.value for one in outbox.waiting(owner)] == ["Ken"], "the signal to be dropped"
    )
    down.clear()
    wait_until(lambda: [signal.value for signal in taken] == ["Ken"], "the other signal to be sent")
    shop.close()


# Retracting


def test_message_retracted_by_a_settings_page_leaves_live_sessions(shop: Deployment) -> None:
    """A retraction reaches the hot tier, so no device tells what the message stated."""
    agent, other = shop.agent("monday"), shop.agent("tuesday")
    agent("My favorite genre is horror.")
    other("Hello, what can you recommend?")
    shop.settle()
    message_id = agent.messages[0]["tracking_id"]
    shop.page.user(USER).retract(message_id, session_id="monday")
    for session, one in (("monday", agent), ("tuesday", other)):
        one("And what else?")
        assert "horror" not in shop.injected(session)
    assert shop.preferences() == set()
    shop.end("monday")
    assert shop.preferences() == set()
    assert "horror" not in shop.asked("wednesday")


def test_retraction_restores_the_preference_that_was_stated_before(shop: Deployment) -> None:
    """Without the retracted message the earlier statement stands, as it does in the transcript."""
    agent = shop.agent("monday")
    agent("My favorite genre is horror.")
    agent("My favorite genre is mystery.")
    assert shop.preferences() == {"genre: mystery"}
    shop.page.user(USER).retract(agent.messages[2]["tracking_id"])
    assert shop.preferences() == {"genre: horror"}


def test_message_redacted_while_the_table_is_down_is_retracted_later(tmp_path: Path) -> None:
    """A redaction reaches live agents at once, and the table when the table answers again."""
    hot, path = InMemoryHotStore(), f"sqlite:///{tmp_path}/m.db"
    plain = MangaMemory.open(hot, path, memories=True)
    table: Any = FaultyTable(plain.memories)
    memory = MangaMemory(hot=hot, durable=plain.durable, memories=table)
    model = ScriptedModel()
    agent = memory.agent(model, user_id=USER, session_id="monday")
    agent("My favorite genre is horror.")
    settle(memory)
    table.down = True
    agent.messages[0]["content"] = [{"text": "[redacted]"}]
    agent("Hello, what can you recommend?")
    assert "horror" not in str(model.requests[-1].messages)
    table.down = False
    wait_until(lambda: not plain.user(USER).recall(type="preference"), "the retraction")
    agent("And what else?")
    assert "horror" not in str(model.requests[-1].messages)
    assert "horror" not in str(model.requests[-1].system_prompt_content)
    plain.close()


def test_statement_retracted_while_it_is_stored_is_discarded(tmp_path: Path) -> None:
    """The retraction is found although the log had no statement of the message yet."""
    table = SQLiteTable(tmp_path / "m.db", USER_MEMORY)
    table.create_if_missing()
    store = UserMemoryStore(table, user_id=USER)

    def retract(name: str, *_: Any, **__: Any) -> None:
        if name == "transact" and interrupted.calls.count(name) == 1:
            store.retract("m1")

    interrupted: Any = WatchedStore(table, retract)
    signal = PreferenceSignal(
        id="1", number=1, user_id=USER, key="genre", value="horror", at=1.0, message_id="m1"
    )
    TablePreferenceSink(interrupted).send(signal)
    assert store.recall(type="preference") == []


# Setting


def test_preference_set_on_a_settings_page_wins_over_an_earlier_statement(shop: Deployment) -> None:
    """The live session shows the last value, and its end keeps that."""
    agent = shop.agent("monday")
    agent("My favorite genre is horror.")
    shop.settle()
    shop.page.user(USER).prefer("genre", "mystery")
    agent("Hello, what can you recommend?")
    assert "genre: mystery" in shop.injected("monday")
    assert "horror" not in shop.injected("monday")
    shop.end("monday")
    assert shop.preferences() == {"genre: mystery"}
    assert "horror" not in shop.asked("tuesday").partition("</user_preferences>")[0]


def test_statement_after_a_settings_page_wins(shop: Deployment) -> None:
    """A preference that is stated after it was set on a settings page is the latest one."""
    agent = shop.agent("monday")
    agent("Hello, what can you recommend?")
    shop.page.user(USER).prefer("genre", "mystery")
    agent("My favorite genre is horror.")
    agent("And what else?")
    assert "genre: horror" in shop.injected("monday")
    assert shop.preferences() == {"genre: horror"}
    shop.end("monday")
    assert shop.preferences() == {"genre: horror"}


def test_preference_set_elsewhere_leaves_the_cached_prefix(embedded: Deployment) -> None:
    """The preference stands behind the conversation, not in the system prompt."""
    embedded.app.user(USER).prefer("genre", "horror")
    agent = embedded.agent("monday")
    agent("Hello, what can you recommend?")
    embedded.page.user(USER).prefer("genre", "mystery")
    agent("And what else?")
    first, last = embedded.models["monday"].requests[0], embedded.models["monday"].requests[-1]
    assert first.system_prompt_content == last.system_prompt_content
    assert "genre: mystery" in str(last.messages)
    assert "user_memory" not in str(agent.messages)


# Order


@pytest.mark.parametrize("order", [("phone", "laptop"), ("laptop", "phone")], ids="-".join)
def test_the_later_message_always_wins(shop: Deployment, order: tuple[str, str]) -> None:
    """The time of the message decides, not the end of its session."""
    phone, laptop = shop.agent("phone"), shop.agent("laptop")
    phone("My favorite genre is horror.")
    laptop("My favorite genre is mystery.")
    phone("Hello, what can you recommend?")
    for session in order:
        shop.end(session)
    assert shop.preferences() == {"genre: mystery"}


def bare_agent(deployment: Deployment, session: str) -> Agent:
    """Return an agent that extracts no preferences."""
    manager = deployment.app.session(ConversationScope(USER, session))
    return Agent(model=ScriptedModel(), session_manager=manager)


@pytest.mark.parametrize("order", [("phone", "laptop"), ("laptop", "phone")], ids="-".join)
@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("I love horror manga.", "I don't like horror any more.", {"dislikes: horror"}),
        ("I don't like horror.", "My favorite genre is horror.", {"genre: horror"}),
        ("My name is Ken.", "My name is Kenji.", {"name: Kenji"}),
        ("My favorite genre is horror.", "I also like romance.", {"genre: romance, horror"}),
    ],
)
def test_sessions_that_are_only_finalized_agree_on_the_order(
    embedded: Deployment, order: tuple[str, str], first: str, second: str, expected: set[str]
) -> None:
    """Preferences follow the order of the messages of all sessions."""
    for session, text in (("phone", first), ("laptop", second)):
        bare_agent(embedded, session)(text)
    bare_agent(embedded, "phone")("Hello, what can you recommend?")
    assert embedded.preferences() == set()
    for session in order:
        embedded.end(session)
    assert embedded.preferences() == expected


def test_session_that_ends_twice_changes_nothing(embedded: Deployment) -> None:
    """A second finalization does not bring back an earlier statement."""
    embedded.agent("phone")("My favorite genre is horror.")
    embedded.end("phone")
    embedded.agent("laptop")("My favorite genre is mystery.")
    embedded.agent("phone")("Hello, what can you recommend?")
    embedded.end("phone")
    embedded.end("laptop")
    embedded.end("phone")
    assert embedded.preferences() == {"genre: mystery"}


# The hot tier is down


def test_removal_is_published_when_the_hot_tier_answers_again(tmp_path: Path) -> None:
    """Later sessions do not show a preference forgotten during an outage."""
    faulty: Any = FaultyHotStore(InMemoryHotStore())
    shop = Deployment(lambda: MangaMemory.open(faulty, f"sqlite:///{tmp_path}/m.db", memories=True))
    shop.app.user(USER).prefer("genre", "horror")
    agent = shop.agent("monday")
    agent("Hello, what can you recommend?")
    assert "horror" in shop.injected("monday")
    shop.settle()
    memory_id = shop.id_of("genre: horror")
    faulty.down = True
    assert shop.page.user(USER).forget(memory_id)
    faulty.down = False
    shop.settle()
    assert "horror" not in shop.asked("tuesday")
    wait_until(
        lambda: agent("And what else?") and "horror" not in shop.injected("monday"),
        "the live agent to see it",
    )
    shop.close()


# Erasure


@pytest.mark.parametrize("by", ["app", "page"])
def test_erased_user_is_not_told_to_a_live_agent(shop: Deployment, by: str) -> None:
    """A live agent shows and writes nothing of an erased user."""
    shop.app.user(USER).prefer("genre", "horror")
    shop.app.user(USER).remember("The parcel is at the locker GX1.")
    agent = shop.agent("monday")
    agent("Where is the parcel? My favorite author is Ito.")
    shop.settle()
    assert "horror" in shop.injected("monday")
    assert "GX1" in shop.injected("monday")
    getattr(shop, by).forget_user(USER)
    for _ in range(2):
        agent("Where is the parcel?")
        assert shop.injected("monday") == ""
    shop.settle()
    assert {row["memory_id"] for row in shop.rows()} == {"~erased"}


def test_work_queued_before_an_erasure_writes_nothing(tmp_path: Path) -> None:
    """Statements and access counts that wait for a table are dropped."""
    path = f"sqlite:///{tmp_path}/m.db"
    table = SQLiteTable(tmp_path / "m.db", USER_MEMORY)
    closed, waits, opened = threading.Event(), threading.Event(), threading.Event()

    def hold(name: str, *_: Any, **__: Any) -> None:
        if closed.is_set() and name in ("get", "batch_get", "put", "transact"):
            waits.set()
            assert opened.wait(30)

    held: Any = WatchedStore(table, hold)
    hot = InMemoryHotStore()
    table.create_if_missing()
    app = MangaMemory(hot=hot, durable=MangaMemory.open(hot, path).durable, memories=held)
    page = MangaMemory.open(hot, path, memories=True)
    page.user(USER).remember("The parcel is at the locker GX1.")
    model = ScriptedModel()
    agent = app.agent(model, user_id=USER, session_id="monday")
    closed.set()
    agent("Where is the parcel? My favorite genre is horror.")
    assert waits.wait(20)
    page.forget_user(USER)
    closed.clear()
    opened.set()
    settle(app)
    found = {row["memory_id"] for row in [*table.query(USER), *table.query(f"changes/{USER}")]}
    assert found == {"~erased"}
    assert [row for bucket in range(16) for row in table.query(f"spool/{bucket:02d}")] == []
    assert page.export_user(USER)["overrides"] == {}
    app.close()
    page.close()


def test_transcript_of_before_an_erasure_is_not_finalized_after_it(embedded: Deployment) -> None:
    """A worker has read the transcript before the erasure."""
    embedded.agent("monday")("My favorite genre is horror.")
    embedded.settle()
    finalizer = embedded.app.finalizer()
    read = finalizer._finalized

    def late(transcript: Any) -> Any:
        embedded.page.forget_user(USER)
        return read(transcript)

    finalizer._finalized = late
    assert finalizer.run(ConversationScope(USER, "monday")) is None
    assert {row["memory_id"] for row in embedded.rows()} == {"~erased"}


def test_statement_after_an_erasure_is_learned(shop: Deployment) -> None:
    """A user who comes back after the erasure begins with an empty memory that works."""
    shop.agent("monday")("My favorite genre is horror.")
    shop.settle()
    shop.page.forget_user(USER)
    agent = shop.agent("tuesday")
    agent("My favorite author is Ito.")
    agent("Hello, what can you recommend?")
    assert "Ito" in shop.injected("tuesday")
    assert "horror" not in shop.injected("tuesday")
    assert shop.preferences() == {"author: Ito"}


def test_rewind_retracts_preferences_of_removed_turns(shop: Deployment) -> None:
    agent = shop.agent("monday")
    agent("My favorite genre is horror.")
    agent("I prefer paperbacks.")
    agent("Answer in Japanese from now on.")
    assert len(shop.preferences()) == 3
    shop.app.rewind(ConversationScope(USER, "monday"), 1)
    assert shop.preferences() == {"genre: horror"}
    agent("Hello, what can you recommend?")
    assert "paperbacks" not in str(shop.models["monday"].requests[-1])


def test_rewind_deletes_all_preferences_later_if_the_table_takes_no_writes(tmp_path: Path) -> None:
    def refuse(name: str, *arguments: Any, **named: Any) -> None:
        if name == "transact" and is_refused:
            raise StoreUnavailableError("no writes")

    is_refused = False
    hot, path = InMemoryHotStore(), f"sqlite:///{tmp_path}/m.db"
    plain = MangaMemory.open(hot, path, memories=True)
    table: Any = WatchedStore(plain.memories, before=refuse)
    memory = MangaMemory(hot=hot, durable=plain.durable, memories=table)
    agent = memory.agent(ScriptedModel(), user_id=USER, session_id="monday")
    for text in ("My favorite genre is horror.", "I prefer paperbacks.", "I love cats."):
        agent(text)
    settle(memory)
    is_refused = True
    with pytest.raises(StoreUnavailableError, match="no writes"):
        memory.rewind(ConversationScope(USER, "monday"), 1)
    is_refused = False
    wait_until(
        lambda: (
            [each.content for each in plain.user(USER).recall(type="preference")]
            == ["genre: horror"]
        ),
        "the statements of removed turns to be deleted",
    )
    memory.close()
    plain.close()


def test_rewind_of_a_finalized_session_renews_its_summary(shop: Deployment) -> None:
    agent = shop.agent("monday")
    agent("Is Uzumaki in stock?")
    agent("Do you sell Berserk posters?")
    shop.end("monday")
    assert "Berserk" in shop.page.user(USER).build_agent_context()
    shop.app.rewind(ConversationScope(USER, "monday"), 1)
    shop.end("monday")
    context = shop.page.user(USER).build_agent_context()
    assert "Berserk" not in context
    assert "Uzumaki" in context
