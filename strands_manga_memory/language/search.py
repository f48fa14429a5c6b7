"""Search in English and Japanese texts, and selection of the passages that answer a question.

The module extracts search terms, splits texts into passages, compares embeddings, and contains a
BM25 index for a search by words.
"""

from __future__ import annotations

import math
import operator
import re
import sqlite3
import threading
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, Generic, TypeVar

from strands_manga_memory.arguments import with_repr
from strands_manga_memory.language.packs import ANY, EN, JA

_STOP = EN.words("search.stop_words")
_JAPANESE_SIGNS = r"\u3041-\u309f\u30a1-\u30fa\u30fc\u3005\u3400-\u9fff"
_WORD = re.compile(rf"[^\W_{_JAPANESE_SIGNS}]+")
_JAPANESE = re.compile(rf"[{_JAPANESE_SIGNS}]+")
_HIRAGANA = re.compile(r"\A[\u3041-\u309f]+\Z")
_KATAKANA_WORD = re.compile(r"[\u30a1-\u30fa\u30fc]{3,}")
_LONG_NUMBER = re.compile(r"\d[\d,.]*\d")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_READ = 8_000
"""Most characters of a text that are indexed. Further characters are ignored."""

_SYNONYMS = JA.groups("search.synonyms")


@cache
def _stemmer() -> Any:
    # it loads thirty languages, which takes longer than the rest of the package
    import snowballstemmer

    return snowballstemmer.stemmer("english")


@lru_cache(maxsize=20_000)
def _stem(word: str) -> str:
    return str(_stemmer().stemWord(word))


def search_terms(text: str) -> list[str]:
    """Return the terms of a text, by which a search matches questions and texts.

    English terms are the stems of words: "reads" and "reading" give ``read``. Common words (stop
    words) are left out. Japanese terms are single kanji and pairs of neighboring characters. Only
    the first 8,000 characters of the text are read.
    """
    plain = unicodedata.normalize("NFKC", _THOUSANDS.sub("", text[:_READ])).lower()
    found = [_stem(word) for word in _WORD.findall(plain) if word not in _STOP]
    for run in _JAPANESE.findall(plain):
        found += _japanese_terms(run)
    return found


def long_numbers(text: str) -> set[str]:
    """Return the numbers with at least two digits in a text as written, such as "1,200"."""
    return set(_LONG_NUMBER.findall(text))


def query_terms(text: str) -> list[str]:
    """Return the distinct search terms of a question and of synonyms of its Japanese words."""
    found = search_terms(text)
    for word in _synonyms(unicodedata.normalize("NFKC", text[:_READ])):
        found += _japanese_terms(word)
    return list(dict.fromkeys(found))


def _synonyms(text: str) -> list[str]:
    if text.isascii():
        return []
    return [word for group in _SYNONYMS if any(map(text.__contains__, group)) for word in group]


def content_terms(question: str) -> frozenset[str]:
    """Return the search terms of a question that express its subject.

    A text with one of these terms is relevant. Grammatical words, words that are common in requests
    (such as "recommend"), single digits and most single kanji are left out.

    If nothing is left of a question about the user or the assistant ("What do I love?"), only
    the grammatical words are left out.
    """
    question = unicodedata.normalize("NFKC", question[:_READ]).lower()
    stripped = ANY.search.request_words.sub(" ", question)
    subject = _evidence_of_question(stripped)
    telling = frozenset(term for term in subject if len(term) > 1).union(
        JA.search.one_kanji_nouns.findall(stripped)
    )
    if telling or not ANY.search.asks_of_speakers.search(question):
        return telling
    return frozenset(subject or _evidence_of_question(question))


def _evidence_of_question(question: str) -> set[str]:
    found = set(evidence_terms(question))
    for word in _synonyms(question):
        found.update(term for term in evidence_terms(word) if len(term) > 1)
    return {term for term in found if not ANY.search.grammar.search(term)}


@lru_cache(maxsize=4_096)
def evidence_terms(text: str) -> frozenset[str]:
    """Return the terms of a text that are compared with the ``content_terms`` of a question.

    A shared term shows that the text may answer the question. English terms are stems of words.
    Japanese terms are single kanji and groups of characters. Pairs of characters that often match
    by accident are left out: カード and ハードカバー share the pair ード.
    """
    found = set(search_terms(text))
    if text.isascii():
        return frozenset(found)
    words = _KATAKANA_WORD.findall(unicodedata.normalize("NFKC", text[:_READ]))
    found -= {first + second for word in words for first, second in pairwise(word)}
    found |= {word[at : at + 3] for word in words for at in range(len(word) - 2)}
    return frozenset(term for term in found if len(term) != 2 or not _CROSSES_WORDS.match(term))


