"""Segments: the log of a conversation in a ``Table``, and the keys of its records there."""

from __future__ import annotations

import itertools
import logging
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from strands_manga_memory.exceptions import CorruptRecordError, StoreUnavailableError
from strands_manga_memory.session.core.identity import Name, Segment
from strands_manga_memory.session.core.packed_messages import Wanted, pack_messages, unpack_messages
from strands_manga_memory.session.core.records import Message, in_order
from strands_manga_memory.session.replicas.split import is_part, key_of, put_split, whole_value
from strands_manga_memory.stores.encoding.codec import Codec
from strands_manga_memory.stores.table import ABSENT, Condition, Item, Key, Table, delete_rows

logger = logging.getLogger(__name__)

_MOST_LISTED, _MOST_NAME = 100_000, 100
"""A head that lists more segments, or has longer names of lives and writers, is damaged, whatever else it says."""

_MOST_CLOCKS = 100
"""Clocks from the first to the last message of a segment, at most but for one of a writer that others joined for long."""

_MOST_TRIES = 8
"""How often a segment that others change meanwhile is joined before the flush is put off."""


def head_key(session: str, member: str) -> Key:
    """Return the key of the head."""
    return session, f"{member}#HEAD"


def segment_key(session: str, member: str, segment: Segment) -> Key:
    """Return the key of a segment of the log."""
    life, clock, writer, number = segment
    return session, f"{member}#LOG#{_name(life, member)}#{clock:012d}#{_name(writer, member)}#{number:08d}"


def log_range(member: str, life: str | None = None) -> tuple[str, str]:
    """Return the first and the last sort value of the log: of one life, or of all."""
    first = f"{member}#LOG#" if life is None else f"{member}#LOG#{_name(life, member)}#"
    return first, f"{first}\U0010ffff"


def _name(name: str, member: str) -> str:
    """Return the name of a life or a writer; raise ``CorruptRecordError`` if no store has a key with it."""
    if name.isascii() and len(name) <= _MOST_NAME:
        return name
    raise CorruptRecordError(f"record={member!r} is damaged: it names a life or writer {name!r:.100}", record=member)


def pack_listed(segments: Iterable[Segment]) -> list[list[Any]]:
    """Return segments as JSON: of each life and writer by what clock and number go up from one to the next."""
    runs: dict[tuple[str, str], list[int]] = {}
    last: dict[tuple[str, str], Segment] = {}
    for one in sorted(segments):
        key = one.life, one.writer
        before = last.get(key, Segment(one.life, 0, one.writer, 0))
        last[key] = one
        runs.setdefault(key, []).extend([one.clock - before.clock, one.number - before.number])
    return [[*key, *steps] for key, steps in runs.items()]


def unpack_listed(runs: Any) -> frozenset[Segment]:
    """Return what :func:`pack_listed` was given; raise ``ValueError`` or ``TypeError`` for anything else."""
    found: set[Segment] = set()
    for life, writer, *steps in runs:
        if len(found) + len(steps) // 2 > _MOST_LISTED:
            raise ValueError(f"it lists over {_MOST_LISTED} segments")
        clocks, numbers = (itertools.accumulate(map(int, each)) for each in (steps[::2], steps[1::2]))
        found |= {Segment(str(life), clock, str(writer), number) for clock, number in zip(clocks, numbers, strict=True)}
    return frozenset(found)


