"""Where the task stands, what the agent calls outside, and goals."""

import json
from typing import Any

import pytest
from strands import tool

from strands_manga_memory import BreakerPolicy, DialogueSlot, StateError, guard_tool
from strands_manga_memory.testing import FakeClock
from tests.probes.conftest import Deployment
from tests.support import estimate_tokens, state_of, tool_results
from tests.unit.session.support import tool_use

REORDER = {
    "reorder": [
        DialogueSlot(name="volume", entity="volume", question="Which volume?"),
        DialogueSlot(name="format", allowed=("paper", "digital"), question="On paper?"),
    ]
}


def use(name: str, at: int, /, **given: Any) -> list[Any]:
    return [tool_use(f"t{at}", name, **given)]


def test_the_state_has_three_layers(deployment: Deployment) -> None:
    """Requests show intent, slots, questions, task steps with results, and the environment in a few
    lines.
    """

    @tool
    def stock(title: str) -> str:
        """Look up the stock."""
        return f"3 copies of {title}"

    memory = deployment.process(
        environment=lambda _: {"tier": "premium", "locale": "ja-JP", "cart": ["B07X1234"]}
    )
    asked = [use("stock", 1, title="Berserk"), "It is there.", "Which volume?"]
    agent, model = deployment.agent(
        memory, reply=asked, tools=[stock], task_state={"intents": REORDER}
    )
    state = state_of(agent)
    agent("Is Berserk there?")
    [step] = state.task.steps.values()
    assert (step.name, step.status, step.result) == ("stock", "completed", "3 copies of Berserk")
    assert step.duration_ms >= 0
    state.dialogue.set_intent("reorder", agent="sales")
    state.dialogue.fill_slot("volume", 3)
    assert [slot.name for slot in state.dialogue.missing] == [
        "volume",
        "format",
    ]  # inferred is not enough
    assert state.dialogue.next_question == "Which volume?"
    with pytest.raises(StateError, match="one of 'paper', 'digital'"):
        state.dialogue.fill_slot("format", "vinyl")
    agent("I would like it.")
    told = str(model.requests[-1].messages[-1])
    for word in ("reorder", "B07X1234", "premium", "Which volume?"):
        assert word in told, word
    assert '{"' not in state.to_agent_context()
    assert estimate_tokens(state.to_agent_context()) <= 400
    assert "reorder" not in str([message["content"] for message in agent.messages])


def test_each_layer_lives_as_long_as_it_should(deployment: Deployment) -> None:
    """After a crash, intent, slots, entities and goals are restored. The steps of the task are not,
    and the environment is read again.
    """
    carts = [["B07X1111"], ["B07X2222"]]
    memory = deployment.process(environment=lambda _: {"cart": carts[0]})
    agent, _ = deployment.agent(memory, task_state={"intents": REORDER})
    agent("Tell me about 『Berserk』, order ORD-48502.")
    before = state_of(agent)
    before.dialogue.set_intent("reorder", agent="sales")
    before.goals.set("Find a gift")
    before.task.add_step("look it up")
    agent("yes")
    agent._session_manager.flush()
    again, _ = deployment.agent(
        deployment.process(environment=lambda _: {"cart": carts[1]}),
        task_state={"intents": REORDER},
    )
    after = state_of(again)
    assert after.dialogue.intent == "reorder"
    assert {entity.value for entity in after.entities.active()} == {
        entity.value for entity in before.entities.active()
    }
    assert after.goals.active.text == "Find a gift"
    assert not after.task.steps
    assert after.environment.cart == ("B07X2222",)


def test_entities_are_checked_replaced_and_dropped(deployment: Deployment) -> None:
    """Only entities of a valid form are kept, and a newer one replaces an entity of its type."""
    memory = deployment.process()
    agent, _ = deployment.agent(memory, task_state=True)
    active = state_of(agent).entities.active
    agent("Is B07X1234 there, and B07-1234? The order is ORD-12345.")
    values = {entity.value for entity in active()}
    assert {"B07X1234", "ORD-12345"} <= values
    assert "B07-1234" not in values
    agent("I mean volume 3.")
    agent("No, volume 4.")
    assert [entity.value for entity in active() if entity.type == "volume"] == ["4"]
    agent("Forget that, something else: do you ship to Osaka?")
    assert "ORD-12345" not in {entity.value for entity in active()}


