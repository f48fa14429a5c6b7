"""Selection: the messages of a history that stay within a budget, and those of them that are truncated. Pure.

These stay: the first turn (the user's question and the final answer), the current turn, and pinned messages. Other messages
stay by band of their dialogue act, then by worth per token, then the newest. A question may stay without its answer, and an
answer without its question. A tool call stays with its result or not at all; the result perhaps in short form. If the messages
that stay in any case leave no room, they are truncated in the order of :func:`_make_room`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from strands.types.content import Message

from strands_manga_memory.conversation.features import MessageFeatures, priority, text_signals, tool_signals
from strands_manga_memory.conversation.message_truncation import MessageTruncator, condensed_message
from strands_manga_memory.conversation.scoring import HIGH, LOW, MIDDLE, Band, Bands, SignalWeights
from strands_manga_memory.messages import is_of_tools, is_tool_pair, is_turn_start, tool_use_ids, turns
from strands_manga_memory.messages.message_parts import PLACEHOLDER
from strands_manga_memory.messages.provider_format import placeholder_count

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

    The selection exceeds the budget only if pinned messages, reasoning, tool calls without results or a spared request alone
    exceed it.

    Args:
        messages: The history, or the last messages of the log.
        features: The features of each message.
        budget: The limits.
        first_turn: Tracking ids of the messages of the first turn; none while it is the current one.
        count: Returns the tokens of a message.
    """
    units = _units(messages)
    required = _required(messages, units, frozenset(first_turn))
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
    others = [unit for unit in units if unit.positions[0] not in required]
    if budget.may_truncate:
        demand = _demand(messages, features, others, budget.bands)
        cycles = [unit for unit in units if unit.is_cycle and unit.turn == units[-1].turn]
        full, most = max(1, budget.tokens - reserved), max(1, budget.most - reserved)
        _make_room(truncator, required, cycles, demand, full, most, budget.headroom)
    reasons |= dict.fromkeys(required.keys() - truncator.messages.keys(), NO_ROOM)
    opened = {unit.turn for unit in units if not truncator.messages.keys().isdisjoint(unit.positions)}
    items = _items(messages, features, budget, others, units[-1].turn if units else 0, count)
    taken = _take(items, budget.most - truncator.tokens - reserved, opened, budget.turns, reasons)
    while True:
        kept, condensed = _kept(messages, truncator.messages, taken)
        tokens = truncator.tokens + sum(item.tokens for item in taken) + placeholder * placeholder_count(list(kept.values()))
        if tokens <= budget.most or not taken:
            break
        reasons |= dict.fromkeys(taken.pop().positions, NO_ROOM)
    for item in taken:
        if item.needs is None:
            reasons |= dict.fromkeys(item.positions, _IN_BAND[item.rank[0]])
    return Selection(
        kept,
        frozenset(truncator.changed | condensed),
        reasons,
        tokens,
        sum(each.tokens for each in features),
        budget.tokens,
    )


# --- Messages that stay or go together ------------------------------------------------------------


class _Unit(NamedTuple):
    """Messages that stay or go as one: a text, a tool call with its result, or a turn's other messages of tools.

    Attributes:
        positions: Their positions.
        turn: Number of their turn.
        is_cycle: Whether they are a tool call with its result.
    """

    positions: tuple[int, ...]
    turn: int
    is_cycle: bool = False

    def tokens(self, features: Sequence[MessageFeatures]) -> int:
        """Return their tokens."""
        return sum([features[at].tokens for at in self.positions])

    def band(self, features: Sequence[MessageFeatures], bands: Bands) -> Band:
        """Return their band. A tool call with its result, and the answer to a question, are never in the lowest."""
        band = bands.of(max([features[at].score for at in self.positions]))
        return MIDDLE if band is LOW and (self.is_cycle or features[self.positions[0]].answers) else band


def _units(messages: Sequence[Message]) -> list[_Unit]:
    """Return all messages in units, turn by turn."""
    units: list[_Unit] = []
    for number, turn in enumerate(turns(messages)):
        others: list[int] = []
        at = turn.start
        while at < turn.stop:
            if not is_of_tools(messages[at]):
                units.append(_Unit((at,), number))
            elif at + 1 < turn.stop and is_tool_pair(messages[at], messages[at + 1]):
                units.append(_Unit((at, at + 1), number, is_cycle=True))
                at += 1
            else:
                others.append(at)
            at += 1
        if others:
            units.append(_Unit(tuple(others), number))
    return units


def is_pinned(message: Message) -> bool:
    """Return whether a message has Strands' pin, ``metadata.custom.pinned``."""
    metadata = message.get("metadata")
    custom = metadata.get("custom") if isinstance(metadata, dict) else None
    return isinstance(custom, dict) and custom.get("pinned") is True


def _required(messages: Sequence[Message], units: Sequence[_Unit], first_turn: Collection[str]) -> dict[int, str]:
    """Return the positions of the messages that stay in any case, and why each does.

    Of an id of the first turn its first message counts: a caller may have sent the same message again later.
    """
    missing = set(first_turn)
    first: set[int] = set()
    pinned: set[int] = set()
    for at, message in enumerate(messages):
        if (id_ := message.get("tracking_id")) in missing:
            missing.remove(id_)
            first.add(at)
        if is_pinned(message):
            pinned.add(at)
    required: dict[int, str] = {}
    for unit in units:
        if unit.turn == units[-1].turn:
            required |= dict.fromkeys(unit.positions, CURRENT_TURN)
        elif not unit.is_cycle and not first.isdisjoint(unit.positions):
            required |= dict.fromkeys(unit.positions, FIRST_TURN)
        elif not pinned.isdisjoint(unit.positions):
            required |= dict.fromkeys(unit.positions, PINNED)
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


