"""A turn counts and notes its own messages: of a live agent, and of one restored for it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from strands import Agent
from strands.session import FileSessionManager
from strands.types.content import Message

from strands_manga_memory import ImportanceWeightedConversationManager, TieredSessionManager, open_table
from strands_manga_memory.conversation import EstimateCounter, RuleScorer
from strands_manga_memory.conversation.history.stubs import as_said, is_stub
from strands_manga_memory.conversation.importance.weighing import workload
from strands_manga_memory.conversation.importance.weighing.kept_notes import _COUNTED, VERSION, _key
from strands_manga_memory.stores.encoding.derived import DERIVED
from strands_manga_memory.testing import ScriptedModel
from tests.benchmarks import text
from tests.unit.conversation.messages import without_stubs


class Counting(EstimateCounter):
    """Knows what it has counted."""

    def __init__(self, name: str = "counting") -> None:
        self.name = name
        self.counted: list[Message] = []

    def count(self, message: Message) -> int:
        self.counted.append(message)
        return super().count(message)

    def __repr__(self) -> str:
        return f"Counting({self.name!r})"


class Nameless(Counting):
    __repr__ = object.__repr__


def said(counter: Counting) -> int:
    return sum(not is_stub(message) for message in counter.counted if message["content"])


@pytest.fixture(params=["file", "tiered"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Return what opens the session for a counter."""
    table = open_table(f"sqlite:///{tmp_path}/sessions.sqlite3")
    table.create_if_missing()
    managers: list[TieredSessionManager] = []

    def open_(counter: Counting) -> Agent:
        manager: Any = FileSessionManager("s", storage_dir=str(tmp_path))
        if request.param == "tiered":
            manager = TieredSessionManager("s", durable=table)
            managers.append(manager)
        return Agent(
            model=ScriptedModel(lambda _: text(200)),
            agent_id="a",
            conversation_manager=ImportanceWeightedConversationManager(4_000, trim_to=2_800, counter=counter),
            session_manager=manager,
            callback_handler=None,
        )

    yield open_
    for manager in managers:
        manager.close()


def test_a_restored_agent_counts_only_what_was_said_since_the_counts_were_written(opened: Any) -> None:
    live = opened(Counting())
    for _ in range(60):
        live(text(200))
    counter = Counting()
    restored = opened(counter)
    held = sum(not is_stub(message) for message in restored.messages)
    restored(text(200))
    assert held > 40
    assert said(counter) <= 26 + 4, "the two new ones, the request's head, and at most 24 without a count"


def test_counts_of_another_counter_are_not_taken_over(opened: Any) -> None:
    live = opened(Counting())
    for _ in range(60):
        live(text(200))
    counter = Counting("another")
    restored = opened(counter)
    held = sum(not is_stub(message) for message in restored.messages)
    restored(text(200))
    assert said(counter) >= held


def test_counts_of_a_counter_without_a_name_do_not_travel(opened: Any) -> None:
    agent = opened(Nameless())
    for _ in range(30):
        agent(text(200))
    assert DERIVED not in agent.conversation_manager.get_state()


def test_a_message_that_was_changed_at_rest_is_counted_anew() -> None:
    agent = Agent(
        model=ScriptedModel(), conversation_manager=ImportanceWeightedConversationManager(100_000, counter=Counting())
    )
    agent.messages += [{"role": "user" if at % 2 == 0 else "assistant", "content": [{"text": text(200)}]} for at in range(40)]
    agent.conversation_manager.apply_management(agent)
    agent.conversation_manager.persist_layout = False
    state = agent.conversation_manager.get_state()
    counter = Counting()
    manager = ImportanceWeightedConversationManager(100_000, counter=counter)
    manager.restore_from_session(state)
    agent.messages[7]["content"] = [{"text": "[redacted]"}]
    other = Agent(model=ScriptedModel(), conversation_manager=manager, messages=agent.messages)
    assert manager.usage(other)["tokens"] == sum(map(EstimateCounter().count, agent.messages))
    assert [message["content"] for message in counter.counted] == [[{"text": "[redacted]"}]]


