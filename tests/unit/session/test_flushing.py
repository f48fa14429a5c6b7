"""Flushes that meet what nobody has committed."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any, cast

import pytest

from strands_manga_memory.conversation.stubs import stub_of
from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.session.conversation import Conversation
from strands_manga_memory.session.durable_tier import SEQ_STEP_AFTER_DELETE
from strands_manga_memory.session.log import SegmentLog
from strands_manga_memory.session.records import Place, Segment
from strands_manga_memory.session.tiers import Tiers
from strands_manga_memory.session.window import CUT_TEXT, Logged
from strands_manga_memory.stores.codec import Codec
from strands_manga_memory.testing import FakeClock, FaultyHotStore, FaultyTable
from tests.unit.session.support import InlineWriter, MemoryTable, SurvivingHotStore, assistant, texts, user

PLACE = Place.of("s", "A", "default")


class HeadlessTable(MemoryTable):
    """A table that takes everything but heads, as one does for a process that is killed between the log and the head."""

    takes_heads = takes_segments = True

    def put(self, item: dict[str, Any], **named: Any) -> bool:
        if not (self.takes_heads if item["sk"].endswith("#HEAD") else self.takes_segments):
            raise StoreUnavailableError("killed before the head")
        return super().put(item, **named)


def opened(table: MemoryTable, hot: SurvivingHotStore | None = None) -> Conversation:
    clock = FakeClock()
    writer = InlineWriter(clock)
    health = {"hot_health": writer.hot_health, "durable_health": writer.durable_health}
    tiers = Tiers(hot=hot, durable=table, writer=writer, codec=Codec(), clock=clock, **health)
    conversation = Conversation(PLACE, tiers, base={"session": "s", "member": "default"})
    conversation.open()
    return conversation


def add(conversation: Conversation, text: str, answer: str, *, flush: bool = False) -> BaseException | None:
    """Say something, and keep what the window shows."""
    messages = [user(text, tracking_id=text), assistant(answer, tracking_id=answer)]
    with conversation.lock:
        shown = conversation.model.messages()
        for message in messages:
            conversation.model.append(message, at=1.0)
        conversation.model.capture([*shown, *messages], {}, in_turn=False)
    error = conversation.request(flush=flush).exception()
    conversation.tiers.writer.work_off()
    return error


def say(conversation: Conversation, text: str, answer: str | None = None, *, flush: bool = True) -> BaseException | None:
    messages = [user(text, tracking_id=text), *([assistant(answer, tracking_id=answer)] if answer else [])]
    with conversation.lock:
        for message in messages:
            conversation.model.append(message, at=1.0)
        conversation.model.capture(messages, {}, in_turn=False)
    error = conversation.request(flush=flush).exception()
    conversation.tiers.writer.work_off()
    return error


def test_what_a_killed_process_left_after_a_deletion_is_passed_over() -> None:
    table = HeadlessTable()
    first = opened(table)
    assert say(first, "deleted") is None
    first.bury()
    killed = opened(table)
    table.takes_heads = False
    assert isinstance(say(killed, "half stored"), StoreUnavailableError)
    table.takes_heads = True
    last = opened(table)
    assert say(last, "hello") is None
    assert texts(slot.message for slot in opened(table).history()) == ["hello"]


@pytest.mark.parametrize("size", [10, 800_000])
def test_what_came_late_of_a_deleted_conversation_goes_when_the_next_one_is_closed(size: int) -> None:
    """A process put a segment, or only a part of one, after the deletion, and died before it could see that."""
    table = HeadlessTable()
    first, late = opened(table), opened(table)
    assert say(first, "kept") is None
    first.bury()
    table.takes_heads = False
    assert isinstance(say(late, "deleted" + random.Random(1).randbytes(size).hex()), StoreUnavailableError)
    table.takes_heads = True
    assert any(row.get("since") == 1 for row in table.rows.values())
    last = opened(table)
    assert say(last, "hello") is None
    assert any(row.get("since") == 1 for row in table.rows.values())
    last.model.closing = True
    assert last.request_flush().exception() is None
    assert not any(row.get("since") == 1 or b"deleted" in row.get("data", b"") for row in table.rows.values())
    assert texts(slot.message for slot in opened(table).history()) == ["hello"]


def test_a_redaction_reaches_what_is_stored_by_a_number_that_the_message_had_before() -> None:
    """A flush failed at the head, and someone else shares what it had stored; the message got another number since."""
    table = HeadlessTable()
    first = opened(table)
    table.takes_heads = False
    assert isinstance(say(first, "secret"), StoreUnavailableError)
    shared = SegmentLog(table, PLACE, Codec())
    assert shared.put(shared_by(first)) == ([Segment(1, 1)], None)
    table.takes_heads = True
    first.tiers.durable_health.succeeded()
    with first.lock:
        first.model.resequence(garbage=(), beyond=5)
    assert first.request(flush=True).exception() is None
    with first.lock:
        first.model.revise(user("redacted", tracking_id="secret"), at=2.0, every=True)
    assert first.request_flush().exception() is None
    assert not any(b'text":"secret' in row.get("data", b"") for row in table.rows.values())
    assert texts(slot.message for slot in opened(table).history()) == ["redacted"]


def shared_by(conversation: Conversation) -> list[Logged]:
    """Return what a conversation has not flushed, as someone else has read it."""
    return [dataclasses.replace(slot, order=0, number=0) for slot in conversation.model.recent]


def test_numbers_of_a_life_that_was_deleted_meanwhile_say_nothing_about_those_of_the_next() -> None:
    table = HeadlessTable()
    conversation = opened(table)
    assert say(conversation, "deleted") is None
    first = conversation.model.head.first
    with conversation.lock:  # someone else left the tombstone where only he could reach
        conversation.model.restart(epoch=5, next_seq=first, now=1.0, buried=4)
    assert say(conversation, "hello") is None
    assert texts(slot.message for slot in opened(table).history()) == ["hello"]
    assert not any(b'text":"deleted' in row.get("data", b"") for row in table.rows.values())


def test_what_a_flush_stored_goes_if_a_deletion_was_noticed_elsewhere_meanwhile() -> None:
    table = MemoryTable()
    conversation, other = opened(table), opened(table)
    put = table.put

    def deleted_before(item: dict[str, Any], **named: Any) -> bool:
        if "#LOG#" in item["sk"]:
            table.put = put
            other.bury()
            with conversation.lock:  # as a save does that finds the hot tier's tombstone
                conversation.model.restart(epoch=5, next_seq=1, now=1.0, buried=4)
                conversation.model.deleted = True
        return put(item, **named)

    table.put = deleted_before
    say(conversation, "deleted")
    assert not any(b"deleted" in row.get("data", b"") for row in table.rows.values() if "#LOG#" in row["sk"])


def test_what_someone_else_has_committed_stays_if_only_the_hot_tier_says_that_it_was_deleted() -> None:
    """A tombstone came late to the hot tier, upon the next life; not all who hold that have seen it."""
    table, hot = HeadlessTable(), SurvivingHotStore()
    ours = opened(table, hot)
    assert add(ours, "first", "one", flush=True) is None
    table.takes_heads = False
    assert add(ours, "second", "two", flush=True) is None
    table.takes_heads = True
    theirs = opened(table, hot)
    theirs.model.closing = True
    assert theirs.request_flush().exception() is None
    hot.bury(PLACE.conversation, epoch=2, ttl=60.0)
    table.takes_heads = False
    for number in range(2):  # the first one is dropped
        ours.tiers.durable_health.succeeded()
        add(ours, f"late {number}", "ok", flush=True)
        ours.take_over([])
    assert texts(slot.message for slot in opened(table).history()) == ["first", "one", "second", "two"]
    assert len(opened(table).model.messages()) == 4
    table.takes_heads = True
    ours.tiers.durable_health.succeeded()
    for text in ("third", "fourth"):  # what is not ours any more goes once the durable tier knows
        assert add(ours, text, "ok", flush=True) is None
    assert texts(slot.message for slot in opened(table).history()) == ["late 1", "ok", "third", "ok", "fourth", "ok"]
    assert not any(b'text":"second' in row.get("data", b"") for row in table.rows.values())


class WatchedTable(MemoryTable):
    """A table in which something happens once before rows are looked for."""

    happens: Callable[[], object] | None = None

    def query(self, *keys: Any, **named: Any) -> Any:
        happens, self.happens = self.happens, None
        if happens is not None:
            happens()
        return super().query(*keys, **named)


def test_a_deletion_leaves_the_life_that_begins_behind_its_tombstone() -> None:
    table = WatchedTable()
    first = opened(table)
    assert say(first, "deleted") is None
    put = table.put

    def buried(item: dict[str, Any], **named: Any) -> bool:
        done = put(item, **named)
        table.put = put
        table.happens = lambda: say(opened(table), "hello")
        return done

    table.put = buried
    first.bury()
    assert texts(slot.message for slot in opened(table).history()) == ["hello"]


def test_who_knows_the_tombstone_of_one_tier_begins_behind_that_of_the_other() -> None:
    """Whoever left it deletes what is below its number, perhaps only now."""
    table = MemoryTable()
    first, other = opened(table), opened(table)
    assert say(first, "deleted") is None
    first.bury()
    with other.lock:
        other.model.restart(epoch=3, next_seq=1, now=1.0, buried=2)
    assert say(other, "hello") is None
    assert [slot.seq for slot in opened(table).history()] == [SEQ_STEP_AFTER_DELETE + 1]


def test_who_takes_a_segment_for_garbage_refuses_whoever_is_about_to_commit_it() -> None:
    table = MemoryTable()
    slow = opened(table, SurvivingHotStore())
    assert say(slow, "first") is None
    put = table.put

    def held_up(item: dict[str, Any], **named: Any) -> bool:
        if item["sk"].endswith("#HEAD"):
            table.put = put
            other = opened(table, SurvivingHotStore())  # finds a segment that nobody has committed
            other.model.closing = True
            assert other.request_flush().exception() is None
        return put(item, **named)

    table.put = held_up
    assert say(slow, "second") is None
    assert texts(slot.message for slot in opened(table).history()) == ["first", "second"]


def test_a_second_tombstone_leaves_no_number_to_who_is_still_deleting_for_the_first() -> None:
    table = MemoryTable()
    first = opened(table)
    assert say(first, "deleted") is None
    first.bury()
    before = opened(table).model.head.first
    opened(table).bury()
    assert opened(table).model.head.first >= before + SEQ_STEP_AFTER_DELETE - 1


def test_what_a_killed_process_left_is_passed_over_by_the_tenth_writer_too() -> None:
    """A head names eight writers: what goes on from one does not name all that it does."""
    table, hot = HeadlessTable(), SurvivingHotStore()
    for number in range(9):
        assert say(opened(table, hot), f"turn {number}") is None
    last, killed = opened(table, hot), opened(table)
    table.takes_heads = False
    assert isinstance(say(killed, "half stored"), StoreUnavailableError)
    table.takes_heads = True
    assert say(last, "mine") is None
    assert last.request_flush().exception() is None
    assert texts(slot.message for slot in opened(table).history()) == [*(f"turn {number}" for number in range(9)), "mine"]


def apart() -> tuple[MemoryTable, SurvivingHotStore, Conversation]:
    """Return tiers that have gone apart, and who has saved a turn in the hot one alone, whose answer he does not show."""
    table, hot = MemoryTable(), SurvivingHotStore()
    author = opened(table, hot)
    assert say(author, "first", "yes") is None
    assert say(author, "question", "answer", flush=False) is None
    with author.lock:
        author.model.capture([user("question", tracking_id="question")], {}, in_turn=False)
    assert author.request().exception() is None
    assert say(opened(table, SurvivingHotStore()), "elsewhere", "fine") is None
    return table, hot, author


def test_a_turn_whose_end_the_hot_tier_has_lost_is_closed_before_the_next_ones() -> None:
    """Its author had finished it, and will bring the end again; until then two of the user's messages would be side by side."""
    table, hot, author = apart()
    record = hot._conversations[PLACE.conversation]
    fields = {name: data for name, data in record.fields.items() if b'"answer"' not in data}
    hot._conversations[PLACE.conversation] = dataclasses.replace(record, fields=fields)
    other = opened(table, hot)
    shown = texts(other.model.messages())
    assert shown[shown.index("question") :] == ["question", CUT_TEXT]
    assert say(author, "last", "done") is None
    assert say(author, "flushed", "too") is None
    log = texts(slot.message for slot in opened(table, hot).history())
    assert sorted(log) == sorted(["first", "yes", "elsewhere", "fine", "question", "answer", "last", "done", "flushed", "too"])


