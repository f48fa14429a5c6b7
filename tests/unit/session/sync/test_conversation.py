"""A conversation on the new core: what its agent and users ask for, and when that is done."""

from __future__ import annotations

from typing import Any

import pytest

from strands_manga_memory.exceptions import ConflictError, KeyMissingError, StoreUnavailableError
from strands_manga_memory.session.basis.place import Place
from strands_manga_memory.session.basis.tiers import Tiers
from strands_manga_memory.session.basis.ttl import TtlPolicy
from strands_manga_memory.session.replicas.hot import HotReplica, living
from strands_manga_memory.session.sync.conversation import Conversation
from strands_manga_memory.stores import Codec, InMemoryHotStore
from strands_manga_memory.testing import FakeClock, FaultyHotStore, FaultyTable
from tests.servers import wait_until
from tests.unit.session.replicas.parts import Process
from tests.unit.session.support import CountingTable, MemoryTable, SurvivingHotStore, assistant, texts, user

PLACE = Place.of("s", "A", "default")
IDS = {"session": "s", "user": "u", "tenant": None, "member": "default"}
TIERS = ["both", "hot", "durable"]


class World:
    def __init__(self, tiers: str = "both", **rules: Any) -> None:
        self.clock = FakeClock()
        self.store, self.rows = SurvivingHotStore(clock=self.clock), MemoryTable()
        self.table = CountingTable(self.rows)
        self.hot = FaultyHotStore(self.store) if tiers != "durable" else None
        self.durable = FaultyTable(self.table) if tiers != "hot" else None
        self.rules = rules
        self.said = 0

    def open(self, *, base: dict[str, Any] = IDS, **rules: Any) -> Conversation:
        tiers = Tiers.of(self.hot, self.durable, clock=self.clock, **{**self.rules, **rules})
        conversation = Conversation(PLACE, tiers, base=base)
        conversation.open()
        return conversation

    def say(self, conversation: Conversation, text: str) -> None:
        for message in (user(text), assistant("ok")):
            self.said += 1
            conversation.own.say({**message, "tracking_id": f"m{self.said}"}, at=self.clock())

    def turn(self, conversation: Conversation, text: str) -> None:
        conversation.take_over([])
        self.say(conversation, text)
        conversation.commits.request().result()

    def log(self) -> list[str]:
        return texts(one.message for one in self.open(base={}).history())[::2]


@pytest.mark.parametrize("tiers", TIERS)
def test_turns_are_counted_whoever_said_them(tiers: str) -> None:
    world = World(tiers)
    one, other = world.open(), world.open()
    for number in range(4):
        world.turn(one, f"one {number}")
        world.turn(other, f"other {number}")
    for each in (one, other):
        each.commits.request_flush().result()
    assert world.log() == [text for number in range(4) for text in (f"one {number}", f"other {number}")]
    facts = world.open().own.facts
    assert (facts.turns, facts.messages, facts.ids) == (8, 16, IDS)


@pytest.mark.parametrize(("resume_cold", "pause"), [(True, 43_200.0), (False, 900.0)])
def test_the_first_turn_after_a_long_pause_is_in_both_tiers_when_it_is_saved(resume_cold: bool, pause: float) -> None:
    """So whoever ends its life by age just then finds it, also if this process dies."""
    world = World(resume_cold=resume_cold)
    live = world.open()
    world.turn(live, "one")
    live.commits.request_flush().result()
    world.clock.advance(pause)
    world.turn(live, "two")
    assert live.commits.waits_for == "durable"
    world.hot = None
    assert world.log() == ["one", "two"]


def test_a_table_that_does_not_answer_keeps_no_turn_after_a_long_pause_from_being_saved() -> None:
    world = World(ttl=TtlPolicy(seconds=80_000.0))
    live = world.open()
    world.turn(live, "one")
    live.commits.request_flush().result()
    world.clock.advance(43_200.0)
    assert world.durable is not None
    world.durable.down = True
    world.turn(live, "two")
    assert not live.is_dirty
    assert live.commits.waits_for == "hot"
    world.durable.down = False
    assert world.log() == ["one", "two"]


@pytest.mark.parametrize("tiers", TIERS)
@pytest.mark.parametrize("round_", range(4))
def test_what_a_store_has_refused_for_certain_comes_after_what_it_has(tiers: str, round_: int) -> None:
    hot = None if tiers == "durable" else InMemoryHotStore()
    durable = None if tiers == "hot" else MemoryTable()
    first, last = Process(hot, durable, "s", tag=f"z{round_}").open(), Process(hot, durable, "s", tag=f"a{round_}").open()
    for each in (first, last):
        each.author.keep("basket", {"said by": each.tag})
        each.turn(each.tag)
    assert Process(hot, durable, "s").open().log() == [first.tag, "ok", last.tag, "ok"]
    assert Process(hot, durable, "s").open().author.layer("basket") == {"said by": last.tag}