@pytest.mark.parametrize(
    "damage",
    [
        {"v": VERSION + 1},
        {"v": VERSION - 1},
        {"keys": "no base64!"},
        {"keys": "AAAA"},
        {"keys": None},
        {"of": "AAAA"},
        {"of": ["0" * 40] * 5},
        {"of": ["0" * 40] * 7},
        {"of": ["0" * 39] * 6},
        {"of": ["0" * 40, "~" * 40, *["0" * 40] * 4]},
        {"of": ["\U0001f600" * 40, *["0" * 40] * 5]},
        {"of": [" " * 40, *["0" * 40] * 5]},
        {"of": None},
        {"by": 7},
        {"said": 7},
        {"said": ["x", "y"]},
    ],
)
def test_damaged_or_newer_notes_are_counted_anew(damage: dict[str, Any]) -> None:
    agent = Agent(
        model=ScriptedModel(), conversation_manager=ImportanceWeightedConversationManager(100_000, counter=Counting())
    )
    agent.messages += [{"role": "user" if at % 2 == 0 else "assistant", "content": [{"text": text(200)}]} for at in range(40)]
    agent.conversation_manager.apply_management(agent)
    state = agent.conversation_manager.get_state()
    counter = Counting()
    manager = ImportanceWeightedConversationManager(100_000, counter=counter)
    manager.restore_from_session({**state, DERIVED: {**state[DERIVED], **damage}})
    other = Agent(model=ScriptedModel(), conversation_manager=manager, messages=agent.messages)
    assert manager.usage(other)["tokens"] == sum(map(EstimateCounter().count, agent.messages))
    assert len(counter.counted) == 40


def test_a_large_message_that_is_new_in_the_middle_of_a_history_is_counted_beside_the_loop() -> None:
    async def counted_by() -> list[threading.Thread]:
        threads: list[threading.Thread] = []

        class Noting(EstimateCounter):
            def count(self, message: Message) -> int:
                if len(str(message["content"])) > 100_000:
                    threads.append(threading.current_thread())
                return super().count(message)

        manager = ImportanceWeightedConversationManager(1_000_000, counter=Noting())
        agent = Agent(model=ScriptedModel(lambda _: "ok"), conversation_manager=manager, callback_handler=None)
        for number in range(30):
            await agent.invoke_async(f"number {number}")
        agent.messages[20] = {"role": "user", "content": [{"text": "book " * 50_000}], "tracking_id": "changed"}
        await agent.invoke_async("go on")
        manager.get_state()
        return threads

    threads = asyncio.run(counted_by())
    assert threads
    assert threading.main_thread() not in threads


def test_a_state_is_written_without_counting_anything() -> None:
    counter = Counting()
    agent = Agent(model=ScriptedModel(), conversation_manager=ImportanceWeightedConversationManager(100_000, counter=counter))
    agent.messages += [{"role": "user" if at % 2 == 0 else "assistant", "content": [{"text": text(200)}]} for at in range(40)]
    agent.conversation_manager.get_state()
    assert counter.counted == []


