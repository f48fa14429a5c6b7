"""Sessions of other session managers, imported: an agent of the same ids goes on as it would have gone on with them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import boto3
import pytest
import redis
from strands import Agent, ToolContext, tool
from strands.agent.conversation_manager import (
    NullConversationManager,
    SlidingWindowConversationManager,
    SummarizingConversationManager,
)
from strands.hooks import BeforeNodeCallEvent
from strands.multiagent import GraphBuilder
from strands.multiagent.base import Status
from strands.session import FileSessionManager, S3SessionManager, SessionManager, SnapshotSessionManager
from strands.storage import LocalFileStorage, S3Storage

from strands_manga_memory import (
    ConversationScope,
    ImportanceWeightedConversationManager,
    MangaMemory,
    SQLiteTable,
    StoreUnavailableError,
    TieredSessionManager,
    open_hot_store,
    open_table,
)
from strands_manga_memory.cli.app import run
from strands_manga_memory.exceptions import StoreRefusedError
from strands_manga_memory.ops.importing import (
    Folder,
    MessageFilesSource,
    RedisSource,
    SessionSource,
    SessionsReport,
    SnapshotSource,
    ValkeySource,
    import_sessions,
    open_source,
)
from strands_manga_memory.testing import FaultyTable, ScriptedModel
from tests import servers
from tests.integration import foreign_layouts

IDS = [("s1", "a"), ("s1", "b:msg:3"), ("s#:[1]%2F", "日本 *?"), ("session", "a")]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[MangaMemory]:
    made = MangaMemory.open(durable=f"sqlite:///{tmp_path}/here.sqlite3")
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "there"


@tool
def look(what: str) -> str:
    """Look for something.

    Args:
        what: For what.
    """
    return f"{what}は3階です"


@tool(context=True)
def pay(amount: int, tool_context: ToolContext) -> str:
    """Pay, if a human agrees.

    Args:
        amount: How much.
    """
    return f"paid {amount}" if tool_context.interrupt("approval", reason={"amount": amount}) == "yes" else "not paid"


def answer(messages: Any) -> Any:
    """Look before every third answer; summarize when asked to."""
    texts = [block["text"] for block in messages[-1]["content"] if "text" in block]
    number = sum(message["role"] == "user" for message in messages)
    if texts and number % 3 == 0:
        return [{"toolUse": {"toolUseId": f"t{len(messages)}", "name": "look", "input": {"what": texts[0]}}}]
    return f"answer {len(messages)}"


MANAGERS: dict[str, Callable[[], Any]] = {
    "null": NullConversationManager,
    "sliding": lambda: SlidingWindowConversationManager(window_size=6),
    "pinned": lambda: SlidingWindowConversationManager(window_size=6, pin_first=2),
    "summarizing": lambda: SummarizingConversationManager(summary_ratio=0.5, preserve_recent_messages=4),
    "importance": lambda: ImportanceWeightedConversationManager(120),
}


def build(
    session: SessionManager | None, manager: str = "sliding", agent_id: str = "a", model: Any = None, **more: Any
) -> Agent:
    return Agent(
        model=model or ScriptedModel(answer),
        agent_id=agent_id,
        tools=[look, pay],
        callback_handler=None,
        session_manager=session,
        conversation_manager=MANAGERS[manager](),
        **more,
    )


def talk(agent: Agent, turns: int = 8) -> Agent:
    agent.state.set("cart", {"items": [1, "日本"]})
    for number in range(turns):
        agent([{"text": f"question {number}"}, {"image": {"format": "png", "source": {"bytes": b"\x89\xff\x00"}}}])
        if number == 5 and isinstance(agent.conversation_manager, SummarizingConversationManager):
            agent.conversation_manager.reduce_context(agent)
            agent._session_manager.sync_agent(agent)
    return agent


def state_of(agent: Agent) -> Any:
    return agent.messages, agent.state.get(), agent.conversation_manager.get_state(), agent._interrupt_state.to_dict()


def outcomes(report: SessionsReport) -> dict[tuple[str, str], str]:
    return {(one.session_id, one.id): one.outcome for one in report.conversations}


def from_files(folder: Path) -> SessionSource:
    return MessageFilesSource(Folder(folder))


def imports(source: SessionSource, memory: MangaMemory, **more: Any) -> SessionsReport:
    report = import_sessions(source, memory, **more)
    assert report.complete, [one.notes for one in report.conversations]
    return report


# Strands' own session managers


@pytest.mark.parametrize("manager", MANAGERS)
@pytest.mark.parametrize("kind", ["file", "snapshot"])
def test_an_agent_has_the_messages_and_states_it_would_have_had(
    kind: str, manager: str, folder: Path, memory: MangaMemory
) -> None:
    def there() -> SessionManager:
        storage = LocalFileStorage(str(folder))
        return (
            FileSessionManager("s1", storage_dir=str(folder))
            if kind == "file"
            else SnapshotSessionManager("s1", storage=storage)
        )

    talk(build(there(), manager))
    expected = state_of(build(there(), manager))
    source = open_source(kind, str(folder))
    [dry] = imports(source, memory, dry_run=True).conversations
    assert (dry.outcome, dry.window) == ("new", len(expected[0]))
    assert not memory.session("s1").exists("a")
    [done] = imports(source, memory).conversations
    assert (done.outcome, done.messages, done.window) == ("imported", dry.messages, dry.window)
    here = build(memory.session("s1"), manager)
    restored = state_of(here)
    assert restored[:2] == expected[:2]
    assert {**restored[2], "layout": None} == {**expected[2], "layout": None}  # ours needs none under our session manager
    assert restored[3] == expected[3]
    before = len(here.messages)
    here("and now?")
    assert len(here.messages) != before or here.messages != expected[0]
    here._session_manager.flush()
    went_on = here.messages
    assert outcomes(imports(source, memory)) == {("s1", "a"): "exists"}
    assert build(memory.session("s1"), manager).messages == went_on


def test_the_log_is_whole_and_knows_when_each_message_was_said(folder: Path, memory: MangaMemory) -> None:
    talk(build(FileSessionManager("s1", storage_dir=str(folder))), turns=12)
    files = sorted(
        (json.loads(file.read_text()) for file in folder.glob("*/agents/agent_a/messages/*.json")),
        key=lambda one: one["message_id"],
    )
    imports(from_files(folder), memory)
    records = list(memory.session("s1").records("a"))
    assert [record["message"]["tracking_id"] for record in records] == [one["message"]["tracking_id"] for one in files]
    assert records[0]["message"]["content"][1]["image"]["source"]["bytes"] == b"\x89\xff\x00"
    times = [record["at"] for record in records]
    assert times == sorted(times)
    assert memory.session("s1").metadata("a")["created"] <= times[0]
    assert memory.session("s1").metadata("a")["turn_count"] == 12


def test_a_long_log_is_stored_in_segments_that_a_restore_can_leave_alone(folder: Path, memory: MangaMemory) -> None:
    talk(build(FileSessionManager("s1", storage_dir=str(folder))), turns=1)
    messages = folder / "session_s1/agents/agent_a/messages"
    one, other = (json.loads((messages / f"message_{number}.json").read_text()) for number in (0, 1))
    for number in range(2, 460):
        record = {**(other if number % 2 else one), "message_id": number}
        record["message"] = {**record["message"], "tracking_id": f"id-{number}"}
        (messages / f"message_{number}.json").write_text(json.dumps(record))
    head = folder / "session_s1/agents/agent_a/agent.json"
    agent = json.loads(head.read_text())
    agent["conversation_manager_state"]["removed_message_count"] = 450
    head.write_text(json.dumps(agent))
    [done] = imports(from_files(folder), memory).conversations
    assert (done.messages, done.window) == (460, 10)
    segments = [row for row in memory.durable.query("s1") if "#LOG#" in str(row["sk"])]
    assert [int(str(row["sk"])[-8:]) for row in segments] == [1, 101, 201, 301, 401]
    assert len(list(memory.session("s1").history("a"))) == 460
    here = build(memory.session("s1"))
    assert [message["tracking_id"] for message in here.messages] == [f"id-{number}" for number in range(450, 460)]
    here("go on")
    here._session_manager.flush()
    assert len(list(memory.session("s1").history("a"))) > 460


def test_messages_of_earlier_releases_have_no_ids_and_get_the_same_at_each_try(folder: Path, tmp_path: Path) -> None:
    talk(build(FileSessionManager("s1", storage_dir=str(folder))))
    for file in folder.glob("*/agents/agent_a/messages/*.json"):
        record = json.loads(file.read_text())
        del record["message"]["tracking_id"]
        file.write_text(json.dumps(record))
    expected = build(FileSessionManager("s1", storage_dir=str(folder))).messages
    logs = []
    for name in ("one", "two"):
        memory = MangaMemory.open(durable=f"sqlite:///{tmp_path}/{name}.sqlite3")
        imports(from_files(folder), memory)
        messages = build(memory.session("s1")).messages
        assert [(m["role"], m["content"]) for m in messages] == [(m["role"], m["content"]) for m in expected]
        logs.append(list(memory.session("s1").history("a")))
        memory.close()
    assert logs[0] == logs[1]
    assert len({message["tracking_id"] for message in logs[0]}) == len(logs[0])


@pytest.mark.parametrize("kind", ["file", "snapshot"])
def test_a_pending_question_can_be_answered_here(kind: str, folder: Path, memory: MangaMemory) -> None:
    storage = LocalFileStorage(str(folder))
    there = (
        FileSessionManager("s1", storage_dir=str(folder)) if kind == "file" else SnapshotSessionManager("s1", storage=storage)
    )
    live = build(there, model=ScriptedModel([[{"toolUse": {"toolUseId": "p", "name": "pay", "input": {"amount": 7}}}]]))
    result = live("buy it")
    assert result.stop_reason == "interrupt"
    imports(open_source(kind, str(folder)), memory)
    here = build(memory.session("s1"), model=ScriptedModel(["thank you"]))
    assert here.messages == live.messages
    answers: Any = [{"interruptResponse": {"interruptId": one.id, "response": "yes"}} for one in result.interrupts]
    assert here(answers).stop_reason == "end_turn"
    assert here.messages[2]["content"][0]["toolResult"]["content"] == [{"text": "paid 7"}]


def test_what_a_guardrail_redacted_stays_redacted(folder: Path, memory: MangaMemory) -> None:
    there = FileSessionManager("s1", storage_dir=str(folder))
    live = build(there)
    live("the password is XYZZY")
    redacted: Any = {**live.messages[-1], "content": [{"text": "[redacted]"}]}
    there.redact_latest_message(redacted, live)
    imports(from_files(folder), memory)
    assert list(memory.session("s1").history("a"))[-1]["content"] == [{"text": "[redacted]"}]
    assert build(memory.session("s1")).messages[-1]["content"] == [{"text": "[redacted]"}]


def test_a_broken_history_is_mended_as_strands_mends_it(folder: Path, memory: MangaMemory) -> None:
    talk(build(FileSessionManager("s1", storage_dir=str(folder)), "null"))
    messages = folder / "session_s1/agents/agent_a/messages"
    results = [file for file in sorted(messages.iterdir()) if '"toolResult"' in file.read_text()]
    assert len(results) >= 2
    results[0].unlink()
    expected = build(FileSessionManager("s1", storage_dir=str(folder)), "null").messages
    [done] = imports(from_files(folder), memory).conversations
    assert "1 message numbers below" in done.notes[0]
    ids = [message.get("tracking_id") for message in expected]
    restored = build(memory.session("s1"), "null").messages
    assert [(m["role"], m["content"]) for m in restored] == [(m["role"], m["content"]) for m in expected]
    assert len(ids) == len(restored)


@pytest.mark.parametrize("kind", ["file", "snapshot"])
def test_a_graph_that_a_crash_cut_off_goes_on_here(kind: str, folder: Path, memory: MangaMemory) -> None:
    """What is stored when its last node begins is what would be there had the process died then."""

    def graph(session: SessionManager) -> Any:
        builder = GraphBuilder()
        for name in ("first", "second", "third"):
            builder.add_node(Agent(model=ScriptedModel([f"{name} is done"]), agent_id=name, callback_handler=None), name)
        builder.add_edge("first", "second")
        builder.add_edge("second", "third")
        builder.set_graph_id("tour")
        builder.set_execution_timeout(60)
        builder.set_session_manager(session)
        return builder.build()

    storage = LocalFileStorage(str(folder))
    there = (
        FileSessionManager("g1", storage_dir=str(folder)) if kind == "file" else SnapshotSessionManager("g1", storage=storage)
    )
    live, then = graph(there), folder.with_name("then")

    def look(event: BeforeNodeCallEvent) -> None:
        if event.node_id == "third":
            shutil.copytree(folder, then)

    live.hooks.add_callback(BeforeNodeCallEvent, look)
    live("go around")
    report = imports(open_source(kind, str(then)), memory)
    assert [(one.kind, one.id, one.outcome) for one in report.conversations] == [("orchestrator", "tour", "imported")]
    again = graph(memory.session("g1"))
    assert again("go around").status == Status.COMPLETED
    assert [len(again.nodes[name].executor.model.requests) for name in ("first", "second", "third")] == [0, 0, 1]
    assert outcomes(imports(open_source(kind, str(then)), memory)) == {("g1", "tour"): "exists"}


def test_what_a_snapshot_cannot_bring_is_said(folder: Path, memory: MangaMemory) -> None:
    there = SnapshotSessionManager("s1", storage=LocalFileStorage(str(folder)), snapshot_trigger=lambda **_: True)
    talk(build(there, system_prompt="OLD"))
    [done] = imports(SnapshotSource(Folder(folder)), memory).conversations
    said = " | ".join(done.notes)
    for what in ("when each message was said", "had left the history", "system prompt stays", "8 immutable snapshots are left"):
        assert what in said
    assert build(memory.session("s1"), system_prompt="NEW").system_prompt == "NEW"


# Damage, crashes, and what is here already


def test_a_damaged_conversation_is_reported_and_the_others_come(folder: Path, memory: MangaMemory) -> None:
    for number in range(8):
        talk(build(FileSessionManager(f"s{number}", storage_dir=str(folder))), turns=2)
    talk(build(FileSessionManager("s0", storage_dir=str(folder)), agent_id="whole"), turns=2)

    def file(number: int, name: str) -> Path:
        return folder / f"session_s{number}/agents/agent_a/{name}"

    whole = file(0, "messages/message_1.json").read_text()
    file(0, "messages/message_1.json").write_text(whole[:40])
    file(1, "agent.json").unlink()
    file(2, "agent.json").write_text("[]")
    record = json.loads(file(3, "messages/message_0.json").read_text())
    record["message"]["content"][1]["image"]["source"]["bytes"]["data"] = "%%%"
    file(3, "messages/message_0.json").write_text(json.dumps(record))
    record["message"]["role"] = "system"
    file(4, "messages/message_0.json").write_text(json.dumps(record))
    secret = folder.parent / "secret.json"
    secret.write_text(whole)
    file(5, "messages/message_1.json").unlink()
    file(5, "messages/message_1.json").symlink_to(secret)
    copied = file(7, "messages/message_1.json")
    copied.with_name("message_9.json").write_text(copied.read_text())
    agent = json.loads(file(6, "agent.json").read_text())
    file(6, "agent.json").write_text(json.dumps({**agent, "agent_id": "b"}))
    report = import_sessions(from_files(folder), memory)
    assert not report.complete
    failed = {(f"s{number}", "a") for number in range(8)}
    assert {key for key, outcome in outcomes(report).items() if outcome == "failed"} == failed
    assert {key for key, outcome in outcomes(report).items() if outcome == "imported"} == {("s0", "whole")}
    notes = {one.session_id: one.notes[-1] for one in report.conversations if one.outcome == "failed"}
    assert "messages/message_1.json" in notes["s0"]
    assert "agent.json is missing; 4 messages are left" in notes["s1"]
    assert "it is a link" in notes["s5"]
    assert "message_9.json' is damaged: its message_id is 1" in notes["s7"]
    assert not any("XYZZY" in note or "question" in note for note in notes.values())
    assert all(not memory.session(session).exists(agent) for session, agent in failed)
    file(0, "messages/message_1.json").write_text(whole)
    assert outcomes(import_sessions(from_files(folder), memory))["s0", "a"] == "imported"


def test_a_session_record_that_nobody_needs_keeps_nothing_out(folder: Path, memory: MangaMemory) -> None:
    for session, text in (("s0", "{"), ("s1", '{"session_id": "s2"}'), ("s2", None)):
        talk(build(FileSessionManager(session, storage_dir=str(folder))), turns=1)
        root = folder / f"session_{session}/session.json"
        root.unlink() if text is None else root.write_text(text)
    notes = {one.session_id: one.notes for one in imports(from_files(folder), memory).conversations}
    for session, what in (("s0", "session.json' is damaged"), ("s1", "of another session"), ("s2", "missing in the source")):
        assert what in notes[session][-1]
        assert build(memory.session(session)).messages


def test_a_state_without_messages_is_taken_over(folder: Path, memory: MangaMemory) -> None:
    there = FileSessionManager("s1", storage_dir=str(folder))
    silent = build(there)
    silent.state.set("cart", [1])
    there.sync_agent(silent)
    assert outcomes(imports(from_files(folder), memory)) == {("s1", "a"): "imported"}
    here = build(memory.session("s1"))
    assert here.state.get("cart") == [1]
    here("hello")
    assert outcomes(imports(from_files(folder), memory)) == {("s1", "a"): "exists"}


def test_a_log_that_is_gone_is_not_taken_for_an_empty_one(folder: Path, memory: MangaMemory) -> None:
    talk(build(FileSessionManager("s1", storage_dir=str(folder))), turns=6)
    shutil.rmtree(folder / "session_s1/agents/agent_a/messages")
    [failed] = import_sessions(from_files(folder), memory).conversations
    assert failed.outcome == "failed"
    assert "messages have left its history, and none is in the source" in failed.notes[-1]


def test_a_damaged_snapshot_is_reported(folder: Path, memory: MangaMemory) -> None:
    for number in range(4):
        talk(build(SnapshotSessionManager(f"s{number}", storage=LocalFileStorage(str(folder)))), turns=2)
    files = [folder / f"session/s{number}/scopes/agent/a/snapshots/snapshot_latest.json" for number in range(4)]
    files[0].write_bytes(files[0].read_bytes()[:-30])
    files[1].write_text(json.dumps({**json.loads(files[1].read_text()), "schema_version": "2.0"}))
    known = json.loads(files[2].read_text())
    known["data"]["messages"] = {}
    files[2].write_text(json.dumps(known))
    report = import_sessions(SnapshotSource(Folder(folder)), memory)
    assert [one.outcome for one in report.conversations] == ["failed", "failed", "failed", "imported"]
    assert "Unsupported snapshot schema version" in report.conversations[1].notes[-1]


def test_what_was_deleted_here_does_not_come_back(folder: Path, memory: MangaMemory) -> None:
    talk(build(FileSessionManager("s1", storage_dir=str(folder))))
    imports(from_files(folder), memory)
    memory.session("s1").delete_session()
    assert outcomes(imports(from_files(folder), memory)) == {("s1", "a"): "ended"}
    assert build(memory.session("s1")).messages == []


@pytest.mark.parametrize("is_stored", [True, False])
@pytest.mark.parametrize("puts", range(4))
def test_an_import_that_is_cut_off_has_stored_all_of_a_conversation_or_nothing(
    puts: int, is_stored: bool, folder: Path, tmp_path: Path
) -> None:
    """The puts are the segment and the head of each of two conversations; of the last one the answer or the put is lost."""
    for session in ("s1", "s2"):
        talk(build(FileSessionManager(session, storage_dir=str(folder))))
    wanted = {session: build(FileSessionManager(session, storage_dir=str(folder))).messages for session in ("s1", "s2")}
    table = SQLiteTable(tmp_path / "cut.sqlite3")
    table.create_if_missing()
    cut: Any = FaultyTable(table)
    count = iter(range(1000))

    def put(*args: Any, **more: Any) -> bool:
        number = next(count)
        done = (number < puts or (is_stored and number == puts)) and table.put(*args, **more)
        if number >= puts:
            raise StoreUnavailableError("cut off")
        return done

    cut.put = put
    memory = MangaMemory.open(durable=cut, create_tables=False)
    # Of the very last put only the answer was lost: a look at the table finds everything there.
    with nullcontext() if puts == 3 and is_stored else pytest.raises(StoreUnavailableError):
        import_sessions(from_files(folder), memory)
    stored = [session for session in wanted if TieredSessionManager(session, durable=table).exists("a")]
    assert stored == [session for session, head in (("s1", 1), ("s2", 3)) if puts > head or (puts == head and is_stored)]
    imports(from_files(folder), MangaMemory(hot=memory.hot, durable=table))
    for session, messages in wanted.items():
        again = TieredSessionManager(session, durable=table)
        assert build(again).messages == messages
        assert len(list(again.history("a"))) == len(list(folder.glob(f"session_{session}/agents/agent_a/messages/*")))
    del cut.put  # so that what is tried again is heard of
    memory.close()


def test_nothing_was_said_or_nobody_asked_for_it(folder: Path, memory: MangaMemory) -> None:
    build(FileSessionManager("empty", storage_dir=str(folder)))
    talk(build(FileSessionManager("other", storage_dir=str(folder))))
    talk(build(FileSessionManager("u1_s", storage_dir=str(folder))))
    report = imports(
        from_files(folder), memory, scope_of=lambda id_: None if id_ == "other" else ConversationScope("u1", id_, tenant="t")
    )
    assert outcomes(report) == {("empty", "a"): "empty", ("other", "a"): "skipped", ("u1_s", "a"): "imported"}
    kwargs = memory.agent_kwargs(user_id="u1", session_id="u1_s", agent_id="a", tenant="t")
    assert Agent(model=ScriptedModel(), callback_handler=None, **kwargs).messages
    assert [one["session_id"] for one in memory.export_user("u1", tenant="t")["sessions"]] == ["u1_s"]


def test_a_hot_conversation_is_not_overwritten(
    valkey_server: servers.Valkey, folder: Path, tmp_path: Path, unique: str
) -> None:
    """One that nobody has flushed yet, so that only the hot tier knows of it."""
    talk(build(FileSessionManager(unique, storage_dir=str(folder))))
    memory = MangaMemory.open(hot=valkey_server.url, durable=f"sqlite:///{tmp_path}/hot.sqlite3", flush_every=100)
    live = build(memory.session(unique))
    live("I was here first")
    assert outcomes(imports(from_files(folder), memory)) == {(unique, "a"): "exists"}
    assert build(memory.session(unique)).messages == live.messages
    memory.close()


def test_a_manager_without_a_durable_tier_takes_it_too(folder: Path, valkey_server: servers.Valkey, unique: str) -> None:
    live = talk(build(FileSessionManager("s1", storage_dir=str(folder))))
    [found] = from_files(folder).conversations()
    transferred = found.read().transferred
    assert transferred is not None
    manager = TieredSessionManager(unique, hot=open_hot_store(valkey_server.url))
    assert [manager.transfer(transferred, "a", dry_run=dry) for dry in (True, False, False)] == ["new", "new", "exists"]
    here = build(TieredSessionManager(unique, hot=open_hot_store(valkey_server.url)))
    assert here.messages == live.messages
    with pytest.raises(ValueError, match="agent of this session manager"):
        here._session_manager.transfer(transferred, "a")


def test_nothing_is_imported_while_a_tier_that_may_know_the_conversation_is_down(folder: Path, tmp_path: Path) -> None:
    talk(build(FileSessionManager("s1", storage_dir=str(folder))), turns=1)
    down = f"redis://127.0.0.1:{servers.free_port()}/0"
    memory = MangaMemory.open(hot=down, durable=f"sqlite:///{tmp_path}/down.sqlite3")
    with pytest.raises(StoreUnavailableError):
        import_sessions(from_files(folder), memory)
    assert not TieredSessionManager("s1", durable=memory.durable).exists("a")
    memory.close()


# Other packages


def talked(folder: Path) -> dict[tuple[str, str], Any]:
    """Hold conversations with awkward ids under ``FileSessionManager``; return what agents restored from it have."""
    for session, agent_id in IDS:
        talk(build(FileSessionManager(session, storage_dir=str(folder)), agent_id=agent_id))
    return {
        (session, agent_id): state_of(build(FileSessionManager(session, storage_dir=str(folder)), agent_id=agent_id))
        for session, agent_id in IDS
    }


def check(source: SessionSource, memory: MangaMemory, expected: dict[tuple[str, str], Any]) -> None:
    assert outcomes(imports(source, memory)) == dict.fromkeys(expected, "imported")
    for (session, agent_id), state in expected.items():
        assert state_of(build(memory.session(session), agent_id=agent_id)) == state
    assert set(outcomes(imports(source, memory)).values()) == {"exists"}


def test_sessions_of_the_redis_package(valkey_server: servers.Valkey, folder: Path, memory: MangaMemory, unique: str) -> None:
    """Layout of strands-redis-session-manager 0.1.0, as measured by running it."""
    expected = talked(folder)
    with valkey_server.client() as client:
        foreign_layouts.to_redis(folder, client, namespace=unique)
        foreign_layouts.to_redis(folder, client, namespace=f"{unique}:below")
        check(open_source("redis", f"{valkey_server.url}?namespace={unique}"), memory, expected)


def test_redis_sessions_whose_keys_have_expired_in_part(
    valkey_server: servers.Valkey, folder: Path, memory: MangaMemory, unique: str
) -> None:
    for session in ("gone", "root", "index", "head", "all", "text"):
        talk(build(FileSessionManager(session, storage_dir=str(folder)), "null"), turns=3)
    with valkey_server.client() as client:
        foreign_layouts.to_redis(folder, client, namespace=unique)
        client.delete(f"{unique}:gone:agent:a:msg:0", f"{unique}:gone:agent:a:msg:1")
        client.delete(f"{unique}:root:session", f"{unique}:index:agent:a:msgs", f"{unique}:head:agent:a")
        client.delete(*client.keys(f"{unique}:all:agent:a:msg:*"))
        client.set(f"{unique}:text:agent:a", "no JSON")
        client.set(f"{unique}:moved:agent:b", client.get(f"{unique}:gone:agent:a"))
        report = import_sessions(RedisSource(client, unique), memory)
    found = {one.session_id: one for one in report.conversations}
    assert found["gone"].outcome == found["root"].outcome == found["index"].outcome == "imported"
    assert "2 messages that the source lists are gone there" in found["gone"].notes
    assert found["root"].notes == ("its session's record is gone in the source",)
    assert found["index"].messages == len(list(folder.glob("session_index/agents/agent_a/messages/*")))
    assert (found["head"].outcome, found["all"].outcome) == ("failed", "failed")
    assert "its agent's record is gone" in found["head"].notes[-1]
    failed = {one.session_id: one.notes[-1] for one in report.conversations if one.outcome == "failed"}
    assert failed.keys() == {"head", "all", "text", "text:agent:a", "moved:agent:b"}
    assert "none of the records that belong here" in failed["moved:agent:b"]


@pytest.mark.xdist_group("cluster")
def test_redis_sessions_in_a_cluster(
    valkey_cluster: servers.ValkeyCluster, folder: Path, memory: MangaMemory, unique: str
) -> None:
    expected = talked(folder)
    client = valkey_cluster.client()
    foreign_layouts.to_redis(folder, client, namespace=unique)
    check(RedisSource(client, unique), memory, expected)
    client.close()


class WithJson(redis.Redis):
    """A client of a server with the JSON module: what it keeps are no strings, and only the module's commands read them."""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        if args[0] == "JSON.GET":
            return super().execute_command("HGET", args[1], "document")
        return super().execute_command(*args, **options)


