"""From an ended session to memories: finalizer, sweeper and roll-ups on every store."""

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from strands import Agent

from strands_manga_memory import (
    ConversationScope,
    SessionFinalizer,
    SessionSweeper,
    StoreUnavailableError,
    TieredSessionManager,
    UserMemoryStore,
)
from strands_manga_memory.assembly.finalizer import restart_ttl
from strands_manga_memory.conversation import Summary
from strands_manga_memory.stores import USER_MEMORY, InMemoryHotStore, SQLiteTable, Table
from strands_manga_memory.testing import FakeClock, ScriptedModel
from tests.support import DAY, WatchedStore, estimate_tokens, stub_tool

SURVIVING = type("SurvivingHotStore", (InMemoryHotStore,), {"survives_process": True})


class World:
    """Stores whose clock the test moves, and users who talk."""

    def __init__(self, tables: tuple[Table, Table], *, hot: bool = True) -> None:
        self.clock = FakeClock(1_700_000_000.0)
        self.hot = SURVIVING(clock=self.clock) if hot else None
        self.durable: Any = tables[0]
        self.memories: Any = tables[1]

    def talk(
        self,
        session: str,
        *texts: str,
        user: str = "u1",
        reply: str | Callable[[Any], str] = "Noted.",
        close: bool = True,
        tools: Any = (),
    ) -> Agent:
        manager = TieredSessionManager(
            ConversationScope(user, session), hot=self.hot, durable=self.durable, clock=self.clock
        )
        answer = (lambda _: reply) if isinstance(reply, str) else reply
        model = ScriptedModel(tools[1] if tools else answer)
        agent = Agent(
            model=model,
            session_manager=manager,
            agent_id="default",
            tools=list(tools[:1]) if tools else [],
        )
        for text in texts:
            agent(text)
        manager.close() if close else manager.flush()
        return agent

    def roll_up(self) -> dict[str, int]:
        """Finalize another session, and return the versions of the weekly and monthly summaries."""
        self.talk("now", "Is my order on its way?")
        self.finalizer().run(ConversationScope("u1", "now"))
        rollups = [
            record
            for type_ in ("weekly_rollup", "monthly_rollup")
            for record in self.store().recall(type=type_, limit=None)
        ]
        return {record.memory_id: record.version for record in rollups}

    def finalizer(self, model: Any = None, **named: Any) -> SessionFinalizer:
        stores = {"hot": self.hot, "durable": self.durable, "memories": self.memories}
        return SessionFinalizer(**stores, model=model, clock=self.clock, **named)

    def sweeper(self, model: Any = None, **named: Any) -> SessionSweeper:
        return SessionSweeper(
            hot=self.hot,
            durable=self.durable,
            finalizer=self.finalizer(model, **named),
            clock=self.clock,
        )

    def store(self, user: str = "u1") -> UserMemoryStore:
        return UserMemoryStore(self.memories, user_id=user, clock=self.clock)

    def summaries(self, user: str = "u1") -> list[Any]:
        return sorted(
            self.store(user).recall(type="interaction_summary", limit=None),
            key=lambda record: record.memory_id,
        )

    def durable_rows(self) -> list[str]:
        if isinstance(self.durable, SQLiteTable):
            with self.durable._connected() as connection:
                return [
                    f"{row[0]} {row[1]}"
                    for row in connection.execute("SELECT partition, sort FROM manga_sessions")
                ]
        pages = self.durable.client.get_paginator("scan").paginate(TableName=self.durable.name)
        return [f"{row['session_id']['S']} {row['sk']['S']}" for p in pages for row in p["Items"]]


@pytest.fixture(params=[True, False], ids=["hot", "durable only"])
def world(request: pytest.FixtureRequest, tables: tuple[Table, Table]) -> World:
    return World(tables, hot=request.param)


@pytest.fixture
def quick(tmp_path: Path) -> tuple[Table, Table]:
    """Tables for what does not depend on them."""
    made = SQLiteTable(tmp_path / "m.db"), SQLiteTable(tmp_path / "m.db", USER_MEMORY)
    for table in made:
        table.create_if_missing()
    return made


