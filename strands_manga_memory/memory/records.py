"""Records of a user's memory: types, retention, ids, and conversion to and from stored items.

A session is finalized after its end: memories of several types are created from its messages.
"""

from __future__ import annotations

import hashlib
import json
import logging
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Any, TypeGuard

from pydantic import ConfigDict, Field, InstanceOf, Strict, TypeAdapter

from strands_manga_memory.arguments import PositiveSeconds, Share, checked
from strands_manga_memory.exceptions import CorruptRecordError, KeyMissingError
from strands_manga_memory.scope import checked_id, encoded_id, encoded_user
from strands_manga_memory.stores.codec import Codec, is_json, parsing
from strands_manga_memory.stores.table import Item

DAY = 86_400.0
"""Seconds per day."""


MAX_TOKENS = 800
"""Most tokens of the whole text about the user."""

ENTRY_CHARACTERS = 400
"""Most characters of a memory in a request."""

EMPTY = "No prior interaction history."


class MemoryType(StrEnum):
    """Type of a user's memory, such as a preference or the summary of a session."""

    PREFERENCE = "preference"
    """Preference of the user, from ``UserMemoryStore.prefer`` or from a message."""
    SUMMARY = "interaction_summary"
    """Summary of one session, from finalizing or from ``UserMemoryStore.store_session_summary``."""
    FEEDBACK = "feedback"
    """Feedback of the user, from ``UserMemoryStore.record_feedback``."""
    PATTERN = "behavioral_pattern"
    """Topic of several sessions, found when a session is finalized."""
    FACT = "fact"
    """Fact from ``UserMemoryStore.remember``, or from Strands' extraction or memory tool."""
    EPISODE = "episode"
    """Messages of a session without tool results, stored when the session is finalized."""
    WEEK = "weekly_rollup"
    """Summary of the sessions of one week, made when a session is finalized."""
    MONTH = "monthly_rollup"
    """Summary of the sessions of one month, made when a session is finalized."""
    QUESTION = "question"
    """Open questions of a session, copied from its summary so that they can be read without it."""


DERIVED = frozenset({MemoryType.EPISODE, MemoryType.WEEK, MemoryType.MONTH, MemoryType.QUESTION})
"""Types of memories that ``recall`` returns only if their type is requested."""


@checked
@dataclass(frozen=True)
class Retention:
    """Retention time and ranking values of one type of memory.

    Args:
        seconds: Storage time in seconds; None means no limit. It begins when the memory was last
            stored or renewed. For a memory that was made from sessions, such as a weekly summary,
            it begins at the end of the last session.
        importance: Importance of a new memory, from 0 to 1.
        half_life: Seconds in which the recency factor of a memory's rank halves. None means that
            age does not matter.

    Raises:
        ValueError: A value is out of range.
    """

    seconds: PositiveSeconds | None
    importance: Share
    half_life: PositiveSeconds | None = 30 * DAY

    def expires_at(self, learned_at: float) -> int | None:
        """Return the time at which a memory expires, in seconds since 1970; None if it never does.

        ``learned_at`` is the time from which the retention counts, in seconds since 1970.
        """
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
"""Default retention of each type of memory."""


SCHEMA = 1
"""Schema version of stored records. A record with a higher version is rejected."""

INTERNAL = "~"
"""Prefix of the ids of items that are not memories, such as recorded accesses."""

LEDGER = "~ledger#"
ERASED = "~erased"
LATEST = "~by_age"
"""Id of the list of the latest facts and feedback. It sorts before other ids with ``INTERNAL``."""
CHANGES = "~changes"
"""Id of the item with a user's ``PreferenceLog``."""


_MAX_NUMBER = 10**12
"""Exclusive upper bound of stored counts and times in seconds."""
_Number = Annotated[float, Strict(), Field(ge=0, lt=_MAX_NUMBER)]
_Count = Annotated[int, Strict(), Field(ge=0, lt=_MAX_NUMBER)]


