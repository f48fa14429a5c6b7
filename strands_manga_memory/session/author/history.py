"""History: what an agent has in front of it, place by place, and what its messages are of a copy. Pure."""

from __future__ import annotations

import itertools
import marshal
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any

from strands_manga_memory.language.texts.marks import STUB
from strands_manga_memory.session.author.showing import Piece, mark_id, was_lost
from strands_manga_memory.session.core.identity import Name, Stamp
from strands_manga_memory.session.core.records import Body, Lost, Mark, Message, Shown
from strands_manga_memory.session.core.window import Slot, slots_of
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
    """

    held: Held
    tracking_id: str
    print: int
    revision: int = 0
    was_lost: bool = False

    def holding(self, held: Held) -> Place:
        """Return it with another thing held in it."""
        return self if held is self.held else replace(self, held=held)


class History:
    """The places of a live agent's history. Not thread-safe.

    Attributes:
        places: Its places, in order.
        moves: How often it changed in another way than by growing at its end.
    """

    def __init__(self, places: Iterable[Place] = (), *, moves: int = 0) -> None:
        self.places: list[Place] = list(places)
        self.moves = moves

    def capture(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Take the messages of the history as they are now."""
        places = matched(messages, self.places)
        if [place.held for place in places] != [place.held for place in self.places]:
            self.moves += 1
        self.places = places

    def evict(self, *, keep: int) -> None:
        """Let only the last ``keep`` messages stay."""
        if keep < len(self.places):
            self.places, self.moves = self.places[len(self.places) - max(0, keep) :], self.moves + 1

    def count(self, tracking_id: str) -> int:
        """Return how many messages have this id."""
        return sum(place.tracking_id == tracking_id for place in self.places)

    def revised(self, of: Name, message: Mapping[str, Any], revision: int = 0) -> None:
        """Have a message in another form in its places, edited or not. A mark of it stays one, made in that revision."""

        def shown(place: Place) -> Place:
            if isinstance(place.held, Mark) and place.held.of == of:
                return replace(place, revision=revision)
            original = place.held.edits if isinstance(place.held, Body) else place.held
            return replace(place, held=of, print=fingerprint(message), revision=revision) if original == of else place

        self.places = [shown(place) for place in self.places]

    def renamed(self, names: Mapping[Name, Name]) -> None:
        """Have drafts under the names that they got, or messages as drafts again."""
        if names:
            self.places = [
                place
                if isinstance(place.held, Name) and place.held not in names
                else place.holding(_renamed(place.held, names))
                for place in self.places
            ]

    def release(self, names: Collection[Name]) -> None:
        """Know nothing of drafts and of these messages: what is captured next has them as what the window alone has."""
        self.places = [one for one in self.places if not (_is_draft(one.held) or one.held in names)]

    def slots(self, names: Mapping[Name, Name]) -> tuple[tuple[Slot, ...], dict[str, Body]]:
        """Return it as a window, with the names that drafts are to get, and the bodies that it shows. Notes are not in it."""
        named = ((_renamed(place.held, names), place.was_lost) for place in self.places)
        shown = (Lost(held) if was_lost and isinstance(held, Name) else held for held, was_lost in named)
        return slots_of(held for held in shown if not isinstance(held, Note))

    @property
    def known(self) -> list[Known]:
        """What a store may have of it, in order: all but drafts and notes."""
        stored = [place for place in self.places if not (isinstance(place.held, Note) or _is_draft(place.held))]
        return [(place.held, place.revision if isinstance(place.held, Name) else 0) for place in stored]

    @property
    def notes(self) -> list[int]:
        """The fingerprints of its notes."""
        return [place.print for place in self.places if isinstance(place.held, Note)]


def fingerprint(message: Any) -> int:
    """Return a number that changes when a message changes anywhere. Good for this process only."""
    try:
        # Version 0 writes every value out in full; later versions write references that depend on how objects are shared.
        return hash(marshal.dumps(message, 0))
    except ValueError:
        return hash(dump(message))