def test_a_short_answer_is_learned_from_the_transcript(quick: tuple[Table, Table]) -> None:
    """The question of a turn that was removed since does not count for the next answer."""
    world = World(quick)
    world.talk("s1", "Hi there", "kenji", reply="What's your name?")
    world.finalizer().run(ConversationScope("u1", "s1"))
    assert [each.content for each in world.store().recall(type="preference")] == ["name: kenji"]
    replies = iter(["Which genres do you like?", "Which genres do you dislike?", "Noted."])
    agent = world.talk("s2", "Hello", "horror", "romance", user="u2", reply=lambda _: next(replies))
    world.store("u2").retract(agent.messages[2]["tracking_id"], session_id="s2")
    world.finalizer().run(ConversationScope("u2", "s2"))
    assert world.store("u2").recall(type="preference") == []


def test_forget_everything_about_me_removes_preferences_and_earlier_turns(
    quick: tuple[Table, Table],
) -> None:
    """No preference is left, and the summary has only the later turns."""
    world = World(quick)
    world.talk("s1", "My favorite genre is horror.")
    world.finalizer().run(ConversationScope("u1", "s1"))
    world.clock.advance(60)
    world.talk("s2", "I have my appointments in Leeds.", "Forget everything about me.", "Any news?")
    world.finalizer().run(ConversationScope("u1", "s2"))
    assert world.store().recall(type="preference") == []
    assert "Leeds" not in world.summaries()[-1].content
    assert all("Leeds" not in each.content for each in world.store().recall(type="episode"))


def test_what_is_kept_of_a_session(world: World) -> None:
    world.talk(
        "s1",
        "My favorite genre is horror.",
        "Thank you, do you have volume 3 of 『Uzumaki』?",
        reply="Let me check that.",
    )
    world.clock.advance(1801)
    assert world.sweeper().run_once() == 1
    [summary] = world.summaries()
    assert summary.metadata["session_id"] == "s1"
    assert summary.metadata["turn_count"] == 2
    assert summary.metadata["topics"][0] == "Uzumaki"
    assert summary.metadata["sentiment"] == "positive"
    assert summary.metadata["open_questions"] == ["Thank you, do you have volume 3 of 『Uzumaki』?"]
    assert summary.importance == 0.6
    assert summary.expires_at == int(summary.metadata["ended_at"] + 90 * DAY)
    assert estimate_tokens(summary.content) <= 60
    [preference] = world.store().recall(type="preference")
    assert preference.metadata["preference_key"] == "genre"
    assert preference.metadata["value"] == "horror"
    assert world.store().reader.search("uzumaki volume")[0].record.type in (
        "episode",
        "interaction_summary",
    )
    assert world.sweeper().run_once() == 0
    assert len(world.summaries()) == 1


def test_a_summary_of_a_model_that_answers_in_json_or_in_prose(world: World) -> None:
    preferences = {"genre": "horror"}
    typed = json.dumps(
        {
            "text": "The user wants horror manga.",
            "sentiment": "positive",
            "preferences": preferences,
        }
    )
    for number, answer in enumerate(
        [typed, "The user asked for horror manga and was told what there is."]
    ):
        scope = ConversationScope(f"u{number}", "s1")
        world.talk("s1", "I want horror manga please", user=scope.user_id)
        summary = world.finalizer(ScriptedModel([answer])).run(scope)
        assert "horror manga" in summary.content
        assert summary.metadata["by_rules"] is False
    assert world.store("u0").recall(type="preference")[0].content == "genre: horror"


@pytest.mark.parametrize(
    ("question", "announced", "answer"),
    [
        ("Where is my order ORD-55120?", "Let me check.", "It was shipped yesterday."),
        ("注文 ORD-55120 はどうなっていますか？", "確認します。", "昨日発送しました。"),
    ],
)
def test_the_answer_after_a_tool_call_is_that_of_the_summary(
    quick: tuple[Table, Table], question: str, announced: str, answer: str
) -> None:
    order_status = stub_tool("order_status", lambda order_id: "shipped")

    world = World(quick)
    use = {"toolUseId": "t1", "name": "order_status", "input": {"order_id": "ORD-55120"}}
    calling = [{"text": announced}, {"toolUse": use}]
    world.talk("s1", question, "Thanks!", tools=(order_status, [calling, answer, "Bye."]))
    world.finalizer().run(ConversationScope("u1", "s1"))
    [summary] = world.summaries()
    assert summary.metadata["open_questions"] == []
    assert answer.rstrip(".。") in summary.content
    assert announced.rstrip(".。") not in summary.content


