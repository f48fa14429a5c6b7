"""History of an agent, and the data with which a restart restores exactly this history.

Session managers such as ``FileSessionManager`` and ``S3SessionManager`` write every message once to
a log. The history differs from the log: messages may have been evicted, truncated, pinned or
edited. The conversation manager therefore saves the layout of the history in its state: the id of
each message, or the full message if a restart cannot read it from the log.

The module also has ``LogTail``, which keeps recently evicted messages so that they can return. This
module does no I/O.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from strands.types.content import Message
from strands.types.session import decode_bytes_values, encode_bytes_values

from strands_manga_memory.conversation.importance import size_of
from strands_manga_memory.conversation.message_truncation import is_truncated
from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.messages import (
    content_fingerprint,
    fingerprint,
    id_of,
    is_message,
    is_repair,
    is_tool_pair,
)
from strands_manga_memory.messages.message_parts import custom_metadata, tool_result_ids

_ATOMS = frozenset({str, int, float, bool, bytes, type(None)})


class History(list[Message]):
    """List of an agent's messages with a fast deep copy.

    Strands makes two deep copies of the messages for each model call.
    """

    __slots__ = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> History:
        try:
            return History(_copied(list(self), memo))
        except RecursionError:  # the list contains itself
            return History(copy.deepcopy(list(self), memo))


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    kind = type(value)
    if kind is not dict and kind is not list:
        return copy.deepcopy(value, memo)
    made = value.copy()  # without the memo: an object that occurs twice is copied twice
    for key, item in value.items() if kind is dict else enumerate(value):
        if type(item) not in _ATOMS:
            made[key] = _copied(item, memo)
    return made


# --- Layout: the difference from the message log --------------------------------------------------

VERSION = 1

READ_AHEAD = 256
"""Number of latest log records from which a restore reads messages.
The saved layout contains older messages in full, except very large ones.
"""

LARGEST_BODY = 16_000
"""Largest old message that the saved layout contains in full, in characters or bytes."""

_BODY = "#"
"""Prefix that distinguishes the keys of ``Layout.bodies`` from tracking ids."""


@dataclass(frozen=True, slots=True)
class Layout:
    """List of the messages in an agent's history, to rebuild the history from its log at a restart.

    The history consists of the messages in ``keys``, then of the messages that were logged later.

    Attributes:
        skip: Index of the first message of the log that a restore reads.
        keys: One key for each message: the tracking id of a logged message, or a key of ``bodies``.
        bodies: Full messages that a restore cannot read from the log, because they were changed or
            are too old.
        after: Tracking id of the log's last message when this layout was computed. Messages logged
            later follow those in ``keys``. None if the history equals the log.
    """

    skip: int = 0
    keys: tuple[str, ...] = ()
    bodies: dict[str, Message] = field(default_factory=dict)
    after: str | None = None

    def to_state(self) -> dict[str, Any] | None:
        """Convert this layout of a history to JSON values. None if the history equals the log.

        ``skip`` is left out: Strands stores this number separately.
        """
        if self.after is None:
            return None
        return {
            "v": VERSION,
            "keys": list(self.keys),
            "bodies": encode_bytes_values(self.bodies),
            "after": self.after,
        }

    @classmethod
    def from_state(cls, state: Any, skip: int) -> Layout:
        """Create a layout of a history from stored JSON values.

        ``state`` is the result of :meth:`to_state`, and ``skip`` the index of the first message of
        the log that the session has restored.

        Raises:
            CorruptRecordError: The state is malformed, or another version of this package wrote it.
        """
        if state is None:
            return cls(skip)
        problem = "the layout of the window is malformed"
        match state:
            case {"v": 1, "keys": [*keys], "bodies": {**bodies}, "after": str(after)}:
                if all(isinstance(key, str) for key in keys) and all(
                    map(is_message, bodies.values())
                ):
                    return cls(skip, tuple(keys), decode_bytes_values(bodies), after)
            case {"v": version} if version != VERSION:
                problem = (
                    f"the layout of the window has version {version!r}, this package reads"
                    f" {VERSION}"
                )
        raise CorruptRecordError(problem, record="conversation manager state")

    def replay(self, restored: Sequence[Message]) -> list[Message] | None:
        """Rebuild the agent's history from the messages that a session manager has ``restored``.

        Most session managers restore the log from the index ``skip`` on. Some restore the trimmed
        history instead.

        Returns:
            The history. None if it equals the log, or if ``restored`` lacks one of its messages:
            the caller then uses ``restored`` unchanged.
        """
        ids = [message.get("tracking_id") for message in restored]
        found = dict(zip(ids, restored, strict=True)) | self.bodies
        if self.after not in ids or not found.keys() >= {*self.keys}:
            return None
        head = [found[key] for key in self.keys]
        listed = frozenset(map(id_of, head))
        later = restored[len(ids) - ids[::-1].index(self.after) :]
        return head + [message for message in later if id_of(message) not in listed]


def _record_of(message: Message) -> tuple[str, int]:
    return id_of(message), logged_fingerprint(message)


class MessageLog:
    """Index of the messages in a session's log: the id and a hash of each message.

    An agent's history is compared with this index, so that the log need not be read again.

    Args:
        skipped: Number of messages at the beginning of the log that the session did not restore.
            They count in ``length``, but are not in the index.
    """

    def __init__(self, skipped: int = 0) -> None:
        self._skipped = skipped
        self._records: list[tuple[str, int]] = []
        self._latest: dict[str, int] = {}
        self._is_confirmed = True

    @property
    def length(self) -> int:
        """Number of messages in the log of the session."""
        return self._skipped + len(self._records)

    def add_unconfirmed(self, message: Message) -> None:
        """Add a message to the index just before the session manager writes it to the log.

        After the write, call :meth:`confirm`. Otherwise, :meth:`drop_unconfirmed` removes the
        message.
        """
        self.drop_unconfirmed()
        self.add(message)
        self._is_confirmed = False

    def confirm(self) -> None:
        """Mark the message of :meth:`add_unconfirmed` as written to the log."""
        self._is_confirmed = True

    def drop_unconfirmed(self) -> None:
        """Remove the last message from the index if :meth:`confirm` was not called for it.

        The saved layout then contains the message in full, so a restart restores it even if the log
        lacks the message.
        """
        if not self._is_confirmed:
            self._is_confirmed = True
            self._latest.pop(self._records.pop()[0], None)

    def add(self, message: Message) -> None:
        """Add a message of the session's log to this index."""
        self._latest[id_of(message)] = len(self._records)
        self._records.append(_record_of(message))

    def add_restored(self, messages: Sequence[Message]) -> None:
        """Add messages to the index after a session has restored them from its log.

        Error results that Strands adds for interrupted tool calls are skipped: the log lacks them.
        """
        for message in messages:
            if not is_repair(message):
                self.add(message)

    def layout(self, messages: Sequence[Message]) -> Layout:
        """Return the layout with which a restart rebuilds a history from the log."""
        window = list(map(_record_of, messages))
        if not self._records or (window == self._records and not self._skipped):
            return Layout(self._skipped)
        keys: list[str] = []
        bodies: dict[str, Message] = {}
        first = end = len(self._records)
        for message, record in zip(messages, window, strict=True):
            id_ = record[0]
            at = self._latest.get(id_, -1) if id_ and not id_.startswith(_BODY) else -1
            is_logged = at >= 0 and self._records[at] == record
            if is_logged and (at >= end - READ_AHEAD or size_of(message) > LARGEST_BODY):
                keys.append(id_)
                first = min(first, at)
            else:
                keys.append(f"{_BODY}{len(bodies)}")
                bodies[keys[-1]] = message
        # Strands removes a tool result that is the first message, so one more message is read.
        skip = max(0, self._skipped + first - 1)
        return Layout(skip, tuple(keys), bodies, self._records[-1][0] or None)


