"""What must stay is shortened when it is too much."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from strands_manga_memory.conversation.history.shortening import Shortener
from strands_manga_memory.conversation.importance.choosing.choice import CURRENT_TURN, FIRST_TURN, PINNED
from strands_manga_memory.conversation.importance.choosing.groups import Group, band_of
from strands_manga_memory.conversation.importance.weighing.scoring import Band
from strands_manga_memory.messages import tool_use_ids

_HARD_FLOOR = 24


def make_room(
    shortener: Shortener, groups: Sequence[Group], spoken_in: Callable[[Group], int], *, budget: int, headroom: int = 0
) -> None:
    """Shorten what must stay until it is within the budget; large tool results, and an answer once it is given, further.

    Both give way to the high band. The first turn's answer keeps its ends in any case. In this order, each step as far as it
    is needed: tool results (older ones first, the largest first), the answer that ended the turn, texts of the first turn, the
    oldest tool calls of the current turn (with their results), a note for images and documents, other texts, inputs of tool
    calls; then the same more drastically; then what stays only because a message beside it is pinned; at last nothing of a
    piece but the note that it was cut. At least half of the budget is left to what must stay; if it was over the budget, up to
    a quarter is freed for the middle band, so that one huge result does not drive out the conversation. Pinned messages are
    never touched: if they alone are over the budget, the rest keeps a readable size and the result is over it. ``spoken_in``
    tells the tokens of what the user says in a group.
    """
    was_over, usual = shortener.tokens > budget, budget - headroom
    first = [at for group in groups if group.required == FIRST_TURN for at in group.positions]
    floor = max(64, usual // 32)
    answers = [at for at in first if shortener.messages[at]["role"] == "assistant"]
    shortener.shorten("text", answers, 0, 2 * floor)  # what was asked first must stay, not all that was answered
    if shortener.tokens <= headroom + usual // 2:
        return
    others = dict.fromkeys(Band, 0)
    spoken = 0
    for group in groups:
        others[band_of(group)] += 0 if group.required else group.tokens
        spoken += 0 if group.required else spoken_in(group)
    middle = others[Band.MIDDLE] if was_over else min(others[Band.MIDDLE], spoken)
    wanted = others[Band.HIGH] + min(middle, usual // 4)
    aim = headroom + max(usual // 2, usual - wanted)
    if shortener.tokens <= aim:
        return
    everything = list(shortener.messages)
    shortener.shorten("toolResult", everything[:-1], aim, floor)
    shortener.shorten("toolResult", everything[-1:], aim, floor)
    for deeper in (floor // 2, floor // 4) if spoken else ():  # the user's own words are worth more than old results
        shortener.shorten("toolResult", everything[:-1], budget - min(spoken, usual // 4), max(_HARD_FLOOR, deeper))
    shortener.shorten("text", _finished_answer(shortener), aim, 2 * floor)
    if shortener.tokens <= budget:
        return
    shortener.shorten("text", first, aim, floor)
    for group in reversed(groups):
        if group.is_cycle and group.required == CURRENT_TURN and shortener.tokens > budget:
            shortener.drop(group.positions)
    everything = list(shortener.messages)
    shortener.leave_out_media(everything, budget)
    shortener.shorten("text", everything, aim, floor)
    shortener.shorten("toolUse", everything, aim, floor)
    if shortener.locked_tokens < budget:
        _make_room_at_any_cost(shortener, groups, budget)


def _finished_answer(shortener: Shortener) -> list[int]:
    """Where the answer is that ended the current turn, if it did: it has been read, and may give way to what stands."""
    last = max(shortener.messages, default=-1)
    is_answer = last >= 0 and shortener.messages[last]["role"] == "assistant" and not tool_use_ids(shortener.messages[last])
    return [last] if is_answer else []


def _make_room_at_any_cost(shortener: Shortener, groups: Sequence[Group], budget: int) -> None:
    for kind in ("toolResult", "text", "toolUse"):
        shortener.shorten(kind, list(shortener.messages), budget, _HARD_FLOOR)
    for group in reversed(groups):
        if group.required == PINNED:
            _drop_around_pins(shortener, group.positions, budget)
    for kind in ("toolResult", "text", "toolUse"):  # of many pieces even a readable size each may be too much
        shortener.shorten(kind, list(shortener.messages), budget, 1)


def _drop_around_pins(shortener: Shortener, positions: Sequence[int], budget: int) -> None:
    """Drop what is in an exchange beside its pinned messages and the other halves of pinned tool calls and results."""
    waiting: list[int] = []
    for at in positions:
        waiting.append(at)
        if not tool_use_ids(shortener.messages[at]):
            if shortener.tokens > budget:
                shortener.drop(waiting)
            waiting = []
