"""Filling: what need not stay is added by band and worth per token to what must, as long as it fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from strands.types.content import Message

from strands_manga_memory.conversation.history.gist import gist_of
from strands_manga_memory.conversation.history.stubs import is_stub, stub_of
from strands_manga_memory.conversation.importance.choosing.choice import TOO_MANY_TURNS, Limits
from strands_manga_memory.conversation.importance.choosing.groups import Group, band_of
from strands_manga_memory.conversation.importance.weighing.note import Note
from strands_manga_memory.conversation.importance.weighing.scoring import MIDDLE, Band
from strands_manga_memory.conversation.importance.weighing.signals import fixed_signals, priority
from strands_manga_memory.messages.placeholders import STUB, is_text

PLACE_KEPT = "left out, a mark keeps its place"
_IN_BAND = {band: f"{band.name.lower()} band" for band in Band}


@dataclass(eq=False, slots=True)
class _Place:
    """An exchange that need not stay whole: what keeping any of it costs, and what of it can be kept.

    Attributes:
        texts: Positions of texts a mark can take the place of, or has taken.
        rigid: Positions of what stays whole if anything of the exchange stays.
        cost: Tokens of the rigid and of marks for the texts.
        is_open: Whether something of it stays.
    """

    texts: tuple[int, ...] = ()
    rigid: tuple[int, ...] = ()
    cost: int = 0
    is_open: bool = False


_WHOLE = _Place(is_open=True)
"""The place of any exchange that must stay."""


@dataclass(eq=False, slots=True)
class _Item:
    """Something that stays or goes: a text, a tool call with its result, or an unanswered turn.

    Attributes:
        rank: Its band, its worth per token and its position; what has a higher one is taken first.
        cost: Its tokens, without those of the mark that it takes the place of.
    """

    rank: tuple[Band, float, int]
    positions: tuple[int, ...]
    cost: int
    place: _Place
    forms: dict[int, Message] | None = None
    needs: _Item | None = None
    taken: bool = False


_RANK = attrgetter("rank")


class Filling:
    """Adds to what must stay what else fits, and says why."""

    def __init__(
        self,
        kept: dict[int, Message],
        messages: Sequence[Message],
        notes: Sequence[Note],
        limits: Limits,
        room: int,
        why: dict[int, str],
        count: Callable[[Message], int],
    ) -> None:
        self.kept = kept
        self.changed: set[int] = set()
        self._marks: set[int] = set()
        self.room = room
        self._messages = messages
        self._notes = notes
        self._limits = limits
        self._why = why
        self._count = count
        self._stub_tokens = count({"role": "assistant", "content": [{"text": STUB}]})

    def fill(self, groups: Sequence[Group]) -> None:
        """Add by band, then by worth per token, then the newest first."""
        exchanges_left = (self._limits.turns or len(groups)) - sum(
            group.parent is None and bool(group.required) for group in groups
        )
        for item in sorted(self._items(groups), key=_RANK, reverse=True):
            if not item.taken:
                opens = not item.place.is_open
                if opens and exchanges_left <= 0:
                    self._why.update(dict.fromkeys(item.positions, TOO_MANY_TURNS))
                elif self._take(item) and opens:
                    exchanges_left -= 1
        self.kept.update((at, stub_of(self._messages[at])) for at in self._marks)
        self.changed |= self._marks

    def _items(self, groups: Sequence[Group]) -> list[_Item]:
        items: list[_Item] = []
        place, by_age = _WHOLE, (0.0, 0.0)
        by_group: dict[Group, _Item] = {}
        weights, service = self._limits.weights, self._limits.service
        fading: float = 0.5 ** (1 / weights.half_life)
        fresh = fading ** (self._limits.lasts - 1)
        for group in groups:
            if group.parent is None:
                fresh *= fading
                by_age = weights.recency * fresh, service * (weights.service + weights.fresh_service * fresh)
                place = _WHOLE if group.required else self._place(group, by_age, items)
            elif group.required:
                continue
            elif group.is_cycle:
                items += self._cycle(group, fresh, place)
            else:
                by_group[group] = item = self._whole(group, place, by_age, by_group.get(group.parent))
                items.append(item)
        return items

    def _place(self, core: Group, by_age: tuple[float, float], items: list[_Item]) -> _Place:
        """Return the place of an exchange, and add to ``items`` what was said in it; without any, what stands for the rest."""
        place, before = _Place(), len(items)
        for at in core.positions:
            message = self._messages[at]
            if not is_text(message):
                place.rigid += (at,)
                place.cost += self._notes[at].tokens
                continue
            place.texts += (at,)
            place.cost += self._mark_tokens(at)
            if not is_stub(message):
                items.append(self._text(at, by_age, place))
        if place.rigid and len(items) == before:
            items.append(self._whole(core, place, by_age, None))
        return place

    def _text(self, at: int, by_age: tuple[float, float], place: _Place) -> _Item:
        note = self._notes[at]
        band, tokens, forms = self._limits.bands.of(note.score), note.tokens, None
        if note.answers:
            band = max(band, MIDDLE)  # "yes" to a question is more than a courtesy
        if len(self._messages[at]["content"]) > 1 and self._limits.may_shorten and (gist := self._gist(at)) is not None:
            forms, tokens = {at: gist[0]}, gist[1]
        rank = band, priority(self._worth(at, by_age), tokens), at
        return _Item(rank, (at,), tokens - self._mark_tokens(at), place, forms)

    def _worth(self, at: int, by_age: tuple[float, float]) -> float:
        """Return what a message is worth; ``by_age`` is what it has by its age, and what an assistant's has beyond that."""
        weights, note = self._limits.weights, self._notes[at]
        worth = note.worth
        if worth is None or note.worth_by is not weights:
            worth = note.worth = sum(fixed_signals(note, weights).values())
            note.worth_by = weights
        if note.referenced:
            worth += weights.referenced * math.log1p(note.referenced)
        worth += by_age[0]
        return worth + by_age[1] if self._messages[at]["role"] == "assistant" else worth

    def _cycle(self, group: Group, fresh: float, place: _Place) -> Iterator[_Item]:
        """A call with the gist of its result, and the rest of the result; ``fresh`` is 1 in the last exchange."""
        weights = self._limits.weights
        worth = weights.act * (group.score - 0.5) + weights.tool + weights.fresh_tool * fresh
        band, at = band_of(group), group.positions[0]
        gist = self._gist(group.positions[1]) if self._limits.may_shorten else None
        if gist is None:
            yield _Item((band, priority(worth, group.tokens), at), group.positions, group.tokens, place)
            return
        saved = self._notes[group.positions[1]].tokens - gist[1]
        short = group.tokens - saved
        item = _Item((band, priority(worth, short), at), group.positions, short, place, {group.positions[1]: gist[0]})
        yield item
        yield _Item((band, priority(worth + weights.whole_result, saved), at), group.positions, saved, place, None, item)

    def _gist(self, at: int) -> tuple[Message, int] | None:
        message, note = self._messages[at], self._notes[at]
        if note.gist is None:
            gist = gist_of(message)
            note.gist = (message, note.tokens) if gist is None else (gist, self._count(gist))
        gist, tokens = note.gist
        return (gist, tokens) if tokens < note.tokens else None

    def _whole(self, group: Group, place: _Place, by_age: tuple[float, float], needs: _Item | None) -> _Item:
        worth = max(self._worth(at, by_age) for at in group.positions)
        rank = group.band, priority(worth, group.tokens), group.positions[0]
        if group.parent is None:
            mark = self._mark_tokens(group.positions[0]) if group.positions[0] in place.texts else 0
            return _Item(rank, group.positions[:1], -mark, place, None, needs)
        return _Item(rank, group.positions, group.tokens, place, None, needs)

    def _take(self, item: _Item) -> bool:
        """Keep an item, with what it needs, if it fits."""
        cost = item.cost
        if cost > self.room:
            return False
        chain = [item]
        while (needs := chain[-1].needs) is not None and not needs.taken:
            chain.append(needs)
            cost += needs.cost
        if not item.place.is_open:
            cost += item.place.cost
        if cost > self.room:
            return False
        self.room -= cost
        if not item.place.is_open:
            self._open(item.place)
        for link in reversed(chain):  # the gist first: the rest makes it whole
            link.taken = True
            for at in link.positions:
                message = self._messages[at]
                self.kept[at] = message if link.forms is None else link.forms.get(at, message)
                self._why[at] = _IN_BAND[link.rank[0]]
                self.changed.discard(at)
                self._marks.discard(at)
            if link.forms:
                self.changed.update(link.forms)
        return True

    def _mark_tokens(self, at: int) -> int:
        tokens = self._notes[at].tokens
        return tokens if tokens < self._stub_tokens else self._stub_tokens

    def _open(self, place: _Place) -> None:
        place.is_open = True
        for at in place.texts:
            self.kept[at] = self._messages[at]
            self._why[at] = PLACE_KEPT
            if self._notes[at].tokens > self._stub_tokens:
                self._marks.add(at)
        for at in place.rigid:
            self.kept[at] = self._messages[at]
            self._why[at] = "in an exchange of which something stays"
