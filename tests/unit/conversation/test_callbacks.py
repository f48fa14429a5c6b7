"""Callbacks of the managers, and requests between two trimmings."""

import itertools
import json
import random
import threading
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, tool
from strands.hooks import MessageAddedEvent
from strands.types.content import Message

from strands_manga_memory import (
    ImportanceWeightedConversationManager,
    MangaMemory,
    PromptCacheMonitor,
)
from strands_manga_memory.conversation import (
    SummaryTrigger,
    TieredCompactionConversationManager,
    TurnEviction,
    VerifiedSummarizingConversationManager,
    default_counter,
)
from strands_manga_memory.conversation.background import BackgroundTask
from strands_manga_memory.testing import ScriptedModel
from tests.benchmarks.sentences import prose
from tests.support import tool_results
from tests.unit.session.support import assistant, tool_result, tool_use, user

MANAGERS: list[Any] = [
    lambda: ImportanceWeightedConversationManager(500),
    lambda: VerifiedSummarizingConversationManager(
        SummaryTrigger(tokens=1_000),
        model=ScriptedModel(lambda _: "They talked."),
        trimmer=ImportanceWeightedConversationManager(500),
    ),
    lambda: TieredCompactionConversationManager(
        [TurnEviction()], trimmer=ImportanceWeightedConversationManager(500)
    ),
]


@pytest.mark.parametrize("made", MANAGERS)
def test_that_a_message_was_added_can_be_told_without_an_event_loop(made: Any) -> None:
    agent = Agent(model=ScriptedModel(lambda _: "yes"), conversation_manager=made())
    for number in range(20):
        for role in ("user", "assistant"):
            message: Any = {"role": role, "content": [{"text": f"{number} " + prose()[:300]}]}
            agent.messages.append(message)
            agent.hooks.invoke_callbacks(MessageAddedEvent(agent=agent, message=message))
        agent.conversation_manager.apply_management(agent)
    agent("and now?")  # whatever grew meanwhile, it is still a history that an agent goes on with
    assert agent.messages[-1]["content"] == [{"text": "yes"}]
    if isinstance(agent.conversation_manager, ImportanceWeightedConversationManager):
        assert sum(map(default_counter().count, agent.messages)) <= 500


class OffLoop:
    """Counts tokens, and notes which large texts it was given on the thread of an event loop."""

    exact = True

    def __init__(self) -> None:
        self.loop_thread = 0
        self.on_loop = 0

    def count(self, message: Message) -> int:
        size = sum(len(block.get("text", "")) for block in message["content"])
        if size > 60_000 and threading.get_ident() == self.loop_thread:
            self.on_loop += 1
        return size // 4 + 1


async def test_a_huge_answer_is_shortened_beside_the_event_loop_and_saved_with_its_turn() -> None:
    counter = OffLoop()
    counter.loop_thread = threading.get_ident()
    manager = ImportanceWeightedConversationManager(2_000, counter=counter)
    answers = iter(["short", prose()[:300_000], "short"])
    agent = Agent(model=ScriptedModel(lambda _: next(answers)), conversation_manager=manager)
    for text in ("hello", "go on", "thanks for that"):
        await agent.invoke_async(text)
        assert sum(map(counter.count, agent.messages)) <= 2_000, "at the end of each invocation"
    assert counter.on_loop == 0


class OffLoopExcerpts(OffLoop):
    """Counts tokens, and notes excerpts of large texts that it counted on the event loop."""

    def count(self, message: Message) -> int:
        if "characters cut" in str(message["content"]):
            self.on_loop += threading.get_ident() == self.loop_thread
        return super().count(message)


async def test_an_evicted_huge_answer_is_read_again_beside_the_event_loop() -> None:
    counter = OffLoopExcerpts()
    manager = ImportanceWeightedConversationManager(2_000, counter=counter)
    answers = iter([prose()[:300_000], *["short"] * 8])
    agent = Agent(model=ScriptedModel(lambda _: next(answers)), conversation_manager=manager)
    await agent.invoke_async("hello")
    counter.loop_thread = threading.get_ident()
    for number in range(8):
        await agent.invoke_async(f"{number} " + prose()[:1_500])
    assert counter.on_loop == 0


def test_a_stopped_run_raises_an_error_with_its_cause() -> None:
    async def stopped() -> None:
        raise SystemExit(3)

    with pytest.raises(RuntimeError, match="the run was stopped by SystemExit") as caught:
        BackgroundTask(stopped).result(10)
    assert isinstance(caught.value.__cause__, SystemExit)


