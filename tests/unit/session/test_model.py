"""The model of a conversation, without I/O; what several processes do with it at once is in ``test_conversation_machine``."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest

from strands_manga_memory.conversation.stubs import stub_of
from strands_manga_memory.exceptions import ConflictError
from strands_manga_memory.session.apart import Apart
from strands_manga_memory.session.model import Model
from strands_manga_memory.session.rebasing import Carried
from strands_manga_memory.session.records import Draft, Head, Stored
from strands_manga_memory.session.window import CUT_TEXT, Body, Logged, body_of, mended, parse_runs, runs_text, window_text
from strands_manga_memory.stores.codec import dump, load
from tests.unit.session.support import assistant, logged, texts, tool_use, user


def new(**named: Any) -> Model:
    return Model(base={"session": "s"}, now=0.0, **named)


def say(model: Model, *messages: Any, at: float = 1.0) -> list[Any]:
    """Append messages as an agent announces them; each gets an id of its own."""
    said = []
    for message in messages:
        model_message = {**message, "tracking_id": message.get("tracking_id") or f"id-{model.head.messages}-{id(model)}"}
        model.append(model_message, at=at + model.head.messages / 1000)
        said.append(model_message)
    return said


def result(id_: str) -> Any:
    return user({"toolResult": {"toolUseId": id_, "status": "success", "content": [{"text": "found"}]}})


def save(model: Model, *, durable: bool = True) -> Draft:
    draft = model.draft(now=5.0, ttl=60.0, durable=durable)
    model.saved(draft, keep=durable)
    return draft


def flush(model: Model, draft: Draft) -> None:
    model.flushed(draft, dataclasses.replace(draft.head, pending=""))


def stored(draft: Draft) -> Stored:
    """Return what a tier would give back of a draft, as objects of its own."""
    return Stored(
        epoch=draft.epoch,
        version=draft.version,
        writers=dict(draft.writers),
        base=dict(draft.base),
        head=copy.deepcopy(draft.head),
        slots=copy.deepcopy([*draft.slots]),
        fields=dict(draft.fields),
    )


def restored(draft: Draft) -> Model:
    model = new()
    copied = stored(draft)
    for slot in copied.slots:
        if isinstance(slot, Logged):
            slot.order = slot.number = 0
    model.adopt(copied, pending=True)
    return model


# Appending


def test_turns_are_counted_by_user_requests() -> None:
    model = new()
    say(model, user("one"), assistant(tool_use("t", "find")), result("t"), assistant("a"))
    say(model, user("two"), user("and more"), assistant("b"))
    say(model, assistant("out of turn"))
    assert model.head.turns == 2
    assert [slot.turn for slot in model.recent] == [1, 1, 1, 1, 2, 2, 2, 2]
    assert model.head.messages == 8
    assert model.unsaved == 8


def test_a_record_has_the_message_the_turn_the_time_and_more() -> None:
    model = new()
    (message,) = say(model, user("hi"), at=7.0)
    model.append(assistant("ho"), at=8.0, extra={"intent": "greet"})
    first, second = (load(slot.record) for slot in model.recent)
    turn = {"turn": 1, "turn_id": f"{model.writer}.1"}
    assert first == {"message": message, **turn, "ordinal": 1, "at": 7.0}
    assert second == {"message": assistant("ho"), **turn, "ordinal": 2, "at": 8.0, "intent": "greet"}


def test_an_answer_in_another_process_belongs_to_the_turn_that_the_window_ends_with() -> None:
    """A turn that waited for the answer to an interrupt is the same in whichever process that comes."""
    model, other = new(), new()
    said = say(model, user("one"), assistant(tool_use("t", "find")))
    model.capture(said, {}, in_turn=False)
    other.adopt(stored(save(model)), pending=True)
    say(other, result("t"), assistant("done"))
    say(other, user("two"))
    assert [(slot.of, slot.ordinal) for slot in other.recent] == [
        (f"{model.writer}.1", 3),
        (f"{model.writer}.1", 4),
        (f"{other.writer}.1", 1),
    ]


def test_an_edited_message_belongs_to_the_turn_of_the_original() -> None:
    model = new()
    said = say(model, user("one"), assistant("two"))
    edited = {**said[0], "content": [{"text": "edited"}]}
    model.capture([edited, said[1], user("synthesized")], {}, in_turn=False)
    first, second, third = save(model).slots
    assert isinstance(first, Body)
    assert (first.of, first.ordinal, second.of, second.ordinal, third.of) == (second.of, 1, f"{model.writer}.1", 2, "")
    assert load(first.record)["turn_id"] == second.of


def test_a_later_change_of_the_message_does_not_change_the_log() -> None:
    model = new()
    (message,) = say(model, user("hi"))
    message["content"][0]["text"] = "changed"
    assert texts([model.recent[0].message]) == ["hi"]


def test_without_a_window_the_log_is_kept() -> None:
    model = new(keeps_window=False)
    said = say(model, user("hi"), assistant("ho"))
    model.capture([], {}, in_turn=False)
    draft = save(model)
    assert draft.slots == ()
    assert [slot.message for slot in draft.pending] == said


# Revising


def test_a_revision_replaces_the_latest_of_its_id() -> None:
    model = new()
    say(model, user("a", tracking_id="x"), user("b", tracking_id="x"))
    model.revise(user("c", tracking_id="x"), at=9.0)
    assert texts(slot.message for slot in model.slots) == ["a", "c"]
    assert texts(slot.message for slot in model.recent) == ["a", "c"]
    record = load(model.recent[1].record)
    assert (record["revision"], record["revised"], record["turn"]) == (1, 9.0, 1)
    assert model.revise(user("d", tracking_id="unknown"), at=9.0) is None


def test_a_revision_of_every_one() -> None:
    model = new()
    say(model, user("a", tracking_id="x"), user("b", tracking_id="x"))
    model.revise(user("c", tracking_id="x"), at=9.0, every=True)
    assert texts(slot.message for slot in model.slots) == ["c", "c"]


def test_a_revision_reaches_edited_forms_too() -> None:
    model = new()
    (message,) = say(model, user("long", tracking_id="x"))
    short = user("short", tracking_id="x")
    model.capture([short], {}, in_turn=True)
    model.revise(user("gone", tracking_id="x"), at=9.0)
    assert texts(slot.message for slot in model.slots) == ["gone"]
    assert texts(slot.message for slot in model.recent) == ["gone"]
    assert message["content"] == [{"text": "long"}]


def test_a_revision_of_what_is_flushed_is_kept_for_the_next_flush() -> None:
    model = new()
    say(model, user("a", tracking_id="x"))
    draft = save(model)
    flush(model, draft)
    assert not model.is_dirty
    model.begin_turn()
    revised = model.revise(user("b", tracking_id="x"), at=9.0)
    assert model.revised == [revised]
    assert model.is_dirty


def test_a_revision_during_a_flush_is_not_taken_for_flushed() -> None:
    model = new()
    say(model, user("a", tracking_id="x"))
    draft = save(model)
    model.revise(user("b", tracking_id="x"), at=9.0)
    flush(model, draft)
    assert texts(slot.message for slot in model.revised) == ["b"]
    assert texts(slot.message for slot in draft.pending) == ["a"]


# Capturing


def test_a_capture_notices_only_changes() -> None:
    model = new()
    messages = say(model, user("a"), assistant("b"))
    fields = {"state.agent": dump({"k": 1})}
    model.capture(messages, fields, in_turn=False)
    save(model)
    model.capture(copy.deepcopy(messages), dict(fields), in_turn=False)
    assert not model.is_dirty
    model.capture(messages[1:], fields, in_turn=False)
    assert model.is_dirty
    assert window_text(save(model).slots) == "2"


def test_a_capture_keeps_one_slot_for_one_message() -> None:
    """A window slot that is in the queue too is not two slots."""
    model = new()
    same = user("again", tracking_id="x")
    model.append(same, at=1.0)
    draft = save(model)
    flush(model, draft)
    model.append(same, at=2.0)
    model.capture([same, same], {}, in_turn=True)
    assert window_text(save(model).slots) == "1-2"


def test_evicted_messages_are_logged_all_the_same() -> None:
    model = new()
    messages = say(model, user("a"), assistant("b"), user("c"), assistant("d"))
    model.capture(messages[2:], {}, in_turn=False)
    draft = save(model)
    assert window_text(draft.slots) == "3-4"
    assert [slot.seq for slot in draft.pending] == [1, 2, 3, 4]
    assert draft.head.pending == "1-4"


# Saving


def test_the_same_number_again_if_nothing_changed() -> None:
    model = new()
    say(model, user("a"))
    first = model.draft(now=1.0, ttl=60.0, durable=True)
    again = model.draft(now=2.0, ttl=60.0, durable=True)
    assert (first.number, again.number) == (1, 1)
    assert model.is_dirty
    say(model, assistant("b"))
    assert model.draft(now=3.0, ttl=60.0, durable=True).number == 2
    assert model.unsaved == 2


def test_what_was_appended_during_a_save_stays_unsaved() -> None:
    model = new()
    say(model, user("a"))
    draft = model.draft(now=1.0, ttl=60.0, durable=True)
    say(model, assistant("b"))
    model.saved(draft, keep=True)
    assert model.unsaved == 1
    assert model.is_dirty


def test_an_open_turn_is_told_until_it_ends() -> None:
    model = new()
    model.begin_turn()
    said = say(model, user("a"))
    model.capture(said, {}, in_turn=True)
    first = save(model)
    assert (first.head.open, first.head.next) == ({model.writer: "1"}, 2)
    said += say(model, assistant("b"))
    model.capture(said, {}, in_turn=False)
    last = save(model)
    assert (last.head.open, last.head.next) == ({}, 3)
    assert [slot.seq for slot in last.pending] == [1, 2]


def test_without_a_durable_tier_only_what_is_new_is_sent() -> None:
    model = new()
    say(model, user("a"))
    save(model, durable=False)
    say(model, assistant("b"))
    draft = save(model, durable=False)
    assert [slot.seq for slot in draft.pending] == [2]
    assert draft.head.pending == ""


def test_bodies_get_numbers_that_are_never_used_again() -> None:
    model = new()
    said = say(model, user("a"))
    model.capture([*said, user("synthesized")], {}, in_turn=False)
    assert window_text(save(model).slots) == "1,x1"
    model.capture([*said, user("synthesized"), user("another")], {}, in_turn=False)
    assert window_text(save(model).slots) == "1,x1,x2"
    model.capture([user("another"), user("third")], {}, in_turn=False)
    assert window_text(save(model).slots) == "x2-3" or window_text(model.slots) == "x2,x3"


# Rebasing


def pair() -> tuple[Model, Model]:
    """Two processes that opened the same conversation of one turn."""
    first = new()
    said = say(first, user("hello"), assistant("hi"))
    first.capture(said, {"state.agent": dump({"a": 0, "both": 0})}, in_turn=False)
    draft = save(first)
    return first, restored(draft)


def turn(model: Model, word: str, live: list[Any], **state: Any) -> Draft:
    said = [*live, *say(model, user(word), assistant(f"{word}!"))]
    before = load(model.fields.get("state.agent", b"{}"))
    model.capture(said, {"state.agent": dump({**before, **state})}, in_turn=False)
    return model.draft(now=6.0, ttl=60.0, durable=True)


def test_the_winners_window_then_our_whole_turns() -> None:
    one, other = pair()
    mine = turn(one, "one", one.messages())
    one.saved(mine, keep=True)
    turn(other, "other", other.messages())
    other.rebase(stored(mine))
    assert texts(other.messages()) == ["hello", "hi", "one", "one!", "other", "other!"]
    draft = save(other)
    assert window_text(draft.slots) == "1-6"
    assert [slot.turn for slot in draft.slots if isinstance(slot, Logged)] == [1, 1, 2, 2, 3, 3]
    assert [load(slot.record)["turn"] for slot in draft.pending if slot.seq > 4] == [3, 3]
    assert draft.head.messages == 6
    assert parse_runs(draft.head.pending, record="r") == [1, 2, 3, 4, 5, 6]
    assert other.stale


def test_nothing_is_appended_twice_when_our_save_is_in_there() -> None:
    one, other = pair()
    lost = turn(one, "one", one.messages())  # stored, but the answer was lost
    other = restored(lost)
    theirs = turn(other, "other", other.messages())
    one.rebase(stored(theirs))
    assert texts(one.messages()) == ["hello", "hi", "one", "one!", "other", "other!"]


def test_evictions_and_manager_state_of_the_loser_are_dropped() -> None:
    one, other = pair()
    mine = turn(one, "one", one.messages()[2:])
    mine_fields = {**mine.fields, "state.manager": dump({"removed": 2})}
    other.capture([], {"state.manager": dump({"removed": 9})}, in_turn=False)
    turn(other, "other", [])
    winner = stored(mine)
    winner.fields = mine_fields
    other.rebase(winner)
    assert texts(other.messages()) == ["one", "one!", "other", "other!"]
    assert load(other.fields["state.manager"]) == {"removed": 2}


def test_agent_state_is_merged_by_top_level_key() -> None:
    one, other = pair()
    mine = turn(one, "one", one.messages(), a=1, both=1)
    one.saved(mine, keep=True)
    turn(other, "other", other.messages(), b=2, both=2)
    other.rebase(stored(mine))
    assert load(other.fields["state.agent"]) == {"a": 1, "both": 2, "b": 2}


def test_an_active_interrupt_is_not_merged() -> None:
    one, other = pair()
    waiting = dump({"activated": True, "interrupts": {}, "context": {}})
    mine = turn(one, "one", one.messages())
    winner = stored(mine)
    winner.fields = {**winner.fields, "state.interrupts": waiting}
    with pytest.raises(ConflictError, match="interrupt"):
        other.rebase(winner)
    other.fields = {**other.fields, "state.interrupts": waiting}
    with pytest.raises(ConflictError, match="interrupt"):
        other.rebase(stored(mine))


def test_while_a_merge_waits_a_capture_does_not_undo_it() -> None:
    one, other = pair()
    mine = turn(one, "one", one.messages())
    live = other.messages()
    turn(other, "other", live)
    other.rebase(stored(mine))
    other.capture(live, {"state.agent": dump({"later": 1})}, in_turn=False)
    assert texts(other.messages()) == ["hello", "hi", "one", "one!", "other", "other!"]
    assert load(other.fields["state.agent"])["later"] == 1


def test_a_writer_that_was_pushed_out_of_the_vector_is_not_doubled() -> None:
    one, _ = pair()
    mine = turn(one, "one", one.messages())
    one.saved(mine, keep=True)
    draft = mine
    for number in range(10):
        worker = restored(draft)
        draft = turn(worker, f"worker {number}", worker.messages())
    assert one.writer not in draft.writers
    turn(one, "last", one.messages())
    there = stored(draft)
    one.rebase(there, logged={slot.identity: slot for slot in there.slots if isinstance(slot, Logged)})
    words = [text for text in texts(one.messages()) if not text.endswith("!")]
    assert words == ["hello", "hi", "one", *(f"worker {number}" for number in range(10)), "last"]


def test_a_writer_that_a_copy_of_many_others_has_never_known_has_its_turns_to_save() -> None:
    one, other = pair()
    one.saved(turn(one, "one", one.messages()), keep=True)
    draft = turn(other, "other", other.messages())
    for number in range(10):
        worker = restored(draft)
        draft = turn(worker, f"worker {number}", worker.messages())
    there = stored(draft)
    doubtful = texts(slot.message for slot in one.doubtful(there))
    assert [text for text in doubtful if not text.endswith("!")] == ["hello", "hi", "one"]
    one.rebase(there, logged={slot.identity: slot for slot in there.slots if isinstance(slot, Logged)})
    words = [text for text in texts(one.messages()) if not text.endswith("!")]
    assert words == ["hello", "hi", "other", *(f"worker {number}" for number in range(10)), "one"]


def test_what_was_said_and_dropped_or_edited_while_a_save_was_on_its_way_is_saved_with_the_next() -> None:
    """There is no durable tier: the model keeps nothing that is saved, but what the window shows."""
    model = new()
    first = say(model, user("hello"), assistant("hi"))
    on_its_way = model.draft(now=5.0, ttl=60.0, durable=False)
    _, edited = say(model, user("dropped"), assistant("edited"))
    model.capture([*first, {**edited, "content": [{"text": "ed..."}]}], {}, in_turn=False)
    model.saved(on_its_way, keep=False)
    assert texts(slot.message for slot in save(model, durable=False).pending) == ["dropped", "edited"]
    assert [slot.seq for slot in model.recent] == [1, 2]


# The rest


def test_a_restart_begins_with_nothing() -> None:
    model = new()
    say(model, user("a"))
    save(model)
    model.restart(epoch=4, next_seq=77, now=9.0)
    assert (model.epoch, model.version, model.slots, model.recent, model.fields) == (4, 0, [], [], {})
    assert (model.head.next, model.head.first, model.head.since) == (77, 77, 4)
    assert not model.is_dirty
    say(model, user("b"))
    assert save(model).pending[0].seq == 77


def test_resequencing_gives_new_numbers_in_order() -> None:
    model = new()
    said = say(model, user("a"), assistant("b"))
    model.capture(said, {}, in_turn=False)
    save(model)
    model.resequence(garbage=[1], beyond=50)
    draft = save(model)
    assert window_text(draft.slots) == "50-51"
    assert [texts([slot.message])[0] for slot in draft.pending] == ["a", "b"]
    assert draft.head.garbage == "1"


def test_resequencing_leaves_what_comes_before_the_collision() -> None:
    model = new()
    said = say(model, user("a"), assistant("b"), user("c"), assistant("d"))
    model.capture(said, {}, in_turn=False)
    save(model)
    model.resequence(garbage=[3], beyond=9, first=3)
    assert window_text(save(model).slots) == "1-2,9-10"


def test_after_a_fork_unsaved_messages_are_the_parents() -> None:
    model = new()
    said = say(model, user("saved"))
    save(model)
    said += say(model, user("unsaved"))
    model.become_another_writer()
    assert model.unsaved == 0
    assert texts(model.messages()) == ["saved", "unsaved"]
    assert isinstance(model.slots[1], Body)
    draft = save(model)
    assert texts(slot.message for slot in draft.pending) in (["saved"], [])


def test_after_a_fork_a_save_of_the_parent_that_is_under_way_does_not_pass_for_one_that_is_known() -> None:
    model = new()
    say(model, user("saved"))
    parent = save(model)
    say(model, user("on its way"))
    under_way = model.draft(now=2.0, ttl=60.0, durable=True)
    assert under_way.writers == {parent.writer: 2}
    model.become_another_writer()
    assert dict(model.draft(now=3.0, ttl=60.0, durable=True).writers) == {parent.writer: 1, model.writer: 1}


def test_live_objects_are_given_back_where_they_are_unchanged() -> None:
    model = new()
    said = say(model, user("a"), assistant("b"))
    edited = copy.deepcopy(said[1])
    edited["content"][0]["text"] = "edited"
    messages = model.messages([said[0], edited])
    assert messages[0] is said[0]
    assert texts(messages) == ["a", "b"]


def test_the_rest_of_a_turn_is_called_like_its_first_part_where_someone_has_moved_that() -> None:
    """The first part is in nobody's window any more: only the head says that its numbers are others than ours."""
    model = new()
    model.begin_turn()
    say(model, user("one"), assistant(tool_use("t", "find")))
    first = stored(save(model))
    (late,) = say(model, result("t"))
    draft = model.draft(now=5.0, ttl=60.0, durable=True)
    assert [slot.seq for slot in draft.pending] == [1, 2, 3]
    winner = dataclasses.replace(first, version=7, writers={**first.writers, "other": 3}, slots=[])
    winner.head = dataclasses.replace(first.head, next=20, turns=9, open={model.writer: "17-18"}, pending="17-18")
    moved = [dataclasses.replace(slot, seq=slot.seq + 16, turn=8, order=0, number=0) for slot in draft.pending[:2]]
    assert model.has_moved_in(winner)
    model.rebase(winner, logged={slot.identity: slot for slot in moved})
    assert not model.has_moved_in(winner)
    after = model.draft(now=6.0, ttl=60.0, durable=True)
    assert [(slot.seq, slot.turn) for slot in after.pending if slot.tracking_id == late["tracking_id"]] == [(20, 8)]
    assert [slot.seq for slot in after.slots if isinstance(slot, Logged)] == [17, 18, 20]


