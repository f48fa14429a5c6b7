"""The incidents of the runbook: each has its symptom, and its remedy helps."""

import asyncio
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, tool

import strands_manga_memory
from strands_manga_memory import (
    BreakerPolicy,
    ConversationScope,
    MangaMemory,
    MangaMemorySettings,
    TieredSessionManager,
    guard_tool,
    open_table,
    telemetry,
)
from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.ops import diagnose, inspect, places
from strands_manga_memory.squad import BusyError, ConversationTurns
from strands_manga_memory.testing import FakeClock, ScriptedModel
from tests import servers
from tests.faulty_stores import FaultyTable
from tests.support import SmallModel, background_writer, finish_writes
from tests.unit.session.support import tool_use

RUNBOOK = (Path(strands_manga_memory.__file__).parent / "ops/runbook.md").read_text(
    encoding="utf-8"
)


def agent_of(memory: MangaMemory, session: str = "s", **settings: Any) -> Agent:
    kwargs = memory.agent_kwargs(user_id="u", session_id=session)
    return Agent(model=settings.pop("model", ScriptedModel()), **{**kwargs, **settings})


def found(settings: MangaMemorySettings, check: str, **options: Any) -> bool:
    return any(f.check == check and f.remedy for f in diagnose(settings, **options))


def test_every_incident_has_its_test() -> None:
    incidents = {
        re.sub(r"\W+", "_", title.lower())
        for title in re.findall(r"^## (.*)$", RUNBOOK, re.MULTILINE)
    }
    assert len(incidents) == 9
    assert {f"test_{name}" for name in incidents} <= set(globals())


