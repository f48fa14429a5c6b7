"""History: the log of a conversation, in order, from wherever its parts are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from strands_manga_memory.session.copies import Copies
from strands_manga_memory.session.hot_tier import HotTier
from strands_manga_memory.session.window import Identity, Logged

_PAGE = 500


def history(copies: Copies, *, after: int = 0) -> Iterator[Logged]:
    """Yield the log beyond number ``after``: what the durable tier has, then what only the hot one or this process has."""
    with copies.lock:
        model = copies.model
        head, pending = model.head, sorted(model.pending)
        mine = {slot.seq: slot for slot in [*model.slots, *model.recent] if isinstance(slot, Logged) and slot.seq}
        first = max(after + 1, head.first)
        unplaced = [slot for slot in model.recent if slot.seq == 0 and slot.order < 0]
    if copies.durable is None:
        assert copies.hot is not None  # noqa: S101 - for the type checker; there is a tier
        yield from _pages(copies.hot, first, head.next, since=head.since)
        return
    loose = {seq: mine[seq] for seq in pending if seq in mine and seq >= first}
    missing = [seq for seq in pending if seq not in mine and seq >= first]
    if missing and copies.hot is not None:
        loose |= {slot.seq: slot for slot in copies.hot.read_log(missing, since=head.since)}
    waiting = sorted(loose)
    for slot in copies.durable.history(first=first):
        while waiting and waiting[0] < slot.seq:
            yield loose[waiting.pop(0)]
        if waiting and waiting[0] == slot.seq:  # it was flushed just now, perhaps in an earlier revision
            same = loose[waiting.pop(0)]
            slot = max(slot, same, key=lambda one: one.revision) if same.identity == slot.identity else slot
        yield slot
    yield from (loose[seq] for seq in waiting)
    yield from unplaced


def _pages(hot: HotTier, first: int, end: int, *, since: int) -> Iterator[Logged]:
    for start in range(first, end, _PAGE):
        yield from hot.read_log(range(start, min(end, start + _PAGE)), since=since)


def with_unsaved(stored: Iterator[Logged], unsaved: Iterable[Logged], *, after: int) -> Iterator[Logged]:
    """Yield what is stored, in its latest revision, then what only this process has.

    Args:
        stored: What is in the tiers.
        unsaved: Messages that no tier has, or not in this revision; looked at before the tiers were.
        after: Leave out messages up to this sequence number.
    """
    newer: dict[Identity, list[Logged]] = {}
    for slot in unsaved:
        newer.setdefault(slot.identity, []).append(slot)
    for slot in stored:
        same = newer.get(slot.identity)
        yield max(same.pop(0), slot, key=lambda one: one.revision) if same else slot
    yield from (slot for slots in newer.values() for slot in slots if slot.seq == 0 or slot.seq > after)
