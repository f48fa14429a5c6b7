"""Storage of a conversation in the durable tier, which is a database table.

The table has two kinds of items of a conversation:

- ``<member>#HEAD``: the head, which is the conversation's record (state) without logged turns.
- ``<member>#TURN#<incarnation>#<time>.<tag>``: one turn of the log.

``member`` is the agent or orchestrator. ``incarnation`` is a number that grows with each deletion,
expiry or rewind of the conversation. ``<time>.<tag>`` is the key of the turn (``TurnKey``).

The attribute ``turn`` is JSON text with the turn's messages, unless the turn is encrypted or large.
The attributes ``intent``, ``tool_calls``, ``latency_ms`` and ``cache_hit`` describe a turn that is
not encrypted. A head or turn that is too large for one item continues in further items.
"""

from __future__ import annotations

import math
import random
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from threading import RLock
from typing import Any

from strands_manga_memory.exceptions import CorruptRecordError, OvertakenError
from strands_manga_memory.messages import is_message
from strands_manga_memory.session.protocol.record import (
    SEEN_TURNS,
    Record,
    Turn,
    TurnKey,
)
from strands_manga_memory.session.protocol.record_format import (
    open_json,
    open_turn,
    record_from_parts,
    record_to_json,
    seal_json,
    turn_to_json,
)
from strands_manga_memory.session.tiers import (
    ENDED_BELOW,
    FIRST_CHECK_SECONDS,
    HOT,
    TOMBSTONE,
    ConversationKey,
    ExpiryIndex,
    Tiers,
    directory_entry,
)
from strands_manga_memory.stores.codec import load, parsing
from strands_manga_memory.stores.hot import ACTIVE, DELETED
from strands_manga_memory.stores.table import ABSENT, Condition, Item, Key, Table
from strands_manga_memory.stores.writer import TierHealth

TRIES = 8
"""Number of attempts of a compare-and-set before a save fails."""

# lower than for other values: a head is binary data, which consoles do not show as text
_PLAIN_HEAD_BYTES = 1024
_MAX_CALLS = 20  # names of tools in a readable attribute


