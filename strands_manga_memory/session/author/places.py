"""Places: what each message of an agent's history is of a copy, and how it is recognized. Pure."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from strands_manga_memory.messages import fingerprint, fingerprints
from strands_manga_memory.messages.placeholders import PLACEHOLDER
from strands_manga_memory.session.author.showing import Piece, mark_id, was_lost
from strands_manga_memory.session.core.identity import Name, Stamp
from strands_manga_memory.session.core.records import Body, Lost, Mark, Message, Shown
from strands_manga_memory.stores.encoding.codec import dump

_DRAFTS = "draft"
"""The writer in the names of drafts: no tag is the same."""

_numbers = itertools.count(1)


@dataclass(eq=False, slots=True)
class Draft:
    """A message that no store has been offered yet, so its name is known in this process only.

    It was said ``at`` seconds since 1970; ``about`` is what else is kept with it, as text.
    """

    at: float
    record: bytes
    begins: bool
    about: str = ""
    name: Name = field(init=False, default_factory=lambda: Name(_DRAFTS, next(_numbers)))


@dataclass(frozen=True, slots=True)
class Note:
    """A note of the view, which closes a turn that was cut."""

    closes: Stamp


Held = Name | Body | Mark | Note
"""What a message of the history is: a draft or one of the log, edited or synthesized, a mark, or a note of the view."""

Known = tuple[Held, int]
"""What a store may have of a message of the history, and its revision."""


@dataclass(slots=True)  # not frozen, for the reason that messages of the log are not
class Place:
    """A message of the history: what it is, and how it is recognized.

    Args:
        held: What it is.
        tracking_id: The id by which it is recognized.
        print: Its fingerprint.
        revision: The revision in which a message of the log is known; -1 while it is not at hand.
        was_lost: Whether the agent once had a placeholder in its place.
        parts: The places of the messages that it was joined of; without them it is its only part.
        message: The message that was last found there, if it was not joined; the agent may change it.
    """

    held: Held
    tracking_id: str
    print: int
    revision: int = 0
    was_lost: bool = False
    parts: tuple[Place, ...] = ()
    message: Mapping[str, Any] | None = None

    def holding(self, held: Held) -> Place:
        """Return it with another thing held in it."""
        return self if held is self.held else replace(self, held=held)

    def with_parts(self, parts: tuple[Place, ...]) -> Place:
        """Return it with other parts."""
        return replace(self, held=parts[0].held, parts=parts)

    def renamed(self, names: Mapping[Name, Name]) -> Place:
        """Return it with what it holds under the names that drafts got."""
        if self.parts:
            parts = tuple([part.renamed(names) for part in self.parts])
            return self if parts == self.parts else self.with_parts(parts)
        if isinstance(self.held, Name) and self.held not in names:
            return self
        return self.holding(renamed(self.held, names))


def each_part(places: Iterable[Place]) -> list[Place]:
    """Return the parts of places, in order."""
    return [part for place in places for part in place.parts or (place,)]


def matched(messages: Sequence[Mapping[str, Any]], known: Iterable[Place]) -> list[Place]:
    """Return the places of a history, given those it had: known ones where a message is unchanged, bodies and marks elsewhere.

    Messages are recognized by ``tracking_id`` and content. Of several alike, the latest places go to the latest messages. A
    changed message stands for the one that had its ``tracking_id``, in the revision in which that was shown.
    """
    known = list(known)
    prints = fingerprints(messages)
    ids = [message.get("tracking_id") or "" for message in messages]
    # A turn that only said something: most of them.
    if prints == [place.print for place in known] and ids == [place.tracking_id for place in known]:
        for place, message in zip(known, messages, strict=True):
            place.message = None if place.parts else message  # an equal one may have come for it
        return known
    keys = list(zip(ids, prints, strict=True))
    alike: dict[tuple[str, int], list[Place]] = defaultdict(list)
    for place in known:
        alike[place.tracking_id, place.print].append(place)
    by_id = {part.tracking_id: part for part in each_part(known)}
    places: list[Place] = []
    for at in reversed(range(len(messages))):
        message, key = messages[at], keys[at]
        same = alike.get(key)
        if same:
            places.append(place := same.pop())
            place.message = None if place.parts else message
            continue
        before = messages[at - 1].get("tracking_id") or "" if at else ""
        places.append(replace(_changed(message, by_id, before), message=message))
    return places[::-1]


def _changed(message: Mapping[str, Any], by_id: dict[str, Place], before: str) -> Place:
    """Return the place of a message that stands elsewhere, is new or was changed; each of those by id is used once."""
    id_ = message.get("tracking_id") or ""
    was = by_id.pop(id_, None) if id_ else None
    edited, print_ = None if was is None else was.held, fingerprint(message)
    if was is not None and was.print == print_ and not isinstance(edited, Note):  # which is shown where it was, or not at all
        return was
    held = _mark(message, edited, before) or _edited(message, edited, 0 if was is None else was.revision)
    return Place(held, id_, print_)


def _mark(message: Mapping[str, Any], edited: Held | None, before: str) -> Mark | None:
    """Return the mark that a message is; None if it is none, or one that closes a turn."""
    id_ = message.get("tracking_id") or ""
    if not id_ or list(message) != ["role", "content", "tracking_id"] or message["content"] != [{"text": PLACEHOLDER}]:
        return None
    if isinstance(edited, Note) or (isinstance(edited, Body) and edited.closes):
        return None
    return Mark(message["role"], "" if id_ == mark_id(before) else id_, name_in(edited))


def name_in(held: Held | None) -> Name | None:
    """Return the message in whose place something stands; None if that has no name."""
    of = held.edits if isinstance(held, Body) else held.of if isinstance(held, Mark) else held
    return of if isinstance(of, Name) else None


def _edited(message: Mapping[str, Any], edited: Held | None, revision: int) -> Body:
    if isinstance(edited, Body):
        return replace(edited, record=dump(message))
    closes = edited.closes if isinstance(edited, Note) else None
    return Body(dump(message), name_in(edited), max(0, revision), closes)


def is_draft(held: Held) -> bool:
    """Whether something stands for what no store has been offered yet."""
    name = name_in(held)
    return name is not None and name.writer == _DRAFTS


def renamed(held: Held, names: Mapping[Name, Name]) -> Held:
    """Return what a place holds under the names that drafts got."""
    name = name_in(held)
    if name is None or name not in names:
        return held
    if isinstance(held, Mark):
        return held._replace(of=names[name])
    return replace(held, edits=names[name]) if isinstance(held, Body) else names[name]


def place_of(message: Mapping[str, Any], held: Held, revision: int = 0) -> Place:
    """Return the place of a message, given what it is."""
    return Place(held, message.get("tracking_id") or "", fingerprint(message), revision, message=message)


def places_of(pieces: Sequence[Piece]) -> list[Place]:
    """Return the places of messages as the agent gets them."""
    messages: list[Any] = [piece.message for piece in pieces]
    return [*map(_place_of_piece, pieces, messages, fingerprints(messages))]


def _place_of_piece(piece: Piece, message: Any, print_: int) -> Place:
    id_ = message.get("tracking_id") or ""
    if piece.shown is None:
        assert piece.closes is not None  # noqa: S101 - for the type checker
        return Place(Note(piece.closes), id_, print_)
    return _place_shown(piece.shown, id_, print_, message)


def _place_shown(shown: Shown, id_: str, print_: int, message: Mapping[str, Any] | None = None) -> Place:
    if isinstance(shown, Message):  # as most are
        return Place(shown.name, id_, print_, shown.revision, shown.was_lost, (), message)
    return Place(held_of(shown), id_, print_, revision_of(shown), was_lost(shown), message=message)


def revision_of(shown: Shown) -> int:
    """Return the revision in which a message of the log is shown; -1 of one that is not at hand, 0 of all else."""
    return shown.revision if isinstance(shown, Message) else -isinstance(shown, Lost)


def held_of(shown: Shown) -> Name | Body | Mark:
    """Return what a place holds of a view."""
    return shown if isinstance(shown, Body | Mark) else shown.name