_CROSSES_WORDS = re.compile(r"[\u3041-\u309f][^\u3041-\u309f]")


def _japanese_terms(run: str) -> list[str]:
    if _HIRAGANA.match(run):
        return [run[at : at + 3] for at in range(max(1, len(run) - 2))]
    pairs = (first + second for first, second in pairwise(run))
    return [
        *(character for character in run if character >= "\u3400"),
        *(pair for pair in pairs if not _HIRAGANA.match(pair)),
    ]


GAP = " [...] "
"""Text in place of omitted passages."""

_LONGEST = 600
"""Most characters of a passage. A longer one is split, if possible at a field or a space."""

_FIELD = re.compile(r"[,;] (?=[^\W\d][\w.-]{0,60}: )")
"""Separator before a field of a record in plain text, such as ``title: Uzumaki, price: 19.90``."""

_BLOCK = re.compile(
    r"(?:(?<=\n)|\A)[^\S\n]*```[\s\S]*?(?:\n[^\S\n]*```[^\n]*\n?|\Z)|[^\n]*\n|[^\n]+"
)
"""Fenced code, or a line."""

_SENTENCE_END = r"[。！？]+[」』）】]*(?![」』）】とっ])|[.!?][\"')\]”’]?(?=\s)"
_SENTENCE = re.compile(rf"(?!\Z)[\s\S]*?(?:(?:{_SENTENCE_END})(?:{_FIELD.pattern})?(?:\s+\Z)?|\Z)")
"""Sentence in a line, with the separator or white space behind it."""

_LEAD_FIELDS, _LEAD_CHARACTERS = 2, 80
"""The first 2 fields of a record, if they have at most 80 characters, are put before its quotes."""

_MOST_MISSES = 50
"""The selection of passages ends after this number of passages that do not fit."""

_CONTEXT = 0.3
"""Share of the previous passage's score that is added to a passage's own score."""


def split_passages(text: str) -> list[str]:
    """Split a text into passages, from which quotes are selected.

    Together, the passages are the whole text. A passage is a sentence, a line such as a list item
    or a table row, or a fenced block of code. It has at most 600 characters.
    """
    found: list[list[str]] = []  # the parts of each: joined at once, in linear time
    for block in _BLOCK.findall(text):
        if block.lstrip().startswith("```"):
            found.append([block])
        elif block.strip() or not found:
            found += ([sentence] for sentence in _SENTENCE.findall(block))
        else:
            found[-1].append(block)
    return [part for passage in found for part in _pieces("".join(passage))]


def _pieces(passage: str) -> list[str]:
    found, start = [], 0
    while len(passage) - start > _LONGEST:
        middle, most = start + _LONGEST // 2, start + _LONGEST
        fields = [match.end() for match in _FIELD.finditer(passage, middle, most)]
        end = fields[-1] if fields else passage.rfind(" ", middle, most) + 1 or most
        found.append(passage[start:end])
        start = end
    return [*found, passage[start:]] if start < len(passage) else found


def excerpt_for_query(
    text: str,
    terms: Collection[str],
    max_tokens: int,
    count: Callable[[str], int],
    is_excluded: Callable[[str], bool] | None = None,
    *,
    records: bool = False,
    follows: bool = True,
) -> str:
    """Return the passages of a text that answer a question best, in the order of the text.

    The best passages share terms with the question, or follow such a passage. Without such
    passages, the beginning of the text is used. ``[...]`` replaces omitted passages.

    Args:
        text: Text to quote.
        terms: Terms of the question, from ``content_terms``.
        max_tokens: Maximum number of tokens of the result.
        count: Function that counts the tokens of a text.
        is_excluded: Function that returns True for passages to omit. Default: none.
        records: Whether each line has named fields, such as ``title: Uzumaki, price: 19.90``. The
            search ignores the names.
        follows: Whether a passage without terms of the question may be chosen because the passage
            before has some. Ignored if ``records`` is True.
    """
    parts = split_passages(text)
    starts: list[int] = []  # of the record of each passage
    for at in range(len(parts)):
        is_within = records and at and not parts[at - 1].endswith("\n")
        starts.append(starts[-1] if is_within else at)
    gap = count(GAP)
    remaining, misses = max_tokens - gap, 0
    chosen: set[int] = set()
    searched = [without_field_names(part) for part in parts] if records else parts
    for at in _rank_passages(searched, terms, _CONTEXT if follows and not records else 0.0):
        if is_excluded is not None and is_excluded(parts[at]):
            continue
        size = count(parts[at]) + gap * (2 - (at - 1 in chosen) - (at + 1 in chosen))
        lead = _first_fields(parts, starts, at)
        if lead and chosen.isdisjoint(range(starts[at], at)):
            size += count(lead)
        if size <= remaining:
            remaining -= size
            chosen.add(at)
        elif (misses := misses + 1) > _MOST_MISSES:
            break
    return _join_passages(parts, sorted(chosen), starts, records=records)


