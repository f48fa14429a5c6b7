"""Reading a conversation that ended, from the durable log, or from the hot tier where there is no durable one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from strands_manga_memory.messages.injection import message_text
from strands_manga_memory.session.basis.facts import facts_of
from strands_manga_memory.session.basis.place import Place
from strands_manga_memory.session.basis.tiers import Tiers
from strands_manga_memory.session.core.identity import is_end_by_age, lives_ended_by
from strands_manga_memory.session.core.merge import Copy
from strands_manga_memory.session.core.records import Message, in_order
from strands_manga_memory.session.sync.connecting import durable_replica, hot_replica
from strands_manga_memory.session.sync.logged import counted

if TYPE_CHECKING:
    from strands_manga_memory.language.session_summaries import Transcript


def ended_transcript(place: Place, tiers: Tiers, *, ids: Mapping[str, Any] | None = None) -> Transcript | None:
    """Return what was said in a conversation, or None if there is nothing, or nobody's.

    ``ids`` are its original ones, for a log that has lost its head to the table's own TTL.
    """
    replica = durable_replica(place, tiers, ids=ids or {})
    if replica is not None:
        copy = replica.load()
        if not (copy.has_begun or copy.graves):
            return _transcript(ids or {}, replica.segments.log(replica.segments.lives()))
        copy = replica.log(copy) if copy.has_begun else copy
    elif (hot := hot_replica(place, tiers)) is not None:
        copy = hot.log(hot.load(touch=False))
    else:
        return None
    facts = facts_of(copy, place.conversation)
    return _transcript(facts.ids, copy.messages.values(), turns=facts.turns) if copy.has_begun else None


def earlier_transcripts(place: Place, tiers: Tiers, *, ids: Mapping[str, Any]) -> Iterator[Transcript]:
    """Yield what was said in lives before the present one that ended by age, and whose logs are still there.

    A user who comes back before anybody swept begins a new life, and the old one would go without a summary.
    """
    replica = durable_replica(place, tiers, ids=ids)
    if replica is None:
        return
    copy = replica.load()
    ids = facts_of(copy, place.conversation).ids or ids
    for lives in earlier_lives(copy, replica.segments.lives()):
        transcript = _transcript(ids, replica.segments.log(lives))
        if transcript is not None:
            yield transcript


def earlier_lives(copy: Copy, there: Collection[str]) -> list[set[str]]:
    """Return, of the lives whose logs are there, those that ended by age, each with its other names."""
    if not there:
        return []
    ended = (lives_ended_by(grave) & set(there) for grave in sorted(copy.graves) if is_end_by_age(grave))
    return [lives for lives in ended if lives]


def _transcript(ids: Mapping[str, Any], log: Iterable[Message], *, turns: int | None = None) -> Transcript | None:
    # Compiles many patterns: not imported before a session ends.
    from strands_manga_memory.language.session_summaries import Transcript, Utterance

    if not ids.get("user") or not ids.get("session"):
        return None
    logged = list(counted(in_order(log)))
    if not logged:
        return None
    texts = [(one, message_text(one.message).strip()) for one in logged]
    return Transcript(
        user_id=ids["user"],
        tenant=ids.get("tenant"),
        session_id=ids["session"],
        agent_id=str(ids.get("member") or "default"),
        mark=f"{int(logged[0].at * 1000):x}",
        utterances=tuple(
            Utterance(one.message["role"], text, one.turn, one.at, one.message.get("tracking_id") or "")
            for one, text in texts
            if text
        ),
        turns=logged[-1].turn if turns is None else turns,
        covered=logged[-1].seq,
        revisions=sum(one.revision for one in logged),
        ended_at=logged[-1].at,
    )
