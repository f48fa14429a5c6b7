"""Choosing: which messages of a history stay under a budget, and which of those are shortened.

What must stay: the first turn (the original intent: what the user asked, and the final answer), the current turn, and what is
pinned. What else there is stays by band, then by worth per token, then the newest. A question may stay without its answer and
an answer without its question: a mark of one token keeps the place of the other, so that roles alternate. A tool call stays
with its result or not at all; a result, or several texts, perhaps as their gist. If what must stay leaves no room, it
is shortened in the order of :func:`making_room.make_room`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence

from strands.types.content import Message

from strands_manga_memory.conversation.history.shortening import Shortener
from strands_manga_memory.conversation.importance.choosing.choice import NO_ROOM, Choice, Limits
from strands_manga_memory.conversation.importance.choosing.filling import Filling
from strands_manga_memory.conversation.importance.choosing.groups import Group, groups_of, is_pinned
from strands_manga_memory.conversation.importance.choosing.making_room import make_room
from strands_manga_memory.conversation.importance.weighing.note import Note
from strands_manga_memory.messages import is_turn_start, tool_use_ids


def choose(
    messages: Sequence[Message],
    notes: Sequence[Note],
    limits: Limits,
    *,
    first_turn: Collection[str],
    count: Callable[[Message], int],
) -> Choice:
    """Choose what stays of a history; ``first_turn`` are the ids of the first turn, none while it is the current one.

    It is over the budget only if pinned messages, reasoning, calls that wait for their results or a request that is spared
    are.
    """

    def spoken_in(group: Group) -> int:
        first = group.positions[0]  # no other begins a turn
        return notes[first].tokens if is_turn_start(messages[first]) else 0

    groups = groups_of(messages, notes, limits.bands, first_turn)
    required = {at: group.required for group in groups if group.required for at in group.positions}
    why = {**dict.fromkeys(range(len(messages)), NO_ROOM), **required}
    locked = {at for at in required if is_pinned(messages[at]) or _waits(at, messages)}
    if limits.spares_request:
        said = (at for at in reversed(range(len(messages))) if is_turn_start(messages[at]))
        locked.update(itertools.islice(said, 1))
    shortener = Shortener(
        {at: messages[at] for at in sorted(required)},
        {at: notes[at].tokens for at in required},
        count,
        frozenset(locked),
    )
    if limits.may_shorten:
        make_room(shortener, groups, spoken_in, budget=limits.tokens, headroom=limits.headroom)
    for at in required.keys() - shortener.messages.keys():
        why[at] = NO_ROOM
    kept = shortener.messages
    most = limits.tokens if limits.fill_to is None else min(limits.tokens, limits.fill_to)
    filling = Filling(kept, messages, notes, limits, most - shortener.tokens, why, count)
    filling.fill(groups)
    changed = frozenset(shortener.changed | filling.changed)
    tokens_before = sum(group.tokens for group in groups)
    return Choice({at: kept[at] for at in sorted(kept)}, changed, why, most - filling.room, tokens_before, limits.tokens)


def _waits(at: int, messages: Sequence[Message]) -> bool:
    """Whether the message is last and calls tools: they may be about to run with the very input it holds."""
    return at == len(messages) - 1 and bool(tool_use_ids(messages[at]))