@pytest.mark.parametrize("as_documents", [True, False])
def test_sessions_of_the_valkey_package(as_documents: bool, folder: Path, memory: MangaMemory) -> None:
    """Layout of strands-valkey-session-manager 0.1.0, which takes no colons in ids."""
    expected = talked(folder)
    for session, agent_id in IDS:
        if ":" in session + agent_id:
            shutil.rmtree(folder / f"session_{session}/agents/agent_{agent_id}")
            del expected[session, agent_id]
    with servers.valkey() as server, WithJson.from_url(server.url) as client:
        client.set("session:of:others", "1")
        foreign_layouts.to_valkey(
            folder, (lambda key, text: client.hset(key, "document", text)) if as_documents else client.set
        )
        for key in client.keys("session:s#*"):  # its ids are refused there
            client.delete(key)
        check(ValkeySource(client), memory, expected)


def test_a_server_that_does_not_answer_is_no_empty_source(folder: Path, memory: MangaMemory) -> None:
    for kind in ("redis", "valkey"):
        with pytest.raises(StoreUnavailableError, match="source"):
            import_sessions(open_source(kind, f"redis://127.0.0.1:{servers.free_port()}/0"), memory)
    for url in ("dynamodb://there?region=us-east-1", "s3://there?region=us-east-1"):
        kind = "dynamodb" if url.startswith("d") else "file"
        source = open_source(kind, f"{url}&endpoint=http://127.0.0.1:{servers.free_port()}")
        with pytest.raises(StoreUnavailableError, match="source"):
            import_sessions(source, memory)