def test_a_turn_whose_end_went_with_a_failover_is_closed_where_another_process_shows_its_beginning() -> None:
    """The replica had not heard of the turn; who brings it back has the end in the window no longer."""
    table, hot = MemoryTable(), SurvivingHotStore()
    author = opened(table, hot)
    assert say(author, "first", "yes") is None
    replica = hot.copy()
    assert say(author, "question", "answer", flush=False) is None
    other = opened(table, hot)
    with other.lock:
        other.model.capture(other.model.messages()[:-1], {}, in_turn=False)
    assert texts(other.model.messages())[-1] == "question"
    assert other.request().exception() is None
    hot.go_back(replica)
    assert add(other, "beside", "indeed") is None
    assert texts(opened(table, hot).model.messages())[-4:] == ["question", CUT_TEXT, "beside", "indeed"]
    assert add(author, "last", "done") is None
    assert texts(opened(table, hot).model.messages())[-4:] == ["question", "answer", "last", "done"]


def test_the_rest_of_a_turn_is_shown_where_only_its_beginning_would_be() -> None:
    """The durable tier got the beginning alone, and was gone on with; the hot tier's window had let go of all of the turn."""
    table, hot = MemoryTable(), SurvivingHotStore()
    author = opened(table, hot)
    with author.lock:
        author.model.append(user("question", tracking_id="question"), at=1.0)
        author.model.capture([user("question", tracking_id="question")], {}, in_turn=True)
    assert author.request(flush=True).exception() is None
    author.tiers.writer.work_off()
    with author.lock:
        author.model.append(assistant("answer", tracking_id="answer"), at=1.0)
        author.model.capture([], {}, in_turn=False)
    assert add(author, "second", "yes") is None
    assert texts(author.model.messages()) == ["second", "yes"]
    assert add(opened(table, SurvivingHotStore()), "elsewhere", "fine", flush=True) is None
    shown = texts(opened(table, hot).model.messages())
    assert shown[shown.index("question") :] == ["question", "answer", "second", "yes"]


