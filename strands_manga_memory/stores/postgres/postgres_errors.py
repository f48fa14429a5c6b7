"""Translates errors of psycopg into errors of this package."""

from __future__ import annotations

import psycopg
from psycopg import errors

from strands_manga_memory.exceptions import NO_TABLE, StoreError, StoreRefusedError, StoreUnavailableError

_REFUSED: dict[type[psycopg.Error], tuple[str, str]] = {
    errors.UndefinedTable: ("table", NO_TABLE),
    errors.InsufficientPrivilege: ("permission", "grant SELECT, INSERT, UPDATE and DELETE on the table to this user"),
    errors.InvalidPassword: ("permission", "mend the user's password"),
    errors.InvalidAuthorizationSpecification: ("permission", "mend the user's name, or the server's pg_hba.conf"),
    errors.InvalidCatalogName: ("database", "there is no such database: create it"),
    errors.DiskFull: ("disk", "its disk is full: make room"),
    errors.ReadOnlySqlTransaction: ("read-only", "connect to the primary server: target_session_attrs=read-write"),
}
_REFUSED_LOGINS = (
    ("authentication failed", errors.InvalidPassword),
    ("no pg_hba.conf entry", errors.InvalidAuthorizationSpecification),
    ("role ", errors.InvalidAuthorizationSpecification),
    ("database ", errors.InvalidCatalogName),
)
"""Of a login that is refused the driver knows the server's text alone: what it has in it behind ``FATAL:``, in English."""

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
    """Return what is raised in place of an error of the driver; ``raise ... from`` keeps that."""
    # The text of the server's answer without its details, which may quote the record.
    text = (error.diag.message_primary if isinstance(error, psycopg.Error) else None) or str(error).strip()
    what = f"table=<{table}> | {type(error).__name__}: {text}"
    _, refused, why = str(error).partition("FATAL:")
    login = next((kind for text, kind in _REFUSED_LOGINS if refused and text in why), None)
    for kind, (reason, remedy) in _REFUSED.items():
        if isinstance(error, kind) or login is kind:
            return StoreRefusedError(what, reason=reason, remedy=remedy)
    return StoreUnavailableError(what) if isinstance(error, _PASSING) else StoreError(what)
