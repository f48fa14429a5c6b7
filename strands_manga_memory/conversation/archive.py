"""Messages of a conversation that recall can find: the archived form, retrievers by words and by vectors, and the indexer."""

from __future__ import annotations

import itertools
import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

from strands.types.content import Message

from strands_manga_memory.arguments import function, positive
from strands_manga_memory.conversation.message_truncation import is_truncated, result_text, results_of
from strands_manga_memory.conversation.summary_record import is_synthesized
from strands_manga_memory.exceptions import logged_errors
from strands_manga_memory.language.dialogue_acts import SMALL_TALK_ACTS, dialogue_act
from strands_manga_memory.language.pii import redact_identifiers
from strands_manga_memory.language.search import Embed, LexicalIndex, dot, embed_texts, without_field_names
from strands_manga_memory.messages import content_fingerprint, id_of, tool_result_ids
from strands_manga_memory.messages.injection import is_quote, message_text
from strands_manga_memory.messages.json_text import describe_json, find_json

logger = logging.getLogger(__name__)

Source = Callable[[], Iterable[Message | Mapping[str, Any]]]
"""Returns the messages of a conversation, oldest first, as messages or as records with ``message`` and ``at``."""

_SMALL_TALK_CHARACTERS = 120
"""A longer text is not small talk."""

_TOOL_CHARACTERS = 2_000
_MOST_SOURCE_READS = 3
_EMBEDDED_AT_ONCE = 64
_OTHER_WEIGHT = 0.25
"""Weight of the scores of another retriever, with those of BM25."""


# --- Messages and hits --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ArchivedMessage:
    """A message as the archive keeps it.

    Attributes:
        id: Its tracking id.
        speaker: ``"user"``, ``"assistant"`` or ``"tool"``.
        text: Its text; of a tool result the values in words.
        at: Time of the message, in seconds since the epoch; None if that is not known.
    """

    id: str
    speaker: str
    text: str
    at: float | None = None

    @property
    def searched(self) -> str:
        """Text to search: of a tool result the values alone, as names of fields are in every result."""
        return without_field_names(self.text) if self.speaker == "tool" else self.text


@dataclass(frozen=True, slots=True)
class RecallHit:
    """A message that a retriever found.

    Attributes:
        number: Its number in the order of speech, from 1.
        message: The message.
        score: How well it fits the question; the best hit of a search has 1.
        by_words: Whether it was found by its words alone. Then it must share a content word with the question.
    """

    number: int
    message: ArchivedMessage
    score: float
    by_words: bool = False


class Retriever(Protocol):
    """Finds messages. Called from several threads, one at a time; never on an event loop."""

    def add(self, messages: Iterable[ArchivedMessage]) -> None:
        """Add messages in the order of speech; a message with a known id replaces the earlier one."""

    def search(self, question: str, limit: int) -> list[RecallHit]:
        """Return up to ``limit`` messages that fit best, the best first, with scores above 0."""

    def around(self, number: int) -> dict[int, ArchivedMessage]:
        """Return the two messages before and the two after a message, by number."""

    def forget(self, id_: str) -> None:
        """Remove a message."""

    def clear(self) -> None:
        """Remove everything."""


# --- Retrievers ---------------------------------------------------------------------------------------------------------------


