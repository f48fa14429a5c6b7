"""Mends that are taken out again, one at a time, so that it can be seen whether the simulation notices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest import mock

from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.session.author import places, showing
from strands_manga_memory.session.author.offer import Offer
from strands_manga_memory.session.core import window
from strands_manga_memory.session.core.identity import Name
from strands_manga_memory.session.core.merge import Copy
from strands_manga_memory.session.core.records import Mark
from strands_manga_memory.session.replicas import hot, segments, split
from strands_manga_memory.session.replicas.durable import DurableReplica
from strands_manga_memory.session.replicas.hot import HotReplica
from strands_manga_memory.session.sync import conversation, ending
from strands_manga_memory.session.sync.committing import Committing
from strands_manga_memory.session.sync.watch import Watch
from tests.faults.simulation import histories
from tests.faults.simulation.drawing import Step


def _one_life(self: Offer) -> None:
    if not self.copy.has_begun:
        self.copy = replace(self.copy, lives=frozenset({"life"}))


def _but_what_ever_was_pending(self: DurableReplica, copy: Copy) -> list[Any]:
    ever = self.__dict__.setdefault("ever", set())
    found = [message for message in _PENDING(self, copy) if (message.name, message.revision) not in ever]
    ever |= {(message.name, message.revision) for message in found}
    return found


_PENDING = DurableReplica.pending


def _without_graves(self: DurableReplica) -> Copy:
    self._watched = ()
    return _LOAD(self)


_LOAD = DurableReplica.load


def _damaged(table: Any, item: Any) -> bytes:
    data = _DATA(table, item)
    if data is None:
        raise CorruptRecordError("parts of it are missing", record="head")
    return data


_DATA = split._data_of


def _without_marks(held: places.Held, names: Mapping[Name, Name]) -> places.Held:
    return held._replace(of=None) if isinstance(held, Mark) and held.of in names else _RENAMED(held, names)


_RENAMED = places.renamed


_OF = window._Places.of


Without = Callable[[], AbstractContextManager[Any]]

MUTATIONS: dict[str, tuple[str, int | list[Step], Without]] = {
    "the rest of an evicted turn is shown": (
        "turns",
        0,
        lambda: mock.patch.object(window._Places, "of", lambda self, message: self._end),
    ),
    "the rest of an evicted turn is shown where it is nowhere": (
        "rollback",
        421,
        lambda: mock.patch.object(window._Places, "of", lambda self, turn: _OF(self, turn) or self._end),
    ),
    "an open turn is not closed": ("turns", histories.CUT, lambda: mock.patch.object(showing, "_ends", return_value={})),
    "a replica is not read after an unknown outcome": ("turns", 0, lambda: mock.patch.object(HotReplica, "is_known", True)),
    "nobody looks whether a life goes on": ("deletions", histories.IDLE, lambda: mock.patch.object(Watch, "is_silent", False)),
    "what is gone is written again": (
        "deletions",
        histories.IDLE,
        lambda: mock.patch.object(Watch, "has_lost", return_value=False),
    ),
    "graves of the user are not looked for": (
        "deletions",
        histories.UNLISTED,
        lambda: mock.patch.object(DurableReplica, "load", _without_graves),
    ),
    "lives are not told apart": (
        "deletions",
        158,
        lambda: mock.patch.object(Offer, "_begin", _one_life),
    ),
    "a segment is written over": ("crowd", 0, lambda: mock.patch.object(segments, "ABSENT", None)),
    "what was stored once is not stored again": (
        "rollback",
        histories.GONE_BACK,
        lambda: mock.patch.object(DurableReplica, "pending", _but_what_ever_was_pending),
    ),
    "a clock decides that a life is over": (
        "durable",
        histories.GONE_ON_WITH,
        lambda: mock.patch.object(conversation, "end", lambda pair, is_over: ending.end(pair, lambda copy: True)),
    ),
    "a turn after a long pause is saved in one tier": (
        "time",
        histories.ENDED_AS_IT_GOES_ON,
        lambda: mock.patch.object(Committing, "_may_be_ending", return_value=False),
    ),
    "the claim of a sweeper binds": ("time", histories.CLAIMED, lambda: mock.patch.object(hot, "CLOSING", "never")),
    "a head that is replaced while it is read is damaged": (
        "split",
        histories.REPLACED,
        lambda: mock.patch.object(split, "_data_of", _damaged),
    ),
    "a redaction is stored by whoever has not seen it": (
        "everything",
        histories.REDACTED,
        lambda: mock.patch.object(Copy, "has", lambda self, one: self.vector.includes(one.name, one.clock)),
    ),
}
"""What is taken out, by what it does: a set of options, a seed to begin with or steps, and how."""
