"""An agent that strands-harness builds has our session and our policies, and its sub-agents have their own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from strands import tool
from strands.hooks import BeforeModelCallEvent
from strands.plugins import Plugin
from strands_harness import create_harness

from strands_manga_memory import ConversationScope, MangaMemory
from strands_manga_memory.prompt import InstructionFiles
from strands_manga_memory.state import coordinator_of
from strands_manga_memory.testing import ScriptedModel
from tests.unit.session.support import same, tool_use


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MangaMemory:
    monkeypatch.chdir(tmp_path)
    return MangaMemory.open(memories=True)


class Mine(Plugin):
    """A plugin of the user's own."""

    name = "mine"


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


def test_one_call_builds_the_same_and_takes_what_its_user_brings(memory: MangaMemory) -> None:
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    seen: list[str] = []

    def hook(event: BeforeModelCallEvent) -> None:
        seen.append("asked")

    model = ScriptedModel(["はい"])
    agent = memory.harness(
        model,
        user_id="u",
        session_id="s",
        agent_id="librarian",
        recall=True,
        task_state=True,
        flush_every=1,
        plugins=[Mine()],
        hooks=[hook],
        tools=[look],
        context_manager={"strategies": ["large_tool_offloading"]},
        builtin_tools=["read"],
        instructions="Be kind.",
        callback_handler=None,
    )
    agent("I like horror.")
    assert seen == ["asked"]
    assert "Be kind." in str(agent.system_prompt)
    assert {"look", "read", "search_history", "search_memory", "todo_write"} <= set(agent.tool_names)
    assert "shell" not in agent.tool_names
    assert "mine" in agent._plugin_registry._plugins
    assert agent.context_manager is not None
    names = [strategy.name for strategy in agent.context_manager._strategies]
    assert names.index("manga-memory:ImportanceWeighted") < names.index("offload:truncate")
    memory.close()
    again = memory.harness(ScriptedModel(), user_id="u", session_id="s", agent_id="librarian", callback_handler=None)
    assert same(again.messages, agent.messages)
    memory.close()
    assert not Path(".agent/sessions").exists()


def test_a_harness_without_a_session_keeps_none(memory: MangaMemory) -> None:
    memory.harness(ScriptedModel(), user_id="u", session_id="s", session=False, callback_handler=None)("hello")
    memory.close()
    assert not list(memory.session(ConversationScope("u", "s")).history())
    assert not Path(".agent").exists()


def test_instruction_files_and_memories_of_a_harness(memory: MangaMemory, tmp_path: Path) -> None:
    (tmp_path / "AGENT.md").write_text("Answer in haiku.")
    model = ScriptedModel(lambda _: "ok")
    files = InstructionFiles([tmp_path], allow=[tmp_path])
    agent = memory.harness(model, user_id="u", session_id="s", instructions=files, memory=False, callback_handler=None)
    agent("hello")
    assert "Answer in haiku." in str(model.requests[-1].system_prompt_content)
    assert agent.memory_manager is None
    memory.close()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"efort": "low"}, "efort is no setting, closest=effort"),
        ({"max_turn": 3}, "max_turn is no setting, closest=max_turns"),
        ({"context_manager": "auto"}, "context_manager must be a mapping here"),
    ],
)
def test_what_a_harness_cannot_take_is_refused(memory: MangaMemory, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        memory.harness(ScriptedModel(), user_id="u", session_id="s", **given)
    memory.close()


def test_without_the_package_the_error_says_what_to_install(memory: MangaMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "strands_harness", None)
    with pytest.raises(ImportError, match="pip install strands-harness"):
        memory.harness(ScriptedModel(), user_id="u", session_id="s")
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
