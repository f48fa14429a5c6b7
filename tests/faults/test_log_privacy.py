"""Logs at info and above have no user id, session id or message text, also in failures."""

import ast
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from strands import Agent

import strands_manga_memory
from strands_manga_memory import (
    ImportanceWeightedConversationManager,
    MangaMemory,
    VerifiedSummarizingConversationManager,
)
from strands_manga_memory.conversation import SummarySchedule, SummaryTrigger
from strands_manga_memory.exceptions import MangaMemoryError
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.stores import open_table
from strands_manga_memory.testing import ScriptedModel
from tests import servers

USER, SESSION, TENANT, SAID = "user-4f1c", "session-77ab", "tenant-90de", "my-secret-wish"


@pytest.fixture
def records(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """Return the package's records at info and above as a log file shows them, with tracebacks."""
    formatter = logging.Formatter("%(message)s")
    with caplog.at_level(logging.DEBUG, logger="strands_manga_memory"):
        yield lambda: [
            formatter.format(record)
            for record in caplog.records
            if record.name.startswith("strands_manga_memory") and record.levelno >= logging.INFO
        ]


def assert_private(records: list[str], *expected: str) -> None:
    """Check that every expected warning was logged, without ids and message text."""
    for warning in expected:
        assert any(warning in record for record in records), (warning, records)
    assert [r for r in records if any(word in r for word in (USER, SESSION, TENANT, SAID))] == []


def open_memory(valkey: servers.Valkey, tmp_path: Path) -> MangaMemory:
    hot = f"redis://{valkey.host}:{valkey.port}/0?deadline=5"
    return MangaMemory.open(hot, f"sqlite:///{tmp_path}/sessions", hot_deadline=10.0)


def new_agent(memory: MangaMemory) -> Agent:
    return memory.agent(
        ScriptedModel(), user_id=USER, session_id=SESSION, tenant=TENANT, task_state=True
    )


def test_damaged_records_of_both_tiers_are_logged_without_their_names(
    valkey_server: servers.Valkey, tmp_path: Path, records: Callable[[], list[str]]
) -> None:
    with open_memory(valkey_server, tmp_path) as memory:
        agent = new_agent(memory)
        for _ in range(7):
            agent(SAID)
        agent._session_manager.flush()
    storage_id = ConversationScope(USER, SESSION, tenant=TENANT).storage_session_id
    with valkey_server.client() as client:
        key: bytes = next(client.scan_iter(f"*:c:{storage_id}/*"))
        fields: dict[bytes, bytes] = client.hgetall(key)
        for name, value in fields.items():
            client.hset(key, name, value[:-2] + b"\0\0")
            _restore(valkey_server, tmp_path)
            client.hset(key, name, value)
        client.delete(key)
    table = open_table(f"sqlite:///{tmp_path}/sessions")
    for row in list(table.query(storage_id)):
        for name in {"data", "turn"} & row.keys():
            table.put({**row, name: row[name][:-2]})
            _restore(valkey_server, tmp_path)
            with valkey_server.client() as client:
                client.delete(key)
            table.put(row)
    table.close()
    assert_private(records(), "tier=<hot>", "a turn of the log cannot be read")


def _restore(valkey: servers.Valkey, tmp_path: Path) -> None:
    with open_memory(valkey, tmp_path) as memory:
        try:
            agent = new_agent(memory)
            list(agent._session_manager.history(agent.agent_id))
        except MangaMemoryError:
            pass  # a head that cannot be read is refused


def test_a_damaged_entry_of_a_user_directory_is_logged_without_its_name(
    valkey_server: servers.Valkey, tmp_path: Path, records: Callable[[], list[str]]
) -> None:
    with open_memory(valkey_server, tmp_path) as memory:
        new_agent(memory)(SAID)
    table = open_table(f"sqlite:///{tmp_path}/sessions")
    table.put({"session_id": f"user/{TENANT}:{USER}", "sk": "damaged", "session": 5})
    with open_memory(valkey_server, tmp_path) as memory:
        assert len(memory.export_user(USER, tenant=TENANT)["unreadable"]) == 1
    table.close()
    assert_private(records(), "skipped a damaged entry")


class FailingExtractor:
    """Slot extractor that raises with the user's words."""

    def extract(self, messages: Any) -> Any:
        raise RuntimeError(f"{USER} said {SAID}")


def test_exceptions_of_callbacks_are_logged_without_text(records: Callable[[], list[str]]) -> None:
    """An exception's text may quote messages, so warnings name its type only."""

    def fail(*_: Any) -> Any:
        raise RuntimeError(f"{USER} said {SAID}")

    trimmer = ImportanceWeightedConversationManager(300)
    manager = VerifiedSummarizingConversationManager(
        SummaryTrigger(tokens=600, keep_recent_turns=1),
        trimmer=trimmer,
        facts=FailingExtractor(),
        log=fail,
        model=fail,
        schedule=SummarySchedule(strategy="inline"),
    )
    agent = Agent(model=ScriptedModel(), conversation_manager=manager)
    for number in range(12):
        agent(f"{SAID} {number} " * 40)
    assert_private(records(), "the fact extractor failed", "the log cannot be read")


def test_no_call_at_info_or_above_logs_a_traceback() -> None:
    """The text of an exception may quote a message or name a record."""
    found = []
    for path in Path(strands_manga_memory.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                continue
            level, owner = call.func.attr, ast.unparse(call.func.value)
            is_shown = level in ("log", "info", "warning", "error", "critical", "exception")
            if (
                owner == "logger"
                and is_shown
                and (level == "exception" or any(each.arg == "exc_info" for each in call.keywords))
            ):
                found.append(f"{path.name}:{call.lineno}")
    assert found == []