def test_goals_are_archived_small_and_within_caps(deployment: Deployment) -> None:
    """Goals have size limits. An archived goal is small and still has its findings."""

    @tool
    def analyze(part: int) -> str:
        """Analyze a part."""
        return f"part {part}: " + "sales rose in the north and fell in the south, " * 4

    memory = deployment.process()
    uses = [tool_use(f"t{number}", "analyze", part=number) for number in range(75)]
    script: list[Any] = []
    for calls in (50, 75, 30):
        script += [*(uses[at : at + 5] for at in range(0, calls, 5)), "Done."]
    agent, _ = deployment.agent(
        memory, reply=script, tools=[analyze], task_state={"time_budget_ms": 600_000.0}
    )
    goals = state_of(agent).goals
    for region in ("north", "south", "west"):
        goals.set(f"Analyze the {region}")
        agent(f"Please analyze the {region}.")
        archive = goals.complete(f"{region} grew by 7 %")
        assert archive.success_rate == 1.0
        assert len(archive.model_dump_json()) < 0.5 * archive.raw_characters
    stats = state_of(agent).stats()
    assert sum(stats["tokens"].values()) <= stats["caps"]["session"]
    assert [each.outcome for each in goals.archive] == [
        "north grew by 7 %",
        "south grew by 7 %",
        "west grew by 7 %",
    ]
    assert [each.calls for each in goals.archive] == [50, 75, 30]
    goals.set("One more")
    goals.add_subtask("a", "first")
    goals.add_subtask("b", "second", depends_on=["a"])
    assert [each.id for each in goals.goal().ready] == ["a"]
    with pytest.raises(StateError):
        goals.add_subtask("a", "again", depends_on=["b"])


def test_what_was_tried_is_kept_for_the_task(deployment: Deployment) -> None:
    """Within one invocation, the task keeps its findings and its last hundred steps, such as tool
    calls.
    """

    @tool
    def lookup(number: int) -> str:
        """Look something up."""
        if number % 3 == 0:
            raise ValueError(f"no order {number}")
        return f"order {number}"

    memory = deployment.process()
    uses = [tool_use(f"t{number}", "lookup", number=number) for number in range(120)]
    script = [*(uses[at : at + 5] for at in range(0, 120, 5)), "Done.", "ok"]
    agent, _ = deployment.agent(
        memory, reply=script, tools=[lookup], task_state={"time_budget_ms": 600_000.0}
    )
    state = state_of(agent)
    agent("Look everything up.")
    assert state.stats()["executions"] == (100, 120)
    assert state.task.successes == {"lookup": 80}
    assert sum(state.task.errors.values()) == 40
    assert len(state.task.errors) == 1  # one pattern, whatever the number
    thought = state.task.record("reasoning", "two of three are there", confidence=0.8)
    steps = list(state.task.steps.values())
    assert (len(steps), steps[-1]) == (100, thought)
    assert [step.parameters["number"] for step in steps[:-1]] == [str(n) for n in range(21, 120)]
    state.task.add_finding("every third is missing")
    state.task.add_finding("Every third is missing")
    assert state.task.findings == ("every third is missing",)
    agent("thanks")
    assert not state.task.steps


def test_a_human_gets_all_he_needs(deployment: Deployment) -> None:
    """The export for a person has a summary, entities, open questions, the state and the last
    turns.
    """
    from strands_manga_memory.state import export_for_human

    memory = deployment.process()
    agent, _ = deployment.agent(memory, task_state={"intents": REORDER}, reply="Let me check that.")
    agent("Where is my order ORD-48502?")
    state_of(agent).dialogue.set_intent("reorder", agent="sales")
    text = str(export_for_human(agent, reason="asked for a human"))
    for word in ("ORD-48502", "asked for a human", "reorder", "Let me check that."):
        assert word in text, word


