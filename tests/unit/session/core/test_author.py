"""What one process says and what it takes in, without stores."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import datetime
from functools import reduce
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strands_manga_memory.messages import fingerprint, fingerprints
from strands_manga_memory.messages.placeholders import CUT_TEXT, PLACEHOLDER
from strands_manga_memory.session.author.author import Author
from strands_manga_memory.session.author.offer import Offer
from strands_manga_memory.session.core.identity import Name, Stamp, grave_by_age, new_grave
from strands_manga_memory.session.core.merge import EMPTY, Copy, merge
from strands_manga_memory.session.core.packed_window import pack_window, unpack_window
from strands_manga_memory.session.core.records import Mark, Message
from strands_manga_memory.session.core.vector import NOTHING, Vector
from strands_manga_memory.session.core.window import Window, shown_name
from tests.unit.session.support import assistant, texts, tool_use, user


class Talker:
    """An author with its live agent's history."""

    def __init__(self, tag: str) -> None:
        self.author = Author(tag=map(f"{tag}{{}}".format, itertools.count()).__next__)
        self.live: list[Any] = []
        self.said = 0

    def say(self, message: Any, *, begins: bool = False) -> None:
        self.said += 1
        message["tracking_id"] = f"{self.author.outbox.writer}-{self.said}"
        self.live.append(message)
        self.author.say(message, at=float(self.said), begins=begins)

    def turn(self, text: str) -> Copy:
        self.begin()
        self.say(user(text), begins=True)
        self.say(assistant(f"answer to {text}"))
        return self.offer()

    def begin(self) -> None:
        if self.author.is_stale:
            self.live = self.author.take_over()

    def offer(self, *, in_turn: bool = False) -> Copy:
        """Offer what is new to a store that takes it, and has not confirmed that."""
        self.offered = self.offering(in_turn=in_turn)
        self.author.accept(self.offered)
        return self.author.copy

    def offering(self, *, in_turn: bool = False) -> Offer:
        self.author.capture(self.live)
        return self.author.offer(at=float(self.said), in_turn=in_turn)

    def confirm(self) -> None:
        self.author.outbox.confirm(self.offered, for_good=True)

    def shown(self) -> list[str]:
        self.begin()
        return texts(self.live)


@pytest.fixture
def a() -> Talker:
    return Talker("a")


@pytest.fixture
def b() -> Talker:
    return Talker("b")


def test_a_turn_that_only_adds_to_the_history_writes_no_window(a: Talker) -> None:
    copy = a.turn("one")
    copy = a.turn("two")

    assert copy.window is None
    assert [tuple(name) for name in copy.messages] == [("a0", n) for n in (1, 2, 3, 4)]
    assert texts(message.value for message in copy.messages.values()) == texts(a.live)


def test_turns_of_two_writers_at_the_same_time_are_both_there_and_whole(a: Talker, b: Talker) -> None:
    b.author.absorb(a.turn("one"))
    b.begin()
    b.say(user("from b"), begins=True)
    b.offer(in_turn=True)
    a.turn("from a")
    b.say(assistant("b answers"))
    b.offer()

    for one, other in ((a, b), (b, a)):
        one.author.absorb(other.author.copy)
    assert a.shown() == b.shown() == ["one", "answer to one", "from a", "answer to from a", "from b", "b answers"]


def test_what_was_evicted_stays_so_and_what_the_evicting_agent_had_not_seen_is_shown(a: Talker, b: Talker) -> None:
    for at in range(4):
        a.turn(f"a{at}")
    b.author.absorb(a.author.copy)
    b.turn("b")
    del a.live[2:6]
    a.author.absorb(b.author.copy)
    a.offer()
    b.author.absorb(a.author.copy)

    assert a.shown() == b.shown() == ["a0", "answer to a0", "a3", "answer to a3", "b", "answer to b"]


def test_an_edited_message_is_shown_edited_and_the_log_keeps_the_original(a: Talker, b: Talker) -> None:
    a.turn("one")
    a.live[0] = {**a.live[0], "content": [{"text": "edited"}]}
    a.live.insert(0, {"role": "user", "content": [{"text": "a summary"}], "tracking_id": "s"})
    b.author.absorb(a.offer())

    assert b.shown() == ["a summary", "edited", "answer to one"]
    assert texts(message.value for message in b.author.copy.messages.values()) == ["one", "answer to one"]


