"""A process that prints the garbage of turns and the memory of agents as JSON.

In a process of its own, because everything a process does at the time would be counted in.
"""

import asyncio
import gc
import json
import sys
import tracemalloc
import types
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from strands import Agent, tool

import strands_manga_memory
from strands_manga_memory import MangaMemory, open_hot_store
from strands_manga_memory.telemetry import recorder
from strands_manga_memory.testing import ScriptedModel
from tests.benchmarks import reset_texts, text
from tests.faulty_stores import FaultyHotStore
from tests.support import background_writer

_PACKAGE = str(Path(strands_manga_memory.__file__).parent)
_TURNS = 5
_AGENTS, _OLD = 2, 30
_LARGEST = 500_000
"""Bytes that nothing of an agent takes in one piece."""


@tool
def look(title: str) -> str:
    """Look for a title."""
    return f"{title} is in stock"


def _is_ours(found: Any) -> bool:
    kind = type(found)  # unlike isinstance, this does not use the object of a weak proxy
    if issubclass(kind, types.FrameType):
        return bool(found.f_code.co_filename.startswith(_PACKAGE))
    module = found.__module__ if issubclass(kind, types.FunctionType) else kind.__module__
    return str(module).startswith("strands_manga_memory")


def _name(found: Any) -> str:
    if isinstance(found, types.FrameType):
        return f"frame of {found.f_code.co_name}"
    return str(
        found.__qualname__ if isinstance(found, types.FunctionType) else type(found).__qualname__
    )


@contextmanager
def _collected(into: dict[str, int]) -> Iterator[None]:
    """Note what of ours only the garbage collector can free afterwards."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield
    recorder.flush()  # the exporting thread may be behind on a busy machine
    gc.collect()
    gc.set_debug(0)
    gc.enable()
    into |= Counter(_name(each) for each in gc.garbage if _is_ours(each))
    gc.garbage.clear()


async def _play(agent: Agent, turns: int) -> None:
    for _ in range(turns):
        await agent.invoke_async(text(200))
    await asyncio.to_thread(agent._session_manager.flush)


def _calls_a_tool(messages: Any) -> Any:
    if "toolResult" in messages[-1]["content"][0]:
        return text(500)
    return [
        {
            "toolUse": {
                "toolUseId": f"t{len(messages)}",
                "name": "look",
                "input": {"title": "Monster"},
            }
        }
    ]


async def _all_garbage(memory: MangaMemory, hot: FaultyHotStore) -> dict[str, dict[str, int]]:
    def agent(name: str, reply: Any = lambda _: text(500), **settings: Any) -> Agent:
        kwargs = memory.agent_kwargs(user_id="u", session_id=name, max_tokens=1_000, **settings)
        return Agent(model=ScriptedModel(reply), tools=[look], callback_handler=None, **kwargs)

    agents = {
        "texts": agent("texts"),
        "tools": agent("tools", _calls_a_tool),
        "everything": agent("everything", recall=True, task_state=True),
        "a tier is down": agent("down"),
    }
    found: dict[str, dict[str, int]] = {name: {} for name in (*agents, "let go")}
    for name, each in agents.items():
        await _play(each, 10)  # until it trims
        hot.down = name == "a tier is down"
        with _collected(found[name]):
            await _play(each, _TURNS)
    hot.down = False
    writer = background_writer(memory.hot, memory.durable)
    await _at_rest(writer)  # the last of them has its save to make good
    with _collected(found["let go"]):
        before, kinds = _alive(), len(recorder.stats())
        await _play(agent("let go"), 10)
        await _at_rest(writer)
        left = _alive() - before  # the garbage collector does not tell of all that it frees
        # The process counts each kind of operation, such as a repeated write, from its first one.
        kinds = len(recorder.stats()) - kinds
    left.subtract(OperationTotals=kinds, LogHistogram=kinds)
    found["let go"] |= {
        name: number for name, number in left.items() if number and name != "TextFeatures"
    }  # in a shared cache
    return found


async def _at_rest(writer: Any) -> None:
    """Wait until the writer has no work, because pending work keeps objects alive."""
    for _ in range(600):
        if not (writer._timers or writer._active):
            break
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.2)  # a thread that is done with its work has yet to let go of it
    recorder.flush()


def _alive() -> Counter[str]:
    return Counter(_name(each) for each in gc.get_objects() if _is_ours(each))


def _objects() -> int:
    return _alive().total()


async def _size(memory: MangaMemory) -> dict[str, Any]:
    """Return the memory of a live agent's parts with 60 messages after trimming."""

    async def agent_of(session: str) -> Agent:
        kwargs = memory.agent_kwargs(user_id="size", session_id=session)
        agent = Agent(model=ScriptedModel(lambda _: text(500)), callback_handler=None, **kwargs)
        reset_texts()  # in the same words as the others: those are shared
        await _play(agent, _OLD)
        return agent

    await agent_of("first")  # what all share comes with it
    tracemalloc.start()
    gc.collect()
    before = _objects()
    agents = [await agent_of(f"s{number}") for number in range(_AGENTS)]
    for agent in agents:
        await asyncio.to_thread(
            agent._session_manager.flush
        )  # a busy machine may be behind with it
        agent.model.requests.clear()  # what a model of the tests remembers, no other does
    recorder.flush()  # its queued events are not the agents'
    gc.collect()
    objects = _objects() - before
    taken = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, f"{_PACKAGE}/*")])
    tracemalloc.stop()
    del agents
    # The interpreter's table of strings that it has interned grows by 2 MB at once, in whatever
    # line that happens.
    tables = [trace.size for trace in taken.traces if trace.size > _LARGEST]
    lines = taken.statistics("lineno")
    return {
        "kb": (sum(line.size for line in lines) - sum(tables)) / 1024 / _AGENTS,
        "tables": tables,
        "objects": objects / _AGENTS,
        "most": [f"{line.size / 1024 / _AGENTS:.0f} KB {line.traceback}" for line in lines[:5]],
    }


def main(folder: str, url: str) -> None:
    hot = FaultyHotStore(open_hot_store(url))
    memory = MangaMemory.open(hot=hot, durable=f"sqlite:///{folder}/s.db")
    print(
        json.dumps(
            {"size": asyncio.run(_size(memory)), "garbage": asyncio.run(_all_garbage(memory, hot))}
        )
    )
    memory.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