def test_a_turn_that_goes_on_after_a_refusal_leaves_a_number_that_someone_else_has_taken() -> None:
    """The first part is stored in its place, and the number that was set aside for the rest has someone else's message."""
    model = new()
    model.begin_turn()
    question = say(model, user("refused"))
    model.capture(question, {}, in_turn=False)  # it ended without an answer, so the next question belongs to it
    first = save(model)
    flush(model, first)
    winner = stored(first)
    model.begin_turn()
    again = [*question, *say(model, user("again"))]
    model.capture(again, {}, in_turn=True)
    refused = model.draft(now=6.0, ttl=60.0, durable=True)
    assert [slot.seq for slot in refused.slots if isinstance(slot, Logged)] == [1, 2]
    theirs = dataclasses.replace(refused.pending[-1], tracking_id="theirs", seq=2, turn=2, order=0, number=0)
    winner.version, winner.writers, winner.slots = 2, {**winner.writers, "other": 1}, [*winner.slots, theirs]
    winner.head = dataclasses.replace(winner.head, next=refused.head.next, turns=2)
    model.rebase(winner, logged={slot.identity: slot for slot in winner.slots if isinstance(slot, Logged)})
    numbers = [slot.seq for slot in save(model).slots if isinstance(slot, Logged)]
    assert len(set(numbers)) == 3


