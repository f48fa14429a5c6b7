"""Sweeps of the session protocol: expired conversations are made durable, finalized once, and their remains deleted."""

from __future__ import annotations

from typing import Any

import pytest

from strands_manga_memory import SessionSweeper
from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.session import EndedConversation
from strands_manga_memory.session.places import FIRST_LOOK
from strands_manga_memory.session.protocol.conversation import EMPTY_SECONDS
from strands_manga_memory.session.protocol.durable_tier import DurableTier
from strands_manga_memory.session.protocol.hot_tier import hot_copy_of
from strands_manga_memory.testing import FaultyTable
from tests.unit.session.protocol.test_connection import PLACE, Connections
from tests.unit.session.protocol.test_conversation import expected, say, texts

DAY = 86_400.0


class Sweeps(Connections):
    """Both tiers in memory, a sweeper, and the transcripts that its finalizer was given."""

    def __init__(self, **tiers: bool) -> None:
        super().__init__(**tiers)
        self.transcripts: list[tuple[str, list[str]]] = []
        self.failures = 0

    def finalize(self, conversation: EndedConversation) -> None:
        """Note what a finalizer would summarize."""
        if self.failures:
            self.failures -= 1
            raise RuntimeError("the model failed")
        for found in conversation.transcripts():
            said = [" ".join(one.text.split()[:2]) for one in found.utterances]
            self.transcripts.append((found.user_id, said))

    def sweep(self, **options: Any) -> int:
        """Sweep once."""
        given = {"hot": self.hot, "durable": self.table, "finalizer": self.finalize, "clock": self.clock, **options}
        return SessionSweeper(**given).run_once()

    def talk(self, *numbers: int) -> None:
        """Say some turns as a process that ends then."""
        hold = self.load()
        for number in numbers:
            say(hold, number)
            hold.save()

    @property
    def has_hot_copy(self) -> bool:
        """Whether the hot tier has the conversation."""
        return hot_copy_of(self.hot, PLACE.conversation) is not None

    @property
    def log_keys(self) -> list[str]:
        """Sort values of the turns in the log."""
        return [sort for _, sort in self.table.rows if "#TURN#" in sort]


def test_expired_conversation_is_made_durable_finalized_once_and_leaves_the_hot_tier() -> None:
    """What only the hot tier had is in the durable one, for the finalizer and for a user who comes back."""
    sweeps = Sweeps()
    sweeps.talk(1, 2, 3)
    assert sweeps.sweep() == 0
    sweeps.clock.advance(1801)
    assert sweeps.sweep() == 1
    assert sweeps.transcripts == [("u", expected(1, 2, 3))]
    assert not sweeps.has_hot_copy
    for _ in range(3):
        sweeps.clock.advance(EMPTY_SECONDS + 1)
        assert sweeps.sweep() == 0
    assert PLACE.conversation not in sweeps.hot._conversations
    assert len(sweeps.transcripts) == 1
    assert texts(sweeps.load()) == expected(1, 2, 3)


def test_return_within_the_session_is_finalized_again_with_the_whole_conversation() -> None:
    """A conversation that goes on after a sweep gets a new version of its summary."""
    sweeps = Sweeps()
    sweeps.talk(1)
    sweeps.clock.advance(1801)
    sweeps.sweep()
    sweeps.talk(2)
    sweeps.clock.advance(1801)
    assert sweeps.sweep() == 1
    assert sweeps.transcripts[-1] == ("u", expected(1, 2))


def test_turn_during_the_finalizer_keeps_the_conversation_in_the_hot_tier() -> None:
    """A turn that comes in while a sweeper works wins; nothing of it is lost."""
    sweeps = Sweeps()
    sweeps.talk(1)
    sweeps.clock.advance(1801)
    assert sweeps.sweep(finalizer=lambda conversation: sweeps.talk(2)) == 0
    assert sweeps.has_hot_copy
    assert texts(sweeps.load()) == expected(1, 2)


def test_turn_between_claim_and_flush_keeps_the_conversation_from_being_finalized() -> None:
    """A conversation that goes on after a sweeper has claimed it is left alone."""
    sweeps = Sweeps()
    sweeps.talk(1)
    sweeps.clock.advance(1801)
    claim = sweeps.hot.claim

    def claim_before_a_turn(name: str, **options: Any) -> Any:
        claimed = claim(name, **options)
        sweeps.talk(2)
        return claimed

    sweeps.hot.claim = claim_before_a_turn
    assert sweeps.sweep() == 0
    sweeps.hot.claim = claim
    assert sweeps.transcripts == []
    assert sweeps.has_hot_copy
    assert texts(sweeps.load()) == expected(1, 2)


def test_finalizer_that_fails_is_tried_again_after_the_lease() -> None:
    """The hot copy stays claimed, and its time to live is not restarted."""
    sweeps = Sweeps()
    sweeps.talk(1)
    sweeps.clock.advance(1801)
    sweeps.failures = 1
    assert sweeps.sweep() == 0
    assert sweeps.has_hot_copy
    assert sweeps.sweep() == 0
    sweeps.clock.advance(61)
    assert sweeps.sweep() == 1
    assert sweeps.transcripts == [("u", expected(1))]


@pytest.mark.parametrize("hot", [True, False], ids=["both", "durable"])
def test_everything_of_a_session_that_is_over_goes(hot: bool) -> None:
    """Log, head, directory entry and index items are deleted after the session's time and the grace."""
    sweeps = Sweeps(hot=hot)
    sweeps.talk(*range(12))
    sweeps.load().flush()
    for _ in range(6):
        sweeps.clock.advance(DAY)
        sweeps.sweep()
    assert sweeps.table.rows == {}
    assert sweeps.transcripts == [("u", expected(*range(12)))]
    assert texts(sweeps.load()) == []


