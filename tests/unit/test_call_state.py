"""The invocation state of one tool call: a shared dict with the call's own keys."""

import copy
import json
from typing import Any

from strands import Agent

from strands_manga_memory.call_state import CallState
from strands_manga_memory.testing import ScriptedModel


def _agent(name: str) -> Agent:
    return Agent(model=ScriptedModel(), agent_id=name, system_prompt=f"I am {name}")


def _as_strands_sets_it(shared: dict[str, Any], agent: Agent) -> None:
    named = {
        "model": agent.model,
        "messages": agent.messages,
        "system_prompt": agent.system_prompt,
        "tool_config": {"tools": []},
    }
    shared.update({"agent": agent, **named})


def test_an_agent_that_is_known_is_put_right() -> None:
    first, second = _agent("first"), _agent("second")
    shared: dict[str, Any] = {}
    _as_strands_sets_it(shared, second)
    mine = CallState(shared, first)
    assert (mine["agent"], mine["model"], mine["system_prompt"]) == (
        first,
        first.model,
        "I am first",
    )
    assert mine["messages"] is first.messages
    assert set(mine["tool_config"]) == {"tools", "toolChoice"}


def test_all_else_is_shared_both_ways_and_it_is_a_dict_to_whoever_looks() -> None:
    shared: dict[str, Any] = {"agent": 1, "a": 1}
    mine = CallState(shared)
    shared["b"] = 2
    mine["c"] = 3
    mine.update(d=4)
    mine |= {"e": 5}
    assert mine.pop("a") == 1
    assert mine.setdefault("f", 6) == 6
    assert shared == {"agent": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6}
    shared["agent"] = 2
    expected = {**shared, "agent": 1}
    assert isinstance(mine, dict)
    copies: list[Any] = [
        {**mine},
        dict(mine),
        mine.copy(),
        copy.copy(mine),
        copy.deepcopy(mine),
        mine | {},
        {} | mine,
    ]
    assert all(each == expected for each in [mine, *copies])
    assert json.loads(json.dumps(mine)) == json.loads(str(mine).replace("'", '"')) == expected
    assert (len(mine), set(mine), mine.get("agent"), "x" in mine, mine.get("x", 0)) == (
        6,
        set(expected),
        1,
        False,
        0,
    )
    copies[3]["g"] = 7
    assert "g" not in shared
    CallState(mine)["h"] = 8
    assert shared["h"] == 8