def test_what_a_store_may_have_is_not_renamed_although_another_answer_is_a_refusal() -> None:
    store = InMemoryHotStore()
    faulty = FaultyHotStore(store)
    one, other = Process(faulty, None, "s").open(), Process(store, None, "s").open()
    one.talk("one")
    faulty.fail_next(after=True)
    with pytest.raises(StoreUnavailableError):
        one.save()
    names = set(one.author.copy.messages)
    other.turn("other")
    one.save()
    assert names <= set(one.author.copy.messages)
    assert sorted(Process(store, None, "s").open().log()) == ["ok", "ok", "one", "other"]


def test_the_first_turn_and_every_fifth_are_flushed() -> None:
    world = World(flush_every=5)
    conversation = world.open()
    flushed = []
    for number in range(11):
        before = len(world.table.calls)
        world.turn(conversation, f"turn {number}")
        conversation.tiers.writer.drain(5.0)
        flushed.append(len(world.table.calls) > before)
    assert [number for number, is_flushed in enumerate(flushed) if is_flushed] == [0, 5, 10]


def test_whoever_finds_a_life_too_old_ends_the_same_one_and_both_go_on_together() -> None:
    world = World(ttl=TtlPolicy(session=3600.0))
    conversation = world.open()
    world.turn(conversation, "long ago")
    conversation.commits.request_flush().result()
    world.clock.advance(4 * 3600.0)
    one, other = world.open(), world.open()
    assert one.own.facts.turns == 0
    world.turn(one, "one")
    world.turn(other, "other")
    for each in (one, other):
        each.commits.request_flush().result()
    assert world.log() == ["one", "other"]


def test_what_a_sweeper_flushes_first_is_found_by_its_user() -> None:
    world = World()
    conversation = Conversation(PLACE, Tiers.of(world.hot, None, clock=world.clock), base=IDS)
    conversation.open()
    world.turn(conversation, "only hot")
    world.store.claim(PLACE.conversation, expired_only=False)
    swept = Conversation(PLACE, Tiers.of(world.hot, world.durable, clock=world.clock), base={})
    swept.flush_claimed()
    assert ("user/:u", "s") in world.rows.rows
    assert swept.own.ids == IDS
    assert world.log() == ["only hot"]


def test_two_writers_raise_if_they_are_not_to_be_merged() -> None:
    world = World(on_conflict="raise")
    one, other = world.open(), world.open()
    world.turn(one, "one")
    world.say(other, "other")
    with pytest.raises(ConflictError, match="someone else saved"):
        other.commits.request().result()
    with pytest.raises(ConflictError):
        other.commits.check()


def test_a_deleted_conversation_says_so_though_its_keys_are_destroyed() -> None:
    class Locked(Codec):
        def seal(self, data: bytes, record: str) -> bytes:
            raise KeyMissingError("destroyed", record=record)

        unseal = seal

    world = World()
    conversation = world.open()
    world.turn(conversation, "secret")
    conversation.commits.request_flush().result()
    assert living(world.store, PLACE.conversation)
    Conversation(PLACE, Tiers.of(world.hot, world.durable, clock=world.clock, codec=Locked()), base={}).bury()
    assert living(world.store, PLACE.conversation) is None
    assert HotReplica(world.store, PLACE.conversation, codec=Locked()).load().graves
    world.turn(conversation, "dropped with it")
    world.turn(conversation, "anew")
    assert world.log() == ["anew"]


def test_a_message_keeps_what_was_noted_with_it() -> None:
    world = World()
    conversation = world.open()
    conversation.own.set_meta({"active_intent": "order"})
    world.turn(conversation, "one more")
    conversation.commits.request_flush().result()
    records = [one.record for one in world.open().history()]
    assert [(record["seq"], record["turn"], record["intent"]) for record in records] == [(1, 1, "order"), (2, 1, "order")]


def test_what_is_said_when_the_session_is_over_is_counted_in_the_next_one() -> None:
    world = World(ttl=TtlPolicy(session=3600.0))
    one, other = world.open(), world.open()
    world.turn(one, "long ago")
    one.commits.request_flush().result()
    world.clock.advance(4 * 3600.0)
    world.turn(world.open(), "another")
    world.turn(one, "one more")
    facts = world.open().own.facts
    assert (facts.turns, facts.messages) == (2, 4)
    assert other.own.facts.turns == 0


