"""Recent messages of a conversation, including evicted messages that may return to the history. Does no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from strands.types.content import Message

from strands_manga_memory.conversation.message_truncation import is_truncated
from strands_manga_memory.conversation.window_layout import logged_fingerprint
from strands_manga_memory.messages import id_of, turns

_TIMES_WINDOW, _MOST_TOKENS = 3, 32_768
"""Limits of the messages in memory beyond the history: a multiple of its budget, and a number of tokens."""

_TOKENS_A_MESSAGE, _LEAST_READ = 32, 64
"""Assumed tokens of one message, and the smallest number of messages to read from a log."""

_SLACK = 5
"""Divisor of the limit. Messages in memory may exceed the limit by this part, so that they are not reduced in every turn."""

_SHARE_SAID = 8
"""Divisor of the budget. Evicted messages are considered again once this part is free, or this many tokens were added."""


class LogTail:
    """Latest messages of one conversation, in order and in full: the history, and evicted messages that may return to it.

    The log tail follows the history, but never changes it. "Other code" below means any code except the trimmer, which evicts
    and truncates messages.

    If other code changes a message in the history, the new form is recorded here too. If other code removes messages from the
    history or inserts some (such as a summary), the messages evicted before never return.

    Attributes:
        settled: Tracking id of the last message at the time of the latest removal or insertion by other code. Evicted messages
            up to this message do not return. None if there was no such change.
    """

    def __init__(self) -> None:
        self.settled: str | None = None
        self._messages: dict[str, Message] = {}
        self._window: list[str] = []
        self._truncated: dict[str, int] = {}
        self._forgotten: set[str] = set()
        self._said = 0

    def __iter__(self) -> Iterator[Message]:
        """Return an iterator over the latest messages of the conversation, oldest first."""
        return iter(self._messages.values())

    def notice(self, history: Sequence[Message]) -> None:
        """Record the ids of a history's messages. Forget all evicted messages if other code has changed the history.

        Only messages that code other than the trimmer has removed or inserted count as a change, not those appended at the end.
        """
        before, self._window = self._window, list(map(id_of, history))
        if before == self._window[: len(before)] and len({*self._window}) == len(history):
            return
        if before:
            self.settled = self._window[-1] if self._window and self._window[-1] not in before else before[-1]
        self._truncated = {}
        self._hold(history)

    def follow(self, history: Sequence[Message], count: Callable[[Message], int]) -> None:
        """Add new messages of a history to the log tail, and the new form of messages that other code has changed.

        Args:
            history: The history.
            count: Function that returns the tokens of a message.
        """
        new: list[Message] = []
        for message in reversed(history):
            if message.get("tracking_id") in self._messages:
                break
            new.append(message)
        new.reverse()
        self.notice(history)
        self._messages.update(zip(map(id_of, new), new, strict=True))
        self._said += sum(map(count, new))
        for shown in history:
            id_ = id_of(shown)
            mine = self._messages.get(id_)
            if mine is None or shown is mine:
                continue
            if logged_fingerprint(shown) not in (self._truncated.get(id_), logged_fingerprint(mine)):
                self._messages[id_] = shown

    def restore(self, log: Sequence[Message]) -> None:
        """Add messages that an earlier process evicted, read from the conversation's log.

        Messages that an earlier process truncated are replaced by their full form. If the log has the messages in memory in
        another order or with gaps, nothing changes.

        Args:
            log: Latest messages of the conversation's log, oldest first.
        """
        places = {id_of(message): at for at, message in enumerate(log)}
        known = list(self._messages)
        logged = [at for at, id_ in enumerate(known) if id_ in places]
        found = [places[known[at]] for at in logged]
        if not found or logged != list(range(logged[0], logged[-1] + 1)) or found != sorted(found):
            return
        first = places.get(self.settled or "", -1) + 1
        merged = {id_: self._messages[id_] for id_ in known[: logged[0]]}
        for at, message in enumerate(log[: found[-1] + 1]):
            id_ = id_of(message)
            if id_ in self._messages:
                merged[id_] = self._original(id_, message)
            elif at >= first and id_ and id_ not in self._forgotten:
                merged[id_] = message
        self._messages = merged | {id_: self._messages[id_] for id_ in known[logged[-1] + 1 :]}

    def _original(self, id_: str, logged: Message) -> Message:
        """Return the untruncated form of a message in memory.

        This is the message itself, or ``logged`` (its form in the log) if an earlier process truncated the message.
        """
        mine = self._messages[id_]
        if id_ in self._truncated or not is_truncated(mine) or is_truncated(logged):
            return mine
        self._truncated[id_] = logged_fingerprint(mine)
        return logged

    def is_due(self, budget: int, room: int) -> bool:
        """Return whether the trimmer should consider evicted messages again.

        This is the case if an eighth of the budget is free. It is also the case if the messages added since the last call of
        ``candidates`` have this size.

        Args:
            budget: Budget of the history, in tokens.
            room: Free tokens in the budget.
        """
        return max(self._said, room) >= budget // _SHARE_SAID

    def candidates(
        self,
        history: Sequence[Message],
        budget: int,
        total: Callable[[Sequence[Message]], int],
        narrowed: Callable[[Sequence[Message], int], list[Message]],
    ) -> list[Message]:
        """Return the messages from which the trimmer selects a new history: the history and the evicted messages in memory.

        Args:
            history: The history.
            budget: Budget of the history, in tokens.
            total: Function that returns the tokens of messages.
            narrowed: Function that selects messages within a number of tokens. It is called if there are too many candidates.
        """
        self._said = 0
        ids = {*self._window}
        found = list(self if len(ids) == len(history) and ids <= self._messages.keys() else history)
        most = self._most(budget) + total([found[at] for turn in turns(found)[-1:] for at in turn])
        if total(found) <= most + most // _SLACK:
            return found
        return self._hold(narrowed(found, most))

    @staticmethod
    def most_messages(budget: int) -> int:
        """Return how many messages to read from the end of a log, to select a history of ``budget`` tokens from them."""
        return max(_LEAST_READ, LogTail._most(budget) // _TOKENS_A_MESSAGE)

    @staticmethod
    def _most(budget: int) -> int:
        return budget + min(_TIMES_WINDOW * budget, _MOST_TOKENS)

    def show(self, history: Sequence[Message], selected: Sequence[Message]) -> None:
        """Record that a selection of messages replaces the history.

        Truncated messages in the selection are remembered, so that they are not mistaken for changes by other code.

        Args:
            history: The history before the replacement.
            selected: The messages that replace the history.
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
        """Forget a message, so that it cannot return to the history."""
        self._messages.pop(id_, None)
        self._forgotten.add(id_)

    def _hold(self, kept: Sequence[Message]) -> list[Message]:
        self._messages = dict(zip(map(id_of, kept), kept, strict=True))
        return list(kept)