def sentences(seed: int) -> Any:
    drawn = random.Random(seed)
    while True:
        start = drawn.randrange(len(prose()) - 1_000)
        yield prose()[start : start + drawn.randint(40, 500)]


def talk_of(
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


def analyst(folder: Path, turns: int) -> tuple[list[Any], list[int]]:
    """Talk to an agent with several results of 2 to 30 KB a turn.

    Return its requests, and the numbers of those that begin a turn.
    """
    drawn = random.Random(1)
    ids = itertools.count()

    @tool
    def query(table: str) -> str:
        """Query a table."""
        rows = range(int(40 * 15 ** drawn.random()))
        return "id,region,revenue\n" + "\n".join(f"R{n:05},{table} north,{n * 37}.5" for n in rows)

    said, starts = sentences(9), list[int]()
    model = ScriptedModel(
        [
            reply
            for turn in range(turns)
            for reply in [
                *(
                    [tool_use(f"t{next(ids)}", "query", table=f"t{turn}") for _ in range(parallel)]
                    for parallel in drawn.choices([1, 1, 2], k=drawn.randint(1, 4))
                ),
                next(said),
            ]
        ]
    )
    with MangaMemory.open(durable=f"sqlite:///{folder}/m.db", memories=True) as memory:
        agent = memory.agent(model, user_id="u", session_id="s", recall=True, tools=[query])
        for turn in range(turns):
            starts.append(len(model.requests))
            agent(f"What about order ORD-{turn:05}? {next(said)[:200]}")
    return model.requests, starts


def shown_results(requests: list[Any]) -> list[int]:
    """Return the tokens of each tool result in the first request that contains it."""
    shown: dict[str, int] = {}
    for request in requests:
        for result in tool_results(request.messages):
            tokens = default_counter().count({"role": "user", "content": [{"toolResult": result}]})
            shown.setdefault(result["toolUseId"], tokens)
    return list(shown.values())


def test_calls_of_a_tool_loop_begin_with_the_whole_previous_request(tmp_path: Path) -> None:
    """This includes the injected block. The results are as large as the budget allows."""
    requests, starts = analyst(tmp_path, 30)
    whole = [
        now.messages[: len(before.messages)] == before.messages
        for at, (before, now) in enumerate(itertools.pairwise(requests), 1)
        if at not in starts
    ]
    assert whole.count(True) / len(whole) >= 0.98
    shown = shown_results(requests)
    assert min(shown) > 300
    assert sum(shown) / len(shown) > 1_300
    sizes = [sum(map(default_counter().count, request.messages)) for request in requests]
    assert max(sizes) <= 16_384


@pytest.mark.parametrize(("budget", "least"), [(None, 500), (4_096, 200)])
def test_the_last_results_of_many_calls_are_readable(
    budget: int | None, least: int, tmp_path: Path
) -> None:
    """One turn has 40 calls. Results with less than ``least`` tokens would hide what was asked."""
    drawn = random.Random(3)

    @tool
    def read_file(path: str) -> str:
        """Read a file."""
        rows = range(drawn.randint(40, 240))
        return "\n".join(f"{at}: value_{path}_{at} = compute({37 * at})" for at in rows)

    calls = [[tool_use(f"t{at}", "read_file", path=f"f{at}")] for at in range(40)]
    model = ScriptedModel([*calls, "done"])
    given = {} if budget is None else {"max_tokens": budget}
    with MangaMemory.open(durable=f"sqlite:///{tmp_path}/m.db") as memory:
        agent = memory.agent(
            model, user_id="u", session_id="s", recall=True, tools=[read_file], **given
        )
        agent("Rename the functions.")
    shown = shown_results(model.requests)
    assert len(shown) == 40
    assert min(shown) >= least
    sizes = [sum(map(default_counter().count, request.messages)) for request in model.requests]
    assert max(sizes) <= (budget or 16_384)


def test_the_high_mark_is_never_passed_and_a_step_ends_at_a_third_below_it_at_most() -> None:
    _, model = talk_of(ImportanceWeightedConversationManager(2_000, trim_every=8), 80, seed=5)
    sizes = [sum(map(default_counter().count, request.messages)) for request in model.requests]
    assert max(sizes) <= 2_000
    steps = [after for before, after in itertools.pairwise(sizes) if after < before]
    assert len(steps) > 5
    assert all(after >= 2_000 * 2 // 3 - 200 for after in steps), (
        "down to the low mark, and no further than one message"
    )


def test_a_cap_in_turns_goes_down_by_the_same_share() -> None:
    agent, model = talk_of(
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