@dataclass(frozen=True, kw_only=True)
class MemoryRecord:
    """One memory of a user. Times are in seconds since 1970.

    Attributes:
        memory_id: Id of the memory, unique for the user. It begins with the type.
        type: Type of the memory.
        content: Text of the memory.
        importance: Importance from 0 to 1.
        metadata: Additional data.
        created_at: Time when the memory was first stored.
        updated_at: Time when the memory was last changed or stated again.
        accessed_at: Time of the last search or recall that returned the memory; 0 without one. The
            latest searches and recalls may not be included yet.
        access_count: Number of searches and recalls that returned the memory. The latest may not be
            included yet.
        expires_at: Expiry time. None means never.
        version: Number that each change increments, except a change of the access count or access
            time.
        covers: Versions of the session summaries that a weekly or monthly summary includes, keyed
            by their ids. Empty for other types, and when read at a session start.
        unknown: Attributes that a later version of this package wrote, kept on writes.
    """

    __pydantic_config__ = ConfigDict(validate_by_name=True)

    memory_id: InstanceOf[str]
    type: Annotated[MemoryType, Field(alias="memory_type")]
    content: InstanceOf[str]
    importance: Annotated[_Number, Field(alias="importance_score")]
    created_at: _Number
    updated_at: _Number
    metadata: InstanceOf[Mapping[str, Any]] = field(default_factory=dict)
    accessed_at: _Number = 0.0
    access_count: _Count = 0
    expires_at: _Count | None = None
    version: _Count = 1
    covers: Mapping[str, _Count] = field(default_factory=dict)
    unknown: Mapping[str, Any] = field(default_factory=dict)

    def expired(self, now: float) -> bool:
        """Return whether the memory has expired at the time ``now``, in seconds since 1970.

        Stores delete expired memories with a delay, so a table may still contain them.
        """
        return self.expires_at is not None and self.expires_at <= now

    def listed(self, name: str) -> list[Any]:
        """Return the list that the metadata has under ``name``; empty if there is no list."""
        found = self.metadata.get(name)
        return found if isinstance(found, list) else []

    @property
    def key_and_value(self) -> tuple[str, str]:
        """Key and value of a preference; otherwise an empty text and the content of the memory."""
        key, value = self.metadata.get("preference_key"), self.metadata.get("value")
        if isinstance(key, str) and key and isinstance(value, str):
            return key, value
        return "", self.content

    def changed(self, **fields: Any) -> MemoryRecord:
        """Return a copy of the memory with some fields changed and the next version number."""
        return replace(self, version=self.version + 1, **fields)


def new_record(memory_id: str, importance: float, at: float, **fields: Any) -> MemoryRecord:
    """Create a memory at the time ``at``, in seconds since 1970. By default, its content is empty.

    ``memory_id`` begins with the type of the memory and ``#``.
    """
    type_ = MemoryType(memory_id.partition("#")[0])
    given = {"content": "", "created_at": at, "updated_at": at, **fields}
    return MemoryRecord(memory_id=memory_id, type=type_, importance=importance, **given)


_STORED = TypeAdapter(MemoryRecord)
"""Checks of the fields of a stored record."""


@dataclass(frozen=True)
class Owner:
    """User, identified by user id and tenant, to whom memories belong.

    Args:
        user_id: User id, unique within the tenant.
        tenant: Tenant of the user. Users without a tenant are separate from the users of all
            tenants.

    Raises:
        ValueError: An id is empty, longer than 1,024 characters, or not a string.
    """

    user_id: str
    tenant: str | None = None

    def __post_init__(self) -> None:
        checked_id("user_id", self.user_id)
        if self.tenant is not None:
            checked_id("tenant", self.tenant)

    @cached_property
    def partition(self) -> str:
        """Partition key of the user's memories in the table."""
        return encoded_user(self.user_id, self.tenant)

    @cached_property
    def preference_log_partition(self) -> str:
        """Partition key of the user's preference log in the table."""
        return f"changes/{self.partition}"

    @property
    def ids(self) -> dict[str, str | None]:
        """User id and tenant, stored in each record to detect records of other users."""
        return {"user": self.user_id, "tenant": self.tenant}


_LATEST = 253_402_300_799.0
"""Latest time that ``datetime`` can represent, in seconds since 1970."""


