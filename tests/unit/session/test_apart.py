"""Copies that went apart: which messages are at hand, by which numbers, and what is lost."""

from __future__ import annotations

from typing import Any

from strands_manga_memory.conversation.stubs import stub_of
from strands_manga_memory.session.apart import Apart
from strands_manga_memory.session.records import Head, Stored
from strands_manga_memory.session.window import Logged, Slot, body_of
from tests.unit.session.support import assistant, logged, texts, user


def ours(*messages: Logged, window: list[Any] | None = None) -> Apart:
    head = Head(created=0, active=0, next=9)
    return Apart(
        loose={slot.identity: slot for slot in messages},
        known=messages,
        window=list(messages) if window is None else window,
        head=head,
        writers={"us": 1},
    )


def hot(*slots: Slot, pending: str = "") -> Stored:
    head = Head(created=0, active=0, next=9, pending=pending)
    return Stored(epoch=1, version=5, writers={"them": 5}, head=head, slots=list(slots))


def said(text: str, seq: int) -> Logged:
    message = user(text) if seq % 2 else assistant(text)
    return logged({**message, "tracking_id": text}, seq)


def test_a_number_means_the_same_up_to_the_last_message_that_both_have() -> None:
    one, two, three = said("one", 1), said("two", 2), said("three", 3)
    other = said("other", 3)
    apart = ours(one, two, three).beside(hot(two, other), [])
    assert {key[0]: slot.seq for key, slot in apart.loose.items()} == {"one": 1, "two": 2, "three": 0}
    assert three.seq == 3, "ours is left as it is"


def test_what_only_we_know_is_shown_as_we_show_it() -> None:
    one, two, three = said("one", 1), said("two", 2), said("three", 3)
    apart = ours(one, two, three, window=[two, three]).beside(hot(one, two), [])
    assert texts(slot.message for slot in apart.window) == ["one", "two", "three"]
    assert [slot.tracking_id for slot in apart.known] == ["one", "two"]


def test_what_the_hot_tier_shows_in_another_form_is_not_shown_twice() -> None:
    one, two = said("one", 1), said("two", 2)
    for window in ([one, two], [one, body_of(stub_of(two.message), edits=two)]):
        apart = ours(one, two, window=window).beside(hot(one, body_of(stub_of(two.message), edits=two)), [])
        assert texts(slot.message for slot in apart.window) == ["one", "[…]"]


def test_what_the_hot_tier_has_comes_by_its_numbers() -> None:
    one, two = said("one", 1), said("two", 2)
    moved = logged(two.message, 7)
    moved.at = two.at
    apart = ours(one, two).beside(hot(one, moved, pending="7"), [moved])
    assert apart.loose[two.identity].seq == 7
    assert apart.seen == {"them": 5}


def test_who_lacks_what_he_awaits_has_not_seen_the_saves_that_brought_it() -> None:
    one, two = said("one", 1), said("two", 2)
    apart = ours(one).beside(hot(one, pending="2-4"), [two])
    assert apart.seen == {}


def test_nothing_in_common_is_no_number_in_common() -> None:
    assert [slot.seq for slot in ours(said("one", 1)).beside(hot(said("other", 1)), []).loose.values()] == [0]