@pytest.mark.parametrize(
    ("said", "answer", "is_closed"),
    [
        ("Any news on those prints?", "Yes, two signed Urasawa prints are left at 60 pounds each.",
            True),
        ("Any news on those prints?",
            "I am still checking whether signed Urasawa prints are available.", False),
        ("Do you have prints?", "We have prints of Totoro.", False),
    ],
)  # fmt: skip
def test_a_later_session_closes_the_open_questions_that_it_answers(
    quick: tuple[Table, Table], said: str, answer: str, is_closed: bool
) -> None:
    world = World(quick, hot=True)
    question = "Could you find out if the signed Urasawa prints are still available?"
    world.talk("s1", question, reply="I will ask my colleague.")
    world.finalizer().run(ConversationScope("u1", "s1"))
    assert f"- {question}" in world.store().build_agent_context()
    world.clock.advance(DAY)
    world.talk("s2", said, reply=answer)
    world.finalizer().run(ConversationScope("u1", "s2"))
    assert (f"- {question}" in world.store().build_agent_context()) is not is_closed
    world.talk("s1", "Thank you.", reply="Good night.")  # the first session is summarized again
    world.finalizer().run(ConversationScope("u1", "s1"))
    assert (f"- {question}" in world.store().build_agent_context()) is not is_closed


@pytest.mark.parametrize(
    "is_late", [True, False], ids=["finalized after the answer", "made again after a retraction"]
)
def test_answered_question_stays_closed_later(quick: tuple[Table, Table], is_late: bool) -> None:
    world, scopes = World(quick), [ConversationScope("u1", "s1"), ConversationScope("u1", "s2")]
    question = "Could you find out if the signed Urasawa prints are still available?"
    agent = world.talk("s1", question, "I moved to Kyoto.", reply="I will ask my colleague.")
    world.clock.advance(DAY)
    world.talk(
        "s2",
        "Any news on those prints?",
        reply="Yes, two signed Urasawa prints are left at 60 pounds each.",
    )
    if is_late:
        scopes.reverse()
    for scope in scopes:
        world.finalizer().run(scope)
    if not is_late:
        world.store().retract(str(agent.messages[2].get("tracking_id")), session_id="s1")
        world.finalizer().run(scopes[0])
    assert len(world.summaries()) == 2
    assert f"- {question}" not in world.store().build_agent_context()


@pytest.mark.parametrize(("volume", "is_closed"), [(3, False), (4, True)])
def test_answer_about_another_volume_closes_none(
    quick: tuple[Table, Table], volume: int, is_closed: bool
) -> None:
    world = World(quick, hot=True)
    question = "When does volume 4 of Uzumaki arrive?"
    world.talk("s1", question, reply="I will check.")
    world.finalizer().run(ConversationScope("u1", "s1"))
    world.talk(
        "s2",
        f"Is volume {volume} of Uzumaki in stock?",
        reply=f"Volume {volume} of Uzumaki arrives on Friday.",
    )
    world.finalizer().run(ConversationScope("u1", "s2"))
    assert (f"- {question}" in world.store().build_agent_context()) is not is_closed


@pytest.mark.parametrize(
    "answer",
    [
        RuntimeError("no model"),
        "",
        "I'm sorry, I can't help with that.",
        "{not json",
        '{"text": 7}',
        '{"topics": []}',
        "Quarterly revenue increased because shareholders celebrated dividends.",
        "horror " * 5000,
    ],
    ids=[
        "raises", "empty", "refusal", "no json", "not text", "no text", "nonsense",
        "longer than its source",
    ],
)  # fmt: skip
def test_a_model_that_fails_costs_no_summary(quick: tuple[Table, Table], answer: Any) -> None:
    world = World(quick)
    world.talk("s1", "I want horror manga please")
    world.clock.advance(1801)
    assert world.sweeper(ScriptedModel(lambda messages: answer)).run_once() == 1
    [summary] = world.summaries()
    assert summary.metadata["by_rules"] is True
    assert "horror" in summary.content