class MessageIndex:
    """The last messages of a conversation, numbered in their order from 1, and an index of them. Thread-safe.

    Args:
        most: Most messages to keep; the oldest go first.
        index: Makes an empty index.
        by_words: Whether the index finds texts by their words.

    Raises:
        ValueError: ``most`` is not a positive whole number.
    """

    def __init__(self, most: int, index: Callable[[], LexicalIndex[int] | _VectorIndex], *, by_words: bool) -> None:
        self._most = positive("most", most)
        self._make = index
        self._by_words = by_words
        self._lock = threading.Lock()
        self.clear()

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, messages: Iterable[ArchivedMessage]) -> None:
        """Add messages in the order of speech; a message with a known id replaces the earlier one."""
        with self._lock:
            changed: dict[int, ArchivedMessage] = {}
            for message in list(messages):  # all of them or, if they cannot be read, none
                number = self._numbers.get(message.id) or self._numbers.setdefault(message.id, next(self._next))
                known = self._messages.get(number)
                at = message.at if known is None or message.at is not None else known.at
                if known is None or known.text != message.text:
                    self._messages[number] = changed[number] = message if at == message.at else replace(message, at=at)
                elif known.at != at:
                    self._messages[number] = replace(known, at=at)
            gone = list(itertools.islice(self._messages, max(0, len(self) - self._most)))
            for number in gone:
                del self._numbers[self._messages.pop(number).id]
                changed.pop(number, None)
            self._index.remove(gone)
            self._index.put((number, message.searched, "") for number, message in changed.items())

    def search(self, question: str, limit: int) -> list[RecallHit]:
        """Return up to ``limit`` messages that fit the question, the best first; the score of the best is 1."""
        with self._lock:
            found = self._index.search(question, limit=limit)
            return [RecallHit(number, self._messages[number], score, self._by_words) for number, score in found.items()]

    def number_of(self, id_: str) -> int | None:
        """Return the number of a message in the order of speech; None if the message is not known."""
        with self._lock:
            return self._numbers.get(id_)

    def around(self, number: int) -> dict[int, ArchivedMessage]:
        """Return the two messages before and the two after a message, by number."""
        near = (number - 2, number - 1, number + 1, number + 2)
        with self._lock:
            return {at: self._messages[at] for at in near if at in self._messages}

    def forget(self, id_: str) -> None:
        """Remove a message."""
        with self._lock:
            number = self._numbers.pop(id_, None)
            if number is not None:
                del self._messages[number]
                self._index.remove([number])

    def clear(self) -> None:
        """Remove everything."""
        with self._lock:
            self._numbers: dict[str, int] = {}
            self._messages: dict[int, ArchivedMessage] = {}
            self._next = itertools.count(1)
            self._index = self._make()


class Bm25Retriever(MessageIndex):
    """BM25 over single messages, English and Japanese, in memory. Thread-safe.

    A message that shares a term with the question is found. Common words of a question are not searched if its rarer words
    find enough, so that a search takes milliseconds.

    Args:
        most: Most messages to keep; the oldest go first. A message takes some 700 bytes in addition to its text.

    Raises:
        ValueError: ``most`` is not a positive whole number.
    """

    _index: LexicalIndex[int]

    def __init__(self, *, most: int = 50_000) -> None:
        super().__init__(most, LexicalIndex[int], by_words=True)

    @property
    def index_bytes(self) -> int:
        """The size of the inverted index, without the messages."""
        with self._lock:
            return self._index.size


class DenseRetriever(MessageIndex):
    """Compares a question with every message by vectors, in memory. Thread-safe.

    A message is embedded at the first search after it was added. The messages that are more similar to the question than the
    average are found. A search over 1,000 messages with vectors of 384 numbers takes about 15 ms; for more than some thousands
    put a vector database behind the ``Retriever`` protocol.

    Args:
        embed: From texts to vectors of one length; may block, because it is never called on the event loop.
        most: Most messages to keep; the oldest go first.

    Raises:
        ValueError: ``embed`` is not a function, or ``most`` is not a positive whole number. From ``search``: ``embed`` did not
            return one vector of one length for each text.
    """

    def __init__(self, embed: Embed, *, most: int = 5_000) -> None:
        make = partial(_VectorIndex, function("embed", embed, "a function from texts to vectors"))
        super().__init__(most, make, by_words=False)


