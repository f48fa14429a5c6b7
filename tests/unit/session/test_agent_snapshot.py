"""Conversion of a history to references to stored messages and back, and its transfer."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strands_manga_memory import TieredSessionManager
from strands_manga_memory.session import stored_session
from strands_manga_memory.session.agent_snapshot import UNREADABLE_TEXT, messages_of, slots_of
from strands_manga_memory.session.conversation_transfer import TransferredConversation
from strands_manga_memory.session.protocol.record import Slot, TurnKey
from strands_manga_memory.stores.codec import dump
from tests.unit.session.support import MemoryTable

KEYS = [TurnKey(at, f"t{at}") for at in range(1, 5)]
VIEW = [Slot(key, number) for key in KEYS for number in range(2)]
ROLES = ("user", "assistant")


def message(slot: Slot, *, has_id: bool = True) -> Any:
    """Return the message in a slot."""
    found = {"role": ROLES[slot.number % 2], "content": [{"text": f"{slot.key} {slot.number}"}]}
    return {**found, "tracking_id": f"id-{slot.key}-{slot.number}"} if has_id else found


def stored(slot: Slot) -> bytes | None:
    """Return the dumped message in a slot."""
    return slot.body if slot.body is not None else dump(message(slot))


@given(
    st.lists(
        st.tuples(st.sampled_from(VIEW), st.sampled_from(["kept", "edited", "note"])),
        unique_by=lambda one: one[0],
    )
)
def test_history_is_the_same_after_slots_and_back(parts: list[tuple[Slot, str]]) -> None:
    """Evicted, edited, reordered and synthesized messages come back as the agent had them."""
    history: list[Any] = []
    for slot, form in parts:
        found = message(slot)
        if form == "edited":
            found["content"] = [{"text": "shortened"}]
        if form == "note":
            found = {"role": "user", "content": [{"text": f"summary up to {slot.key}"}]}
        history.append(found)
    slots = slots_of(history, VIEW, stored)
    assert messages_of(slots, stored) == history
    assert [slot.body is None for slot in slots] == [form == "kept" for _, form in parts]
    assert [slot.key is None for slot in slots] == [form == "note" for _, form in parts]
    assert slots_of(history, slots, stored) == slots


def test_messages_without_an_id_are_known_by_their_content() -> None:
    history = [message(slot, has_id=False) for slot in VIEW]
    assert slots_of(history, VIEW, lambda slot: dump(message(slot, has_id=False))) == tuple(VIEW)


def test_message_that_stands_twice_has_two_slots() -> None:
    same = dump({"role": "user", "content": [{"text": "again"}], "tracking_id": "one"})
    history: list[Any] = [
        {"role": "user", "content": [{"text": "again"}], "tracking_id": "one"} for _ in range(2)
    ]
    assert slots_of(history, VIEW[:2], lambda slot: same) == tuple(VIEW[:2])


def test_unchanged_messages_stay_the_same_objects() -> None:
    live = [message(slot) for slot in VIEW[:4]]
    taken = messages_of([*VIEW[2:4], VIEW[6]], stored, before=VIEW[:4], present=live)
    assert [taken[0] is live[2], taken[1] is live[3]] == [True, True]
    assert taken[2] == message(VIEW[6])


def test_unreadable_message_keeps_its_slot() -> None:
    """A placeholder is no edit, and gives way to the message once that can be read."""
    history = messages_of(VIEW[:4], lambda slot: None if slot == VIEW[1] else stored(slot))
    assert history[1]["content"] == [{"text": UNREADABLE_TEXT}]
    assert [one["role"] for one in history] == ["user", "assistant", "user", "assistant"]
    slots = slots_of(
        copy.deepcopy(history), VIEW[:4], lambda slot: None if slot == VIEW[1] else stored(slot)
    )
    assert slots == tuple(VIEW[:4])
    assert messages_of(slots, stored, before=slots, present=history) == [
        message(slot) for slot in VIEW[:4]
    ]


def test_stored_value_that_is_no_message_is_unreadable() -> None:
    """An agent is given messages only; what stands in the place of one is kept."""
    odd = {VIEW[0]: dump({"role": "user", "content": [[]]}), VIEW[1]: dump(5)}
    history = messages_of(VIEW[:3], lambda slot: odd.get(slot, stored(slot)))
    assert [one["content"] == [{"text": UNREADABLE_TEXT}] for one in history] == [True, True, False]
    assert slots_of(history, VIEW[:3], lambda slot: odd.get(slot, stored(slot))) == tuple(VIEW[:3])


def test_text_that_looks_like_a_placeholder_is_a_message() -> None:
    """An id stands for a slot only together with the text of a placeholder."""
    for identity in ("unreadable-of-mine", f"unreadable-{KEYS[0]}-0"):
        odd: Any = {"role": "user", "content": [{"text": "x"}], "tracking_id": identity}
        assert slots_of([odd], VIEW, stored) == (Slot(None, 0, dump(odd)),)


def test_message_that_returns_has_its_slot_again() -> None:
    """A message that left the history is no note when it returns, whether whole or edited."""
    slots = {f"id-{slot.key}-{slot.number}": slot for slot in VIEW}
    edited = {**message(VIEW[1]), "content": [{"text": "shortened"}]}
    returned = slots_of(
        [message(VIEW[0]), edited, message(VIEW[4])],
        VIEW[4:],
        stored,
        lambda identity: [slots[identity][:2]],
    )
    assert returned == (VIEW[0], VIEW[1]._replace(body=dump(edited)), VIEW[4])


def test_second_use_of_a_shown_message_is_a_note() -> None:
    slots = {f"id-{slot.key}-{slot.number}": slot for slot in VIEW}
    shown, copied = slots_of(
        [message(VIEW[0]), message(VIEW[0])],
        VIEW[:2],
        stored,
        lambda identity: [slots[identity][:2]],
    )
    assert (shown, copied.key) == (VIEW[0], None)


def test_transfer_with_a_pending_interrupt_spares_a_conversation_that_begins_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other conversation is stored after the transfer has found none."""
    table = MemoryTable()
    transferring, other = (TieredSessionManager("s", hot=None, durable=table) for _ in range(2))
    begin = stored_session.begin_with

    def begin_late(*arguments: Any, **options: Any) -> bool:
        monkeypatch.undo()
        other.log([{"role": "user", "content": [{"text": "first"}]}], "a")
        return begin(*arguments, **options)

    monkeypatch.setattr(stored_session, "begin_with", begin_late)
    log = [({"role": "user", "content": [{"text": "late"}], "tracking_id": "1"}, 1.0)]
    states = {"interrupt_state": {"activated": True, "interrupts": {}, "context": {}}}
    assert (
        transferring.transfer(TransferredConversation(log=log, window=[], states=states), "a")
        == "exists"
    )