def ended_at(record: MemoryRecord) -> float:
    """Return the time when the session of a memory ended, in seconds since 1970.

    For a weekly or monthly summary, it is the end of the last session. For a memory without a
    session, it is the time of the last update.
    """
    at = record.metadata.get("ended_at", record.updated_at)
    return float(at) if _is_time(at) else min(record.updated_at, _LATEST)


def _is_time(at: object) -> TypeGuard[float]:
    return isinstance(at, int | float) and 0 <= at < _LATEST


def day_of(at: object) -> str:
    """Return the date of a time in seconds since 1970; empty if ``at`` is no such time."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}" if _is_time(at) else ""


@dataclass(frozen=True)
class AgentContext:
    """Text about a user for an agent.

    Attributes:
        preferences: Text about the user's preferences, for the system prompt.
        history: Text about the user's earlier sessions, to insert into a message of the request.
        values: Value of each preference and time of its last change, in seconds since 1970, keyed
            by subject such as ``genre``.
        read_at: Time when the memories were read, in seconds since 1970.
    """

    preferences: str = ""
    history: str = ""
    values: Mapping[str, tuple[str, float]] = field(default_factory=dict, compare=False)
    read_at: float = field(default=0.0, compare=False)

    @property
    def text(self) -> str:
        """Preferences and history in one text.

        If both are empty, the text is ``No prior interaction history.``.
        """
        return "\n".join(part for part in (self.preferences, self.history) if part) or EMPTY


def content_key(content: str) -> str:
    """Return a digest of a text. Case, character width and white space do not change the digest."""
    plain = " ".join(unicodedata.normalize("NFKC", content).casefold().split())
    return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def summary_id(name: str, at: float) -> str:
    """Return the memory id of a session summary. The ids sort by time.

    ``name`` is usually an encoded session id. ``at`` is in seconds since 1970.
    """
    return f"{MemoryType.SUMMARY}#{round(at * 1000):012x}#{name}"


def question_id(summary_id: str) -> str:
    """Return the id of the record with a session's open questions, given the id of its summary."""
    return f"{MemoryType.QUESTION}#{summary_id.partition('#')[2]}"


def question_record(summary: MemoryRecord, rule: Retention) -> MemoryRecord:
    """Create the record with the open questions of a session summary."""
    at = float(summary.metadata["ended_at"])
    return new_record(
        question_id(summary.memory_id),
        rule.importance,
        summary.created_at,
        updated_at=summary.updated_at,
        expires_at=rule.expires_at(at),
        metadata={
            "open_questions": summary.listed("open_questions"),
            "session_id": summary.metadata.get("session_id"),
            "ended_at": at,
        },
    )


def content_id(type_: str, content: str) -> str:
    """Return a memory's id, derived from its content so that the same content is stored once."""
    return f"{type_}#~{content_key(content)}"


def preference_id(key: str) -> str:
    """Return the memory id of a preference with a key such as ``genre``, in any case or spacing."""
    return f"{MemoryType.PREFERENCE}#{encoded_id(' '.join(key.casefold().split()))}"


def type_range(type_: str) -> tuple[str, str]:
    """Return the bounds of the sort keys of all memories of one type, for a query of the table."""
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


SHOWN_ATTRIBUTES = ("latest", *sorted(_KNOWN - {"covers", "created_at", "owner", "version"}))
"""Attributes that are read for display and search. Only the item ``LATEST`` has ``latest``."""


def item_of(record: MemoryRecord, owner: Owner, codec: Codec | None) -> Item:
    """Convert a record to the item that is stored in the table.

    Without a codec, two kinds of content are encoded: messages of a session, to compress them, and
    content with a value that DynamoDB rejects, such as NaN.
    """
    plain = _STORED.dump_python(
        record,
        by_alias=True,
        exclude={"content", "metadata", "unknown"},
        exclude_none=True,
        mode="json",
    )
    if not record.covers:
        del plain["covers"]
    key = {"user_id": owner.partition, "schema": SCHEMA, "owner": owner.ids}
    item: Item = {**record.unknown, **plain, **key}
    if codec is None and record.type == MemoryType.EPISODE:
        codec = Codec()
    body = {"content": record.content, "metadata": dict(record.metadata)}
    return item | sealed_unless_plain(body, codec, storage_key_of(owner, record.memory_id))


