"""Commands: what they print and their exit status must be what another look at the stores finds."""

import contextlib
import io
import json
import random
from pathlib import Path
from typing import Any

from strands_manga_memory import SESSIONS, USER_MEMORY, ConversationScope, MangaMemory, SQLiteTable
from strands_manga_memory.memory.records import ERASED
from tests.faults.hostile import sessions
from tests.support import run


def played(rng: random.Random, path: Path) -> None:
    """Hold sessions, damage records, run commands; raise ``AssertionError`` for a wrong output."""
    user, url = f"u{rng.randrange(10**9)}", f"sqlite:///{path}"
    memory = MangaMemory.open(
        "memory://", SQLiteTable(path), memories=SQLiteTable(path, USER_MEMORY)
    )
    scopes = [ConversationScope(user, f"s{n}", tenant="t") for n in range(rng.randrange(1, 4))]
    case = sessions.drawn(rng)
    for number, scope in enumerate(scopes):
        agent = sessions._agent(memory, scope, case["messages"] if number == 0 else None)
        agent("I like hardcover editions.")
    memory.user(user, tenant="t").remember("likes horror")
    memory.close()
    is_damaged = rng.random() < 0.5
    if is_damaged:
        sessions._damage(
            MangaMemory.open(
                "memory://", SQLiteTable(path), memories=SQLiteTable(path, USER_MEMORY)
            ),
            scopes[0],
        )
    there = ["--tenant", "t", "--durable", url, "--hot", "memory://"]
    status, out = _run("export", user, *there, "--json")
    if status == 0:
        found = json.loads(out)
        assert len(found["sessions"]) == len(scopes), "export left a session out"
        assert found["memories"], "export left memories out, and says all is well"
    else:
        assert is_damaged, f"export exits with {status} where nothing is wrong"
    status, out = _run("doctor", "--durable", url, "--hot", "memory://", "--json")
    assert bool(status) == _is_in_trouble(out), f"doctor exits with {status}"
    status, _ = _run("forget-user", user, *there, "--yes", "--json")
    left = [
        row
        for row in SQLiteTable(path, USER_MEMORY).query(f"t:{user}")
        if row["memory_id"] != ERASED
    ]
    logs = [row for scope in scopes for row in _log(path, scope)]
    if status == 0:
        assert not left, "forget-user left memories, and says all is well"
        assert not logs, "forget-user left messages, and says all is well"


def _run(*arguments: str) -> tuple[int, str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        status = run(list(arguments))
    return status, out.getvalue()


def _log(path: Path, scope: ConversationScope) -> list[Any]:
    return [
        row
        for row in SQLiteTable(path, SESSIONS).query(scope.storage_session_id)
        if "#TURN#" in str(row["sk"])
    ]


def _is_in_trouble(out: str) -> bool:
    return any(finding["level"] not in ("ok", "warning") for finding in json.loads(out)["findings"])