class DurableTier:
    """Access to one conversation in the durable tier, which is a database table.

    The head is the item with the conversation's record (its state). The log has an item for each
    turn. Each deletion, expiry or rewind begins a new incarnation (run) of the conversation, with
    its own log.

    Args:
        ids: Known unescaped ids of ``session``, ``user``, ``tenant`` and ``member`` (agent or
            orchestrator).

    Attributes:
        io: Lock that is held while the head is read or written.
        deadline: Seconds that a turn waits for the tier.
        is_known: Whether this process has read or written the head, or found that there is none.
        record: Record as last read or written; empty if it is missing, damaged or not known.
        head_item: Item of the head as last read or written; empty if it is missing or not known.
    """

    name = "durable"
    is_known: bool
    record: Record
    head_item: Item

    def __init__(
        self, conversation_key: ConversationKey, tiers: Tiers, ids: Mapping[str, str]
    ) -> None:
        assert tiers.durable is not None  # noqa: S101 - for the type checker
        self._conversation_key, self._tiers, self._table = conversation_key, tiers, tiers.durable
        self._session, self._member = conversation_key.session, conversation_key.member
        self._codec, self._key = tiers.codec, (self._session, f"{self._member}#HEAD")
        listed = directory_entry(self._session, ids)
        groups = [self._session, *([listed["session_id"]] if listed else [])]
        self._watched = [(group, TOMBSTONE) for group in groups]
        self.io = RLock()
        self.health = TierHealth(tier=self.name, shared=tiers.writer.durable_health)
        self.deadline = tiers.durable_deadline
        self.forget()

    def forget(self) -> None:
        """Discard the record in memory. It must be read again before the next write."""
        self.is_known, self.record, self.head_item = False, Record(), {}

    # The head

    def read(self) -> Record:
        """Read the conversation's record (state), and check if the session or user was deleted.

        Returns:
            The record, which is empty after a deletion, or if nothing is stored.

        Raises:
            StoreUnavailableError: The table does not answer.
            CorruptRecordError: The record cannot be read.
        """
        self.forget()
        found = self._table.batch_get([self._key, *self._watched])
        item = found.pop(self._key, None)
        record = Record()
        if item is not None and not self._is_expired(item):
            item, data = read_split(self._table, item)
            codec = self._tiers.codec_of(is_tombstone=item.get("state") == DELETED)
            with parsing(name := "/".join(self._key)):
                record = record_from_parts(open_json(data, name, codec))
        ended = self._ended_below(found.values())
        if ended > record.incarnation:
            record = Record(incarnation=ended, deleted_below=ended)
        self.is_known, self.record, self.head_item = True, record, item or {}
        return record

    def read_to_delete(self) -> None:
        """Read the conversation's record (state) before its deletion.

        A damaged record counts as empty, and raises no error.
        """
        try:
            self.read()
        except CorruptRecordError:
            self.head_item, self.is_known = self._table.get(*self._key) or {}, True

    def write(self, record: Record) -> bool:
        """Replace the conversation's record (state), unless another process has changed it.

        Args:
            record: The new record, merged with the one that was last read.

        Returns:
            False if another process has changed the record, or the session or user was deleted.
            Then read the record, merge it with ``record``, and try again.

        Raises:
            OvertakenError: The stored record is not known, as after a failed request. Read it
                first.
            StoreUnavailableError: The table does not answer. The record may have been stored.
        """
        if not self.is_known:
            raise OvertakenError("the head of the durable tier is not known")
        is_first = self.record.is_empty and not record.is_empty
        if is_first:
            listed = directory_entry(self._session, record.ids)
            due = self._tiers.clock() + FIRST_CHECK_SECONDS
            items = ExpiryIndex.items(self._conversation_key, record.ids, due=due)
            self._table.batch_write(puts=[*items, *([listed] if listed else [])])
        if not self._put_head(record):
            return False
        # The deletion of a session or user first puts a tombstone, then lists conversations. Here,
        # the head is put first, then the tombstones are read. So at least one of the two sees the
        # other.
        tombstones = self._table.batch_get(self._watched) if is_first else {}
        ended = self._ended_below(tombstones.values())
        if ended > record.incarnation:
            self._put_head(Record(incarnation=ended, deleted_below=ended))
            self.forget()
            return False
        return True

    def _put_head(self, record: Record) -> bool:
        before, known, ttl = self.head_item, self.record, self._tiers.ttl
        # The item of a deleted or damaged record may still have content.
        continues = not known.is_empty and record.incarnation == known.incarnation
        is_scrubbed = bool(before) and not (continues and record.redactions == known.redactions)
        self.forget()
        attributes: dict[str, Any] = {"state": DELETED if record.is_empty else ACTIVE}
        seconds = ttl.tombstone_seconds if record.is_empty else ttl.session + ttl.grace
        attributes[self._table.schema.ttl] = math.ceil(self._tiers.clock() + seconds)
        if not record.is_empty and "member" in record.ids:
            attributes["member"] = record.ids["member"]
        if self._tiers.hot is not None or before.get(HOT):
            attributes[HOT] = True
        codec = self._tiers.codec_of(is_tombstone=record.is_empty)
        name, text = "/".join(self._key), record_to_json(record)
        data = seal_json(text, name, codec, plain_bytes=_PLAIN_HEAD_BYTES)
        item = put_split(self._table, self._key, data, attributes, before=before, scrub=is_scrubbed)
        if item is not None:
            self.is_known, self.record, self.head_item = True, record, item
        return item is not None

    def remove_head(self) -> bool:
        """Delete the conversation's record (state), but not its log (list of turns).

        Return False if another process has changed the record.
        """
        item = self.head_item
        self.forget()
        when = Condition(equals={"v": item.get("v")})
        return not item or self._table.delete(*self._key, when=when)

    def _ended_below(self, tombstones: Iterable[Item]) -> int:
        """Return the number below which tombstones delete incarnations; 0 without tombstones."""
        with parsing(f"tombstones of {self._session}"):
            return max(
                (int(item[ENDED_BELOW]) for item in tombstones if not self._is_expired(item)),
                default=0,
            )

    def _is_expired(self, item: Item) -> bool:
        return (
            item.get("state") == DELETED
            and 0 < (item.get(self._table.schema.ttl) or 0) <= self._tiers.clock()
        )

    # The log

    def put_turn(self, incarnation: int, key: TurnKey, turn: Turn) -> bool:
        """Write a turn to the log (list of all turns). If the log has a copy of it, merge both.

        A damaged copy is replaced only if ``turn`` has redactions, because the copy may contain the
        removed texts. Otherwise, ``turn`` is not written.

        Returns:
            True if the log has the turn now. False if a damaged copy was kept.

        Raises:
            StoreUnavailableError: The table does not answer. The turn may have been stored, and can
                be put again.
        """
        where, merged = self._turn_key(incarnation, key), turn
        found: Item | None = None
        for _ in attempts("durable"):
            attributes = {} if self._codec.encrypts else _readable_attributes(merged)
            data = seal_json(turn_to_json(merged), "/".join(where), self._codec)
            with suppress(UnicodeDecodeError):  # encrypted, compressed, or with invalid characters
                attributes, data = {**attributes, "turn": data.decode()}, b""
            scrub = bool(merged.redacted)
            if put_split(self._table, where, data, attributes, before=found, scrub=scrub):
                break
            found = self._table.get(*where)
            read = None if found is None else self._turn_in(found)
            if found is not None and read is None and not turn.redacted:
                return False
            merged = turn if read is None else read.merge(turn)
            if read == merged:
                break
        return True

    def get_turns(self, incarnation: int, keys: Iterable[TurnKey]) -> dict[TurnKey, Turn]:
        """Read the turns with the given keys from the log. Missing and damaged turns are left out.

        Each incarnation, which a deletion, expiry or rewind ends, has its own log.
        """
        wanted = {self._turn_key(incarnation, key): key for key in keys}
        found = self._table.batch_get(list(wanted)) if wanted else {}
        turns = {wanted[where]: self._turn_in(item) for where, item in found.items()}
        return {key: turn for key, turn in turns.items() if turn is not None}

    def read_log(
        self, incarnation: int, *, newest: int | None = None, until: TurnKey | None = None
    ) -> dict[TurnKey, Turn]:
        """Read all turns of the conversation, or only the newest ones, from the log.

        A turn that cannot be read is returned without messages.

        Args:
            incarnation: Incarnation to read. A deletion, expiry or rewind ends it.
            newest: Minimum number of messages to read. Whole turns are read, from the newest back,
                until this number is reached. None: all turns.
            until: Key of the newest turn to read. Later turns are left out. None: no limit.
        """
        prefix, turns, count = self._prefix(incarnation), dict[TurnKey, Turn](), 0
        last = f"{prefix}{until or chr(0x10FFFF)}"
        # At least two, because the last item of a query is also the first one of the next.
        limit = None if newest is None else max(2, newest)
        while True:
            rows = self._table.query(
                self._session, first=prefix, last=last, reverse=newest is not None, limit=limit
            )
            items = 0
            for items, item in enumerate(rows, 1):  # noqa: B007 - counts parts of turns, too
                last = str(item["sk"])
                key = None if is_part(last) else TurnKey.parse(last.removeprefix(prefix))
                if key is not None and key not in turns:
                    turns[key] = self._turn_in(item) or Turn()
                    count += len(turns[key].messages)
                if newest is not None and count >= newest:
                    return turns
            if limit is None or items < limit:
                return turns

    def unlisted_keys(self, head: Record) -> list[TurnKey]:
        """Return the keys of turns in the log that the record ``head`` does not list as logged.

        A process leaves such turns if it stops between the write of the log (list of turns) and
        that of the record (state).
        """
        # Older turns are known, and a pinned turn may be as old as the log.
        newest = sorted(head.seen)[-SEEN_TURNS:]
        first = min([*newest, *head.unlogged]) if len(newest) == SEEN_TURNS else ""
        prefix = self._prefix(head.incarnation)
        sorts = self._sort_values(f"{prefix}{first}", f"{prefix}\U0010ffff")
        logged = [TurnKey.parse(sort.removeprefix(prefix)) for sort in sorts if not is_part(sort)]
        return [
            key
            for key in logged
            if not head.logged_length(key) and not head.is_older_than_seen(key)
        ]

    def _sort_values(self, first: str, last: str) -> list[str]:
        rows = self._table.query(self._session, first=first, last=last, attributes=[])
        return [str(row["sk"]) for row in rows]

    def incarnations(self) -> list[int]:
        """Return, in ascending order, the numbers of the incarnations that have a log.

        An incarnation (run) of a conversation ends with a deletion, expiry or rewind.
        """
        before = f"{self._member}#TURN#"
        sorts = self._sort_values(before, f"{before}\U0010ffff")
        found = {sort.removeprefix(before).partition("#")[0] for sort in sorts}
        return sorted(int(number) for number in found if number.isdecimal())

    def purge(self, below: int) -> None:
        """Delete the logs of the conversation's incarnations with numbers below ``below``."""
        sorts = self._sort_values(f"{self._member}#TURN#", self._prefix(below))
        if sorts:
            self._table.batch_write(deletes=[(self._session, sort) for sort in sorts])

    def _turn_in(self, item: Item) -> Turn | None:
        text = item.get("turn")
        read = text.encode if isinstance(text, str) else lambda: read_split(self._table, item)[1]
        return open_turn(read, self.name, "/".join(_key_of(item)), self._codec)

    def _prefix(self, incarnation: int) -> str:
        return f"{self._member}#TURN#{incarnation:012d}#"

    def _turn_key(self, incarnation: int, key: TurnKey) -> Key:
        return self._session, f"{self._prefix(incarnation)}{key}"