class _VectorIndex:
    """Texts by number, and the vectors of those that a search has compared."""

    def __init__(self, embed: Embed) -> None:
        self._embed = embed
        self._vectors: dict[int, list[float]] = {}
        self._missing: dict[int, str] = {}

    def put(self, texts: Iterable[tuple[int, str, str]]) -> None:
        """Add or replace texts; a blank text is never found."""
        for number, text, _ in texts:
            self.remove([number])
            if text.strip():
                self._missing[number] = text

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove texts."""
        for number in numbers:
            self._vectors.pop(number, None)
            self._missing.pop(number, None)

    def search(self, query: str, *, limit: int | None = None) -> dict[int, float]:
        """Return the texts that are more similar to a query than the average, the best first; the score of the best is 1."""
        while part := dict(itertools.islice(self._missing.items(), _EMBEDDED_AT_ONCE)):
            vectors = embed_texts(self._embed, list(part.values()))
            self._vectors.update(zip(part, vectors, strict=True))
            for number in part:
                del self._missing[number]
        if not self._vectors or not query.strip():
            return {}
        asked = embed_texts(self._embed, [query])[0]
        similar = {number: dot(asked, vector) for number, vector in self._vectors.items()}
        # Vectors of one model are all somewhat similar: only the difference to the average tells something.
        average = sum(similar.values()) / len(similar) if len(similar) > 1 else 0.0
        best = max(similar.values()) - average
        found = sorted((number for number in similar if similar[number] > average), key=lambda number: -similar[number])
        return {number: (similar[number] - average) / best for number in found[:limit]}


class FusedRetriever(Bm25Retriever):
    """BM25 and another retriever; the score of a message is that of BM25 plus a quarter of the other's."""

    def __init__(self, other: Retriever) -> None:
        self._other = other
        super().__init__()

    def add(self, messages: Iterable[ArchivedMessage]) -> None:
        """Add messages in the order of speech; a message with a known id replaces the earlier one."""
        added = list(messages)
        super().add(added)
        self._other.add(added)

    def search(self, question: str, limit: int) -> list[RecallHit]:
        """Return up to ``limit`` messages that either retriever finds, the best first."""
        found = {hit.number: hit for hit in super().search(question, limit)}
        for hit in self._other.search(question, limit):
            number = self.number_of(hit.message.id)
            if number is not None:
                before = found[number].score if number in found else 0.0
                found[number] = RecallHit(number, hit.message, before + _OTHER_WEIGHT * hit.score)
        return sorted(found.values(), key=lambda hit: (-hit.score, -hit.number))[:limit]

    def forget(self, id_: str) -> None:
        """Remove a message from both retrievers."""
        super().forget(id_)
        self._other.forget(id_)

    def clear(self) -> None:
        """Remove all messages from both retrievers."""
        super().clear()
        self._other.clear()


# --- Indexing a conversation --------------------------------------------------------------------------------------------------


class TimedMessage(NamedTuple):
    """A message, and its time in seconds since the epoch; 0 if the time is unknown."""

    message: Message
    at: float


