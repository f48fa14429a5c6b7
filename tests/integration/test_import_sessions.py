"""Import of sessions that Strands' own session managers have stored."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws
from strands import Agent, ToolContext, tool
from strands.agent.conversation_manager import (
    NullConversationManager,
    SlidingWindowConversationManager,
    SummarizingConversationManager,
)
from strands.session import (
    FileSessionManager,
    S3SessionManager,
    SessionManager,
    SnapshotSessionManager,
)
from strands.storage import InMemoryStorage, LocalFileStorage

from strands_manga_memory import ConversationScope, MangaMemory
from strands_manga_memory.conversation import ImportanceWeightedConversationManager
from strands_manga_memory.ops import SessionsReport, import_sessions
from strands_manga_memory.testing import ScriptedModel
from tests.support import run, stub_tool
from tests.unit.session.support import interrupt_answers, tool_use

Opener = Callable[[str], Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "there"


@pytest.fixture(params=["file", "snapshot", pytest.param("s3", marks=pytest.mark.long)])
def open_source(
    request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Opener]:
    """A function that opens the session manager of a session id, over one store of the kind."""
    if request.param == "file":
        yield lambda session_id: FileSessionManager(session_id, storage_dir=str(folder))
    elif request.param == "snapshot":
        storage = LocalFileStorage(str(folder))
        yield lambda session_id: SnapshotSessionManager(session_id, storage=storage)
    else:
        monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
        with mock_aws():
            boto3.client("s3", region_name="us-east-1").create_bucket(Bucket="sessions")
            yield lambda session_id: S3SessionManager(
                session_id, "sessions", prefix="logs/x", region_name="us-east-1"
            )


look = stub_tool("look", lambda what: f"{what}は3階です")


@tool(context=True)
def pay(amount: int, tool_context: ToolContext) -> str:
    """Pay, if a human agrees."""
    if tool_context.interrupt("approval", reason={"amount": amount}) == "yes":
        return f"paid {amount}"
    return "not paid"


def answer(messages: Any) -> Any:
    """Look before every third answer; summarize when asked to."""
    texts = [block["text"] for block in messages[-1]["content"] if "text" in block]
    number = sum(message["role"] == "user" for message in messages)
    if texts and number % 3 == 0:
        return [tool_use(f"t{len(messages)}", "look", what=texts[0])]
    return f"answer {len(messages)}"


MANAGERS: dict[str, Callable[[], Any]] = {
    "null": NullConversationManager,
    "sliding": lambda: SlidingWindowConversationManager(6),
    "summarizing": lambda: SummarizingConversationManager(
        summary_ratio=0.5, preserve_recent_messages=4
    ),
    "importance": lambda: ImportanceWeightedConversationManager(120),
}


def build(
    session: SessionManager | None,
    manager: str = "sliding",
    agent_id: str = "a",
    model: Any = None,
    **more: Any,
) -> Agent:
    return Agent(
        model=model or ScriptedModel(answer),
        agent_id=agent_id,
        tools=[look, pay],
        session_manager=session,
        conversation_manager=MANAGERS[manager](),
        **more,
    )


def talk(agent: Agent, turns: int = 8) -> Agent:
    agent.state.set("cart", {"items": [1, "日本"]})
    for number in range(turns):
        agent(
            [
                {"text": f"question {number}"},
                {"image": {"format": "png", "source": {"bytes": b"\x89\xff\x00"}}},
            ]
        )
        if number == 5 and isinstance(agent.conversation_manager, SummarizingConversationManager):
            agent.conversation_manager.reduce_context(agent)
            agent._session_manager.sync_agent(agent)
    return agent


def state_of(agent: Agent) -> Any:
    return (
        agent.messages,
        agent.state.get(),
        agent.conversation_manager.get_state(),
        agent._interrupt_state.to_dict(),
    )


def outcomes(report: SessionsReport) -> dict[tuple[str, str], str]:
    return {(one.session_id, one.agent_id): one.outcome for one in report.sessions}


@pytest.mark.parametrize(
    "manager",
    [pytest.param(name, marks=[pytest.mark.long] if name == "null" else []) for name in MANAGERS],
)
def test_imported_agent_has_the_messages_and_states_that_the_source_restores(
    open_source: Opener, manager: str, memory: MangaMemory
) -> None:
    """Managers of Strands need not be named."""
    talk(build(open_source("s1"), manager))
    expected = state_of(build(open_source("s1"), manager))
    named = MANAGERS[manager] if manager == "importance" else None
    report = import_sessions(open_source("s1"), [("s1", "a")], memory, conversation_manager=named)
    assert report.complete, report
    [done] = report.sessions
    assert (done.outcome, done.window) == ("imported", len(expected[0]))
    here = build(memory.session("s1"), manager)
    restored = state_of(here)
    assert restored[:2] == expected[:2]
    assert {**restored[2], "layout": None} == {
        **expected[2],
        "layout": None,
    }  # ours needs none under our session manager
    assert restored[3] == expected[3]


def test_all_agents_are_imported_under_their_ids(open_source: Opener, memory: MangaMemory) -> None:
    ids = [("s1", "a"), ("s1", "b:msg:3"), ("s#:[1]%2F", "日本 *?"), ("session", "a")]
    expected = {}
    for session_id, agent_id in ids:
        talk(build(open_source(session_id), agent_id=agent_id), turns=2 + len(expected))
        expected[session_id, agent_id] = state_of(build(open_source(session_id), agent_id=agent_id))
    for session_id in {session for session, _ in ids}:
        report = import_sessions(
            open_source(session_id), [pair for pair in ids if pair[0] == session_id], memory
        )
        assert set(outcomes(report).values()) == {"imported"}, report
    for (session_id, agent_id), state in expected.items():
        assert state_of(build(memory.session(session_id), agent_id=agent_id)) == state


def test_session_that_exists_is_left_as_it_is(open_source: Opener, memory: MangaMemory) -> None:
    talk(build(open_source("s1")))
    found = outcomes(import_sessions(open_source("s1"), [("s1", "a")], memory))
    assert found == {("s1", "a"): "imported"}
    here = build(memory.session("s1"))
    here("and now?")
    here._session_manager.flush()
    report = import_sessions(open_source("s1"), [("s1", "a")], memory)
    assert outcomes(report) == {("s1", "a"): "exists"}
    assert report.counts == {"exists": 1, "messages": 0}
    assert build(memory.session("s1")).messages == here.messages


def test_no_deleted_session_comes_back(open_source: Opener, memory: MangaMemory) -> None:
    talk(build(open_source("s1")), turns=1)
    import_sessions(open_source("s1"), [("s1", "a")], memory)
    memory.session("s1").delete_session()
    found = outcomes(import_sessions(open_source("s1"), [("s1", "a")], memory))
    assert found == {("s1", "a"): "ended"}
    assert not memory.session("s1").exists("a")


def test_missing_ids_leave_the_source_unchanged(folder: Path, memory: MangaMemory) -> None:
    talk(build(FileSessionManager("s1", storage_dir=str(folder))), turns=1)
    before = sorted(folder.rglob("*"))
    wanted = [("s1", "nobody"), ("other", "a")]
    report = import_sessions(FileSessionManager("s1", storage_dir=str(folder)), wanted, memory)
    assert outcomes(report) == dict.fromkeys(wanted, "missing")
    assert sorted(folder.rglob("*")) == before
    snapshots = SnapshotSessionManager("s1", storage=InMemoryStorage())
    assert outcomes(import_sessions(snapshots, [("s1", "a")], memory)) == {("s1", "a"): "missing"}


def damage_message(folder: Path) -> None:
    (folder / "session_s1/agents/agent_a/messages/message_1.json").write_text('{"message": {"ro')


def damage_agent(folder: Path) -> None:
    (folder / "session_s1/agents/agent_a/agent.json").write_text("{}")


def damage_role(folder: Path) -> None:
    file = folder / "session_s1/agents/agent_a/messages/message_1.json"
    record = json.loads(file.read_text())
    del record["message"]["role"]
    file.write_text(json.dumps(record))


def lose_messages(folder: Path) -> None:
    head = folder / "session_s1/agents/agent_a/agent.json"
    agent = json.loads(head.read_text())
    agent["conversation_manager_state"]["removed_message_count"] = 450
    head.write_text(json.dumps(agent))
    for file in (folder / "session_s1/agents/agent_a/messages").iterdir():
        file.unlink()


@pytest.mark.parametrize("damage", [damage_message, damage_agent, damage_role, lose_messages])
def test_damaged_session_is_named_and_the_others_are_imported(
    damage: Callable[[Path], None], folder: Path, memory: MangaMemory
) -> None:
    for session_id in ("s1", "s2"):
        talk(build(FileSessionManager(session_id, storage_dir=str(folder))), turns=2)
    damage(folder)
    report = import_sessions(
        FileSessionManager("s2", storage_dir=str(folder)), [("s1", "a"), ("s2", "a")], memory
    )
    assert outcomes(report) == {("s1", "a"): "failed", ("s2", "a"): "imported"}
    assert not report.complete
    assert "session 's1' of agent 'a' cannot be read" in report.sessions[0].error
    assert not memory.session("s1").exists("a")


def test_damaged_snapshot_is_named(folder: Path, memory: MangaMemory) -> None:
    manager = SnapshotSessionManager("s1", storage=LocalFileStorage(str(folder)))
    talk(build(manager), turns=1)
    [file] = folder.rglob("snapshot_latest.json")
    file.write_bytes(file.read_bytes()[:-20])
    report = import_sessions(manager, [("s1", "a")], memory)
    assert outcomes(report) == {("s1", "a"): "failed"}
    assert "session 's1' of agent 'a' cannot be read" in report.sessions[0].error


def test_log_is_whole_and_keeps_the_time_of_each_message(folder: Path, memory: MangaMemory) -> None:
    talk(build(FileSessionManager("s1", storage_dir=str(folder))), turns=12)
    files = sorted(
        (json.loads(file.read_text()) for file in folder.glob("*/agents/agent_a/messages/*.json")),
        key=lambda one: one["message_id"],
    )
    import_sessions(FileSessionManager("s1", storage_dir=str(folder)), [("s1", "a")], memory)
    records = list(memory.session("s1").records("a"))
    found = [record["message"]["tracking_id"] for record in records]
    assert found == [one["message"]["tracking_id"] for one in files]
    assert records[0]["message"]["content"][1]["image"]["source"]["bytes"] == b"\x89\xff\x00"
    times = [record["at"] for record in records]
    assert times == sorted(times)
    assert memory.session("s1").metadata("a")["created"] <= times[0]
    assert memory.session("s1").metadata("a")["turn_count"] == 12


def test_messages_without_ids_get_the_same_at_each_import(folder: Path, tmp_path: Path) -> None:
    """Early releases of Strands stored none."""
    talk(build(FileSessionManager("s1", storage_dir=str(folder))))
    for file in folder.glob("*/agents/agent_a/messages/*.json"):
        record = json.loads(file.read_text())
        del record["message"]["tracking_id"]
        file.write_text(json.dumps(record))
    expected = build(FileSessionManager("s1", storage_dir=str(folder))).messages
    logs = []
    for name in ("one", "two"):
        with MangaMemory.open(durable=f"sqlite:///{tmp_path}/{name}.sqlite3") as memory:
            import_sessions(
                FileSessionManager("s1", storage_dir=str(folder)), [("s1", "a")], memory
            )
            messages = build(memory.session("s1")).messages
            found = [(m["role"], m["content"]) for m in messages]
            assert found == [(m["role"], m["content"]) for m in expected]
            logs.append(list(memory.session("s1").history("a")))
    assert logs[0] == logs[1]
    assert len({message["tracking_id"] for message in logs[0]}) == len(logs[0])


def test_pending_interrupt_is_answered_later(open_source: Opener, memory: MangaMemory) -> None:
    live = build(open_source("s1"), model=ScriptedModel([[tool_use("p", "pay", amount=7)]]))
    result = live("buy it")
    assert result.stop_reason == "interrupt"
    import_sessions(open_source("s1"), [("s1", "a")], memory)
    here = build(memory.session("s1"), model=ScriptedModel(["thank you"]))
    assert here.messages == live.messages
    assert here(interrupt_answers(result)).stop_reason == "end_turn"
    assert here.messages[2]["content"][0]["toolResult"]["content"] == [{"text": "paid 7"}]


def test_redacted_message_stays_redacted(folder: Path, memory: MangaMemory) -> None:
    there = FileSessionManager("s1", storage_dir=str(folder))
    live = build(there)
    live("the password is XYZZY")
    redacted: Any = {**live.messages[-1], "content": [{"text": "[redacted]"}]}
    there.redact_latest_message(redacted, live)
    import_sessions(there, [("s1", "a")], memory)
    assert list(memory.session("s1").history("a"))[-1]["content"] == [{"text": "[redacted]"}]
    assert build(memory.session("s1")).messages[-1]["content"] == [{"text": "[redacted]"}]


def test_sessions_are_given_to_users(folder: Path, memory: MangaMemory) -> None:
    for session_id in ("hanako-s1", "taro-s1"):
        talk(build(FileSessionManager(session_id, storage_dir=str(folder))), turns=1)

    def scope_of(session_id: str) -> ConversationScope:
        user, _, session = session_id.partition("-")
        return ConversationScope(user, session, tenant="shop")

    ids = [("hanako-s1", "a"), ("taro-s1", "a")]
    manager = FileSessionManager("taro-s1", storage_dir=str(folder))
    assert import_sessions(manager, ids, memory, scope_of=scope_of).counts == {
        "imported": 2,
        "messages": 4,
    }
    found = len(list(memory.session(ConversationScope("hanako", "s1", tenant="shop")).history("a")))
    assert found == 2


def test_other_managers_and_sessions_of_a_snapshot_are_refused(memory: MangaMemory) -> None:
    with pytest.raises(
        ValueError, match=r"^manager must be RepositorySessionManager or .*, got .sessions"
    ):
        import_sessions("sessions", [("s1", "a")], memory)
    with pytest.raises(ValueError, match="reads session 's1', not 's2'"):
        import_sessions(
            SnapshotSessionManager("s1", storage=InMemoryStorage()), [("s2", "a")], memory
        )


def test_export_keeps_times_media_history_and_states(tmp_path: Path, capsys: Any) -> None:
    urls = [f"sqlite:///{tmp_path}/{name}.sqlite3" for name in ("one", "two")]
    one, two = (MangaMemory.open(durable=url) for url in urls)
    scope = ConversationScope("u1", "s1", "a")
    live = talk(build(one.session(scope), "sliding"))
    live._session_manager.set_metadata("a", locale="ja")
    one.session(scope).flush()
    expected, log = state_of(live), list(one.session(scope).records("a"))
    one.close()
    file = tmp_path / "u1.json"
    assert run(["export", "u1", "--durable", urls[0], "--out", str(file)]) == 0
    assert run(["import", str(file), "--durable", urls[1], "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["messages"] > 0
    assert state_of(build(two.session(scope), "sliding")) == expected
    brought = list(two.session(scope).records("a"))
    found = [(record["message"], record["at"], record["turn"]) for record in brought]
    assert found == [(record["message"], record["at"], record["turn"]) for record in log]
    assert two.session(scope).metadata("a")["locale"] == "ja"
    two.close()
    assert os.path.getsize(file) > 0