def test_a_number_that_a_refused_save_gave_is_another_ones() -> None:
    """Both join the tiers, each for himself: the other one's save is taken, and gives the same numbers to other messages."""
    table, hot = HeadlessTable(), SurvivingHotStore()
    one, two = opened(table, hot), opened(table, hot)
    assert add(one, "first", "yes", flush=True) is None
    table.takes_heads = False
    for who, text in ((two, "of two"), (one, "of one"), (two, "two again")):
        assert add(who, text, f"answer to {text}") is None
    table.takes_heads = True
    assert add(opened(table, SurvivingHotStore()), "elsewhere", "fine", flush=True) is None
    write, faster = hot.write, [two]

    def overtaken(*of: Any, **named: Any) -> Any:
        if faster:
            other = faster.pop()
            durable, stored = other._copies.durable.load(), other._copies.read_hot()
            other._merger.join(durable, stored)
            shown = other.take_over([])
            with other.lock:
                other.model.capture(shown[-2:], {}, in_turn=False)
            other._saver.save()
        return write(*of, **named)

    hot.write = overtaken  # type: ignore[method-assign]
    for who in (one, two):
        assert who.request(flush=True).exception() is None
        who.tiers.writer.work_off()
    log = texts(slot.message for slot in opened(table, SurvivingHotStore()).history())
    assert log[:4] == ["first", "yes", "elsewhere", "fine"]
    assert sorted(log[4:]) == sorted(
        ["of two", "answer to of two", "of one", "answer to of one", "two again", "answer to two again"]
    )


