"""Records of a user's memory: their types, how long each is kept, their stored form, and counts of recalls."""

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
"""Seconds of a day."""


class MemoryType(StrEnum):
    """Kind of a memory."""

    PREFERENCE = "preference"
    """A preference of the user; made by ``UserMemoryStore.prefer`` and by the session finalizer."""
    SUMMARY = "interaction_summary"
    """Summary of a session; made by the session finalizer."""
    FEEDBACK = "feedback"
    """Feedback of the user; made by ``UserMemoryStore.record_feedback``."""
    PATTERN = "behavioural_pattern"
    """Repeated behavior of the user; derived when a session is finalized."""
    FACT = "fact"
    """What an extractor or the ``add_memory`` tool of Strands' ``MemoryManager`` stored."""
    EPISODE = "episode"
    """Messages of a session, without tool results; made by the session finalizer, found by ``search``."""
    WEEK = "weekly_rollup"
    """A week's sessions; made by ``MemoryRollup``."""
    MONTH = "monthly_rollup"
    """A month's sessions; made by ``MemoryRollup``."""


DERIVED = frozenset({MemoryType.EPISODE, MemoryType.WEEK, MemoryType.MONTH})
"""Types that are made from sessions and their summaries; ``recall`` returns them only when asked for by type."""


@dataclass(frozen=True)
class Retention:
    """How a type of memory is kept.

    Args:
        seconds: Seconds a memory is kept after it was last learned; None for ever.
        importance: Importance of a new memory, from 0 to 1.
        half_life: Seconds in which its recency halves when memories are ranked; None: it never does.

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
        """Return when a memory ends, in seconds since 1970; None: never."""
        return None if self.seconds is None else int(learned_at + self.seconds)


RETENTION: Mapping[MemoryType, Retention] = MappingProxyType(
    {
        MemoryType.PREFERENCE: Retention(None, 0.9, None),
        MemoryType.SUMMARY: Retention(90 * DAY, 0.6),
        MemoryType.FEEDBACK: Retention(180 * DAY, 0.7, 60 * DAY),
        MemoryType.PATTERN: Retention(30 * DAY, 0.4, 15 * DAY),
        MemoryType.FACT: Retention(180 * DAY, 0.6, 60 * DAY),
        MemoryType.EPISODE: Retention(90 * DAY, 0.4, 60 * DAY),
        MemoryType.WEEK: Retention(90 * DAY, 0.6),
        MemoryType.MONTH: Retention(90 * DAY, 0.6),
    }
)
"""How long each type is kept, and how much it matters at first. Weeks and months are made from summaries."""


SCHEMA = 1
"""Version of a record. A newer one is refused."""

INTERNAL = "~"
"""Prefix of ids that are no memories: ledger, spool, erasure marker, statements. The prefix sorts after every type."""

LEDGER = "~ledger#"
ERASED = "~erased"
CHANGES = "~changes"
"""Id of the item with the user's statements, the removals and the revision; see ``PreferenceLog``."""
RETRACTED = "~retracted#"
"""Prefix of the ids of the notes on retracted messages."""
FORGOTTEN = "~forgotten#"
"""Prefix of the ids of the notes on forgotten summaries, episodes, patterns and roll-ups."""


@dataclass(frozen=True, kw_only=True)
class MemoryRecord:
    """One memory.

    Attributes:
        memory_id: Unique within the user; begins with the type.
        type: A ``MemoryType``.
        content: What is remembered.
        importance: 0 to 1.
        metadata: Whatever goes with it.
        created_at: When it was first learned, in seconds since 1970.
        updated_at: When it was last learned.
        last_accessed: When it was last recalled, as far as the ledger has been folded in; 0: never.
        access_count: How often it was recalled, likewise.
        expires_at: When it ends; None: never.
        version: Raised by each change.
        unknown: Attributes of a later version; kept and written back.
    """

    memory_id: str
    type: str
    content: str
    importance: float
    created_at: float
    updated_at: float
    metadata: Mapping[str, Any] = field(default_factory=dict)
    last_accessed: float = 0.0
    access_count: int = 0
    expires_at: int | None = None
    version: int = 1
    unknown: Mapping[str, Any] = field(default_factory=dict)

    def expired(self, now: float) -> bool:
        """Tell whether it has ended, whether or not the store has deleted it."""
        return self.expires_at is not None and self.expires_at <= now

    def listed(self, name: str) -> list[Any]:
        """Return a list of the metadata; an empty one if that is no list."""
        found = self.metadata.get(name)
        return found if isinstance(found, list) else []

    def changed(self, **fields: Any) -> MemoryRecord:
        """Return the next version, with some fields changed."""
        return replace(self, version=self.version + 1, **fields)


@dataclass(frozen=True)
class Owner:
    """Whose memories they are.

    Args:
        user_id: The user, unique within the tenant.
        tenant: The tenant; None is a tenant of its own.

    Raises:
        ValueError: An id is empty, longer than 1,024 characters, or no string.
    """

    user_id: str
    tenant: str | None = None

    def __post_init__(self) -> None:
        checked_id("user_id", self.user_id)
        if self.tenant is not None:
            checked_id("tenant", self.tenant)

    @property
    def partition(self) -> str:
        """The ``user_id`` of the table."""
        return encoded_user(self.user_id, self.tenant)

    @property
    def changes_partition(self) -> str:
        """The ``user_id`` of statements and notes on removals, which are no memories. No escaped user id holds a slash."""
        return f"changes/{self.partition}"

    @property
    def ids(self) -> dict[str, str | None]:
        """The original ids, which every record keeps, to be compared on read."""
        return {"user": self.user_id, "tenant": self.tenant}


