"""Numbering: which sequence number a message gets, so that two writers' turns never interleave in the log. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from strands_manga_memory.session.records import Head

TURN_NUMBERS = 1000
"""Sequence numbers set aside for a turn that is saved before its end."""


@dataclass(slots=True)
class _Block:
    """Sequence numbers set aside for a turn, by the save of this number."""

    next: int
    end: int
    save: int


class Blocks:
    """The sequence numbers set aside for turns, as far as they are not used up."""

    def __init__(self) -> None:
        self._of_turn: dict[int, _Block] = {}

    def hold(self, turn: int, seq: int) -> bool:
        """Tell whether numbers were set aside for a turn, and ``seq`` (0: none yet) is not beyond them."""
        return turn in self._of_turn and seq < self._of_turn[turn].end

    def take(self, turn: int, head: Head, *, is_open: bool, save: int) -> int:
        """Return the next number for a message of a turn; set numbers aside if the turn is open and has none left."""
        block = self._of_turn.get(turn)
        if is_open and (block is None or block.next == block.end):
            block = self._of_turn[turn] = _Block(head.next, head.next + TURN_NUMBERS, save)
            head.next = block.end
        if block is not None and block.next < block.end:
            block.next += 1
            return block.next - 1
        head.next += 1
        return head.next - 1

    def give_back(self, turn: int, head: Head) -> None:
        """Let the next message have what a turn did not use, if no number beyond that is taken."""
        block = self._of_turn.get(turn)
        if block is not None and head.next == block.end:
            head.next = block.end = block.next

    def keep(self, turns: Collection[int]) -> None:
        """Forget what was set aside for other turns than these."""
        self._of_turn = {turn: block for turn, block in self._of_turn.items() if turn in turns}

    def keep_granted(self, save: int, *, in_place: Collection[int], head: Head, taken: Collection[int]) -> None:
        """Forget what was set aside by saves after this one: they were refused.

        Args:
            save: The last save that is included.
            in_place: Turns that are stored where they began all the same, because others knew of the save.
            head: The head of what is stored.
            taken: Numbers that are taken there.
        """

        def is_free(block: _Block) -> bool:
            return block.end <= head.next and not any(block.next <= seq < block.end for seq in taken)

        self._of_turn = {
            turn: block for turn, block in self._of_turn.items() if block.save <= save or (turn in in_place and is_free(block))
        }

    def drop(self, turn: int) -> None:
        """Forget what was set aside for a turn."""
        self._of_turn.pop(turn, None)

    def rename(self, turns: Mapping[int, int]) -> None:
        """Keep what was set aside for turns that are called otherwise from now on."""
        self._of_turn = {turns.get(turn, turn): block for turn, block in self._of_turn.items()}

    def resume(self, turn: int, taken: Collection[int], *, save: int) -> None:
        """Go on behind the numbers that a turn has taken, in what someone else set aside for it."""
        self._of_turn[turn] = _Block(max(taken) + 1, min(taken) + TURN_NUMBERS, save)