def attempts(tier: str) -> Iterator[int]:
    """Yield the number of each attempt to replace a record, from 0 to 7, with pauses.

    The caller leaves the loop after a success.

    Raises:
        OvertakenError: All attempts have failed.
    """
    for attempt in range(TRIES):
        if attempt:
            sleep(random.uniform(0.0, min(0.05, 0.0005 * 2**attempt)))  # noqa: S311 - jitter
        yield attempt
    raise OvertakenError(
        f"the {tier} record was replaced {TRIES} times by others; changes are kept, try again"
    )


sleep = time.sleep


def _readable_attributes(turn: Turn) -> dict[str, Any]:
    with parsing("a turn"):
        messages = [message for message in map(load, turn.messages) if is_message(message)]
    found: dict[str, Any] = {"intent": turn.about["intent"]} if turn.about.get("intent") else {}
    calls = [
        block["toolUse"]["name"]
        for message in messages
        for block in message["content"]
        if "toolUse" in block
    ]
    if calls:
        found["tool_calls"] = calls[:_MAX_CALLS]
    for message in messages:
        metadata = _dict_or_empty(message.get("metadata"))
        latency = _dict_or_empty(metadata.get("metrics")).get("latencyMs")
        cached = _dict_or_empty(metadata.get("usage")).get("cacheReadInputTokens")
        if isinstance(latency, int | float):
            found["latency_ms"] = found.get("latency_ms", 0) + latency
        if cached is not None:
            found["cache_hit"] = bool(found.get("cache_hit") or cached)
    return found


