"""Faults planted into the protocol one at a time, which the simulation must notice."""

import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any
from unittest import mock

from strands_manga_memory.session.protocol import conversation_storage, local_copy, record_join
from strands_manga_memory.session.protocol.conversation_storage import ConversationStorage
from strands_manga_memory.session.protocol.durable_tier import DurableTier
from strands_manga_memory.session.protocol.local_copy import LocalCopy
from strands_manga_memory.session.protocol.record import Record, Slot, TurnKey
from tests.faults.protocol.runs import SETS

Plant = Callable[[], AbstractContextManager[Any]]

_CARRIED_OVER = record_join._carried_over


def _carry_all(older: Record, newer: Record) -> Record:
    return _CARRIED_OVER(older, replace(newer, deleted_below=0))


def _append_at_end(window: Sequence[Slot], slots: Iterable[Slot]) -> tuple[Slot, ...]:
    present = {slot[:2] for slot in window if slot.key is not None}
    return (*window, *(slot for slot in slots if slot[:2] not in present))


def _only_new(window: Sequence[Slot], other: Sequence[Slot], known: Collection[Any]) -> list[Slot]:
    return [slot for slot in other if slot.key is not None and slot[:2] not in known]


def _only_unlogged(found: Record, head: Record | None) -> set[TurnKey]:
    return set(found.unlogged)


def _is_older(self: Record, older: Record) -> bool:
    return older.incarnation < self.logs_from


_SAVE_HOT = ConversationStorage.save_hot


def _save_without_filling(self: ConversationStorage, *, fills: bool = False) -> bool:
    return True if fills else _SAVE_HOT(self)


def _first_key(self: LocalCopy) -> TurnKey:
    return TurnKey(1, secrets.token_hex(5))


_SET_STATES = LocalCopy.set_states


def _set_other_states(self: LocalCopy, states: Mapping[str, Any]) -> None:
    _SET_STATES(self, states)
    known = self.base.states
    for name in [name for name in states if name in known and known[name].value == states[name]]:
        del self._changes[name]


def _both(*patches: AbstractContextManager[Any]) -> AbstractContextManager[Any]:
    stack = ExitStack()
    for patch in patches:
        stack.enter_context(patch)
    return stack


PLANTED: dict[str, tuple[frozenset[str], Plant]] = {
    "unseen turns of the older record are dropped": (
        SETS["faults"],
        lambda: mock.patch.object(record_join, "_unseen_slots", return_value=[]),
    ),
    "redactions of the older record are forgotten": (
        SETS["redacts"],
        lambda: mock.patch.object(
            record_join, "latest_replacements", lambda newer, older: dict(newer)
        ),
    ),
    "a deletion carries unsaved turns over": (
        SETS["deletes"],
        lambda: mock.patch.object(record_join, "_carried_over", _carry_all),
    ),
    "a rewind removes turns that were stored while it ran": (
        SETS["rewinds"],
        lambda: mock.patch.object(Record, "deletes", _is_older),
    ),
    "an expiry carries nothing over": (
        frozenset({"faults", "split", "ends"}),
        lambda: mock.patch.object(record_join, "_carried_over", return_value=Record()),
    ),
    "the log is not redacted": (
        SETS["redacts"],
        lambda: mock.patch.object(ConversationStorage, "_redact_log", return_value=None),
    ),
    "turns that a restored table lacks are not stored again": (
        SETS["restored"],
        lambda: _both(
            mock.patch.object(conversation_storage, "missing_turns", _only_unlogged),
            mock.patch.object(local_copy, "missing_turns", _only_unlogged),
        ),
    ),
    "the turns of a broken flush are not looked for": (
        SETS["lossy"],
        lambda: mock.patch.object(DurableTier, "unlisted_keys", return_value=[]),
    ),
    "the rest of a turn stands at the end of the window": (
        SETS["calm"],
        lambda: _both(
            mock.patch.object(record_join, "insert_slots", _append_at_end),
            mock.patch.object(local_copy, "insert_slots", _append_at_end),
        ),
    ),
    "an evicted turn that grows comes back without its beginning": (
        SETS["calm"],
        lambda: _both(
            mock.patch.object(record_join, "new_slots", _only_new),
            mock.patch.object(local_copy, "new_slots", _only_new),
        ),
    ),
    "a deletion leaves the hot tier as it is": (
        SETS["deletes"],
        lambda: mock.patch.object(ConversationStorage, "save_hot", _save_without_filling),
    ),
    "turn keys do not grow with what was seen": (
        SETS["calm"],
        lambda: mock.patch.object(LocalCopy, "_next_key", _first_key),
    ),
    "a state that returns to its confirmed value is not saved": (
        SETS["hot-only"],
        lambda: mock.patch.object(LocalCopy, "set_states", _set_other_states),
    ),
}
"""Faults by name, each with the options under which it shows."""

SHOWN_BY = {
    "an expiry carries nothing over": 171,
    "the log is not redacted": 22,
    "redactions of the older record are forgotten": 22,
    "turns that a restored table lacks are not stored again": 72,
    "the turns of a broken flush are not looked for": 306,
    "an evicted turn that grows comes back without its beginning": 125,
    "a state that returns to its confirmed value is not saved": 79,
}
"""Seeds that show rare faults, from which a search begins; a change of the protocol may move
them.
"""