_FIELD_NAME = re.compile(r"(?:\A|(?<=[,;] )|(?<=\n))[^\W\d][\w.-]{0,60}: ")


def without_field_names(text: str) -> str:
    """Remove field names, such as ``title:``, from lines such as ``title: Uzumaki, price: 9``."""
    return _FIELD_NAME.sub("", text)


def _rank_passages(parts: Sequence[str], terms: Collection[str], context: float) -> list[int]:
    """Return the positions of the passages that answer a question, the best passage first.

    A passage scores for each term of the question, more for a rare one. The next passage gets
    ``context`` times this score, too.
    """
    shared = [evidence_terms(part).intersection(terms) for part in parts]
    in_passages = Counter(term for found in shared for term in found)
    worth = {term: math.log1p(len(parts) / number) for term, number in in_passages.items()}
    own = [sum(worth[term] for term in sorted(found)) for found in shared]
    fit = [score + context * (own[at - 1] if at else 0.0) for at, score in enumerate(own)]
    if not any(own):
        return list(range(len(parts)))
    return sorted((at for at, score in enumerate(fit) if score > 0), key=lambda at: -fit[at])


def _first_fields(parts: Sequence[str], starts: Sequence[int], at: int) -> str:
    """Return the first two fields of a passage's line, such as ``title: Uzumaki, price: 19.90``.

    The result is empty for the first passage of a line, which has these fields itself.
    """
    if at == starts[at]:
        return ""
    fields = _FIELD.split(parts[starts[at]].strip(), maxsplit=_LEAD_FIELDS)
    lead = ", ".join(fields[:_LEAD_FIELDS])
    return lead + GAP if len(lead) <= _LEAD_CHARACTERS else ""


def _join_passages(
    parts: Sequence[str], chosen: Sequence[int], starts: Sequence[int], *, records: bool
) -> str:
    """Join the passages at the positions ``chosen``, with ``[...]`` in place of omitted passages.

    With ``records``, the first fields of a line, such as its title, are put before a passage from
    the middle of the line.
    """
    text, before = "", -1
    for at in chosen:
        if records and (before < 0 or starts[before] != starts[at]):
            lead = _first_fields(parts, starts, at)
            text = f"{text.strip().rstrip(',;')}\n{lead}{parts[at].lstrip()}"
        elif at != before + 1:
            text = (text.rstrip(" ,;" if records else None) + GAP).lstrip() + parts[at]
        else:
            text += parts[at]
        before = at
    if records:
        text = text.strip().rstrip(",;")
        before = len(chosen) - 1  # a gap in the middle is also shown at the end
    return text.rstrip() + (GAP.rstrip() if chosen and before + 1 < len(parts) else "")


Embed = Callable[[Sequence[str]], Sequence[Sequence[float]]]
"""Function that returns an embedding vector for each text. All vectors have the same dimension."""


def unit(vector: Sequence[float]) -> list[float]:
    """Scale a vector to length 1. A vector of zeros is returned unchanged."""
    length = math.hypot(*vector)
    return [value / length for value in vector] if length else list(vector)


