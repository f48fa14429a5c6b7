"""Origin of the texts about a user in the last request, and their removal."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from strands import Agent
from strands.types.content import Message

from strands_manga_memory import ConversationScope, DialogueSlot, InMemoryHotStore, MangaMemory
from strands_manga_memory.assembly import Source
from strands_manga_memory.testing import FakeClock, ScriptedModel
from tests.support import settle, state_of

ORDER = "503-1234567-1234567"


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[MangaMemory]:
    memory = MangaMemory.open(
        InMemoryHotStore(), f"sqlite:///{tmp_path}/shop.sqlite3", memories=True
    )
    yield memory
    memory.close()


def agent_of(
    memory: MangaMemory, session_id: str, model: ScriptedModel | None = None, **settings: Any
) -> Agent:
    return memory.agent(model or ScriptedModel(), user_id="u1", session_id=session_id, **settings)


def request(model: ScriptedModel) -> str:
    last = model.requests[-1]
    return f"{last.system_prompt_content}{last.messages}"


def only(sources: list[Source], kind: str) -> Source:
    [found] = [source for source in sources if source.kind == kind]
    return found


def test_explain_and_retract_name_a_wrong_argument(shop: MangaMemory) -> None:
    with pytest.raises(ValueError, match="agent must be Agent, got 3"):
        shop.explain(3)
    with pytest.raises(ValueError, match=r"source must be a Source from explain\(agent\), got 3"):
        shop.retract(3)


@pytest.mark.parametrize("removed_by", ["retract", "forget"])
def test_a_clock_that_is_behind_removes_a_preference(tmp_path: Path, removed_by: str) -> None:
    """The preference was stored by a machine whose clock is a minute ahead."""
    clock = FakeClock(1_800_000_060.0)
    url = f"sqlite:///{tmp_path}/shop.sqlite3"
    with MangaMemory.open("memory://", url, memories=True, clock=clock) as memory:
        model = ScriptedModel()
        agent = agent_of(memory, "s1", model)
        agent("My favorite genre is horror.")
        settle(memory)
        clock.advance(-60)
        if removed_by == "retract":
            assert memory.retract(only(memory.explain(agent), "preference")).live_agents == 1
        else:
            assert memory.user("u1").forget("preference#genre")
        assert memory.user("u1").recall() == []
        agent("What is new?")
        assert "genre: horror" not in request(model)
        clock.advance(61)
        agent("My favorite genre is horror.")
        settle(memory)
        assert [each.content for each in memory.user("u1").recall()] == ["genre: horror"]


def test_stated_preference_is_listed_with_its_message_and_retracted(shop: MangaMemory) -> None:
    """Monday's statement is explained in Tuesday's session, and then removed."""
    idle = agent_of(shop, "idle")
    monday = agent_of(shop, "monday")
    monday("My favorite genre is horror.")
    settle(shop)
    assert only(shop.explain(monday), "preference").session_id == "monday"
    model = ScriptedModel()
    tuesday = agent_of(shop, "tuesday", model)
    tuesday("What is new?")
    assert "horror" in request(model)
    source = only(shop.explain(tuesday), "preference")
    assert (source.text, source.session_id) == ("genre: horror", "monday")
    assert source.message_id == monday.messages[0].get("tracking_id")
    report = shop.retract(source)
    assert (report.memories, report.live_agents) == (1, 2)  # the idle agent has shown nothing
    assert shop.explain(idle) == []
    for text in ("And now?", "Still?"):
        tuesday(text)
        assert "horror" not in request(model).replace(str(tuesday.messages), "")
    assert shop.explain(tuesday) == []
    assert shop.user("u1").recall() == []
    shop.finalize(ConversationScope("u1", "monday"))
    assert [record.content for record in shop.user("u1").recall(type="preference")] == []


def test_memory_without_a_message_is_listed_by_its_id_and_forgotten(shop: MangaMemory) -> None:
    known = shop.user("u1").remember("The parcel is at the locker GX1.")
    model = ScriptedModel()
    agent = agent_of(shop, "monday", model)
    agent("Where is the parcel?")
    source = only(shop.explain(agent), "memory")
    assert (source.memory_id, source.message_id) == (known.memory_id, None)
    assert shop.retract(source).memories == 1
    agent("Where is the parcel?")
    assert "GX1" not in request(model)
    assert shop.user("u1").get(known.memory_id) is None


def test_summary_of_an_earlier_session_is_listed_with_it(shop: MangaMemory) -> None:
    agent_of(shop, "monday")("Is volume 3 of 『Uzumaki』 in stock? I looked everywhere for it.")
    shop.finalize(ConversationScope("u1", "monday"))
    model = ScriptedModel()
    agent = agent_of(shop, "tuesday", model)
    agent("hello")
    source = only(shop.explain(agent), "summary")
    assert source.session_id == "monday"
    assert source.memory_id is not None
    shop.retract(source)
    agent("hello again")
    assert "Uzumaki" not in request(model)


def test_open_question_is_listed_with_its_summary_or_by_itself(shop: MangaMemory) -> None:
    monday = agent_of(shop, "monday", ScriptedModel(["I will check and come back to you."]))
    monday("When does volume 4 of 『Uzumaki』 arrive?")
    shop.finalize(ConversationScope("u1", "monday"))
    tuesday = agent_of(shop, "tuesday")
    tuesday("hello")
    found = [(each.kind, each.session_id) for each in shop.explain(tuesday)]
    assert found == [("summary", "monday")]
    for number in range(10):  # the start of a session no longer reads Monday's summary
        shop.user("u1").store_session_summary(f"s{number}", "The user thanked.")
    wednesday = agent_of(shop, "wednesday", model := ScriptedModel())
    wednesday("hello")
    assert "When does volume 4" in request(model)
    source = only(shop.explain(wednesday), "memory")
    assert "When does volume 4" in source.text
    assert source.session_id == "monday"
    shop.retract(source)
    wednesday("hello again")
    assert "When does volume 4" not in request(model)


def test_entity_and_slot_are_listed_and_leave_every_agent_of_the_session(shop: MangaMemory) -> None:
    slots = {
        "intents": {
            "return": [DialogueSlot(name="order", entity="order_id", question="Which order?")]
        }
    }
    models = [ScriptedModel(), ScriptedModel()]
    first = agent_of(shop, "monday", models[0], agent_id="orders", task_state=slots)
    state = state_of(first)
    state.dialogue.set_intent("return")
    first(f"I mean {ORDER}.")
    second = agent_of(shop, "monday", models[1], agent_id="returns", task_state=slots)
    second("Can I return it?")
    sources = shop.explain(second)
    assert {source.kind for source in sources} == {"entity", "slot"}
    message_id = first.messages[0].get("tracking_id")
    assert {source.message_id for source in sources} == {message_id}
    assert shop.retract(sources[0]).live_agents == 2
    second("Can I return it?")
    assert ORDER not in request(models[1])
    assert shop.explain(second) == []


def test_entity_leaves_a_session_whose_agents_no_longer_exist(shop: MangaMemory) -> None:
    """The next agent of the session does not get it from the state that the agents shared."""
    agent = agent_of(shop, "monday", task_state=True)
    agent(f"I mean {ORDER}.")
    source = only(shop.explain(agent), "entity")
    del agent
    gc.collect()
    shop.retract(source)
    agent_of(shop, "monday", model := ScriptedModel(), task_state=True)("Can I return it?")
    assert "conversation_state" not in request(model)


@pytest.mark.parametrize("memories", [True, False])
def test_entity_of_a_removed_turn_is_not_shown(tmp_path: Path, *, memories: bool) -> None:
    """Neither to the agent that is rewound, nor to another agent of the session."""
    hot, models = InMemoryHotStore(), [ScriptedModel(), ScriptedModel()]
    with MangaMemory.open(hot, f"sqlite:///{tmp_path}/s.db", memories=memories) as shop:
        agents = [
            agent_of(shop, "monday", model, agent_id=agent_id, task_state=True)
            for agent_id, model in zip(("orders", "returns"), models, strict=True)
        ]
        for text in ("Is B07X123456 in stock?", f"I mean {ORDER}."):
            agents[0](text)
        agents[1]("Can I return it?")
        assert ORDER in request(models[1])
        shop.rewind(ConversationScope("u1", "monday", "orders"), 1)
        for agent, model in zip(agents, models, strict=True):
            agent("And it?")
            assert ORDER not in request(model)
            assert "Mentioned lately: asin B07X123456" in request(model)


def test_entity_of_a_redacted_message_is_not_shown(shop: MangaMemory) -> None:
    """Also if the message was redacted in a later turn."""
    agent = agent_of(shop, "monday", model := ScriptedModel(), task_state=True)
    for text in (f"I mean {ORDER}.", "Can I return it?"):
        agent(text)
    redacted: Message = {**agent.messages[0], "content": [{"text": "[redacted]"}]}
    session = agent._session_manager
    session.redact_latest_message(redacted, agent)
    agent("And now?")
    assert ORDER not in request(model)


def test_quoted_message_is_listed_and_not_quoted_after_a_retraction(shop: MangaMemory) -> None:
    model = ScriptedModel(lambda _: "answer " * 30)
    agent = agent_of(shop, "monday", model, recall=True, max_tokens=800)
    agent("hello")
    for number in range(40):
        agent(f"My cat number {number} is called Momo{number} and was born in Kyoto.")
    question = "What is the name of cat number 7?"
    agent(question)
    assert "Momo7 " in request(model)
    [source] = [
        each for each in shop.explain(agent) if each.kind == "quote" and "Momo7 " in each.text
    ]
    assert source.message_id is not None
    shop.retract(source)
    agent(question)
    assert "Momo7 " not in request(model)


def test_agent_that_was_not_built_here_has_no_sources(shop: MangaMemory) -> None:
    assert shop.explain(Agent(model=ScriptedModel())) == []