def test_a_redacted_message_is_redacted_in_every_form_that_others_have_of_it(a: Talker, b: Talker) -> None:
    a.turn("secret")
    b.author.absorb(a.author.copy)
    b.begin()
    b.live[0] = {**b.live[0], "content": [{"text": "secret, shortened"}]}
    b.offer()

    assert a.author.redact(Name("a0", 1), {**a.live[0], "content": [{"text": "redacted"}]})
    a.live[0] = {**a.live[0], "content": [{"text": "redacted"}]}
    for one, other in ((a, b), (b, a), (a, b)):
        one.author.absorb(other.author.copy)

    assert a.shown() == b.shown() == ["redacted", "answer to secret"]
    assert "secret, shortened" not in str([a.author.copy, b.author.copy])


def test_a_message_is_redacted_before_a_store_was_offered_it(a: Talker) -> None:
    a.say(user("secret"), begins=True)
    redacted = {**a.live[0], "content": [{"text": "redacted"}]}

    assert a.author.revise(redacted)
    a.live[0] = redacted

    assert "secret" not in str(a.offer())
    assert a.author.copy.window is None


def test_a_deleted_life_is_gone_for_whoever_merges_the_grave_and_the_next_turn_begins_another(a: Talker, b: Talker) -> None:
    b.author.absorb(a.turn("one"))
    b.begin()
    b.say(user("in the middle"), begins=True)

    b.author.absorb(Copy(graves=frozenset({new_grave(a.author.copy.lives)}), clock=a.author.copy.clock))
    b.say(assistant("answered too late"))
    b.offer()

    assert b.author.copy.messages == {}
    assert b.author.dropped == 2
    assert b.shown() == []
    copy = b.turn("anew")
    assert texts(message.value for message in copy.messages.values()) == ["anew", "answer to anew"]
    assert merge(copy, a.author.copy).messages == copy.messages


def test_what_no_store_had_of_a_life_that_ended_by_age_goes_on_in_the_next_one(a: Talker) -> None:
    copy = a.turn("stored")
    a.confirm()
    a.turn("not stored")
    ended = replace(copy, graves=frozenset({grave_by_age(copy.lives)}))

    a.author.absorb(Copy(graves=ended.graves, clock=ended.clock))
    a.live = []
    after = a.offer()

    assert texts(message.value for message in after.messages.values()) == ["not stored", "answer to not stored"]
    assert len({message.turn for message in after.messages.values()}) == 1
    assert a.shown() == ["not stored", "answer to not stored"]


def test_a_life_that_two_processes_began_at_the_same_time_is_one(a: Talker, b: Talker) -> None:
    a.turn("from a")
    b.turn("from b")
    a.author.absorb(b.author.copy)
    b.author.absorb(a.author.copy)

    assert a.author.copy == b.author.copy
    assert a.shown() == ["from a", "answer to from a", "from b", "answer to from b"]


def test_two_writers_of_one_layer_of_state_both_keep_what_they_changed(a: Talker, b: Talker) -> None:
    a.author.keep("goals", {"buy": {"title": "One Piece", "volume": 1}, "old": 1}, depth=2)
    b.author.absorb(a.turn("one"))
    b.begin()
    b.author.keep("goals", {"buy": {"title": "One Piece", "volume": 1}, "old": 1}, depth=2)
    b.author.keep("goals", {"buy": {"title": "One Piece", "volume": 2}, "old": 1}, depth=2)
    a.author.keep("goals", {"buy": {"title": "Naruto", "volume": 1}}, depth=2)
    a.author.absorb(b.offer())
    b.author.absorb(a.offer())

    assert a.author.layer("goals") == b.author.layer("goals") == {"buy": {"title": "Naruto", "volume": 2}}


def test_a_turn_that_was_cut_is_closed_in_the_view_and_joined_again_if_its_author_lives_on(a: Talker, b: Talker) -> None:
    a.say(user("find it"), begins=True)
    a.say(assistant(tool_use("t1", "find")))
    b.author.absorb(a.offer(in_turn=True))

    assert b.shown() == ["find it", "toolUse", "toolResult", CUT_TEXT]
    b.turn("meanwhile")
    a.say(user({"toolResult": {"toolUseId": "t1", "status": "success", "content": []}}))
    a.say(assistant("found"))
    a.author.absorb(b.author.copy)
    b.author.absorb(a.offer())
    expected = ["find it", "toolUse", "toolResult", "found", "meanwhile", "answer to meanwhile"]
    assert a.shown() == b.shown() == expected
    assert len(b.author.copy.messages) == 6