def content_key(content: str) -> str:
    """Return a key of a text: the same for texts that differ only in case, width and white space."""
    plain = " ".join(unicodedata.normalize("NFKC", content).casefold().split())
    return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def content_id(type_: str, content: str) -> str:
    """Return the id of a memory that is known by its content, so that learning it twice stores it once."""
    return f"{type_}#~{content_key(content)}"


def preference_id(key: str) -> str:
    """Return the id of the preference ``key``: one record for each key."""
    return f"{MemoryType.PREFERENCE}#{encoded_id(' '.join(key.casefold().split()))}"


def type_range(type_: str) -> tuple[str, str]:
    """Return the first and last sort value of a type's memories: ``$`` follows ``#``."""
    return f"{type_}#", f"{type_}$"


_KNOWN = {
    "memory_type",
    "importance_score",
    "content",
    "metadata",
    "created_at",
    "updated_at",
    "last_accessed",
    "access_count",
    "expires_at",
    "version",
    "schema",
    "owner",
    "sealed",
    "user_id",
    "memory_id",
}


def item_of(record: MemoryRecord, owner: Owner, codec: Codec | None) -> Item:
    """Return a record as the table stores it: with a codec, and where the table has no such values, sealed."""
    item: Item = {
        **record.unknown,
        "user_id": owner.partition,
        "memory_id": record.memory_id,
        "memory_type": str(record.type),
        "importance_score": record.importance,
        "created_at": record.created_at,
        "updated_at": record.updated_at,
        "last_accessed": record.last_accessed,
        "access_count": record.access_count,
        "version": record.version,
        "schema": SCHEMA,
        "owner": owner.ids,
    }
    if record.expires_at is not None:
        item["expires_at"] = record.expires_at
    body = {"content": record.content, "metadata": dict(record.metadata)}
    return item | sealed_unless_plain(body, codec, place_of(owner, record.memory_id))


def sealed_unless_plain(body: dict[str, Any], codec: Codec | None, place: str) -> Item:
    """Return attributes as they are if there is no codec and any table stores them, else as one sealed attribute."""
    if codec is None and _fits_a_table(body):
        return body
    return {"sealed": (codec or Codec()).encode(body, place)}


def opened_body(item: Item, codec: Codec | None, place: str) -> Any:
    """Return the attributes of ``sealed_unless_plain``."""
    if "sealed" in item:
        return (codec or Codec()).decode(item["sealed"], place)
    if codec is not None:
        codec.check_plain(place)
    return item


def _fits_a_table(body: Mapping[str, Any]) -> bool:
    """Tell whether any table stores these values as they are: DynamoDB has neither deep ones, nor NaN, nor half characters."""
    if not is_json(body, levels=_MOST_LEVELS, bits=_MOST_BITS, exponents=_MOST_BITS):
        return False
    try:
        dump(body).decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def record_of(item: Item, owner: Owner, codec: Codec | None) -> MemoryRecord:
    """Return the record of ``item_of``.

    Raises:
        CorruptRecordError: It is damaged, of a newer version, or someone else's. Names the record.
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
            last_accessed=_number(item.get("last_accessed", 0.0), "last_accessed"),
            access_count=_number(item.get("access_count", 0), "access_count"),
            expires_at=None if item.get("expires_at") is None else _number(item["expires_at"], "expires_at"),
            version=_number(item.get("version", 1), "version"),
            unknown={name: value for name, value in item.items() if name not in _KNOWN},
        )


_MOST_LEVELS, _MOST_BITS = 20, 63
"""Of a value that is stored in the clear. DynamoDB takes 32 levels, those of the item itself included."""

_MOST = 10**12
"""A count or a time (in seconds) beyond this was not stored by this package."""


def _of(kind: type, value: Any, what: str) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{what} is {value!r:.80}")
    return value


def _number(value: Any, what: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _MOST:
        raise TypeError(f"{what} is {value!r:.80}")
    return value


def place_of(owner: Owner, memory_id: str) -> str:
    """Return the name of a record, which is bound to its sealed content."""
    return f"{owner.partition}/{memory_id}"


def episode_id(summary_id: str, part: int) -> str:
    """Return the id of a part of what was said in the session that a summary is about."""
    return f"{MemoryType.EPISODE}#{summary_id.partition('#')[2].replace('#', '.')}#{part:03d}"


@dataclass
class Uses:
    """How often each memory was recalled, and when last."""

    counts: dict[str, tuple[int, float]] = field(default_factory=dict)

    def add(self, entry: Item) -> None:
        """Add an entry of the ledger.

        Raises:
            ValueError: It does not say what was used.
        """
        at, used = float(entry.get("at") or 0.0), entry.get("used") or ()
        if not (isinstance(used, list | tuple) and all(isinstance(id_, str) for id_ in used) and math.isfinite(at)):
            raise ValueError("it does not say what was used")
        for id_ in used:
            count, latest = self.counts.get(id_, (0, 0.0))
            self.counts[id_] = count + 1, max(latest, at)


def counted(record: MemoryRecord, uses: Mapping[str, tuple[int, float]]) -> MemoryRecord:
    """Return a memory with the recalls that the ledger has and its record has not."""
    count, at = uses.get(record.memory_id, (0, 0.0))
    return replace(record, access_count=record.access_count + count, last_accessed=max(record.last_accessed, at))


logger = logging.getLogger(__name__)


@contextmanager
def skip_unreadable() -> Iterator[None]:
    """Leave a record that cannot be read as it is, and go on with the others, unless it only lacks its key."""
    try:
        yield
    except KeyMissingError:
        raise
    except CorruptRecordError as error:
        logger.warning("error=<%s> | a record of a user's memory cannot be read, it is left as it is", type(error).__name__)