def sealed_unless_plain(body: dict[str, Any], codec: Codec | None, storage_key: str) -> Item:
    """Return the content of a record as the table stores it.

    With a codec, it is encoded. Without a codec, it is plain, unless DynamoDB rejects a value in
    it: deep nesting, NaN or a lone surrogate. ``storage_key`` comes from ``storage_key_of``.
    """
    if codec is None and is_json(body, levels=_MAX_LEVELS, exponents=_MAX_EXPONENT):
        with suppress(UnicodeEncodeError):  # of a lone surrogate
            json.dumps(body, ensure_ascii=False).encode()
            return body
    return {"sealed": (codec or Codec()).encode(body, storage_key)}


def opened_body(item: Item, codec: Codec | None, storage_key: str) -> Any:
    """Return the content of a stored record, decoded if it was stored in encoded form.

    Content that was encoded with another ``storage_key`` (from ``storage_key_of``) is refused.
    """
    if "sealed" in item:
        return (codec or Codec()).decode(item["sealed"], storage_key)
    if codec is not None:
        codec.check_plain(storage_key)
    return item


def record_of(item: Item, owner: Owner, codec: Codec | None) -> MemoryRecord:
    """Convert a stored item to a memory.

    Raises:
        CorruptRecordError: The item is damaged, has a newer schema version, or belongs to another
            user.
    """
    storage_key = storage_key_of(owner, str(item.get("memory_id")))
    schema, problem = item.get("schema"), ""
    if isinstance(schema, int) and schema > SCHEMA:
        limit = f"this package reads up to {SCHEMA}; upgrade the package"
        problem = f"has schema {schema}, {limit}"
    elif item.get("owner", owner.ids) != owner.ids:
        problem = "belongs to other ids than those asked for"
    if problem:
        raise CorruptRecordError(f"record={storage_key!r} {problem}", record=storage_key)
    body = opened_body(item, codec, storage_key)
    unknown = {name: value for name, value in item.items() if name not in _KNOWN}
    given = {name: value for name, value in item.items() if name in _KNOWN and value is not None}
    fields = {"updated_at": given.get("created_at", 0.0), "created_at": 0.0, **given}
    with parsing(storage_key):
        body = {"content": body["content"], "metadata": body.get("metadata") or {}}
        return _STORED.validate_python({**fields, **body, "unknown": unknown})


_MAX_LEVELS, _MAX_EXPONENT = 20, 63
"""Limits of nesting levels and binary exponents of values that are stored in clear text."""


def storage_key_of(owner: Owner, memory_id: str) -> str:
    """Return the storage key of a memory: the partition key of the user, and the memory id.

    Encoded content cannot be decoded under another key.
    """
    return f"{owner.partition}/{memory_id}"


def episode_id(summary_id: str, part: int) -> str:
    """Return the memory id of a part of a session's stored messages, such as ``episode#s1#000``.

    ``summary_id`` is the memory id of the session's summary, and ``part`` the number of the part.
    """
    return f"{episodes_of(summary_id)}#{part:03d}"


def episodes_of(summary_id: str) -> str:
    """Return the common beginning of the memory ids of a session's stored messages (episodes).

    For example, ``episode#s1`` for ``episode#s1#000``, ``episode#s1#001`` and so on. ``summary_id``
    is the memory id of the session's summary.
    """
    return f"{MemoryType.EPISODE}#{summary_id.partition('#')[2].replace('#', '.')}"


logger = logging.getLogger(__name__)


@contextmanager
def skip_unreadable() -> Iterator[None]:
    """Skip an unreadable record in a ``with`` block, and log its error.

    A missing encryption key still raises ``KeyMissingError``.
    """
    try:
        yield
    except KeyMissingError:
        raise
    except CorruptRecordError as error:
        logger.warning(
            "error=<%s> | skipped an unreadable record of a user's memory", type(error).__name__
        )