def test_what_was_kept_of_a_deleted_life_is_nothing_of_the_next_one() -> None:
    world = World("hot")
    conversation = world.open()
    conversation.own.as_built({"state.agent": b"{}"}, {})
    conversation.own.capture([], {"state.agent": b'{"secret": 1}'}, in_turn=False)
    world.turn(conversation, "hello")
    world.open().bury()
    world.turn(conversation, "dropped with it")
    conversation.take_over([])
    conversation.own.touch()
    conversation.commits.request().result()
    assert b"secret" not in repr(world.store._conversations).encode()
    assert world.open().own.fields["state.agent"] == b"{}"


def test_a_grave_lives_longer_than_a_copy_that_its_tier_could_not_be_told_of() -> None:
    world = World(ttl=TtlPolicy(seconds=72 * 3600.0))
    conversation = world.open()
    world.turn(conversation, "one")
    conversation.commits.request_flush().result()
    world.hot.down = True
    with pytest.raises(StoreUnavailableError):
        conversation.bury()
    world.hot.down = False

    world.clock.advance(60 * 3600.0)
    world.rows.rows = {key: row for key, row in world.rows.rows.items() if row.get("expires_at", 1e12) > world.clock()}

    assert world.log() == []
    assert texts(world.open().shown()) == []


def test_a_correction_reaches_a_tier_that_was_away_though_nobody_uses_the_conversation() -> None:
    world = World(codec=Codec(compress_from=1 << 30))
    conversation = world.open()
    world.turn(conversation, "the secret word")
    conversation.commits.request_flush().result()
    looker = world.open()
    logged = next(looker.history())
    world.hot.down = True

    looker.request_correction(logged, user("corrected", tracking_id="m1")).result()

    assert "secret" not in str(world.rows.rows)
    world.hot.down = False
    wait_until(lambda: "secret" not in repr([vars(one) for one in world.store.copy().values()]), "the correction")
    assert world.log() == ["corrected"]


def test_a_message_that_no_store_has_yet_is_corrected() -> None:
    world = World()
    conversation = world.open()
    world.say(conversation, "the secret word")
    logged = next(world.open().history(unsaved=conversation))
    assert logged.name is None

    conversation.request_correction(logged, {**user("corrected"), "tracking_id": "m1"}).result()

    assert world.log() == ["corrected"]


def segments_of(world: World) -> list[str]:
    return [sort for _, sort in world.rows.rows if "#LOG#" in sort]


@pytest.mark.parametrize("tiers", ["both", "durable"])
def test_what_stateless_workers_say_one_after_the_other_is_stored_in_one_segment(tiers: str) -> None:
    world = World(tiers, flush_every=100)
    world.turn(world.open(), "turn 0")
    world.open().commits.request_flush().result()
    for number in range(1, 6):
        world.turn(world.open(), f"turn {number}")
    world.open().commits.request_flush().result()

    assert len(segments_of(world)) == 2
    assert world.log() == [f"turn {number}" for number in range(6)]


def test_a_segment_that_was_stored_after_another_writer_had_joined_it_gets_the_rest() -> None:
    world = World(flush_every=100)
    one = world.open()
    world.turn(one, "zero")
    one.commits.request_flush().result()
    assert one.tiers.writer.drain(10.0)  # a flush beside the turns would take the next one along
    world.turn(one, "one")
    other = world.open()
    one.commits.request_flush().result()

    world.turn(other, "two")
    other.commits.request_flush().result()

    assert len(segments_of(world)) == 2
    assert world.log() == ["zero", "one", "two"]
    logged = [each for each in world.open().history() if each.message["role"] == "user"]
    world.open().request_correction(logged[2], user("corrected", tracking_id="m5")).result()
    assert world.log() == ["zero", "one", "corrected"]


def test_an_agent_that_was_given_placeholders_is_told_when_what_they_stand_for_is_found() -> None:
    world = World()
    one = world.open()
    world.turn(one, "one")
    one.commits.request_flush().result()
    log = {key: world.rows.rows.pop(key) for key in list(world.rows.rows) if "#LOG#" in key[1]}
    assert log
    world.hot.down = True
    other = world.open()
    assert not other.has_news

    world.hot.down = False
    other.commits.request_refresh().result()

    assert other.has_news
    assert texts(other.take_over([])) == ["one", "ok"]
