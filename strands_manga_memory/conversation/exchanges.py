"""Exchanges: groups of messages that are kept or evicted together. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from strands.types.content import Message

from strands_manga_memory.messages import calls_tools, is_tool_pair, is_turn_start, tool_result_ids, turns


def last_turn_of(messages: Sequence[Message]) -> int:
    """Return where the last turn begins; 0 if none does."""
    return next((at for at in reversed(range(len(messages))) if is_turn_start(messages[at])), 0)


def results_of_last_turn(messages: Sequence[Message]) -> list[Message]:
    """Return the messages of the last turn that bring tool results."""
    return [message for message in messages[last_turn_of(messages) :] if tool_result_ids(message)]


class Exchange(NamedTuple):
    """Messages that are kept or evicted together, so that roles still alternate: an answered turn and the messages before it.

    Attributes:
        core: Positions of the user message and of all that is in no cycle, the answer among them.
        cycles: Positions of tool calls and their results that can go alone, oldest first.
        unanswered: Positions of earlier turns that ended without an answer, oldest first; each can go alone.
    """

    core: tuple[int, ...]
    cycles: tuple[tuple[int, int], ...]
    unanswered: tuple[tuple[int, ...], ...]

    def positions(self) -> Iterator[int]:
        """All positions of the exchange, in no particular order."""
        yield from self.core
        for group in (*self.cycles, *self.unanswered):
            yield from group


def exchanges(messages: Sequence[Message]) -> list[Exchange]:
    """Return the history as exchanges, oldest first."""
    found = []
    waiting: list[range] = []
    for turn in turns(messages):
        last = messages[turn.stop - 1]
        answered = last["role"] == "assistant" and not calls_tools(last)
        if answered or turn.stop == len(messages):
            found.append(_exchange(messages, turn, waiting))
            waiting = []
        else:
            waiting.append(turn)
    return found


def _exchange(messages: Sequence[Message], turn: range, waiting: list[range]) -> Exchange:
    unanswered = tuple(tuple(earlier) for earlier in waiting) if waiting else ()
    if len(turn) < 4:  # too short for a call, its result and what follows
        return Exchange(tuple(turn), (), unanswered)
    cycles = []
    in_cycle: set[int] = set()
    at = turn.start + 1
    while at + 2 < turn.stop:
        if (
            is_tool_pair(messages[at], messages[at + 1])
            and messages[at - 1]["role"] == "user"
            and messages[at + 2]["role"] == "assistant"
            and all("toolResult" in block for block in messages[at + 1]["content"])
        ):
            cycles.append((at, at + 1))
            in_cycle.update(cycles[-1])
            at += 2
        else:
            at += 1
    core = tuple(at for at in turn if at not in in_cycle) if in_cycle else tuple(turn)
    return Exchange(core, tuple(cycles), unanswered)


def ids_of_first_turn(messages: Sequence[Message]) -> frozenset[str]:
    """Return the tracking ids of the first turn's messages, to its answer; none as long as there is no second turn.

    In a history that was trimmed later answers may follow that of the first turn.
    """
    found = [turn for turn in turns(messages) if is_turn_start(messages[turn.start])]
    ids: list[str] = []
    for at in found[0] if len(found) > 1 else ():
        ids += [id_] if (id_ := messages[at].get("tracking_id")) else []
        if messages[at]["role"] == "assistant" and not calls_tools(messages[at]):
            break
    return frozenset(ids)
