"""Flushes that meet what nobody has committed."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import pytest

from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.session.conversation import Conversation
from strands_manga_memory.session.durable_tier import SEQ_STEP_AFTER_DELETE
from strands_manga_memory.session.log import SegmentLog
from strands_manga_memory.session.records import Place, Segment
from strands_manga_memory.session.tiers import Tiers
from strands_manga_memory.session.window import CUT_TEXT, Logged
from strands_manga_memory.stores.codec import Codec
from strands_manga_memory.testing import FakeClock
from tests.unit.session.support import InlineWriter, MemoryTable, SurvivingHotStore, assistant, texts, user

PLACE = Place.of("s", "A", "default")


class HeadlessTable(MemoryTable):
    """A table that takes everything but heads, as one does for a process that is killed between the log and the head."""

    takes_heads = True

    def put(self, item: dict[str, Any], **named: Any) -> bool:
        if item["sk"].endswith("#HEAD") and not self.takes_heads:
            raise StoreUnavailableError("killed before the head")
        return super().put(item, **named)


def opened(table: MemoryTable, hot: SurvivingHotStore | None = None) -> Conversation:
    clock = FakeClock()
    writer = InlineWriter(clock)
    tiers = Tiers(hot=hot, durable=table, writer=writer, codec=Codec(), clock=clock)
    conversation = Conversation(PLACE, tiers, base={"session": "s", "member": "default"})
    conversation.open()
    return conversation


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
