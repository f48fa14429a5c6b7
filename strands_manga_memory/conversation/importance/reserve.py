"""The reserve: what was said and has left the window, at hand to come back when the view is chosen anew. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from strands.types.content import Message

from strands_manga_memory.conversation.history.exchanges import last_turn_of
from strands_manga_memory.conversation.history.layout import logged_fingerprint
from strands_manga_memory.conversation.history.stubs import is_stub, stub_of
from strands_manga_memory.messages import id_of

_TIMES, _MOST = 3, 32_768
"""Beside the window the reserve holds so many times its tokens, at most so many."""

_SLACK = 5
"""It is made smaller when it has one part in so many too much: not in every turn."""

_ANEW = 8
"""The view is chosen anew when this part of the budget, or more, was said since or would stay empty."""


class Reserve:
    """The messages of one conversation as they were said, in order: those of the window, and more.

    It follows the history and never leads. What somebody else changed in the history counts as it is there, and once somebody
    else took messages out of it, or put some between others (a summary, a redaction, another conversation), nothing of before
    comes back.
    """

    def __init__(self) -> None:
        self._hand: dict[str, Message] = {}
        self._window: list[str] = []
        self._forms: dict[str, int] = {}
        self._since = 0

    def __iter__(self) -> Iterator[Message]:
        """Yield the messages, in the order of speech."""
        return iter(self._hand.values())

    def __len__(self) -> int:
        """Return how many messages there are."""
        return len(self._hand)

    def take_in(self, history: Sequence[Message], count: Callable[[Message], int]) -> None:
        """Take in what was said since the last time, at the end of the history, and what somebody else changed in it."""
        new: list[Message] = []
        for message in reversed(history):
            if message.get("tracking_id") in self._hand:
                break
            new.append(message)
        new.reverse()
        self._hand |= {id_of(message): message for message in new}
        self._window += [id_of(message) for message in new if not is_stub(message)]
        self._since += sum(map(count, new))
        for shown in history:
            id_ = id_of(shown)
            mine = self._hand.get(id_)
            if mine is None or shown is mine or is_stub(shown):
                continue
            if logged_fingerprint(shown) not in (self._forms.get(id_), logged_fingerprint(mine)):
                self._hand[id_] = shown

    def is_due(self, budget: int, room: int) -> bool:
        """Whether so much was said since, or so much room is left, that the view is to be chosen anew."""
        return max(self._since, room) >= budget // _ANEW

    def at_hand(
        self,
        history: Sequence[Message],
        budget: int,
        total: Callable[[Sequence[Message]], int],
        narrowed: Callable[[Sequence[Message], int], list[Message]],
    ) -> list[Message]:
        """Return the history with what has left it, as far as that is at hand; too much of it is narrowed."""
        pool = self.around(history)
        low = budget + min(_TIMES * budget, _MOST) + total(pool[last_turn_of(pool) :])
        if total(pool) <= low + low // _SLACK:
            return pool
        return self.shrink(narrowed(pool, low))

    def around(self, history: Sequence[Message]) -> list[Message]:
        """Return the history and what left it, as it was said, in order; the history itself if they do not fit together."""
        self._since = 0
        said = [message for message in history if not is_stub(message)]
        present = {id_of(message): message for message in said}
        fits = (
            len(present) == len(said)
            and present.keys() >= set(self._window)
            and [id_ for id_ in self._hand if id_ in present] == list(present)
        )
        if not fits:
            self._window, self._forms = list(present), {}
            return self.shrink(history)
        return list(self)

    def show(self, history: Sequence[Message], chosen: Sequence[Message]) -> None:
        """Take note of what was chosen in the place of a history: what in it is new and no longer as it was said, is ours."""
        old = frozenset(map(id, history))
        said = [(id_of(message), message) for message in chosen if not is_stub(message)]
        self._window = [id_ for id_, _ in said]
        ours = {
            id_: logged_fingerprint(message)
            for id_, message in said
            if id(message) not in old and self._hand.get(id_) is not message
        }
        self._forms = {id_: self._forms[id_] for id_, _ in said if id_ in self._forms} | ours

    def shrink(self, kept: Sequence[Message]) -> list[Message]:
        """Hold no more than this, and return it."""
        self._hand = {id_of(message): message for message in kept}
        return list(kept)

    def forget(self, id_: str) -> None:
        """Forget what a message said; a mark keeps its place."""
        if id_ in self._hand:
            self._hand[id_] = stub_of(self._hand[id_])