def test_the_rest_of_a_turn_is_carried_by_the_number_of_that_turn() -> None:
    """Its first part is stored there already, and someone else's turn behind that."""
    model, author = new(), new()
    author.begin_turn()
    said = say(author, user("one"))
    author.capture(said, {}, in_turn=True)
    winner = stored(save(author))
    said += say(author, assistant("two"), assistant("three"))
    author.capture(said, {}, in_turn=False)
    rest = [dataclasses.replace(slot, order=0, number=0) for slot in save(author).pending[1:]]
    theirs = dataclasses.replace(rest[-1], tracking_id="theirs", seq=2, turn=2, turn_id="theirs.1")
    winner.version, winner.slots = 7, [*winner.slots, theirs]
    winner.head = dataclasses.replace(winner.head, next=3, turns=2)
    there = {slot.identity: slot for slot in winner.slots if isinstance(slot, Logged)}
    model.rebase(winner, carried=Carried(messages=rest, shown=rest, seen=author.writers), logged=there)
    slots = [slot for slot in save(model).slots if isinstance(slot, Logged)]
    assert [(slot.seq, slot.turn) for slot in slots] == [(2, 2), (1, 1), (3, 1), (4, 1)]


def test_a_turn_that_ended_with_a_call_waits_for_its_results() -> None:
    """An error ended it; the results that say so come with the next invocation."""
    model = new()
    model.begin_turn()
    said = say(model, user("one"), assistant(tool_use("t", "find")))
    model.capture(said, {}, in_turn=False)
    first = save(model)
    assert first.head.open == {model.writer: "1-2"}
    say(model, result("t"))
    assert [slot.seq for slot in save(model).pending] == [1, 2, 3]
    say(model, assistant("done"))
    model.touched = True
    assert save(model).head.open == {}


