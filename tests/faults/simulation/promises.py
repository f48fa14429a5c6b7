"""What must hold in a world when everyone has finished."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

from strands_manga_memory.messages import for_model, problems
from tests.faults.simulation.world import World
from tests.unit.session.support import same

_Log = list[tuple[str, int]]


def check(world: World) -> None:
    """Compare what a new process finds with what was said; raise ``AssertionError`` for a promise that does not hold."""
    core = world.engine.core(world.machine("end"))
    live = core.open() or []
    log = [entry for entry in core.history() if not entry[0].startswith("unreadable") or not world.may_be_lost]
    _check_messages(world, [id_ for id_, _ in log])
    _check_turns(world, log)
    _check_shown(world, [id_ for id_, _ in log], {message["tracking_id"] for message in live})
    for process in world.processes:
        assert same(process.live, live), f"{process.name} has {process.live}, stored is {live}"
    _check_neighbours(world, live)
    assert problems(for_model(live)) == [], f"no valid request: {live}"
    stored = str([world.store._conversations, world.table.rows])
    back = sorted(text for text in world.secrets if text in stored)
    assert not back, f"redacted text is back: {back}"


def _check_messages(world: World, ids: list[str]) -> None:
    doubled = [id_ for id_, count in Counter(ids).items() if count > 1]
    assert not doubled, f"doubled: {doubled} in {ids}"
    back = sorted(world.gone & set(ids))
    assert not back, f"deleted messages are back: {back} in {ids}"
    lost = sorted(world.saved - set(ids) - world.may_be_lost - world.gone)
    assert not lost, f"lost: {lost} of {sorted(world.saved)} in {ids}"


def _check_neighbours(world: World, live: list[Any]) -> None:
    """Neighbours are of one role only where the answer to one, or the question before the other, was dropped or lost."""
    evicted = {world.said.get(id_) for id_ in world.dropped | world.may_be_lost}
    for one, other in itertools.pairwise(live):
        if one["role"] == other["role"]:
            incomplete = one if one["role"] == "user" else other
            assert world.said.get(incomplete["tracking_id"]) in evicted - {None}, f"roles of {one} and {other} in {live}"


def _check_shown(world: World, ids: list[str], shown: set[str]) -> None:
    """What no conversation manager dropped is shown, unless one dropped or edited placeholders of it."""
    if any(id_.startswith("unreadable") for id_ in world.dropped | shown):
        return
    missing = [id_ for id_ in ids if id_ not in shown and world.said.get(id_) in world.whole - world.dropped_turns]
    assert not missing, f"not shown: {missing} of {ids}"


def _check_turns(world: World, log: _Log) -> None:
    """Turns are whole, in the order of their messages, and numbered upwards."""
    turns: dict[Any, list[int]] = {}
    for at, (id_, _) in enumerate(log):
        turns.setdefault(world.said[id_], []).append(at)
    for turn, places in turns.items():
        found = [log[at][0] for at in places]
        assert places == list(range(places[0], places[0] + len(places))), f"torn: {turn} in {log}"
        assert len({log[at][1] for at in places}) == 1, f"several numbers: {turn} in {log}"
        assert found == [id_ for id_, of in world.said.items() if of == turn and id_ in found], f"out of order: {turn} in {log}"
    numbers = [log[places[0]][1] for places in turns.values()]
    assert numbers == sorted(set(numbers)), f"turn numbers: {numbers}"
