"""Forks and rewinds of a stored conversation in the session protocol."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from strands_manga_memory.exceptions import ConflictError, CorruptRecordError, StoreUnavailableError
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.session import conversation_transfer
from strands_manga_memory.session.conversation_transfer import content_at, fork, rewind
from strands_manga_memory.session.protocol.conversation import Conversation
from strands_manga_memory.session.protocol.durable_tier import DurableTier
from strands_manga_memory.session.protocol.record import CONTINUES, Record, Slot, TurnKey
from strands_manga_memory.session.tiers import Place
from strands_manga_memory.stores.codec import dump
from tests.faults.protocol.process import open_hold
from tests.unit.session.protocol.test_connection import IDS, PLACE, Connections
from tests.unit.session.protocol.test_conversation import expected, say, texts

TIERS = pytest.mark.parametrize(
    "tiers", [{}, {"hot": False}, {"durable": False}], ids=["both", "durable", "hot"]
)
OTHER = Place.of(ConversationScope("u", "other").storage_session_id, "A", "default")
OTHER_IDS = {**IDS, "session": "other"}


class Forks(Connections):
    """Tiers in memory with a conversation of some turns, each of which changes the state."""

    def __init__(self, turns: int = 12, **tiers: bool) -> None:
        super().__init__(**tiers)
        self.hold = self.load()
        for number in range(1, turns + 1):
            self.say(number)

    def say(self, number: int) -> None:
        """Take a turn in the first process."""
        say(self.hold, number)
        self.hold.local.set_states({"last": number, f"of {number}": number})
        self.hold.save()
        if self.hold.is_flush_due:
            self.hold.flush()

    def load_other(self) -> Conversation:
        """Return a hold of the fork."""
        hold = Conversation(OTHER, self.tiers, ids=OTHER_IDS)
        open_hold(hold)
        return hold


def test_fork_is_listed_and_found_by_the_sweeper() -> None:
    """The new session has entries in directory and expiry index."""
    forks = Forks()
    fork(PLACE, forks.tiers, at_turn=2, to=OTHER, ids=OTHER_IDS)
    listed = [key for key in forks.table.rows if "other" in "".join(key) and "/" in key[0]]
    assert len(listed) == 3


def test_rest_of_an_interrupted_turn_belongs_to_it() -> None:
    """A turn that goes on after an interrupt counts once and is forked whole."""
    forks = Forks(turns=1)
    hold = forks.hold
    hold.local.begin_turn()
    hold.local.append(
        dump({"role": "user", "content": [{"text": "rest 1"}]}), about={CONTINUES: True}
    )
    hold.local.end_turn()
    hold.save()
    say(hold, 2)
    hold.save()
    fork(PLACE, forks.tiers, at_turn=1, to=OTHER, ids=OTHER_IDS)
    assert texts(forks.load_other()) == [*expected(1), "rest 1"]


@TIERS
@pytest.mark.parametrize("at_turn", [1, 7, 12])
def test_rewind_deletes_the_later_turns_in_each_tier(tiers: dict[str, bool], at_turn: int) -> None:
    """Every reader sees the shortened conversation, and no store keeps a later turn."""
    forks = Forks(**tiers)
    rewind(PLACE, forks.tiers, at_turn=at_turn)
    reader = forks.load()
    assert texts(reader) == expected(*range(1, at_turn + 1))
    assert len(reader.history()) == at_turn
    stored = str(forks.table.rows if forks.table else "") + str(
        forks.hot._conversations if forks.hot else ""
    )
    assert ("user 12 " in stored) == (at_turn == 12)
    say(reader, 50)
    reader.save()
    reader.flush()
    assert texts(forks.load()) == expected(*range(1, at_turn + 1), 50)


def during_rewind(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
    """Let something happen after a rewind has read the conversation, and before it writes."""

    def content(hold: Conversation, at_turn: int, *, now: float) -> Record:
        found = content_at(hold, at_turn, now=now)
        monkeypatch.undo()
        work()
        return found

    monkeypatch.setattr(conversation_transfer, "content_at", content)


@TIERS
@pytest.mark.parametrize("flushes", [False, True], ids=["saved", "flushed"])
def test_turn_that_is_stored_during_a_rewind_stays(
    tiers: dict[str, bool], flushes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Turns that the rewind had not seen follow the shortened history, for every reader."""
    forks = Forks(**tiers, turns=7)

    def work() -> None:
        forks.say(50)
        if flushes:
            forks.hold.flush()

    during_rewind(monkeypatch, work)
    rewind(PLACE, forks.tiers, at_turn=2)
    assert texts(forks.load()) == expected(1, 2, 50)
    forks.hold.refresh()
    forks.say(51)
    forks.hold.flush()
    forks.hold.complete()
    assert texts(forks.load()) == texts(forks.hold) == expected(1, 2, 50, 51)
    assert len(forks.load().history()) == 4


