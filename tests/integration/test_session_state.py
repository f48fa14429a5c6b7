"""Dialogue state belongs to the session: all its agents see slots, entities and goals."""

import gc
import json
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from strands import Agent
from strands.multiagent import GraphBuilder, Swarm

from strands_manga_memory import ConversationScope, InMemoryHotStore, MangaMemory, RedisHotStore
from strands_manga_memory.state import DialogueSlot, Goals
from strands_manga_memory.testing import ScriptedModel
from tests import servers
from tests.support import WatchedStore, background_writer, settle, state_of
from tests.unit.session.support import SurvivingHotStore

ORDER = "503-1234567-1234567"
SLOTS = {
    "intents": {
        "cancel": [DialogueSlot(name="reason", question="Why?"), DialogueSlot(name="refund")]
    }
}

Opened = Callable[[], MangaMemory]


@pytest.fixture(params=["one process", "two processes"])
def opened(request: pytest.FixtureRequest, tmp_path: Path, unique: str) -> Iterator[Opened]:
    """Yield a function that opens the stores; with two processes, on new connections."""
    memories: list[MangaMemory] = []

    def new() -> MangaMemory:
        if request.param == "one process" and memories:
            return memories[0]
        hot: Any = InMemoryHotStore()
        if request.param == "two processes":
            server: servers.Valkey = request.getfixturevalue("valkey_server")
            hot = RedisHotStore(server.client(), prefix=unique, deadline=5)
        memories.append(MangaMemory.open(hot, f"sqlite:///{tmp_path}/shop.sqlite3"))
        return memories[-1]

    yield new
    for each in memories:
        each.close()


def agent_of(
    memory: MangaMemory, agent_id: str, model: ScriptedModel | None = None, **settings: Any
) -> Agent:
    return memory.agent(
        model or ScriptedModel(),
        user_id="u1",
        session_id="s1",
        agent_id=agent_id,
        task_state=SLOTS,
        **settings,
    )


def shown(model: ScriptedModel) -> str:
    """Return the texts of the last request."""
    return "\n".join(
        block.get("text", "")
        for message in model.requests[-1].messages
        for block in message["content"]
    )


def test_second_agent_knows_what_the_first_one_was_asked_about(opened: Opened) -> None:
    """ "Can you cancel it?" means the order that the first agent looked up."""
    first, second = opened(), opened()
    agent_of(first, "orders")(f"Where is my order {ORDER}?")
    settle(first)
    model = ScriptedModel()
    agent = agent_of(second, "cancellations", model)
    agent("Can you cancel it?")
    assert f"order_id {ORDER}" in shown(model)
    assert state_of(agent).dialogue.turn_count == 2


def test_changes_of_two_agents_are_merged_key_by_key(opened: Opened) -> None:
    """Two agents change different keys of the same state, and lose none."""
    first, second = opened(), opened()
    one, other = agent_of(first, "orders"), agent_of(second, "cancellations")
    state_of(one).dialogue.set_intent("cancel")
    one("hello")
    settle(first)
    other("hello")
    settle(second)
    one("hello again")
    state_of(one).dialogue.fill_slot("reason", "too late", confirmed=True)
    state_of(one).goals.set("Cancel the order")
    state_of(other).dialogue.fill_slot("refund", "card", confirmed=True)
    state_of(other).entities.set("order_id", ORDER)
    one("go on")
    settle(first)
    other("go on")
    settle(second)
    one("and now?")
    for agent in (one, other):
        state = state_of(agent)
        assert {name: slot.value for name, slot in state.dialogue.slots.items()} == {
            "reason": "too late",
            "refund": "card",
        }
        assert [each.value for each in state.entities.active()] == [ORDER]
        assert state.goals.goal().text == "Cancel the order"


