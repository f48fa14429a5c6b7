"""The diffs of the migration guide run on both sides, and what was exported goes on under Strands' own session manager."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws
from strands import Agent, tool
from strands.agent.conversation_manager import SlidingWindowConversationManager
from strands.multiagent import GraphBuilder
from strands.session import SnapshotSessionManager
from strands.storage import LocalFileStorage
from strands.types.tools import ToolContext

from strands_manga_memory import ConversationScope, MangaMemory
from strands_manga_memory.cli.app import run
from strands_manga_memory.ops.exporting import export_snapshots
from strands_manga_memory.ops.importing import import_sessions
from strands_manga_memory.testing import ScriptedModel
from tests import servers
from tests.unit.session.support import same, tool_use

GUIDE = (Path(__file__).parents[2] / "strands_manga_memory/guide/migration.md").read_text(encoding="utf-8")
DIFFS = re.findall(r"```diff\n(.*?)```", GUIDE, re.DOTALL)
NAMES = ["sliding", "summarizing", "files", "s3", "snapshots", "auto"]


@pytest.fixture
def aws(dynamodb_server: servers.DynamoDB, monkeypatch: pytest.MonkeyPatch) -> None:
    """DynamoDB of the diffs, on a server of this machine."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", dynamodb_server.endpoint)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """S3 with the bucket of the diffs, in this process."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        boto3.client("s3").create_bucket(Bucket="sessions")
        yield


def side(diff: str, sign: str) -> str:
    return "\n".join(line[2:] for line in diff.splitlines() if line.startswith(sign))


def test_each_diff_is_short() -> None:
    assert len(DIFFS) == len(NAMES)
    assert max(len(diff.splitlines()) for diff in DIFFS) <= 4


@pytest.mark.filterwarnings("ignore:.*experimental.*")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("sign", ["-", "+"])
def test_both_sides_of_each_diff_run(
    name: str, sign: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if name == "s3":
        request.getfixturevalue("bucket" if sign == "-" else "aws")
    monkeypatch.chdir(tmp_path)
    given: dict[str, Any] = {"Agent": Agent, "SnapshotSessionManager": SnapshotSessionManager}
    given["model"] = ScriptedModel(["はい"])
    exec(side(DIFFS[NAMES.index(name)], sign), given)
    agent = given["agent"]
    agent("こんにちは")
    assert len(agent.messages) == 2
    if name not in ("sliding", "summarizing", "auto"):
        exec(side(DIFFS[NAMES.index(name)], sign), given)
        assert same(given["agent"].messages, agent.messages)


@tool(context=True)
def ask(title: str, tool_context: ToolContext) -> str:
    """Ask.

    Args:
        title: Of what.
        tool_context: The call.
    """
    return str(tool_context.interrupt("sure", reason=title))


async def test_what_is_exported_goes_on_there_and_comes_back(tmp_path: Path) -> None:
    def asking(messages: Any) -> Any:
        last = messages[-1]["content"][0]
        return [tool_use("t1", "ask", title="Naruto")] if last.get("text") == "order it" else "ok"

    url, storage = f"sqlite:///{tmp_path}/a.sqlite3", LocalFileStorage(str(tmp_path / "left"))
    with MangaMemory.open(durable=url) as memory:
        asked: dict[str, Any] = {"user_id": "u", "session_id": "s", "max_tokens": 300, "callback_handler": None}
        agent = memory.agent(ScriptedModel(asking), tools=[ask], state={"basket": 1}, **asked)
        for number in range(20):
            await agent.invoke_async(f"question {number} " + "about volumes and editions " * 6)
        result = await agent.invoke_async("order it")
        assert result.stop_reason == "interrupt"
    with MangaMemory.open(durable=url) as memory:
        counts = await export_snapshots(memory, storage, [ConversationScope("u", "s"), "nobody"])
        assert counts == {"agents": 1, "orchestrators": 0}
    there = Agent(
        model=ScriptedModel(),
        tools=[ask],
        conversation_manager=SlidingWindowConversationManager(window_size=1_000),
        session_manager=SnapshotSessionManager(session_id="s", storage=storage),
        callback_handler=None,
    )
    assert [m["content"] for m in there.messages] == [m["content"] for m in agent.messages]
    assert there.state.get("basket") == 1
    answer = [{"interruptResponse": {"interruptId": result.interrupts[0].id, "response": "yes"}}]
    assert (await there.invoke_async(answer)).stop_reason == "end_turn"
    with MangaMemory.open(durable=f"sqlite:///{tmp_path}/b.sqlite3") as memory:
        left = SnapshotSessionManager(session_id="s", storage=storage)
        assert import_sessions(left, [("s", there.agent_id)], memory).counts["imported"] == 1
        back = Agent(model=ScriptedModel(), tools=[ask], session_manager=memory.session("s"), callback_handler=None)
        assert [m["content"] for m in back.messages] == [m["content"] for m in there.messages]


def test_a_graph_goes_too_and_the_command_writes_all_sessions_of_a_user(tmp_path: Path, capsys: Any) -> None:
    url = f"sqlite:///{tmp_path}/a.sqlite3"
    with MangaMemory.open(durable=url) as memory:
        memory.agent(ScriptedModel(), user_id="u", session_id="one", agent_id="librarian", callback_handler=None)("hello")
        builder = GraphBuilder()
        builder.add_node(Agent(model=ScriptedModel(), callback_handler=None), "node")
        builder.set_session_manager(memory.session(ConversationScope("u", "two")))
        builder.set_graph_id("graph")
        builder.set_max_node_executions(5)
        builder.build()("hello")
        memory.agent(ScriptedModel(), user_id="v", session_id="other", callback_handler=None)("not mine")
    assert run(["export", "u", "--snapshots", str(tmp_path / "out"), "--durable", url]) == 0
    assert "1 agents' sessions" in capsys.readouterr().err
    written = sorted(path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.json"))
    assert written == [
        "session/one/scopes/agent/librarian/snapshots/snapshot_latest.json",
        "session/two/scopes/multiAgent/graph/snapshots/snapshot_latest.json",
    ]
    assert json.loads((tmp_path / "out" / written[1]).read_text("utf-8"))["data"]["orchestrator_id"] == "graph"