@TIERS
def test_summary_stays_after_a_fork_or_rewind_to_the_last_turn(tiers: dict[str, bool]) -> None:
    """The history has a message that the conversation manager wrote, in place of evicted turns."""
    forks = Forks(turns=6, **tiers)
    local = forks.hold.local
    local.set_view(
        (
            Slot(None, 0, dump({"role": "user", "content": [{"text": "user summary"}]})),
            *local.view[-4:],
        )
    )
    forks.hold.save()
    forks.hold.flush()
    fork(PLACE, forks.tiers, at_turn=6, to=OTHER, ids=OTHER_IDS)
    rewind(PLACE, forks.tiers, at_turn=6)
    assert texts(forks.load_other()) == texts(forks.load()) == ["user summary", *expected(5, 6)]


def test_turn_that_is_logged_during_a_rewind_does_not_count_as_damaged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another process logs a turn between two reads of the log.

    The turn has a place before turns that were read.
    """
    forks = Forks(hot=False, turns=2)
    history = Conversation.history

    def read(hold: Conversation) -> Any:
        monkeypatch.undo()
        found = history(hold)
        assert hold.durable is not None
        hold.durable.put_turn(hold.local.base.incarnation, TurnKey(1, "0"), found[0][1])
        return found

    monkeypatch.setattr(Conversation, "history", read)
    rewind(PLACE, forks.tiers, at_turn=2)
    assert texts(forks.load()) == expected(1, 2)


@pytest.mark.parametrize(
    "work",
    [
        lambda forks: fork(PLACE, forks.tiers, at_turn=2, to=OTHER, ids=OTHER_IDS),
        lambda forks: rewind(PLACE, forks.tiers, at_turn=2),
    ],
    ids=["fork", "rewind"],
)
def test_log_that_is_deleted_while_it_is_read_does_not_count_as_damaged(
    work: Callable[[Forks], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process rewinds the conversation between two reads of the log."""
    forks = Forks(hot=False, turns=6)
    logged_keys = DurableTier.logged_keys

    def read(tier: DurableTier, incarnation: int) -> Any:
        monkeypatch.undo()
        found = logged_keys(tier, incarnation)
        rewind(PLACE, forks.tiers, at_turn=1)
        return found

    monkeypatch.setattr(DurableTier, "logged_keys", read)
    with pytest.raises(ConflictError, match="meanwhile"):
        work(forks)


