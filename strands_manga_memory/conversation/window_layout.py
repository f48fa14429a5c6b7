"""Layout of a window, from which a session manager that logs messages restores the exact history.

Such a session manager (``FileSessionManager``, ``S3SessionManager``) writes every message once, when it is added, and restores
the log from some record on. A history from which messages were dropped or in which they were shortened, pinned or edited is no
such tail. The layout, a part of the conversation manager's state, records the difference: the ids of the messages before the
point from which history and log agree, and the bodies of those that the log holds in another form.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from strands.types.content import Message
from strands.types.session import decode_bytes_values, encode_bytes_values

from strands_manga_memory.conversation.features import size_of
from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.messages import content_fingerprint, fingerprint, is_repair, tool_result_ids

VERSION = 1

READ_AHEAD = 256
"""A message that many records back travels with the layout, so that a restore need not read all the records since."""

LARGEST_BODY = 16_000
"""Only messages of at most so many characters and bytes travel for that reason."""

_BODY = "#"

"""Text that Strands writes as the result of a tool call that never got one."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Difference between a history and its log.

    Attributes:
        skip: Number of the first log record that a restore needs.
        keys: The messages before the agreeing tail: their tracking ids, or keys of ``bodies``.
        bodies: Messages whose form differs from the log.
        after: Tracking id of the log record after which history and log agree; None: from the first record read.
    """

    skip: int = 0
    keys: tuple[str, ...] = ()
    bodies: dict[str, Message] = field(default_factory=dict)
    after: str | None = None

    def to_state(self) -> dict[str, Any] | None:
        """Return the layout as JSON values, without ``skip``; None if the history is just the log from ``skip`` on."""
        if not self.keys and self.after is None:
            return None
        return {
            "v": VERSION,
            "keys": list(self.keys),
            "bodies": encode_bytes_values(self.bodies),
            "after": self.after,
        }

    @classmethod
    def from_state(cls, state: Any, skip: int) -> Layout:
        """Parse the state of :meth:`to_state`; raise ``CorruptRecordError`` if it is malformed or of a newer version."""
        if state is None:
            return cls(skip)
        try:
            version, keys, bodies, after = state["v"], state["keys"], decode_bytes_values(state["bodies"]), state["after"]
            well_formed = (
                isinstance(keys, list)
                and all(isinstance(key, str) for key in keys)
                and all({"role", "content"} <= body.keys() for body in bodies.values())
                and (after is None or isinstance(after, str))
            )
        except (AttributeError, KeyError, TypeError) as error:
            raise CorruptRecordError("the layout of the window is malformed", record="conversation manager state") from error
        if version != VERSION or not well_formed:
            raise CorruptRecordError(
                f"the layout of the window has version {version!r}, this package reads {VERSION}"
                if version != VERSION
                else "the layout of the window is malformed",
                record="conversation manager state",
            )
        return cls(skip, tuple(keys), bodies, after)

    def replay(self, restored: Sequence[Message]) -> list[Message] | None:
        """Return the history, rebuilt from restored messages: the log from record ``skip`` on, or the history itself.

        None if the restored messages are to be used unchanged: they are the history already (a snapshot), or records that the
        layout needs are missing (another program changed the log).
        """
        at = {message.get("tracking_id"): position for position, message in enumerate(restored)}
        if self.after is not None and self.after not in at:
            return None
        found = {key: restored[position] for key, position in at.items()} | self.bodies
        if any(key not in found for key in self.keys):
            return None
        head = [found[key] for key in self.keys]
        listed = frozenset(message.get("tracking_id") for message in head)
        tail = restored[0 if self.after is None else at[self.after] + 1 :]
        return head + [message for message in tail if message.get("tracking_id") not in listed]


class _Record(NamedTuple):
    id: str | None
    fingerprint: int
    is_result: bool


_NO_IDS: frozenset[str | None] = frozenset()


class MessageLog:
    """Fingerprints of a session manager's log: enough to describe the history by it, in memory of the history's size.

    ``skipped`` records precede the first one given to :meth:`add`.
    """

    __slots__ = ("_latest", "_records", "_repeated", "_unconfirmed", "length")

    def __init__(self, skipped: int = 0) -> None:
        self.length = skipped
        self._records: dict[int, _Record] = {}
        self._latest: dict[str | None, int] = {}
        self._repeated = _NO_IDS
        self._unconfirmed = False

    def adding(self, message: Message) -> None:
        """Record a message that is about to be logged."""
        self.settle()
        self.add(message)
        self._unconfirmed = True

    def added(self) -> None:
        """Record that the message was logged."""
        self._unconfirmed = False

    def settle(self) -> None:
        """Forget a message that was about to be logged and was not confirmed: assuming too few records is harmless."""
        if self._unconfirmed:
            self._unconfirmed = False
            self.length -= 1
            record = self._records.pop(self.length, None)
            self._latest.pop(record.id if record else None, None)

    def add(self, message: Message) -> None:
        """Record a message in the log."""
        id_ = message.get("tracking_id")
        if id_ in self._latest:
            self._repeated |= {id_}
        self._latest[id_] = self.length
        self._records[self.length] = _Record(id_, logged_fingerprint(message), bool(tool_result_ids(message)))
        self.length += 1

    def add_restored(self, messages: Sequence[Message]) -> None:
        """Add the messages of a restore, except results that Strands may have written itself: they are no records."""
        for message in messages:
            if not is_repair(message):
                self.add(message)

    def forget_all_but(self, messages: Sequence[Message]) -> None:
        """Drop the fingerprints of records that no message needs: neither its own nor the one before it."""
        if len(self._records) <= 2 * len(messages) + 64:
            return
        live = {self._latest[id_] for message in messages if (id_ := message.get("tracking_id")) in self._latest}
        needed = live | {at - 1 for at in live} | {self.length - 1, self.length - 2}
        self._records = {at: record for at, record in self._records.items() if at in needed}
        ids = {record.id for record in self._records.values()}
        self._latest = {id_: at for id_, at in self._latest.items() if id_ in ids}
        self._repeated &= ids

    def layout(self, messages: Sequence[Message]) -> Layout:
        """Describe a history by the log."""
        head, after_record = self._agreeing_tail(messages)
        if head == 0 and messages:
            return Layout(skip=self._readable_from(after_record))
        keys: list[str] = []
        bodies: dict[str, Message] = {}
        needed = [after_record - 1] if after_record else [0]
        for message in messages[:head]:
            at = self._logged_at(message)
            if at is None or (at < self.length - READ_AHEAD and size_of(message) <= LARGEST_BODY):
                key = f"{_BODY}{len(bodies)}"
                bodies[key] = message
            else:
                key = message["tracking_id"]
                needed.append(at)
            keys.append(key)
        last_covered = self._records.get(after_record - 1)
        return Layout(self._readable_from(min(needed)), tuple(keys), bodies, last_covered.id if last_covered else None)

    def _logged_at(self, message: Message) -> int | None:
        """Return the position of the latest record of a message, if the message is unchanged since; else None."""
        id_ = message.get("tracking_id")
        at = self._latest.get(id_)
        known = None if at is None else self._records.get(at)
        if not id_ or id_.startswith(_BODY) or known is None or known.fingerprint != logged_fingerprint(message):
            return None
        return at

    def _agreeing_tail(self, messages: Sequence[Message]) -> tuple[int, int]:
        """Return from which message and from which record on history and log agree to the end.

        The record before is one whose id is in the log only once, so that a restore can find it.
        """
        position, record = len(messages), self.length
        while position and record:
            known = self._records.get(record - 1)
            message = messages[position - 1]
            if known is None or known.id != message.get("tracking_id") or known.fingerprint != logged_fingerprint(message):
                break
            position, record = position - 1, record - 1
        if position:
            while position < len(messages) and record and not self._is_unique(record - 1):
                position, record = position + 1, record + 1
        return position, record

    def _is_unique(self, record: int) -> bool:
        known = self._records.get(record)
        return known is not None and known.id not in self._repeated

    def _readable_from(self, record: int) -> int:
        """Return a record from which a log can be read: for a tool result the record before, which has the tool call."""
        known = self._records.get(record)
        return record - 1 if record and known is not None and known.is_result else record


def check_manager(state: Mapping[str, Any], manager: object) -> None:
    """Raise ``ValueError`` if a state was stored by a conversation manager of another class."""
    stored, used = state.get("__name__"), type(manager).__name__
    if stored != used:
        raise ValueError(
            f"the session holds the state of {stored!r:.80}, not of {used!r:.80}: "
            "go on with that conversation manager, or start a new session"
        )


def logged_fingerprint(message: Message) -> int:
    """Return the fingerprint of the parts of a message that a log keeps and others may change: content, custom metadata."""
    return hash((content_fingerprint(message), fingerprint((message.get("metadata") or {}).get("custom") or {})))


def identify(messages: Sequence[Message], skipped: int = 0) -> None:
    """Give messages without a tracking id an id from their position and content, the same at every restore.

    Logs written before Strands had tracking ids hold such messages.
    """
    for at, message in enumerate(messages, start=skipped):
        if not message.get("tracking_id"):
            content = json.dumps(encode_bytes_values(message["content"]), sort_keys=True, default=str)
            digest = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()
            message["tracking_id"] = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{at}:{message['role']}:{digest}"))


def ensure_ids(messages: list[Message]) -> None:
    """Give an id to each message without one."""
    for message in messages:
        if not message.get("tracking_id"):
            message["tracking_id"] = str(uuid.uuid4())
