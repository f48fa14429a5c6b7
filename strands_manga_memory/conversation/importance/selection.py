"""The choice: which messages of a history stay under a budget, and which of those are shortened.

What must stay: the first turn (the original intent: what the user asked, and the final answer), the current turn, and what is
pinned. What else there is stays by band, then by worth per token, then the newest. A question may stay without its answer and
an answer without its question: a mark of one token keeps the place of the other, so that roles alternate. A tool call stays
with its result or not at all; a result, or several texts, perhaps as their gist. If what must stay leaves no room, it
is shortened in the order of :func:`_make_room`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from strands.types.content import Message

from strands_manga_memory.conversation.history.exchanges import Exchange, exchanges
from strands_manga_memory.conversation.history.gist import gist_of
from strands_manga_memory.conversation.history.shortening import Shortener
from strands_manga_memory.conversation.history.stubs import is_stub, is_text, stub_of
from strands_manga_memory.conversation.importance.weighing.note import Note
from strands_manga_memory.conversation.importance.weighing.scoring import Band, Bands
from strands_manga_memory.conversation.importance.weighing.signals import SignalWeights, fixed_signals, priority
from strands_manga_memory.language.texts.marks import STUB
from strands_manga_memory.messages import is_turn_start, tool_use_ids

FIRST_TURN = "first turn"
CURRENT_TURN = "current turn"
PINNED = "pinned, or in the exchange of a pinned message"
NO_ROOM = "no room in the budget"
TOO_MANY_TURNS = "over the cap in turns"
_IN_BAND = {band: f"{band.name.lower()} band" for band in Band}
PLACE_KEPT = "left out, a mark keeps its place"

_HARD_FLOOR = 24


class Candidate(NamedTuple):
    """A message and what is known about it."""

    message: Message
    tokens: int
    score: float
    note: Note | None = None


@dataclass(frozen=True)
class Limits:
    """What the choice has to keep to.

    Attributes:
        tokens: The budget.
        turns: Most exchanges to keep; None: as many as fit. What must stay is not bound by it.
        bands: Where the bands begin.
        may_shorten: Whether what must stay may be shortened if it is too large.
        weights: What the signals count.
        service: How far the assistant is one that serves, 0 to 1.
        fill_to: Tokens up to which what need not stay is kept; None: the budget. What must stay may take all of the budget.
        headroom: Of ``tokens``, those that are there only for what the user says in the current turn.
        spares_request: Whether that stays whole.
        lasts: How many exchanges the choice is to last: what counts is how fresh a message will be at their end.
    """

    tokens: int
    turns: int | None = None
    bands: Bands = field(default_factory=Bands)
    may_shorten: bool = True
    weights: SignalWeights = field(default_factory=SignalWeights)
    service: float = 0.0
    fill_to: int | None = None
    headroom: int = 0
    spares_request: bool = False
    lasts: int = 0


@dataclass(frozen=True)
class Choice:
    """The outcome.

    Attributes:
        kept: The messages that stay, by position, in order; shortened ones in their new form.
        shortened: Positions of those that were shortened.
        why: For every position, why it stays or goes.
        tokens: The tokens of what stays.
        tokens_before: The tokens of the history.
        budget: What they had to keep to.
    """

    kept: dict[int, Message]
    shortened: frozenset[int]
    why: dict[int, str]
    tokens: int
    tokens_before: int
    budget: int = 0


def choose(
    candidates: Sequence[Candidate], limits: Limits, *, first_turn: Collection[str], count: Callable[[Message], int]
) -> Choice:
    """Choose what stays.

    Args:
        candidates: The history.
        limits: The budget and the bands.
        first_turn: Tracking ids of the messages of the first turn; empty if it is still the current one.
        count: Counts the tokens of a message that was shortened.

    Returns:
        The choice. Its ``tokens`` are over the budget only if pinned messages, reasoning, calls that wait for their results or
        a request that is spared take more than the budget.
    """
    groups = _groups(candidates, limits.bands, first_turn)
    required = {at: group.required for group in groups if group.required for at in group.positions}
    why: dict[int, str] = dict(required)
    locked = {at for at in required if is_pinned(candidates[at].message) or _waits(at, candidates)}
    if limits.spares_request:
        said = (at for at in reversed(range(len(candidates))) if is_turn_start(candidates[at].message))
        locked.update(itertools.islice(said, 1))
    shortener = Shortener(
        {at: candidates[at].message for at in sorted(required)},
        {at: candidates[at].tokens for at in required},
        count,
        frozenset(locked),
    )
    if limits.may_shorten:
        _make_room(shortener, groups, budget=limits.tokens, headroom=limits.headroom)
    for at in required.keys() - shortener.messages.keys():
        why[at] = NO_ROOM
    kept = shortener.messages
    most = limits.tokens if limits.fill_to is None else min(limits.tokens, limits.fill_to)
    filling = _Filling(kept, candidates, limits, most - shortener.tokens, why, count)
    filling.fill(groups)
    changed = frozenset(shortener.changed | filling.changed)
    tokens_before = sum(candidate.tokens for candidate in candidates)
    return Choice({at: kept[at] for at in sorted(kept)}, changed, why, most - filling.room, tokens_before, limits.tokens)


def _waits(at: int, candidates: Sequence[Candidate]) -> bool:
    """Whether the message is last and calls tools: they may be about to run with the very input it holds."""
    return at == len(candidates) - 1 and bool(tool_use_ids(candidates[at].message))


def is_pinned(message: Message) -> bool:
    """Whether the message carries Strands' pin, ``metadata.custom.pinned``."""
    metadata = message.get("metadata")
    return bool(metadata) and ((metadata or {}).get("custom") or {}).get("pinned") is True


