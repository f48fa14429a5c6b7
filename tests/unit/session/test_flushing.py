"""Flushes that meet what nobody has committed."""

from __future__ import annotations

from typing import Any

from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.session.conversation import Conversation
from strands_manga_memory.session.records import Place
from strands_manga_memory.session.tiers import Tiers
from strands_manga_memory.stores.codec import Codec
from strands_manga_memory.testing import FakeClock
from tests.unit.session.support import InlineWriter, MemoryTable, texts, user

PLACE = Place.of("s", "A", "default")


class HeadlessTable(MemoryTable):
    """A table that takes everything but heads, as one does for a process that is killed between the log and the head."""

    takes_heads = True

    def put(self, item: dict[str, Any], **named: Any) -> bool:
        if item["sk"].endswith("#HEAD") and not self.takes_heads:
            raise StoreUnavailableError("killed before the head")
        return super().put(item, **named)


def opened(table: MemoryTable) -> Conversation:
    clock = FakeClock()
    writer = InlineWriter(clock)
    tiers = Tiers(hot=None, durable=table, writer=writer, codec=Codec(), clock=clock)
    conversation = Conversation(PLACE, tiers, base={"session": "s", "member": "default"})
    conversation.open()
    return conversation


def say(conversation: Conversation, text: str) -> BaseException | None:
    with conversation.lock:
        message = user(text, tracking_id=text)
        conversation.model.append(message, at=1.0)
        conversation.model.capture([message], {}, in_turn=False)
    return conversation.request(flush=True).exception()


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