def test_a_structured_output_turn_that_ends_in_a_tool_result_is_not_taken_for_a_cut_one(a: Talker, b: Talker) -> None:
    a.say(user("fill the form"), begins=True)
    a.say(assistant(tool_use("t1", "form")))
    a.say(user({"toolResult": {"toolUseId": "t1", "status": "success", "content": []}}))
    a.offer()
    a.say(user("next"), begins=True)
    b.author.absorb(a.offer(in_turn=True))

    assert b.shown() == ["fill the form", "toolUse", "toolResult", "next", CUT_TEXT]


def test_one_odd_message_costs_that_message(a: Talker, b: Talker) -> None:
    a.turn("one")
    copy = a.turn("two")
    name = Name("a0", 2)
    odd = replace(copy.messages[name], kept=b"[" * 300 + b"]" * 300)

    b.author.absorb(replace(copy, messages={**copy.messages, name: odd}))

    assert b.shown() == ["one", "[This message could not be read: its record is damaged.]", "two", "answer to two"]
    assert [message["role"] for message in b.live] == ["user", "assistant", "user", "assistant"]
    b.live.pop(0)
    assert b.offer().messages[name] == odd


def test_a_message_that_is_nowhere_costs_that_message(a: Talker, b: Talker) -> None:
    a.turn("one")
    copy = a.turn("two")
    kept = {name: message for name, message in copy.messages.items() if name.number != 3}

    b.author.absorb(replace(copy, messages=kept))

    assert b.shown() == ["one", "answer to one", "[This message could not be read: its record is damaged.]", "answer to two"]


def test_a_turn_that_no_store_has_keeps_its_name_below_the_floor_of_others(a: Talker) -> None:
    copy = a.turn("stored")
    a.confirm()
    a.author.note_logged({"a0": 2})
    a.turn("not stored")
    crowd = replace(copy, vector=Vector(floor=9, counted=9), clock=9)

    a.author.absorb(crowd)

    entry = a.author.copy.vector.last["a0"]
    assert (entry.number, entry.left, entry.logged) == (4, 2, 2)
    assert a.shown() == ["not stored", "answer to not stored"]


def test_a_turn_that_is_known_to_be_logged_leaves_with_its_writer(a: Talker) -> None:
    copy = a.turn("stored")
    a.author.note_logged({"a0": 2})

    a.author.absorb(replace(copy, vector=Vector(floor=9, counted=9), clock=9))

    assert not a.author.copy.vector.last


def test_five_hundred_writers_that_come_and_go_keep_the_copy_small_and_lose_nothing_of_the_window() -> None:
    shared = Copy()
    for at in range(300):
        talker = Talker(f"w{at}-")
        talker.author.absorb(shared)
        talker.begin()
        talker.turn(f"turn {at}")
        if at == 7:
            early = talker
        talker.author.note_logged({talker.author.outbox.writer: 2})
        talker.author.compact()
        talker.author.shorten()
        shared = merge(shared, talker.author.copy)

    assert len(shared.vector.last) <= 64
    assert early.author.copy.vector.floor == 0
    early.author.absorb(shared)
    shown = early.shown()
    assert [text for text in shown if text.startswith("turn")] == [f"turn {at}" for at in range(300)]