def test_a_turn_within_the_budget_looks_at_the_size_of_its_own_messages_only(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(
        model=ScriptedModel(lambda _: text(200)),
        conversation_manager=ImportanceWeightedConversationManager(100_000),
        callback_handler=None,
    )
    for _ in range(20):
        agent(text(200))
    sized: list[Any] = []
    monkeypatch.setattr(workload, "size_of", lambda value: sized.append(value) or 10)
    agent(text(200))
    assert len(sized) <= 4


class Scoring(RuleScorer):
    """Scores by rules, and knows what it was asked."""

    score_of_act = None  # type: ignore[assignment]

    def __init__(self, name: str = "scoring") -> None:
        super().__init__()
        self.name = name
        self.asked: list[Message] = []

    def score(self, message: Message, context: Sequence[Message] = ()) -> float:
        self.asked.append(message)
        return RuleScorer().score(message) - 0.0123456789

    def __repr__(self) -> str:
        return f"Scoring({self.name!r})"


def agent_of(manager: ImportanceWeightedConversationManager, messages: Sequence[Message] = ()) -> Agent:
    return Agent(
        model=ScriptedModel(lambda _: text(200)), conversation_manager=manager, messages=list(messages), callback_handler=None
    )


def noted(agent: Agent) -> dict[str, Any]:
    """Return what is known of each message of the history, but its place among the others."""
    fates = agent.conversation_manager.explain(agent)  # type: ignore[attr-defined]
    return {fate.tracking_id: (fate.act, fate.score, fate.tokens, fate.signals) for fate in fates if fate.fate == "kept"}


def restored_with(scorer: Any, live: Agent) -> Agent:
    manager = ImportanceWeightedConversationManager(4_000, trim_to=2_800, scorer=scorer)
    manager.persist_layout = False
    manager.restore_from_session(live.conversation_manager.get_state())
    return agent_of(manager, live.messages)


@pytest.fixture
def long_lived(request: pytest.FixtureRequest) -> Agent:
    """Return an agent whose history was trimmed."""
    scorer = getattr(request, "param", None)
    manager = ImportanceWeightedConversationManager(4_000, trim_to=2_800, scorer=scorer)
    manager.persist_layout = False
    agent = agent_of(manager)
    for number in range(60):
        agent(f"{text(180)} I want volume {number}?")
        manager.get_state()
    return agent


@pytest.mark.parametrize("long_lived", [None, Scoring()], indirect=True, ids=["acts", "scores"])
def test_an_agent_restored_right_after_its_notes_were_written_knows_what_the_live_one_knows(long_lived: Agent) -> None:
    manager: Any = long_lived.conversation_manager
    entries = zip(*manager._kept_notes._read(manager.get_state()[DERIVED]), strict=True)
    there_is = {key for key, kept in entries if kept.act < _COUNTED}
    kept = {message["tracking_id"] for message in without_stubs(long_lived.messages) if _key(message) in there_is}
    restored = restored_with(manager.scorer if isinstance(manager.scorer, Scoring) else None, long_lived)
    there, here = noted(long_lived), noted(restored)
    told = {id_ for id_ in there if id_ in kept}
    assert len(told) > 30
    assert {id_: here[id_][:3] for id_ in told} == {id_: there[id_][:3] for id_ in told}
    for id_ in told:  # what comes after may take up more of its words
        ours, theirs = ({**each[id_][3], "referenced": 0.0, "recency": 0.0} for each in (here, there))
        assert ours == pytest.approx(theirs)


def test_a_restored_agent_asks_the_scorer_only_about_what_was_said_since() -> None:
    manager = ImportanceWeightedConversationManager(4_000, trim_to=2_800, scorer=Scoring())
    manager.persist_layout = False
    live = agent_of(manager)
    for _ in range(60):
        live(text(200))
        manager.get_state()
    scorer, another = Scoring(), Scoring("another")
    for one in (scorer, another):
        noted(restored_with(one, live))
    texts = without_stubs(live.messages)
    assert len(another.asked) >= len(texts) > 40
    assert len(scorer.asked) <= 24 + len(as_said(live.messages)) - len(texts)


def test_notes_take_half_of_what_the_same_numbers_take_as_json(long_lived: Agent) -> None:
    state = long_lived.conversation_manager.get_state()[DERIVED]
    known = len(state["of"][0])
    assert known > 40
    assert len(json.dumps(state, ensure_ascii=False)) < 11 * known + 120


def test_a_message_between_the_others_takes_nothing_from_them(long_lived: Agent) -> None:
    manager: Any = long_lived.conversation_manager
    messages = without_stubs(long_lived.messages)
    new: Message = {"role": "user", "content": [{"text": "a note from elsewhere"}], "tracking_id": "new"}
    counter = Counting()
    other = ImportanceWeightedConversationManager(4_000, trim_to=2_800, counter=counter)
    other.persist_layout = False
    kept = manager.get_state()[DERIVED]
    other.restore_from_session({**other.get_state(), **manager.get_state(), DERIVED: {**kept, "by": [repr(counter), ""]}})
    agent = agent_of(other, [*messages[:20], new, *messages[20:]])
    other.usage(agent)
    assert new in counter.counted
    assert len(counter.counted) <= 26


def test_the_words_of_restored_messages_are_known(long_lived: Agent) -> None:
    restored = restored_with(None, long_lived)
    said = next(message for message in restored.messages[4:] if not is_stub(message))
    again: Message = {"role": "user", "content": said["content"], "tracking_id": "again"}
    restored.messages.append(again)
    restored.conversation_manager.explain(restored)  # type: ignore[attr-defined]
    assert restored.conversation_manager._notes(again).new == 0  # type: ignore[attr-defined]


def test_notes_are_written_seldom_and_never_leave_much_to_do_again() -> None:
    live_manager = ImportanceWeightedConversationManager(4_000, trim_to=2_800, counter=Counting())
    live_manager.persist_layout = False
    live = agent_of(live_manager)
    written: set[str] = set()
    for number in range(120):
        live(text(200))
        state = live_manager.get_state()
        written.add(state[DERIVED]["keys"] if DERIVED in state else "")
        if number % 6 == 5:
            counter = Counting()
            manager = ImportanceWeightedConversationManager(4_000, trim_to=2_800, counter=counter)
            manager.persist_layout = False
            manager.restore_from_session(state)
            noted(agent_of(manager, live.messages))
            assert said(counter) <= 24 + 3  # the mark, and what was shortened since
    assert 3 <= len(written) <= 120 // 6