def test_a_summarizer_that_hangs_is_left(quick: tuple[Table, Table]) -> None:
    world, released = World(quick), threading.Event()

    def hang(lines: Any, *, max_tokens: int) -> Summary:
        released.wait(60)
        return Summary(text="too late")

    world.talk("s1", "I want horror manga please")
    world.clock.advance(1801)
    assert world.sweeper(hang, timeout=0.05).run_once() == 1
    released.set()
    assert world.summaries()[0].metadata["by_rules"] is True


def test_a_return_within_the_session_makes_the_next_version(world: World) -> None:
    scope = ConversationScope("u1", "s1")
    world.talk("s1", "I want horror manga")
    first = world.finalizer().run(scope)
    assert first is not None
    assert world.finalizer().run(scope) == first
    if world.hot is not None:
        assert list(world.hot._conversations) in ([], ["profile/u1/cache"])
    world.talk("s1", "And what about romance?")
    second = world.finalizer().run(scope)
    assert (second.memory_id, second.version) == (first.memory_id, 2)
    assert second.metadata["turn_count"] == 2
    assert len(world.summaries()) == 1


def test_each_incarnation_has_a_summary_of_its_own_also_under_the_same_ids(world: World) -> None:
    for text in ("I want horror manga", "I want romance manga"):
        world.talk("s1", text)
        world.clock.advance(1801)
        world.sweeper().run_once()
        for _ in range(4):
            world.clock.advance(1.1 * DAY)
            world.sweeper().run_once()
    assert len(world.summaries()) == 2


def test_from_the_durable_log_when_the_hot_copy_is_gone(tables: tuple[Table, Table]) -> None:
    world = World(tables)
    world.talk("s1", "I want horror manga")
    world.clock.advance(6 * 3600)
    world.hot._conversations.clear()  # as the store's own expiry does
    assert world.sweeper().run_once() == 1
    assert "horror" in world.summaries()[0].content


def test_from_the_durable_log_when_the_head_has_expired(tables: tuple[Table, Table]) -> None:
    world = World(tables)
    world.talk("s1", "I want horror manga")
    world.clock.advance(3 * DAY)
    world.hot._conversations.clear()
    world.durable.delete(":u1:s1", "A:default#HEAD")
    assert world.sweeper().run_once() == 1
    assert "horror" in world.summaries()[0].content
    for _ in range(3):
        world.clock.advance(DAY)
        world.sweeper().run_once()
    assert world.durable_rows() == []


def test_an_incarnation_that_nobody_swept_before_the_user_came_back(world: World) -> None:
    world.talk("s1", "I want horror manga")
    world.clock.advance(1.2 * DAY)
    world.talk("s1", "I want romance manga")
    world.clock.advance(1801)
    assert world.sweeper().run_once() == 1
    assert sorted(record.content[:23] for record in world.summaries()) == [
        'The user said "I want h',
        'The user said "I want r',
    ]
    assert {record.version for record in world.summaries()} == {1}


def test_an_incarnation_not_swept_before_the_user_came_back_silently(world: World) -> None:
    world.talk("s1", "Please ship order ord-41.")
    world.clock.advance(25 * 3600)  # the session is over, and nobody has looked at it
    assert world.talk("s1").messages == []
    for _ in range(3):
        world.clock.advance(3 * DAY)
        world.sweeper().run_once()
    (summary,) = world.summaries()
    assert "ord-41" in summary.content
    assert not any("#TURN#" in row for row in world.durable_rows())


