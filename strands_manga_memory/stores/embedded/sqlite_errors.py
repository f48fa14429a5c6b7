"""Conversion of sqlite3's errors to errors of this package, with cause and remedy."""

from __future__ import annotations

import sqlite3

from strands_manga_memory.exceptions import NO_TABLE, StoreError, StoreRefusedError, StoreUnavailableError

_PASSING = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
}
_DAMAGED = "damaged", "the file is damaged or not a SQLite file: restore it from a backup, or from `sqlite3 FILE .recover`"
_REFUSED = {
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_FULL: ("disk", "the disk is full: free some space"),
    sqlite3.SQLITE_READONLY: ("read-only", "the file or its folder cannot be written: correct the permissions or the mount"),
    sqlite3.SQLITE_PERM: ("permission", "the file or its folder cannot be used: correct the permissions"),
    sqlite3.SQLITE_AUTH: ("permission", "the file or its folder cannot be used: correct the permissions"),
}


def translated(error: sqlite3.Error | OSError, table: str) -> StoreError:
    """Convert an error of sqlite3 or the file system to an error of this package."""
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    what = f"table=<{table}> | {error}"
    if code in _PASSING or isinstance(error, OSError):
        return StoreUnavailableError(what)
    if code in _REFUSED:
        reason, remedy = _REFUSED[code]
        return StoreRefusedError(what, reason=reason, remedy=remedy)
    if "no such table" in str(error):
        return StoreRefusedError(what, reason="table", remedy=NO_TABLE)
    return StoreError(what)
