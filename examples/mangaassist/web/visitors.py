"""Visitors: who a browser is. A random token in its cookie, known here by its hash, says which user; the page cannot choose."""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
import threading
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Visitor:
    """A user of this shop and the chat session he is in."""

    user_id: str
    session_id: str


class Visitors:
    """The visitors of a shop, in a SQLite file, so that they are still known after a restart. Blocks; thread-safe."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS visitors (token BLOB PRIMARY KEY, user_id TEXT UNIQUE, session_id TEXT) WITHOUT ROWID"
        )

    def welcome(self) -> tuple[str, Visitor]:
        """Make a new user; return the token for his browser, too."""
        token = secrets.token_urlsafe(32)
        visitor = Visitor(f"reader-{secrets.token_hex(4)}", new_session_id())
        self._run("INSERT INTO visitors VALUES (?, ?, ?)", _hash(token), visitor.user_id, visitor.session_id)
        return token, visitor

    def at_terminal(self, user_id: str) -> Visitor:
        """Return a user who needs no token, because he sits at this machine, in the session he was in last."""
        visitor = Visitor(user_id, new_session_id())
        unknown = _hash(secrets.token_urlsafe(32))
        self._run("INSERT INTO visitors VALUES (?, ?, ?) ON CONFLICT DO NOTHING", unknown, user_id, visitor.session_id)
        return Visitor(*self._run("SELECT user_id, session_id FROM visitors WHERE user_id = ?", user_id)[0])

    def find(self, token: str | None) -> Visitor | None:
        """Return whose token it is, or None."""
        if not token:
            return None
        found = self._run("SELECT user_id, session_id FROM visitors WHERE token = ?", _hash(token))
        return Visitor(*found[0]) if found else None

    def begin_session(self, user_id: str, session_id: str | None = None) -> Visitor:
        """Put a user into a new session, or into one that was begun for him."""
        visitor = Visitor(user_id, session_id or new_session_id())
        self._run("UPDATE visitors SET session_id = ? WHERE user_id = ?", visitor.session_id, user_id)
        return visitor

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def _run(self, statement: str, *values: object) -> list[tuple[str, str]]:
        with self._lock:
            return self._database.execute(statement, values).fetchall()


def new_session_id() -> str:
    """Return an id that nobody can guess."""
    return secrets.token_hex(8)


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
