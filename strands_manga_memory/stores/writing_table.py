"""Base class of tables with transactions. Does no I/O."""

from __future__ import annotations

from collections.abc import Sequence

from strands_manga_memory.stores.items import check_batch, check_transaction
from strands_manga_memory.stores.table import Condition, Item, Key, TableSchema, Write


class WritingTable:
    """Base class of tables that execute several writes, or none of them, in one transaction."""

    schema: TableSchema

    def _write(self, writes: Sequence[Write]) -> bool:
        """Execute all writes or none; return False if a condition is not met."""
        raise NotImplementedError

    def delete(self, partition: str, sort: str, *, when: Condition | None = None) -> bool:
        """Delete a record; return False without deleting if ``when`` is not met. An absent record is no error."""
        return self._write([Write(key=(partition, sort), when=when)])

    def batch_write(self, *, puts: Sequence[Item] = (), deletes: Sequence[Key] = ()) -> None:
        """Write and delete many records without conditions, in one transaction.

        Raises:
            ValueError: A key is both in ``puts`` and in ``deletes``.
        """
        check_batch(self.schema, puts, deletes)
        self._write([*(Write(item=item) for item in puts), *(Write(key=key) for key in deletes)])

    def transact(self, writes: Sequence[Write]) -> bool:
        """Execute all writes (at most 100) or none; return False if a condition is not met.

        Raises:
            ValueError: There are more than 100 writes, two of the same record, or one that is no put, delete or check.
        """
        check_transaction(self.schema, writes)
        return self._write(writes)
