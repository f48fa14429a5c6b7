"""Users of the web chat, known by a random token in a cookie, which is stored as a hash."""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
import threading
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Visitor:
    """User of this shop, and the user's current chat session."""

    user_id: str
    session_id: str


class Visitors:
    """Visitors of a shop, in a SQLite file. Methods block and are thread-safe."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS visitors (token BLOB PRIMARY KEY, user_id TEXT UNIQUE,"
            " session_id TEXT) WITHOUT ROWID"
        )

    def welcome(self) -> tuple[str, Visitor]:
        """Create a user, and return the token for the browser and the user."""
        token = secrets.token_urlsafe(32)
        visitor = Visitor(f"reader-{secrets.token_hex(4)}", new_session_id())
        self._run(
            "INSERT INTO visitors VALUES (?, ?, ?)",
            _hash(token),
            visitor.user_id,
            visitor.session_id,
        )
        return token, visitor

    def at_terminal(self, user_id: str) -> Visitor:
        """Return a user of this machine, who needs no token, with the user's last session."""
        visitor = Visitor(user_id, new_session_id())
        unknown = _hash(secrets.token_urlsafe(32))
        self._run(
            "INSERT INTO visitors VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            unknown,
            user_id,
            visitor.session_id,
        )
        return Visitor(
            *self._run("SELECT user_id, session_id FROM visitors WHERE user_id = ?", user_id)[0]
        )

    def find(self, token: str | None) -> Visitor | None:
        """Return the visitor of a token, or None."""
        if not token:
            return None
        found = self._run("SELECT user_id, session_id FROM visitors WHERE token = ?", _hash(token))
        return Visitor(*found[0]) if found else None

    def begin_session(self, user_id: str, session_id: str | None = None) -> Visitor:
        """Move a user to a new session, or to an existing one."""
        visitor = Visitor(user_id, session_id or new_session_id())
        self._run(
            "UPDATE visitors SET session_id = ? WHERE user_id = ?", visitor.session_id, user_id
        )
        return visitor

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def _run(self, statement: str, *values: object) -> list[tuple[str, str]]:
        with self._lock:
            return self._database.execute(statement, values).fetchall()


def new_session_id() -> str:
    """Return an id that cannot be guessed."""
    return secrets.token_hex(8)


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