def _demand(messages: Sequence[Message], features: Sequence[MessageFeatures], units: Sequence[_Unit], bands: Bands) -> _Demand:
    tokens = dict.fromkeys(Band, 0)
    user = 0
    for unit in units:
        size = unit.tokens(features)
        tokens[unit.band(features, bands)] += size
        user += size if is_turn_start(messages[unit.positions[0]]) else 0
    return _Demand(tokens[HIGH], tokens[MIDDLE], user)


def _make_room(
    truncator: MessageTruncator,
    required: dict[int, str],
    cycles: Sequence[_Unit],
    demand: _Demand,
    budget: int,
    most: int,
    headroom: int,
) -> None:
    """Truncate messages that stay in any case until they are within the budget; large tool results and an answer further.

    Both give way to the high band. The first turn's answer keeps its beginning and its end in any case. In this order, each
    step only while it is needed: tool results (older ones first, the largest first), the answer that ended the turn, texts of
    the first turn, the oldest tool calls of the current turn, a note for media, other texts, inputs of tool calls; then the
    same more drastically. At least half of the budget is left to messages that stay in any case; if they were over it, up to a
    quarter is freed for the middle band, so that one huge result does not drive out the conversation. Where other messages are
    kept up to a low-water mark, these shares are of that mark. Pinned messages are never truncated: if they alone are over the
    budget, the others keep a readable size.
    """
    was_over, usual = truncator.tokens > most, most - headroom
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
    for cycle in cycles:
        if truncator.tokens > budget and last not in cycle.positions:  # nobody has used the last results yet
            truncator.drop(cycle.positions)
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
    """Messages that are kept or evicted together, whole or truncated; or the difference between both forms.

    Attributes:
        rank: Their band, worth per token and position; the item of the highest rank is taken first.
        positions: Their positions.
        tokens: Their tokens.
        turn: Number of their turn.
        condensed: The short form of the last message, which is taken instead.
        needs: The short form that this item makes whole.
        is_taken: Whether it stays.
    """

    rank: tuple[Band, float, int]
    positions: tuple[int, ...]
    tokens: int
    turn: int
    condensed: Message | None = None
    needs: _Item | None = None
    is_taken: bool = False


_RANK = attrgetter("rank")


def _items(
    messages: Sequence[Message],
    features: Sequence[MessageFeatures],
    budget: SelectionBudget,
    units: Sequence[_Unit],
    last_turn: int,
    count: Callable[[Message], int],
) -> list[_Item]:
    """Return units of messages as items, by rank; those with a short form as two: the short form, and the rest."""
    weights = budget.weights
    items: list[_Item] = []
    for unit in units:
        first, last = unit.positions[0], unit.positions[-1]
        age = last_turn - unit.turn + budget.lasting_turns
        if unit.is_cycle:
            score = max(features[first].score, features[last].score)
            worth = sum(tool_signals(score, age=age, weights=weights).values())
        else:
            worth = max(_worth(messages[at], features[at], budget, age) for at in unit.positions)
        tokens, band = unit.tokens(features), unit.band(features, budget.bands)
        condensed = _condensed(messages[last], features[last], count) if budget.may_truncate else None
        if condensed is None:
            items.append(_Item((band, priority(worth, tokens), first), unit.positions, tokens, unit.turn))
            continue
        rest = features[last].tokens - condensed[1]
        rank = band, priority(worth, tokens - rest), first
        short = _Item(rank, unit.positions, tokens - rest, unit.turn, condensed[0])
        rank = band if unit.is_cycle else LOW, priority(worth + weights.whole_result, rest), first
        items += [short, _Item(rank, unit.positions, rest, unit.turn, needs=short)]
    items.sort(key=_RANK, reverse=True)
    return items


def _worth(message: Message, features: MessageFeatures, budget: SelectionBudget, age: int) -> float:
    service = budget.service if message["role"] == "assistant" else 0.0
    return sum(text_signals(features, service=service, age=age, weights=budget.weights).values())


def _condensed(message: Message, features: MessageFeatures, count: Callable[[Message], int]) -> tuple[Message, int] | None:
    """Return the short form of a message and its tokens; None if it is not shorter."""
    if features.condensed is None:
        short = condensed_message(message)
        features.condensed = (message, features.tokens) if short is None else (short, count(short))
    return features.condensed if features.condensed[1] < features.tokens else None


def _take(items: Sequence[_Item], room: int, opened: set[int], most_turns: int | None, reasons: dict[int, str]) -> list[_Item]:
    """Take items by rank as long as they fit, each with the short form that it needs; return them in this order."""
    taken: list[_Item] = []
    for item in items:
        if item.is_taken:
            continue
        chain = [item] if item.needs is None or item.needs.is_taken else [item.needs, item]
        tokens = sum(link.tokens for link in chain)
        if most_turns is not None and item.turn not in opened and len(opened) >= most_turns:
            reasons.update(dict.fromkeys(item.positions, TOO_MANY_TURNS))
        elif tokens <= room:
            room -= tokens
            opened.add(item.turn)
            for link in chain:
                link.is_taken = True
                taken.append(link)
    return taken


def _kept(
    messages: Sequence[Message], required: dict[int, Message], taken: Sequence[_Item]
) -> tuple[dict[int, Message], set[int]]:
    """Return the messages that stay, by position, in order, and the positions of those in short form."""
    kept = dict(required)
    condensed: set[int] = set()
    for item in taken:
        kept |= {at: messages[at] for at in item.positions}
        if item.condensed is None:
            condensed.discard(item.positions[-1])
        else:
            kept[item.positions[-1]] = item.condensed
            condensed.add(item.positions[-1])
    return {at: kept[at] for at in sorted(kept)}, condensed