def test_hot_tier_lost(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    with servers.valkey() as server:
        memory = MangaMemory.open(server.url, url)
        agent = agent_of(memory)
        agent("one")
        server.kill()
        for text in ("two", "three"):
            agent(text)
        assert memory.stats()["hot"] == "down"
        assert found(MangaMemorySettings(hot_url=server.url, durable_url=url), "hot.reach")
        server.start()  # empty
        agent("four")
        servers.wait_until(lambda: memory.stats()["unsaved_messages"] == 0, "saving what was kept")
        memory.close()
        restored = agent_of(memory)
        assert [message["content"] for message in restored.messages] == [
            message["content"] for message in agent.messages
        ]
        assert memory.stats()["unsaved_messages"] == 0
        memory.close()


def test_durable_tier_down(tmp_path: Path) -> None:
    table = FaultyTable(open_table(f"sqlite:///{tmp_path}/s.db"))
    with servers.valkey() as server:
        memory = MangaMemory.open(server.url, table)
        agent = agent_of(memory)
        agent("one")
        table.down = True
        agent("two")  # the hot tier takes it
        assert len(agent_of(memory).messages) == 4
        with pytest.raises(StoreUnavailableError):
            agent_of(memory, "new")
        assert memory.stats()["durable"] == "down"
        table.down = False
        servers.wait_until(lambda: agent_of(memory, "new").messages == [], "a new session")
        memory.close()
        log = TieredSessionManager(ConversationScope("u", "s"), durable=table).history()
        assert len(list(log)) == 4


def test_backup_restored(tmp_path: Path) -> None:
    path, backup = tmp_path / "s.db", tmp_path / "backup.sqlite3"
    with servers.valkey() as server:

        def opened() -> MangaMemory:
            return MangaMemory.open(server.url, f"sqlite:///{path}")

        memory = opened()
        for session in ("hot", "swept", "deleted"):
            agent_of(memory, session)("before")
        memory.close()
        shutil.copy(path, backup)
        memory = opened()
        agent_of(memory, "hot")("after")
        memory.delete_session("u", "deleted")
        memory.close()
        for file in tmp_path.glob("s.db*"):
            file.unlink()
        shutil.copy(backup, path)
        memory = opened()
        restored = {session: agent_of(memory, session) for session in ("hot", "swept", "deleted")}
        assert {session: len(each.messages) for session, each in restored.items()} == {
            "hot": 4,
            "swept": 2,
            "deleted": 0,  # the hot tier has the deletion
        }
        memory.close()
        server.flush()  # without the hot tier, the deletion has to be repeated
        memory = opened()
        memory.delete_session("u", "deleted")
        assert agent_of(memory, "deleted").messages == []
        memory.close()


def test_deletion_not_complete(tmp_path: Path) -> None:
    table = FaultyTable(open_table(f"sqlite:///{tmp_path}/s.db"))
    memory = MangaMemory.open("memory://", table)
    agent_of(memory)("one")
    table.down = True
    with pytest.raises(StoreUnavailableError):
        memory.forget_user("u")
    table.down = False
    servers.wait_until(lambda: memory.forget_user("u").complete, "the deletion")
    assert agent_of(memory).messages == []
    memory.close()


def test_throttling(tmp_path: Path) -> None:
    table = FaultyTable(open_table(f"sqlite:///{tmp_path}/s.db"))
    with servers.valkey() as server:
        memory = MangaMemory.open(server.url, table, flush_every=1)
        agent = agent_of(memory)
        agent("one")
        hot = memory._stores["hot"]
        finish_writes(hot, table)
        throttled = StoreUnavailableError("table=<t> | ProvisionedThroughputExceededException")
        table.fail_next(3, error=throttled)
        for text in ("two", "three"):
            agent(text)
        assert memory.stats()["hot"] == "up"  # no turn waited for the table
        servers.wait_until(
            lambda: (
                memory.stats()["durable"] == "up" and background_writer(hot, table).backlog == 0
            ),
            "trying again",
        )
        server.flush()  # the durable tier has it all
        log = TieredSessionManager(ConversationScope("u", "s"), durable=table).history()
        assert len(list(log)) == 6
        memory.close()


def test_model_overflow(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    memory = MangaMemory.open(durable=url)
    agent = agent_of(memory, model=SmallModel(1_500))
    for number in range(12):
        agent(f"{number} " + "word " * 40)
    assert str(agent.messages[-1]["content"]).count("ok") == 1  # it went on
    memory.close()
    [place] = places("s", user="u", durable=open_table(url))
    seen = inspect(place, hot=None, durable=open_table(url))
    assert {message.outcome for message in seen.messages} >= {"kept", "left"}


def test_breaker_storm() -> None:
    healthy = False

    def made(name: str) -> Any:
        @tool(name=name)
        def call() -> str:
            """Call what all of them share."""
            if not healthy:
                raise ConnectionError("the network is gone")
            return "fine"

        return guard_tool(call, BreakerPolicy(failures=2, reset_after=0.05), clock=clock)

    clock = FakeClock()
    tools = {name: made(name) for name in ("search", "stock", "prices")}
    uses = [tool_use(f"t{name}", name) for name in tools]

    def turn() -> Agent:
        agent = Agent(model=ScriptedModel([uses, "done"]), tools=list(tools.values()))
        agent("look")
        return agent

    for _ in range(2):
        turn()
    assert {each.status()["health"] for each in tools.values()} == {"unavailable"}
    answer = str(turn().messages)
    assert "circuit_open" in answer
    assert "retry_after" in answer
    healthy = True
    clock.advance(1.0)
    turn()
    assert {each.status()["health"] for each in tools.values()} == {"healthy"}


def test_stuck_sweeper(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    clock = FakeClock(time.time() - 3 * 86_400)
    memory = MangaMemory.open(durable=url, memories=True, clock=clock)
    agent = agent_of(memory, "s1")
    agent("My favourite genre is horror.")
    memory.close()
    clock.advance(3 * 86_400)
    settings = MangaMemorySettings(durable_url=url)
    assert found(settings, "durable.sweeper")

    memory = MangaMemory.open(durable=url, memories=True, clock=clock)
    memory.sweeper().run_once()
    assert memory.user("u").recall(type="interaction_summary")
    assert not found(settings, "durable.sweeper")
    assert memory.finalize(ConversationScope("u", "none")) is None
    memory.close()


def counted(metric: str) -> float:
    """Return what was counted of an event in this process."""
    telemetry.flush()
    stats = telemetry.recorder.stats()
    event, name = metric.rsplit(" ", 1)
    return stats[event].sums.get(name, 0.0) if event in stats else 0.0


def test_agents_that_wait_for_one_another() -> None:
    """Of two requests that call each other's agent, the shorter wait ends."""
    turns = ConversationTurns()
    first, second = ConversationScope("u", "s", "first"), ConversationScope("u", "s", "second")
    before = counted("wait.stuck waits")

    async def calls(
        mine: ConversationScope, other: ConversationScope, both: asyncio.Barrier, wait: float
    ) -> str:
        async with turns.wait_for_turn(mine, wait=60):
            await both.wait()
            try:
                async with turns.wait_for_turn(other, wait=wait):
                    return "answered"
            except BusyError:
                return "refused"

    async def both() -> list[str]:
        barrier = asyncio.Barrier(2)
        return await asyncio.gather(
            calls(first, second, barrier, 0.2), calls(second, first, barrier, 60)
        )

    assert asyncio.run(both()) == ["refused", "answered"]
    assert asyncio.run(both()) == ["refused", "answered"]  # nothing of before is left
    assert counted("wait.stuck waits") == before + 2
