"""Operation of a deployment: other agents, prompts, privacy, costs, settings."""

import asyncio
import copy
import json
import re
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from strands import Agent, tool
from strands.multiagent import GraphBuilder, Swarm

from strands_manga_memory import (
    AesGcmCipher,
    Codec,
    ConversationScope,
    InstructionFiles,
    MangaMemory,
    MangaMemorySettings,
    PiiPolicy,
    PromptCacheMonitor,
)
from strands_manga_memory.ops import CostModel, Workload, inspect, places, ttl_advice
from strands_manga_memory.squad import SessionStrandsAgent
from strands_manga_memory.testing import FakeClock, ScriptedModel
from tests import servers
from tests.lines import rows
from tests.probes.conftest import Deployment
from tests.unit.session.support import interrupt_answers, tool_use

SCOPE = ConversationScope("u1", "s1")
CANARY = "CANARY7Q"
BLOCKS: list[dict[str, Any]] = [
    {"text": "look"},
    {"image": {"format": "png", "source": {"bytes": bytes(range(256))}}},
    {"document": {"format": "pdf", "name": "order", "source": {"bytes": b"%PDF"}}},
    {"video": {"format": "mp4", "source": {"bytes": b"video"}}},
    {"guardContent": {"text": {"text": "guarded", "qualifiers": ["query"]}}},
    {"cachePoint": {"type": "default"}},
]


def test_every_block_and_state_come_back(deployment: Deployment) -> None:
    """Every content block, `agent.state` and an open interrupt survive a restart, byte for byte."""

    @tool(context=True)
    def approve(tool_context: Any) -> str:
        """Ask a human."""
        return f"approved: {tool_context.interrupt('approval', reason='costly')}"

    memory = deployment.process()
    asked = [
        "I see.",
        [
            {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}},
            tool_use("t1", "approve"),
        ],
    ]
    agent, _ = deployment.agent(memory, reply=asked, tools=[approve])
    agent(copy.deepcopy(BLOCKS))
    agent.state.set("basket", {"items": [1, 2]})
    paused = agent("buy it")
    assert paused.stop_reason == "interrupt"
    agent._session_manager.flush()
    again, _ = deployment.agent(deployment.process(), reply=["Bought."], tools=[approve])
    assert again.messages == agent.messages
    assert again.state.get("basket") == {"items": [1, 2]}
    assert str(again(interrupt_answers(paused))).strip() == "Bought."
    assert "approved: yes" in str(again.messages)