def check_manager(state: Mapping[str, Any], manager: object) -> None:
    """Check that a saved state belongs to the class of a conversation manager.

    Raises:
        ValueError: A conversation manager of another class saved the state.
    """
    stored, used = state.get("__name__"), type(manager).__name__
    if stored != used:
        raise ValueError(
            f"the session holds the state of {stored!r:.80}, not of {used!r:.80}: "
            "go on with that conversation manager, or start a new session"
        )


def logged_fingerprint(message: Message) -> int:
    """Return a hash of a message's content and custom metadata, to detect later changes."""
    custom = custom_metadata(message)
    return hash((content_fingerprint(message), fingerprint(custom) if custom else 0))


def ensure_ids(messages: list[Message]) -> None:
    """Give a random tracking id to each message that has none."""
    for message in messages:
        if not message.get("tracking_id"):
            message["tracking_id"] = str(uuid.uuid4())


# --- Latest messages: the history, and evicted messages -------------------------------------------

_TIMES_WINDOW, _MOST_TOKENS = 3, 32_768
"""Most tokens of evicted messages in memory: 3 times the history's budget, at most 32,768."""

_TOKENS_A_MESSAGE, _LEAST_READ = 32, 64
"""Assumed tokens of one message, and the smallest number of messages to read from a log."""

