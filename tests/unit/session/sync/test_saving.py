"""What a conversation comes through: other writers, lost tiers, deletions, redactions, long silences."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.session.author.showing import CUT_TEXT
from strands_manga_memory.session.core.identity import GRAVE_SECONDS, new_grave
from strands_manga_memory.session.core.records import in_order
from strands_manga_memory.session.sync import pair
from strands_manga_memory.session.sync.pair import MOST_TRIES
from strands_manga_memory.session.sync.watch import SILENT_SECONDS
from strands_manga_memory.stores import Codec, InMemoryHotStore
from strands_manga_memory.testing import FakeClock, FaultyHotStore, FaultyTable
from tests.unit.session.replicas.parts import USER_GRAVE, Process
from tests.unit.session.support import CountingHot, CountingTable, MemoryTable, SurvivingHotStore, assistant, texts, user

TIERS = ["both", "hot", "durable"]


class World:
    def __init__(self, tiers: str = "both") -> None:
        self.clock = FakeClock()
        self.store, self.table = SurvivingHotStore(clock=self.clock), MemoryTable()
        self.hot = FaultyHotStore(self.store) if tiers != "durable" else None
        self.durable = FaultyTable(self.table) if tiers != "hot" else None

    def process(self, **more: Any) -> Process:
        return Process(self.hot, self.durable, "s", clock=self.clock, **more).open()

    def expire(self) -> None:
        """Let the table delete what may go."""
        rows = self.table.rows.items()
        self.table.rows = {key: row for key, row in rows if row.get("expires_at", 1e12) > self.clock()}


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("tiers", TIERS)
def test_two_writers_a_lost_hot_tier_and_a_late_write_lose_and_double_nothing(tiers: str) -> None:
    world = World(tiers)
    a = world.process(tag="a")
    a.turn("a1")
    b = world.process(tag="b")
    a.turn("a2")
    b.turn("b1")
    a.flush()
    if tiers == "both":
        world.store.go_back({})
    b.flush()
    a.turn("a3")
    b.save()
    a.refresh()
    b.refresh()

    assert a.shown() == b.shown() == world.process().shown()
    # Who was not told of b1, as the tier that had it was lost, says a3 at the same time.
    said = ["a1", "a2", "a3", "b1"] if tiers == "both" else ["a1", "a2", "b1", "a3"]
    assert world.process().log() == [text for one in said for text in (one, "ok")]


def test_looking_sees_what_either_tier_alone_has(world: World) -> None:
    a, b = world.process(), world.process()
    a.turn("one")
    a.flush()
    world.store.go_back({})

    b.refresh()

    assert b.shown() == ["one", "ok"]


def test_a_durable_tier_that_went_back_in_time_gets_what_it_lacks_and_no_operation_goes_on_without_end(world: World) -> None:
    a, b = world.process(), world.process()
    a.turn("one")
    a.flush()
    backup = {key: dict(row) for key, row in world.table.rows.items()}
    for text in ("two", "three"):
        a.turn(text)
        a.flush()
    world.table.rows = backup
    counting = CountingTable(world.table)
    a.durable._table = a.durable.segments._table = counting

    a.turn("four")
    a.flush()
    b.refresh()

    assert len(counting.calls) <= 12
    world.store.go_back({})
    assert world.process().shown() == ["one", "ok", "two", "ok", "three", "ok", "four", "ok"]
    counting.calls.clear()
    a.flush()
    assert counting.calls == []


def test_a_table_that_lost_everything_gets_it_back_from_who_has_it(world: World) -> None:
    a = world.process()
    a.turn("one")
    a.flush()
    world.table.rows = {}
    a.turn("two")
    a.flush()
    a.flush()
    world.store.go_back({})

    assert world.process().shown() == ["one", "ok", "two", "ok"]


def kept_twice(process: Process) -> list[str]:
    """Return what a process keeps beside the agent's own messages."""
    kept = process.author.copy.messages.values()
    return texts(one.value for one in in_order(kept) if isinstance(one.kept, bytes))


