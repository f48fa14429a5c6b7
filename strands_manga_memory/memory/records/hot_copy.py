"""HotCopy: a user's memories in the hot tier, so that a worker that keeps no agents reads the table once a session."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from strands_manga_memory.exceptions import KeyMissingError, StoreError
from strands_manga_memory.memory.records.memory_records import Owner, item_of, record_of
from strands_manga_memory.memory.records.partition import Loaded
from strands_manga_memory.stores.encoding.codec import Codec, trusted
from strands_manga_memory.stores.hot import ACTIVE, HotRecord, HotStore, HotWrite, WriteStatus, new_version

logger = logging.getLogger(__name__)

MEMORIES = "memories"
"""The field of the copy, which goes whenever what agents are told goes."""
MOST_BYTES = 524_288
"""What takes more, compressed, stays in the table alone."""


def cache_name(owner: Owner) -> str:
    """Return the name of a user's cache in the hot tier. It has two slashes, a conversation's name has one."""
    return f"profile/{owner.partition}/cache"


def is_cache(name: str) -> bool:
    """Tell whether a name in the hot tier is a cache's."""
    return name.startswith("profile/") and name.endswith("/cache") and name.count("/") == 2


@dataclass(frozen=True)
class Looked:
    """What the hot tier had: the memories, if it had them, and as of which state of the record."""

    memories: Loaded | None = None
    seen: tuple[int, int] | None = None


class HotCopy:
    """The memories of a user as one field beside what his agents are told, and gone with it; by default after 1,800 seconds.

    ``HotProfile.publish`` drops the copy after each change of a memory. A reader of the table keeps a copy only if nothing was
    dropped since the reader looked. A copy that cannot be read counts as none.
    """

    def __init__(self, hot: HotStore, owner: Owner, *, codec: Codec | None = None, ttl: float = 1800.0) -> None:
        self._hot = hot
        self._owner = owner
        self._codec = codec or Codec()
        self._ttl = ttl
        self._name = cache_name(owner)

    def look(self) -> Looked:
        """Return what the hot tier has, in one round trip; nothing if it is down."""
        try:
            record = self._hot.load(self._name, [MEMORIES], touch=False)
            if record is None or record.state != ACTIVE or record.expires_in <= 0:
                return Looked()
            return Looked(self._read(record), (record.epoch, record.version))
        except (StoreError, KeyMissingError) as error:
            logger.debug("error=<%s> | the hot copy of a user's memories is not used", type(error).__name__)
            return Looked()

    def rules_out_erasure(self) -> bool:
        """Tell whether the hot tier shows, in one round trip, that no process has erased the user lately."""
        if not self._hot.survives_process:
            return False
        try:
            record = self._hot.load(self._name, [], touch=False)
        except StoreError:
            return False
        return record is not None and record.state == ACTIVE and record.epoch == 1

    def keep(self, loaded: Loaded, seen: tuple[int, int]) -> bool:
        """Keep what was read from the table after ``look`` returned ``seen``; tell whether it is kept."""
        rows = [item_of(record, self._owner, None) for record in loaded.records.values()]
        uses = {id_: list(used) for id_, used in loaded.uses.items()}
        data = self._codec.encode({"rows": rows, "uses": uses, "read_at": time.time()}, self._place)
        if len(data) > MOST_BYTES or loaded.unreadable:
            return False
        try:
            return self._written(seen, fields={MEMORIES: data})
        except StoreError:
            return False

    @property
    def _place(self) -> str:
        return f"{self._name}#{MEMORIES}"

    def _read(self, record: HotRecord) -> Loaded | None:
        if MEMORIES not in record.fields:
            return None
        data = self._codec.decode(record.fields[MEMORIES], self._place)
        with trusted(self._place):
            if time.time() - float(data["read_at"]) >= self._ttl:
                return None  # a removal that could not be published ends with the age of the copy
            records = [record_of(row, self._owner, None) for row in data["rows"]]
            uses = {str(id_): (int(count), float(at)) for id_, (count, at) in data["uses"].items()}
        return Loaded({each.memory_id: each for each in records}, uses)

    def _written(self, seen: tuple[int, int], *, fields: dict[str, bytes]) -> bool:
        write = HotWrite(expect=seen, epoch=seen[0], version=new_version(), fields=fields, ttl=self._ttl)
        return self._hot.write(self._name, write) is WriteStatus.OK
