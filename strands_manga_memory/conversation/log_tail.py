"""The log tail: recent messages of a conversation, among them evicted ones that a selection may bring back. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from strands.types.content import Message

from strands_manga_memory.conversation.message_truncation import is_truncated
from strands_manga_memory.conversation.window_layout import logged_fingerprint
from strands_manga_memory.messages import id_of, turns

_TIMES_WINDOW, _MOST_TOKENS = 3, 32_768
"""Messages outside of the window take at most so many times its budget, and at most so many tokens."""

_TOKENS_A_MESSAGE, _LEAST_READ = 32, 64
"""From a log one message is read for so many tokens that are held, and at least so many messages."""

_SLACK = 5
"""Messages are dropped when one part in this number is too much: not in every turn."""

_SHARE_SAID = 8
"""A selection from all messages is due when this part of the budget was added since the last one, or would stay empty."""


class LogTail:
    """The last messages of one conversation in their original form, in order: those of the window, and evicted ones.

    It follows the history and never leads. A message that somebody else changed in the history counts in its changed form. Once
    somebody else took messages out of the history, or put some between others (a summary, a redaction, another conversation),
    no evicted message comes back.

    Attributes:
        settled: Tracking id of the last message when somebody else changed the history: of the messages in a log up to
            this one none comes back. None: nobody did.
    """

    def __init__(self) -> None:
        self.settled: str | None = None
        self._messages: dict[str, Message] = {}
        self._window: list[str] = []
        self._truncated: dict[str, int] = {}
        self._forgotten: set[str] = set()
        self._said = 0

    def __iter__(self) -> Iterator[Message]:
        """Yield the messages, in the order of speech."""
        return iter(self._messages.values())

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self._messages)

    def notice(self, history: Sequence[Message]) -> None:
        """Compare a history with the window: if it does more than go on at its end, forget the evicted messages."""
        before, self._window = self._window, list(map(id_of, history))
        if before == self._window[: len(before)] and len({*self._window}) == len(history):
            return
        if before:
            self.settled = self._window[-1] if self._window and self._window[-1] not in before else before[-1]
        self._truncated = {}
        self._hold(history)

    def follow(self, history: Sequence[Message], count: Callable[[Message], int]) -> None:
        """Add the messages since the last time, and changes that somebody else made in the history."""
        new: list[Message] = []
        for message in reversed(history):
            if message.get("tracking_id") in self._messages:
                break
            new.append(message)
        new.reverse()
        self.notice(history)
        self._messages |= {id_of(message): message for message in new}
        self._said += sum(map(count, new))
        for shown in history:
            id_ = id_of(shown)
            mine = self._messages.get(id_)
            if mine is None or shown is mine:
                continue
            if logged_fingerprint(shown) not in (self._truncated.get(id_), logged_fingerprint(mine)):
                self._messages[id_] = shown

    def restore(self, log: Sequence[Message]) -> None:
        """Add messages that an earlier process evicted, and the full text of those that it truncated.

        Nothing is added if messages of the window are missing between those of the log, or have another order there.

        Args:
            log: The last messages of the conversation's log, in order.
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
        """Return the logged form of a known message if an earlier process truncated the message, else the known form."""
        mine = self._messages[id_]
        if id_ in self._truncated or not is_truncated(mine) or is_truncated(logged):
            return mine
        self._truncated[id_] = logged_fingerprint(mine)
        return logged

    def is_due(self, budget: int, room: int) -> bool:
        """Return whether the next selection considers evicted messages too: after much new text, or with much free budget."""
        return max(self._said, room) >= budget // _SHARE_SAID

    def candidates(
        self,
        history: Sequence[Message],
        budget: int,
        total: Callable[[Sequence[Message]], int],
        narrowed: Callable[[Sequence[Message], int], list[Message]],
    ) -> list[Message]:
        """Return the history with the evicted messages; if they are too many, those that ``narrowed`` selects."""
        self._said = 0
        ids = {*self._window}
        found = list(self if len(ids) == len(history) and ids <= self._messages.keys() else history)
        most = self._most(budget) + total([found[at] for turn in turns(found)[-1:] for at in turn])
        if total(found) <= most + most // _SLACK:
            return found
        return self._hold(narrowed(found, most))

    @staticmethod
    def most_messages(budget: int) -> int:
        """Return the number of last messages of a log of which a selection within a budget can make use."""
        return max(_LEAST_READ, LogTail._most(budget) // _TOKENS_A_MESSAGE)

    @staticmethod
    def _most(budget: int) -> int:
        return budget + min(_TIMES_WINDOW * budget, _MOST_TOKENS)

    def show(self, history: Sequence[Message], selected: Sequence[Message]) -> None:
        """Record the messages that were selected in place of a history: truncated ones among them are ours."""
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
        """Forget a message; it does not come back."""
        self._messages.pop(id_, None)
        self._forgotten.add(id_)

    def _hold(self, kept: Sequence[Message]) -> list[Message]:
        self._messages = {id_of(message): message for message in kept}
        return list(kept)
