"""Error tree of the package.

::

    MangaMemoryError
    ├── StoreError                  also a SessionException of Strands, for existing handlers
    │   ├── StoreUnavailableError   timeout, connection, throttling: repeat the call later
    │   │   ├── StoreRefusedError   wrong password, no permission, full memory, damaged data
    │   │   └── OvertakenError      other processes keep changing the record during the call
    │   ├── ConflictError           another writer made a change that cannot be merged
    │   └── CorruptRecordError      a record is damaged, or has a format of another release
    │       └── KeyMissingError     a record is encrypted, and its key is missing or destroyed
    ├── BusyError                   a request waited too long for earlier ones; it was not started
    ├── PersonalDataError           a policy refuses to store a text with personal data
    └── StateError                  a change of an agent's state is not allowed; also a ValueError

Constructors and functions raise plain ``ValueError`` or ``TypeError`` for bad arguments.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from strands.types.exceptions import SessionException


class MangaMemoryError(Exception):
    """Base of all errors of this package."""


class StoreError(MangaMemoryError, SessionException):
    """A store failed. Base of all errors of stores."""


class StoreUnavailableError(StoreError):
    """A store did not answer in time, or refused the connection. Repeat the call later."""


class StoreRefusedError(StoreUnavailableError):
    """A store rejects valid requests until an operator repairs the cause.

    Attributes:
        reason: Cause in a word, such as ``authentication``, ``read-only`` or ``damaged``.
        remedy: Instruction for the operator.
        record: Name of the affected record; empty if the store rejects all requests.
    """

    def __init__(
        self, message: str, *, reason: str = "", remedy: str = "", record: str = ""
    ) -> None:
        super().__init__(f"{message}; {remedy}" if remedy else message)
        self.reason = reason
        self.remedy = remedy
        self.record = record


NO_TABLE = (
    "there is no such table yet: create_if_missing() or `strands-manga-memory init-table` makes it"
)
"""Remedy for a missing table of any store."""


class OvertakenError(StoreUnavailableError):
    """A read or write was abandoned, because other processes changed the record at each attempt.

    The store itself works. Repeat a failed read; the package repeats a failed write by itself.
    """


class ConflictError(StoreError):
    """Another writer changed a record, and the changes cannot be merged."""


class CorruptRecordError(StoreError):
    """A stored record is damaged, or has the format of another release of this package.

    The package does not change the record.

    Attributes:
        record: Name of the record.
    """

    def __init__(self, message: str, *, record: str = "") -> None:
        super().__init__(message)
        self.record = record


class KeyMissingError(CorruptRecordError):
    """An encrypted record cannot be decrypted: the cipher or key is missing or destroyed.

    Attributes:
        record: Name of the record.
    """


class BusyError(MangaMemoryError):
    """A request waited too long for the earlier requests of its conversation, and was not started.

    Raised by ``ConversationTurns``. Repeat the request later.
    """


class PersonalDataError(MangaMemoryError):
    """A policy for personal data forbids storing a text.

    The message names the kind of data, such as an e-mail address, but not the data.
    """


class StateError(MangaMemoryError, ValueError):
    """A change of an agent's state, such as a slot, goal or task step, is not allowed now.

    The message names the cause.
    """


@contextmanager
def logged_errors(logger: logging.Logger, consequence: str) -> Iterator[None]:
    """Log an exception of the ``with`` block as a warning, and continue after the block.

    The warning contains only the exception's class, because the exception's text may contain
    personal data. The traceback is logged at the level DEBUG.

    ``consequence`` is the text of the warning, such as ``"no cart was read, starting without it"``.
    """
    try:
        yield
    except Exception as error:
        logger.warning("error=<%s> | %s", type(error).__name__, consequence)
        logger.debug(consequence, exc_info=True)
