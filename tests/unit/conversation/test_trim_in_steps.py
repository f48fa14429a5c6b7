"""Between trimmings a history only grows, and requests keep their prefix."""

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from strands import Agent

from strands_manga_memory import MangaMemory, PromptCacheMonitor
from strands_manga_memory.conversation import ImportanceWeightedConversationManager, default_counter
from strands_manga_memory.testing import ScriptedModel
from tests.benchmarks.sentences import prose
from tests.support import tool_results
from tests.unit.session.support import assistant, tool_result, tool_use, user


def sentences(seed: int) -> Any:
    drawn = random.Random(seed)
    while True:
        start = drawn.randrange(len(prose()) - 1_000)
        yield prose()[start : start + drawn.randint(40, 500)]


def talk(
    manager: ImportanceWeightedConversationManager, turns: int, seed: int = 1, **more: Any
) -> tuple[Agent, Any]:
    said = sentences(seed)
    model = ScriptedModel(lambda _: next(said))
    agent = Agent(model=model, conversation_manager=manager, **more)
    for _ in range(turns):
        agent(next(said))
    return agent, model


def whole_prefixes(requests: list[Any]) -> float:
    """Return the number of requests that begin with the whole previous request."""
    told = [
        [json.dumps({"role": each["role"], "content": each["content"]}) for each in r.messages]
        for r in requests
    ]
    return sum(now[: len(b)] == b for b, now in itertools.pairwise(told)) / (len(told) - 1)


def test_the_high_mark_is_never_passed_and_a_step_ends_at_a_third_below_it_at_most() -> None:
    _, model = talk(ImportanceWeightedConversationManager(2_000, trim_every=8), 80, seed=5)
    sizes = [sum(map(default_counter().count, request.messages)) for request in model.requests]
    assert max(sizes) <= 2_000
    steps = [after for before, after in itertools.pairwise(sizes) if after < before]
    assert len(steps) > 5
    assert all(after >= 2_000 * 2 // 3 - 200 for after in steps), (
        "down to the low mark, and no further than one message"
    )


def test_a_cap_in_turns_goes_down_by_the_same_share() -> None:
    agent, model = talk(
        ImportanceWeightedConversationManager(5_000, trim_every=8, max_turns=20), 60
    )
    assert whole_prefixes(model.requests[25:]) >= 0.8
    assert sum(message["role"] == "user" for message in agent.messages) <= 20


@pytest.mark.parametrize(
    ("characters", "high_water_mark", "makes_room"),
    [(3_200, 4_096, True), (1_200, 4_096, False), (3_200, 8_000, False)],
)
def test_large_results_of_a_turn_that_is_over_make_room_before_the_history_is_full(
    characters: int, high_water_mark: int, *, makes_room: bool
) -> None:
    said = sentences(3)
    manager = ImportanceWeightedConversationManager(4_096, trim_every=7)
    manager.history.high_water_mark = (
        high_water_mark  # as a manager that summarizes does, so that it sees what is going to leave
    )
    agent = Agent(
        model=ScriptedModel(lambda _: next(said), usage=lambda _: 0), conversation_manager=manager
    )
    count = default_counter().count
    while sum(map(count, agent.messages)) < 2_900:
        agent(next(said))
    found = prose()[5_000 : 5_000 + characters]
    agent.messages += [
        user("What have you got?"),
        assistant(tool_use("t1", "find")),
        user(tool_result("t1", found)),
        assistant("A good deal."),
    ]
    assert sum(map(count, agent.messages)) < 4_000
    agent("And what else?")
    kept = [result["content"] for result in tool_results(agent.messages)]
    assert ([{"text": found}] not in kept) == makes_room


def test_the_facade_trims_in_steps_and_the_monitor_counts_what_that_brings(tmp_path: Path) -> None:
    seen = {}
    for name, trim_every in (("steps", None), ("every turn", 0)):
        monitor = PromptCacheMonitor()
        with_memory = MangaMemory.open(
            durable=f"sqlite:///{tmp_path}/{monitor.name[-5:]}{len(seen)}.sqlite3"
        )
        made = with_memory.agent_kwargs(
            user_id="u", session_id=name, max_tokens=4_096, trim_every=trim_every
        )
        said = sentences(7)
        agent = Agent(
            model=ScriptedModel(lambda _, said=said: next(said)), plugins=[monitor], **made
        )
        for _ in range(60):
            agent(next(said))
        with_memory.close()
        seen[name] = monitor.stats()
    assert seen["steps"]["whole_prefixes"] >= 0.85
    assert seen["every turn"]["whole_prefixes"] < 0.6
    assert "requests that begin with the whole previous one" in monitor.report()
