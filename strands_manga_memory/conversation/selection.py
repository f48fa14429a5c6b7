"""The choice: which messages of a history stay under a budget, and which of those are shortened.

What must stay: the first turn (the original intent: what the user asked, and the final answer), the current turn, and what is
pinned. What else there is stays by band, from the newest to the oldest, as whole exchanges, so that the history stays valid.
If what must stay leaves no room, it is shortened in the order of :func:`_make_room`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from strands.types.content import Message

from strands_manga_memory.conversation.scoring import Band, Bands
from strands_manga_memory.conversation.shortening import Shortener
from strands_manga_memory.conversation.turns import Exchange, exchanges, tool_use_ids

FIRST_TURN = "first turn"
CURRENT_TURN = "current turn"
PINNED = "pinned, or in the exchange of a pinned message"
NO_ROOM = "no room in the budget"
TOO_MANY_TURNS = "over the cap in turns"

_HARD_FLOOR = 24


@dataclass(frozen=True, slots=True)
class Candidate:
    """A message and what is known about it."""

    message: Message
    tokens: int
    score: float


@dataclass(frozen=True)
class Limits:
    """What the choice has to keep to.

    Attributes:
        tokens: The budget.
        turns: Most exchanges to keep; None: as many as fit. What must stay is not bound by it.
        bands: Where the bands begin.
        may_shorten: Whether what must stay may be shortened if it is too large.
    """

    tokens: int
    turns: int | None = None
    bands: Bands = field(default_factory=Bands)
    may_shorten: bool = True


@dataclass(frozen=True)
class Choice:
    """The outcome.

    Attributes:
        kept: The messages that stay, by position, in order; shortened ones in their new form.
        shortened: Positions of those that were shortened.
        why: For every position, why it stays or goes.
        tokens: The tokens of what stays.
    """

    kept: dict[int, Message]
    shortened: frozenset[int]
    why: dict[int, str]
    tokens: int


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
        The choice. Its ``tokens`` are over the budget only if pinned messages, reasoning or calls that wait for their results
        take more than the budget.
    """
    groups = _groups(candidates, limits.bands, first_turn)
    required = {at: group.required for group in groups if group.required for at in group.positions}
    why: dict[int, str] = dict(required)
    locked = {at for at in required if is_pinned(candidates[at].message) or _waits(at, candidates)}
    shortener = Shortener(
        {at: candidates[at].message for at in sorted(required)},
        {at: candidates[at].tokens for at in required},
        count,
        frozenset(locked),
    )
    if limits.may_shorten:
        _make_room(shortener, groups, budget=limits.tokens)
    for at in required.keys() - shortener.messages.keys():
        why[at] = NO_ROOM
    kept = shortener.messages
    tokens = shortener.tokens + _fill(kept, groups, candidates, limits, limits.tokens - shortener.tokens, why)
    return Choice({at: kept[at] for at in sorted(kept)}, frozenset(shortener.changed), why, tokens)


def _waits(at: int, candidates: Sequence[Candidate]) -> bool:
    """Whether the message is last and calls tools: they may be about to run with the very input it holds."""
    return at == len(candidates) - 1 and bool(tool_use_ids(candidates[at].message))


def is_pinned(message: Message) -> bool:
    """Whether the message carries Strands' pin, ``metadata.custom.pinned``."""
    custom = (message.get("metadata") or {}).get("custom") or {}
    return custom.get("pinned") is True


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


def _groups(candidates: Sequence[Candidate], bands: Bands, first_turn: Collection[str]) -> list[_Group]:
    """Return all groups, from the newest exchange to the oldest, parents before children."""
    first = frozenset(_first_positions(candidates, first_turn))
    pinned = frozenset(at for at, candidate in enumerate(candidates) if is_pinned(candidate.message))
    found: list[_Group] = []
    current = True
    for exchange in reversed(exchanges([candidate.message for candidate in candidates])):
        groups = list(_of_exchange(exchange, candidates, bands))
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


