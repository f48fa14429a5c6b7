"""The whole error tree of the package.

::

    MangaMemoryError
    ├── StoreError                  also a strands SessionException, so existing handlers keep working
    │   ├── StoreUnavailableError   timeout, connection, throttling: the call may be tried again
    │   │   ├── StoreRefusedError   password, permission, memory, damage: trying again helps once that is mended
    │   │   └── OvertakenError      others keep changing the record; the write is put off
    │   ├── ConflictError           someone else changed the record, and the two changes cannot be merged
    │   └── CorruptRecordError      a stored record fails its checksum, or is of a newer version
    │       └── KeyMissingError     a stored record is encrypted, and its key was not given or is destroyed
    ├── ContextBudgetError          what must stay in the history is larger than its budget
    ├── PersonalDataError           a policy refuses to remember a text because of personal data in it
    └── StateError                  a change of the state that is not possible now; also a ValueError

Bad arguments are plain ``ValueError`` or ``TypeError``, raised by the constructor that received them.
"""

from __future__ import annotations

from strands.types.exceptions import SessionException


class MangaMemoryError(Exception):
    """Base of every error this package raises on its own account."""


class StoreError(MangaMemoryError, SessionException):
    """Something went wrong between the package and a store."""


class StoreUnavailableError(StoreError):
    """A store did not answer in time, refused the connection, or throttled the request; trying again may help."""


class StoreRefusedError(StoreUnavailableError):
    """A store answers, and refuses what is well asked; trying again helps once somebody has mended what it names.

    ``reason`` names the cause in a word, such as ``authentication``, ``read-only`` or ``damaged``, and ``remedy`` says what
    mends it. ``record`` names the one record that it concerns; it is empty if the store refuses everybody.
    """

    def __init__(self, message: str, *, reason: str = "", remedy: str = "", record: str = "") -> None:
        super().__init__(f"{message}; {remedy}" if remedy else message)
        self.reason = reason
        self.remedy = remedy
        self.record = record


NO_TABLE = "there is no such table yet: create_if_missing() or `strands-manga-memory init-table` makes it"
"""What mends a table that is missing, of whichever store."""


class OvertakenError(StoreUnavailableError):
    """Others keep changing a record. Its store is well, so this write, or read, is put off, and nobody else's."""


class ConflictError(StoreError):
    """A record was changed by someone else and the two changes cannot be merged."""


class CorruptRecordError(StoreError):
    """A stored record cannot be trusted: its checksum fails, it is malformed, or a newer version wrote it.

    The record is left as it is. ``record`` names it.
    """

    def __init__(self, message: str, *, record: str = "") -> None:
        super().__init__(message)
        self.record = record


class KeyMissingError(CorruptRecordError):
    """A record is encrypted and cannot be read: no cipher was given, or its key was not, or its key has been destroyed.

    Nothing is wrong with the record; with its key it can be read again. ``record`` names it.
    """


class ContextBudgetError(MangaMemoryError):
    """The messages that must stay in the history are larger than the budget."""


class PersonalDataError(MangaMemoryError):
    """A text holds personal data of a kind that the policy refuses to store; the message names the kind, not the data."""


class StateError(MangaMemoryError, ValueError):
    """A change of the state is not possible as it is now; the message says what is allowed instead."""
