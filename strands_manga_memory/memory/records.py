"""Records of a user's memory: types, retention, stored form, and access counts."""

from __future__ import annotations

import hashlib
import logging
import math
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from strands_manga_memory.exceptions import CorruptRecordError, KeyMissingError
from strands_manga_memory.scope import checked_id, encoded_id, encoded_user
from strands_manga_memory.stores.encoding.codec import Codec, dump, trusted
from strands_manga_memory.stores.encoding.values import is_json
from strands_manga_memory.stores.table import Item

DAY = 86_400.0
"""Seconds per day."""


class MemoryType(StrEnum):
    """Kind of a memory."""

    PREFERENCE = "preference"
    """A preference of the user; made by ``UserMemoryStore.prefer`` and by the session finalizer."""
    SUMMARY = "interaction_summary"
    """Summary of a session; made by the session finalizer."""
    FEEDBACK = "feedback"
    """Feedback of the user; made by ``UserMemoryStore.record_feedback``."""
    PATTERN = "behavioral_pattern"
    """Repeated behavior of the user; derived when a session is finalized."""
    FACT = "fact"
    """A fact, stored by an extractor or the ``add_memory`` tool of Strands' ``MemoryManager``."""
    EPISODE = "episode"
    """Messages of a session, without tool results; made by the session finalizer, found by ``search``."""
    WEEK = "weekly_rollup"
    """A week's sessions; made by ``MemoryRollup``."""
    MONTH = "monthly_rollup"
    """A month's sessions; made by ``MemoryRollup``."""
    QUESTION = "question"
    """Open questions of a session, made with its summary, so that a session start need not read all summaries of a week."""


DERIVED = frozenset({MemoryType.EPISODE, MemoryType.WEEK, MemoryType.MONTH, MemoryType.QUESTION})
"""Types derived from sessions and summaries. ``recall`` returns them only for an explicit type."""


@dataclass(frozen=True)
class Retention:
    """Retention of a type of memory.

    Args:
        seconds: Seconds that a memory is stored after it was last learned; None: without limit.
        importance: Importance of a new memory, from 0 to 1.
        half_life: Seconds in which the recency halves in the ranking; None: never.

    Raises:
        ValueError: A number is out of range.
    """

    seconds: float | None
    importance: float
    half_life: float | None = 30 * DAY

    def __post_init__(self) -> None:
        for name, value in (("seconds", self.seconds), ("half_life", self.half_life)):
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be a positive number of seconds or None, got {value!r:.80}")
        if not 0 <= self.importance <= 1:
            raise ValueError(f"importance must be from 0 to 1, got {self.importance!r:.80}")

    def expires_at(self, learned_at: float) -> int | None:
        """Return the expiry of a memory in seconds since 1970; None: never."""
        return None if self.seconds is None else int(learned_at + self.seconds)


RETENTION: Mapping[MemoryType, Retention] = MappingProxyType(
    {
        MemoryType.PREFERENCE: Retention(None, 0.9, None),
        MemoryType.SUMMARY: Retention(90 * DAY, 0.6),
        MemoryType.FEEDBACK: Retention(180 * DAY, 0.7, 60 * DAY),
        MemoryType.PATTERN: Retention(30 * DAY, 0.4, 15 * DAY),
        MemoryType.FACT: Retention(180 * DAY, 0.6, 60 * DAY),
        MemoryType.EPISODE: Retention(90 * DAY, 0.4, 60 * DAY),
        MemoryType.WEEK: Retention(45 * DAY, 0.6),
        MemoryType.MONTH: Retention(90 * DAY, 0.6),
        MemoryType.QUESTION: Retention(7 * DAY, 0.6),
    }
)
"""Default retention of each type."""


SCHEMA = 1
"""Schema version of records. Newer ones are rejected."""

INTERNAL = "~"
"""Prefix of internal ids: ledger, outbox, erasure marker, statements. It sorts after every type."""

LEDGER = "~ledger#"
ERASED = "~erased"
CHANGES = "~changes"
"""Id of the item with the user's statements, removals and revision; see ``PreferenceLog``."""
RETRACTED = "~retracted#"
"""Prefix of the ids of the notes on retracted messages."""
FORGOTTEN = "~forgotten#"
"""Prefix of the ids of the notes on deleted summaries, episodes, patterns and roll-ups."""


