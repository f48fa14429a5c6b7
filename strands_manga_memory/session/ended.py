"""Reading a conversation that ended, from the durable log, or from the hot tier where there is no durable one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from strands_manga_memory.language.messages import message_text
from strands_manga_memory.language.transcript import Transcript, Utterance
from strands_manga_memory.session.durable_tier import DurableTier
from strands_manga_memory.session.gathering import gathered
from strands_manga_memory.session.hot_tier import HotTier
from strands_manga_memory.session.records import Place, Segment, Stored, segment_number
from strands_manga_memory.session.tiers import Tiers
from strands_manga_memory.session.window import Logged
from strands_manga_memory.stores.hot import DELETED


def durable_tier_of(place: Place, tiers: Tiers, *, session_ttl: float | None = None) -> DurableTier | None:
    """Return the durable tier of one conversation, or None without a table."""
    if tiers.durable is None:
        return None
    ttl = tiers.ttl.session if session_ttl is None else session_ttl
    return DurableTier(tiers.durable, place, tiers.codec, clock=tiers.clock, session_ttl=ttl, grace=tiers.ttl.grace)


def ended_transcript(place: Place, tiers: Tiers, *, ids: Mapping[str, Any] | None = None) -> Transcript | None:
    """Return what was said in a conversation, or None if there is nothing, or nobody's.

    Args:
        place: Where it is kept.
        tiers: The stores.
        ids: Its original ids, for a log that has lost its head to the table's own TTL.

    Raises:
        StoreUnavailableError: A store does not answer.
        CorruptRecordError: What is stored cannot be trusted.
    """
    durable = durable_tier_of(place, tiers)
    if durable is not None:
        stored = durable.load(window=False)
        if stored is not None:
            log: Iterable[Logged] = durable.history(first=stored.head.first) if stored.state != DELETED else ()
            return _transcript(stored.base, log, stored)
        return _transcript(ids or {}, _headless(durable, place, tiers), None)
    if tiers.hot is None:
        return None
    hot = HotTier(tiers.hot, place, tiers.codec, keeps_log=True)
    stored = hot.load(touch=False)
    if stored is None or stored.state == DELETED:
        return None
    log = hot.read_log(range(stored.head.first, stored.head.next), since=stored.head.since)
    return _transcript(stored.base, log, stored)


def earlier_transcript(place: Place, tiers: Tiers) -> Transcript | None:
    """Return what was said in an incarnation before the present one whose log is still there; None if there is none.

    A user who comes back before anybody swept begins a new one, and the old one would go without a summary.
    """
    durable = durable_tier_of(place, tiers)
    stored = None if durable is None else durable.load(window=False)
    if durable is None or stored is None or stored.state == DELETED or stored.head.first == 1 or stored.head.buried:
        return None
    first = stored.head.first
    return _transcript(stored.base, (slot for slot in _headless(durable, place, tiers, below=first) if slot.seq < first), None)


def _headless(durable: DurableTier, place: Place, tiers: Tiers, *, below: int = 10**12 - 1) -> Iterator[Logged]:
    """Yield the log without a head: what any segment has, each number once."""
    assert tiers.durable is not None  # noqa: S101 - for the type checker
    segments, done = [], 0
    low, high = place.log_key(1)[1], place.log_key(below)[1]
    for row in tiers.durable.query(place.session, first=low, last=high, attributes=["last"]):
        first, is_part = segment_number(str(row["sk"]))
        last = row.get("last")
        if not is_part and isinstance(last, int) and first > done:
            segments.append(Segment(first, last))
            done = last
    for segment in segments:
        yield from (slot for _, slot in sorted(durable.log.read([segment]).items()))


def _transcript(ids: Mapping[str, Any], log: Iterable[Logged], stored: Stored | None) -> Transcript | None:
    if not ids.get("user") or not ids.get("session"):
        return None
    utterances, covered, revisions, first_at, turns, latest = [], 0, 0, None, 0, 0.0
    for slot in gathered(log):
        first_at = slot.at if first_at is None else first_at
        covered, revisions, latest, turns = max(covered, slot.seq), revisions + slot.revision, slot.at, max(turns, slot.turn)
        message = slot.message
        text = message_text(message).strip()
        if text:
            utterances.append(Utterance(message["role"], text, slot.turn, slot.at))
    if first_at is None:
        return None
    return Transcript(
        user_id=ids["user"],
        tenant=ids.get("tenant"),
        session_id=ids["session"],
        agent_id=str(ids.get("member") or "default"),
        mark=f"{int(first_at * 1000):x}",
        utterances=tuple(utterances),
        turns=turns if stored is None else stored.head.turns,
        covered=covered,
        revisions=revisions,
        ended_at=latest,
    )