def _dict_or_empty(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


# Values of any size: a value that exceeds one item is split into several items.

MAX_BYTES = 350_000
"""Maximum bytes of a value in one item. DynamoDB's limit is 400 KB with names and keys."""

MAX_PARTS = 10_000
"""Maximum number of items of a value. A value that lists more items is damaged."""

_MAX_READS = 10  # of a value that other writers keep replacing


def put_split(
    table: Table,
    key: Key,
    data: bytes,
    attributes: Mapping[str, Any],
    *,
    before: Item | None = None,
    scrub: bool = False,
) -> Item | None:
    """Store a value of any size in one or more items of a table, all with the same time to live.

    The first item is written last, so that no reader sees an incomplete value.

    Args:
        table: The table.
        key: Key of the first item.
        data: The value; empty if it is in ``attributes``.
        attributes: Further attributes of the first item.
        before: First item of the value to replace, as last read; None or empty for a new value. The
            write is refused if another value is stored now.
        scrub: Whether to delete all items of earlier values, also those of interrupted writes.
            Needed after a redaction.

    Returns:
        The first item without the value; None if the write was refused.
    """
    obsolete: set[Key] = set()
    if scrub:
        rows = table.query(key[0], first=f"{key[1]}~", last=f"{key[1]}~\U0010ffff", attributes=[])
        obsolete = {_key_of(row) for row in rows}
    chunks = [data[at : at + MAX_BYTES] for at in range(0, len(data), MAX_BYTES)]
    item: Item = {"session_id": key[0], "sk": key[1], "v": secrets.randbits(50), **attributes}
    if len(chunks) > 1:
        item["parts"] = len(chunks)
    parts = part_keys(item)
    expiry = {name: value for name, value in attributes.items() if name == table.schema.ttl}
    for part, chunk in zip(parts, chunks[1:], strict=True):
        table.put({"session_id": part[0], "sk": part[1], "data": chunk, **expiry})
    when = Condition(equals={"v": before.get("v")}) if before else ABSENT
    is_put = table.put({**item, **({"data": chunks[0]} if chunks else {})}, when=when, scrub=scrub)
    if not is_put and parts:
        # The driver may have repeated a put that had already succeeded.
        is_put = (table.get(*key) or {}).get("v") == item["v"]
    if not is_put:
        obsolete = set(parts)
    elif before and not scrub:
        obsolete = set(part_keys(before))
    if obsolete:
        table.batch_write(deletes=sorted(obsolete))
    return item if is_put else None


def read_split(table: Table, item: Item) -> tuple[Item, bytes]:
    """Read a value that is stored in one or more items of a table.

    ``item`` is the first item. If another process replaces the value during the read, the new value
    is read.

    Returns:
        The first item, which is new if the value was replaced, and the value.

    Raises:
        CorruptRecordError: An item of the value is missing.
        OvertakenError: The value was deleted, or replaced too often, during the read.
    """
    key = _key_of(item)
    name = "/".join(key)
    for _ in range(_MAX_READS):
        keys = part_keys(item)
        found = table.batch_get(keys) if keys else {}
        with suppress(KeyError, TypeError):  # a part is missing, or is not bytes
            return item, b"".join([item["data"], *[found[key]["data"] for key in keys]])
        present = table.get(*key)
        if present is None:
            break
        if present.get("v") == item.get("v"):
            raise CorruptRecordError(
                f"record={name!r} is damaged: parts of it are missing", record=name
            )
        item = present
    raise OvertakenError(f"record={name!r} changed while it was read")


def part_keys(item: Item) -> list[Key]:
    """Return the table keys of all items of a split value, except the first.

    ``item`` is the first item, which has the number of items. An invalid number raises
    ``CorruptRecordError``.
    """
    (partition, sort), parts = _key_of(item), item.get("parts", 1)
    if type(parts) is not int or not 0 < parts <= MAX_PARTS:
        name = f"{partition}/{sort}"
        raise CorruptRecordError(f"record={name!r} is damaged: it has {parts!r} parts", record=name)
    return [(partition, f"{sort}~{part:03d}.{item.get('v')}") for part in range(1, parts)]


def _key_of(item: Item) -> Key:
    return item["session_id"], item["sk"]


def is_part(sort: str) -> bool:
    """Return whether a table item continues a value that is too large for one item."""
    return "~" in sort.rpartition("#")[2]