def test_sessions_of_the_dynamodb_packages(
    dynamodb_server: servers.DynamoDB, folder: Path, memory: MangaMemory, unique: str
) -> None:
    """Layout of strands-session-dynamodb 0.2.0 and strands-dynamodb-session-manager 0.2.0, which is the same code."""
    expected = talked(folder)
    client = dynamodb_server.client()
    foreign_layouts.to_key_value_table(folder, client, unique)
    check(open_source("dynamodb", dynamodb_server.table_url(unique)), memory, expected)


def test_another_table_is_no_source(dynamodb_server: servers.DynamoDB, memory: MangaMemory, unique: str) -> None:
    url = dynamodb_server.table_url(unique)
    open_table(url).create_if_missing()
    for kind in ("dynamodb", "snapshot"):
        with pytest.raises(ValueError, match="has the keys"):
            import_sessions(open_source(kind, url), memory)


def test_dynamodb_sessions_that_are_mixed_or_gone_in_part(
    dynamodb_server: servers.DynamoDB, folder: Path, memory: MangaMemory, unique: str
) -> None:
    for session, agent_id in (
        ("x", "y#AGENT#z"),
        ("x#AGENT#y", "z"),
        ("root", "a"),
        ("head", "a"),
        ("data", "a"),
        ("gap", "a"),
    ):
        talk(build(FileSessionManager(session, storage_dir=str(folder)), agent_id=agent_id))
    expected = state_of(build(FileSessionManager("gap", storage_dir=str(folder))))
    client = dynamodb_server.client()
    foreign_layouts.to_key_value_table(folder, client, unique)

    def delete(partition: str, sort: str) -> None:
        client.delete_item(TableName=unique, Key={"PK": {"S": partition}, "SK": {"S": sort}})

    delete("SESSION#root", "META")
    delete("SESSION#head", "AGENT#a")
    delete("SESSION#gap#AGENT#a", f"MSG#{1:020d}")  # it counts removed messages by their numbers
    client.put_item(TableName=unique, Item={"PK": {"S": "SESSION#data#AGENT#a"}, "SK": {"S": f"MSG#{0:020d}"}})
    report = import_sessions(open_source("dynamodb", dynamodb_server.table_url(unique)), memory)
    found = {one.session_id: one for one in report.conversations}
    assert {session: one.outcome for session, one in found.items()} == {
        "x": "failed", "x#AGENT#y": "failed", "root": "imported", "head": "failed", "data": "failed", "gap": "imported"
    }  # fmt: skip
    assert "mixed with those of another session" in found["x"].notes[-1]
    assert build(memory.session("gap")).messages == expected[0]


