"""Selection of the messages that stay in a history with a limited number of tokens.

Three kinds of messages always stay:

- the first turn up to and including its final answer, but without tool calls and their results
- the current turn
- messages that the application has pinned (protected from eviction)

If these messages exceed the budget, they are truncated, but pinned messages stay whole. All other
messages are optional: the most important ones stay. Among equally important messages, those with
the highest value in relation to their size stay, then the newest.

A tool call and its result stay together or are evicted together. A question may stay without its
answer. An answer may stay without its question, unless it is unimportant, such as "you're welcome".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

from strands.types.content import Message

from strands_manga_memory.conversation.importance import (
    HIGH,
    LOW,
    MIDDLE,
    SIGNAL_WEIGHTS,
    Band,
    MessageFeatures,
    band_of,
    signals_of,
)
from strands_manga_memory.conversation.message_truncation import (
    MessageTruncator,
    condensed_message,
    is_truncated,
    reads_full_text,
)
from strands_manga_memory.messages import (
    calls_tools,
    is_of_tools,
    is_tool_pair,
    is_turn_start,
    tool_result_ids,
    turns,
)
from strands_manga_memory.messages.message_parts import PLACEHOLDER, custom_metadata
from strands_manga_memory.messages.provider_format import placeholder_count

FIRST_TURN = "first turn"
CURRENT_TURN = "current turn"
PINNED = "pinned, or in the tool call of a pinned message"
NO_ROOM = "no room in the budget"
TOO_MANY_TURNS = "over the cap in turns"
NO_QUESTION = "unimportant, and its question is evicted"

_LEAST_READABLE = 24
"""Least tokens of a truncated piece that is still readable."""

_LEAST_RESULT = 64
"""Least tokens of a truncated tool result, unless the budget is too small for that."""

_MOST_CALLS = 12
"""Divisor: the new results of a call get up to a twelfth of the budget even if less is left."""

_SMALL_RESULT = 256
"""Tokens up to which a new tool result stays whole, if all take at most half of the room."""


@dataclass(frozen=True)
class SelectionBudget:
    """Limits for selecting the messages that stay in a history.

    Attributes:
        tokens: Maximum tokens of the selected messages.
        turns: Maximum number of turns. None: as many turns as fit. Messages that always stay may
            exceed this number.
        service_style: Style of the assistant, from 0 (companion) to 1 (help desk). Old messages of
            a help desk are worth less.
        fill_to: Total tokens up to which optional messages are selected. None: same as ``tokens``.
        headroom: Part of ``tokens`` that is reserved for the user's message of the current turn.
        keeps_request_whole: Whether the user's message of the current turn must not be truncated.
        turns_until_next: Number of turns until the next selection. It is added to the age of each
            message.
    """

    tokens: int
    turns: int | None = None
    service_style: float = 0.0
    fill_to: int | None = None
    headroom: int = 0
    keeps_request_whole: bool = False
    turns_until_next: int = 0


@dataclass(frozen=True)
class Selection:
    """Result of selecting the messages that stay in a history.

    Attributes:
        kept: Messages that stay, keyed by their position in the history. Truncated messages are in
            their truncated form.
        truncated: Positions of the truncated messages.
        reasons: Reason why each message stays or is evicted, keyed by position.
        tokens: Tokens of the messages that stay, with the placeholder messages that providers
            require between them.
        budget: Maximum tokens that were allowed.
    """

    kept: dict[int, Message]
    truncated: frozenset[int]
    reasons: dict[int, str]
    tokens: int
    budget: int = 0

    @property
    def messages(self) -> list[Message]:
        """Messages that stay in the history, in the order of the conversation."""
        return list(self.kept.values())


@dataclass(frozen=True)
class MessageOutcome:
    """Outcome of a message when the history was trimmed: kept, truncated or evicted, and why.

    Attributes:
        tracking_id: Tracking id of the message. None if the message has no id yet.
        role: ``"user"`` or ``"assistant"``.
        act: Dialogue act (purpose) of the message. For tool messages ``"tool_use"`` or
            ``"tool_result"``.
        score: Importance of the message, from 0 to 1.
        tokens: Size of the message in tokens.
        outcome: ``"kept"``, ``"dropped"`` (evicted) or ``"shortened"`` (truncated).
        reason: Reason for the outcome, in words.
        signals: Properties that are reasons to keep (above 0) or evict the message, such as
            ``number``. ``SIGNAL_WEIGHTS`` lists them.
    """

    tracking_id: str | None
    role: str
    act: str
    score: float
    tokens: int
    outcome: str
    reason: str
    signals: dict[str, float] = field(default_factory=dict)


def select(
    messages: Sequence[Message],
    features: Sequence[MessageFeatures],
    budget: SelectionBudget,
    count: Callable[[Message], int],
) -> Selection:
    """Select the messages of a history that stay within a token budget.

    Messages that always stay are truncated if they are too large. The following are never
    truncated, and can thus exceed the budget: pinned (protected) messages, reasoning, tool calls
    without results and, with ``budget.keeps_request_whole``, the user's message of the current
    turn.

    Args:
        messages: The agent's history, or the last messages of the session's log.
        features: Measured properties of each message.
        budget: Limits of the selection.
        count: Function that returns the tokens of a message.
    """
    units = _group_messages(messages, features)
    required, locked = _find_required(
        messages, units, keeps_request_whole=budget.keeps_request_whole
    )
    reasons = {at: required.get(at, NO_ROOM) for at in range(len(messages))}
    must_stay = {at: messages[at] for at in sorted(required)}
    placeholder = count({"role": "assistant", "content": [{"text": PLACEHOLDER}]})
    reserved = placeholder * placeholder_count([*must_stay.values()])
    sizes = {at: features[at].tokens for at in must_stay}
    truncator = MessageTruncator(must_stay, sizes, count, locked)
    others = [unit for unit in units if unit.positions[0] not in required]
    fill_to = budget.tokens if budget.fill_to is None else min(budget.tokens, budget.fill_to)
    cycles = [unit.positions for unit in units if unit.is_cycle and unit.turn == units[-1].turn]
    full, filled = max(1, budget.tokens - reserved), max(1, fill_to - reserved)
    _truncate_required(truncator, required, cycles, others, full, filled, budget.headroom)
    reasons |= dict.fromkeys(required.keys() - must_stay.keys(), NO_ROOM)
    opened = {unit.turn for unit in units if not must_stay.keys().isdisjoint(unit.positions)}
    items = _rank_items(messages, features, budget, others, units[-1].turn if units else 0, count)
    room = fill_to - truncator.tokens - reserved
    selected = _select_items(items, room, opened, budget.turns, reasons)
    while True:
        kept = dict(must_stay)
        tokens = truncator.tokens
        for item in selected:
            *before, last = item.unit.positions
            kept |= {at: messages[at] for at in before} | {last: item.last}
            tokens += item.tokens
        kept = dict(sorted(kept.items()))
        tokens += placeholder * placeholder_count([*kept.values()])
        if tokens <= fill_to or not selected:
            break
        reasons |= dict.fromkeys(selected.pop().unit.positions, NO_ROOM)
    for item in selected:
        if item.needs is None:
            reasons |= dict.fromkeys(item.unit.positions, f"{item.unit.band.name.lower()} band")
    truncated = frozenset(at for at in kept if kept[at] is not messages[at])
    return Selection(kept, truncated, reasons, tokens, budget.tokens)


# --- Messages that stay or go together ------------------------------------------------------------


class _Unit(NamedTuple):
    """Group of messages that stay in the history together, or are evicted together.

    A group is one text message, one tool call with its result, or the remaining tool messages of a
    turn.

    Attributes:
        positions: Positions of the messages in the history.
        is_cycle: Whether the messages are a tool call with its result.
        is_minor_answer: Whether the group is an unimportant message of the assistant, which stays
            only if another message of its turn stays.
        begins_turn: Whether the group is a message with which the user began a turn.
    """

    positions: Sequence[int]
    turn: int
    is_cycle: bool
    tokens: int
    band: Band
    is_minor_answer: bool
    begins_turn: bool


def _group_messages(
    messages: Sequence[Message], features: Sequence[MessageFeatures]
) -> list[_Unit]:
    units: list[_Unit] = []
    for number, turn in enumerate(turns(messages)):
        parts: list[list[int]] = []
        unpaired: list[int] = []
        for at in turn:
            if not is_of_tools(messages[at]):
                parts.append([at])
            elif unpaired[-1:] == [at - 1] and is_tool_pair(messages[at - 1], messages[at]):
                parts.append([unpaired.pop(), at])
            else:
                unpaired.append(at)
        for part in (*parts, unpaired) if unpaired else parts:
            own = [features[at] for at in part]
            band = band_of(max([each.score for each in own]))
            is_cycle = len(part) > 1 and part is not unpaired
            if band is LOW and (is_cycle or own[0].answers):
                band = MIDDLE
            tokens = sum([each.tokens for each in own])
            message = messages[part[0]]
            is_minor = band is LOW and message["role"] == "assistant"
            begins_turn = is_turn_start(message)
            units.append(_Unit(part, number, is_cycle, tokens, band, is_minor, begins_turn))
    return units


def is_pinned(message: Message) -> bool:
    """Return whether a message is pinned, which protects it from eviction.

    A pinned message has ``"pinned": True`` in ``message["metadata"]["custom"]``.
    """
    return custom_metadata(message).get("pinned") is True


def _find_required(
    messages: Sequence[Message], units: Sequence[_Unit], *, keeps_request_whole: bool
) -> tuple[dict[int, str], frozenset[int]]:
    """Find the messages of a history that always stay, and those that must not be truncated.

    Returns:
        The reasons to stay, keyed by message position, and the positions not to truncate.
    """
    found = turns(messages)
    if found and not is_turn_start(messages[0]):
        found = found[1:]  # messages before the first turn
    first: set[int] = set()
    for at in found[0] if found else ():
        first.add(at)
        if messages[at]["role"] == "assistant" and not calls_tools(messages[at]):
            break  # messages behind it may be of a turn whose beginning was evicted
    locked = {at for at, message in enumerate(messages) if is_pinned(message)}
    required: dict[int, str] = {}
    for unit in units:
        if unit.turn == units[-1].turn:
            required |= dict.fromkeys(unit.positions, CURRENT_TURN)
        elif not unit.is_cycle and not first.isdisjoint(unit.positions):
            required |= dict.fromkeys(unit.positions, FIRST_TURN)
        elif not locked.isdisjoint(unit.positions):
            required |= dict.fromkeys(unit.positions, PINNED)
    if messages and calls_tools(messages[-1]):
        locked.add(len(messages) - 1)
    if keeps_request_whole and found:
        locked.add(found[-1].start)
    return required, frozenset(locked)


# --- Room -----------------------------------------------------------------------------------------


def _truncate_required(
    truncator: MessageTruncator,
    required: Mapping[int, str],
    cycles: Sequence[Sequence[int]],
    others: Sequence[_Unit],
    budget: int,
    fill_to: int,
    headroom: int,
) -> None:
    """Truncate messages that always stay, to ``budget`` tokens, or less if ``others`` need room.

    ``others`` are optional messages. With them, the history has ``fill_to`` tokens, of which
    ``headroom`` is for the current user message. ``cycles`` are the current turn's tool calls with
    results. If truncation frees too little, all but the latest are removed, one by one.
    """
    demand = dict.fromkeys(Band, 0)
    for unit in others:
        demand[unit.band] += unit.tokens
    of_user = sum([unit.tokens for unit in others if unit.begins_turn])
    was_over, usual = truncator.tokens > fill_to, fill_to - headroom
    messages, truncate = truncator.messages, truncator.truncate
    first = [at for at, reason in required.items() if reason == FIRST_TURN]
    floor = max(_LEAST_RESULT, usual // 32)
    truncate("text", [at for at in first if messages[at]["role"] == "assistant"], 0, 2 * floor)
    if truncator.tokens <= headroom + usual // 2:
        return
    middle = demand[MIDDLE] if was_over else min(demand[MIDDLE], of_user)
    aim = headroom + max(usual // 2, usual - demand[HIGH] - min(middle, usual // 4))
    if truncator.tokens <= aim:
        return
    *earlier, last = messages
    truncate("toolResult", earlier, aim, floor)
    new = usual // (4 * max(1, len(tool_result_ids(messages[last]))))
    truncate("toolResult", [last], aim, max(floor, new))
    # The user's words are worth more than old results.
    for divisor in (2, 4) if of_user else ():
        least = max(_LEAST_READABLE, floor // divisor)
        truncate("toolResult", earlier, budget - min(of_user, usual // 4), least)
    if messages[last]["role"] == "assistant" and not calls_tools(messages[last]):
        truncate("text", [last], aim, 2 * floor)  # the user has read this final answer
    if truncator.tokens <= budget:
        return
    truncate("text", first, aim, floor)
    for cycle in cycles:
        if truncator.tokens > budget and last not in cycle:  # nobody has used the last results yet
            truncator.remove(cycle)
    truncate("toolResult", [last], budget, floor)
    truncator.replace_media(list(messages), budget)
    truncate("text", list(messages), aim, floor)
    truncate("toolUse", list(messages), aim, floor)
    if truncator.locked_tokens < budget:
        # Of many pieces even a readable size each may be too much.
        for least, kind in product((_LEAST_READABLE, 1), ("toolResult", "text", "toolUse")):
            truncate(kind, list(messages), budget, least)


def truncate_new_results(
    history: Sequence[Message], count: Callable[[Message], int], budget: int, shares: int
) -> dict[int, Message]:
    """Truncate the results of the latest tool calls before the first request that contains them.

    Pinned and truncated messages do not change. If little room is left, the results exceed it, so
    that the history is trimmed next.

    Args:
        history: The agent's history. Its last two messages are the calls and their results.
        count: Function that returns the tokens of a message.
        budget: Maximum tokens of the history. The room is the part that earlier messages leave.
        shares: Number of parts of the room, of which the results get one. Inputs of tools get half
            of the room at most, and so do results with the full text of an earlier message.

    Returns:
        The truncated messages, keyed by position in the history. Messages from which nothing was
        cut, such as JSON without its spaces, are not among them.
    """
    results = len(history) - 1
    room = budget - sum(map(count, history[:-2]))
    new = {at: history[at] for at in (results - 1, results)}
    sizes = {at: count(message) for at, message in new.items()}
    own = sizes[results]
    locked = frozenset(at for at, each in new.items() if is_pinned(each) or is_truncated(each))
    truncator = MessageTruncator({**new}, sizes, count, locked)
    number = len(tool_result_ids(history[-1]))
    floor = max(_LEAST_RESULT, min(_SMALL_RESULT, room // (2 * number)))
    truncator.truncate("toolUse", [results - 1], own + room // 2, floor)
    used = truncator.tokens - own
    shares = 2 if reads_full_text(history[-2]) else shares
    share = max((room - used) // shares, budget // _MOST_CALLS)
    truncator.truncate("toolResult", [results], used + share, floor)
    # Without a cut, a message has no mark by which its full text is found after a restart.
    return {
        at: each
        for at, each in truncator.messages.items()
        if each is not new[at] and is_truncated(each)
    }


# --- Other messages -------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class _Item:
    """Group of messages that a selection keeps or leaves out, such as a tool call and its result.

    A group whose last message has a short form (an excerpt) becomes two items: the group with the
    short form, and an upgrade that replaces this form by the full message.

    Attributes:
        rank: Importance level, benefit per token, and position. The highest rank is selected first.
        tokens: Tokens that the item adds to the selection.
        last: Last message of the group, short or in full.
        needs: Item that an upgrade needs: its group with the short form. Otherwise None.
    """

    unit: _Unit
    rank: tuple[Band, float, int]
    tokens: int
    last: Message
    needs: _Item | None = None


def _rank_items(
    messages: Sequence[Message],
    features: Sequence[MessageFeatures],
    budget: SelectionBudget,
    units: Sequence[_Unit],
    last_turn: int,
    count: Callable[[Message], int],
) -> list[_Item]:
    """Create the items from which messages are selected, the most important first."""
    items: list[_Item] = []
    for unit in units:
        first, last = unit.positions[0], unit.positions[-1]
        age = last_turn - unit.turn + budget.turns_until_next
        worth = -math.inf
        for at in unit.positions:
            signals = signals_of(features[at], service_style=budget.service_style, age=age)
            worth = max(worth, sum(signals.values()))
        message, end = messages[last], features[last]
        if end.condensed is None:
            short = condensed_message(message)
            end.condensed = (message, end.tokens) if short is None else (short, count(short))
        short, tokens = end.condensed
        rest = max(0, end.tokens - tokens)
        tokens = unit.tokens - rest
        rank = unit.band, worth - math.log(tokens + 1), first
        item = _Item(unit, rank, tokens, short if rest else message)
        items.append(item)
        if rest:
            band = unit.band if unit.is_cycle else LOW
            worth += SIGNAL_WEIGHTS["whole_result"] - math.log(rest + 1)
            items.append(_Item(unit, (band, worth, first), rest, message, needs=item))
    items.sort(key=lambda item: (not item.unit.is_minor_answer, item.rank), reverse=True)
    return items


def _select_items(
    items: Sequence[_Item],
    room: int,
    opened: set[int],
    max_turns: int | None,
    reasons: dict[int, str],
) -> list[_Item]:
    """Select the items that fit into ``room`` tokens, in their order.

    Two arguments are updated in place: ``opened``, the numbers of the turns with a kept message,
    and ``reasons``, the reasons for evictions by message position.
    """
    selected: dict[_Item, None] = {}
    for item in items:
        unit = item.unit
        added = [each for each in (item.needs, item) if each and each not in selected]
        tokens = sum([each.tokens for each in added])
        if max_turns is not None and unit.turn not in opened and len(opened) >= max_turns:
            reasons |= dict.fromkeys(unit.positions, TOO_MANY_TURNS)
        elif unit.is_minor_answer and unit.turn not in opened:
            reasons |= dict.fromkeys(unit.positions, NO_QUESTION)
        elif tokens <= room:
            room -= tokens
            opened.add(unit.turn)
            selected |= dict.fromkeys(added)
    return list(selected)