@pytest.mark.parametrize("writers", [6, 7, 8, 9, 12])
def test_what_a_stranger_has_flushed_does_not_pass_for_ours_however_many_have_saved(writers: int) -> None:
    """A head names eight writers: one that it does not name has not necessarily been forgotten."""
    table, hot = HeadlessTable(), SurvivingHotStore()
    assert add(opened(table, hot), "first", "yes", flush=True) is None
    table.takes_segments = False
    here = [opened(table, hot) for _ in range(writers)]
    for number, who in enumerate(here):
        assert add(who, f"of {number}", f"answer to {number}") is None
    table.takes_segments, table.takes_heads = True, False
    killed, stranger = opened(table, SurvivingHotStore()), opened(table, SurvivingHotStore())
    assert add(killed, "killed", "before the head", flush=True) is None
    table.takes_heads = True
    assert add(stranger, "elsewhere", "answer elsewhere", flush=True) is None
    for who, takes_heads in ((here[-2], False), (here[-1], True)):
        table.takes_heads = takes_heads
        cast("FakeClock", who.tiers.clock).advance(5.0)
        who.request(flush=True)
        cast("InlineWriter", who.tiers.writer).work_off()
    log = texts(slot.message for slot in opened(table, SurvivingHotStore()).history())
    turns = [("first", "yes"), ("elsewhere", "answer elsewhere")]
    turns += [(f"of {number}", f"answer to {number}") for number in range(writers)]
    assert log == [text for turn in turns for text in turn]