@pytest.mark.parametrize("tiers", TIERS)
def test_what_the_log_has_is_not_kept_beside_the_agents_own_messages(tiers: str) -> None:
    world = World(tiers)
    a = world.process()
    for text in ("one", "two", "three"):
        a.turn(text)
        a.flush()
    restored = world.process()
    restored.turn("four")
    restored.flush()
    if tiers == "both":  # with one tier each save is a flush
        assert kept_twice(restored) == ["one", "ok", "two", "ok", "three", "ok", "four", "ok"], "many live for one message"
    restored.turn("five")
    restored.flush()

    assert kept_twice(a) == kept_twice(restored) == []
    assert restored.log() == ["one", "ok", "two", "ok", "three", "ok", "four", "ok", "five", "ok"]


def test_what_only_this_process_has_for_good_is_kept_as_it_was_said(world: World) -> None:
    a = world.process()
    for text in ("one", "two"):
        a.turn(text)
        a.flush()
    world.durable.down = True
    a.turn("three")
    with suppress(StoreUnavailableError):
        a.flush()

    assert kept_twice(a) == ["three", "ok"]


def test_a_hot_tier_that_lost_everything_gets_it_from_the_agents_own_messages_while_the_durable_tier_is_away(
    world: World,
) -> None:
    a = world.process()
    for text in ("one", "two", "three"):
        a.turn(text)
        a.flush()
    world.durable.down = True
    world.store.go_back({})
    a.live[0]["content"][0]["text"] = "edited in place, and not looked at yet"
    a.pair.look(a.hot)
    a.save()

    world.table.rows = {}
    world.durable.down = False
    assert world.process().shown() == ["one", "ok", "two", "ok", "three", "ok"]


@pytest.mark.parametrize("tiers", TIERS)
def test_a_deletion_that_a_tier_refused_leaves_the_conversation_as_it_is(tiers: str) -> None:
    world = World(tiers)
    a = world.process()
    a.turn("one")
    a.flush()
    (world.durable or world.hot).fail_next()

    with pytest.raises(StoreUnavailableError):
        a.delete()

    a.turn("two")
    a.flush()
    assert world.process().shown() == ["one", "ok", "two", "ok"]


@pytest.mark.parametrize("tiers", TIERS)
def test_a_deleted_conversation_stays_deleted_whoever_goes_on_with_it(tiers: str) -> None:
    world = World(tiers)
    a = world.process()
    a.turn("one")
    a.flush()
    b, c = world.process(), world.process()
    b.talk("said meanwhile")
    a.delete()
    b.save()
    b.flush()
    c.refresh()

    assert a.shown() == b.shown() == c.shown() == world.process().shown() == []
    assert [key for key in world.table.rows if "#LOG#" in key[1]] == []
    b.turn("anew")
    assert world.process().log() == ["anew", "ok"]
    a.refresh()
    assert a.shown() == ["anew", "ok"]


@pytest.mark.parametrize("tiers", TIERS)
@pytest.mark.parametrize("is_saved", [True, False])
def test_a_deletion_that_comes_late_ends_nothing_of_the_next_life(tiers: str, is_saved: bool) -> None:
    world = World(tiers)
    a = world.process()
    a.turn("one")
    grave = new_grave()
    world.process().delete(grave)
    a.refresh()
    a.talk("anew")
    if is_saved:
        a.save()

    a.delete(grave)
    world.process().delete(grave)

    a.turn("and on")
    a.flush()
    anew = ["anew", "ok", "and on", "ok"]
    assert a.shown() == world.process().shown() == world.process().log() == anew


def test_a_deletion_that_only_the_durable_tier_knows_holds(world: World) -> None:
    a = world.process()
    a.turn("one")
    world.hot.fail_next()

    with pytest.raises(StoreUnavailableError):
        a.delete()

    assert world.process().shown() == []


def test_a_conversation_that_was_not_flushed_when_its_user_was_forgotten_is_not_restored(world: World) -> None:
    a = world.process()
    a.turn("one")
    world.table.put({"session_id": USER_GRAVE[0], "sk": USER_GRAVE[1], "graves": [new_grave()]})

    assert world.process().shown() == []
    a.flush()
    assert a.shown() == []
    assert [key for key in world.table.rows if "#LOG#" in key[1]] == []
    a.turn("anew")
    a.flush()
    assert world.process().shown() == ["anew", "ok"]


def test_who_forgets_a_user_sees_the_entry_of_every_conversation_that_did_not_see_the_grave(world: World) -> None:
    a = world.process()
    a.talk("one")
    calls: list[str] = []
    a.durable._table = CountingTable(world.table, before=lambda name, given: calls.append(name))

    a.flush()

    entry = next(at for at, call in enumerate(calls) if call == "batch_write")
    assert any(call == "batch_get" for call in calls[entry:]), "graves are looked for after the entry is there"
    assert ("user/u", "s") in world.table.rows


