"""Checks of stored conversations: whether heads and turns can be read with the application's codec."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from strands_manga_memory.exceptions import CorruptRecordError, KeyMissingError, StoreError, StoreUnavailableError
from strands_manga_memory.ops.doctor.finding import Finding, ok, problem
from strands_manga_memory.session.places import ExpiryEntry
from strands_manga_memory.session.tiers import Tiers, durable_tier
from strands_manga_memory.stores.encoding.codec import Codec
from strands_manga_memory.stores.table import Table

_RECORDS, _TURNS = "durable.records", "durable.turns"


def check_conversations(
    durable: Table, entries: Sequence[ExpiryEntry], codec: Codec | None, *, clock: Callable[[], float]
) -> Iterator[Finding]:
    """Yield whether the heads and turns of some conversations can be read. Nothing is written.

    Args:
        durable: The durable tier.
        entries: Entries of the expiry index.
        codec: The application's codec, if it has one.
        clock: Seconds since 1970.
    """
    tiers = Tiers.of(None, durable, codec=codec, clock=clock)
    heads, damaged = 0, 0
    for entry in entries:
        try:
            tier = durable_tier(entry.place, tiers, ids={})
            head = None if tier is None else tier.read_head()
            heads += head is not None
            if tier is not None and head is not None and not head.is_empty:
                damaged += len(tier.unreadable_turns(head.incarnation))
        except KeyMissingError as error:
            yield problem(
                _RECORDS, str(error), "name the application's codec with --codec package.module:name, and give it the key"
            )
            return
        except CorruptRecordError as error:
            remedy = "is it the codec it was stored with? if so, restore it from a backup, or delete the session"
            yield problem(_RECORDS, str(error), remedy)
            return
        except StoreUnavailableError as error:
            yield problem(_RECORDS, str(error), getattr(error, "remedy", "try again when it answers"))
            return
        except StoreError as error:
            yield problem(_RECORDS, str(error), "see the message")
            return
    found = f"{heads} conversations were read with this codec" if heads else "there are no conversations to try the codec on"
    yield ok(_RECORDS, found)
    if damaged:
        yield problem(_TURNS, f"{damaged} turns cannot be read; they stay as they are", "restore their items from a backup")