def test_what_the_durable_tier_has_by_other_numbers_is_not_carried_by_who_knows_no_flushed_save() -> None:
    """Someone stored it in the hot tier anew, as the durable tier awaited something when it was opened."""
    table, hot = MemoryTable(), SurvivingHotStore()
    author, other, reader = (opened(table, hot) for _ in range(3))
    assert add(author, "question", "answer", flush=True) is None
    assert add(other, "beside", "indeed") is None
    with other.lock:
        other.model.pending |= {1, 2}
        other.model.resequence(garbage=(), beyond=10)
        other.model.writers = {other.model.writer: other.model.writers[other.model.writer]}
    shown = other.take_over([])
    assert shown is not None
    with other.lock:
        other.model.capture([shown[0], stub_of(shown[1]), *shown[2:]], {}, in_turn=False)
    assert other.request().exception() is None
    with reader.lock:
        stored, there = reader._copies.read_hot(), reader._copies.durable.load()
        reader._copies.opened(stored, there)
        reader._copies.last_flush = dataclasses.replace(reader._copies.last_flush, frontier=3, writers={})
        reader._merger.join(reader._copies.durable.load(), stored)
    assert texts(reader.model.messages()) == ["question", "answer", "beside", "indeed"]
    assert add(reader, "last", "done") is None
    assert texts(slot.message for slot in reader.history()) == ["question", "answer", "beside", "indeed", "last", "done"]


def test_a_copy_that_changes_while_its_messages_are_read_is_read_anew() -> None:
    """Someone else joins the two first, which gives what is awaited other numbers."""
    table, hot, _ = apart()
    read, held = hot.read, [opened]

    def overtaken(*of: Any) -> Any:
        if held:
            other = held.pop()(table, hot)
            assert say(other, "faster", "indeed") is None
        return read(*of)

    hot.read = overtaken  # type: ignore[method-assign]
    other = opened(table, hot)
    assert not held
    assert texts(other.model.messages())[-2:] == ["faster", "indeed"]
    assert other.model.pending == set()


def test_what_the_durable_tier_has_is_not_written_again_while_the_hot_one_is_down() -> None:
    """Every live conversation tries to reach the hot tier every few seconds: each time a write would be a second outage."""
    table: Any = FaultyTable(MemoryTable())
    hot: Any = FaultyHotStore(SurvivingHotStore())
    author = opened(table, hot)
    assert add(author, "first", "yes", flush=True) is None
    hot.down = True
    assert isinstance(add(author, "second", "indeed"), StoreUnavailableError)
    assert texts(opened(table, SurvivingHotStore()).model.messages()) == ["first", "yes", "second", "indeed"]
    writer = cast("InlineWriter", author.tiers.writer)
    table.calls.clear()
    for _ in range(20):
        cast("FakeClock", author.tiers.clock).advance(5.0)
        writer.time_passes()
    assert table.calls == [], "it is not even asked"
    hot.down = False
    cast("FakeClock", author.tiers.clock).advance(5.0)
    writer.time_passes()
    assert not author.is_dirty
    assert writer.is_idle
    assert texts(opened(MemoryTable(), hot).model.messages()) == ["first", "yes", "second", "indeed"]
