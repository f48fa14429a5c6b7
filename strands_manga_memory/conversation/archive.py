"""The archive: every message of a conversation, findable by what it says."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from strands_manga_memory.language.terms import query_terms, terms

_MOST_TERMS = 24
_MOST_POSTINGS = 2_500


@dataclass(frozen=True, slots=True)
class Archived:
    """A message as the archive keeps it.

    Attributes:
        id: Its tracking id.
        speaker: ``"user"``, ``"assistant"`` or ``"tool"``.
        text: What it says.
        at: When, in seconds since the epoch; None if that is not known.
    """

    id: str
    speaker: str
    text: str
    at: float | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """A message that was found: its number in the order of speech, from 1, itself, and how well it fits."""

    number: int
    message: Archived
    score: float


class Retriever(Protocol):
    """Finds messages by what they say. Called from several threads, one at a time; never on an event loop."""

    def add(self, messages: Iterable[Archived]) -> None:
        """Take in messages, in the order of speech."""
        ...

    def search(self, question: str, limit: int) -> list[Hit]:
        """Return up to ``limit`` messages that fit best, the best first."""
        ...

    def around(self, number: int) -> dict[int, Archived]:
        """Return the messages next to one, by number."""
        ...

    def forget(self, id_: str) -> None:
        """Remove a message."""
        ...


class Bm25Retriever:
    """BM25 over single messages, by SQLite's FTS5, in memory or in a file.

    Common words are left out of a question where rarer ones say enough, so that a question takes milliseconds. Thread-safe.

    Args:
        path: File of the index; default: in memory, gone with the process.
        most: Most messages to keep; the oldest go first.

    Raises:
        ValueError: ``most`` is not a positive whole number.
    """

    def __init__(self, path: str = ":memory:", *, most: int = 50_000) -> None:
        if isinstance(most, bool) or not isinstance(most, int) or most < 1:
            raise ValueError(f"most must be a positive whole number, got {most!r}")
        self.most = most
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._db.executescript(
            "CREATE TABLE IF NOT EXISTS message(number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE, speaker TEXT, "
            "text TEXT, at REAL);"
            "CREATE VIRTUAL TABLE IF NOT EXISTS word USING fts5(terms, content='', tokenize='unicode61 "
            "remove_diacritics 0');"
            "CREATE VIRTUAL TABLE IF NOT EXISTS frequency USING fts5vocab('word', 'row');"
        )

    def add(self, messages: Iterable[Archived]) -> None:
        """Take in messages; one whose id is known already is left as it is."""
        with self._lock:
            self._db.execute("BEGIN")
            for message in messages:
                row = self._db.execute(
                    "INSERT OR IGNORE INTO message(id, speaker, text, at) VALUES (?, ?, ?, ?) RETURNING number",
                    (message.id, message.speaker, message.text, message.at),
                ).fetchone()
                if row is not None:
                    self._db.execute("INSERT INTO word(rowid, terms) VALUES (?, ?)", (row[0], " ".join(terms(message.text))))
            self._db.execute("COMMIT")
            surplus = len(self) - self.most
            if surplus > 0:
                old = self._db.execute("SELECT id FROM message ORDER BY number LIMIT ?", (surplus,)).fetchall()
                for (id_,) in old:
                    self._remove(id_)

    def search(self, question: str, limit: int) -> list[Hit]:
        """Return up to ``limit`` messages that share a term with the question, the best first."""
        with self._lock:
            chosen = self._rare(query_terms(question))
            if not chosen:
                return []
            rows = self._db.execute(
                "SELECT m.number, m.id, m.speaker, m.text, m.at, -w.rank FROM"
                " (SELECT rowid, rank FROM word WHERE word MATCH ? ORDER BY rank LIMIT ?) w JOIN message m ON m.number = "
                "w.rowid",
                (" OR ".join(f'"{term}"' for term in chosen), limit),
            ).fetchall()
        return [Hit(number, Archived(id_, speaker, text, at), score) for number, id_, speaker, text, at, score in rows]

    def around(self, number: int) -> dict[int, Archived]:
        """Return the two messages before and the two after one."""
        with self._lock:
            rows = self._db.execute(
                "SELECT number, id, speaker, text, at FROM message WHERE number BETWEEN ? AND ?", (number - 2, number + 2)
            ).fetchall()
        return {at: Archived(*rest) for at, *rest in rows if at != number}

    def forget(self, id_: str) -> None:
        """Remove a message."""
        with self._lock:
            self._remove(id_)

    def close(self) -> None:
        """Close the index."""
        with self._lock:
            self._db.close()

    def __len__(self) -> int:
        return int(self._db.execute("SELECT count(*) FROM message").fetchone()[0])

    def _remove(self, id_: str) -> None:
        row = self._db.execute("DELETE FROM message WHERE id = ? RETURNING number, text", (id_,)).fetchone()
        if row is not None:
            self._db.execute("INSERT INTO word(word, rowid, terms) VALUES ('delete', ?, ?)", (row[0], " ".join(terms(row[1]))))

    def _rare(self, asked: list[str]) -> list[str]:
        """Return the terms to look for, the rarest first, as many as can be looked up quickly."""
        counted = []
        for term in asked:
            row = self._db.execute("SELECT doc FROM frequency WHERE term = ?", (term,)).fetchone()
            if row is not None:
                counted.append((row[0], term))
        counted.sort()
        chosen: list[str] = []
        postings = 0
        for documents, term in counted[:_MOST_TERMS]:
            if chosen and postings + documents > _MOST_POSTINGS:
                break
            postings += documents
            chosen.append(term)
        return chosen