def test_a_sweeper_that_dies_behind_its_grave_leaves_no_log(tables: tuple[Table, Table]) -> None:
    world = World(tables, hot=False)
    world.talk("s1", "I want horror manga")
    world.clock.advance(0.5 * DAY)
    world.sweeper().run_once()
    world.clock.advance(DAY)
    batch_write = world.durable.batch_write

    def die(puts: Any = (), deletes: Any = ()) -> None:
        if any("#TURN#" in sort for _, sort in deletes):
            raise StoreUnavailableError("the worker died here")
        batch_write(puts=puts, deletes=deletes)

    with mock.patch.object(world.durable, "batch_write", die):
        world.sweeper().run_once()
    assert any("#TURN#" in row for row in world.durable_rows())
    for _ in range(4):
        world.clock.advance(DAY)
        world.sweeper().run_once()
    assert world.durable_rows() == []


@pytest.mark.parametrize("begun_anew", [False, True])
def test_late_write_after_delete_is_swept(tables: tuple[Table, Table], begun_anew: bool) -> None:
    world = World(tables, hot=False)
    agent = world.talk("s1", "I want horror manga")
    log = next(row.split(" ") for row in world.durable_rows() if "#TURN#" in row)
    segment = world.durable.get(*log)
    agent._session_manager.delete_session()
    world.durable.put(segment)  # by a process that dies before it learns of the deletion
    if begun_anew:
        world.talk("s1", "hello")
    world.clock.advance(1801)  # to the first look of a sweeper
    world.sweeper().run_once()
    assert world.durable.get(*log) is None
    assert not begun_anew or len(world.talk("s1").messages) == 2


def test_logs_heads_and_entries_of_ended_sessions_are_deleted(world: World) -> None:
    world.talk("s1", "I want horror manga", "x" * 2000)
    for _ in range(5):
        world.clock.advance(DAY)
        world.sweeper().run_once()
    assert world.durable_rows() == []
    assert len(world.summaries()) == 1


def test_a_live_agent_goes_on_after_its_ended_log_was_deleted(world: World) -> None:
    agent = world.talk("s1", "I want horror manga")
    for _ in range(3):
        world.clock.advance(DAY)
        world.sweeper().run_once()
    agent("And romance?")
    agent._session_manager.close()
    assert any("And romance?" in repr(message) for message in world.talk("s1").messages)
    world.clock.advance(3 * 3600)
    world.sweeper().run_once()
    assert any("romance" in record.content for record in world.summaries())


@pytest.mark.parametrize("step", range(12))
def test_a_crash_at_any_step_is_completed_later(tables: tuple[Table, Table], step: int) -> None:
    world = World(tables)
    world.talk("s1", "My favorite genre is horror.", "Is Uzumaki there?")
    world.clock.advance(1801)
    healthy = world.memories

    def die(*_: Any, **__: Any) -> None:
        if len(dying.calls) == step + 1:
            raise StoreUnavailableError("the worker died here")

    world.memories = dying = WatchedStore(healthy, die)
    world.sweeper().run_once()
    world.memories = healthy
    world.clock.advance(61)
    world.sweeper().run_once()
    [summary] = world.summaries()
    assert summary.version == 1
    assert [r.content for r in world.store().recall(type="preference")] == ["genre: horror"]
    assert len(world.store().recall(type="episode")) == 1


def test_a_sweeper_whose_clock_is_ahead_harms_nothing(tables: tuple[Table, Table]) -> None:
    world = World(tables, hot=False)
    agent = world.talk("s1", "I want horror manga")
    ahead = FakeClock(world.clock.now + 3600)
    stores = {"hot": None, "durable": world.durable}
    finalizer = SessionFinalizer(**stores, memories=world.memories, clock=ahead)
    SessionSweeper(**stores, finalizer=finalizer, clock=ahead).run_once()
    agent("And romance?")
    agent._session_manager.close()
    world.clock.advance(1801)
    world.sweeper().run_once()
    world.clock.advance(3 * 3600)
    world.sweeper().run_once()
    [summary] = world.summaries()
    assert summary.metadata["turn_count"] == 2