class Segments:
    """The segments of one conversation; for the arguments see ``DurableReplica``."""

    def __init__(self, table: Table, session: str, member: str, *, codec: Codec) -> None:
        self._table, self._session, self._member, self._codec = table, session, member, codec
        self._unclean: set[Key] = set()  # where a redaction was put, and nobody answered that all it took out has gone

    def put(self, messages: Iterable[Message]) -> None:
        """Store messages in the segments that their authors chose. What is there already stays, unless its revision is lower.

        Raises ``StoreUnavailableError``, also if a segment keeps changing.
        """
        for segment, parts in _by_segment(messages):
            key = self._key(segment)
            if not self._write(key, parts, ABSENT, None):
                self._change(key, partial(_joined, parts))

    def take_out(self, messages: Iterable[Message]) -> None:
        """Take messages out of the segments that have them; raises what :meth:`put` does."""
        for segment, parts in _by_segment(messages):
            self._change(self._key(segment), partial(_without, {message.name for message in parts}))

    def _change(self, key: Key, change: Callable[[list[Message]], list[Message]]) -> None:
        for _ in range(_MOST_TRIES):
            item = self._table.get(*key)
            there = [] if item is None else self._messages(item)
            if there is None:  # what cannot be read stays, and a key beside it takes the rest
                key = key[0], f"{key[1]}+"
                continue
            changed = change(there)
            when = ABSENT if item is None else Condition(equals={"v": item.get("v")})
            if (changed == there and key not in self._unclean) or self._write(key, changed, when, item):
                return
        raise StoreUnavailableError(f"segment={'/'.join(key)!r} keeps changing; it is tried again")

    def _write(self, key: Key, messages: Sequence[Message], when: Condition, before: Item | None) -> bool:
        data = self._codec.seal(pack_messages(messages), "/".join(key))
        # It has no time to live: a window may show it for as long as the head lives, and who ends the life deletes it.
        if any(message.revision for message in messages):
            self._unclean.add(key)
        attributes, cleans = {"v": secrets.randbits(50)}, key in self._unclean
        if put_split(self._table, key, data, attributes=attributes, when=when, before=before, cleans=cleans) is None:
            return False
        self._unclean.discard(key)
        return True

    def read(self, segments: Iterable[Segment], *, wanted: Wanted) -> list[Message]:
        """Return the wanted messages of some segments, in one batch. One that is not there, or cannot be read, has none."""
        found = self._table.batch_get([self._key(segment) for segment in segments])
        return [message for messages in self._each(found.values(), wanted) for message in messages or ()]

    def log(self, lives: Iterable[str]) -> Iterator[Message]:
        """Yield all messages of some lives, segment by segment."""
        for life in sorted(lives):
            for item in self._rows(life):
                if "data" in item and not is_part(key_of(self._table, item)):
                    yield from self._messages(item) or ()

    def between(self, lives: Iterable[str], after: int, until: int) -> list[Message]:
        """Return the messages of some lives whose turns have a clock above ``after``, and not above ``until``."""
        first, found = max(0, after - _MOST_CLOCKS), list[Message]()
        for life in sorted(lives):
            start, _ = log_range(self._member, life)
            rows = self._table.query(self._session, first=f"{start}{first:012d}", last=f"{start}{until:012d}\U0010ffff")
            items = [item for item in rows if "data" in item and not is_part(key_of(self._table, item))]
            wanted = [messages or [] for messages in self._each(items, lambda name, clock: after < clock <= until)]
            found += [message for messages in wanted for message in messages]
        return found

    def lives(self) -> set[str]:
        """Return the lives that have segments."""
        first, _ = log_range(self._member)
        return {key[1].removeprefix(first).partition("#")[0] for key in self._keys()}

    def delete(self, lives: Iterable[str]) -> None:
        """Delete the log of some lives."""
        for life in sorted(lives):
            rows = list(self._rows(life, attributes=[]))
            if rows:
                delete_rows(self._table, rows)

    def _rows(self, life: str | None, *, attributes: Sequence[str] | None = None) -> Iterator[Item]:
        first, last = log_range(self._member, life)
        return self._table.query(self._session, first=first, last=last, attributes=attributes)

    def _keys(self) -> list[Key]:
        return [key_of(self._table, row) for row in self._rows(None, attributes=[])]

    def _messages(self, item: Item) -> list[Message] | None:
        """Return the messages of a segment; None if it cannot be read."""
        return self._each([item])[0]

    def _each(self, items: Collection[Item], wanted: Wanted | None = None) -> list[list[Message] | None]:
        """Return the wanted messages of each segment; None in place of those of one that cannot be read."""
        names = ["/".join(key_of(self._table, item)) for item in items]
        payloads = self._codec.unseal_each(zip(map(self._whole, items), names, strict=True))
        return [_unpacked(payload, name, wanted) for payload, name in zip(payloads, names, strict=True)]

    def _whole(self, item: Item) -> bytes | None:
        try:
            return whole_value(self._table, item)[1]
        except CorruptRecordError:
            return None

    def _key(self, segment: Segment) -> Key:
        return segment_key(self._session, self._member, segment)


def _unpacked(payload: bytes | CorruptRecordError, name: str, wanted: Wanted | None) -> list[Message] | None:
    try:
        if isinstance(payload, CorruptRecordError):
            raise payload
        return unpack_messages(payload, name, wanted=wanted)
    except CorruptRecordError as error:
        logger.warning("error=<%s> | segment cannot be read and stays as it is", type(error).__name__)
        logger.debug("record=<%s> | segment cannot be read", name)
        return None


def _by_segment(messages: Iterable[Message]) -> list[tuple[Segment, list[Message]]]:
    by_segment: dict[Segment, list[Message]] = {}
    for message in messages:
        by_segment.setdefault(message.segment, []).append(message)
    return sorted(by_segment.items())


def _joined(messages: Iterable[Message], there: Iterable[Message]) -> list[Message]:
    joined = {message.name: message for message in sorted([*there, *messages], key=lambda one: one.revision)}
    return in_order(joined.values())


def _without(names: Collection[Name], there: Iterable[Message]) -> list[Message]:
    return [message for message in there if message.name not in names]
