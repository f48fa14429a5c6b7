"""Conversion of psycopg's errors to errors of this package, with cause and remedy."""

from __future__ import annotations

import psycopg
from psycopg import errors

from strands_manga_memory.exceptions import NO_TABLE, StoreError, StoreRefusedError, StoreUnavailableError

_REFUSED: dict[type[psycopg.Error], tuple[str, str]] = {
    errors.UndefinedTable: ("table", NO_TABLE),
    errors.InsufficientPrivilege: ("permission", "grant SELECT, INSERT, UPDATE and DELETE on the table to this user"),
    errors.InvalidPassword: ("permission", "correct the user's password"),
    errors.InvalidAuthorizationSpecification: ("permission", "correct the user's name, or the server's pg_hba.conf"),
    errors.InvalidCatalogName: ("database", "there is no such database: create it"),
    errors.DiskFull: ("disk", "the disk is full: free some space"),
    errors.ReadOnlySqlTransaction: ("read-only", "connect to the primary server: target_session_attrs=read-write"),
}
_REFUSED_LOGINS = (
    ("authentication failed", errors.InvalidPassword),
    ("no pg_hba.conf entry", errors.InvalidAuthorizationSpecification),
    ("role ", errors.InvalidAuthorizationSpecification),
    ("database ", errors.InvalidCatalogName),
)
"""Parts of the server's English text after ``FATAL:``, the only information about a rejected login."""

_PASSING = (
    errors.QueryCanceled,
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.LockNotAvailable,
    errors.TooManyConnections,
    psycopg.InterfaceError,
    psycopg.OperationalError,
    OSError,
)


def translated(error: psycopg.Error | OSError, table: str) -> StoreError:
    """Convert an error of the driver to an error of this package."""
    # Without the details of the server's answer, which may quote the record.
    text = (error.diag.message_primary if isinstance(error, psycopg.Error) else None) or str(error).strip()
    what = f"table=<{table}> | {type(error).__name__}: {text}"
    _, refused, why = str(error).partition("FATAL:")
    login = next((kind for text, kind in _REFUSED_LOGINS if refused and text in why), None)
    for kind, (reason, remedy) in _REFUSED.items():
        if isinstance(error, kind) or login is kind:
            return StoreRefusedError(what, reason=reason, remedy=remedy)
    return StoreUnavailableError(what) if isinstance(error, _PASSING) else StoreError(what)