def dot(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the dot product of two vectors.

    For vectors of length 1, it is their similarity, from -1 to 1.

    Raises:
        ValueError: The vectors have different dimensions.
    """
    if len(one) != len(other):
        raise ValueError(f"vectors must be of one length, got {len(one)} and {len(other)}")
    return float(sum(map(operator.mul, one, other)))


def embed_texts(embed: Embed, texts: Sequence[str]) -> list[list[float]]:
    """Return an embedding vector for each text, scaled to length 1.

    Raises:
        ValueError: ``embed`` did not return one vector for each text.
    """
    vectors = [unit([float(value) for value in vector]) for vector in embed(texts)] if texts else []
    if len(vectors) != len(texts):
        raise ValueError(
            f"embed must return one vector for each text, got {len(vectors)} for {len(texts)}"
        )
    return vectors


_Name = TypeVar("_Name", bound=Hashable)

_NEAR_WEIGHT = 0.3
_MOST_TERMS = 24
_MOST_POSTINGS = 1_500
"""Most index entries that a search reads. The rarest terms are read first."""


@with_repr()
class LexicalIndex(Generic[_Name]):
    """Index in memory that finds texts by their words. Thread-safe.

    Each text has a name, and optionally the text of its neighbors, such as the turns before and
    after. The neighbors' words count with weight 0.3, so that the words of a question also find the
    answer in the next turn.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[_Name, int] = {}
        self._names: dict[int, _Name] = {}
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        # Terms are made of letters and digits, as the tokenizer expects.
        self._database.execute(
            "CREATE VIRTUAL TABLE texts USING fts5(own, near, tokenize = 'unicode61"
            " remove_diacritics 0')"
        )
        self._database.execute("CREATE VIRTUAL TABLE vocabulary USING fts5vocab(texts, row)")
        # In SQL, bm25() would be called through one more layer for each text found.
        self._database.execute(
            "INSERT INTO texts(texts, rank) VALUES ('rank', ?)", (f"bm25(1.0, {_NEAR_WEIGHT})",)
        )

    def __len__(self) -> int:
        """Return the number of texts in the index."""
        return len(self._rows)

    def __del__(self) -> None:
        """Close the SQLite database in memory that holds the index."""
        if hasattr(self, "_database"):
            self._database.close()

    def put(self, texts: Iterable[tuple[_Name, str, str]]) -> None:
        """Add texts to the index, or replace the texts with the same names.

        Each text is a tuple of its name, the text itself, and the text of its neighbors, such as
        the turns before and after it.
        """
        with self._lock, self._database:
            for name, *both in texts:
                self._remove(name)
                row = (
                    self._database.execute(
                        "INSERT INTO texts (own, near) VALUES (?, ?)",
                        [" ".join(search_terms(text)) for text in both],
                    ).lastrowid
                    or 0
                )
                self._rows[name], self._names[row] = row, name

    def remove(self, names: Iterable[_Name]) -> None:
        """Remove the texts with the given names from the index."""
        with self._lock, self._database:
            for name in names:
                self._remove(name)

    def _remove(self, name: _Name) -> None:
        row = self._rows.pop(name, None)
        if row is not None:
            del self._names[row]
            self._database.execute("DELETE FROM texts WHERE rowid = ?", (row,))

    def search(self, query: str, *, limit: int | None = None) -> dict[_Name, float]:
        """Find the texts that share a term with a question, the best text first.

        The result maps the name of each text to its similarity. The best text has the similarity 1.
        All similarities are above 0.

        Args:
            query: Question to search for.
            limit: Maximum number of texts to return. None for all texts.
        """
        with self._lock:
            wanted = self._rarest_terms(query_terms(query))
            if not wanted:
                return {}
            match = " OR ".join(f'"{term}"' for term in wanted)
            rows = self._database.execute(
                "SELECT rowid, rank FROM texts WHERE texts MATCH ? ORDER BY rank LIMIT ?",
                (match, -1 if limit is None else limit),
            ).fetchall()
            best = max((-rank for _, rank in rows), default=0.0) or 1.0
            return {self._names[row]: max(1e-6, -rank / best) for row, rank in rows}

    def _rarest_terms(self, asked: Sequence[str]) -> list[str]:
        """Return at most 24 terms of a question to search for in the index, the rarest term first.

        Common terms are left out, to keep the search fast.
        """
        placeholders = ",".join("?" * len(asked))
        known = self._database.execute(
            f"SELECT doc, term FROM vocabulary WHERE term IN ({placeholders})"  # noqa: S608
            f" ORDER BY doc, term LIMIT {_MOST_TERMS}",
            asked,
        )
        chosen: list[str] = []
        postings = 0
        for texts, term in known.fetchall():
            if chosen and postings + texts > _MOST_POSTINGS:
                break
            postings += texts
            chosen.append(term)
        return chosen


def term_overlap(text: str, source: str) -> float:
    """Return the share of a text's search terms that are also in the text ``source``, from 0 to 1.

    The share is 1 if ``text`` has no terms.
    """
    own = set(search_terms(text))
    return len(own.intersection(search_terms(source))) / len(own) if own else 1.0
