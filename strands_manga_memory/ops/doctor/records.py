"""Checks whether stored records can be read with a codec."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeVar

from strands_manga_memory.exceptions import CorruptRecordError, KeyMissingError, StoreError, StoreUnavailableError
from strands_manga_memory.memory.records import INTERNAL, Owner, record_of
from strands_manga_memory.ops.doctor.conversation_checks import check_conversations
from strands_manga_memory.ops.doctor.finding import Finding, ok, problem
from strands_manga_memory.session.places import ExpiryIndex
from strands_manga_memory.stores.encoding.codec import Codec
from strands_manga_memory.stores.table import Table

_T = TypeVar("_T")

_LOOKED_AT = 20
_EVER = 100 * 365 * 86_400.0


def check_records(durable: Table, users: Table | None, codec: Codec | None, *, clock: Callable[[], float]) -> Iterator[Finding]:
    """Check a sample of conversations and of their users' memories; yield a finding for each that cannot be read.

    Args:
        durable: The durable tier.
        users: The memory table, if there is one.
        codec: The application's codec; None: it has none.
        clock: Seconds since 1970.
    """
    entries = list(islice(ExpiryIndex(durable).due(clock() + _EVER), _LOOKED_AT))

    yield from check_conversations(durable, entries, codec, clock=clock)
    if users is not None:
        owners = {Owner(str(entry.ids["user"]), entry.ids.get("tenant")): entry for entry in entries if entry.ids.get("user")}
        yield _read("users.records", "memories", list(owners), lambda owner: _memories(users, owner, codec))


def _memories(users: Table, owner: Owner, codec: Codec | None) -> int:
    rows = users.query(owner.partition, last=INTERNAL, limit=_LOOKED_AT)
    return sum(record_of(row, owner, codec) is not None for row in rows if not str(row["memory_id"]).startswith(INTERNAL))


def _read(check: str, what: str, places: list[_T], look: Callable[[_T], int]) -> Finding:
    read = 0
    for place in places:
        try:
            read += look(place)
        except KeyMissingError as error:
            return problem(
                check, str(error), "name the application's codec with --codec package.module:name, and give it the key"
            )
        except CorruptRecordError as error:
            return problem(
                check, str(error), "is it the codec it was stored with? if so, restore it from a backup, or delete it"
            )
        except StoreUnavailableError as error:
            return problem(check, str(error), getattr(error, "remedy", "try again when it answers"))
        except StoreError as error:
            return problem(check, str(error), "see the message")
    return ok(check, f"{read} {what} were read with this codec" if read else f"there are no {what} to try the codec on")
