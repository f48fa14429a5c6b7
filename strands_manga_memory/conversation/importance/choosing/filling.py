"""Filling: what need not stay is added by band and worth per token to what must, as long as it fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from strands.types.content import Message

from strands_manga_memory.conversation.history.gist import gist_of
from strands_manga_memory.conversation.history.stubs import is_stub, is_text, stub_of
from strands_manga_memory.conversation.importance.choosing.choice import NO_ROOM, TOO_MANY_TURNS, Candidate, Limits
from strands_manga_memory.conversation.importance.choosing.groups import Group, band_of
from strands_manga_memory.conversation.importance.weighing.scoring import Band
from strands_manga_memory.conversation.importance.weighing.signals import fixed_signals, priority
from strands_manga_memory.language.texts.marks import STUB

PLACE_KEPT = "left out, a mark keeps its place"
_IN_BAND = {band: f"{band.name.lower()} band" for band in Band}


@dataclass(eq=False, slots=True)
class _Place:
    """An exchange that need not stay whole: what keeping any of it costs, and what of it can be kept.

    Attributes:
        texts: Positions of texts a mark can take the place of.
        said: Those of them that are no marks yet.
        rigid: Positions of what stays whole if anything of the exchange stays.
        is_open: Whether something of it stays.
    """

    texts: Sequence[int] = ()
    said: Sequence[int] = ()
    rigid: Sequence[int] = ()
    is_open: bool = False


@dataclass(eq=False, slots=True)
class _Item:
    """Something that stays or goes: a text, a tool call with its result, or an unanswered turn."""

    band: Band
    priority: float
    positions: tuple[int, ...]
    tokens: int
    place: _Place
    forms: dict[int, Message] | None = None
    needs: _Item | None = None
    taken: bool = False


class Filling:
    """Adds to what must stay what else fits, and says why."""

    def __init__(
        self,
        kept: dict[int, Message],
        candidates: Sequence[Candidate],
        limits: Limits,
        room: int,
        why: dict[int, str],
        count: Callable[[Message], int],
    ) -> None:
        self.kept = kept
        self.changed: set[int] = set()
        self._marks: set[int] = set()
        self.room = room
        self._candidates = candidates
        self._limits = limits
        self._why = why
        self._count = count
        self._stub_tokens = count({"role": "assistant", "content": [{"text": STUB}]})

    def fill(self, groups: Sequence[Group]) -> None:
        """Add by band, then by worth per token, then the newest first."""
        exchanges_left = (self._limits.turns or len(groups)) - sum(
            group.parent is None and bool(group.required) for group in groups
        )
        items = self._items(groups)
        items.sort(key=lambda item: (-item.band, -item.priority, -item.positions[0]))
        for item in items:
            if not item.taken:
                opens = not item.place.is_open
                if opens and exchanges_left <= 0:
                    self._why.update(dict.fromkeys(item.positions, TOO_MANY_TURNS))
                elif self._take(item) and opens:
                    exchanges_left -= 1
        self.kept.update((at, stub_of(self._candidates[at].message)) for at in self._marks)
        self.changed |= self._marks
        for at in range(len(self._candidates)):
            self._why.setdefault(at, NO_ROOM)

    def _items(self, groups: Sequence[Group]) -> list[_Item]:
        items: list[_Item] = []
        place = _Place()
        by_group: dict[Group, _Item] = {}
        fading: float = 0.5 ** (1 / self._limits.weights.half_life)
        fresh = fading ** (self._limits.lasts - 1)
        for group in groups:
            if group.parent is None:
                fresh *= fading
                place = self._place(group)
                if not group.required:
                    items += [self._text(at, fresh, place) for at in place.said]
                    if place.rigid and not place.said:
                        items.append(self._whole(group, place, fresh, None))
            elif group.required:
                continue
            elif group.is_cycle:
                items += self._cycle(group, fresh, place)
            else:
                by_group[group] = item = self._whole(group, place, fresh, by_group.get(group.parent))
                items.append(item)
        return items

    def _place(self, core: Group) -> _Place:
        if core.required:
            return _Place(is_open=True)
        texts: list[int] = []
        said: list[int] = []
        rigid: list[int] = []
        for at in core.positions:
            message = self._candidates[at].message
            if not is_text(message):
                rigid.append(at)
                continue
            texts.append(at)
            if not is_stub(message):
                said.append(at)
        return _Place(texts, said, rigid)

    def _text(self, at: int, fresh: float, place: _Place) -> _Item:
        candidate = self._candidates[at]
        worth = self._worth(candidate, fresh)
        band = self._limits.bands.of(candidate.score)
        if candidate.note is not None and candidate.note.answers:
            band = max(band, Band.MIDDLE)  # "yes" to a question is more than a courtesy
        gist = self._gist(at) if self._limits.may_shorten and len(candidate.message["content"]) > 1 else None
        tokens = candidate.tokens if gist is None else gist[1]
        return _Item(band, priority(worth, tokens), (at,), tokens, place, gist and {at: gist[0]})

    def _worth(self, candidate: Candidate, fresh: float) -> float:
        """Return what a message is worth; ``fresh`` is 1 in the last exchange and halved every ``half_life`` exchanges."""
        weights, note = self._limits.weights, candidate.note
        if note is None:
            return weights.act * (candidate.score - 0.5)
        worth = note.worth
        if worth is None or note.worth_by is not weights:
            worth = note.worth = sum(fixed_signals(note, weights).values())
            note.worth_by = weights
        if note.referenced:
            worth += weights.referenced * math.log1p(note.referenced)
        worth += weights.recency * fresh
        if candidate.message["role"] == "assistant":
            worth += self._limits.service * (weights.service + weights.fresh_service * fresh)
        return worth

    def _cycle(self, group: Group, fresh: float, place: _Place) -> Iterator[_Item]:
        """A call with the gist of its result, and the rest of the result."""
        weights = self._limits.weights
        worth = weights.act * (group.score - 0.5) + weights.tool + weights.fresh_tool * fresh
        band = band_of(group)
        gist = self._gist(group.positions[1]) if self._limits.may_shorten else None
        if gist is None:
            yield _Item(band, priority(worth, group.tokens), group.positions, group.tokens, place)
            return
        saved = self._candidates[group.positions[1]].tokens - gist[1]
        short = group.tokens - saved
        item = _Item(band, priority(worth, short), group.positions, short, place, {group.positions[1]: gist[0]})
        yield item
        yield _Item(band, priority(worth + weights.whole_result, saved), group.positions, saved, place, None, item)

    def _gist(self, at: int) -> tuple[Message, int] | None:
        candidate = self._candidates[at]
        if candidate.note is None:
            return None
        if candidate.note.gist is None:
            gist = gist_of(candidate.message)
            candidate.note.gist = (gist, self._count(gist)) if gist is not None else (candidate.message, candidate.tokens)
        gist, tokens = candidate.note.gist
        return (gist, tokens) if tokens < candidate.tokens else None

    def _whole(self, group: Group, place: _Place, fresh: float, needs: _Item | None) -> _Item:
        worth = max(self._worth(self._candidates[at], fresh) for at in group.positions)
        tokens, positions = (0, ()) if group.parent is None else (group.tokens, group.positions)
        return _Item(group.band, priority(worth, group.tokens), positions or group.positions[:1], tokens, place, None, needs)

    def _take(self, item: _Item) -> bool:
        """Keep an item, with what it needs, if it fits."""
        cost = self._cost(item)
        if cost > self.room:
            return False
        chain = [item]
        while (needs := chain[-1].needs) is not None and not needs.taken:
            chain.append(needs)
            cost += self._cost(needs)
        if not item.place.is_open:
            for at in item.place.texts:
                cost += self._mark_tokens(at)
            for at in item.place.rigid:
                cost += self._candidates[at].tokens
        if cost > self.room:
            return False
        self.room -= cost
        if not item.place.is_open:
            self._open(item.place)
        for link in chain:
            link.taken = True
            for at in link.positions:
                message = self._candidates[at].message
                self.kept[at] = message if link.forms is None else link.forms.get(at, message)
                self._why[at] = _IN_BAND[link.band]
                self.changed.discard(at)
                self._marks.discard(at)
            if link.forms:
                self.changed.update(link.forms)
        return True

    def _cost(self, item: _Item) -> int:
        at = item.positions[0]
        return item.tokens - (self._mark_tokens(at) if at in item.place.texts else 0)

    def _mark_tokens(self, at: int) -> int:
        return min(self._candidates[at].tokens, self._stub_tokens)

    def _open(self, place: _Place) -> None:
        place.is_open = True
        for at in place.texts:
            candidate = self._candidates[at]
            self.kept[at] = candidate.message
            self._why[at] = PLACE_KEPT
            if candidate.tokens > self._stub_tokens:
                self._marks.add(at)
        for at in place.rigid:
            self.kept[at] = self._candidates[at].message
            self._why[at] = "in an exchange of which something stays"