def _of_exchange(exchange: Exchange, candidates: Sequence[Candidate], bands: Bands) -> Iterator[_Group]:
    """The groups of one exchange: its core, its cycles, and the unanswered turns before it, the newest first.

    A parent is worth at least as much as its children, so that it is chosen before them. An unanswered turn stays only if all
    that follows it does: two user messages that did not meet before would meet otherwise.
    """

    def group(positions: tuple[int, ...], parent: _Group | None, *, is_cycle: bool = False) -> _Group:
        tokens, score = 0, 0.0
        for at in positions:
            tokens += candidates[at].tokens
            score = max(score, candidates[at].score)
        return _Group(positions, tokens, score, Band.LOW, parent, "", is_cycle)

    core = group(exchange.core, None)
    cycles = [group(positions, core, is_cycle=True) for positions in reversed(exchange.cycles)]
    waiting = core
    unanswered = [waiting := group(positions, waiting) for positions in reversed(exchange.unanswered)]
    for child in (*cycles, *reversed(unanswered)):
        parent = child.parent or core
        parent.score = max(parent.score, child.score)
    for each in (core, *cycles, *unanswered):
        each.band = bands.of(each.score)
        yield each


def _fill(
    kept: dict[int, Message],
    groups: Sequence[_Group],
    candidates: Sequence[Candidate],
    limits: Limits,
    room: int,
    why: dict[int, str],
) -> int:
    """Add to ``kept`` what else fits, band by band, the newest first, and say ``why``; return the tokens added."""
    staying = {group for group in groups if group.required}
    exchanges_left = (limits.turns or len(groups)) - sum(group.parent is None for group in staying)
    added = 0
    for band in (Band.HIGH, Band.MIDDLE, Band.LOW):
        for group in groups:
            if group.band is not band or group.required:
                continue
            if group.parent is not None and group.parent not in staying:
                reason = why[group.parent.positions[0]]
            elif group.parent is None and exchanges_left <= 0:
                reason = TOO_MANY_TURNS
            elif group.tokens > room - added:
                reason = NO_ROOM
            else:
                reason = f"{band.name.lower()} band"
                staying.add(group)
                added += group.tokens
                exchanges_left -= group.parent is None
                kept.update((at, candidates[at].message) for at in group.positions)
            why.update(dict.fromkeys(group.positions, reason))
    return added


# --- When what must stay is too much ----------------------------------------------------------------------------------------


def _make_room(shortener: Shortener, groups: Sequence[_Group], *, budget: int) -> None:
    """Shorten what must stay until it is within the budget, and large tool results until the high band has room as well.

    In this order, each step only as far as it is needed: tool results (older ones first, the largest first), texts of the
    first turn, the oldest tool calls of the current turn (with their results), images and documents (a note takes their place),
    other texts, inputs of tool calls; then the same again more drastically; at last what stays only because a message beside
    it is pinned. At least half of the budget is left to what must stay; if it was over the budget, up to a quarter is freed for
    the middle band, so that one huge result does not drive out the conversation. Pinned messages are never touched: if they
    alone are over the budget, the rest keeps a readable size and the result is over it.
    """
    others = dict.fromkeys(Band, 0)
    for group in groups:
        others[group.band] += 0 if group.required else group.tokens
    wanted = others[Band.HIGH] + (min(others[Band.MIDDLE], budget // 4) if shortener.tokens > budget else 0)
    aim = max(budget // 2, budget - wanted)
    everything = list(shortener.messages)
    if not everything or shortener.tokens <= aim:
        return
    first = [at for group in groups if group.required == FIRST_TURN for at in group.positions]
    floor = max(64, budget // 32)
    shortener.shorten("toolResult", everything[:-1], aim, floor)
    shortener.shorten("toolResult", everything[-1:], aim, floor)
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


def _drop_around_pins(shortener: Shortener, positions: Sequence[int], budget: int) -> None:
    """Drop what is in an exchange beside its pinned messages and the other halves of pinned tool calls and results."""
    waiting: list[int] = []
    for at in positions:
        waiting.append(at)
        if not tool_use_ids(shortener.messages[at]):
            if shortener.tokens > budget:
                shortener.drop(waiting)
            waiting = []
