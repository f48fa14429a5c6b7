"""Opening: reading a conversation from both tiers side by side, and taking over the later copy or beginning a new one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import dataclass

from strands.types.content import Message

from strands_manga_memory.exceptions import CorruptRecordError, StoreUnavailableError
from strands_manga_memory.session.contention import OvertakenError, tries
from strands_manga_memory.session.copies import Copies
from strands_manga_memory.session.flushing import Flusher
from strands_manga_memory.session.merging import Merger
from strands_manga_memory.session.records import Stored
from strands_manga_memory.session.states import is_interrupted
from strands_manga_memory.session.window import mended
from strands_manga_memory.stores.hot import DELETED

logger = logging.getLogger(__name__)

_HEAD_START_SECONDS = 0.002


@dataclass(frozen=True)
class Opened:
    """What the tiers have of a conversation (the durable one without its window), and whether the hot one did not answer."""

    hot: Stored | None
    durable: Stored | None
    hot_is_unread: bool = False

    @property
    def possible_loss(self) -> bool:
        """Whether the hot tier, which could not be read, may have more."""
        return self.hot_is_unread and (self.durable is None or self.durable.ahead)

    @property
    def latest(self) -> Stored | None:
        """The later of the two; the hot one if they are the same, the durable one if they went apart."""
        copies = [stored for stored in (self.hot, self.durable) if stored is not None]
        if len(copies) == 2 and _are_of_one_life(*copies):
            hot, durable = copies
            return hot if hot.includes_all(durable) else durable
        return max(copies, key=lambda stored: (stored.epoch, stored.version), default=None)

    @property
    def went_on_from(self) -> Stored | None:
        """The durable copy, if the hot one went on from there and has everything of it."""
        hot, durable = self.hot, self.durable
        if hot is None or durable is None or not _are_of_one_life(hot, durable):
            return None
        return durable if hot.includes_all(durable) else None

    @property
    def went_apart(self) -> bool:
        """Whether each has something the other one lacks: a tier was cut off from a writer, or rolled back."""
        hot, durable = self.hot, self.durable
        if hot is None or durable is None or not _are_of_one_life(hot, durable):
            return False
        return not (hot.includes_all(durable) or durable.includes_all(hot))


class Opening:
    """Opens one conversation, once.

    Attributes:
        possible_loss: Whether the hot tier may have had turns that are gone.
    """

    def __init__(self, copies: Copies, merger: Merger, flusher: Flusher) -> None:
        self._copies = copies
        self._merger = merger
        self._flusher = flusher
        self.possible_loss = False

    def open(self, *, inspect: bool) -> list[Message] | None:
        """Take over the later copy, or begin a new incarnation, as ``Conversation.open`` says."""
        for _ in tries("the conversation"):
            with suppress(OvertakenError):
                return self._opened(inspect=inspect)
        raise AssertionError("tries ends with an error")

    def _opened(self, *, inspect: bool) -> list[Message] | None:
        tiers = self._copies.tiers
        opened = read_tiers(self._copies, touch=tiers.ttl.refreshed_by_reads and not inspect)
        latest = opened.latest
        self.possible_loss = opened.possible_loss
        if latest is None:
            return None
        self._check_ids(latest)
        if latest.state == DELETED or self._is_over(opened, latest):
            self._start_over(latest, opened.durable)
            return None
        cut = self._take_over(opened, latest)
        may_resume = tiers.resume_cold or inspect or opened.hot_is_unread
        if not may_resume and self._is_cold(opened, latest):
            self._start_afresh(latest)
            return None
        return self._shown(cut, may_go_on=opened.hot_is_unread)

    def _check_ids(self, stored: Stored) -> None:
        name = self._copies.place.conversation
        if stored.base and any(stored.base.get(key) != value for key, value in self._copies.base.items()):
            raise CorruptRecordError(f"record={name!r} belongs to other ids than those asked for", record=name)

    def _is_over(self, opened: Opened, latest: Stored) -> bool:
        if self._copies.durable is None:
            return latest.expired
        if opened.hot is not None and not opened.hot.expired:
            return False
        if opened.durable is not None:
            return opened.durable.expired
        # It was never flushed, or the durable tier does not answer: the session outlives the hot tier's time to live.
        tiers = self._copies.tiers
        return latest.head.active + tiers.ttl.session <= tiers.clock()

    def _is_cold(self, opened: Opened, latest: Stored) -> bool:
        """Tell whether the conversation has left the hot tier; without one, whether it would have."""
        if self._copies.hot is not None:
            return latest.expired or (latest is opened.durable and not opened.went_apart)
        head, tiers = latest.head, self._copies.tiers
        since = head.created if tiers.ttl.mode == "fixed" else head.active
        return since + tiers.ttl.ttl(head.turns) <= tiers.clock()

    def _start_over(self, ended: Stored, durable: Stored | None) -> None:
        """Begin a new incarnation after one that is deleted or over."""
        next_seq = max(ended.head.next, durable.head.next if durable else 1)
        buried = ended.epoch if ended.state == DELETED else ended.head.buried
        self._copies.restart(epoch=ended.epoch + 1, next_seq=next_seq, buried=buried)

    def _start_afresh(self, old: Stored) -> None:
        """Begin a new incarnation although the old one could go on, once the durable tier has all of it."""
        if self._copies.model.pending:
            self._flusher.flush_as_stored(old)
        self._start_over(old, None)

    def _take_over(self, opened: Opened, latest: Stored) -> set[str]:
        """Make the later copy the model, joined with the other one if they went apart; return the ids of unfinished turns."""
        copies, model, hot = self._copies, self._copies.model, opened.hot
        if latest is opened.durable:
            self._read_window(latest)
            is_behind = latest.ahead or bool(latest.head.pending)
            self.possible_loss = self.possible_loss or (is_behind and not opened.went_apart)
        copies.opened(latest, opened.durable)
        if copies.durable is not None and (flushed := opened.went_on_from) is not None:
            # A worker that answers one message and goes does not tell the hot tier what it has flushed.
            model.has_flushed(flushed.head, copies.durable.committed)
        cut = model.cut_ids()
        if hot is not None and opened.went_apart:
            model.adopt(hot, pending=True)
            cut |= model.cut_ids()
            self._merger.join(latest, hot)
            cut |= model.cut_ids()
            model.stale = False
        return cut

    def _read_window(self, stored: Stored) -> None:
        place, writer, durable = self._copies.place, self._copies.tiers.writer, self._copies.durable
        assert durable is not None  # noqa: S101 - for the type checker; ``stored`` comes from it
        window = writer.submit((place, "durable"), lambda: durable.complete(stored))
        beyond = writer.submit((place, "log"), lambda: durable.log.beyond(stored.head.next))
        window.result()
        *garbage, after = beyond.result()
        if garbage:
            stored.head.next, stored.head.garbage = after, ",".join(map(str, garbage))
            self.possible_loss = True

    def _shown(self, cut: set[str], *, may_go_on: bool) -> list[Message]:
        with self._copies.lock:
            model = self._copies.model
            if not may_go_on:  # else the rest of an unfinished turn may be where we could not look
                model.close_open_turns()
            messages = mended(model.messages(), cut=cut, keep_trailing_tool_use=is_interrupted(model.fields))
            model.show(messages)
            return messages


def read_tiers(copies: Copies, *, touch: bool) -> Opened:
    """Read both tiers in parallel, the hot one with a head start.

    Two clients that work at once in one interpreter hold each other up: the hot tier's .3 ms would be 2 ms. So the durable tier
    is asked when the hot one has answered, or is slow.

    Raises:
        StoreUnavailableError: What could be read is not enough: a conversation that may exist is never taken for a new one.
    """
    place, tiers, hot, durable = copies.place, copies.tiers, copies.hot, copies.durable
    hot_future = tiers.writer.submit((place, "hot"), lambda: hot.load(touch=touch)) if hot else None
    if hot_future is not None and durable is not None:
        wait([hot_future], timeout=_HEAD_START_SECONDS)
    durable_copy, durable_error = _outcome(lambda: durable.load(window=False)) if durable else (None, None)
    hot_copy, hot_error = _outcome(hot_future.result) if hot_future else (None, None)
    for error, health in ((hot_error, tiers.hot_health), (durable_error, tiers.durable_health)):
        if error is not None:
            health.failed()
    error = hot_error or durable_error
    if error is None:
        return Opened(hot_copy, durable_copy)
    only_tier_failed = durable is None or (durable_error is not None and hot_copy is None)
    if only_tier_failed or tiers.on_store_error == "raise" or (hot_error and durable_error):
        raise StoreUnavailableError(f"the conversation could not be read: {error}") from error
    logger.warning("error=<%s> | a tier could not be read, the other one is used", type(error).__name__)
    return Opened(hot_copy, durable_copy, hot_is_unread=hot_error is not None)


def _are_of_one_life(one: Stored, other: Stored) -> bool:
    return DELETED not in (one.state, other.state) and one.head.since == other.head.since


def _outcome(result: Callable[[], Stored | None]) -> tuple[Stored | None, StoreUnavailableError | None]:
    try:
        return result(), None
    except StoreUnavailableError as error:
        return None, error
