"""History: what an agent has in front of it, place by place, and what its messages are of a copy. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from strands_manga_memory.session.author.places import (
    Draft,
    Held,
    Known,
    Note,
    Place,
    each_part,
    is_draft,
    matched,
    name_in,
    place_of,
    renamed,
)
from strands_manga_memory.session.core.identity import Name
from strands_manga_memory.session.core.records import Body, Lost, Mark, Message
from strands_manga_memory.session.core.window import BodySlot, Joined, Slot


class History:
    """The places of a live agent's history. Not thread-safe.

    Attributes:
        places: Its places, in order.
        moves: How often it changed in another way than by growing at its end.
    """

    __slots__ = ("moves", "places")

    def __init__(self, places: Iterable[Place] = (), *, moves: int = 0) -> None:
        self.places: list[Place] = list(places)
        self.moves = moves

    def capture(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Take the messages of the history as they are now."""
        places = matched(messages, self.places)
        if places != self.places and _shape(places) != _shape(self.places):
            self.moves += 1
        self.places = places

    def evict(self, *, keep: int) -> None:
        """Let only the last ``keep`` messages stay."""
        if keep < len(self.places):
            self.places, self.moves = self.places[len(self.places) - max(0, keep) :], self.moves + 1

    def close(self, bodies: Mapping[str, Body]) -> None:
        """Hold bodies, by ``tracking_id``, in place of the notes that closed the same turns."""
        self.places = [
            place.holding(bodies[place.tracking_id]) if isinstance(place.held, Note) and place.tracking_id in bodies else place
            for place in self.places
        ]

    def count(self, tracking_id: str) -> int:
        """Return how many messages have this id."""
        return sum(place.tracking_id == tracking_id for place in self.places)

    def revised(self, of: Name, message: Mapping[str, Any], revision: int = 0) -> None:
        """Have a message in another form in its places, edited or not. A mark of it stays one, made in that revision."""

        def shown(place: Place) -> Place:
            if place.parts:  # the agent is given it anew: nobody but this package puts a joined message together
                parts = (replace(part, revision=-1) if name_in(part.held) == of else part for part in place.parts)
                return place.with_parts(tuple(parts))
            if isinstance(place.held, Mark) and place.held.of == of:
                return replace(place, revision=revision)
            original = place.held.edits if isinstance(place.held, Body) else place.held
            return place_of(message, of, revision) if original == of else place

        self.places = [shown(place) for place in self.places]

    def renamed(self, names: Mapping[Name, Name]) -> None:
        """Have drafts under the names that they got, or messages as drafts again."""
        if names:
            self.places = [place.renamed(names) for place in self.places]

    def release(self, names: Collection[Name]) -> None:
        """Know nothing of drafts and of these messages: what is captured next has them as what the window alone has."""
        gone = (any(is_draft(part.held) or part.held in names for part in each_part([place])) for place in self.places)
        self.places = [place for place, is_gone in zip(self.places, gone, strict=True) if not is_gone]

    def slots(self, names: Mapping[Name, Name]) -> tuple[tuple[Slot, ...], dict[str, Body]]:
        """Return it as a window, with the names that drafts are to get, and the bodies that it shows. Notes are not in it."""
        slots: list[Slot] = []
        bodies: dict[str, Body] = {}
        for place in self.places:
            for at, part in enumerate(place.parts or (place,)):
                held = renamed(part.held, names)
                if isinstance(held, Body):
                    bodies[held.id] = held
                if not isinstance(held, Note):
                    slots.append(_slot(held, joins=at > 0, was_lost=part.was_lost))
        return tuple(slots), bodies

    @property
    def known(self) -> list[Known]:
        """What a store may have of it, in order: all but drafts and notes."""
        stored = [part for part in each_part(self.places) if not (isinstance(part.held, Note) or is_draft(part.held))]
        return [(part.held, part.revision if isinstance(part.held, Name) else 0) for part in stored]

    @property
    def notes(self) -> list[int]:
        """The fingerprints of its notes."""
        return [place.print for place in self.places if isinstance(place.held, Note)]


def _slot(held: Name | Body | Mark, *, joins: bool, was_lost: bool) -> Slot:
    if isinstance(held, Mark):
        return held
    if isinstance(held, Name) and was_lost:
        return Lost(held)
    slot = BodySlot(held.id, held.edits) if isinstance(held, Body) else held
    return Joined(slot) if joins else slot


def _shape(places: Iterable[Place]) -> list[tuple[Held, bool]]:
    return [(part.held, at > 0) for place in places for at, part in enumerate(place.parts or (place,))]


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
