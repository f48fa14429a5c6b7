"""Groups: the messages of a history that stay or go as one, and which of them must stay. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from strands.types.content import Message

from strands_manga_memory.conversation.history.exchanges import Exchange, exchanges
from strands_manga_memory.conversation.importance.choosing.choice import CURRENT_TURN, FIRST_TURN, PINNED
from strands_manga_memory.conversation.importance.weighing.note import Note
from strands_manga_memory.conversation.importance.weighing.scoring import LOW, MIDDLE, Band, Bands


@dataclass(eq=False, slots=True)
class Group:
    """Messages that stay or go together, and only if their parent stays."""

    positions: tuple[int, ...]
    tokens: int
    score: float
    band: Band
    parent: Group | None
    required: str = ""
    is_cycle: bool = False


def groups_of(messages: Sequence[Message], notes: Sequence[Note], bands: Bands, first_turn: Collection[str]) -> list[Group]:
    """Return all groups, from the newest exchange to the oldest, parents before children."""
    first = frozenset(_first_positions(messages, first_turn))
    pinned = frozenset(at for at, message in enumerate(messages) if "metadata" in message and is_pinned(message))
    must = first | pinned
    found: list[Group] = []
    current = True
    for exchange in reversed(exchanges(messages)):
        groups = _of_exchange(exchange, notes, bands)
        core = groups[0]
        for group in groups:
            if current and (group is core or group.is_cycle):
                group.required = CURRENT_TURN
            elif must.isdisjoint(group.positions):
                continue
            elif not group.is_cycle and not first.isdisjoint(group.positions):
                group.required = FIRST_TURN
                core.required = core.required or FIRST_TURN
            elif not pinned.isdisjoint(group.positions):
                group.required = PINNED
                core.required = core.required or PINNED
        found += groups
        current = False
    return found


def _first_positions(messages: Sequence[Message], ids: Collection[str]) -> Iterator[int]:
    """Where the messages of the first turn are; a caller may have sent the same message again later."""
    missing = set(ids)
    for at, message in enumerate(messages):
        if not missing:
            return
        id_ = message.get("tracking_id")
        if id_ in missing:
            missing.remove(id_)
            yield at


def _of_exchange(exchange: Exchange, notes: Sequence[Note], bands: Bands) -> list[Group]:
    """The groups of one exchange: its core, its cycles, and the unanswered turns before it, the newest first.

    A parent is worth at least as much as its children, so that it is chosen before them. An unanswered turn stays only if all
    that follows it does: two user messages that did not meet before would meet otherwise.
    """
    core = _group(notes, exchange.core, None)
    if not exchange.cycles and not exchange.unanswered:
        core.band = bands.of(core.score)
        return [core]
    cycles = [_group(notes, positions, core, is_cycle=True) for positions in reversed(exchange.cycles)]
    waiting = core
    unanswered = [waiting := _group(notes, positions, waiting) for positions in reversed(exchange.unanswered)]
    for child in (*cycles, *reversed(unanswered)):
        parent = child.parent or core
        parent.score = max(parent.score, child.score)
    groups = [core, *cycles, *unanswered]
    for each in groups:
        each.band = bands.of(each.score)
    return groups


def _group(notes: Sequence[Note], positions: tuple[int, ...], parent: Group | None, *, is_cycle: bool = False) -> Group:
    tokens, score = 0, 0.0
    for at in positions:
        note = notes[at]
        tokens += note.tokens
        if note.score > score:
            score = note.score
    return Group(positions, tokens, score, LOW, parent, "", is_cycle)


def band_of(group: Group) -> Band:
    """Return the band in which a group is chosen: a tool call with its result is never among the first out."""
    return max(MIDDLE, group.band) if group.is_cycle else group.band


def is_pinned(message: Message) -> bool:
    """Whether the message carries Strands' pin, ``metadata.custom.pinned``."""
    metadata = message.get("metadata")
    return bool(metadata) and ((metadata or {}).get("custom") or {}).get("pinned") is True
