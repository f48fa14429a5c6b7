"""Gathering: reading a log in which messages of two writers cross turn by turn. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from strands_manga_memory.session.window import Identity, Logged
from strands_manga_memory.stores.codec import dump, load

_MOST_HELD = 500
"""Messages that wait for the rest of their turns. What comes after so many others comes by itself."""


def gathered(log: Iterable[Logged]) -> Iterator[Logged]:
    """Yield the messages of a log turn by turn, each once, in its latest revision.

    Numbers are given when messages are saved, so turns of several writers may cross, and one that was saved late follows later
    ones of its writer. A turn comes where its last message is, as in the window of whoever ended it, but before the later turns
    of its writer, and its number is above those before.
    """
    turns: dict[str, dict[Identity, Logged]] = {}
    order: list[str] = []
    latest: dict[str, int] = {}
    held = number = 0

    def next_turn() -> Iterator[Logged]:
        nonlocal held, number
        turn = turns.pop(order.pop(0))
        held -= len(turn)
        number = max(number + 1, min(slot.turn for slot in turn.values()))
        for slot in sorted(turn.values(), key=lambda slot: slot.within):
            yield slot if slot.turn == number else _renumbered(slot, number)

    for slot in log:
        turn = turns.setdefault(slot.of, {})
        same = turn.get(slot.identity)
        if same is not None:
            turn[slot.identity] = max(same, slot, key=lambda one: one.revision)
            continue
        if turn and slot.of != order[-1]:
            order.remove(slot.of)
        if slot.of not in order[-1:]:
            order.insert(_place(slot.of, order, latest), slot.of)
        turn[slot.identity] = slot
        held += 1
        while held > _MOST_HELD:
            yield from next_turn()
    while order:
        yield from next_turn()


def _place(turn: str, order: list[str], latest: dict[str, int]) -> int:
    """Return where a turn comes among those that wait."""
    writer, number = _parsed(turn)
    if not writer or number >= latest.get(writer, 0):
        latest[writer] = number
        return len(order)
    return next((at for at, other in enumerate(order) if _is_later(other, writer, number)), len(order))


def _is_later(turn: str, writer: str, number: int) -> bool:
    other, count = _parsed(turn)
    return other == writer and count > number


def _parsed(turn: str) -> tuple[str, int]:
    """Return who made a turn, and which of his it is; nobody if its id does not tell."""
    writer, _, number = turn.rpartition(".")
    return (writer, int(number)) if writer and number.isdecimal() else ("", 0)


def _renumbered(slot: Logged, turn: int) -> Logged:
    return dataclasses.replace(slot, turn=turn, record=dump({**load(slot.record), "turn": turn}))
