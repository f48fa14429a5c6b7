"""The record of one process, and its agent's changes while a flush is under way."""

from dataclasses import replace

import pytest

from strands_manga_memory.session.protocol.local_copy import MAX_EVICTED, LocalCopy
from strands_manga_memory.session.protocol.record import (
    Record,
    Slot,
    Turn,
    TurnKey,
    Version,
    missing_turns,
)


def test_new_keys_and_versions_are_above_all_that_a_record_lists() -> None:
    """A record that lists turns of an interrupted flush has an earlier version than these turns."""
    for version, key in (
        (Version(20, "z"), TurnKey(30, "z")),
        (Version(30, "z"), TurnKey(20, "z")),
    ):
        local = LocalCopy(clock=lambda: 1000.0)
        turns = {key: Turn((b"question",), (1000.0,))}
        local.merge_record(
            Record(version=version, incarnation=1, window=(Slot(key),), seen={key: 1}, turns=turns),
            {},
        )
        slot = local.append(b"another question")
        assert slot.key.time > 30
        assert local.draft().version > (slot.key.time, "")


def test_turn_that_a_restored_table_lacks_is_logged_again() -> None:
    """The head's writer has seen the restored log; this copy has not, and evicts the turn."""
    key, turn = TurnKey(1, "a"), Turn((b"question",), (1.0,))
    known = Record(Version(1, "a"), 1, seen={key: 1})
    head = replace(known, version=Version(2, "b"), turns={key: turn}, unlogged={key})
    local = LocalCopy(clock=lambda: 1000.0)
    local.merge_record(known, {})
    local.merge_record(head, {}, is_head=True)
    local.set_tier_record("durable", head)
    assert missing_turns(local.base, head) == {key}


def test_keys_of_quick_turns_are_not_ahead_of_the_clock() -> None:
    """The clock orders them with turns of other processes."""
    now = 1_000_000
    local = LocalCopy(clock=lambda: now / 1000)
    for _ in range(100):
        now += 1
        local.begin_turn()
        slot = local.append(b"question")
        local.end_turn()
        assert slot.key.time == now
        local.acknowledge(local.draft())
        local.merge_record(local.base, {})


def test_edits_stand_although_a_flush_ends_after_a_later_save() -> None:
    """The flush stores an earlier draft than the save."""
    local = LocalCopy(clock=lambda: 1000.0)
    local.is_loaded = True
    for number in range(3):
        local.begin_turn()
        local.append(f"question {number}".encode())
        local.append(b"answer")
        local.end_turn()
    flushed = local.draft()
    local.set_view(local.view[2:])
    saved = local.draft()
    local.acknowledge(saved)
    local.set_view(local.view[2:])
    local.acknowledge(flushed)
    assert not local.has_conflict
    assert local.window == local.view
    assert len(local.draft().window) == 2


@pytest.mark.parametrize("is_new", [True, False])
def test_edits_stand_although_the_answer_to_an_earlier_save_was_lost(is_new: bool) -> None:
    """The store has the save, which the process reads later."""
    local = LocalCopy(clock=lambda: 1000.0)
    local.is_loaded = True
    for number in range(4):
        local.begin_turn()
        local.append(f"question {number}".encode())
        local.append(b"answer")
        local.end_turn()
        if number == 0 and not is_new:
            local.acknowledge(local.draft())
        if number == 2:
            stored = local.draft()
            local.set_view((*local.view[:2], *local.view[4:]))
            local.new_manager_state = {"removed": 2}
    local.merge_record(stored, {})
    assert not local.has_conflict
    assert [slot.key for slot in local.window] == [slot.key for slot in local.view]
    assert (len(local.draft().window), local.manager_state) == (6, {"removed": 2})


def answered(local: LocalCopy, question: bytes) -> None:
    """Let the agent of ``local`` answer a question."""
    local.begin_turn()
    local.append(question)
    local.append(b"answer")
    local.end_turn()


