"""Openings beside someone who changes what is being read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from strands_manga_memory.session.basis.place import Place
from strands_manga_memory.session.basis.tiers import Tiers
from strands_manga_memory.session.core.records import DAMAGED_TEXT
from strands_manga_memory.session.sync.conversation import Conversation
from strands_manga_memory.stores.encoding.codec import Codec
from strands_manga_memory.testing import FakeClock
from tests.unit.session.support import InlineWriter, MemoryTable, SurvivingHotStore, user

PLACE = Place.of("s", "A", "default")


class WatchedTable(MemoryTable):
    """A table in which something happens before the segments of a log are read."""

    happens: Callable[[], object] | None = None

    def batch_get(self, keys: Any) -> Any:
        happens, self.happens = self.happens, None
        if happens is not None:
            happens()
        return super().batch_get(keys)


def opened(table: MemoryTable) -> tuple[Conversation, list[Any] | None]:
    clock = FakeClock()
    tiers = Tiers(hot=None, durable=table, writer=InlineWriter(clock), codec=Codec(), clock=clock)
    conversation = Conversation(PLACE, tiers, base={"session": "s", "member": "default"})
    return conversation, conversation.open()


def talked(table: MemoryTable) -> Conversation:
    conversation, _ = opened(table)
    message = user("hello", tracking_id="hello")
    conversation.own.say(message, at=1.0)
    conversation.own.capture([message], {}, in_turn=False)
    assert conversation.commits.request(flush=True).exception() is None
    return conversation


def test_a_conversation_that_is_deleted_while_it_is_read_is_no_damaged_one() -> None:
    table = WatchedTable()
    table.happens = talked(table).bury
    assert opened(table)[1] is None


def test_a_refresh_beside_a_deletion_takes_the_deletion_over() -> None:
    table = WatchedTable()
    first = talked(table)
    reader, _ = opened(table)
    assert talked(table) is not first
    table.happens = first.bury
    reader.commits.request_refresh().result()
    assert reader.own.author.is_gone


def test_messages_of_a_segment_that_is_missing_under_an_unchanged_head_are_damaged() -> None:
    table = WatchedTable()
    talked(table)
    table.happens = lambda: [table.delete(*key) for key in list(table.rows) if "#LOG#" in key[1]]
    _, messages = opened(table)
    assert messages is not None
    assert {message["content"][0]["text"] for message in messages} == {DAMAGED_TEXT}


def test_a_turn_that_only_the_hot_tier_has_keeps_its_session_alive() -> None:
    clock, table = FakeClock(), MemoryTable()
    hot = SurvivingHotStore(clock=clock)

    def conversation() -> Conversation:
        tiers = Tiers(hot=hot, durable=table, writer=InlineWriter(clock), codec=Codec(), clock=clock)
        return Conversation(PLACE, tiers, base={"session": "s", "member": "default"})

    first = conversation()
    first.open()
    live: list[Any] = []
    for number, pause in enumerate((3 * 86_400, 5_000)):
        live.append(user("hello", tracking_id=f"hello{number}"))
        first.own.say(live[-1], at=clock())
        first.own.capture(live, {}, in_turn=False)
        saved = first.commits.request() if number else first.commits.request_flush()
        assert saved.exception() is None
        clock.advance(pause)

    assert [message["tracking_id"] for message in conversation().open() or ()] == ["hello0", "hello1"]


class TableBesideAnother(MemoryTable):
    """A table in which something happens before a head is put."""

    happens: Callable[[], object] | None = None

    def put(self, item: Any, **settings: Any) -> bool:
        happens = self.happens
        if happens is not None and str(item["sk"]).endswith("HEAD"):
            self.happens = None
            happens()
        return super().put(item, **settings)


def test_what_moves_to_the_next_life_is_in_the_log_of_that_one_alone() -> None:
    clock, table = FakeClock(), TableBesideAnother()
    codec, large = Codec(compress_from=1 << 30), "late" * 50_000  # so that its segment is put before the head

    def conversation() -> Conversation:
        tiers = Tiers(hot=None, durable=table, writer=InlineWriter(clock), codec=codec, clock=clock)
        return Conversation(PLACE, tiers, base={"session": "s", "member": "default"})

    def says(one: Conversation, text: str) -> None:
        one.own.begin_turn()
        one.own.say(user(text, tracking_id="m"), at=clock())
        one.own.capture([user(text, tracking_id="m")], {}, in_turn=False)
        assert one.commits.request_flush().exception() is None

    first = conversation()
    first.open()
    says(first, "early")
    clock.advance(3 * 86_400)
    table.happens = lambda: conversation().open()
    says(first, large)

    logs = [(key[1].split("#")[2], b"latelate" in row["data"]) for key, row in table.rows.items() if "#LOG#" in key[1]]
    assert {life for life, has_it in logs if has_it} == first.pair.copy.lives
    assert {life for life, has_it in logs if not has_it}.isdisjoint(first.pair.copy.lives)