@dataclass(frozen=True, kw_only=True)
class MemoryRecord:
    """One memory.

    Attributes:
        memory_id: Unique within the user; begins with the type.
        type: A ``MemoryType``.
        content: Text of the memory.
        importance: 0 to 1.
        metadata: Additional data.
        created_at: Time when it was first learned, in seconds since 1970.
        updated_at: Time when it was last learned.
        accessed_at: Time of the last recall, without the ledger's entries; 0: never.
        access_count: Number of recalls, without the ledger's entries.
        expires_at: Expiry; None: never.
        version: Incremented by each change.
        covers: Ids and versions of the sources of a roll-up, including expired ones. A session start does not read them.
        unknown: Attributes of a later version, preserved on writes.
    """

    memory_id: str
    type: str
    content: str
    importance: float
    created_at: float
    updated_at: float
    metadata: Mapping[str, Any] = field(default_factory=dict)
    accessed_at: float = 0.0
    access_count: int = 0
    expires_at: int | None = None
    version: int = 1
    covers: Mapping[str, int] = field(default_factory=dict)
    unknown: Mapping[str, Any] = field(default_factory=dict)

    def expired(self, now: float) -> bool:
        """Return whether the memory has expired, even if the store has not deleted it yet."""
        return self.expires_at is not None and self.expires_at <= now

    def listed(self, name: str) -> list[Any]:
        """Return a list of the metadata; empty if the value is not a list."""
        found = self.metadata.get(name)
        return found if isinstance(found, list) else []

    def changed(self, **fields: Any) -> MemoryRecord:
        """Return the next version, with some fields changed."""
        return replace(self, version=self.version + 1, **fields)


@dataclass(frozen=True)
class Owner:
    """User to whom memories belong.

    Args:
        user_id: The user, unique within the tenant.
        tenant: The tenant; None is a tenant of its own.

    Raises:
        ValueError: An id is empty, longer than 1,024 characters, or not a string.
    """

    user_id: str
    tenant: str | None = None

    def __post_init__(self) -> None:
        checked_id("user_id", self.user_id)
        if self.tenant is not None:
            checked_id("tenant", self.tenant)

    @property
    def partition(self) -> str:
        """Partition value of the user's memories (``user_id`` of the table)."""
        return encoded_user(self.user_id, self.tenant)

    @property
    def changes_partition(self) -> str:
        """Partition value of statements and removals. Encoded user ids contain no slash, so it differs from all users'."""
        return f"changes/{self.partition}"

    @property
    def ids(self) -> dict[str, str | None]:
        """Original ids, stored in every record and compared on reads."""
        return {"user": self.user_id, "tenant": self.tenant}


def content_key(content: str) -> str:
    """Return a digest of a text that ignores case, width and white space."""
    plain = " ".join(unicodedata.normalize("NFKC", content).casefold().split())
    return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def summary_id(name: str, at: float) -> str:
    """Return the id of a session's summary. The ids are in the order of the times, seconds since 1970, of their sessions."""
    return f"{MemoryType.SUMMARY}#{round(at * 1000):012x}#{name}"


def question_id(summary_id: str) -> str:
    """Return the id of the open questions of the session that a summary covers."""
    return f"{MemoryType.QUESTION}#{summary_id.partition('#')[2]}"


def question_record(summary: MemoryRecord, rule: Retention) -> MemoryRecord:
    """Return the record of the open questions of a summary."""
    at = float(summary.metadata["ended_at"])
    return MemoryRecord(
        memory_id=question_id(summary.memory_id),
        type=MemoryType.QUESTION,
        content="",
        importance=rule.importance,
        created_at=summary.created_at,
        updated_at=summary.updated_at,
        expires_at=rule.expires_at(at),
        metadata={
            "open_questions": summary.listed("open_questions"),
            "session_id": summary.metadata.get("session_id"),
            "ended_at": at,
        },
    )


def content_id(type_: str, content: str) -> str:
    """Return the id of a memory, derived from its content, so that the same content is stored once."""
    return f"{type_}#~{content_key(content)}"


def preference_id(key: str) -> str:
    """Return the id of the preference ``key``; one record per key."""
    return f"{MemoryType.PREFERENCE}#{encoded_id(' '.join(key.casefold().split()))}"


def type_range(type_: str) -> tuple[str, str]:
    """Return the bounds of the sort values of a type's memories; ``$`` follows ``#`` in ASCII."""
    return f"{type_}#", f"{type_}$"


_KNOWN = {
    "memory_type",
    "importance_score",
    "content",
    "metadata",
    "created_at",
    "updated_at",
    "accessed_at",
    "access_count",
    "expires_at",
    "version",
    "covers",
    "schema",
    "owner",
    "sealed",
    "user_id",
    "memory_id",
}


SHOWN_ATTRIBUTES = tuple(sorted(_KNOWN - {"covers", "created_at", "owner", "version"}))
"""Attributes of a record that is shown and searched, and not written again."""


def item_of(record: MemoryRecord, owner: Owner, codec: Codec | None) -> Item:
    """Return the stored form of a record. Content and metadata are encoded with a codec or if a table cannot store them."""
    item: Item = {
        **record.unknown,
        "user_id": owner.partition,
        "memory_id": record.memory_id,
        "memory_type": str(record.type),
        "importance_score": record.importance,
        "created_at": record.created_at,
        "updated_at": record.updated_at,
        "accessed_at": record.accessed_at,
        "access_count": record.access_count,
        "version": record.version,
        "schema": SCHEMA,
        "owner": owner.ids,
    }
    if record.expires_at is not None:
        item["expires_at"] = record.expires_at
    if record.covers:
        item["covers"] = dict(record.covers)
    body = {"content": record.content, "metadata": dict(record.metadata)}
    return item | sealed_unless_plain(body, codec, place_of(owner, record.memory_id))


