"""The replicas over real stores: what they store, what it costs, and what they make of damage."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.session.basis.facts import has_news
from strands_manga_memory.session.core.cells import packed
from strands_manga_memory.session.core.identity import Name
from strands_manga_memory.session.core.registers import WITH_WINDOW
from strands_manga_memory.session.replicas import durable
from strands_manga_memory.stores import Codec, InMemoryHotStore
from strands_manga_memory.stores.encoding.derived import DERIVED
from tests.unit.session.replicas.parts import Process
from tests.unit.session.support import (
    BLOCKS,
    KINDS,
    CountingHot,
    CountingTable,
    MemoryTable,
    Stores,
    assistant,
    open_stores,
    texts,
    user,
)

LOST = "[This message could not be read: its record is damaged.]"


@pytest.fixture(params=KINDS)
def stores(request: pytest.FixtureRequest) -> Stores:
    return open_stores(request.param, request)


@pytest.fixture
def process(stores: Stores) -> Callable[..., Process]:
    return lambda **more: Process(stores.hot, stores.durable, stores.session, **more)


def test_what_was_saved_is_restored_as_it_was(process: Callable[..., Process]) -> None:
    one = process().open()
    one.say(user(*BLOCKS.values()), begins=True)
    one.say(assistant("ok"))
    one.author.capture(one.live)
    one.author.keep("goals", {"a": {"b": [1, "ん"]}, "empty": {}}, depth=2)
    one.save()
    one.turn("second")
    del one.live[2:3]
    one.live[0] = {**one.live[0], "content": [{"text": "edited"}]}
    one.author.capture(one.live)
    one.save()

    other = process().open()
    assert other.live == one.live
    assert other.author.layer("goals") == {"a": {"b": [1, "ん"]}, "empty": {}}
    one.flush()
    third = process().open()
    assert third.live == one.live
    assert third.history()[0].value["content"] == [*BLOCKS.values()]
    assert len(third.history()) == 4


def test_a_conversation_that_the_hot_tier_lost_is_restored_from_the_durable_one(
    stores: Stores, process: Callable[..., Process]
) -> None:
    if stores.durable is None:
        return
    one = process().open()
    for at in range(6):
        one.turn(f"turn {at}")
    one.flush()
    stores.lose_hot()

    assert process().open().live == one.live


def test_values_over_what_one_item_holds_are_stored_whole(process: Callable[..., Process]) -> None:
    noise = random.Random(1).randbytes(500_000).hex()  # a million characters that hardly compress
    one = process().open()
    one.turn("large", noise)
    one.author.keep("large", {"key": noise})
    one.flush()
    one.turn("after it")
    one.flush()

    other = process().open()
    assert other.live == one.live
    assert other.author.layer("large") == {"key": noise}


def test_a_turn_with_a_hot_tier_is_one_round_trip_with_its_own_messages() -> None:
    hot, table = CountingHot(InMemoryHotStore()), CountingTable(MemoryTable())
    one = Process(hot, table, "s", ttl=lambda: 60.0).open()
    for at in range(100):
        one.turn(f"turn {at}")
    one.flush()
    one.turn("the one before")
    hot.calls.clear(), hot.written.clear(), table.calls.clear()

    one.turn("x" * 500)

    assert hot.calls == ["write"]
    assert table.calls == []
    assert hot.written[0] < 2_000


def test_a_list_of_fields_that_stays_is_not_written_again() -> None:
    hot, table = CountingHot(InMemoryHotStore()), MemoryTable()
    one = Process(hot, table, "s", ttl=lambda: 60.0).open()
    for at in range(6):
        one.turn(f"turn {at}")
    one.flush()
    del one.live[2:8]
    one.author.capture(one.live)
    one.save()
    hot.fields.clear()

    for at in range(2):  # in fields that have become free; the window has taken one
        one.turn(f"turn {at} again")
    one.turn("one more than there were")

    assert ["window" in fields for fields in hot.fields] == [False, False, True]
    assert Process(hot, table, "s").open().live == one.live


def test_a_turn_with_a_durable_tier_alone_is_one_request() -> None:
    table = CountingTable(MemoryTable())
    one = Process(None, table, "s").open()
    one.turn("first")
    counts = []
    for at in range(12):
        table.calls.clear()
        one.turn(f"turn {at}")
        counts.append(table.calls[:])

    assert sorted(map(len, counts))[:-2] == [1] * 10, "a turn in five moves the last ones to a segment"
    assert max(map(len, counts)) == 2
    assert Process(None, table, "s").open().live == one.live
    table.calls.clear()
    Process(None, table, "s").open()
    assert len(table.calls) == 2


def test_a_restore_reads_of_the_log_what_the_window_shows() -> None:
    table = MemoryTable()
    one = Process(None, table, "s").open()
    for at in range(12):
        one.turn(f"turn {at}")
    del one.live[2:18]
    one.author.capture(one.live)
    one.save()

    other = Process(None, table, "s").open()

    assert other.live == one.live
    assert other.author.copy.messages.keys() == other.author.copy.needed


def test_of_a_head_only_what_changed_is_packed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    table = MemoryTable()
    one = Process(None, table, "s").open()
    for at in range(3):
        one.turn(f"turn {at}")
    one.author.keep("goals", {"a": 1, "b": 2})
    del one.live[0]
    one.author.capture(one.live)
    one.save()
    found: list[Any] = []
    monkeypatch.setattr(durable, "packed", lambda cells: found.extend(cells) or packed(cells))

    other = Process(None, table, "s").open()
    other.author.keep("goals", {"a": 1, "b": 3})
    other.save()

    kinds = [key for key in found if type(key) is not Name]
    assert sorted(kinds) == [("s", "goals", "b"), ("v", other.author.outbox.writer)]
    assert Process(None, table, "s").open().author.layer("goals") == {"a": 1, "b": 3}


def test_what_can_be_made_anew_is_in_the_hot_tier_alone_where_there_is_one(stores: Stores) -> None:
    one = Process(stores.hot, stores.durable, stores.session).open()
    one.turn("first")
    one.author.keep(WITH_WINDOW, {"state.manager": {"summary": "s", DERIVED: [1, 2]}}, depth=2)
    one.save()
    one.flush()

    def manager(hot: Any, durable: Any) -> Any:
        return Process(hot, durable, stores.session).open().author.layer(WITH_WINDOW)["state.manager"]

    assert manager(stores.hot, stores.durable) == {"summary": "s", DERIVED: [1, 2]}
    if stores.durable is not None:
        kept = {"summary": "s"} if stores.hot is not None else {"summary": "s", DERIVED: [1, 2]}
        assert manager(None, stores.durable) == kept
    if stores.durable is not None and stores.hot is not None:
        other = Process(stores.hot, stores.durable, stores.session).open()
        assert other.hot is not None
        assert other.durable is not None
        from_the_durable_tier = Process(None, stores.durable, stores.session).open().author.copy
        assert not has_news(from_the_durable_tier, other.hot.copy)
        writes = stores.durable.get(*other.durable._key)["v"]
        other.flush()
        assert stores.durable.get(*other.durable._key)["v"] == writes, "a flush found something to write"


class Scrubbing(MemoryTable):
    """A table that tells which heads were put so that what they replace is not to be found any more."""

    def __init__(self) -> None:
        super().__init__()
        self.scrubs: list[bool] = []

    def put(self, item: Any, *, when: Any = None, scrub: bool = True) -> bool:
        self.scrubs += [scrub] if item["sk"].endswith("#HEAD") else []
        return super().put(item, when=when, scrub=scrub)


def test_what_a_head_replaces_is_scrubbed_when_something_of_it_has_gone() -> None:
    table = Scrubbing()
    one = Process(None, table, "s").open()

    def scrubs(change: Callable[[], object]) -> bool:
        change()
        one.author.capture(one.live)
        one.save()
        return table.scrubs[-1]

    one.turn("first")
    assert not scrubs(lambda: one.talk("a turn adds to what there is"))
    assert not scrubs(lambda: one.author.keep("goals", {"secret": 1}))
    assert scrubs(lambda: one.author.keep("goals", {"secret": 2}))
    assert scrubs(lambda: one.author.keep("goals", {}))
    assert not scrubs(lambda: one.author.keep(WITH_WINDOW, {"state.manager": {DERIVED: [1]}}, depth=2))
    assert not scrubs(lambda: one.author.keep(WITH_WINDOW, {"state.manager": {DERIVED: [2]}}, depth=2))
    assert not scrubs(lambda: one.live.pop(0))
    one.live[1] = {**one.live[1], "content": [{"text": "an edited secret"}]}
    assert not scrubs(lambda: None)
    assert scrubs(lambda: one.live.pop(1))
    one.flush()
    assert one.redact(next(iter(one.author.copy.messages)), user("redacted"))
    assert any(table.scrubs[-2:])
    one.turn("before the end")
    one.delete()
    assert table.scrubs[-1]


def test_a_flush_of_five_turns_costs_at_most_six_units_however_many_writers_came_and_went() -> None:
    hot, table = InMemoryHotStore(), CountingTable(MemoryTable())
    words = random.Random(2)
    for at in range(150):
        one = Process(hot, table, "s").open()
        one.live = one.live[-8:]
        one.turn(f"question {at}")
        if at % 5 == 4:
            one.flush()
    costs = []
    for _ in range(6):
        for _ in range(5):
            text = " ".join(words.choice(SENTENCES) for _ in range(8))
            one.live = one.live[-10:]
            one.turn(text[:500], text[:500])
        table.units = 0
        one.flush()
        costs.append(table.units)

    assert max(costs) <= 6, costs


SENTENCES = [
    "Which volume of One Piece comes after the war of the best?",
    "The series has one hundred and eleven volumes until now.",
    "It costs nine dollars and ninety nine cents, and ships within two days.",
    "My daughter is twelve and loves stories about swimming clubs.",
    "ワンピースの最新刊はいつ発売されますか。",
    "Please put the second box set into my basket, but not the first one.",
    "We have it in English, in Japanese and as an electronic edition.",
]


def test_nothing_is_written_where_nothing_changed(process: Callable[..., Process], stores: Stores) -> None:
    one = process().open()
    one.turn("one")
    one.flush()
    one.save()
    counting = Process(
        stores.hot and CountingHot(stores.hot), stores.durable and CountingTable(stores.durable), stores.session
    ).open()

    counting.save()
    counting.flush()

    made = [call for store in (counting.hot, counting.durable) if store for call in _calls(store)]
    assert not {"put", "write", "batch_write"} & set(made)


def _calls(replica: Any) -> list[str]:
    return list((replica._store if hasattr(replica, "_store") else replica._table).calls)


def test_a_damaged_cell_of_the_hot_tier_costs_that_message_and_stays_as_it_is() -> None:
    hot = InMemoryHotStore()
    one = Process(hot, None, "s").open()
    for text in ("one", "two", "three"):
        one.turn(text, f"answer to {text}")
    fields = hot._conversations["s/A:default"].fields
    cells = {name: Codec().unseal(data, f"s/A:default#{name}") for name, data in fields.items() if name[0] == "m"}
    name = next(name for name, data in cells.items() if b"answer to two" in data)
    fields[name] = fields[name][:-3] + b"\0\0\0"
    bad = fields[name]

    other = Process(hot, None, "s").open()

    assert texts(other.live) == ["one", "answer to one", "two", LOST, "three", "answer to three"]
    other.turn("four")
    assert hot._conversations["s/A:default"].fields[name] == bad
    assert texts(Process(hot, None, "s").open().live)[-2:] == ["four", "ok"]


def test_a_damaged_segment_costs_its_messages_and_stays_as_it_is() -> None:
    table = MemoryTable()
    one = Process(None, table, "s", turns_inline=1).open()
    for text in ("one", "two", "three"):
        one.turn(text, f"answer to {text}")
    key = sorted(key for key in table.rows if "#LOG#" in key[1])[1]
    bad = table.rows[key]["data"] = table.rows[key]["data"][:-2] + b"\0\0"

    other = Process(None, table, "s", turns_inline=1).open()

    assert texts(other.live) == ["one", "answer to one", LOST, LOST, "three", "answer to three"]
    other.turn("four")
    assert table.rows[key]["data"] == bad
    assert texts(Process(None, table, "s").open().live)[-2:] == ["four", "ok"]
    one.redact(Name(one.author.outbox.writer, 3), user("redacted"))
    assert table.rows[key]["data"] == bad, "a higher revision goes beside what cannot be read"
    assert texts(Process(None, table, "s").open().live)[2] == "redacted"


@pytest.mark.parametrize("tier", ["hot", "durable"])
def test_a_damaged_head_is_an_error_and_is_not_written_over(tier: str) -> None:
    hot, table = InMemoryHotStore(), MemoryTable()
    one = Process(hot, table, "s").open()
    one.turn("one")
    one.flush()
    key = ("s", "A:default#HEAD")
    if tier == "hot":
        fields = hot._conversations["s/A:default"].fields
        fields["head"] = b"nonsense"
    else:
        table.rows[key]["data"] = b"nonsense"

    with pytest.raises(CorruptRecordError):
        Process(hot, table, "s").open()
    late = Process(hot, table, "s")
    with pytest.raises(CorruptRecordError):
        late.save() if tier == "hot" else late.flush()
    assert b"nonsense" in (fields["head"] if tier == "hot" else table.rows[key]["data"])


def test_a_segment_that_is_there_already_is_joined() -> None:
    table = MemoryTable()
    one = Process(None, table, "s", turns_inline=1).open()
    one.turn("one")
    one.flush()
    before = {key: dict(row) for key, row in table.rows.items()}
    messages = one.history()

    one.durable.segments.put(messages)
    assert table.rows == before
    one.durable.segments.put(messages[1:])
    assert texts(message.value for message in one.history()) == ["one", "ok"]


def test_a_redaction_holds_against_a_late_write_of_the_segment() -> None:
    table = MemoryTable()
    one = Process(None, table, "s", turns_inline=1).open()
    one.turn("secret one")
    late = one.history()
    one.redact(late[0].name, user("redacted"))

    one.durable.segments.put(late)

    assert texts(message.value for message in one.history()) == ["redacted", "ok"]
    opened = [Codec().unseal(row["data"], "/".join(key)) for key, row in table.rows.items() if "data" in row]
    assert opened
    assert not any(b"secret" in data for data in opened)


def test_a_write_that_the_driver_tried_twice_and_that_got_there_is_written() -> None:
    class Retrying(InMemoryHotStore):
        """A driver that loses the first answer to a write."""

        def write(self, *given: Any) -> Any:
            super().write(*given)
            return super().write(*given)

    hot, table = Retrying(), MemoryTable()
    a = Process(hot, table, "s").open()
    a.turn("one")
    a.turn("two")
    a.flush()

    assert Process(hot, table, "s").open().log() == ["one", "ok", "two", "ok"]
    assert sorted(name.number for name in a.author.copy.messages) == [1, 2, 3, 4]
    assert {message.clock for message in a.history()} == {1, 3}  # what is noted with the first turn has the clock 2


def test_what_is_taken_out_of_a_segment_leaves_the_rest_and_is_in_no_record() -> None:
    table = MemoryTable()
    one = Process(None, table, "s", turns_inline=1).open()
    one.turn("secret one")
    one.turn("two")
    one.flush()
    first, *rest = one.history()

    one.durable.segments.take_out([first])
    one.durable.segments.take_out([first])

    assert [message.name for message in one.durable.segments.log(one.durable.segments.lives())] == [each.name for each in rest]
    one.durable.segments.take_out(rest)
    assert not list(one.durable.segments.log(one.durable.segments.lives()))
    logs = [Codec().unseal(row["data"], "/".join(key)) for key, row in table.rows.items() if "#LOG#" in key[1]]
    assert logs
    assert not any(b"secret" in data for data in logs)