def fingerprints(messages: Sequence[Any]) -> list[int]:
    """Return the fingerprint of each message."""
    try:
        return [*map(hash, map(marshal.dumps, messages, repeat(0)))]  # in half the time that a call for each takes
    except ValueError:
        return [*map(fingerprint, messages)]


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
        return known
    keys = list(zip(ids, prints, strict=True))
    alike: dict[tuple[str, int], list[Place]] = defaultdict(list)
    by_id: dict[str, Place] = {}
    for place in known:
        alike[place.tracking_id, place.print].append(place)
        by_id[place.tracking_id] = place
    places: list[Place] = []
    for at in reversed(range(len(messages))):
        message, key = messages[at], keys[at]
        same = alike.get(key)
        if same:
            places.append(same.pop())
            continue
        was = by_id.pop(key[0], None) if key[0] else None
        edited = None if was is None else was.held
        before = messages[at - 1].get("tracking_id") or "" if at else ""
        held = _mark(message, edited, before) or _edited(message, edited, 0 if was is None else was.revision)
        places.append(Place(held, *key))
    return places[::-1]


def _mark(message: Mapping[str, Any], edited: Held | None, before: str) -> Mark | None:
    """Return the mark that a message is; None if it is none, or one that closes a turn."""
    id_ = message.get("tracking_id") or ""
    if not id_ or list(message) != ["role", "content", "tracking_id"] or message["content"] != [{"text": STUB}]:
        return None
    if isinstance(edited, Note) or (isinstance(edited, Body) and edited.closes):
        return None
    return Mark(message["role"], "" if id_ == mark_id(before) else id_, _name_in(edited))


def _name_in(held: Held | None) -> Name | None:
    """Return the message in whose place something stands; None if that has no name."""
    of = held.edits if isinstance(held, Body) else held.of if isinstance(held, Mark) else held
    return of if isinstance(of, Name) else None


def _edited(message: Mapping[str, Any], edited: Held | None, revision: int) -> Body:
    if isinstance(edited, Body):
        return replace(edited, record=dump(message))
    closes = edited.closes if isinstance(edited, Note) else None
    return Body(dump(message), _name_in(edited), max(0, revision), closes)


def _is_draft(held: Held) -> bool:
    name = _name_in(held)
    return name is not None and name.writer == _DRAFTS


def _renamed(held: Held, names: Mapping[Name, Name]) -> Held:
    name = _name_in(held)
    if name is None or name not in names:
        return held
    if isinstance(held, Mark):
        return held._replace(of=names[name])
    return replace(held, edits=names[name]) if isinstance(held, Body) else names[name]


def draft_of(message: Message, among: Sequence[Message]) -> Draft:
    """Return a message as a draft; ``among`` tells whether its turn begins with it."""
    first = min(one.number for one in among if one.turn == message.turn)
    return Draft(message.at, message.record, message.number == first, message.about)


def begun_after(since: float, drafts: Iterable[Draft]) -> list[Draft]:
    """Return the drafts of turns that began after a time, in seconds since 1970."""
    found: list[Draft] = []
    is_later = False
    for draft in drafts:
        is_later = draft.at > since if draft.begins else is_later
        found += [draft] if is_later else []
    return found


def place_of(message: Mapping[str, Any], held: Held) -> Place:
    """Return the place of a message, given what it is."""
    return Place(held, message.get("tracking_id") or "", fingerprint(message))


def places_of(pieces: Sequence[Piece]) -> list[Place]:
    """Return the places of messages as the agent gets them."""
    prints = fingerprints([message for message, _, _ in pieces])
    return [
        Place(
            _held_of_piece(piece),
            piece.message.get("tracking_id") or "",
            print_,
            revision_of(piece.shown),
            was_lost(piece.shown),
        )
        for piece, print_ in zip(pieces, prints, strict=True)
    ]


def _held_of_piece(piece: Piece) -> Held:
    if piece.shown is None:
        assert piece.closes is not None  # noqa: S101 - for the type checker
        return Note(piece.closes)
    return held_of(piece.shown)


def revision_of(shown: Shown | None) -> int:
    """Return the revision in which a message of the log is shown; -1 of one that is not at hand, 0 of all else."""
    return shown.revision if isinstance(shown, Message) else -isinstance(shown, Lost)


def held_of(shown: Shown) -> Name | Body | Mark:
    """Return what a place holds of a view."""
    return shown if isinstance(shown, Body | Mark) else shown.name