@pytest.mark.parametrize("tiers", TIERS)
@pytest.mark.parametrize("hours", [26, 80, 300])
def test_an_agent_that_slept_longer_than_a_grave_lives_brings_nothing_back(tiers: str, hours: int) -> None:
    world = World(tiers)
    a, b = world.process(), world.process()
    a.turn("one")
    a.flush()
    b.refresh()
    b.begin()
    a.delete()
    world.clock.advance(hours * 3600.0)
    world.table.rows = {}

    b.turn("I am back")
    b.flush()

    assert "one" not in world.process().shown()
    b.turn("and again")
    assert "one" not in world.process().shown()
    assert world.process().log()[-2:] == ["and again", "ok"]
    assert SILENT_SECONDS < GRAVE_SECONDS


def test_a_claim_of_a_sweeper_that_gave_up_stops_nobody(world: World) -> None:
    a, b = world.process(), world.process()
    a.turn("one")
    b.refresh()
    world.clock.advance(3_000)
    assert world.store.claim("s/A:default") is not None

    for one in (a, b, a):
        counting = CountingHot(world.store)
        one.hot._store = counting
        one.turn("goes on")
        assert len(counting.calls) <= 3
    assert not world.store.drop("s/A:default", expect=(1, 1))
    assert len(world.process().shown()) == 8


def _swept(process: Process) -> bool:
    process.restore(inspect=True)
    process.flush()
    return process.hot._store.drop("s/A:default", expect=process.hot._stored.expect)


def test_a_sweep_moves_everything_and_one_that_was_overtaken_drops_nothing(world: World) -> None:
    a = world.process()
    a.turn("one")
    world.clock.advance(3_000)
    assert world.store.claim("s/A:default") is not None
    sweeper = Process(world.hot, world.durable, "s", clock=world.clock)

    assert _swept(sweeper)
    assert world.store._conversations == {}
    assert world.process().shown() == ["one", "ok"]
    a.turn("two")
    world.clock.advance(3_000)
    assert world.store.claim("s/A:default") is not None
    late = Process(world.hot, world.durable, "s", clock=world.clock)
    flush = late.durable.segments.put
    late.durable.segments.put = lambda messages: (flush(messages), a.turn("three"))[0]  # type: ignore[method-assign]
    assert not _swept(late)
    assert world.process().shown() == ["one", "ok", "two", "ok", "three", "ok"]


@pytest.mark.parametrize("tiers", TIERS)
def test_a_save_that_others_always_overtake_ends_and_keeps_everything(tiers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tiers)
    a = world.process()
    b = world.process()
    a.turn("one")
    b.turn("first")
    a.talk("two")
    store = a.hot or a.durable
    write = store.write

    def overtaken(*given: Any, **named: Any) -> Any:
        b.turn("b")
        return write(*given, **named)

    store.write = overtaken
    tries: list[int] = []
    monkeypatch.setattr(pair, "pause", tries.append)
    with pytest.raises(StoreUnavailableError):
        a.save()
    store.write = write

    assert len(tries) == MOST_TRIES
    a.save()
    assert world.process().log().count("two") == 1


def _store_everywhere(process: Process) -> None:
    process.save()
    process.flush()


@pytest.mark.parametrize("tiers", TIERS)
def test_a_write_whose_answer_was_lost_is_neither_lost_nor_doubled(tiers: str) -> None:
    world = World(tiers)
    a = world.process()
    a.turn("one")
    for tier in (world.hot, world.durable):
        if tier is None:
            continue
        tier.fail_next(after=True)
        a.talk("answer lost")
        with pytest.raises(StoreUnavailableError):
            _store_everywhere(a)
    a.save()
    a.flush()

    assert world.process().log().count("answer lost") == (world.hot is not None) + (world.durable is not None)


@pytest.mark.parametrize("tiers", TIERS)
def test_a_redacted_text_is_in_no_tier_whoever_had_it(tiers: str) -> None:
    world = World(tiers)
    a = world.process(codec=None)
    a.turn("the secret word")
    b = world.process()
    b.live[0] = {**b.live[0], "content": [{"text": "the secret word, edited"}]}
    b.author.capture(b.live)
    b.save()
    b.flush()
    name = a.history()[0].name

    assert a.redact(name, user("redacted"))
    b.turn("goes on")
    b.flush()

    assert world.process().shown() == ["redacted", "ok", "goes on", "ok"]
    assert not any(b"secret" in data for data in _everything(world))