def test_conversation_whose_hot_copy_is_gone_is_found_by_the_durable_index() -> None:
    """Nobody swept before the hot tier's own time to live was over: the durable log is finalized."""
    sweeps = Sweeps()
    sweeps.talk(1, 2, 3, 4, 5, 6)
    sweeps.load().flush()
    sweeps.clock.advance(6 * 3600)
    sweeps.hot._conversations.clear()
    assert sweeps.sweep() == 1
    assert sweeps.transcripts == [("u", expected(1, 2, 3, 4, 5, 6))]


def test_log_that_has_lost_its_head_is_finalized_and_deleted() -> None:
    """The table's own time to live may delete a head; the log behind it is not forgotten."""
    sweeps = Sweeps(hot=False)
    sweeps.talk(*range(6))
    sweeps.load().flush()
    del sweeps.table.rows[PLACE.session, f"{PLACE.member}#HEAD"]
    sweeps.clock.advance(3 * DAY)
    assert sweeps.sweep() == 1
    assert sweeps.transcripts == [("u", expected(*range(6)))]
    for _ in range(4):
        sweeps.clock.advance(DAY)
        sweeps.sweep()
    assert sweeps.table.rows == {}


def test_incarnation_that_ended_by_age_before_a_sweep_is_finalized_apart() -> None:
    """A user who comes back after the session's time begins anew; both conversations are summarized."""
    sweeps = Sweeps(hot=False)
    sweeps.talk(*range(6))
    sweeps.clock.advance(1.2 * DAY)
    hold = sweeps.load()
    assert hold.expire(unused_since=sweeps.clock() - DAY)
    assert len(sweeps.log_keys) == 6
    say(hold, 20)
    hold.save()
    sweeps.clock.advance(1801)
    assert sweeps.sweep() == 1
    assert sweeps.transcripts == [("u", expected(*range(6))), ("u", expected(20))]
    assert not sweeps.log_keys


def test_sweeper_that_dies_behind_its_tombstone_leaves_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log whose deletion did not happen is deleted at a later look, and summarized as before."""
    sweeps = Sweeps(hot=False)
    sweeps.talk(*range(6))
    sweeps.clock.advance(0.5 * DAY)
    sweeps.sweep()
    sweeps.clock.advance(DAY)
    with monkeypatch.context() as patched:
        patched.setattr(DurableTier, "purge", _die)
        sweeps.sweep()
    assert sweeps.log_keys
    for _ in range(4):
        sweeps.clock.advance(DAY)
        sweeps.sweep()
    assert sweeps.table.rows == {}
    assert sweeps.transcripts.count(("u", expected(*range(6)))) == len(sweeps.transcripts)


def _die(*_: Any) -> None:
    raise StoreUnavailableError("the worker died here")


@pytest.mark.parametrize("begins_anew", [False, True])
def test_turn_that_arrives_late_after_a_deletion_goes_at_the_next_look(begins_anew: bool) -> None:
    """It is in no transcript, and a new conversation under the same ids is left alone."""
    sweeps = Sweeps(hot=False)
    hold = sweeps.load()
    for number in range(6):
        say(hold, number)
        hold.save()
    late = {key: row for key, row in sweeps.table.rows.items() if "#TURN#" in key[1]}
    hold.delete()
    sweeps.table.rows.update(late)
    if begins_anew:
        sweeps.talk(7)
    sweeps.clock.advance(FIRST_LOOK + 1)
    sweeps.sweep()
    assert not late.keys() & sweeps.table.rows.keys()
    assert sweeps.transcripts == ([("u", expected(7))] if begins_anew else [])
    assert texts(sweeps.load()) == (expected(7) if begins_anew else [])


def test_hot_tier_alone_is_finalized_and_dropped() -> None:
    """Without a durable tier an expired conversation ends, also its evicted turns."""
    sweeps = Sweeps(durable=False)
    hold = sweeps.load()
    for number in range(3):
        say(hold, number)
        hold.save()
    hold.local.set_view(hold.local.view[2:])
    hold.save()
    sweeps.clock.advance(1801)
    assert sweeps.sweep() == 1
    assert sweeps.transcripts == [("u", expected(0, 1, 2))]
    assert not sweeps.hot._conversations


def test_durable_outage_costs_no_conversation() -> None:
    """A conversation that cannot be flushed stays in the hot tier until it can."""
    sweeps = Sweeps()
    sweeps.talk(1)
    sweeps.clock.advance(1801)
    table: Any = FaultyTable(sweeps.table)
    table.down = True
    assert sweeps.sweep(durable=table) == 0
    assert sweeps.has_hot_copy
    sweeps.clock.advance(61)
    assert sweeps.sweep() == 1


def test_cache_in_the_hot_tier_is_dropped_without_a_finalizer() -> None:
    """Names of caches are no conversations."""
    sweeps = Sweeps()
    sweeps.talk(1)
    sweeps.clock.advance(1801)
    assert sweeps.sweep(is_cache=lambda name: True, durable=None) == 0
    assert sweeps.transcripts == []
    assert not sweeps.hot._conversations


def test_sweeper_that_knows_only_a_name_keeps_the_conversation_listed() -> None:
    """Head, directory and expiry index have the original ids, also where the table was restored to nothing."""
    sweeps = Sweeps()
    sweeps.talk(1, 2)
    sweeps.table.rows.clear()
    sweeps.clock.advance(1801)
    assert sweeps.sweep() == 1
    assert sweeps.table.rows[PLACE.session, f"{PLACE.member}#HEAD"]["member"] == "default"
    listed = [row for key, row in sweeps.table.rows.items() if key[0].partition("/")[0] in ("user", "expiry")]
    assert [(row["user"], row["session"]) for row in listed] == [("u", "s"), ("u", "s")]
