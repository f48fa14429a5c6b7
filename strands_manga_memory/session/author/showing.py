"""Showing: the messages of a view, valid for every model provider whatever was cut or damaged. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strands.types.content import Message

from strands_manga_memory.exceptions import CorruptRecordError, KeyMissingError
from strands_manga_memory.messages import is_message, is_of_tools, tool_result_ids, tool_use_ids
from strands_manga_memory.messages.placeholders import CUT_TEXT, PLACEHOLDER
from strands_manga_memory.session.core.identity import Name, Stamp
from strands_manga_memory.session.core.records import Body, Lost, Mark, Shown, lost_message, name_of
from strands_manga_memory.session.core.records import Message as StoredMessage
from strands_manga_memory.session.core.window import closed_turns
from strands_manga_memory.stores.encoding.codec import dump

_NO_TURN = Stamp(0, "")


@dataclass(slots=True)
class Piece:
    """A message as the agent gets it.

    Args:
        message: The message.
        shown: What it is of the view; None for a note that closes a turn, or stands between two messages.
        closes: The turn that it closes.
    """

    message: dict[str, Any]
    shown: Shown | None = None
    closes: Stamp | None = None

    @property
    def role(self) -> str:
        """Whose message it is."""
        return str(self.message["role"])


def shown_messages(view: Sequence[Shown], open_turns: Mapping[Stamp, int]) -> list[Piece]:
    """Return the messages of a view.

    What cannot be read is a placeholder, and so are the results of calls that cannot be read: no model takes them, but they
    keep their place. After what is there of an open turn, notes
    close it: results for the tools that it called, and an answer.

    Args:
        view: What to show.
        open_turns: Turns that nobody has finished, and nobody here is in the middle of: the number of each one's first message.
    """
    ends = _ends(view, open_turns) if open_turns else {}
    lost: set[Name | None] | None = None
    pieces: list[Piece] = []
    for at, one in enumerate(view):
        before = pieces[-1] if pieces else None
        message = _message(one, before)
        message = message or lost_message(one, "assistant" if before is not None and before.role == "user" else "user")
        if before is not None and before.role == message["role"]:
            if before.shown is None:
                pieces.pop()  # who made the window took this for the answer
                before = pieces[-1]
            lost = {name_of(each) for each in view if was_lost(each)} if lost is None else lost
            if before.role == message["role"] and _are_apart(before, one, lost):
                pieces.append(Piece(note_between(before.message, message), closes=_NO_TURN))
        pieces.append(Piece(message, one))
        if at in ends:
            turn = ends[at]
            notes = closing_notes(pieces[-1].message, f"cut-{turn.writer}-{turn.clock}")
            pieces.extend(Piece(note, closes=turn) for note in notes)
    return pieces


def closed(view: Sequence[Shown], open_turns: Mapping[Stamp, int]) -> list[Shown]:
    """Return a view in which the notes that close open turns are bodies; for the arguments see :func:`shown_messages`."""
    found: list[Shown] = []
    for piece in shown_messages(view, open_turns):
        if piece.shown is not None:
            found.append(piece.shown)
        if piece.closes in open_turns:
            found.append(Body(dump(piece.message), closes=piece.closes))
    return found


def mark_id(before: str) -> str:
    """Return the ``tracking_id`` of a mark, given that of the message before it."""
    return f"{before}+"


def _ends(view: Sequence[Shown], open_turns: Mapping[Stamp, int]) -> dict[int, Stamp]:
    """Return where the last message at hand of each open turn is, unless somebody closed it with a note of his own."""
    firsts = {turn.writer: (first, turn) for turn, first in open_turns.items()}
    closed = closed_turns(view)
    last: dict[Stamp, int] = {}
    for at, one in enumerate(view):
        name = name_of(one)
        if name is not None and name.writer in firsts:
            first, turn = firsts[name.writer]
            if name.number >= first and turn not in closed:
                last[turn] = at
    return {at: turn for turn, at in last.items()}


def _message(one: Shown, before: Piece | None) -> dict[str, Any] | None:
    """Return a message; None if it cannot be read, or answers what cannot."""
    if isinstance(one, Mark):
        id_ = one.id or mark_id(before.message.get("tracking_id") or "" if before else "")
        return {"role": one.role, "content": [{"text": PLACEHOLDER}], "tracking_id": id_}
    if isinstance(one, Lost):
        return None
    try:
        value = one.value
    except KeyMissingError:
        raise
    except CorruptRecordError:
        return None
    if not is_message(value):
        return None
    comes_after_what_is_lost = before is not None and isinstance(before.shown, Lost)
    return None if comes_after_what_is_lost and tool_result_ids(value) else value


def was_lost(shown: Shown) -> bool:
    """Tell whether what is shown cannot be read, or could not when its window was written."""
    return isinstance(shown, Lost) or (isinstance(shown, StoredMessage) and shown.was_lost)


def _are_apart(piece: Piece, other: Shown, lost: Collection[Name | None]) -> bool:
    """Tell whether neighbours may be of one role only because of what was lost or cut, or because one of them is a mark."""
    one = piece.shown
    if one is None:
        return False
    if was_lost(one) or was_lost(other):
        return True
    if any(isinstance(each, Body) and not (each.edits or each.closes) for each in (one, other)):
        return False  # whoever made it wanted it there
    if isinstance(one, Body) and one.closes:
        return True
    first, last = name_of(one), name_of(other)
    after = first and first._replace(number=first.number + 1)
    before = last and last._replace(number=last.number - 1)
    if first is not None and first == before:  # somebody said them so
        return False
    return after in lost or before in lost or any(isinstance(each, Mark) for each in (one, other))


def note_between(before: Mapping[str, Any], message: Mapping[str, Any]) -> Any:
    """Return a note that keeps roles alternating between two messages of one role."""
    other = "assistant" if message["role"] == "user" else "user"
    return {"role": other, "content": [{"text": PLACEHOLDER}], "tracking_id": mark_id(before.get("tracking_id") or "")}


def closing_notes(last: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return notes that close what ends with a message, none if it is an answer: results of its tool calls, and an answer.

    Their ids begin with ``name``.
    """
    calls = tool_use_ids(last)
    if last["role"] == "assistant" and not calls:
        return []
    notes: list[dict[str, Any]] = [{"role": "user", "content": cut_results(calls)}] if calls else []
    notes.append({"role": "assistant", "content": [{"text": CUT_TEXT}]})
    return [{**note, "tracking_id": f"{name}-{at}"} for at, note in enumerate(notes)]


