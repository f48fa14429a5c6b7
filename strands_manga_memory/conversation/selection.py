"""Selection: the messages of a history that stay within a budget, and those of them that are truncated. Pure.

These stay: the first turn (what the user asked, and the final answer), the current turn, and pinned messages. Other messages
stay by band of their dialogue act, then by worth per token, then the newest. A question may stay without its answer, and an
answer without its question. A tool call stays with its result or not at all; the result perhaps in short form. If the messages
that stay in any case leave no room, they are truncated in the order of :func:`_make_room`.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from strands.types.content import Message

from strands_manga_memory.conversation.features import MessageFeatures, fixed_signals, priority
from strands_manga_memory.conversation.message_truncation import MessageTruncator, condensed_message
from strands_manga_memory.conversation.scoring import HIGH, LOW, MIDDLE, Band, Bands, SignalWeights
from strands_manga_memory.messages import is_of_tools, is_tool_pair, is_turn_start, tool_use_ids, turns
from strands_manga_memory.messages.placeholders import PLACEHOLDER
from strands_manga_memory.messages.provider_format import placeholder_count, stands_apart

FIRST_TURN = "first turn"
CURRENT_TURN = "current turn"
PINNED = "pinned, or in the tool call of a pinned message"
NO_ROOM = "no room in the budget"
TOO_MANY_TURNS = "over the cap in turns"
_IN_BAND = {band: f"{band.name.lower()} band" for band in Band}

_LEAST_READABLE = 24
"""Tokens of a truncated piece that can still be read."""


@dataclass(frozen=True)
class SelectionBudget:
    """The limits of a selection.

    Attributes:
        tokens: Most tokens.
        turns: Most turns; None: as many as fit. Messages that stay in any case are not bound by it.
        bands: Scores from which the bands begin.
        may_truncate: Whether messages that stay in any case may be truncated.
        weights: The weights of the signals.
        service: Degree to which the assistant serves, 0 to 1.
        fill_to: Tokens up to which other messages are kept; None: ``tokens``.
        headroom: Part of ``tokens`` that is there only for the user's words in the current turn.
        spares_request: Whether the user's words in the current turn stay whole.
        lasting_turns: Number of turns that the selection is to last: messages count as fresh as they will be at their end.
    """

    tokens: int
    turns: int | None = None
    bands: Bands = field(default_factory=Bands)
    may_truncate: bool = True
    weights: SignalWeights = field(default_factory=SignalWeights)
    service: float = 0.0
    fill_to: int | None = None
    headroom: int = 0
    spares_request: bool = False
    lasting_turns: int = 0

    @property
    def most(self) -> int:
        """Tokens up to which messages are kept that need not stay."""
        return self.tokens if self.fill_to is None else min(self.tokens, self.fill_to)


@dataclass(frozen=True)
class Selection:
    """The outcome of a selection.

    Attributes:
        kept: The messages that stay, by position, in order; truncated ones in their new form.
        truncated: Positions of the truncated messages.
        reasons: For every position, why the message stays or goes.
        tokens: Tokens of the messages that stay, and of the placeholders that a request has between them.
        tokens_before: Tokens of all messages.
        budget: Most tokens that were allowed.
    """

    kept: dict[int, Message]
    truncated: frozenset[int]
    reasons: dict[int, str]
    tokens: int
    tokens_before: int
    budget: int = 0

    @property
    def messages(self) -> list[Message]:
        """The messages that stay, in order."""
        return list(self.kept.values())


def select(
    messages: Sequence[Message],
    features: Sequence[MessageFeatures],
    budget: SelectionBudget,
    *,
    first_turn: Collection[str],
    count: Callable[[Message], int],
) -> Selection:
    """Select the messages of a history that stay.

    The selection is over the budget only if pinned messages, reasoning, calls that wait for their results or a request that is
    spared are.

    Args:
        messages: The history, or the last messages of the log.
        features: The features of each message.
        budget: The limits.
        first_turn: Tracking ids of the messages of the first turn; none while it is the current one.
        count: Returns the tokens of a message.
    """
    parts = [_parts(messages, turn) for turn in turns(messages)]
    required = _required(messages, parts, frozenset(_positions_of(messages, first_turn)))
    reasons = {**dict.fromkeys(range(len(messages)), NO_ROOM), **required}
    positions = sorted(required)
    placeholder = count({"role": "assistant", "content": [{"text": PLACEHOLDER}]})
    reserved = placeholder * placeholder_count([messages[at] for at in positions])
    truncator = MessageTruncator(
        {at: messages[at] for at in positions},
        {at: features[at].tokens for at in positions},
        count,
        _locked(messages, required, spares_request=budget.spares_request),
    )
    if budget.may_truncate:
        demand = _demand(messages, features, parts, required, budget.bands)
        _make_room(truncator, required, parts, demand, max(1, budget.tokens - reserved), budget.headroom)
    reasons |= dict.fromkeys(required.keys() - truncator.messages.keys(), NO_ROOM)
    fill = _Fill(messages, features, budget, truncator, placeholder, reasons)
    fill.add(parts, required, count)
    return Selection(
        {at: fill.kept[at] for at in sorted(fill.kept)},
        frozenset(truncator.changed | fill.condensed),
        reasons,
        budget.most - fill.room,
        sum(each.tokens for each in features),
        budget.tokens,
    )


# --- Messages that stay or go together ------------------------------------------------------------


class _TurnParts(NamedTuple):
    """Positions of the messages of a turn.

    Attributes:
        singles: Messages that stay or go alone.
        cycles: Tool calls with their results.
        others: Other messages of tool calls and results; all of them stay or go together.
    """

    singles: tuple[int, ...]
    cycles: tuple[tuple[int, int], ...]
    others: tuple[int, ...]

    def positions(self) -> Iterator[int]:
        yield from self.singles
        yield from self.others
        for cycle in self.cycles:
            yield from cycle

    def groups(self) -> Iterator[tuple[int, ...]]:
        yield from self.cycles
        if self.others:
            yield self.others


def _parts(messages: Sequence[Message], turn: range) -> _TurnParts:
    singles: list[int] = []
    cycles: list[tuple[int, int]] = []
    others: list[int] = []
    at = turn.start
    while at < turn.stop:
        if not is_of_tools(messages[at]):
            singles.append(at)
        elif at + 1 < turn.stop and is_tool_pair(messages[at], messages[at + 1]):
            cycles.append((at, at + 1))
            at += 1
        else:
            others.append(at)
        at += 1
    return _TurnParts(tuple(singles), tuple(cycles), tuple(others))


def _positions_of(messages: Sequence[Message], ids: Collection[str]) -> Iterator[int]:
    """Yield the first position of each id; a caller may have sent the same message again later."""
    missing = set(ids)
    for at, message in enumerate(messages):
        if not missing:
            return
        id_ = message.get("tracking_id")
        if id_ in missing:
            missing.remove(id_)
            yield at


def is_pinned(message: Message) -> bool:
    """Tell whether a message has Strands' pin, ``metadata.custom.pinned``."""
    metadata = message.get("metadata")
    custom = metadata.get("custom") if isinstance(metadata, dict) else None
    return isinstance(custom, dict) and custom.get("pinned") is True