class _AnswersLate(FaultyTable):
    """A table that loses the answer of one call, the ``lost``-th from now on."""

    lost = 0

    def __getattr__(self, name: str) -> Any:
        self.lost -= 1
        if self.lost == 0:
            self.fail_next(after=True)
        return super().__getattr__(name)


@pytest.mark.parametrize("lost", range(1, 16))
def test_a_redaction_whose_answer_is_lost_leaves_nothing_of_what_dead_writers_left(lost: int) -> None:
    world = World("durable")
    world.durable = _AnswersLate(world.table)
    a = world.process()
    a.turn("the secret word")
    a.flush()
    for session, sort in list(world.table.rows):
        if "#" in sort:
            world.table.put({"session_id": session, "sk": f"{sort}~001.dead", "data": b"the secret word"})

    name = a.history()[0].name
    world.durable.lost = lost
    with suppress(StoreUnavailableError):
        a.redact(name, user("redacted"))
    a.save()
    a.flush()

    assert world.process().shown() == ["redacted", "ok"]
    assert not [key for key, row in world.table.rows.items() if b"secret" in row.get("data", b"")]


def _everything(world: World) -> list[bytes]:
    held = world.store._conversations.get("s/A:default")
    cells = {} if held is None else {name: data for name, data in held.fields.items() if name != "window"}
    opened = [Codec().unseal(data, f"s/A:default#{name}") for name, data in cells.items()]
    return opened + [Codec().unseal(row["data"], "/".join(key)) for key, row in world.table.rows.items() if "data" in row]


def test_silence_is_not_taken_for_empty(world: World) -> None:
    world.process().turn("one")
    world.hot.down = True
    with pytest.raises(StoreUnavailableError):
        world.process()
    world.hot.down, world.durable.down = False, True
    assert world.process().shown() == ["one", "ok"]


def test_five_hundred_workers_that_hold_nothing_keep_what_is_read_and_written_flat() -> None:
    hot, table = InMemoryHotStore(), MemoryTable()
    sizes = []
    for at in range(400):
        one = Process(hot, table, "s").open()
        one.live = one.live[-10:]
        one.turn(f"turn {at}")
        one.flush()
        fields = hot._conversations["s/A:default"].fields
        sizes.append((len(fields), len(table.rows["s", "A:default#HEAD"]["data"])))

    early, late = sizes[100:200], sizes[300:]
    assert max(late)[0] <= max(early)[0] + 5
    assert max(size for _, size in late) <= 1.1 * max(size for _, size in early)
    assert len(Process(hot, table, "s").open().log()) == 800


def test_what_is_read_of_a_hot_tier_alone_stays_flat_too() -> None:
    world = World("hot")
    read = []
    for at in range(200):
        one = world.process()
        one.live = one.live[-10:]
        one.turn(f"turn {at}")
        record = world.store.load("s/A:default", ["head", "graves", "log", "window"], touch=False)
        read.append(len(record.fields))

    assert max(read[150:]) <= max(read[50:100])
    assert len(world.process().log()) == 400


@pytest.mark.parametrize("tiers", TIERS)
def test_a_first_turn_that_is_said_long_after_the_empty_conversation_was_opened_is_kept(tiers: str) -> None:
    world = World(tiers)
    a = world.process()
    world.clock.advance(13 * 3600.0)

    a.turn("one")
    a.flush()

    assert world.process().shown() == ["one", "ok"]


@pytest.mark.parametrize("tiers", TIERS)
def test_who_remembers_a_grave_that_the_stores_have_forgotten_ends_no_new_life(tiers: str) -> None:
    world = World(tiers)
    a, b = world.process(), world.process()
    a.turn("one")
    a.flush()
    b.refresh()
    a.delete()
    b.refresh()
    world.clock.advance(26 * 3600.0)
    world.store.go_back({})
    world.table.rows = {}
    world.process().turn("a new life")

    b.turn("goes on with it")
    a.refresh()

    shown = ["a new life", "ok", "goes on with it", "ok"]
    assert a.shown() == b.shown() == world.process().shown() == shown


