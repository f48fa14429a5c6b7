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
        self._hand: list[Message] = []
        self._ids: set[str] = set()
        self._window: list[str] = []
        self._forms: dict[str, int] = {}
        self._since = 0

    def __iter__(self) -> Iterator[Message]:
        """Yield the messages, in the order of speech."""
        return iter(self._hand)

    def __len__(self) -> int:
        """Return how many messages there are."""
        return len(self._hand)

    def take_in(self, history: Sequence[Message], count: Callable[[Message], int]) -> None:
        """Take in what was said since the last time: it stands at the end of the history."""
        new: list[Message] = []
        for message in reversed(history):
            if message.get("tracking_id") in self._ids:
                break
            new.append(message)
        new.reverse()
        self._hand += new
        self._window += [id_of(message) for message in new if not is_stub(message)]
        self._ids.update(map(id_of, new))
        self._since += sum(map(count, new))

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
        mine = [id_of(message) for message in self._hand]
        fits = (
            len(present) == len(said)
            and len(self._ids) == len(mine)
            and present.keys() >= set(self._window)
            and [id_ for id_ in mine if id_ in present] == list(present)
        )
        if not fits:
            self._window, self._forms = list(present), {}
            return self.shrink(history)
        self._hand = [self._said(message, present.get(id_)) for id_, message in zip(mine, self._hand, strict=True)]
        return self._hand[:]

    def _said(self, message: Message, shown: Message | None) -> Message:
        """Return a message as it was said; as the history shows it, if somebody else changed it there."""
        if shown is None or shown is message:
            return message
        return message if logged_fingerprint(shown) == self._forms.get(id_of(shown)) else shown

    def show(self, history: Sequence[Message], chosen: Sequence[Message]) -> None:
        """Take note of what was chosen in the place of a history: what in it is new and no longer as it was said, is ours."""
        said = {id_of(message): message for message in self._hand}
        old = frozenset(map(id, history))
        self._window = [id_of(message) for message in chosen if not is_stub(message)]
        forms = {}
        for message in chosen:
            id_ = id_of(message)
            if id(message) not in old and said.get(id_) is not message:
                forms[id_] = logged_fingerprint(message)
            elif id_ in self._forms:
                forms[id_] = self._forms[id_]
        self._forms = forms

    def shrink(self, kept: Sequence[Message]) -> list[Message]:
        """Hold no more than this, and return it."""
        self._hand, self._ids = list(kept), set(map(id_of, kept))
        return self._hand[:]

    def forget(self, id_: str) -> None:
        """Forget what a message said; a mark keeps its place."""
        self._hand = [stub_of(message) if id_of(message) == id_ else message for message in self._hand]