# --- What stays or goes as one ----------------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class _Group:
    """Messages that stay or go together, and only if their parent stays."""

    positions: tuple[int, ...]
    tokens: int
    score: float
    band: Band
    parent: _Group | None
    required: str = ""
    is_cycle: bool = False
    spoken: int = 0


def _groups(candidates: Sequence[Candidate], bands: Bands, first_turn: Collection[str]) -> list[_Group]:
    """Return all groups, from the newest exchange to the oldest, parents before children."""
    first = frozenset(_first_positions(candidates, first_turn))
    pinned = frozenset(at for at, candidate in enumerate(candidates) if is_pinned(candidate.message))
    found: list[_Group] = []
    current = True
    for exchange in reversed(exchanges([candidate.message for candidate in candidates])):
        groups = _of_exchange(exchange, candidates, bands)
        core = groups[0]
        for group in groups:
            if current and (group is core or group.is_cycle):
                group.required = CURRENT_TURN
            elif not group.is_cycle and not first.isdisjoint(group.positions):
                group.required = FIRST_TURN
                core.required = core.required or FIRST_TURN
            elif not pinned.isdisjoint(group.positions):
                group.required = PINNED
                core.required = core.required or PINNED
        found += groups
        current = False
    return found


def _first_positions(candidates: Sequence[Candidate], ids: Collection[str]) -> Iterator[int]:
    """Where the messages of the first turn are; a caller may have sent the same message again later."""
    missing = set(ids)
    for at, candidate in enumerate(candidates):
        if not missing:
            return
        id_ = candidate.message.get("tracking_id")
        if id_ in missing:
            missing.remove(id_)
            yield at


def _of_exchange(exchange: Exchange, candidates: Sequence[Candidate], bands: Bands) -> list[_Group]:
    """The groups of one exchange: its core, its cycles, and the unanswered turns before it, the newest first.

    A parent is worth at least as much as its children, so that it is chosen before them. An unanswered turn stays only if all
    that follows it does: two user messages that did not meet before would meet otherwise.
    """
    core = _group(candidates, exchange.core, None)
    if not exchange.cycles and not exchange.unanswered:
        core.band = bands.of(core.score)
        return [core]
    cycles = [_group(candidates, positions, core, is_cycle=True) for positions in reversed(exchange.cycles)]
    waiting = core
    unanswered = [waiting := _group(candidates, positions, waiting) for positions in reversed(exchange.unanswered)]
    for child in (*cycles, *reversed(unanswered)):
        parent = child.parent or core
        parent.score = max(parent.score, child.score)
    groups = [core, *cycles, *unanswered]
    for each in groups:
        each.band = bands.of(each.score)
    return groups


def _group(
    candidates: Sequence[Candidate], positions: tuple[int, ...], parent: _Group | None, *, is_cycle: bool = False
) -> _Group:
    tokens, score, spoken = 0, 0.0, 0
    for at in positions:
        message, size, worth, _ = candidates[at]
        tokens += size
        if worth > score:
            score = worth
        if is_turn_start(message):
            spoken += size
    return _Group(positions, tokens, score, Band.LOW, parent, "", is_cycle, spoken)


def _band(group: _Group) -> Band:
    """Return the band in which a group is chosen: a tool call with its result is never among the first out."""
    return max(Band.MIDDLE, group.band) if group.is_cycle else group.band


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