@pytest.mark.parametrize("has_turn", [True, False])
def test_values_that_return_after_a_save_whose_answer_was_lost_are_saved(has_turn: bool) -> None:
    """The stored value must not replace the later one, which equals the value before the save."""
    local = LocalCopy(clock=lambda: 1000.0)
    answered(local, b"question 0")
    local.set_states({"agent.cart": [0]})
    local.new_manager_state = {"removed": 0}
    saved = local.draft()
    local.acknowledge(saved)
    local.set_tier_record("hot", saved)
    local.set_states({"agent.cart": [1]})
    local.new_manager_state = {"removed": 1}
    window = local.view
    local.set_view(window[1:])
    stored = local.draft()
    local.set_states({"agent.cart": [0]})
    local.new_manager_state = {"removed": 0}
    local.set_view(window)
    if has_turn:
        answered(local, b"question 1")
    assert local.is_dirty
    local.draft()  # refused, because the store has the earlier save
    local.merge_record(stored, {})
    saved = local.draft()
    local.acknowledge(saved)
    local.set_tier_record("hot", saved)
    assert saved.states["agent.cart"].value == [0]
    assert saved.manager_state == {"removed": 0}
    assert saved.window == local.view
    assert not local.is_dirty


def test_note_inside_an_unsaved_turn_keeps_its_place() -> None:
    """A merge adds other processes' turns before the unsaved one."""
    local, other = LocalCopy(clock=lambda: 1000.0), LocalCopy(clock=lambda: 1000.0)
    answered(local, b"question 0")
    saved = local.draft()
    local.acknowledge(saved)
    other.merge_record(saved, {})
    answered(other, b"question of another process")
    answered(local, b"question 1")
    note = Slot(None, 0, b"note")
    local.set_view((*local.view[:3], note, *local.view[3:]))
    edited = local.view
    local.merge_record(saved, {})
    assert local.window == edited
    found = other.draft()
    local.merge_record(found, {})
    assert local.window == (*found.window, *edited[2:])


def test_removed_message_stays_removed_if_another_process_read_a_save_whose_answer_was_lost() -> (
    None
):
    local, other = LocalCopy(clock=lambda: 1000.0), LocalCopy(clock=lambda: 1000.0)
    answered(local, b"question 0")
    saved = local.draft()
    local.acknowledge(saved)
    answered(local, b"question 1")
    other.merge_record(local.draft(), {})
    answered(other, b"question of another process")
    local.set_view(local.view[:2])
    found = other.draft()
    local.merge_record(found, {})
    assert not local.has_conflict
    assert local.window == (*saved.window, *found.window[4:])


def test_latest_turns_of_many_that_leave_the_history_at_once_are_remembered() -> None:
    local = LocalCopy(clock=lambda: 1000.0)
    for number in range(MAX_EVICTED + 50):
        local.begin_turn()
        local.append(f"question {number}".encode())
        local.end_turn()
    local.set_view(local.view[-1:])
    remembered = [turn.messages[0] for turn in local.evicted.values()]
    assert remembered == [f"question {number}".encode() for number in range(49, MAX_EVICTED + 49)]


def test_unsaved_state_of_the_conversation_manager_stays_if_others_only_added_a_turn() -> None:
    local = LocalCopy(clock=lambda: 1000.0)
    local.begin_turn()
    local.append(b"question")
    local.end_turn()
    saved = local.draft()
    local.acknowledge(saved)
    local.new_manager_state = {"removed": 4}
    key = TurnKey(saved.version.time + 1, "other")
    added = {
        "window": (*saved.window, Slot(key)),
        "turns": {**saved.turns, key: Turn((b"another question",), (1000.0,))},
        "seen": {**saved.seen, key: 1},
    }
    local.merge_record(
        replace(saved, version=local.next_version()._replace(tag="other"), **added), {}
    )
    assert len(local.adopt_window()) == 2
    assert local.manager_state == {"removed": 4}
    assert local.draft().manager_state == {"removed": 4}