@pytest.mark.parametrize("kind", ["aws", "aws zipped below a prefix", "aws offloaded", "community"])
def test_snapshots_in_a_storage_table(
    kind: str, dynamodb_server: servers.DynamoDB, folder: Path, memory: MangaMemory, unique: str
) -> None:
    """Layouts of strands-dynamodb-storage 0.2.0 (AWS) and strands-storage-dynamodb 0.2.1."""

    def there(session: str) -> SessionManager:
        return SnapshotSessionManager(session, storage=LocalFileStorage(str(folder)))

    for session, agent_id in IDS:
        talk(build(there(session), agent_id=agent_id))
    expected = {(session, agent_id): state_of(build(there(session), agent_id=agent_id)) for session, agent_id in IDS}
    client, url = dynamodb_server.client(), dynamodb_server.table_url(unique)
    if kind == "aws":
        foreign_layouts.to_aws_storage(folder, client, unique)
    elif kind == "community":
        foreign_layouts.to_community_storage(folder, client, unique)
    elif kind == "aws offloaded":
        s3 = boto3.client("s3", endpoint_url=dynamodb_server.endpoint)
        s3.create_bucket(Bucket=unique)
        foreign_layouts.to_aws_storage(folder, client, unique, s3=(s3, unique))
        without = import_sessions(open_source("snapshot", url), memory)
        assert all("name the bucket" in one.notes[-1] for one in without.conversations)
        url += f"&s3_bucket={unique}&s3_prefix=off"
    else:
        foreign_layouts.to_aws_storage(folder, client, unique, prefix="shop/one/", zipped=True)
        over = {"pk": {"S": "shop/one"}, "sk": {"S": "session/over/scopes/agent/a/snapshots/snapshot_latest.json"}}
        client.put_item(TableName=unique, Item={**over, "data": {"B": b"{}"}, "expireAt": {"N": "1000"}})
        url += "&prefix=shop/one"
    check(open_source("snapshot", url), memory, expected)