class _Filling:
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

    def fill(self, groups: Sequence[_Group]) -> None:
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

    def _items(self, groups: Sequence[_Group]) -> list[_Item]:
        items: list[_Item] = []
        place = _Place()
        by_group: dict[_Group, _Item] = {}
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

    def _place(self, core: _Group) -> _Place:
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

    def _cycle(self, group: _Group, fresh: float, place: _Place) -> Iterator[_Item]:
        """A call with the gist of its result, and the rest of the result."""
        weights = self._limits.weights
        worth = weights.act * (group.score - 0.5) + weights.tool + weights.fresh_tool * fresh
        band = _band(group)
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
            gist = gist_of(candidate.message, ())
            candidate.note.gist = (gist, self._count(gist)) if gist is not None else (candidate.message, candidate.tokens)
        gist, tokens = candidate.note.gist
        return (gist, tokens) if tokens < candidate.tokens else None

    def _whole(self, group: _Group, place: _Place, fresh: float, needs: _Item | None) -> _Item:
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


# --- When what must stay is too much ----------------------------------------------------------------------------------------


def _make_room(shortener: Shortener, groups: Sequence[_Group], *, budget: int, headroom: int = 0) -> None:
    """Shorten what must stay until it is within the budget, and large tool results until the high band has room as well.

    The first turn's answer keeps its ends in any case. In this order, each step as far as it is needed: tool results (older
    ones first, the largest first), texts of the first turn, the oldest tool calls of the current turn (with their results), a
    note for images and documents, other texts, inputs of tool calls; then the same more drastically; then what stays only
    because a message beside it is pinned; at last nothing of a piece but the note that it was cut. At least half of the budget
    is left to what must stay; if it was over the budget, up to a quarter is freed for the middle band, so that one huge result
    does not drive out the conversation. Pinned messages are never touched: if they alone are over the budget, the rest keeps a
    readable size and the result is over it.
    """
    others = dict.fromkeys(Band, 0)
    spoken = 0
    for group in groups:
        others[_band(group)] += 0 if group.required else group.tokens
        spoken += 0 if group.required else group.spoken
    middle = others[Band.MIDDLE] if shortener.tokens > budget else min(others[Band.MIDDLE], spoken)
    usual = budget - headroom
    wanted = others[Band.HIGH] + min(middle, usual // 4)
    aim = headroom + max(usual // 2, usual - wanted)
    first = [at for group in groups if group.required == FIRST_TURN for at in group.positions]
    floor = max(64, usual // 32)
    answers = [at for at in first if shortener.messages[at]["role"] == "assistant"]
    shortener.shorten("text", answers, 0, 2 * floor)  # what was asked first must stay, not all that was answered
    if shortener.tokens <= aim:
        return
    everything = list(shortener.messages)
    shortener.shorten("toolResult", everything[:-1], aim, floor)
    shortener.shorten("toolResult", everything[-1:], aim, floor)
    for deeper in (floor // 2, floor // 4) if spoken else ():  # the user's own words are worth more than old results
        shortener.shorten("toolResult", everything[:-1], budget - min(spoken, usual // 4), max(_HARD_FLOOR, deeper))
    if shortener.tokens <= budget:
        return
    shortener.shorten("text", first, aim, floor)
    for group in reversed(groups):
        if group.is_cycle and group.required == CURRENT_TURN and shortener.tokens > budget:
            shortener.drop(group.positions)
    everything = list(shortener.messages)
    shortener.leave_out_media(everything, budget)
    shortener.shorten("text", everything, aim, floor)
    shortener.shorten("toolUse", everything, aim, floor)
    if shortener.locked_tokens < budget:
        for kind in ("toolResult", "text", "toolUse"):
            shortener.shorten(kind, everything, budget, _HARD_FLOOR)
        for group in reversed(groups):
            if group.required == PINNED:
                _drop_around_pins(shortener, group.positions, budget)
        for kind in ("toolResult", "text", "toolUse"):  # of many pieces even a readable size each may be too much
            shortener.shorten(kind, list(shortener.messages), budget, 1)


def _drop_around_pins(shortener: Shortener, positions: Sequence[int], budget: int) -> None:
    """Drop what is in an exchange beside its pinned messages and the other halves of pinned tool calls and results."""
    waiting: list[int] = []
    for at in positions:
        waiting.append(at)
        if not tool_use_ids(shortener.messages[at]):
            if shortener.tokens > budget:
                shortener.drop(waiting)
            waiting = []