def cut_results(calls: Sequence[str]) -> list[Any]:
    """Return results that say of tool calls that they were cut off."""
    return [{"toolResult": {"toolUseId": call, "status": "error", "content": [{"text": CUT_TEXT}]}} for call in calls]


def paired(messages: Iterable[Message]) -> list[Message]:
    """Return messages in which every tool call but those of the last one is answered by the next message, and nothing else is.

    A later result of a call takes the place of the earlier one. Results of calls that no message before makes go, with their
    message if it holds nothing else. A call without a result gets one that says that it was cut off. Notes keep roles
    alternating where that would end it. What has its other half stays as it is, in the same objects.
    """
    messages = list(messages)
    if not any(map(is_of_tools, messages)):
        return messages
    kept: list[Message] = []
    answered: dict[str, int] = {}
    has_gap = False
    for message in messages:
        calls = tool_use_ids(kept[-1]) if kept else []
        results = set(tool_result_ids(message))
        if results != set(calls):
            _replace_results(kept, answered, message)
            content = [block for block in message["content"] if set(calls).issuperset(tool_result_ids({"content": [block]}))]
            if message["content"] and not content:
                has_gap = True
                continue
            if not results.isdisjoint(calls):
                content = [*cut_results([call for call in calls if call not in results]), *content]
            message = {**message, "content": content} if content != message["content"] else message
        if calls and results.isdisjoint(calls):
            kept.extend(_notes(kept[-1], before=message["role"]))
        elif has_gap and kept and kept[-1]["role"] == message["role"]:
            kept.append(note_between(kept[-1], message))
        kept.append(message)
        answered |= dict.fromkeys(tool_result_ids(message), len(kept) - 1)
        for id_ in tool_use_ids(message):
            answered.pop(id_, None)  # from now on a result of this id is of the new call
        has_gap = False
    return kept


def _replace_results(kept: list[Message], answered: Mapping[str, int], message: Message) -> None:
    """Put the results in a message in the place of earlier results of the same calls; those of one id in their order."""
    for id_ in answered.keys() & set(tool_result_ids(message)):
        at = answered[id_]
        content = list(kept[at]["content"])
        places = [index for index, block in enumerate(content) if tool_result_ids({"content": [block]}) == [id_]]
        later = [block for block in message["content"] if tool_result_ids({"content": [block]}) == [id_]]
        for place, block in zip(places, later[-len(places) :], strict=False):
            content[place] = block
        kept[at] = {**kept[at], "content": content}


def _notes(last: Message, *, before: str) -> list[Any]:
    """Return what answers all calls of a message, so that one of role ``before`` may follow."""
    notes = closing_notes(last, f"cut-{last.get('tracking_id') or ''}")
    return notes if before == "user" else notes[:1]