def test_write_that_stalls_in_transit_does_not_overwrite_newer_shared_state(tmp_path: Path) -> None:
    store, other_process = SurvivingHotStore(), SurvivingHotStore()
    vars(other_process).update(_lock=store._lock, _values=store._values)
    stalls, stalled, may_go_on = threading.Event(), threading.Event(), threading.Event()

    def stall(name: str, *_: Any, **__: Any) -> None:
        if stalls.is_set() and name in ("put_value", "replace_value"):
            stalls.clear()
            stalled.set()
            may_go_on.wait(30)

    stalling: Any = WatchedStore(store, stall)
    path = f"sqlite:///{tmp_path}/shop.sqlite3"
    with MangaMemory.open(stalling, path) as first, MangaMemory.open(other_process, path) as second:
        one, other = agent_of(first, "orders"), agent_of(second, "cancellations")
        one("hello")
        settle(first)
        other("hello")
        settle(second)
        stalls.set()
        state_of(one).goals.set("Cancel the order")
        one("go on")
        assert stalled.wait(30)
        state_of(other).entities.set("order_id", ORDER)
        other("go on")
        settle(second)
        may_go_on.set()
        settle(first)
        third = agent_of(second, "refunds")
        third("And now?")
        assert state_of(third).goals.goal().text == "Cancel the order"
        assert [each.value for each in state_of(third).entities.active()] == [ORDER]


def test_new_session_of_a_deleted_one_starts_without_its_state(opened: Opened) -> None:
    first, second = opened(), opened()
    agent_of(first, "orders")(f"Where is my order {ORDER}?")
    settle(first)
    first.session(ConversationScope("u1", "s1", "orders")).delete_session()
    model = ScriptedModel()
    agent_of(second, "cancellations", model)("Can you cancel it?")
    settle(second)
    assert ORDER not in shown(model)
    third = ScriptedModel()
    agent_of(first, "orders", third)("Which one?")
    assert ORDER not in shown(third)


def test_state_shared_after_its_agent_is_gone_ends_with_the_session(tmp_path: Path) -> None:
    """A turn's state is shared in the background, where the agent itself may no longer exist."""
    hot = type("SurvivingHotStore", (InMemoryHotStore,), {"survives_process": True})()
    scope, may_share = ConversationScope("u1", "s1", "orders"), threading.Event()
    with MangaMemory.open(hot, f"sqlite:///{tmp_path}/shop.sqlite3") as memory:
        background_writer(hot, None).submit(
            f"state/{scope.storage_session_id}/shared", lambda: may_share.wait(30)
        )
        agent = agent_of(memory, "orders")
        agent(f"Where is my order {ORDER}?")
        gone = weakref.ref(agent)
        del agent
        gc.collect()
        assert gone() is None
        may_share.set()
        settle(memory)
        memory.session(scope).delete_session()
        model = ScriptedModel()
        agent_of(memory, "cancellations", model)("Can you cancel it?")
        assert ORDER not in shown(model)


def test_late_answer_of_the_hot_tier_restores_no_deleted_state(opened: Opened) -> None:
    """The hot tier answers after the deadline, when the new agent has a state of its own."""
    first, second = opened(), opened()
    agent_of(first, "orders")(f"Where is my order {ORDER}?")
    settle(first)
    first.session(ConversationScope("u1", "s1", "orders")).delete_session()
    agent = agent_of(second, "cancellations")
    state = state_of(agent)

    async def miss_deadline() -> None:
        """The shared state arrives later."""

    store: Any = state.store
    store.refresh = miss_deadline
    agent("I have a question about 『Uzumaki』.")
    store.pull()
    settle(second)
    assert [each.type for each in state.entities.active()] == ["title"]


def test_sessions_share_nothing_with_one_another(opened: Opened) -> None:
    memory = opened()
    agent_of(memory, "orders")(f"Where is my order {ORDER}?")
    settle(memory)
    model = ScriptedModel()
    memory.agent(model, user_id="u1", session_id="s2", task_state=True)("Can you cancel it?")
    assert ORDER not in shown(model)


def test_newest_copy_is_shared_again_after_the_hot_tier_has_lost_its_own(tmp_path: Path) -> None:
    """The agent with the newer copy wins when it comes."""
    path = f"sqlite:///{tmp_path}/shop.sqlite3"
    memory = MangaMemory.open(InMemoryHotStore(), path)
    for agent_id, text in (
        ("orders", "hello"),
        ("cancellations", "hello"),
        ("orders", f"Where is order {ORDER}?"),
    ):
        agent_of(memory, agent_id)(text)
    memory.close()
    again = MangaMemory.open(InMemoryHotStore(), path)
    agent_of(again, "cancellations")("Are you there?")
    agent_of(again, "orders")("Is it on its way?")
    model = ScriptedModel()
    agent_of(again, "cancellations", model)("Can you cancel it?")
    assert ORDER in shown(model)
    again.close()