def test_sessions_in_s3(
    dynamodb_server: servers.DynamoDB, memory: MangaMemory, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``S3SessionManager`` and ``S3Storage`` of Strands themselves."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", dynamodb_server.endpoint)
    boto3.client("s3").create_bucket(Bucket=unique)

    def logged() -> SessionManager:
        return S3SessionManager("s#1 日本", unique, prefix="logs/x", region_name="us-east-1")

    def taken() -> SessionManager:
        return SnapshotSessionManager("s#2", storage=S3Storage(unique, prefix="snapshots", region_name="us-east-1"))

    for there, kind, url in ((logged, "file", f"s3://{unique}/logs/x"), (taken, "snapshot", f"s3://{unique}/snapshots")):
        talk(build(there()))
        session = there().session_id
        check(open_source(kind, url), memory, {(session, "a"): state_of(build(there()))})


# The command


def command(capsys: Any, *arguments: str, status: int = 0) -> Any:
    assert run(["import", *arguments, "--json"]) == status
    return json.loads(capsys.readouterr().out)


def test_the_command(folder: Path, tmp_path: Path, capsys: Any) -> None:
    for session in ("hanako-s1", "taro-s1", "-nobody"):
        talk(build(FileSessionManager(session, storage_dir=str(folder))), turns=2)
    url = f"sqlite:///{tmp_path}/cli.sqlite3"
    open_table(url).create_if_missing()
    there = [str(folder), "--from", "file", "--durable", url, "--yes"]
    dry = command(capsys, *there, "--dry-run")
    assert (dry["counts"], dry["dry_run"]) == ({"new": 3, "messages": 12}, True)
    ids = ["--ids", "(?P<user>[^-]*)-(?P<session>.+)", "--tenant", "shop"]
    done = command(capsys, *there, *ids)
    assert done["counts"] == {"imported": 2, "skipped": 1, "messages": 8}
    scope = ConversationScope("hanako", "s1", "a", tenant="shop")
    assert len(list(TieredSessionManager(scope, durable=open_table(url)).history())) == 4
    assert command(capsys, *there, "--user", "u1")["counts"]["imported"] == 3
    assert command(capsys, *there)["counts"]["imported"] == 3
    assert command(capsys, *there)["counts"] == {"exists": 3, "messages": 0}
    (folder / "session_-nobody/agents/agent_a/agent.json").write_text("{")
    assert run(["import", *there]) == 1
    printed = capsys.readouterr()
    assert "exists taro-s1/a: 4 messages, 4 in the history" in printed.out.splitlines()
    assert "it is no JSON" in " ".join(printed.out.split())
    assert "1 failed, 2 exists" in printed.err.replace("\n", " ")
    assert run(["import", str(tmp_path), "--from", "snapshot", "--durable", url, "--yes"]) == 1
    assert "there are no sessions in" in capsys.readouterr().err
    for wrong in (
        ["nowhere", "--from", "file"],
        [str(folder), "--from", "tapes"],
        ["redis://h", "--from", "file"],
        [str(folder)],
        [str(folder), "--from", "file", "--ids", "(?P<who>.*)"],
        [str(folder), "--from", "file", "--ids", "("],
        [str(folder), "--from", "file", "--tenant", "t"],
        ["redis://h?colour=1", "--from", "redis"],
        ["dynamodb://t?endpoint=nowhere", "--from", "dynamodb"],
    ):
        assert run(["import", *wrong, "--durable", url, "--yes"]) == 2, wrong


