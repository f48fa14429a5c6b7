"""Apart: what a process and its hot tier have of a conversation of which the durable tier's copy went another way. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from strands_manga_memory.session.records import Head, Stored
from strands_manga_memory.session.window import Body, Identity, Logged, Slot, parse_runs


@dataclass(frozen=True, kw_only=True)
class Apart:
    """What a copy has that the durable tier's may lack.

    Args:
        loose: Messages of others that the durable tier may lack, by identity. Their numbers are those of the copy; 0 for none.
        known: Messages of the copy, whether the durable tier has them or not.
        window: A window that shows them.
        head: The head of the copy.
        writers: The saves that are in it.
        seen: Those of them of which all messages are at hand.
    """

    loose: Mapping[Identity, Logged]
    known: Sequence[Logged]
    window: Sequence[Slot]
    head: Head
    writers: Mapping[str, int]
    seen: Mapping[str, int] = field(default_factory=dict)

    def beside(self, hot: Stored, awaited: Sequence[Logged]) -> Apart:
        """Return what the hot tier's copy has, and what only we have.

        Args:
            hot: That copy.
            awaited: What was found there of the messages that the durable tier lacks.
        """
        there = [*awaited, *(slot for slot in hot.slots if isinstance(slot, Logged))]
        common = common_of(self.known, there)
        missing = set(parse_runs(hot.head.pending, record="head")) - {slot.seq for slot in awaited}
        # Beyond that, our numbers mean something else there.
        loose = {key: slot if slot.seq <= common else replace(slot, seq=0) for key, slot in self.loose.items()}
        loose |= {slot.identity: slot for slot in awaited}
        shown = {slot.tracking_id for slot in hot.slots}
        edited = {slot.tracking_id for slot in hot.slots if isinstance(slot, Body)}
        identities = {slot.identity for slot in there}
        only_here = [slot for key, slot in loose.items() if key not in identities and slot.tracking_id not in edited]
        ids, turns = {slot.tracking_id for slot in only_here}, {slot.of for slot in only_here}
        marks = {s.tracking_id for s in self.window if isinstance(s, Body) and s.of in turns} - shown
        return Apart(
            loose=loose,
            known=there,
            # What only we know is shown as we show it, with what we show of its turn in another form.
            window=[*hot.slots, *(slot for slot in self.window if slot.tracking_id in ids | marks)],
            head=hot.head,
            writers=hot.writers,
            # It may await what it has lost, or never had: then it does not have the saves that brought it.
            seen={} if missing else hot.writers,
        )


def common_of(ours: Iterable[Logged], there: Iterable[Logged]) -> int:
    """Return the last number by which two logs mean the same message, as they do by every one below it.

    Numbers only rise, and a message that gets another one gets a later one: so they agree on all before one they agree on.
    """
    places = {(slot.identity, slot.seq) for slot in there}
    return max((slot.seq for slot in ours if (slot.identity, slot.seq) in places), default=0)