def test_a_redacted_message_leaves_summary_and_episode(world: World) -> None:
    agent = world.talk("s1", "My secret word is XYZZY, I want horror manga", close=False)
    scope = ConversationScope("u1", "s1")
    world.finalizer().run(scope)
    assert "XYZZY" in repr(list(world.store().partition.load().records.values()))
    agent("one more thing")
    redacted = next(message for message in agent.messages if "XYZZY" in repr(message))
    redacted["content"] = [{"text": "[redacted], I want horror manga"}]
    agent._session_manager.redact_latest_message(redacted, agent)
    agent._session_manager.close()
    world.finalizer().run(scope)
    assert "XYZZY" not in repr(list(world.store().partition.load().records.values()))


def test_disconnect_starts_a_grace_and_a_return_resumes(quick: tuple[Table, Table]) -> None:
    world, scope = World(quick), ConversationScope("u1", "s1")
    world.talk("s1", "I want horror manga")
    world.clock.advance(1500)
    assert restart_ttl(world.hot, scope)
    world.clock.advance(1500)
    assert world.sweeper().run_once() == 0
    assert len(world.talk("s1").messages) == 2
    world.clock.advance(1801)
    assert world.sweeper().run_once() == 1


# Roll-ups


def test_weeks_and_months_within_their_caps_with_pointers(quick: tuple[Table, Table]) -> None:
    world = World(quick)
    for number in range(30):
        world.talk(
            f"s{number}",
            f"Do you have 『Series {number % 7}』 volume {number}?",
            f"My favorite author {number % 20} is A{number}.",
        )
        world.finalizer().run(ConversationScope("u1", f"s{number}"))
        world.clock.advance(2.8 * DAY)
    store = world.store()
    context = store.build_agent_context()
    assert estimate_tokens(context) <= 800
    assert "by week" in context
    assert "by month" in context
    weeks, months = (store.recall(type=t, limit=None) for t in ("weekly_rollup", "monthly_rollup"))
    assert all(estimate_tokens(record.content) <= 40 for record in weeks)
    assert all(estimate_tokens(record.content) <= 25 for record in months)
    current = [record.metadata["value"] for record in store.recall(type="preference", limit=None)]
    assert len(current) == 20
    assert all(value in context for value in current)
    assert world.roll_up() == world.roll_up()
    assert store.sources(months[0].memory_id)
    world.clock.advance(45 * DAY)
    later = [
        set(map(str, store.sources(record.memory_id).values()))
        for record in store.recall(type="monthly_rollup", limit=None)
    ]
    assert any("expired" in found and len(found) > 1 for found in later)


def test_a_session_that_no_roll_up_covers_yet_is_told(quick: tuple[Table, Table]) -> None:
    world = World(quick)
    world.talk("s1", "Do you have 『Uzumaki』?")
    world.finalizer().run(ConversationScope("u1", "s1"))
    world.clock.advance(12 * DAY)
    assert "Uzumaki" in world.store().build_agent_context()


def test_a_forgotten_session_leaves_no_trace_in_roll_ups(tables: tuple[Table, Table]) -> None:
    world = World(tables)
    world.talk("s1", "Do you have 『Uzumaki』?")
    summary = world.finalizer().run(ConversationScope("u1", "s1"))
    assert summary is not None
    world.clock.advance(40 * DAY)
    assert len(world.roll_up()) == 2
    store = world.store()
    assert store.reader.known_records()
    assert store.forget(summary.memory_id)
    assert "Uzumaki" not in repr(list(world.memories.query("u1")))
    assert store.reader.search("uzumaki") == []


def test_a_recalled_turn_is_followed_by_its_correction(world: World) -> None:
    """The outdated value alone would contradict the stored preference."""
    world.talk(
        "s1",
        "My budget for this month is around 40 pounds.",
        "Actually make that 60, I just got paid.",
    )
    world.finalizer().run(ConversationScope("u1", "s1"))
    found = [entry.content for entry in asyncio.run(world.store().search("What is my budget?"))]
    outdated = [each for each in found if "around 40 pounds" in each]
    assert outdated
    assert all("Actually make that 60" in each for each in outdated)
    assert world.store().recall(type="preference")[0].content == "budget: 60 pounds"