class ArchiveIndexer:
    """Keeps a retriever's index up to date with a conversation, under any conversation manager.

    A message is indexed after its turn, since a guardrail may redact it until then. A message that changes in the history is
    indexed again. A history without any known message is another conversation, or the session was deleted: then the index is
    emptied, so that nobody reads the words of another user.

    Args:
        retriever: The index.
        source: Returns the messages of before this process. It is read once, in up to three turns if it fails, and again after
            the index was emptied.
        on_add: Called with messages before they are indexed.
    """

    def __init__(
        self, retriever: Retriever, source: Source | None, on_add: Callable[[Sequence[ArchivedMessage]], None]
    ) -> None:
        self._retriever = retriever
        self._on_add = on_add
        self._source = source
        self._reads_left = _MOST_SOURCE_READS
        self._lock = threading.Lock()
        self._pending: list[TimedMessage] = []
        self._settled = 0
        self._seen: dict[str, int] = {}
        self._forgotten: set[str] = set()

    def note(self, message: Message, at: float) -> None:
        """Add a message of the current turn; a restored message has the time 0."""
        self._pending.append(TimedMessage(message, at))

    def begin_turn(self) -> None:
        """Mark the messages added so far as final: only later messages may still be redacted."""
        self._settled = len(self._pending)

    def update(self, history: Sequence[Message]) -> None:
        """Index the final messages and the changes of the history. Not for the event loop."""
        with self._lock:
            ready = self._pending[: self._settled]
            open_ids = {id_of(noted.message) for noted in self._pending[self._settled :]}
            present = {id_: message for message in history if (id_ := id_of(message)) and id_ not in open_ids}
            known = self._seen.keys() | {id_of(noted.message) for noted in ready}
            if known and known.isdisjoint(present):
                logger.debug("forgotten=<%d> | the history is another one | forgetting the earlier", len(known))
                self._retriever.clear()
                self._reads_left = _MOST_SOURCE_READS
                ready, self._pending, self._settled = [], self._pending[self._settled :], 0
            self._read_source(open_ids)
            seen = {id_: content_fingerprint(message) for id_, message in present.items()}
            changed = [TimedMessage(message, 0.0) for id_, message in present.items() if self._seen.get(id_) != seen[id_]]
            self._add(archived_messages([*ready, *changed]))
            self._seen = seen
            del self._pending[: len(ready)]
            self._settled -= len(ready)

    def forget(self, id_: str) -> None:
        """Remove a message for good, also if the history or the source still has it."""
        with self._lock:
            self._forgotten.add(id_)
            self._retriever.forget(id_)

    def _add(self, messages: Iterable[ArchivedMessage]) -> None:
        wanted = [message for message in messages if message.id not in self._forgotten]
        self._on_add(wanted)
        self._retriever.add(wanted)

    def _read_source(self, open_ids: set[str]) -> None:
        if self._source is None or not self._reads_left:
            return
        self._reads_left -= 1
        with logged_errors(logger, "the earlier history could not be read, recalling only what this process has seen"):
            self._add(each for each in archived_messages(map(_timed, self._source())) if each.id not in open_ids)
            self._reads_left = 0


def archived_messages(messages: Iterable[TimedMessage], *, with_truncated: bool = False) -> Iterator[ArchivedMessage]:
    """Return messages as the archive keeps them, without identifiers such as card numbers, which must not be quoted.

    Placeholders, summaries, truncated messages, quotes, small talk, failed tool results and answers that report such a failure
    are left out.

    Args:
        messages: Messages in the order of speech.
        with_truncated: Whether truncated messages are returned too, in their truncated form.
    """
    has_failed = False
    for message, at in messages:
        results = list(results_of(message))
        is_report = has_failed and message["role"] == "assistant"
        has_failed = bool(results) and all(result.get("status") == "error" for result in results)
        if is_report:
            continue
        if is_synthesized(message) or (is_truncated(message) and not with_truncated):
            continue
        if tool_result_ids(message):
            speaker, text = "tool", "\n".join(filter(None, map(_result_values, results)))
        else:
            speaker, text = message["role"], message_text(message)
        if text and not is_quote(text) and not _is_small_talk(text, speaker):
            text = redact_identifiers(text)
            text = text[:_TOOL_CHARACTERS] if speaker == "tool" else text
            yield ArchivedMessage(id_of(message) or str(uuid.uuid4()), speaker, text, at or None)


def _result_values(result: Any) -> str:
    """Return the values of a successful tool result in words; an empty text for a failed one."""
    if result.get("status") == "error":
        return ""
    source, found = find_json(result_text(result))
    parts, end = [], 0
    for each in found:
        parts += [source[end : each.start], "\n".join(map(describe_json, itertools.filterfalse(_is_of_guard, each.values)))]
        end = each.end
    return "".join([*parts, source[end:]]).strip()


def _is_of_guard(value: Any) -> bool:
    """Whether a value is the problem that a tool guard appended to the last good result."""
    return isinstance(value, dict) and {"code", "retry_after_s"} <= value.keys()


def _is_small_talk(text: str, speaker: str) -> bool:
    return len(text) <= _SMALL_TALK_CHARACTERS and dialogue_act(text, speaker) in SMALL_TALK_ACTS


def _timed(record: Any) -> TimedMessage:
    if "message" in record:
        return TimedMessage(record["message"], float(record.get("at") or 0))
    return TimedMessage(record, 0.0)