KINDS = ["turn", "mid", "evict", "edit", "absorb", "redact"]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["turn", "mid", "evict", "edit", "absorb", "redact"]), st.integers(0, 3)),
        max_size=25,
    )
)
def test_whoever_has_merged_the_same_copies_shows_the_same(steps: list[tuple[int, str, int]]) -> None:
    talkers = [Talker(tag) for tag in "abc"]
    for who, what, how in steps:
        one = talkers[who]
        if what == "turn":
            one.turn(f"turn {one.said}")
        elif what == "mid":
            one.begin()
            one.say(user(f"turn {one.said}"), begins=True)
            one.offer(in_turn=True)
            one.say(assistant("answered"))
            one.offer()
        elif what == "evict" and len(one.live) > 2:
            del one.live[how % 2 * 2 : 2 + how % 2 * 2]
            one.offer()
        elif what == "edit" and one.live:
            one.live[0] = {**one.live[0], "content": [{"text": f"edited {one.said}"}]}
            one.offer()
        elif what == "redact" and one.author.copy.messages:
            name = sorted(one.author.copy.messages)[0]
            one.author.redact(name, {"role": "user" if name.number % 2 else "assistant", "content": [{"text": "redacted"}]})
            one.begin()
        elif what == "absorb":
            one.author.absorb(talkers[how % 3].author.copy)
    for one in talkers:
        one.begin()
        one.offer()
    everything = reduce(merge, (one.author.copy for one in talkers), EMPTY)
    for one in talkers:
        one.author.absorb(everything)
        one.begin()
        assert one.author.copy == everything
        assert not one.author.is_stale
        assert one.offer() == everything, "looking is no reason to write"
    assert talkers[0].live == talkers[1].live == talkers[2].live
    said = sum(one.said for one in talkers)
    assert len(everything.messages) == said
    roles = [message["role"] for message in talkers[0].live if not isinstance(message, Message)]
    if not any(what in ("evict", "redact") for _, what, _ in steps):
        assert all(one != other for one, other in itertools.pairwise(roles))


def test_nothing_is_written_where_nothing_was_said(a: Talker) -> None:
    assert a.offer() == Copy()
    assert a.author.copy.vector == NOTHING


def test_the_rest_of_a_turn_that_was_evicted_while_it_went_on_stays_in_the_log_alone(a: Talker, b: Talker) -> None:
    a.say(user("find it"), begins=True)
    a.say(assistant(tool_use("t1", "find")))
    b.author.absorb(a.offer(in_turn=True))
    b.turn("meanwhile")
    del b.live[1:4]
    b.offer()
    a.say(user({"toolResult": {"toolUseId": "t1", "status": "success", "content": []}}))
    a.say(assistant("found"))
    a.author.absorb(b.author.copy)
    b.author.absorb(a.offer())

    assert a.shown() == ["find it", "meanwhile", "answer to meanwhile"]
    assert b.shown() == ["find it", "meanwhile", "answer to meanwhile"]  # as its conversation manager made it
    for one in (a, b):
        one.offer()
        one.author.forget(one.author.copy)
        assert "could not be read" not in str(one.author.take_over())


def test_a_turn_that_somebody_closed_with_a_note_of_his_own_is_closed(a: Talker, b: Talker) -> None:
    a.say(user("find it"), begins=True)
    b.author.absorb(a.offer(in_turn=True))
    b.begin()
    b.live[1] = {**b.live[1], "content": [{"text": "shortened"}]}
    b.turn("meanwhile")
    a.say(assistant("found"))
    a.author.absorb(b.author.copy)
    b.author.absorb(a.offer())

    assert a.shown() == b.shown() == ["find it", "shortened", "meanwhile", "answer to meanwhile"]


def test_an_edited_question_of_a_cut_turn_is_closed_too(a: Talker, b: Talker) -> None:
    a.say(user("find it"), begins=True)
    b.author.absorb(a.offer(in_turn=True))
    b.begin()
    b.live[0] = {**b.live[0], "content": [{"text": "edited"}]}

    b.offer()
    b.author.take_over()

    assert texts(b.author.take_over()) == ["edited", CUT_TEXT]


def test_what_goes_on_with_the_last_turn_of_a_window_comes_before_other_turns(a: Talker, b: Talker) -> None:
    b.author.absorb(a.turn("one"))
    a.say(user("two"), begins=True)
    b.author.absorb(a.offer(in_turn=True))
    b.begin()
    b.live[0] = {**b.live[0], "content": [{"text": "edited"}]}
    b.offer()
    c = Talker("0")
    c.author.absorb(Copy(lives=a.author.copy.lives, clock=1))
    c.turn("from c")
    a.say(assistant("answered"))
    for one in (a, c):
        one.offer()
        b.author.absorb(one.author.copy)

    assert b.shown() == ["edited", "answer to one", "two", "answered", "from c", "answer to from c"]