def test_a_sick_tool_is_fallen_back_from(deployment: Deployment) -> None:
    """While a breaker is open, the model gets the result of a fallback tool, else the user's last
    good result of a read-only tool, marked as stale, else an error.
    """
    works = True

    @tool
    def price(title: str) -> str:
        """Say the price."""
        if not works:
            raise ConnectionError("the price service is gone")
        return f"{title}: 12 dollars"

    @tool
    def list_price(title: str) -> str:
        """Say the list price."""
        return f"{title}: list price 15 dollars"

    clock = FakeClock()
    policy = BreakerPolicy(failures=2, reset_after=30, read_only=True)
    alone = guard_tool(price, policy, stale_ttl=600, clock=clock)
    memory = deployment.process()
    asked = [use("price", 1, title="Gyo"), "12 dollars."]
    agent, _ = deployment.agent(memory, reply=asked, tools=[alone])
    agent("How much is Gyo?")
    works = False
    asked = [
        *(use("price", number, title="Gyo") for number in range(2, 5)),
        use("price", 6, title="Uzumaki"),
        "I see.",
    ]
    agent, _ = deployment.agent(memory, reply=asked, tools=[alone])
    agent("And now?")
    said = json.dumps([message["content"] for message in agent.messages], default=str)
    assert "last good answer" in said
    assert "circuit_open" in said  # of Uzumaki nothing was known
    assert "retry" in said
    other, _ = deployment.agent(
        memory, "s1", user="u2", reply=[use("price", 1, title="Gyo"), "I see."], tools=[alone]
    )
    other("How much is Gyo?")
    assert "12 dollars" not in str(other.messages)  # nobody else's answer
    works = True
    clock.advance(31)
    again, _ = deployment.agent(
        memory, "s2", reply=[use("price", 9, title="Gyo"), "fine."], tools=[alone]
    )
    again("How much is Gyo?")
    assert "12 dollars" in str(again.messages)
    works = False
    backed = guard_tool(price, BreakerPolicy(failures=1), fallbacks=[list_price], clock=clock)
    asked = [use("price", 1, title="Gyo"), use("price", 2, title="Gyo"), "15 dollars."]
    agent, _ = deployment.agent(memory, "s3", reply=asked, tools=[backed])
    agent("How much is Gyo?")
    assert "list price 15 dollars" in str(agent.messages)


def test_a_tool_that_hangs_ends(deployment: Deployment) -> None:
    """A call that hangs ends in time, with an error that tells the model how to continue, unless
    its tool blocks the event loop.
    """
    import threading

    gone = threading.Event()

    @tool
    def slow() -> str:
        """Take for ever."""
        gone.wait(30)
        return "late"

    @tool
    def picky(number: int) -> str:
        """Take a number."""
        return str(number)

    memory = deployment.process()
    hangs = guard_tool(slow, BreakerPolicy(timeout=0.1))
    strict = guard_tool(picky, BreakerPolicy(failures=1))
    asked = [use("slow", 1), use("picky", 2, number="x"), use("picky", 3, number=4), "done"]
    agent, _ = deployment.agent(memory, reply=asked, tools=[hangs, strict])
    agent("try")
    gone.set()
    results = tool_results(agent.messages)
    assert [result["status"] for result in results] == ["error", "error", "success"]
    assert "timeout" in str(results[0]) or "timed out" in str(results[0])
    assert hangs.status()["calls"] == 1
    assert strict.status()["state"] == "closed"


def test_health_goes_from_healthy_over_degraded_to_unavailable(deployment: Deployment) -> None:
    """Each tool has its own health: healthy, degraded (from half of the failures that open its
    breaker) or unavailable.
    """

    @tool
    def sick() -> str:
        """Fail."""
        raise ConnectionError("no server")

    @tool
    def well() -> str:
        """Work."""
        return "fine"

    guarded = {"sick": guard_tool(sick), "well": guard_tool(well)}
    memory = deployment.process()
    seen: list[str] = []
    for number in range(6):
        asked = [use("sick", number), use("well", 100 + number), "done"]
        user = f"u{number % 2}"
        agent, _ = deployment.agent(
            memory, f"s{number}", user=user, reply=asked, tools=list(guarded.values())
        )
        seen.append(str(guarded["sick"].status()["health"]))
        agent("try")
        assert "fine" in str(agent.messages)
    assert seen == ["healthy", "healthy", "healthy", "degraded", "degraded", "unavailable"]
    status = guarded["sick"].status()
    assert status["state"] == "open"
    assert status["calls"] >= 5
    assert guarded["well"].status()["health"] == "healthy"