@pytest.mark.parametrize("backend", ["sqlite", "dynamodb"])
def test_the_command_needs_no_tables_before(
    backend: str, folder: Path, tmp_path: Path, unique: str, capsys: Any, dynamodb_server: servers.DynamoDB
) -> None:
    """The first commands of somebody who comes from another session manager, and has nothing here yet."""
    talk(build(FileSessionManager("s1", storage_dir=str(folder))), turns=2)
    url = f"sqlite:///{tmp_path}/new.sqlite3" if backend == "sqlite" else dynamodb_server.table_url(unique)
    there = [str(folder), "--from", "file", "--durable", url, "--yes"]
    assert command(capsys, *there, "--dry-run")["counts"] == {"new": 1, "messages": 4}
    with pytest.raises(StoreRefusedError, match="there is no such table"):
        open_table(url).get("nobody", "nothing")
    assert command(capsys, *there)["counts"] == {"imported": 1, "messages": 4}
    assert command(capsys, *there, "--dry-run")["counts"] == {"exists": 1, "messages": 0}
    assert (
        build(TieredSessionManager("s1", durable=url)).messages
        == build(FileSessionManager("s1", storage_dir=str(folder))).messages
    )


def test_an_export_brings_times_media_history_and_states(tmp_path: Path, capsys: Any) -> None:
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
    assert json.loads(capsys.readouterr().out)["media"] == 0
    assert state_of(build(two.session(scope), "sliding")) == expected
    brought = list(two.session(scope).records("a"))
    assert [(record["message"], record["at"], record["turn"]) for record in brought] == [
        (record["message"], record["at"], record["turn"]) for record in log
    ]
    assert two.session(scope).metadata("a")["locale"] == "ja"
    two.close()
    assert os.path.getsize(file) > 0
