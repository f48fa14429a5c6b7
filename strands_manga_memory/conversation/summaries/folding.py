"""Folding: which turns of a history a summary is to cover next, and the history with the summary in their place. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from strands.types.content import Message

from strands_manga_memory.conversation.history.exchanges import exchanges
from strands_manga_memory.conversation.history.summary import Summary, is_synthesized, record_of
from strands_manga_memory.conversation.importance.choosing.groups import is_pinned
from strands_manga_memory.conversation.importance.weighing.scoring import Band
from strands_manga_memory.messages import content_fingerprint, is_turn_start, turns


@dataclass(frozen=True)
class Fold:
    """What stands before the recent turns of a history.

    Attributes:
        summary: The summary that is shown there, if any.
        shown: The messages that show it.
        kept: Messages that it covers and that stayed.
        fresh: Raw turns that no summary covers yet.
        recent: The turns that stay whole.
    """

    summary: Summary | None
    shown: tuple[Message, ...]
    kept: tuple[Message, ...]
    fresh: tuple[Message, ...]
    recent: tuple[Message, ...]

    @property
    def before_recent(self) -> int:
        """How many messages stand before the recent turns."""
        return len(self.shown) + len(self.kept) + len(self.fresh)

    @property
    def uncovered_turns(self) -> int:
        """Turns that no summary covers yet, the recent ones among them."""
        return sum(is_turn_start(message) for message in (*self.fresh, *self.recent))

    def until(self, last: str) -> Fold | None:
        """Return the same history with fewer turns before the recent ones: up to a message. None if it is not among them."""
        for at, message in enumerate(self.fresh):
            if message.get("tracking_id") == last:
                return replace(self, fresh=self.fresh[: at + 1], recent=(*self.fresh[at + 1 :], *self.recent))
        return None

    def marks(self) -> list[tuple[str | None, int]]:
        """Return what tells whether the part before the recent turns is still the same: ids and fingerprints."""
        return marks((*self.shown, *self.kept, *self.fresh))


def marks(messages: Iterable[Message]) -> list[tuple[str | None, int]]:
    """Return the id and the fingerprint of each message."""
    return [(message.get("tracking_id"), content_fingerprint(message)) for message in messages]


def fold_of(history: Sequence[Message], keep_recent_turns: int) -> Fold:
    """Take a history apart; raises as :meth:`Summary.from_state` does if the record of a summary in it cannot be read."""
    found = turns(history)
    split = found[-keep_recent_turns].start if len(found) > keep_recent_turns else 0
    summary: Summary | None = None
    for message in history:
        summary = record_of(message) or summary
    covered = frozenset(summary.kept) if summary else frozenset()
    parts: dict[str, list[Message]] = {"shown": [], "kept": [], "fresh": []}
    for message in history[:split]:
        where = "shown" if is_synthesized(message) else "kept" if message.get("tracking_id") in covered else "fresh"
        parts[where].append(message)
    return Fold(summary, tuple(parts["shown"]), tuple(parts["kept"]), tuple(parts["fresh"]), tuple(history[split:]))


def staying(
    messages: Sequence[Message],
    room: int,
    *,
    bands: Sequence[Band],
    band_of: Callable[[Message], Band],
    tokens_of: Callable[[Sequence[Message]], int],
    outdated: Collection[str] = (),
) -> list[Message]:
    """Return which covered messages stay in the history: those pinned, and of the bands given as much as there is room for.

    They stay as whole exchanges, the higher band and then the newer first, so that the history remains valid. None stays that
    is ``outdated``: corrected later, behind the facts it would seem current.
    """
    groups = [sorted(exchange.positions()) for exchange in exchanges(messages)] if messages else []
    kept: set[int] = set()
    for positions in groups:
        if any(is_pinned(messages[at]) for at in positions):
            kept.update(positions)
    room -= tokens_of([messages[at] for at in kept])
    for band in bands:
        for positions in reversed(groups):
            own = [messages[at] for at in positions]
            if any(messages[at].get("tracking_id") in outdated for at in positions):
                continue
            if kept.isdisjoint(positions) and max(map(band_of, own)) is band and (tokens := tokens_of(own)) <= room:
                kept.update(positions)
                room -= tokens
    return [messages[at] for at in sorted(kept)]