def test_turns_of_others_whose_ends_are_given_up_are_closed_in_the_window() -> None:
    author = new()
    for id_ in ("a", "b"):
        say(author, user(id_), assistant(tool_use(id_, "lookup")), result(id_), assistant(f"found {id_}"))
    say(author, user("c"), assistant("d"))
    copy_ = stored(save(author))
    lost = {slot.seq for slot in copy_.slots if texts([slot.message])[0].startswith("found")}
    copy_.slots = [slot for slot in copy_.slots if slot.seq not in lost]
    model = new()
    model.adopt(copy_, pending=True)
    assert not model.cut_ids()
    model.let_go(held=model.pending - lost, writers={})
    assert model.pending.isdisjoint(lost)
    assert model.stale, "the live agent gets to see what closes them"
    shown = mended(model.messages(), cut=model.cut_ids())
    assert [text for text in texts(shown) if not text.startswith("tool")] == ["a", CUT_TEXT, "b", CUT_TEXT, "c", "d"]
    model.show(shown)
    say(model, user("e"), assistant("f"))
    later = new()
    later.adopt(stored(save(model)), pending=True)
    assert mended(later.messages(), cut=later.cut_ids()) == shown + later.messages()[-2:]


def test_what_is_not_given_up_is_not_closed() -> None:
    author = new()
    say(author, user("a"), assistant(tool_use("a", "lookup")), result("a"), user("c"), assistant("d"))  # the model failed
    model = new()
    model.adopt(stored(save(author)), pending=True)
    model.let_go(held=model.pending, writers={})
    assert not model.stale
    assert not model.cut_ids()


