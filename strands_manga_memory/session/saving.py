"""Saving: bringing what is new to the hot tier, over whatever others have saved there meanwhile."""

from __future__ import annotations

import time
from contextlib import suppress

from strands_manga_memory.session.contention import OvertakenError, tries
from strands_manga_memory.session.copies import Copies
from strands_manga_memory.session.merging import Merger
from strands_manga_memory.session.records import Stored, outside
from strands_manga_memory.session.window import parse_runs
from strands_manga_memory.stores.hot import WriteStatus


class Saver:
    """Saves one conversation to the hot tier."""

    def __init__(self, copies: Copies, merger: Merger) -> None:
        self._copies = copies
        self._merger = merger

    def save(self) -> None:
        """Save what is new; merge and try again while someone else was first.

        Raises:
            StoreUnavailableError: A tier does not answer.
            ContendedError: Others kept being first.
            ConflictError: What someone else saved cannot be merged, or is not to be.
        """
        copies = self._copies
        hot = copies.hot
        assert hot is not None  # noqa: S101 - for the type checker; callers have looked
        for _ in tries("the hot tier's copy"):
            draft = copies.draft()
            copies.asked_at = time.monotonic()
            with copies.sending(draft):
                result = hot.write(draft)
            if result.status in (WriteStatus.OK, WriteStatus.APPLIED):
                copies.saved(draft)
                return
            with suppress(OvertakenError), copies.comparing():
                stored = copies.load_hot()
                if stored is not None and copies.durable is not None and self._has_gone_back(stored):
                    self._merger.join_again(stored)
                    continue
                self._let_go(stored)
                if stored is None and copies.durable is not None:
                    # The hot tier lost the conversation; the durable tier knows whether it was deleted or went on without us.
                    stored = copies.durable.load()
                    hot.forget()
                    self._merger.reconcile_with_durable(stored)
                else:
                    self._merger.reconcile(stored)
            if copies.model.deleted:
                return

    def _has_gone_back(self, stored: Stored) -> bool:
        """Tell whether the hot tier is what it was before, and one of us lacks something.

        It may have by other numbers what it lacks of others, and may have kept what was given up while it was down.
        """
        copies, awaited = self._copies, set(parse_runs(stored.head.pending, record="head"))
        assert copies.durable is not None  # noqa: S101 - for the type checker; callers have looked
        with copies.lock:
            model = copies.model
            is_of_this_life = stored.head.since == model.head.since
            kept = outside(awaited - model.pending, copies.durable.committed) if is_of_this_life else []
            return stored.is_part_of(model.writers) and bool(kept or model.lacks(awaited))

    def _let_go(self, stored: Stored | None) -> None:
        """Do not claim to include what the hot tier lost of others, who may have it yet."""
        with self._copies.lock:
            model = self._copies.model
            if stored is None:
                model.let_go(held=(), writers=self._copies.last_flush.writers)
            elif stored.is_part_of(model.writers):
                model.let_go(held=parse_runs(stored.head.pending, record="head"), writers=stored.writers)
