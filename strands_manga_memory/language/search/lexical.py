"""LexicalIndex: which of some texts share terms with a question, ranked by BM25, in English and Japanese.

Ranking and the inverted index are those of SQLite's FTS5, in memory; what is a term is said in ``language.search.terms``.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from strands_manga_memory.language.search.terms import query_terms, terms

_Name = TypeVar("_Name", bound=Hashable)

_NEAR_WEIGHT = 0.3
_MOST_TERMS = 24
_MOST_POSTINGS = 1_500
"""Of a question's terms the rarest are looked up until so many texts hold one: common ones cost most and tell least."""


class LexicalIndex(Generic[_Name]):
    """Texts and the terms they have, for ``search``. Thread-safe. Texts are known by names.

    A text may have neighbours, such as the turns around a turn: their terms count too, by 0.3, so that an answer is found by
    the words of its question.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[_Name, int] = {}
        self._texts: dict[int, tuple[_Name, str, str]] = {}
        self._frequency: Counter[str] = Counter()
        self._next = 1
        self._database = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        # The texts themselves are not stored a second time; terms are made of letters and digits, as the tokenizer expects.
        self._database.execute(
            "CREATE VIRTUAL TABLE texts USING fts5(own, near, content = '', tokenize = 'unicode61 remove_diacritics 0')"
        )
        # In SQL, bm25() would be called through one more layer for each text found.
        self._database.execute("INSERT INTO texts(texts, rank) VALUES ('rank', ?)", (f"bm25(1.0, {_NEAR_WEIGHT})",))

    def __len__(self) -> int:
        """Return how many texts there are."""
        return len(self._rows)

    @property
    def size(self) -> int:
        """Return the bytes of the inverted index."""
        pages, size = (self._database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
        return int(pages * size)

    def __del__(self) -> None:
        """Close the database."""
        if hasattr(self, "_database"):
            self._database.close()

    def put(self, texts: Iterable[tuple[_Name, str, str]]) -> None:
        """Add or replace texts: name, text, and text of the neighbours."""
        with self._lock:
            self._database.execute("BEGIN")
            for name, own, near in texts:
                self._remove(name)
                row, self._next = self._next, self._next + 1
                self._rows[name], self._texts[row] = row, (name, own, near)
                found = terms(own), terms(near)
                self._frequency.update({*found[0], *found[1]})
                values = (row, " ".join(found[0]), " ".join(found[1]))
                self._database.execute("INSERT INTO texts (rowid, own, near) VALUES (?, ?, ?)", values)
            self._database.execute("COMMIT")

    def remove(self, names: Iterable[_Name]) -> None:
        """Forget texts."""
        with self._lock:
            self._database.execute("BEGIN")
            for name in names:
                self._remove(name)
            self._database.execute("COMMIT")

    def _remove(self, name: _Name) -> None:
        row = self._rows.pop(name, None)
        if row is None:
            return
        _, own, near = self._texts.pop(row)
        found = terms(own), terms(near)
        for term in {*found[0], *found[1]}:
            self._frequency[term] -= 1
            if not self._frequency[term]:
                del self._frequency[term]
        values = (row, " ".join(found[0]), " ".join(found[1]))
        self._database.execute("INSERT INTO texts (texts, rowid, own, near) VALUES ('delete', ?, ?, ?)", values)

    def search(self, query: str, *, limit: int | None = None) -> dict[_Name, float]:
        """Return the names of texts that share a term with ``query``, best first, with a similarity above 0, the best one 1.

        Args:
            query: The question.
            limit: Most texts to return; None for all.
        """
        with self._lock:
            wanted = self._rarest(query_terms(query))
            if not wanted:
                return {}
            match = " OR ".join(f'"{term}"' for term in wanted)
            rows = self._database.execute(
                "SELECT rowid, rank FROM texts WHERE texts MATCH ? ORDER BY rank LIMIT ?",
                (match, -1 if limit is None else limit),
            ).fetchall()
            best = max((-rank for _, rank in rows), default=0.0)
            return {self._texts[row][0]: max(1e-6, -rank / best) if best > 0 else 1e-6 for row, rank in rows}

    def _rarest(self, asked: Iterable[str]) -> list[str]:
        """Return the terms to look up, the rarest first."""
        known = sorted((self._frequency[term], term) for term in asked if term in self._frequency)
        chosen: list[str] = []
        postings = 0
        for texts, term in known[:_MOST_TERMS]:
            if chosen and postings + texts > _MOST_POSTINGS:
                break
            postings += texts
            chosen.append(term)
        return chosen


def overlap(text: str, source: str) -> float:
    """Return the share of the terms of ``text`` that ``source`` has too; 1 if it has none."""
    own = set(terms(text))
    return len(own.intersection(terms(source))) / len(own) if own else 1.0
