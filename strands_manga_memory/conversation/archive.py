"""Archive for searching the earlier messages of a conversation."""

from __future__ import annotations

import itertools
import logging
import re
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from strands.types.content import Message

from strands_manga_memory.arguments import with_repr
from strands_manga_memory.conversation.message_truncation import (
    is_truncated,
    result_text,
    results_of,
)
from strands_manga_memory.conversation.summary_record import is_synthesized
from strands_manga_memory.exceptions import logged_errors
from strands_manga_memory.language.dialogue_acts import SMALL_TALK_ACTS, dialogue_act
from strands_manga_memory.language.packs import ANY
from strands_manga_memory.language.pii import redact_identifiers
from strands_manga_memory.language.search import (
    Embed,
    LexicalIndex,
    dot,
    embed_texts,
    without_field_names,
)
from strands_manga_memory.language.text_features import split_sentences
from strands_manga_memory.messages import (
    content_fingerprint,
    id_of,
    tool_result_ids,
    tool_use_ids,
)
from strands_manga_memory.messages.injection import is_injected_text, message_text
from strands_manga_memory.messages.json_text import describe_json, find_json

logger = logging.getLogger(__name__)

Source = Callable[[], Iterable[Message | Mapping[str, Any]]]
"""Function that returns the messages of a conversation, oldest first.

An item is a plain message, or a record with the fields ``message`` and ``at`` (epoch seconds).
"""

TimedMessage = tuple[Message, float]
"""A message and its time, in seconds since the epoch. The time 0 means unknown."""

_SMALL_TALK_CHARACTERS = 120
"""Largest length of a text that can count as small talk, in characters."""

MOST_MESSAGES = 50_000
"""Largest number of messages in an archive. The oldest messages are removed first."""

_TOOL_CHARACTERS = 2_000
_WHOLE_PASSAGES = re.compile(r"\A[\s\S]*(?:\n|[,;.!?]\s|[、，。！？])")
_MOST_SOURCE_READS = 3
_MOST_EMBEDDED, _EMBEDDED_AT_ONCE = 5_000, 64
_MEANING_WEIGHT = 0.25
"""Weight of a message's similarity in meaning. The BM25 score has the weight 1."""


# --- Messages and hits ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ArchivedMessage:
    """Message of a conversation in the form that the archive stores and searches.

    Attributes:
        id: Tracking id of the message.
        speaker: ``"user"``, ``"assistant"`` or ``"tool"``.
        text: Text of the message. JSON of a tool result is written as ``name: value`` lines.
        at: Time of the message, in seconds since the epoch. None if unknown.
    """

    id: str
    speaker: str
    text: str
    at: float | None = None

    @property
    def search_text(self) -> str:
        """Text of the message for the search index.

        In the text of a tool result, field names such as ``price:`` are left out.
        """
        return without_field_names(self.text) if self.speaker == "tool" else self.text


@dataclass(frozen=True, slots=True)
class RecallHit:
    """Message that a search in a conversation's archive found, with its score.

    Attributes:
        number: Number of the message in the archive, counted from 1 in the order of the
            conversation.
        message: The message.
        score: How well the message fits the question. Higher is better.
        is_by_words: Whether the message was found only by its words, and not by its meaning.
    """

    number: int
    message: ArchivedMessage
    score: float
    is_by_words: bool = False


# --- Search ---------------------------------------------------------------------------------------