def _required(messages: Sequence[Message], parts: Sequence[_TurnParts], first: frozenset[int]) -> dict[int, str]:
    """Return the positions of the messages that stay in any case, and why each does."""
    required: dict[int, str] = {}
    pinned = {at for at, message in enumerate(messages) if "metadata" in message and is_pinned(message)}
    for turn in parts:
        required |= {at: FIRST_TURN for at in turn.singles if at in first}
        required |= {at: PINNED for at in turn.singles if at in pinned and at not in first}
        if not pinned.isdisjoint(turn.others) or not first.isdisjoint(turn.others):
            required |= dict.fromkeys(turn.others, PINNED if first.isdisjoint(turn.others) else FIRST_TURN)
        for cycle in turn.cycles:
            if not pinned.isdisjoint(cycle):
                required |= dict.fromkeys(cycle, PINNED)
    if parts:
        required |= dict.fromkeys(parts[-1].positions(), CURRENT_TURN)
    return required


def _locked(messages: Sequence[Message], required: Collection[int], *, spares_request: bool) -> frozenset[int]:
    """Return the positions of required messages that are not truncated.

    A call in the last message may be about to run with the very input that it holds.
    """
    locked = {at for at in required if is_pinned(messages[at])}
    if messages and tool_use_ids(messages[-1]):
        locked.add(len(messages) - 1)
    if spares_request:
        locked.update([next(at for at in reversed(range(len(messages))) if is_turn_start(messages[at]))])
    return frozenset(locked)