_SLACK = 5
"""Divisor: if the evicted messages exceed their limit by over a fifth, the largest are removed."""


class LogTail:
    """Copy of a conversation's latest messages, from which the trimmer selects the agent's history.

    The copy also has the messages that the trimmer has evicted, and the full text of those that it
    has truncated. A later selection can bring them back.

    An edit of a message in the history also changes the copy. If other code than the trimmer, such
    as a summarizer, removes or inserts messages in the history, the copy loses all messages evicted
    so far. They cannot return.

    Attributes:
        discarded_until: Id of the newest message when other code last removed or inserted messages.
            Evicted messages up to this one never return. None without such a change.
    """

    def __init__(self) -> None:
        self.discarded_until: str | None = None
        self._messages: dict[str, Message] = {}
        self._window: list[str] = []
        self._truncated: dict[str, int] = {}
        self._forgotten: set[str] = set()

    def __iter__(self) -> Iterator[Message]:
        return iter(list(self._messages.values()))  # a tool may read them in another thread

    def discard_if_changed(self, history: Sequence[Message]) -> None:
        """Discard the evicted messages if code other than the trimmer has changed the history.

        Evicted messages must not return if, for example, a summarizer has replaced old messages by
        a summary. Messages appended at the end do not count as a change.
        """
        before, self._window = self._window, list(map(id_of, history))
        if before == self._window[: len(before)] and len({*self._window}) == len(history):
            return
        if before:
            self.discarded_until = (
                self._window[-1] if self._window and self._window[-1] not in before else before[-1]
            )
        self._replace_messages([self._messages.get(id_of(message), message) for message in history])

    def update(self, history: Sequence[Message]) -> None:
        """Add new and edited messages of the agent's history to this copy of the latest messages.

        Messages that the trimmer truncated stay in full. If other code has removed or inserted
        messages in the history, all evicted messages are removed.
        """
        self.discard_if_changed(history)
        for shown in history:
            id_ = id_of(shown)
            stored = self._messages.get(id_)
            if stored is None:
                if id_ not in self._forgotten:
                    self._messages[id_] = shown
            elif shown is not stored and logged_fingerprint(shown) not in (
                self._truncated.get(id_),
                logged_fingerprint(stored),
            ):
                self._messages[id_] = shown

    def restore(self, log: Sequence[Message]) -> None:
        """Add messages from the session's log that were evicted or truncated before a restart.

        ``log`` has the latest logged messages, oldest first. Nothing is added if it contradicts
        this copy, for example by another order of the messages. A tool result at its beginning is
        not added, because its call is missing.
        """
        logged = {id_of(message): message for message in log}
        known, order = list(self._messages), list(logged)
        found = [at for at, id_ in enumerate(known) if id_ in logged]
        if not found:
            return
        until = self.discarded_until
        first = order.index(until) + 1 if until in logged else 0
        if first < len(order) and tool_result_ids(logged[order[first]]):
            first += 1  # the call is missing
        read = [
            id_
            for at, id_ in enumerate(order[: order.index(known[found[-1]]) + 1])
            if id_ in self._messages or (at >= first and id_ and id_ not in self._forgotten)
        ]
        merged = [*known[: found[0]], *read, *known[found[-1] + 1 :]]
        if [id_ for id_ in merged if id_ in self._messages] == known:
            self._messages = {id_: self._full_message(id_, logged.get(id_)) for id_ in merged}

    def _full_message(self, id_: str, logged: Message | None) -> Message:
        stored = self._messages.get(id_)
        if stored is None or logged is None:
            return logged or self._messages[id_]
        # A message truncated before a restart is replaced by its full form in the log.
        if id_ in self._truncated or not is_truncated(stored) or is_truncated(logged):
            return stored
        self._truncated[id_] = logged_fingerprint(stored)
        return logged

    def candidates(
        self,
        history: Sequence[Message],
        budget: int,
        count: Callable[[Message], int],
    ) -> list[Message]:
        """Return the current and evicted messages, from which a new history can be selected.

        Evicted messages may have three times the ``budget`` of the history in tokens, but at most
        32,768. When they exceed this limit by a fifth, the largest are removed for good.
        """
        ids = {*self._window}
        found = list(self if len(ids) == len(history) and ids <= self._messages.keys() else history)
        evicted: list[list[Message]] = []
        for message in found:
            if id_of(message) in ids:
                continue
            if evicted and is_tool_pair(evicted[-1][-1], message):
                evicted[-1].append(message)  # a call and its result return together
            else:
                evicted.append([message])

        def size(group: list[Message]) -> int:
            return sum(map(count, group))

        limit = min(_TIMES_WINDOW * budget, _MOST_TOKENS)
        excess = sum(map(size, evicted)) - limit
        if excess <= limit // _SLACK:
            return found
        gone: set[str] = set()
        for group in sorted(evicted, key=size, reverse=True):
            if excess > 0:
                gone.update(map(id_of, group))
                excess -= size(group)
        return self._replace_messages([message for message in found if id_of(message) not in gone])

    @staticmethod
    def messages_to_read(budget: int) -> int:
        """Estimate the number of latest messages to read from the session's log after a restart.

        They cover a history of ``budget`` tokens, and the evicted messages that may return to it.
        """
        tokens = budget + min(_TIMES_WINDOW * budget, _MOST_TOKENS)
        return max(_LEAST_READ, tokens // _TOKENS_A_MESSAGE)

    def record_selection(self, history: Sequence[Message], selected: Sequence[Message]) -> None:
        """Record that the trimmer has replaced ``history`` by ``selected``.

        :meth:`update` then does not mistake truncated messages for messages edited by a plugin.
        """
        old = frozenset(map(id, history))
        known, self._window, self._truncated = self._truncated, [], {}
        for message in selected:
            id_ = id_of(message)
            self._window.append(id_)
            if id(message) not in old and self._messages.get(id_) is not message:
                self._truncated[id_] = logged_fingerprint(message)
            elif id_ in known:
                self._truncated[id_] = known[id_]

    def forget(self, id_: str) -> None:
        """Remove a message for good, so that it never returns to the history."""
        self._messages.pop(id_, None)
        self._forgotten.add(id_)

    def _replace_messages(self, kept: Sequence[Message]) -> list[Message]:
        self._messages = dict(zip(map(id_of, kept), kept, strict=True))
        return list(kept)