def moved(draft: Draft, *, by: int, lacking: tuple[str, ...] = ()) -> tuple[Stored, dict[Any, Logged]]:
    """Return what someone else has made of a draft: other numbers, nothing flushed; and what he could read of its log."""
    there = stored(draft)
    there.slots = [slot for slot in there.slots if texts([slot.message])[0] not in lacking]
    for slot in there.slots:
        assert isinstance(slot, Logged)
        slot.seq, slot.order, slot.number = slot.seq + by, 0, 0
    there.version, there.writers = there.version + 1, {**there.writers, "other": 1}
    seqs = runs_text(slot.seq for slot in there.slots if isinstance(slot, Logged))
    there.head = dataclasses.replace(there.head, next=there.head.next + by, pending=seqs)
    return there, {slot.identity: slot for slot in there.slots if isinstance(slot, Logged)}


def test_what_someone_has_given_other_numbers_is_kept_until_it_is_flushed() -> None:
    """The hot tier may lose it yet, and whoever gave the numbers may be killed."""
    author = new()
    say(author, user("question"), assistant("answer"))
    there, logged_there = moved(save(author), by=6)
    assert author.has_moved_in(there)
    there.slots = []  # he has let go of it in the window
    author.rebase(there, logged=logged_there)
    assert author.pending == {7, 8}
    assert not author.lacks(())
    assert [slot.seq for slot in save(author).pending] == [7, 8]
    assert not author.has_moved_in(there)