def test_a_placeholder_that_somebody_edited_stands_for_the_message(a: Talker, b: Talker) -> None:
    copy = a.turn("one")
    b.author.absorb(replace(copy, messages={}))
    b.begin()
    b.live[0] = {**b.live[0], "content": [{"text": "edited"}]}

    window = b.offer().window

    assert window is not None
    assert [shown_name(slot) for slot in window.slots] == [Name("a0", 1), Name("a0", 2)]


def roles(messages: list[Any]) -> str:
    return "".join(message["role"][0] for message in messages)


def test_roles_alternate_where_a_message_that_was_shown_as_lost_is_found_again(a: Talker, b: Talker) -> None:
    """Who cannot read it takes it for anybody's, and moves it; whoever writes the next window has it where it was moved to."""
    c = Talker("c")
    c.author.absorb(a.turn("one"))
    copy = c.turn("two")
    b.author.absorb(replace(copy, messages={name: one for name, one in copy.messages.items() if name != ("a0", 2)}))
    b.begin()
    _, lost, *two = b.live
    b.live = [*two, lost]
    b.author.absorb(b.offer())
    b.author.absorb(copy)

    assert (b.shown(), roles(b.live)) == (["two", "answer to two", PLACEHOLDER, "answer to one"], "uaua")
    b.live[0] = {**b.live[0], "content": [{"text": "edited"}]}
    copy = b.offer()
    assert copy.window is not None
    stored = unpack_window(pack_window(copy.window))
    a.author.absorb(replace(copy, window=replace(stored, bodies=copy.window.bodies)))
    assert (a.shown(), roles(a.live)) == (["edited", "answer to two", PLACEHOLDER, "answer to one"], "uaua")


def test_roles_alternate_where_the_message_between_is_lost_and_stands_elsewhere(a: Talker, b: Talker) -> None:
    c = Talker("c")
    c.author.absorb(a.turn("one"))
    a.author.absorb(c.turn("two"))
    copy = a.turn("three")
    b.author.absorb(replace(copy, messages={name: one for name, one in copy.messages.items() if name != ("a0", 2)}))

    b.begin()
    assert roles(b.live) == "ua" * 4


def test_what_was_redacted_before_a_store_refused_it_is_said_anew_redacted(a: Talker) -> None:
    a.say(user("secret"), begins=True)
    a.offering(in_turn=True)
    redacted = {**a.live[0], "content": [{"text": "redacted"}]}
    assert a.author.revise(redacted)
    a.live[0] = redacted
    a.say(assistant("ok"))
    copy = a.offer()

    assert texts(message.value for message in merge(copy, copy).messages.values()) == ["redacted", "ok"]
    assert not a.author.is_stale


def test_what_was_redacted_while_a_store_took_it_is_redacted_there_with_the_next_offer(a: Talker, b: Talker) -> None:
    a.say(user("secret"), begins=True)
    offer = a.offering(in_turn=True)
    redacted = {**a.live[0], "content": [{"text": "redacted"}]}
    assert a.author.revise(redacted)
    a.live[0] = redacted
    b.author.absorb(offer.copy)
    a.author.accept(offer)
    a.say(assistant("ok"))
    b.author.absorb(a.offer())

    assert a.shown() == b.shown() == ["redacted", "ok"]
    assert b.author.copy.redactions == {Name("a0", 1): 1}
    assert a.author.copy.window is None


def test_what_a_store_refused_comes_after_what_is_there_already(a: Talker, b: Talker) -> None:
    b.author.absorb(a.turn("one"))
    b.begin()
    b.say(user("from b"), begins=True)
    b.say(assistant("b answers"))
    b.offering()
    for at in range(3):
        a.turn(f"a{at}")
    b.author.absorb(a.author.copy)
    a.author.absorb(b.offer())

    assert a.shown() == b.shown()
    assert a.shown()[-2:] == ["from b", "b answers"]


def test_the_rest_of_a_turn_that_is_said_anew_stays_with_what_a_store_has_of_it() -> None:
    author = Author()
    author.say(user("one"), at=1.0, begins=True)
    author.accept(author.offer(at=1.0, in_turn=True))
    author.say(assistant("ok"), at=2.0, begins=False)
    for text in ("two", "three"):
        author.say(user(text), at=3.0, begins=True)
        author.say(assistant("ok"), at=4.0, begins=False)
    for _ in range(2):
        author.offer(at=4.0)
    copy = author.offer(at=4.0).copy
    turns = [one.turn for one in sorted(copy.messages.values(), key=lambda one: one.number)]
    assert turns[0] == turns[1] < turns[2] == turns[3] < turns[4] == turns[5]