def sealed_unless_plain(body: dict[str, Any], codec: Codec | None, place: str) -> Item:
    """Return attributes unchanged if there is no codec and every table can store them, else as one encoded attribute."""
    if codec is None and _fits_a_table(body):
        return body
    return {"sealed": (codec or Codec()).encode(body, place)}


def opened_body(item: Item, codec: Codec | None, place: str) -> Any:
    """Decode the attributes of ``sealed_unless_plain``."""
    if "sealed" in item:
        return (codec or Codec()).decode(item["sealed"], place)
    if codec is not None:
        codec.check_plain(place)
    return item


def _fits_a_table(body: Mapping[str, Any]) -> bool:
    """Return whether every table can store these values. DynamoDB rejects deep nesting, NaN and lone surrogates."""
    if not is_json(body, levels=_MOST_LEVELS, bits=_MOST_BITS, exponents=_MOST_BITS):
        return False
    try:
        dump(body).decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def record_of(item: Item, owner: Owner, codec: Codec | None) -> MemoryRecord:
    """Return the record of a stored item.

    Raises:
        CorruptRecordError: The item is damaged, of a newer version, or of another user. The message names it.
    """
    place = place_of(owner, str(item.get("memory_id")))
    schema = item.get("schema", SCHEMA)
    if isinstance(schema, int) and schema > SCHEMA:
        raise CorruptRecordError(
            f"record={place!r} has schema {schema}, this package reads up to {SCHEMA}; upgrade it", record=place
        )
    if item.get("owner", owner.ids) != owner.ids:
        raise CorruptRecordError(f"record={place!r} belongs to other ids than those asked for", record=place)
    body = opened_body(item, codec, place)
    with trusted(place):
        return MemoryRecord(
            memory_id=_of(str, item["memory_id"], "memory_id"),
            type=MemoryType(item["memory_type"]),
            content=_of(str, body["content"], "content"),
            importance=_number(item["importance_score"], "importance_score"),
            metadata=_of(dict, body.get("metadata") or {}, "metadata"),
            created_at=_number(item.get("created_at", 0.0), "created_at"),
            updated_at=_number(item["updated_at"] if "updated_at" in item else item.get("created_at", 0.0), "updated_at"),
            accessed_at=_number(item.get("accessed_at", 0.0), "accessed_at"),
            access_count=_number(item.get("access_count", 0), "access_count"),
            expires_at=None if item.get("expires_at") is None else _number(item["expires_at"], "expires_at"),
            version=_number(item.get("version", 1), "version"),
            covers={id_: _number(version, "covers") for id_, version in _of(dict, item.get("covers") or {}, "covers").items()},
            unknown={name: value for name, value in item.items() if name not in _KNOWN},
        )


_MOST_LEVELS, _MOST_BITS = 20, 63
"""Limits of values stored in clear text. DynamoDB allows 32 levels, including those of the item itself."""

_MOST = 10**12
"""Exclusive upper bound of stored counts and times in seconds."""


def _of(kind: type, value: Any, what: str) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{what} is {value!r:.80}")
    return value


def _number(value: Any, what: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _MOST:
        raise TypeError(f"{what} is {value!r:.80}")
    return value


def place_of(owner: Owner, memory_id: str) -> str:
    """Return the key of a record, to which its encoded content is bound."""
    return f"{owner.partition}/{memory_id}"


def episode_id(summary_id: str, part: int) -> str:
    """Return the id of an episode part of the session that a summary covers."""
    return f"{MemoryType.EPISODE}#{summary_id.partition('#')[2].replace('#', '.')}#{part:03d}"


@dataclass
class Uses:
    """Access counts and last access times of memories."""

    counts: dict[str, tuple[int, float]] = field(default_factory=dict)

    def add(self, entry: Item) -> None:
        """Add an entry of the ledger.

        Raises:
            ValueError: The entry is invalid.
        """
        at, used = float(entry.get("at") or 0.0), entry.get("used") or ()
        if not (isinstance(used, list | tuple) and all(isinstance(id_, str) for id_ in used) and math.isfinite(at)):
            raise ValueError("a ledger entry must list the ids of memories")
        for id_ in used:
            count, latest = self.counts.get(id_, (0, 0.0))
            self.counts[id_] = count + 1, max(latest, at)


def counted(record: MemoryRecord, uses: Mapping[str, tuple[int, float]]) -> MemoryRecord:
    """Return a memory with the recalls of the ledger that its record does not include."""
    count, at = uses.get(record.memory_id, (0, 0.0))
    return replace(record, access_count=record.access_count + count, accessed_at=max(record.accessed_at, at))


logger = logging.getLogger(__name__)


@contextmanager
def skip_unreadable() -> Iterator[None]:
    """Skip an unreadable record without changing it, unless only its key is missing."""
    try:
        yield
    except KeyMissingError:
        raise
    except CorruptRecordError as error:
        logger.warning("error=<%s> | skipped an unreadable record of a user's memory", type(error).__name__)