def test_a_revision_reaches_what_someone_else_has_flushed_as_it_was_before() -> None:
    """He let go of it in the window; its author learns of the flush when he merges."""
    author = new()
    (said, _) = say(author, user("secret"), assistant("answer"))
    there, logged_there = moved(save(author), by=6)
    author.revise({**said, "content": [{"text": "redacted"}]}, at=2.0)
    there.slots, there.head = [], dataclasses.replace(there.head, pending="")
    author.rebase(there, logged=logged_there)
    assert texts(slot.message for slot in author.revised) == ["redacted"]
    assert author.is_behind


@pytest.mark.parametrize("shows_a_mark", [False, True])
def test_what_was_lost_although_its_save_is_included_is_stored_anew_where_its_turn_is(shows_a_mark: bool) -> None:
    """Someone carried the turn without the answer: the hot tier had lost that, and his window only showed a mark."""
    author = new()
    say(author, user("question"), assistant("answer"), user("second"), assistant("yes"))
    there, logged_there = moved(save(author), by=6, lacking=("answer",))
    if shows_a_mark:
        answer = author.slots[1]
        there.slots.insert(1, body_of(stub_of(answer.message), edits=answer))
    author.rebase(there, logged=logged_there)
    assert author.unsaved == 1
    draft = save(author)
    assert {slot.tracking_id for slot in draft.pending} == {slot.tracking_id for slot in author.recent}
    assert texts(slot.message for slot in draft.pending) == ["question", "second", "yes", "answer"]
    assert texts(author.messages()) == ["question", "[…]" if shows_a_mark else "answer", "second", "yes"]


