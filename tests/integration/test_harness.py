"""An agent that strands-harness builds has our session and our policies, and its sub-agents have their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from strands_harness import create_harness

from strands_manga_memory import ConversationScope, MangaMemory
from strands_manga_memory.state import coordinator_of
from strands_manga_memory.testing import ScriptedModel
from tests.unit.session.support import same, tool_use


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MangaMemory:
    monkeypatch.chdir(tmp_path)
    return MangaMemory.open(memories=True)


def built(memory: MangaMemory, model: Any) -> Any:
    parts = memory.harness_kwargs(user_id="u", session_id="s", max_tokens=300, recall=True, task_state=True)
    return create_harness(model=model, callback_handler=None, **parts)


def test_a_harness_goes_on_where_it_was(memory: MangaMemory) -> None:
    live = built(memory, ScriptedModel())
    for number in range(24):
        live(f"question {number} " + "about volumes and editions " * 8)
    assert len(live.messages) < 48
    assert coordinator_of(live) is not None
    assert {"shell", "search_history", "search_memory"} <= set(live.tool_names)
    memory.close()
    again = built(memory, ScriptedModel())
    assert same(again.messages, live.messages)
    manager = memory.session(ConversationScope("u", "s"))
    assert sum(message["role"] == "user" for message in manager.history()) == 24
    memory.close()


def test_a_sub_agent_has_a_context_of_its_own(memory: MangaMemory) -> None:
    def reply(messages: Any) -> Any:
        last = messages[-1]["content"][0]
        if last.get("text", "").startswith("count"):
            return "counted"
        if len(messages) == 1:
            return [tool_use("t1", "subagent", task="count the volumes", prompt="count the volumes")]
        return "done"

    agent = built(memory, ScriptedModel(reply))
    agent("start")
    assert "error" not in str(agent.messages).lower()
    assert "counted" in str(agent.messages)
    memory.close()