def test_turns_and_messages_of_two_writers_are_counted_together_also_those_whose_writers_left(a: Talker, b: Talker) -> None:
    b.author.absorb(a.turn("one"))
    b.turn("two")
    a.author.absorb(b.author.copy)
    a.turn("three")
    compacted = a.author.copy.vector.as_logged().compacted(to=1)
    below = compacted.shortened(compacted, to=1)

    assert a.author.copy.vector.tally[:2] == compacted.tally[:2] == below.tally[:2] == (6, 3)
    assert list(below.last) == ["a0"]


def test_a_mark_in_the_place_of_a_message_is_kept_as_such_and_restored_as_it_was(a: Talker, b: Talker) -> None:
    a.turn("one")
    a.turn("two")
    a.live[1] = {"role": "assistant", "content": [{"text": PLACEHOLDER}], "tracking_id": a.live[0]["tracking_id"] + "+"}
    a.live[2] = {"role": "user", "content": [{"text": PLACEHOLDER}], "tracking_id": a.live[2]["tracking_id"]}
    copy = a.offer()
    b.author.absorb(copy)
    b.begin()

    assert copy.window is not None
    assert copy.window.bodies == {}
    assert b.live == a.live
    b.author.forget(b.author.copy)
    assert sorted(b.author.copy.messages) == [Name("a0", 1), Name("a0", 4)]
    assert unpack_window(pack_window(copy.window)) == copy.window


def test_the_rest_of_a_turn_that_no_store_has_comes_behind_its_beginning_whatever_others_have_said_since() -> None:
    a, b = Talker("a"), Talker("b")
    a.say(user("look it up"), begins=True)
    a.say(assistant(tool_use("call", "find")))
    a.offer(in_turn=True)
    a.author.absorb(b.turn("meanwhile"))
    a.say(user({"toolResult": {"toolUseId": "call", "status": "success", "content": [{"text": "found"}]}}))
    a.say(assistant("here it is"))

    a.live = a.author.take_over()

    ids = [message["tracking_id"] for message in a.live if message["tracking_id"][0] == "a"]
    assert ids == ["a0-1", "a0-2", "a0-3", "a0-4"]
    assert [message["role"] for message in a.live] == ["user", "assistant"] * 3
    a.offer()
    assert not a.author.is_stale


def test_the_rest_of_a_turn_whose_beginning_was_evicted_is_not_shown_before_or_after_it_is_stored(a: Talker, b: Talker) -> None:
    b.author.absorb(a.turn("one"))
    a.say(user("two"), begins=True)
    b.author.absorb(a.offer(in_turn=True))
    b.turn("from b")
    del b.live[:-2]
    a.author.absorb(b.offer())
    a.say(assistant("answered"))

    assert a.shown() == ["from b", "answer to from b"]
    b.author.absorb(a.offer())
    assert b.shown() == a.shown() == ["from b", "answer to from b"]


def test_a_history_that_is_taken_over_is_what_a_store_shows_once_it_has_what_was_said(a: Talker, b: Talker) -> None:
    b.author.absorb(a.turn("one"))
    a.say(user("two"), begins=True)
    b.author.absorb(a.offer(in_turn=True))
    a.author.absorb(b.turn("from b"))
    a.say(assistant("answered"))
    a.say(user("three"), begins=True)

    before = a.shown()
    assert before == ["one", "answer to one", "two", "answered", "from b", "answer to from b", "three"]
    b.author.absorb(a.offer(in_turn=True))
    assert before == b.shown()[: len(before)]


@pytest.mark.parametrize("is_offered", [False, True])
def test_a_mark_in_place_of_what_is_not_stored_yet_stands_for_it_when_it_is(a: Talker, b: Talker, *, is_offered: bool) -> None:
    b.author.absorb(a.turn("one"))
    a.say(user("long"), begins=True)
    if is_offered:
        a.offering(in_turn=True)
    a.live[-1] = {"role": "user", "content": [{"text": PLACEHOLDER}], "tracking_id": a.live[-1]["tracking_id"]}
    a.author.capture(a.live)
    assert not a.author.is_stale
    b.author.absorb(a.offer(in_turn=True))
    a.say(assistant("answered"))
    b.author.absorb(a.offer())

    assert [slot.of for slot in a.author.copy.window.slots if isinstance(slot, Mark)] == [Name("a0", 3)]  # type: ignore[union-attr]
    assert b.shown() == a.shown() == ["one", "answer to one", PLACEHOLDER, "answered"]


