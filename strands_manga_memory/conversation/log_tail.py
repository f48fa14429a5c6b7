"""The log tail: recent messages of a conversation, among them evicted ones that a selection may bring back. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from strands.types.content import Message

from strands_manga_memory.conversation.window_layout import logged_fingerprint
from strands_manga_memory.messages import id_of, is_turn_start

_TIMES_WINDOW, _MOST_TOKENS = 3, 32_768
"""Beside the window so many times its budget is held, at most so many tokens."""

_SLACK = 5
"""Messages are dropped when one part in this number is too much: not in every turn."""

_SHARE_SAID = 8
"""A selection from all messages is due when this part of the budget was said since the last one, or would stay empty."""


class LogTail:
    """The last messages of one conversation as they were said, in order: those of the window, and evicted ones.

    It follows the history and never leads. A message that somebody else changed in the history counts as it is there. Once
    somebody else took messages out of the history, or put some between others (a summary, a redaction, another conversation),
    no evicted message comes back.
    """

    def __init__(self) -> None:
        self._messages: dict[str, Message] = {}
        self._window: list[str] = []
        self._truncated: dict[str, int] = {}
        self._said = 0

    def __iter__(self) -> Iterator[Message]:
        """Yield the messages, in the order of speech."""
        return iter(self._messages.values())

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self._messages)

    def follow(self, history: Sequence[Message], count: Callable[[Message], int]) -> None:
        """Add the messages that were said since the last time, and changes that somebody else made in the history."""
        new: list[Message] = []
        for message in reversed(history):
            if message.get("tracking_id") in self._messages:
                break
            new.append(message)
        new.reverse()
        self._messages |= {id_of(message): message for message in new}
        self._window += [id_of(message) for message in new]
        self._said += sum(map(count, new))
        for shown in history:
            id_ = id_of(shown)
            mine = self._messages.get(id_)
            if mine is None or shown is mine:
                continue
            if logged_fingerprint(shown) not in (self._truncated.get(id_), logged_fingerprint(mine)):
                self._messages[id_] = shown

    def is_due(self, budget: int, room: int) -> bool:
        """Tell whether so much was said since, or so much room is left, that all messages are to be selected from."""
        return max(self._said, room) >= budget // _SHARE_SAID

    def candidates(
        self,
        history: Sequence[Message],
        budget: int,
        total: Callable[[Sequence[Message]], int],
        narrowed: Callable[[Sequence[Message], int], list[Message]],
    ) -> list[Message]:
        """Return the history with the evicted messages; if they are too many, those that ``narrowed`` selects."""
        found = self._with_evicted(history)
        last_turn = next((at for at in reversed(range(len(found))) if is_turn_start(found[at])), 0)
        most = budget + min(_TIMES_WINDOW * budget, _MOST_TOKENS) + total(found[last_turn:])
        if total(found) <= most + most // _SLACK:
            return found
        return self._hold(narrowed(found, most))

    def _with_evicted(self, history: Sequence[Message]) -> list[Message]:
        """Return the history and evicted messages in order; the history itself if they do not fit together."""
        self._said = 0
        present = {id_of(message): message for message in history}
        fits = (
            len(present) == len(history)
            and present.keys() >= set(self._window)
            and [id_ for id_ in self._messages if id_ in present] == list(present)
        )
        if not fits:
            self._window, self._truncated = list(present), {}
            return self._hold(history)
        return list(self)

    def show(self, history: Sequence[Message], selected: Sequence[Message]) -> None:
        """Take note of the messages that were selected in place of a history: truncated ones among them are ours."""
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

    def _hold(self, kept: Sequence[Message]) -> list[Message]:
        self._messages = {id_of(message): message for message in kept}
        return list(kept)