@TIERS
def test_redaction_during_a_rewind_stays(
    tiers: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replacement is in the shortened history."""
    forks = Forks(**tiers, turns=4)
    key = forks.hold.local.view[0].key
    assert key is not None

    def work() -> None:
        forks.hold.local.redact(
            key, {0: dump({"role": "user", "content": [{"text": "user removed"}]})}
        )
        forks.hold.save()

    during_rewind(monkeypatch, work)
    rewind(PLACE, forks.tiers, at_turn=2)
    assert texts(forks.load())[0] == "user removed"


@TIERS
@pytest.mark.parametrize("other", ["deletion", "rewind"])
def test_rewind_of_a_conversation_that_ends_meanwhile_is_refused(
    tiers: dict[str, bool], other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rewind brings back nothing that a deletion or another rewind has removed."""
    forks = Forks(**tiers, turns=4)
    works = {"rewind": lambda: rewind(PLACE, forks.tiers, at_turn=1), "deletion": forks.hold.delete}
    during_rewind(monkeypatch, works[other])
    with pytest.raises(ConflictError, match="meanwhile"):
        rewind(PLACE, forks.tiers, at_turn=3)
    assert texts(forks.load()) == (expected(1) if other == "rewind" else [])


def test_redacted_message_stays_redacted_in_a_fork() -> None:
    """Neither tier has the original under the new session."""
    forks = Forks(turns=3)
    key = forks.hold.local.view[0].key
    assert key is not None
    forks.hold.local.redact(key, {0: dump({"role": "user", "content": [{"text": "user removed"}]})})
    forks.hold.flush()
    fork(PLACE, forks.tiers, at_turn=2, to=OTHER, ids=OTHER_IDS)
    assert texts(forks.load_other())[0] == "user removed"
    assert "user 1 " not in str(forks.table.rows)


def test_damaged_turn_is_neither_forked_nor_deleted() -> None:
    """A turn that cannot be read is not taken for absent; an earlier fork is possible."""
    forks = Forks()
    forks.hold.flush()
    damaged = sorted(key for key in forks.table.rows if "#TURN#" in key[1])[5]
    row = forks.table.rows[damaged]
    row["turn"] = row["turn"].replace("user 6", "user 9")
    for change in (
        lambda: rewind(PLACE, forks.tiers, at_turn=8),
        lambda: fork(PLACE, forks.tiers, at_turn=8, to=OTHER, ids=OTHER_IDS),
    ):
        with pytest.raises(CorruptRecordError):
            change()
    assert forks.table.rows[damaged] == row
    fork(PLACE, forks.tiers, at_turn=5, to=OTHER, ids=OTHER_IDS)
    assert texts(forks.load_other()) == expected(1, 2, 3, 4, 5)


@pytest.mark.parametrize("calls", range(12))
def test_rewind_that_dies_half_way_leaves_the_conversation_whole_or_rewound(calls: int) -> None:
    """A crash at any request leaves one of the two, and a second rewind completes it."""
    forks = Forks(turns=7)
    forks.hold.flush()
    counted = iter(range(10_000))

    class Dying:
        def __init__(self, store: Any) -> None:
            self.store = store

        def __getattr__(self, name: str) -> Any:
            attribute = getattr(self.store, name)
            if not callable(attribute):
                return attribute

            def call(*given: Any, **named: Any) -> Any:
                if next(counted) >= calls:
                    raise StoreUnavailableError("the process died here")
                return attribute(*given, **named)

            return call

    tiers = type(forks.tiers).of(Dying(forks.hot), Dying(forks.table), clock=forks.clock)  # type: ignore[arg-type]
    with suppress(StoreUnavailableError):
        rewind(PLACE, tiers, at_turn=3)
    assert texts(forks.load()) in (expected(*range(1, 8)), expected(1, 2, 3))
    rewind(PLACE, forks.tiers, at_turn=3)
    assert texts(forks.load()) == expected(1, 2, 3)
    assert "user 5 " not in str(forks.table.rows)


def stored_message(role: str, text: str) -> bytes:
    return dump({"role": role, "content": [{"text": text}]})


@TIERS
def test_fork_or_rewind_to_the_last_turn_keeps_the_window(tiers: dict[str, bool]) -> None:
    """Turns that have left both the window and the list of seen turns do not come back."""
    forks = Forks(**tiers, turns=0)
    for number in range(1, 131):
        forks.say(number)
        forks.hold.local.set_view(forks.hold.local.view[-6:])
        forks.hold.save()
    forks.hold.flush()
    fork(PLACE, forks.tiers, at_turn=130, to=OTHER, ids=OTHER_IDS)
    rewind(PLACE, forks.tiers, at_turn=130)
    assert texts(forks.load_other()) == texts(forks.load()) == expected(128, 129, 130)


@TIERS
def test_turn_that_grows_during_a_rewind_stays_whole(
    tiers: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rewind has read one message of an open turn, which then ends and is flushed."""
    forks = Forks(**tiers, turns=3)
    local = forks.hold.local
    local.begin_turn()
    local.append(stored_message("user", "user 4"))
    forks.hold.save()

    def work() -> None:
        local.append(stored_message("assistant", "assistant 4"))
        local.end_turn()
        forks.hold.save()
        forks.hold.flush()

    during_rewind(monkeypatch, work)
    rewind(PLACE, forks.tiers, at_turn=2)
    assert texts(forks.load()) == [*expected(1, 2), "user 4", "assistant 4"]
    assert [len(turn.messages) for _, turn in forks.load().history()] == [2, 2, 2]


@TIERS
def test_turn_of_a_deleted_fork_does_not_come_back_in_the_next_fork(tiers: dict[str, bool]) -> None:
    """A process still has the deleted fork of the same id."""
    forks = Forks(**tiers, turns=3)
    fork(PLACE, forks.tiers, at_turn=3, to=OTHER, ids=OTHER_IDS)
    idle = forks.load_other()
    say(idle, 50)
    idle.save()
    forks.load_other().delete()
    fork(PLACE, forks.tiers, at_turn=3, to=OTHER, ids=OTHER_IDS)
    say(idle, 51)
    idle.save()
    assert not {"user 50", "assistant 50"} & set(texts(forks.load_other()))


@TIERS
def test_turns_of_a_rewind_do_not_come_back_from_a_process_far_behind(
    tiers: dict[str, bool],
) -> None:
    """The process has read neither the rewind nor the 120 turns before the rewind."""
    forks = Forks(**tiers, turns=3)
    idle = forks.load()
    say(idle, 900)
    idle.save()
    forks.hold.refresh()
    for number in range(4, 124):
        forks.say(number)
        forks.hold.local.set_view(forks.hold.local.view[-6:])
    forks.hold.save()
    forks.hold.flush()
    rewind(PLACE, forks.tiers, at_turn=2)
    say(idle, 901)
    idle.save()
    idle.flush()
    assert texts(forks.load()) == expected(1, 2, 901)


@TIERS
@pytest.mark.parametrize("begun", [0, 3], ids=["new", "begun"])
def test_unsaved_turn_outlives_a_rewind_that_was_long_ago(
    tiers: dict[str, bool], begun: int
) -> None:
    """The process has read neither the rewind nor the 120 turns after it."""
    forks = Forks(**tiers, turns=begun)
    idle = forks.load()
    say(idle, 900)
    for number in range(begun + 1, 5):
        forks.say(number)
    rewind(PLACE, forks.tiers, at_turn=2)
    forks.hold.refresh()
    forks.hold.local.adopt_window()
    for number in range(5, 125):
        forks.say(number)
        forks.hold.local.set_view(forks.hold.local.view[-6:])
    forks.hold.save()
    forks.hold.flush()
    idle.save()
    idle.flush()
    assert idle.local.dropped == 0
    assert texts(forks.load()) == expected(122, 123, 124, 900)


@TIERS
def test_redaction_after_an_unread_rewind_reaches_a_turn_outside_the_window(
    tiers: dict[str, bool],
) -> None:
    """The log has the replacement."""
    forks = Forks(**tiers, turns=8)
    local = forks.hold.local
    key = local.view[0].key
    assert key is not None
    local.set_view(local.view[-4:])
    forks.hold.save()
    forks.hold.flush()
    rewind(PLACE, forks.tiers, at_turn=8)
    local.redact(key, {0: stored_message("user", "removed")})
    forks.hold.save()
    forks.hold.flush()
    (_, first), *_ = forks.load().history()
    assert first.messages[0] == stored_message("user", "removed")


@TIERS
def test_turn_that_grows_outside_the_window_is_forked_whole(tiers: dict[str, bool]) -> None:
    """All messages of a turn are in the history, or none."""
    forks = Forks(**tiers, turns=2)
    local = forks.hold.local
    local.begin_turn()
    local.append(stored_message("user", "user 3"))
    forks.hold.save()
    other = forks.load()
    other.local.set_view(other.local.view[:2])
    other.save()
    reader = forks.load()
    local.append(stored_message("assistant", "assistant 3"))
    local.end_turn()
    forks.hold.save()
    forks.hold.flush()
    content = content_at(reader, 3, now=forks.clock())
    assert [(slot.key, slot.number) for slot in content.window[2:]] == [
        (max(content.turns), 0),
        (max(content.turns), 1),
    ]


def test_redaction_after_a_rewind_that_died_leaves_no_original(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log of the replaced conversation goes with the first redaction."""
    forks = Forks(turns=4)
    forks.hold.flush()
    with monkeypatch.context() as patch, suppress(StoreUnavailableError):
        patch.setattr(
            DurableTier,
            "purge",
            lambda *given: (_ for _ in ()).throw(StoreUnavailableError("died")),
        )
        rewind(PLACE, forks.tiers, at_turn=2)
    hold = forks.load()
    key = hold.local.view[0].key
    assert key is not None
    assert "user 1 " in str(forks.table.rows)
    hold.local.redact(key, {0: stored_message("user", "removed")})
    hold.save()
    hold.flush()
    assert "user 1 " not in str(forks.table.rows)


@TIERS
def test_removed_turn_that_goes_on_is_counted_again(tiers: dict[str, bool]) -> None:
    """Its author ends the turn after two rewinds: it follows the kept turns."""
    forks = Forks(**tiers, turns=4)
    local = forks.hold.local
    local.begin_turn()
    local.append(stored_message("user", "user 5"))
    forks.hold.save()
    rewind(PLACE, forks.tiers, at_turn=3)
    rewind(PLACE, forks.tiers, at_turn=2)
    assert forks.load().local.turn_count == 2
    local.append(stored_message("assistant", "assistant 5"))
    local.end_turn()
    forks.hold.save()
    forks.hold.flush()
    for found in (local, forks.load().local):
        assert (found.turn_count, found.message_count) == (3, 6)
