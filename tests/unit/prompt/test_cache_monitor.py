"""PromptCacheMonitor: hit rates, and what broke the prefix."""

from typing import Any

import pytest
from strands import Agent
from strands.session import FileSessionManager
from strands.types.content import Messages

from strands_manga_memory import InstructionFiles, PromptCacheMonitor, StateCoordinator
from strands_manga_memory.prompt import Cause, StableTexts
from strands_manga_memory.testing import FakeClock, ScriptedModel
from tests.support import stub_tool


class CachingModel(ScriptedModel):
    """Model that reports one cache write, then reads of all but 100 tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.read_share = 0.9

    async def stream(self, messages: Messages, *args: Any, **kwargs: Any) -> Any:
        async for event in super().stream(messages, *args, **kwargs):
            if "metadata" in event:
                first = len(self.requests) == 1
                read = 0 if first else int(1000 * self.read_share)
                event["metadata"]["usage"].update(
                    inputTokens=100,
                    cacheReadInputTokens=read,
                    cacheWriteInputTokens=1000 if first else 900 - read,
                )
            yield event


another = stub_tool("another", "done")


def test_hit_rate_by_hour_worst_day_and_what_was_saved() -> None:
    clock = FakeClock(1_700_000_000.0)
    monitor = PromptCacheMonitor(clock=clock)
    model = CachingModel()
    agent = Agent(
        model=model, plugins=[monitor, StateCoordinator()], system_prompt="You sell books."
    )
    for _ in range(10):
        agent("Is B07X1234 there?")
        clock.advance(60)
    model.read_share = 0.4
    clock.advance(86_400)
    for _ in range(5):
        agent("hm")
    stats = monitor.stats()
    assert stats["calls"] == 15
    assert [use["calls"] for use in stats["by_hour"].values()] == [10, 5]
    assert stats["worst_day"] == ("2023-11-15", 0.4)
    read, written = 9 * 900 + 5 * 400, 1000 + 5 * 500
    assert (stats["read_tokens"], stats["write_tokens"]) == (read, written)
    assert stats["saved_tokens"] == pytest.approx(read * 0.9 - written * 0.25)
    assert stats["prefix_stability"] == 1.0
    assert stats["drops"] == {"gap over the cache's lifetime": 1, "unknown": 4}
    report = monitor.report()
    for part in (
        "worst day: 2023-11-15, 40%",
        "prefix: unchanged in 100.0%",
        "gap over the cache's lifetime: 1x",
    ):
        assert part in report


def test_each_change_of_the_prefix_has_a_cause() -> None:
    variant = ["a"]
    monitor = PromptCacheMonitor(variant=lambda: variant[0], clock=FakeClock())
    model = CachingModel()
    agent = Agent(model=model, plugins=[monitor], system_prompt="You sell books.")
    agent("one")
    agent("two")
    assert monitor.drops == []
    agent.system_prompt = [{"text": "You sell music."}, {"text": "And films."}]
    agent("three")
    agent.tool_registry.process_tools([another])
    agent("four")
    variant[0] = "b"
    agent("five")
    model.update_config(model_id="another")
    agent("six")
    agent.messages.pop(0)
    agent("read all the same")
    model.read_share = 0.1
    agent.messages.pop(0)
    agent("seven")
    assert [drop.causes for drop in monitor.drops] == [
        (Cause.PROMPT,),
        (Cause.TOOLS,),
        (Cause.VARIANT,),
        (Cause.VARIANT,),
        (Cause.HISTORY,),
    ]
    assert monitor.stats()["prefix_changes"] == 4
    assert "tools changed: 1x" in monitor.report()


def test_constraints_are_what_stands_beside_the_agents_own_prompt(tmp_path: Any) -> None:
    monitor = PromptCacheMonitor()
    (tmp_path / "AGENT.md").write_text("Be brief.")
    stable = StableTexts(InstructionFiles([tmp_path]))
    agent = Agent(model=CachingModel(), plugins=[monitor, stable], system_prompt="You sell books.")
    agent("one")
    stable._text = "Be verbose."
    agent("two")
    assert [drop.causes for drop in monitor.drops] == [(Cause.CONSTRAINTS,)]


def test_a_session_that_goes_on_in_another_process_is_a_deploy() -> None:
    messages: Messages = [
        {"role": "user", "content": [{"text": "a"}]},
        {"role": "assistant", "content": [{"text": "b"}]},
    ]
    monitor = PromptCacheMonitor()
    Agent(model=CachingModel(), plugins=[monitor], messages=messages)("hello")
    Agent(model=CachingModel(), plugins=[monitor])("hello")
    assert [drop.causes for drop in monitor.drops] == [(Cause.DEPLOY,)]


def test_an_agent_built_for_each_request_goes_on_with_its_conversation(tmp_path: Any) -> None:
    monitor, model = PromptCacheMonitor(), CachingModel()
    for number in range(3):
        session = FileSessionManager(session_id="s1", storage_dir=str(tmp_path))
        prompt = "You sell books." if number < 2 else "You sell music."
        agent = Agent(model=model, plugins=[monitor], session_manager=session, system_prompt=prompt)
        agent("hello")
    assert [drop.causes for drop in monitor.drops] == [(Cause.PROMPT,)]
    assert monitor.stats()["prefix_changes"] == 1


def test_one_monitor_serves_many_agents_and_keeps_none_alive() -> None:
    monitor = PromptCacheMonitor()
    agents = [
        Agent(model=CachingModel(), plugins=[monitor], system_prompt=f"You are {n}.")
        for n in range(3)
    ]
    for _ in range(2):
        for agent in agents:
            agent("hello")
    assert monitor.stats()["prefix_stability"] == 1.0
    assert monitor.stats()["calls"] == 6


def test_hours_and_drops_are_bounded() -> None:
    clock = FakeClock(0.0)
    monitor = PromptCacheMonitor(clock=clock)
    agent = Agent(model=CachingModel())
    for _ in range(1000):
        monitor.record(agent, {"inputTokens": 10})
        clock.advance(3600)
    assert len(monitor.stats()["by_hour"]) == 744
    assert PromptCacheMonitor().stats()["worst_day"] is None


class Unconfigured(ScriptedModel):
    """Answers, and has no configuration: as a wrapper around a model may be."""

    def __getattribute__(self, name: str) -> Any:
        if name == "get_config":
            raise AttributeError(name)
        return super().__getattribute__(name)

    @property
    def context_window_limit(self) -> int | None:
        return None


def test_a_model_without_a_configuration_is_watched_like_any_other() -> None:
    monitor = PromptCacheMonitor()
    agent = Agent(model=Unconfigured(), plugins=[monitor])
    agent("Is it there?")
    agent.system_prompt = "You sell books."
    agent("And now?")
    assert monitor.stats()["calls"] == 2
    assert [drop.causes for drop in monitor.drops] == [(Cause.PROMPT,)]


def test_the_monitor_never_fails_the_request_it_watches(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> str:
        raise RuntimeError("no variant")

    monitor = PromptCacheMonitor(variant=broken)
    assert str(Agent(model=ScriptedModel(), plugins=[monitor])("Is it there?")).strip() == "ok"
    assert "comparing the request with the previous one failed" in caplog.text