def test_saves_go_on_while_the_durable_tier_is_away_for_days(world: World) -> None:
    a = world.process()
    a.turn("one")
    a.flush()
    world.durable.down = True
    for hour in range(40):
        world.clock.advance(3600.0)
        a.turn(f"turn {hour}")

    world.durable.down = False
    a.flush()
    assert len(world.process().log()) == 82


def test_what_a_silent_process_could_not_read_counts_for_nothing(world: World) -> None:
    a = world.process()
    a.turn("one")
    a.flush()
    world.clock.advance(13 * 3600.0)
    world.store.go_back({})
    world.durable.down = True
    a.talk("two")
    with pytest.raises(StoreUnavailableError):
        a.save()

    world.durable.down = False
    a.save()
    assert world.process().shown() == ["one", "ok", "two", "ok"]


def test_an_agent_goes_on_with_what_it_has_while_the_tier_that_has_the_rest_is_away() -> None:
    world = World("durable")
    a = world.process()
    a.turn("one")
    a.flush()
    b = world.process()
    for text in ("two", "three"):
        b.turn(text)
        b.flush()
    a.refresh()
    world.durable.down = True

    assert a.shown() == ["one", "ok"]
    a.live[0] = {**a.live[0], "content": [{"text": "one, edited"}]}
    a.author.capture(a.live)
    world.durable.down = False
    a.save()

    assert a.shown() == world.process().shown() == ["one, edited", "ok", "two", "ok", "three", "ok"]


def test_a_conversation_that_is_used_every_day_keeps_what_was_said_first(world: World) -> None:
    a = world.process()
    for day in range(4):
        a.turn(f"day {day}")
        a.flush()
        world.clock.advance(20 * 3600.0)
        a.refresh()
        world.expire()
    a.turn("the last")
    a.flush()
    world.expire()
    world.store.go_back({})

    assert world.process().shown()[::2] == ["day 0", "day 1", "day 2", "day 3", "the last"]


@pytest.mark.parametrize("tiers", TIERS)
def test_a_turn_that_began_while_a_flush_was_under_way_is_known_to_be_open(tiers: str) -> None:
    world = World(tiers)
    a = world.process()
    a.turn("one")
    a.talk("one and a half")
    offer = a.own.offer

    def in_the_next_turn() -> Any:
        if not a.own.in_turn:
            a.own.begin_turn()
            a.say(user("two"), begins=True)
        return offer()

    a.own.offer = in_the_next_turn  # type: ignore[method-assign]
    a.flush()
    if world.hot is not None:
        a.save()

    assert world.process().shown()[-2:] in (["one and a half", "ok"], ["two", CUT_TEXT])
    a.flush()
    a.save()
    assert world.process().shown()[-2:] == ["two", CUT_TEXT]


def test_the_rest_of_a_turn_goes_with_the_life_that_is_gone() -> None:
    world = World("hot")
    a = world.process()
    a.own.begin_turn()
    a.say(user("one"), begins=True)
    a.save()
    world.clock.advance(26 * 3600.0)
    world.store.go_back({})

    a.say(assistant("answered too late"))
    a.author.capture(a.live)
    a.own.end_turn()
    a.save()
    a.turn("two")

    assert world.process().shown() == a.shown() == ["two", "ok"]
    assert a.author.dropped == 1


@pytest.mark.parametrize("is_offered", [False, True])
@pytest.mark.parametrize(("hours", "kept"), [(13, ["one", "ok"]), (26, [])])
@pytest.mark.parametrize("tiers", TIERS)
def test_what_no_store_has_is_kept_as_long_as_a_grave_would_still_be_there(
    tiers: str, hours: int, kept: list[str], is_offered: bool
) -> None:
    """Who was cut off from the stores cannot know what was deleted meanwhile if the graves have come and gone."""
    world = World(tiers)
    a = world.process()
    a.talk("one")
    if is_offered:
        for store in filter(None, (world.hot, world.durable)):
            store.down = True
        with pytest.raises(StoreUnavailableError):
            a.save()
        for store in filter(None, (world.hot, world.durable)):
            store.down = False
    if hours == 26:
        world.process().delete()
    world.clock.advance(hours * 3600.0)
    world.expire()

    a.turn("two")
    a.flush()

    assert world.process().shown() == a.shown() == [*kept, "two", "ok"]
    assert a.author.dropped == (0 if kept else 2)
