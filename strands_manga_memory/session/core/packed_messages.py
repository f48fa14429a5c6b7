"""Messages in their stored form: many as one value, as the log has them, and one as a cell. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from strands_manga_memory.session.core.identity import Name, Segment
from strands_manga_memory.session.core.records import Message, framed, unframed
from strands_manga_memory.stores.encoding.codec import trusted


def pack_messages(messages: Iterable[Message]) -> bytes:
    """Return messages as one value.

    Its header has a run for messages of one writer and segment whose numbers follow one another: the writer, the segment, the
    first number, how much the clock goes up to each message, and the time, in milliseconds; what most messages do not have, a
    revision and what else is kept with one, comes last, by place.
    """
    kept = sorted(messages, key=lambda one: (one.segment, one.order))
    runs: list[Any] = []
    before: Message | None = None
    for one in kept:
        writer, number = one.name
        at = round(one.at * 1000)
        if before is None or before.segment != one.segment or before.name != Name(writer, number - 1):
            runs.append([writer, [*one.segment], number, [one.clock], [at], {}])
        else:
            runs[-1][3].append(one.clock - before.clock)
            runs[-1][4].append(at - round(before.at * 1000))
        if one.revision or one.about:
            runs[-1][5][str(len(runs[-1][3]) - 1)] = [one.revision, one.about]
        before = one
    return framed(runs, [one.record for one in kept])


Wanted = Callable[[Name, int], bool]
"""Tells whether a message is to be read, by its name and the clock of its turn."""


def unpack_messages(data: bytes, record: str, *, wanted: Wanted | None = None) -> list[Message]:
    """Return what :func:`pack_messages` was given; raise ``CorruptRecordError`` naming ``record`` if it is something else.

    Without ``wanted`` all of them are read.
    """
    runs, blobs = unframed(data, record)
    found: list[Message] = []
    blobs.reverse()
    with trusted(record):
        for writer, (life, clock, author, first), number, clocks, times, others in runs:
            segment = Segment(str(life), _count(clock), str(author), _count(first))
            turns, said = itertools.accumulate(clocks), itertools.accumulate(times)
            for at, (turn, milliseconds) in enumerate(zip(turns, said, strict=True)):
                name, blob = Name(str(writer), _count(number) + at), blobs.pop()
                if wanted is None or wanted(name, _count(turn)):
                    revision, about = others.get(str(at), (0, ""))
                    found.append(Message(segment, name, _count(turn), milliseconds / 1000, blob, _count(revision), str(about)))
        if blobs:
            raise ValueError("it has more messages than it says")
    return found


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r:.100} is no number of anything")
    return value


def header_of(message: Message) -> list[Any]:
    """Return what is stored of a message beside its name and its record."""
    segment = message.segment
    header = [segment.life, segment.clock, segment.number, message.clock, round(message.at, 3), message.revision]
    rest = [message.about, "" if segment.writer == message.writer else segment.writer]
    while rest and not rest[-1]:
        rest.pop()
    return [*header, *rest]


def message_of(name: Name, header: Any, record: bytes, segments: dict[tuple[Any, ...], Segment]) -> Message:
    """Return the message with this name, header and record, one of equal ``segments``; raise ``ValueError`` if it is none."""
    life, first_clock, first, clock, at, revision, *rest = header
    for one in (name.number, first_clock, first, clock, revision):
        if type(one) is not int or one < 0:
            raise ValueError(f"{header!r:.100} is no message's")
    about, author, *_ = (*map(str, rest), "", "")
    key = str(life), first_clock, author or name.writer, first
    segment = segments.get(key) or segments.setdefault(key, Segment(*key))
    return Message(segment, name, clock, float(at), record, revision, about)