def test_turns_are_durable_with_all_that_belongs_to_them(deployment: Deployment) -> None:
    """The log keeps each turn, also after its eviction from the window, with role, content, tool
    calls, results, latency and tokens.
    """

    @tool
    def stock() -> str:
        """Look up the stock."""
        return "3 copies"

    memory = deployment.process()
    use = tool_use("t1", "stock")
    asked = [[use], "There are 3.", *("ok " * 100 for _ in range(20))]
    agent, _ = deployment.agent(memory, reply=asked, tools=[stock], max_tokens=500)
    agent("Is it there?")
    for number in range(20):
        agent(f"question {number} " + "word " * 30)
    agent._session_manager.flush()
    records = list(deployment.process().session(SCOPE).records("default"))
    assert len(records) == 44
    assert [record["turn"] for record in records] == sorted(record["turn"] for record in records)
    assert [record["message"]["role"] for record in records[:4]] == [
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    assert records[2]["message"]["content"][0]["toolResult"]["content"] == [{"text": "3 copies"}]
    answer = records[3]["message"]["metadata"]
    assert answer["usage"]["outputTokens"] > 0
    assert "latencyMs" in answer["metrics"]


def test_the_tiers_are_written_off_the_response(deployment: Deployment) -> None:
    """With Redis or Valkey, the hot tier is written every turn, the durable tier every five turns
    and at close. Without them, the durable tier is written every turn. Neither write blocks the
    event loop.
    """
    memory = deployment.process()
    agent, _ = deployment.agent(memory)
    flushed = memory.stats()["operations"].get("flush")
    before = 0 if flushed is None else flushed.count
    ticks: list[float] = []

    async def turns() -> None:
        async def tick() -> None:
            while True:
                ticks.append(time.thread_time())
                await asyncio.sleep(0.001)

        ticking = asyncio.create_task(tick())
        for number in range(4):
            await agent.invoke_async(f"question {number}")
        ticking.cancel()

    asyncio.run(turns())
    assert max(b - a for a, b in pairwise(ticks)) < 0.5
    again, _ = deployment.agent(memory)  # another worker of the same process, before any close
    assert len(again.messages) == 8
    manager: Any = agent._session_manager

    def flushes() -> int:
        found = memory.stats()["operations"].get("flush")
        return (0 if found is None else found.count) - before

    counts = {4: flushes()}
    for turn in range(5, 13):
        agent(f"question {turn}")
        servers.wait_until(
            lambda: manager.stats("default")["unsaved_messages"] == 0, "everything to be stored"
        )
        if turn % 5 == 0:
            servers.wait_until(lambda turn=turn: flushes() == turn // 5, "the flush")
        counts[turn] = flushes()
    # Without a hot tier that processes share, the second flush may be a turn earlier.
    assert [counts[turn] for turn in (4, 5, 6, 7, 8, 10, 11, 12)] == [0, 1, 1, 1, 1, 2, 2, 2]
    manager.close()
    assert len(list(deployment.process().session(SCOPE).history("default"))) == 24


def test_two_devices_agree(deployment: Deployment) -> None:
    """If two devices use one session, their messages and states are merged: a restored agent has
    both.
    """
    memory = deployment.process()
    phone, _ = deployment.agent(memory)
    phone("from the phone")
    desk, _ = deployment.agent(deployment.process())
    desk("from the desk")
    phone.state.set("phone", 1)
    desk.state.set("desk", 2)
    phone("again from the phone")
    desk("again from the desk")
    for each in (phone, desk):
        each._session_manager.flush()
    again, _ = deployment.agent(deployment.process())
    said = str(again.messages)
    assert all(
        text in said
        for text in (
            "from the phone",
            "from the desk",
            "again from the phone",
            "again from the desk",
        )
    )
    assert (again.state.get("phone"), again.state.get("desk")) == (1, 2)
    assert all(a != b for a, b in pairwise([message["role"] for message in again.messages]))


class Cached(ScriptedModel):
    """A model whose provider has nine tenths of each request in its cache."""

    cached = 900

    async def stream(self, *args: Any, **kwargs: Any) -> Any:
        async for event in super().stream(*args, **kwargs):
            if "metadata" in event:
                event["metadata"]["usage"].update(
                    cacheReadInputTokens=self.cached, cacheWriteInputTokens=100
                )
            yield event


def test_a_cached_prefix_stays_and_drops_are_explained(deployment: Deployment) -> None:
    """The system prompt stays equal from turn to turn, unless memories are deleted or retracted.
    The cache monitor reports hit rates by hour and day, and the cause of each drop.
    """
    clock = FakeClock(1_790_000_000.0)
    monitor = PromptCacheMonitor(clock=clock)
    memory = deployment.process()
    memory.user("u1").prefer("genre", "horror")
    model = Cached()
    kwargs = memory.agent_kwargs(
        user_id="u1", session_id="s1", task_state=True, cache_monitor=monitor
    )
    agent = Agent(model=model, system_prompt="You sell manga.", **kwargs)
    for number in range(5):
        agent(f"question {number}")
        clock.advance(60)
    assert len({json.dumps(request.system_prompt_content) for request in model.requests}) == 1
    assert monitor.stats()["prefix_changes"] == 0
    agent.system_prompt = "You sell books."
    agent("and now?")
    clock.advance(1_000)
    model.cached = 0
    agent("are you there?")
    stats = monitor.stats()
    assert stats["worst_day"] is not None
    assert stats["by_hour"]
    assert stats["drops"]["prompt changed"] == 1
    assert any("gap" in cause or "lifetime" in cause for cause in stats["drops"]), stats["drops"]


def test_how_long_to_keep_a_conversation_follows_from_returns(deployment: Deployment) -> None:
    """The package records the gaps after which users return, and recommends a time to live from
    them.
    """
    clock = FakeClock(1_790_000_000.0)
    memory = deployment.process(clock=clock)
    agent, _ = deployment.agent(memory)
    for gap in (0, 30, 30, 40, 45, 50, 60, 600):
        clock.advance(gap)
        agent("hello")
    agent._session_manager.flush()
    memory.close()
    gaps = deployment.recorded_gaps(memory)
    assert gaps.total == 7
    advice = ttl_advice(gaps)
    assert 30 <= advice.knee <= 700
    assert [share for _, share in advice.curve] == sorted(share for _, share in advice.curve)
    assert advice.curve[-1][1] == 1.0


def test_instruction_files_are_merged_and_guarded(tmp_path: Path, deployment: Deployment) -> None:
    """Instruction files of three folders are merged into the system prompt. Files that a tool could
    write are refused, unless their folder is allowed.
    """
    folders = [tmp_path / name for name in ("work", "user", "machine")]
    for folder in folders:
        folder.mkdir()
        (folder / "AGENT.md").write_text(f"Rules of {folder.name}.")
    (folders[0] / "MEMORY.md").symlink_to("/etc/passwd")

    @tool
    def save(path: str) -> str:
        """Save something."""
        return path

    def sent(tools: list[Any], **given: Any) -> str:
        memory = deployment.process()
        agent, model = deployment.agent(
            memory, tools=tools, instructions=InstructionFiles(folders, **given)
        )
        agent("hello")
        return str(model.requests[0].system_prompt_content)

    text = sent([])
    assert (
        text.index("Rules of work") < text.index("Rules of user") < text.index("Rules of machine")
    )
    assert "root:" not in text
    assert "Rules of work" not in sent([save])
    assert "Rules of work" in sent([save], allow=folders)


@pytest.mark.parametrize("script", ["English", "Japanese"])
def test_personal_data_are_found(script: str) -> None:
    """In test texts, the rules find thirteen kinds of personal data with a recall of .95 and a
    precision of .97, in English and in Japanese.
    """
    policy, personal, harmless = PiiPolicy(), rows("personal_data"), rows("no_personal_data")
    assert (
        len(
            {
                kind
                for line, _ in personal
                for kind in re.findall(r"\[(\w+)\]", policy.applied(line))
            }
        )
        == 13
    )
    lines = [
        (line, text)
        for line, texts in personal
        for text in texts
        if line.isascii() == (script == "English")
    ]
    found = sum(data not in policy.applied(line) for line, data in lines)
    wrong = sum(
        policy.applied(line) != line for line in harmless if line.isascii() == (script == "English")
    )
    assert found / len(lines) >= 0.95
    assert found / (found + wrong) >= 0.97


def test_a_process_tells_what_its_layer_takes(deployment: Deployment) -> None:
    """Each process exposes histograms of turns, stores and memories, and the states of its tiers,
    sessions and tokens, without I/O.
    """
    memory = deployment.process()
    agent, _ = deployment.agent(memory)
    memory.user("u1").remember("likes horror")
    for _ in range(3):
        agent("hello")
    agent._session_manager.flush()
    stats = memory.stats()
    assert (stats["hot"], stats["durable"]) == ("up", "up")
    assert stats["turns"] == 3
    assert 0 < stats["tokens"] < stats["token_budget"]
    turn = stats["operations"]["turn"]
    assert turn.count >= 3
    assert 0 < turn.p50 <= turn.p99
    assert turn.sums["layer"] > 0
    with_state, _ = deployment.agent(memory, "s2", task_state=True, history="summarize")
    with_state("Where is my order ORD-48502?")
    stats = memory.stats()
    assert stats["state"]["agents"] == 1
    assert stats["state"]["entities"] >= 1
    assert stats["state"]["tokens"] > 0
    assert stats["summaries"]["runs"] == 0


def test_the_cost_model_gives_the_published_figures() -> None:
    """The cost model reproduces the published figures of a design with Redis and DynamoDB within
    5 %, and prices this package.
    """
    paper = CostModel.paper().cost()
    assert paper.redis_usd_month == pytest.approx(188, rel=0.05)
    assert paper.dynamodb_usd_month == pytest.approx(80, rel=0.05)
    measured = CostModel.measured(Workload(keeps_agents=True)).cost()
    restored = CostModel.measured(Workload(keeps_agents=False)).cost()
    assert (
        measured.dynamodb_usd_month < restored.dynamodb_usd_month < 3 * measured.dynamodb_usd_month
    )
    assert Workload().cache_hit_rate == 0.70


def test_settings_come_from_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every setting of `MangaMemorySettings` has an environment variable. An error names the bad
    variable and the accepted values.
    """
    with monkeypatch.context() as variables:
        variables.setenv("MANGA_MEMORY_MAX_TOKENS", "2000")
        assert MangaMemorySettings.from_env().max_tokens == 2_000
    for name in MangaMemorySettings.model_fields:
        if name not in ("hot_url", "durable_url", "users_url", "summary_model"):  # any text
            with monkeypatch.context() as variables:
                variables.setenv(f"MANGA_MEMORY_{name.upper()}", "nonsense")
                with pytest.raises(ValueError, match=f"^MANGA_MEMORY_{name.upper()}"):
                    MangaMemorySettings.from_env()


def test_graphs_swarms_and_structured_output_go_on(deployment: Deployment) -> None:
    """Streaming and structured output work with all parts. Agents of a Graph or Swarm, and agents
    as tools, work with all parts except a session of their own.
    """

    class Title(BaseModel):
        name: str

    memory = deployment.process()

    def node(name: str, reply: Any = "done") -> Agent:
        model = ScriptedModel(reply if not isinstance(reply, str) else lambda _: reply)
        kwargs = memory.agent_kwargs(user_id="u1", session_id="s1", agent_id=name, session=False)
        return Agent(model=model, name=name, **kwargs)

    builder = GraphBuilder()
    builder.add_node(node("a"), "a")
    builder.add_node(node("b"), "b")
    builder.add_edge("a", "b")
    builder.set_max_node_executions(5)
    assert str(builder.build()("go").status.value) == "completed"
    assert str(Swarm([node("c"), node("d")])("go").status.value) == "completed"
    asked = [[tool_use("t1", "expert", input="which?")], "Berserk."]
    agent, _ = deployment.agent(memory, reply=asked, tools=[node("expert", "Berserk").as_tool()])
    assert str(agent("ask the expert")).strip() == "Berserk."
    structured = [[{"toolUse": {"toolUseId": "t2", "name": "Title", "input": {"name": "Gyo"}}}]]
    other, _ = deployment.agent(memory, "s2", reply=structured)
    assert other("name one", structured_output_model=Title).structured_output == Title(name="Gyo")

    async def streamed() -> list[Any]:
        return [event async for event in deployment.agent(memory, "s3")[0].stream_async("hello")]

    assert any("data" in event for event in asyncio.run(streamed()))


def test_squad_keeps_users_apart(deployment: Deployment) -> None:
    """In Agent Squad, each user has their own sessions, history and memories, which other users
    cannot see.
    """
    from agent_squad.agents import AgentOptions

    memory = deployment.process()
    models: list[ScriptedModel] = []

    def build(scope: ConversationScope) -> Agent:
        models.append(ScriptedModel())
        return memory.agent(models[-1], **vars(scope))

    squad = SessionStrandsAgent(AgentOptions(name="shop", description="sells"), build)

    async def talk() -> None:
        await squad.process_request(f"My favorite genre is {CANARY}.", "u1", "s1", [], {})
        await squad.process_request("hello", "u2", "s1", [], {})
        await squad.process_request("what do I like?", "u1", "s1", [], {})

    asyncio.run(talk())
    assert CANARY not in str([request.messages for request in models[1].requests])
    assert CANARY in str([request.messages for request in models[2].requests])


def test_an_operator_sees_a_conversation(deployment: Deployment) -> None:
    """An inspector shows the tiers, the window and the entities of a conversation without changing
    it.
    """
    memory = deployment.process()
    agent, _ = deployment.agent(memory, task_state=True)
    agent("Where is my order ORD-48502?")
    agent._session_manager.flush()
    [place] = places("s1", user="u1", durable=memory.durable)
    seen = inspect(place, hot=memory.hot, durable=memory.durable)
    assert len(seen.messages) == 2
    assert "ORD-48502" in str(seen)


def test_a_quick_start_needs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent needs no key and no server to remember, also in a new process in the same folder."""
    monkeypatch.chdir(tmp_path)
    for reply in ("Hello Ken.", "You are Ken."):
        with MangaMemory.open() as memory:
            kwargs = memory.agent_kwargs(user_id="u1", session_id="s1")
            agent = Agent(model=ScriptedModel(lambda _, reply=reply: reply), **kwargs)
            agent("My name is Ken." if reply.startswith("Hello") else "Who am I?")
            last = agent
    assert len(last.messages) == 4


def test_a_redaction_of_the_log_reaches_both_tiers(deployment: Deployment) -> None:
    """A redacted message becomes unreadable in the window and the log, and in each tier as soon as
    the tier answers. Later processes cannot read it either.
    """
    memory = deployment.process(codec=Codec(cipher=AesGcmCipher({"k": bytes(32)}, current="k")))
    agent, _ = deployment.agent(memory)
    agent(f"My card is {CANARY}.")
    agent("hello")
    message = copy.deepcopy(agent.messages[0])
    message["content"] = [{"text": "[redacted]"}]
    agent.messages[0]["content"] = message["content"]
    manager: Any = agent._session_manager
    agent("and on")
    manager.flush()
    again, _ = deployment.agent(memory)
    assert CANARY not in str(again.messages)
    assert "[redacted]" in str(again.messages)