def test_a_whole_turn_that_was_lost_comes_last() -> None:
    author = new()
    say(author, user("question"), assistant("answer"), user("second"), assistant("yes"))
    there, logged_there = moved(save(author), by=6, lacking=("question", "answer"))
    author.rebase(there, logged=logged_there)
    assert texts(author.messages()) == ["second", "yes", "question", "answer"]


def test_the_rest_of_a_turn_that_was_lost_is_not_shown_without_its_beginning() -> None:
    author = new()
    say(author, user("question"), assistant(tool_use("t", "lookup")), result("t"), assistant("answer"))
    draft = save(author)
    flush(author, dataclasses.replace(draft, pending=draft.pending[:2]))
    author.recent = [slot for slot in author.recent if slot.seq > 2]
    author.pending = {3, 4}
    there, _ = moved(draft, by=6)
    there.slots, there.head = [], dataclasses.replace(there.head, pending="")
    author.rebase(there, logged={})
    assert author.messages() == []
    assert texts(slot.message for slot in save(author).pending) == ["toolResult", "answer"]


def test_what_nobody_has_looked_for_is_not_taken_for_lost() -> None:
    author = new()
    say(author, user("question"), assistant("answer"))
    there, _ = moved(save(author), by=0)
    there.slots = []
    author.rebase(there)
    assert author.unsaved == 0
    assert not author.lacks(())


@pytest.mark.parametrize(("both_have_the_third", "number"), [(False, 0), (True, 2)])
def test_a_number_that_the_durable_tier_awaits_is_another_ones_unless_both_have_a_later_one(
    both_have_the_third: bool, number: int
) -> None:
    one, two, three = (logged({**user(text), "tracking_id": text}, seq) for seq, text in enumerate(("one", "two", "three"), 1))
    head = Head(created=0, active=0, next=4, pending="2")
    durable = Stored(epoch=1, version=1, head=head, slots=[one, *([three] if both_have_the_third else [])])
    apart = Apart(loose={two.identity: two}, known=[one, two, three], window=[one, two, three], head=head, writers={})
    carried = Carried.onto(durable, [two], of=apart, log=(), first=1)
    assert [slot.seq for slot in carried.messages] == [number]
    assert texts(slot.message for slot in carried.shown) == ["two"]
