"""Checks that stored conversations and memories can be read with the application's codec."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from strands_manga_memory.exceptions import CorruptRecordError, KeyMissingError, StoreError, StoreUnavailableError
from strands_manga_memory.memory.records import INTERNAL, Owner, record_of
from strands_manga_memory.ops.doctor.finding import Finding, ok, problem, warning
from strands_manga_memory.session import TtlPolicy
from strands_manga_memory.session.tiers import ExpiryEntry, ExpiryIndex, Tiers, durable_tier
from strands_manga_memory.stores.encoding.codec import Codec
from strands_manga_memory.stores.table import Table

_LOOKED_AT = 20
_EVER = 100 * 365 * 86_400.0
_RECORDS, _TURNS, _MEMORIES = "durable.records", "durable.turns", "users.records"


def check_records(
    durable: Table, users: Table | None, codec: Codec | None, *, clock: Callable[[], float], ttl: TtlPolicy
) -> Iterator[Finding]:
    """Check that a sample of conversations, and memories of their users, can be read. Yield the results.

    Args:
        durable: Table of the durable tier.
        users: Memory table, if there is one.
        codec: Codec of the application; None if the application has none.
        clock: Function that returns seconds since 1970.
        ttl: Time-to-live policy of the sweepers (processes that end expired sessions).
    """
    entries = list(islice(ExpiryIndex(durable).due(clock() + _EVER), _LOOKED_AT))
    yield from check_conversations(durable, entries, codec, clock=clock, ttl=ttl)
    if users is not None:
        try:
            yield _read(_MEMORIES, "memories", sum(_memories(users, owner, codec) for owner in _owners(entries)))
        except StoreError as error:
            yield _unreadable(_MEMORIES, error)


def check_conversations(
    durable: Table,
    entries: Sequence[ExpiryEntry],
    codec: Codec | None,
    *,
    clock: Callable[[], float],
    ttl: TtlPolicy | None = None,
) -> Iterator[Finding]:
    """Check that the stored states and turns of some conversations can be read with the application's codec.

    Also warn if sweepers (processes that end expired sessions) would end conversations too early, because their TTL is much
    shorter than that of the agents.

    Args:
        durable: Table of the durable tier.
        entries: Entries of the expiry index, one for each conversation to check.
        codec: Codec of the application; None if the application has none.
        clock: Function that returns seconds since 1970.
        ttl: Time-to-live policy of the sweepers.
    """
    tiers = Tiers.of(None, durable, codec=codec, clock=clock, ttl=ttl)
    heads, damaged, spans = 0, 0, list[float]()
    try:
        for entry in entries:
            tier = durable_tier(entry.place, tiers, ids={})
            head = None if tier is None else tier.read_head()
            heads += head is not None
            if tier is not None and head is not None and not head.is_empty:
                damaged += len(tier.unreadable_turns(head.incarnation))
                expiry = tier.head_item.get(durable.schema.ttl)
                if isinstance(expiry, int | float) and head.last_used:
                    spans.append(expiry - head.last_used)
    except StoreError as error:
        yield _unreadable(_RECORDS, error)
        return
    yield _read(_RECORDS, "conversations", heads)
    if damaged:
        yield problem(_TURNS, f"{damaged} turns cannot be read; they stay as they are", "restore their items from a backup")
    kept = min(spans, default=0.0)  # a save long after the last use, such as by close(), only lengthens it
    if kept > 2 * (tiers.ttl.session + tiers.ttl.grace):
        yield warning(
            "durable.session_ttl",
            f"workers keep a conversation for {kept / 86_400:.1f} days, a sweeper with these settings ends it after "
            f"{tiers.ttl.session / 86_400:.1f}",
            "give sweepers the MANGA_MEMORY_SESSION_TTL of the workers",
        )


def _owners(entries: Sequence[ExpiryEntry]) -> list[Owner]:
    owners = (Owner(str(entry.ids["user"]), entry.ids.get("tenant")) for entry in entries if entry.ids.get("user"))
    return list(dict.fromkeys(owners))


def _memories(users: Table, owner: Owner, codec: Codec | None) -> int:
    rows = users.query(owner.partition, last=INTERNAL, limit=_LOOKED_AT)
    return sum(record_of(row, owner, codec) is not None for row in rows if not str(row["memory_id"]).startswith(INTERNAL))


def _read(check: str, what: str, count: int) -> Finding:
    return ok(check, f"{count} {what} were read with this codec" if count else f"there are no {what} to try the codec on")


def _unreadable(check: str, error: StoreError) -> Finding:
    """Return the finding (result of a check) for a record that cannot be read, with a remedy."""
    remedy = "see the message"
    if isinstance(error, KeyMissingError):
        remedy = "name the application's codec with --codec package.module:name, and give it the key"
    elif isinstance(error, CorruptRecordError):
        remedy = "is it the codec it was stored with? if so, restore it from a backup, or delete it"
    elif isinstance(error, StoreUnavailableError):
        remedy = getattr(error, "remedy", "try again when it answers")
    return problem(check, str(error), remedy)
