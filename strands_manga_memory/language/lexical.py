"""LexicalIndex: which of some texts share words with a question, ranked by BM25, in English and Japanese.

BM25, stemming and the inverted index are those of SQLite's FTS5, in memory. Japanese, which has no spaces, is cut into pairs of
characters first.
"""

from __future__ import annotations

import re
import sqlite3
import threading
import unicodedata
from collections.abc import Iterable

_JAPANESE = "぀-ヿ㐀-鿿豈-﫿ー々"
_RUNS = re.compile(rf"[{_JAPANESE}]+|[^\W_{_JAPANESE}]+(?:'[^\W_{_JAPANESE}]+)*")
_WIDE = re.compile(rf"[{_JAPANESE}]")
_HIRAGANA = re.compile(r"[぀-ゟ]+\Z")
_NEAR_WEIGHT = 0.3

STOP_WORDS = frozenset(
    (  # noqa: SIM905 - a list of a hundred strings is no easier to read
        "a about all also am an and any are as at be been being but by can could did do does for from get go "
        "had has have he her him his how i if in into is it its just like may me might more my no not of on "
        "or our she should so some than that the their them then there these they this those to us very was "
        "we were what when where which who whom whose why will with would you your"
    ).split()
)
"""English words that say nothing about what a text is about."""


def words(text: str) -> list[str]:
    """Return the words of a text in lower case, pairs of characters of Japanese."""
    found: list[str] = []
    for run in _RUNS.findall(unicodedata.normalize("NFKC", text).casefold()):
        if not _WIDE.match(run):
            found.append(run.removesuffix("'s").replace("'", ""))
        elif len(run) == 1:
            found.append(run)
        else:
            found += [run[at : at + 2] for at in range(len(run) - 1)]
    return [word for word in found if word]


def content_words(text: str) -> list[str]:
    """Return the words of a text that say what it is about, each once, in order."""
    return [word for word in dict.fromkeys(words(text)) if word not in STOP_WORDS and not _HIRAGANA.match(word)]


class LexicalIndex:
    """Texts and the words they have, for ``search``. Thread-safe.

    A text may have neighbours, such as the turns around a turn: their words count too, by 0.3, so that an answer is found by
    the words of its question.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._next = 1
        self._database = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._database.execute("CREATE VIRTUAL TABLE texts USING fts5(own, near, tokenize = 'porter unicode61')")

    def __len__(self) -> int:
        """Return how many texts there are."""
        return len(self._ids)

    def __del__(self) -> None:
        """Close the database."""
        if hasattr(self, "_database"):
            self._database.close()

    def put(self, texts: Iterable[tuple[str, str, str]]) -> None:
        """Add or replace texts: id, text, and text of the neighbours."""
        with self._lock:
            self._database.execute("BEGIN")
            for name, own, near in texts:
                self._remove(name)
                row, self._next = self._next, self._next + 1
                self._ids[name], self._names[row] = row, name
                values = (row, " ".join(words(own)), " ".join(words(near)))
                self._database.execute("INSERT INTO texts (rowid, own, near) VALUES (?, ?, ?)", values)
            self._database.execute("COMMIT")

    def remove(self, names: Iterable[str]) -> None:
        """Forget texts."""
        with self._lock:
            for name in names:
                self._remove(name)

    def _remove(self, name: str) -> None:
        row = self._ids.pop(name, None)
        if row is not None:
            del self._names[row]
            self._database.execute("DELETE FROM texts WHERE rowid = ?", (row,))

    def search(self, query: str, *, limit: int | None = None) -> dict[str, float]:
        """Return the ids of texts that share a word with ``query``, best first, with a similarity above 0, the best one 1.

        Args:
            query: The question.
            limit: Most texts to return; None for all.
        """
        wanted = content_words(query) or list(dict.fromkeys(words(query)))
        if not wanted:
            return {}
        match = " OR ".join(f'"{word}"' for word in wanted)  # a word holds letters and digits only
        select = (
            f"SELECT rowid, bm25(texts, 1.0, {_NEAR_WEIGHT}) AS score FROM texts WHERE texts MATCH ? ORDER BY score LIMIT ?"  # noqa: S608
        )
        with self._lock:
            rows = self._database.execute(select, (match, -1 if limit is None else limit)).fetchall()
            best = max((-score for _, score in rows), default=0.0)
            return {self._names[row]: max(1e-6, -score / best) if best > 0 else 1e-6 for row, score in rows}


def overlap(text: str, source: str) -> float:
    """Return the share of the content words of ``text`` that ``source`` has too; 1 if it has none."""
    own = content_words(text)
    return len(set(words(source)).intersection(own)) / len(own) if own else 1.0