def test_what_is_not_at_hand_of_a_turn_that_was_closed_has_no_placeholder(a: Talker, b: Talker) -> None:
    b.author.absorb(a.turn("one"))
    a.say(user("two"), begins=True)
    b.author.absorb(a.offer(in_turn=True))
    b.begin()
    b.live[-1] = {**b.live[-1], "content": [{"text": "edited"}]}
    b.offer()
    a.say(assistant("answered"))
    copy = a.offer()
    b.author.absorb(replace(copy, messages={name: one for name, one in copy.messages.items() if name.number < 4}))

    assert b.shown() == ["one", "answer to one", "two", "edited"]


def test_what_is_edited_before_a_redaction_is_known_gives_way_to_it(a: Talker, b: Talker) -> None:
    b.author.absorb(a.turn("one"))
    b.begin()
    assert a.author.redact(Name("a0", 1), {"role": "user", "content": [{"text": "redacted"}], "tracking_id": "a0-1"})
    b.author.absorb(a.author.copy)
    b.live[0] = {**b.live[0], "content": [{"text": "one"}, {"text": "edited"}]}

    assert "edited" not in str(b.offer())
    assert b.shown() == ["redacted", "answer to one"]


def test_who_redacts_what_a_mark_stands_for_may_go_on_with_it(a: Talker, b: Talker) -> None:
    a.turn("one")
    id_ = a.live[0]["tracking_id"]
    a.live[0] = {"role": "user", "content": [{"text": PLACEHOLDER}], "tracking_id": id_}
    a.offer()
    assert a.author.revise({"role": "user", "content": [{"text": "redacted"}], "tracking_id": id_})
    a.offer()
    assert not a.author.is_stale, "the mark stays where it is shown"

    a.live[0] = {"role": "user", "content": [{"text": "redacted, and edited"}], "tracking_id": id_}
    b.author.absorb(a.offer())
    b.begin()
    assert b.shown() == ["redacted, and edited", "answer to one"]


def test_roles_alternate_where_a_mark_stands_for_what_is_left_out(a: Talker, b: Talker) -> None:
    a.turn("one")
    a.turn("two")
    a.live[:2] = [{"role": "user", "content": [{"text": PLACEHOLDER}], "tracking_id": a.live[0]["tracking_id"]}]
    b.author.absorb(a.offer())

    assert b.shown() == [PLACEHOLDER, PLACEHOLDER, "two", "answer to two"]
    assert [message["role"] for message in b.live] == ["user", "assistant", "user", "assistant"]


UUID = "0b3f6a52-1c9d-4e8f-9a7b-2d6c5e4f3a21"


@pytest.mark.parametrize("id_", ["", "m1", "~", "~~x", UUID, UUID.upper(), UUID.replace("-", ""), "印"])
def test_a_mark_keeps_its_id_whatever_it_is(id_: str) -> None:
    window = Window(Stamp(3, "a"), (Name("a", 1), Mark("user", id_, Name("a", 2))))

    stored = pack_window(window)

    assert unpack_window(stored) == window
    assert (UUID in str(stored), "~" in str(stored)) == (False, id_.startswith("~") or id_ == UUID)


def test_a_window_is_read_once_and_a_large_one_is_not_kept() -> None:
    small = pack_window(Window(Stamp(4, "once"), (Name("a", 1),)))
    large = pack_window(Window(Stamp(4, "once"), tuple(Name(f"writer{number}", 1) for number in range(400))))

    assert unpack_window(small) is unpack_window(small)
    assert unpack_window(large) == unpack_window(large)
    assert unpack_window(large) is not unpack_window(large)


def test_fingerprints_are_those_of_each_message_whatever_they_hold() -> None:
    plain = [user("hello"), assistant("ok")]
    odd = [*plain, {**user("hello"), "metadata": {"custom": {"at": datetime(2026, 1, 1)}}}]

    assert fingerprints(plain) == [fingerprint(message) for message in plain]
    assert fingerprints(odd) == [fingerprint(message) for message in odd]
