"""HotTier: messages of the log, read by their numbers."""

from __future__ import annotations

import pytest

from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.session.hot_tier import HotTier
from strands_manga_memory.stores.codec import Codec
from tests.unit.session.world import PLACE, Step, World


@pytest.fixture
def world() -> World:
    made = World()
    for step in (Step("start"), Step("begin_turn", 1), Step("end_turn", 1, (0, False, False))):
        made.take(step)
    return made


def tier(world: World) -> HotTier:
    return HotTier(world.store, PLACE, Codec(), keeps_log=False)


def test_messages_are_read_by_their_numbers(world: World) -> None:
    assert [slot.tracking_id for slot in tier(world).read_log([1, 2, 3], since=1)] == ["m1", "m2"]


def test_messages_of_another_incarnation_have_other_numbers(world: World) -> None:
    assert tier(world).read_log([1, 2], since=3) == []


def test_there_is_nothing_behind_a_tombstone(world: World) -> None:
    world.take(Step("delete", 1))
    assert tier(world).read_log([1, 2], since=1) == []


def test_messages_without_a_head_are_damaged(world: World) -> None:
    del world.store._conversations[PLACE.conversation].fields["head"]
    with pytest.raises(CorruptRecordError, match="#head' is damaged: it is missing"):
        tier(world).read_log([1, 2], since=1)