def test_shared_state_that_cannot_be_read_is_not_overwritten(tmp_path: Path) -> None:
    hot, path = InMemoryHotStore(), f"sqlite:///{tmp_path}/shop.sqlite3"
    with MangaMemory.open(hot, path) as memory:
        agent_of(memory, "orders")(f"Where is order {ORDER}?")
        settle(memory)
        stored = [name for name in hot._values if hot.get_value(name)]
        for name in stored:
            hot.put_value(name, b"another key", ttl=60)
        agent_of(memory, "cancellations")("My order is ORD-99999.")
        settle(memory)
    assert stored
    assert {hot.get_value(name) for name in stored} == {b"another key"}


def test_nodes_of_a_graph_and_a_swarm_share_the_state(opened: Opened) -> None:
    memory = opened()
    models = [ScriptedModel(), ScriptedModel()]
    nodes: list[Agent] = [
        agent_of(memory, f"n{number}", model, session=False) for number, model in enumerate(models)
    ]
    builder = GraphBuilder()
    for node in nodes:
        builder.add_node(node, node.agent_id)
    builder.add_edge("n0", "n1")
    state_of(nodes[0]).entities.set("order_id", ORDER)
    builder.set_execution_timeout(60)
    builder.build()("Can you cancel it?")
    assert ORDER in shown(models[1])
    settle(memory)
    model = ScriptedModel()
    Swarm([agent_of(memory, "n2", model, session=False)])("Can you cancel it?")
    assert ORDER in shown(model)


def test_layer_that_one_agent_cannot_read_stays_for_the_others(opened: Opened) -> None:
    """One agent has goals of an older version in its own state."""
    first, second = opened(), opened()
    one, other = agent_of(first, "orders"), agent_of(second, "cancellations")
    older = json.dumps({"version": 1, "total": 3})
    other.state.set("manga_state.goals", older)
    other.load_snapshot(other.take_snapshot(include=["state"]))
    state_of(one).goals.set("Cancel the order")
    one("hello")
    settle(first)
    other(f"Where is {ORDER}?")
    settle(second)
    third = agent_of(opened(), "refunds")
    third("And now?")
    assert state_of(third).goals.goal().text == "Cancel the order"
    assert [each.value for each in state_of(third).entities.active()] == [ORDER]
    assert other.state.get("manga_state.goals") == older


def test_shared_layer_of_a_newer_version_is_not_overwritten(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = opened(), opened()
    with monkeypatch.context() as newer_release:
        newer_release.setattr(Goals, "VERSION", 99)
        newer = agent_of(first, "orders")
        state_of(newer).goals.set("Cancel the order")
        newer("hello")
        settle(first)
    older = agent_of(second, "cancellations")
    state_of(older).goals.set("Sell another")
    older(f"Where is {ORDER}?")
    settle(second)
    older("And now?")
    settle(second)
    assert state_of(older).goals.goal().text == "Sell another"
    monkeypatch.setattr(Goals, "VERSION", 99)
    third = agent_of(opened(), "refunds")
    third("And now?")
    assert state_of(third).goals.goal().text == "Cancel the order"
    assert [each.value for each in state_of(third).entities.active()] == [ORDER]


def test_questions_and_slots_of_two_agents_stay_within_their_limits(opened: Opened) -> None:
    """Together they have 12 questions and 60 slots, of which 10 and 50 are kept."""
    first, second = opened(), opened()
    one, other = agent_of(first, "orders"), agent_of(second, "cancellations")
    for agent in (one, other):
        for number in range(6):
            state_of(agent).dialogue.ask(f"{agent.agent_id} {number}?")
        for number in range(30):
            state_of(agent).dialogue.add_slot(
                DialogueSlot(name=f"{agent.agent_id}{number}", required=False)
            )
    one("hello")
    settle(first)
    other("hello")
    settle(second)
    dialogue = state_of(other).dialogue
    assert (len(dialogue.clarifications), len(dialogue.slots)) == (10, 50)
    dialogue.answered()
    assert dialogue.next_question == "orders 1?"
    other("go on")
    settle(second)
    again = agent_of(opened(), "cancellations")
    again("and now?")
    assert state_of(again).stats()["unreadable"] == {}
    assert state_of(again).dialogue.next_question == "orders 1?"