# --- Room -----------------------------------------------------------------------------------------


class _Demand(NamedTuple):
    """Tokens of the messages that need not stay: those of two bands, and the user's own words."""

    high: int
    middle: int
    user: int


def _demand(
    messages: Sequence[Message],
    features: Sequence[MessageFeatures],
    parts: Sequence[_TurnParts],
    required: Collection[int],
    bands: Bands,
) -> _Demand:
    tokens = dict.fromkeys(Band, 0)
    user = 0
    for turn in parts:
        for at in turn.singles:
            if at not in required:
                tokens[bands.of(features[at].score)] += features[at].tokens
                user += features[at].tokens if is_turn_start(messages[at]) else 0
        for group in turn.groups():
            if group[0] not in required:
                tokens[_group_band(group, features, bands)] += sum(features[at].tokens for at in group)
    return _Demand(tokens[HIGH], tokens[MIDDLE], user)


def _group_band(group: Sequence[int], features: Sequence[MessageFeatures], bands: Bands) -> Band:
    """Return the band of a tool call with its result, which is never among the first to go."""
    return max(MIDDLE, bands.of(max(features[at].score for at in group)))


def _make_room(
    truncator: MessageTruncator,
    required: dict[int, str],
    parts: Sequence[_TurnParts],
    demand: _Demand,
    budget: int,
    headroom: int,
) -> None:
    """Truncate messages that stay in any case until they are within the budget; large tool results and an answer further.

    Both give way to the high band. The first turn's answer keeps its beginning and its end in any case. In this order, each
    step as far as it is needed: tool results (older ones first, the largest first), the answer that ended the turn, texts of
    the first turn, the oldest tool calls of the current turn, a note for media, other texts, inputs of tool calls; then the
    same more drastically. At least half of the budget is left to messages that stay in any case; if they were over it, up to a
    quarter is freed for the middle band, so that one huge result does not drive out the conversation. Pinned messages are
    never truncated: if they alone are over the budget, the others keep a readable size.
    """
    was_over, usual = truncator.tokens > budget, budget - headroom
    first = [at for at, reason in required.items() if reason == FIRST_TURN]
    floor = max(64, usual // 32)
    truncator.truncate("text", [at for at in first if truncator.messages[at]["role"] == "assistant"], 0, 2 * floor)
    if truncator.tokens <= headroom + usual // 2:
        return
    middle = demand.middle if was_over else min(demand.middle, demand.user)
    aim = headroom + max(usual // 2, usual - demand.high - min(middle, usual // 4))
    if truncator.tokens <= aim:
        return
    everything = list(truncator.messages)
    truncator.truncate("toolResult", everything[:-1], aim, floor)
    truncator.truncate("toolResult", everything[-1:], aim, floor)
    for deeper in (floor // 2, floor // 4) if demand.user else ():  # the user's words are worth more than old results
        target = budget - min(demand.user, usual // 4)
        truncator.truncate("toolResult", everything[:-1], target, max(_LEAST_READABLE, deeper))
    truncator.truncate("text", _final_answer(truncator), aim, 2 * floor)
    if truncator.tokens <= budget:
        return
    truncator.truncate("text", first, aim, floor)
    last = max(truncator.messages)
    for cycle in parts[-1].cycles:
        if truncator.tokens > budget and last not in cycle:  # nobody has used the last results yet
            truncator.drop(cycle)
    everything = list(truncator.messages)
    truncator.leave_out_media(everything, budget)
    truncator.truncate("text", everything, aim, floor)
    truncator.truncate("toolUse", everything, aim, floor)
    if truncator.locked_tokens < budget:
        for least in (_LEAST_READABLE, 1):  # of many pieces even a readable size each may be too much
            for kind in ("toolResult", "text", "toolUse"):
                truncator.truncate(kind, list(truncator.messages), budget, least)


def _final_answer(truncator: MessageTruncator) -> list[int]:
    """Return the position of the answer that ended the current turn: it was read, and may give way."""
    last = max(truncator.messages, default=-1)
    is_answer = last >= 0 and truncator.messages[last]["role"] == "assistant"
    return [last] if is_answer and not tool_use_ids(truncator.messages[last]) else []


# --- Other messages -------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class _Item:
    """Messages that stay or go as one.

    Attributes:
        rank: Their band, worth per token and position; the item of the highest rank is taken first.
        positions: Their positions.
        tokens: Their tokens.
        turn: Number of their turn.
        condensed: The short form of the last message, which is taken instead.
        needs: An item that is taken with this one.
        is_taken: Whether they stay.
    """

    rank: tuple[Band, float, int]
    positions: tuple[int, ...]
    tokens: int
    turn: int
    condensed: Message | None = None
    needs: _Item | None = None
    is_taken: bool = False


_RANK = attrgetter("rank")


class _Fill:
    """Messages that stay, and the room that is left for others.

    Attributes:
        kept: The messages that stay, by position.
        condensed: Positions of messages that stay in short form.
        room: Tokens that are left.
    """

    def __init__(
        self,
        messages: Sequence[Message],
        features: Sequence[MessageFeatures],
        budget: SelectionBudget,
        truncator: MessageTruncator,
        placeholder: int,
        reasons: dict[int, str],
    ) -> None:
        self.kept = truncator.messages
        self.condensed: set[int] = set()
        self._messages = messages
        self._features = features
        self._budget = budget
        self._placeholder = placeholder
        self._reasons = reasons
        self._order = sorted(self.kept)
        placeholders = placeholder_count([self.kept[at] for at in self._order])
        self.room = budget.most - truncator.tokens - placeholder * placeholders

    def add(self, parts: Sequence[_TurnParts], required: Collection[int], count: Callable[[Message], int]) -> None:
        """Add messages by band, then by worth per token, then the newest first, as long as they fit."""
        opened = {number for number, turn in enumerate(parts) if not self.kept.keys().isdisjoint(turn.positions())}
        most_turns = self._budget.turns or len(parts)
        for item in sorted(self._items(parts, required, count), key=_RANK, reverse=True):
            if item.is_taken:
                continue
            if item.turn not in opened and len(opened) >= most_turns:
                self._reasons.update(dict.fromkeys(item.positions, TOO_MANY_TURNS))
            elif self._take(item):
                opened.add(item.turn)

    def _items(
        self, parts: Sequence[_TurnParts], required: Collection[int], count: Callable[[Message], int]
    ) -> Iterator[_Item]:
        weights, service = self._budget.weights, self._budget.service
        fading: float = 0.5 ** (1 / weights.half_life)
        fresh = fading ** (self._budget.lasting_turns - 1)
        for number in reversed(range(len(parts))):
            turn = parts[number]
            fresh *= fading
            recency = weights.recency * fresh
            by_assistant = service * (weights.service + weights.fresh_service * fresh)
            for at in turn.singles:
                if at not in required:
                    yield from self._single(at, number, recency, by_assistant, count)
            for cycle in turn.cycles:
                if cycle[0] not in required:
                    yield from self._cycle(cycle, number, weights.tool + weights.fresh_tool * fresh, count)
            if turn.others and turn.others[0] not in required:
                worth = max(self._worth(at, recency, by_assistant) for at in turn.others)
                tokens = sum(self._features[at].tokens for at in turn.others)
                band = self._budget.bands.of(max(self._features[at].score for at in turn.others))
                yield _Item((band, priority(worth, tokens), turn.others[0]), turn.others, tokens, number)

    def _single(
        self, at: int, turn: int, recency: float, by_assistant: float, count: Callable[[Message], int]
    ) -> Iterator[_Item]:
        features = self._features[at]
        band = self._budget.bands.of(features.score)
        if features.answers and band is LOW:
            band = MIDDLE  # "yes" to a question is more than small talk
        worth = self._worth(at, recency, by_assistant)
        yield from self._with_short_form((at,), band, LOW, worth, turn, count)

    def _worth(self, at: int, recency: float, by_assistant: float) -> float:
        """Return the worth of a message: its fixed signals, those of later messages, and those of its age."""
        weights, features = self._budget.weights, self._features[at]
        if features.worth is None:
            features.worth = sum(fixed_signals(features, weights).values())
        worth = features.worth + recency
        if features.referenced:
            worth += weights.referenced * math.log1p(features.referenced)
        return worth + by_assistant if self._messages[at]["role"] == "assistant" else worth

    def _cycle(self, cycle: tuple[int, int], turn: int, by_age: float, count: Callable[[Message], int]) -> Iterator[_Item]:
        """Yield a tool call with its result; if that has a short form, the call with the short form, and the rest of it."""
        score = max(self._features[at].score for at in cycle)
        worth = self._budget.weights.act * (score - 0.5) + by_age
        band = _group_band(cycle, self._features, self._budget.bands)
        yield from self._with_short_form(cycle, band, band, worth, turn, count)

    def _with_short_form(
        self,
        positions: tuple[int, ...],
        band: Band,
        rest_band: Band,
        worth: float,
        turn: int,
        count: Callable[[Message], int],
    ) -> Iterator[_Item]:
        """Yield messages; if the last one has a short form, the messages with the short form, and the rest of it."""
        tokens = sum(self._features[at].tokens for at in positions)
        condensed = self._condensed(positions[-1], count) if self._budget.may_truncate else None
        if condensed is None:
            yield _Item((band, priority(worth, tokens), positions[0]), positions, tokens, turn)
            return
        saved = self._features[positions[-1]].tokens - condensed[1]
        rank = band, priority(worth, tokens - saved), positions[0]
        item = _Item(rank, positions, tokens - saved, turn, condensed[0])
        yield item
        rank = rest_band, priority(worth + self._budget.weights.whole_result, saved), positions[0]
        yield _Item(rank, positions, saved, turn, needs=item)

    def _condensed(self, at: int, count: Callable[[Message], int]) -> tuple[Message, int] | None:
        """Return the short form of a message and its tokens; None if it is not shorter."""
        message, features = self._messages[at], self._features[at]
        if features.condensed is None:
            short = condensed_message(message)
            features.condensed = (message, features.tokens) if short is None else (short, count(short))
        return features.condensed if features.condensed[1] < features.tokens else None

    def _take(self, item: _Item) -> bool:
        """Keep an item, and the one that it needs, if both fit; return whether they do."""
        chain = [item] if item.needs is None or item.needs.is_taken else [item.needs, item]
        tokens = sum(link.tokens for link in chain)
        if tokens > self.room + 2 * self._placeholder:  # a message may make placeholders superfluous
            return False
        new = [at for at in item.positions if at not in self.kept]
        added = sum(map(self._insert, new))
        if tokens + added * self._placeholder > self.room:
            self._order = [at for at in self._order if at not in new] if new else self._order
            return False
        self.room -= tokens + added * self._placeholder
        for link in chain:
            link.is_taken = True
            for at in link.positions:
                is_short = link.condensed is not None and at == link.positions[-1]
                self.kept[at] = link.condensed if is_short and link.condensed is not None else self._messages[at]
                self._reasons[at] = _IN_BAND[link.rank[0]]
                (self.condensed.add if is_short else self.condensed.discard)(at)
        return True

    def _insert(self, at: int) -> int:
        """Insert a position into the order; return the number of placeholders that a request has more then."""
        index = bisect(self._order, at)
        around: list[Message | None] = [
            self._messages[self._order[near]] if 0 <= near < len(self._order) else None for near in range(index - 2, index + 2)
        ]
        self._order.insert(index, at)
        message = self._messages[at]
        return _placeholders([*around[:2], message, *around[2:]]) - _placeholders(around)


def _placeholders(around: Sequence[Message | None]) -> int:
    """Return the number of placeholders between neighbours, the last of which only follows."""
    return sum(
        message is not None and stands_apart(before, message, after)
        for before, message, after in zip(around, around[1:], around[2:], strict=False)
    )