@with_repr()
class MessageArchive:
    """Archive for searching the messages of a conversation. Thread-safe.

    A search finds English and Japanese messages that share a term with the question, and ranks them
    with BM25. All data is in memory. A message takes about 700 bytes in addition to its text. Each
    message has a number, counted from 1.

    With ``embed``, a search also compares the meaning of the latest 5,000 messages with the
    question, and finds those of above-average similarity. A message is embedded (turned into a
    vector) at the first search after it was added. If ``embed`` fails, only words are searched.

    The method ``update`` copies new and changed messages from an agent's history into the archive.
    A message is copied after the end of its turn, because a guardrail may redact the message until
    then.

    ``update`` empties the archive if the history has no archived message, for example because the
    session was deleted. No user can thus find the messages of another user.

    Args:
        embed: Function that turns a list of texts into vectors of one length. It may block.
            Similarity of meaning adds up to 0.25 to the BM25 score, which is 0 if no word matches.
            None: search by words alone.
        source: Function that returns the messages from before the start of this process. ``update``
            calls it once, and again after it emptied the archive. After an error, later updates try
            again, at most twice.

    Attributes:
        version: Function that returns the session's version, which changes when a message is
            redacted or removed. ``update`` empties the archive after each change. The default
            function returns None: changes are not detected.
    """

    def __init__(self, embed: Embed | None = None, *, source: Source | None = None) -> None:
        self.version: Callable[[], object] = lambda: None
        self._known_version: object = None
        self._embed = embed
        self._lock = threading.RLock()
        self._words = LexicalIndex[int]()
        self._numbers: dict[str, int] = {}
        self._messages: dict[int, ArchivedMessage] = {}
        self._next = itertools.count(1)
        self._vectors: dict[int, list[float]] = {}
        self._forgotten: set[str] = set()
        self._source = source
        self._remaining_reads = _MOST_SOURCE_READS
        self._of_turn: list[TimedMessage] = []
        self._ready: list[TimedMessage] = []
        self._fingerprints: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._messages)

    # --- Search -----------------------------------------------------------------------------------

    def search(self, question: str, limit: int) -> list[RecallHit]:
        """Return at most ``limit`` archived messages that fit a question, the best first."""
        with self._lock:
            scores = self._words.search(question, limit=limit)
            alike: dict[int, float] = {}
            if self._embed is not None and question.strip():
                with logged_errors(logger, "the embedding failed, searching by words alone"):
                    alike = self._search_vectors(self._embed, question, limit)
            for number, score in alike.items():
                scores[number] = scores.get(number, 0.0) + _MEANING_WEIGHT * score
            best = list(scores)
            if alike:
                best.sort(key=lambda number: (-scores[number], -number))
            return [
                RecallHit(number, self._messages[number], scores[number], number not in alike)
                for number in best[:limit]
            ]

    def _search_vectors(self, embed: Embed, question: str, limit: int) -> dict[int, float]:
        """Return the scores of the messages closest to a question in meaning, by message number.

        The best message has the score 1. Messages of average or less similarity are left out.
        """
        numbers = list(self._messages)[-_MOST_EMBEDDED:]
        missing = [number for number in numbers if number not in self._vectors]
        for start in range(0, len(missing), _EMBEDDED_AT_ONCE):
            part = missing[start : start + _EMBEDDED_AT_ONCE]
            vectors = embed_texts(embed, [self._messages[number].search_text for number in part])
            self._vectors.update(zip(part, vectors, strict=True))
        asked = embed_texts(embed, [question])[0]
        similar = {number: dot(asked, self._vectors[number]) for number in numbers}
        # Vectors of one model are all somewhat similar: only the difference to the average tells
        # something.
        average = sum(similar.values()) / len(similar) if len(similar) > 1 else 0.0
        best = max(similar.values(), default=0.0) - average
        found = sorted(similar, key=lambda number: -similar[number])[:limit]
        return {
            number: (similar[number] - average) / best
            for number in found
            if similar[number] > average
        }

    def number_of(self, id_: str) -> int | None:
        """Return the number of a message in the archive. None if the archive lacks the message."""
        return self._numbers.get(id_)

    def neighbours(self, number: int) -> dict[int, ArchivedMessage]:
        """Return up to two messages before a message and two after it, keyed by message number."""
        near = (number - 2, number - 1, number + 1, number + 2)
        with self._lock:
            return {at: self._messages[at] for at in near if at in self._messages}

    # --- Content ----------------------------------------------------------------------------------

    def add(self, messages: Iterable[ArchivedMessage]) -> None:
        """Add messages to the archive, oldest first.

        A message replaces the earlier message with the same id. Messages removed with
        :meth:`forget` are not added again.
        """
        with self._lock:
            changed: dict[int, str] = {}
            for message in list(messages):  # all of them or, if they cannot be read, none
                if message.id in self._forgotten:
                    continue
                number = self._numbers.get(message.id) or self._numbers.setdefault(
                    message.id, next(self._next)
                )
                known = self._messages.get(number)
                if known is None or known.text != message.text:
                    changed[number] = message.search_text
                    self._vectors.pop(number, None)
                at = known.at if known is not None and message.at is None else message.at
                self._messages[number] = replace(message, at=at)
            self._words.put((number, text, "") for number, text in changed.items())
            self._remove(list(itertools.islice(self._messages, max(0, len(self) - MOST_MESSAGES))))

    def forget(self, id_: str) -> None:
        """Remove a message from the archive for good, for example after its redaction.

        Later calls do not add the message again, even if the agent's history still contains it.
        """
        with self._lock:
            self._forgotten.add(id_)
            if id_ in self._numbers:
                self._remove([self._numbers[id_]])

    def _remove(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            del self._numbers[self._messages.pop(number).id]
            self._vectors.pop(number, None)
        self._words.remove(numbers)

    # --- Conversation -----------------------------------------------------------------------------

    def record(self, message: Message, at: float) -> None:
        """Queue a new message of the conversation for the archive.

        The first :meth:`update` after the end of the message's turn adds it.

        Args:
            message: The message.
            at: Time of the message in seconds since the epoch. 0 if unknown.
        """
        self._of_turn.append((message, at))

    def begin_turn(self) -> None:
        """Begin a new turn. The next :meth:`update` adds the messages of earlier turns."""
        self._ready += self._of_turn
        self._of_turn = []

    def update(self, history: Sequence[Message]) -> None:
        """Add the new and changed messages of an agent's history to the archive.

        Messages queued by :meth:`record` are added too, even if they have left the history.
        Messages of the current turn wait for the first call after the end of the turn.

        If the history belongs to another conversation, the archive is emptied first.

        The call may block, so it must not run on an event loop.
        """
        with self._lock:
            ready = self._ready[:]
            open_ids = {id_of(message) for message, _ in self._of_turn}
            present = {
                id_: message
                for message in history
                if (id_ := id_of(message)) and id_ not in open_ids
            }
            known = self._fingerprints | {
                id_of(message): content_fingerprint(message) for message, _ in ready
            }
            before, self._known_version = self._known_version, self.version()
            is_outdated = before and before != self._known_version
            if known and (is_outdated or known.keys().isdisjoint(present)):
                logger.debug(
                    "forgotten=<%d> | the history is another one | forgetting the earlier",
                    len(known),
                )
                self._remove(list(self._messages))
                self._remaining_reads = _MOST_SOURCE_READS
                ready, self._ready, known = [], [], {}
            self._read_source(open_ids)
            seen = {id_: content_fingerprint(message) for id_, message in present.items()}
            changed = [
                (message, 0.0) for id_, message in present.items() if known.get(id_) != seen[id_]
            ]
            self.add(archived_messages([*ready, *changed]))
            self._fingerprints = seen
            del self._ready[: len(ready)]

    def _read_source(self, open_ids: set[str]) -> None:
        if self._source is None or not self._remaining_reads:
            return
        self._remaining_reads -= 1
        with logged_errors(
            logger,
            "the earlier history could not be read, recalling only what this process has seen",
        ):
            self.add(
                each
                for each in archived_messages(map(_timed, self._source()))
                if each.id not in open_ids
            )
            self._remaining_reads = 0


# --- Conversion of messages -----------------------------------------------------------------------


def archived_messages(
    messages: Iterable[TimedMessage], *, with_truncated: bool = False
) -> Iterator[ArchivedMessage]:
    """Yield messages of an agent, oldest first, in the form that the archive stores and searches.

    Identifiers, such as card numbers, are redacted. Left out are summaries, quotes of earlier
    messages, small talk, announcements of tool calls, failed tool results, the assistant's message
    after tool results that all failed and, without ``with_truncated``, truncated messages.
    """
    has_failed = False
    for message, at in messages:
        results = results_of(message)
        is_report = has_failed and message["role"] == "assistant"
        has_failed = bool(results) and all(result.get("status") == "error" for result in results)
        is_shortened = is_truncated(message) and not with_truncated
        if is_report or is_synthesized(message) or is_shortened:
            continue
        if tool_result_ids(message):
            speaker, text = "tool", "\n".join(filter(None, map(_result_values, results)))
        else:
            speaker, text = message["role"], message_text(message)
        if not text or is_injected_text(text):
            continue
        if len(text) <= _SMALL_TALK_CHARACTERS and (
            dialogue_act(text, speaker) in SMALL_TALK_ACTS
            or (tool_use_ids(message) and _only_announces(text))
        ):
            continue
        text = redact_identifiers(text)
        if speaker == "tool" and len(text) > _TOOL_CHARACTERS:
            whole = _WHOLE_PASSAGES.match(text, 0, _TOOL_CHARACTERS)
            text = whole[0].rstrip() if whole else text[:_TOOL_CHARACTERS]
        yield ArchivedMessage(id_of(message) or str(uuid.uuid4()), speaker, text, at or None)


def _only_announces(text: str) -> bool:
    """Return whether the text of a tool call only announces it ("Let me check that.")."""
    return not any(map(str.isdigit, text)) and all(
        ANY.answers.postponed.search(sentence)
        or dialogue_act(sentence, "assistant") in SMALL_TALK_ACTS
        for sentence in split_sentences(text)
    )


def _result_values(result: Any) -> str:
    if result.get("status") == "error":
        return ""
    source, found = find_json(result_text(result))
    parts, end = [], 0
    for each in found:
        # Left out: error reports of the tool guard of this package, which blocks failing tools.
        values = [
            describe_json(value)
            for value in each.values
            if not (isinstance(value, dict) and {"code", "retry_after_s"} <= value.keys())
        ]
        parts += [source[end : each.start], "\n".join(values)]
        end = each.end
    return "".join([*parts, source[end:]]).strip()


def _timed(record: Any) -> TimedMessage:
    return (
        (record["message"], float(record.get("at") or 0)) if "message" in record else (record, 0.0)
    )
