"""The window: which logged messages, and which messages of its own, an agent's history holds, in order. Pure."""

from __future__ import annotations

import dataclasses
import marshal
import re
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from strands.types.content import Message

from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.stores.codec import dump, load

CUT_TEXT = "[This turn was interrupted before it was finished.]"
"""What a turn that a crash cut in half ends with in the window (never in the log)."""

_CUT_MARK, _CUT_RESULTS = "cut_turn", "cut_turn_results"
_TOKEN = re.compile(r"(?:([0-9]{1,12})(?:-([0-9]{1,12}))?|x([0-9]{1,12}))\Z")

_MOST_NUMBERS = 1_000_000
"""A text that stands for more numbers was made to fill the memory of whoever reads it."""


Identity = tuple[str, float]
"""``tracking_id`` and time of a logged message: what it keeps when it gets another number."""


@dataclass(eq=False, slots=True)
class Logged:
    """A message of the log.

    ``seq`` is 0 until the log has given it a place, ``number`` is the save of this process that first carried it (0: none),
    and ``order`` counts the messages that this process appended (0: not by this process; below 0: others did, and this process
    stores it anew, before its own).

    ``turn_id`` is what its turn is called by everybody, whatever number ``turn`` it has in a copy; ``ordinal`` counts the
    messages of that turn. A record of an earlier version has neither: its turn is known by its number.

    ``had`` are the numbers that this process has given it: it may be stored by any of them.
    """

    tracking_id: str
    fingerprint: int
    record: bytes
    turn: int
    at: float
    seq: int = 0
    revision: int = 0
    number: int = 0
    order: int = 0
    turn_id: str = ""
    ordinal: int = 0
    had: tuple[int, ...] = ()

    @property
    def message(self) -> Message:
        """A fresh copy of the message."""
        return cast("Message", load(self.record)["message"])

    @property
    def of(self) -> str:
        """The turn that it belongs to."""
        return self.turn_id or str(self.turn)

    @property
    def within(self) -> tuple[int, bool, int, int]:
        """Where it comes within its turn."""
        return self.ordinal, self.seq == 0, self.seq, self.order

    @property
    def identity(self) -> Identity:
        """What the message keeps when it gets another number."""
        return self.tracking_id, self.at


@dataclass(eq=False, slots=True)
class Body:
    """A message of the window that the log does not have in this form: a synthesized or edited one.

    An edited one belongs to the turn of the message that it is in place of.
    """

    tracking_id: str
    fingerprint: int
    record: bytes
    number: int = 0
    turn_id: str = ""
    ordinal: int = 0

    @property
    def message(self) -> Message:
        """A fresh copy of the message."""
        return cast("Message", load(self.record)["message"])

    @property
    def of(self) -> str:
        """The turn that it belongs to; empty if it is synthesized."""
        return self.turn_id

    @property
    def within(self) -> tuple[int, bool, int, int]:
        """Where it comes within its turn."""
        return self.ordinal, False, 0, 0


Slot = Logged | Body


def fingerprint(message: Any) -> int:
    """Return a number that changes when a message changes anywhere. Good for this process only."""
    try:
        # Version 0 writes every value out in full; later versions write references that depend on how objects are shared.
        return hash(marshal.dumps(message, 0))
    except ValueError:
        return hash(dump(message))


def body_of(message: Message, *, edits: Slot | None = None) -> Body:
    """Return a body that holds ``message``, in place of the slot that it ``edits``."""
    turn = {"turn_id": edits.of, "ordinal": edits.ordinal} if edits is not None and edits.of else {}
    body = Body(message.get("tracking_id") or "", fingerprint(message), dump({"message": message, **turn}))
    if edits is not None:
        body.turn_id, body.ordinal = edits.of, edits.ordinal
    return body


def matched(messages: Sequence[Message], known: Iterable[Slot]) -> list[Slot]:
    """Return the slots of ``messages``: known ones where a message is unchanged, new bodies elsewhere.

    Messages are recognized by ``tracking_id`` and content. Several messages may share a ``tracking_id`` (a caller passed one
    list twice): the latest slots go to the latest messages.
    """
    by_key: dict[tuple[str, int], list[Slot]] = defaultdict(list)
    by_id: dict[str, Slot] = {}
    for slot in known:
        by_key[slot.tracking_id, slot.fingerprint].append(slot)
        if slot.tracking_id:
            by_id[slot.tracking_id] = slot
    slots: list[Slot] = []
    for message in reversed(messages):
        candidates = by_key.get((message.get("tracking_id") or "", fingerprint(message)))
        slots.append(candidates.pop() if candidates else body_of(message, edits=by_id.get(message.get("tracking_id") or "")))
    slots.reverse()
    return slots


def distinct(slots: Iterable[Slot]) -> list[Slot]:
    """Return the slots without messages of the log that are there before."""
    found: dict[object, Slot] = {}
    for slot in slots:
        found.setdefault(slot.identity if isinstance(slot, Logged) else id(slot), slot)
    return list(found.values())


def window_text(slots: Iterable[Slot]) -> str:
    """Return the window as text: ``1-5,9,x2`` is messages 1 to 5, message 9, body 2."""
    return runs_text(slot.seq if isinstance(slot, Logged) else -slot.number for slot in slots)


def runs_text(numbers: Iterable[int]) -> str:
    """Return numbers as text, runs shortened; a negative one is the body of that number."""
    tokens: list[str] = []
    first = last = 0

    def close() -> None:
        if first:
            tokens.append(str(first) if first == last else f"{first}-{last}")

    for number in numbers:
        if number > 0 and number == last + 1 and first:
            last = number
            continue
        close()
        if number > 0:
            first = last = number
        else:
            tokens.append(f"x{-number}")
            first = last = 0
    close()
    return ",".join(tokens)


def parse_runs(text: str, *, record: str) -> list[int]:
    """Return the numbers of ``runs_text``.

    Raises:
        CorruptRecordError: The text is malformed; names ``record``.
    """
    numbers: list[int] = []
    for token in text.split(",") if text else ():
        match = _TOKEN.match(token)
        if match is None:
            raise CorruptRecordError(f"record={record!r} is damaged: {token!r} is no part of a window", record=record)
        first, last, body = match.groups()
        if len(numbers) + (0 if body else int(last or first) - int(first)) >= _MOST_NUMBERS:
            raise CorruptRecordError(f"record={record!r} is damaged: it names too many messages", record=record)
        numbers.extend([-int(body)] if body else range(int(first), int(last or first) + 1))
    return numbers


def starts_turn(message: Message, previous: Message | None) -> bool:
    """Tell whether a message starts a turn: a user's own words that follow something else (a toolResult never does)."""
    if not _is_plain_user(message):
        return False
    return previous is None or not _is_plain_user(previous)


def mended(messages: Sequence[Message], *, cut: Iterable[str] = (), keep_trailing_tool_use: bool = False) -> list[Message]:
    """Return the messages with every turn that was cut in half closed, so that a next turn is valid.

    A toolUse without result gets one that says so, and a cut turn that ends with the user's side gets an assistant message
    that says so; such messages which are no longer needed go. What is not cut stays as it is, in the same objects.

    Args:
        messages: A restored window.
        cut: ``tracking_id`` of the messages of turns that were never finished.
        keep_trailing_tool_use: Leave a last toolUse open, because an active interrupt will answer it.
    """
    cut_ids = set(cut)
    messages = _without_needless_results(messages)
    answers = _followers(messages, aside=_is_note)
    result: list[Message] = []
    for index, message in enumerate(messages):
        following = messages[index + 1] if index + 1 < len(messages) else None
        if _is_note(message):
            if result and result[-1]["role"] == "user" and (following is None or following["role"] == "user"):
                result.append(message)
            continue
        result.append(message)
        if following is None and keep_trailing_tool_use:
            continue
        wanted = tool_use_ids(message)
        answer = answers[index]
        may_be_cut = answer is None or message.get("tracking_id") in cut_ids
        if wanted and may_be_cut and (answer is None or not wanted <= tool_result_ids(answer)):
            result.append(_results(wanted, after=message))
            if following is None or following["role"] == "user":
                result.append(_note(after=message))
        elif _is_end_of_cut(message, following, cut_ids):
            result.append(_note(after=message))
    return result


def _followers(messages: Sequence[Message], *, aside: Callable[[Message], bool]) -> list[Message | None]:
    """Return for each message what follows it, those put ``aside`` left out."""
    found: list[Message | None] = []
    latest: Message | None = None
    for message in reversed(messages):
        found.append(latest)
        latest = latest if aside(message) else message
    return found[::-1]


def _without_needless_results(messages: Sequence[Message]) -> list[Message]:
    """Return the messages without results that say a turn was cut, but for those of calls right before that nothing answers."""
    answers = _followers(messages, aside=_closes)
    kept: list[Message] = []
    calls: set[str] = set()
    for message, answer in zip(messages, answers, strict=True):
        if _CUT_RESULTS in _marks(message):
            ids = tool_result_ids(message)
            if not ids <= calls or (answer is not None and ids <= tool_result_ids(answer)):
                continue
            calls = set()
        elif not _is_note(message):
            calls = tool_use_ids(message)
        kept.append(message)
    return kept


def _is_end_of_cut(message: Message, following: Message | None, cut_ids: set[str]) -> bool:
    is_cut = message.get("tracking_id") in cut_ids or _CUT_RESULTS in _marks(message)
    if message["role"] != "user" or not is_cut:
        return False
    return following is None or (following["role"] == "user" and not tool_result_ids(following))


def tool_use_ids(message: Message) -> set[str]:
    """Return the ids of the tool calls a message makes."""
    return {block["toolUse"]["toolUseId"] for block in message["content"] if "toolUse" in block}


def tool_result_ids(message: Message) -> set[str]:
    """Return the ids of the tool calls a message answers."""
    return {block["toolResult"]["toolUseId"] for block in message["content"] if "toolResult" in block}


def _is_plain_user(message: Message) -> bool:
    return message["role"] == "user" and not tool_result_ids(message)


def shown_of(
    window: Iterable[Slot], carried: Sequence[Logged], *, log: Mapping[Identity, Logged], first: int, beside: Sequence[Slot]
) -> list[Slot]:
    """Return what a window shows of some of its messages: themselves, edited forms of them, and what closes their turns.

    Of a turn of which the other window shows the beginning, the rest is shown although this one shows nothing of it any more.

    Args:
        window: The window.
        carried: The messages.
        log: Messages of the log from ``first`` on. What begins the turn of a carried one comes along if it is not visible.
        first: Number below which the log has what the window has.
        beside: The window of the log, which comes before.
    """
    visible = {slot.tracking_id for slot in beside}
    by_identity = {slot.identity: slot for slot in carried}
    ids, turns = {slot.tracking_id for slot in carried}, {slot.of for slot in carried}
    shown: list[Slot] = []
    edited: set[str] = set()
    question: Body | None = None  # it may be known to this window alone
    for slot in window:
        found: Slot | None = None
        if isinstance(slot, Logged):
            found = by_identity.get(slot.identity)
            if found is None and slot.of in turns and slot.tracking_id not in visible:
                found = slot if 0 < slot.seq < first else log.get(slot.identity)
            if found is not None and question is not None and slot.message["role"] == "assistant":
                shown.append(question)
        elif slot.tracking_id in ids or (shown and closes_a_turn(slot) and slot.tracking_id not in visible):
            found = copy_of(slot)
        elif slot.of in turns and slot.tracking_id not in visible and slot.tracking_id not in edited:
            found = copy_of(slot)  # in place of a message that is not at hand, or that the log has
        if isinstance(found, Body):
            edited.add(found.tracking_id)
        if found is not None:
            shown.append(found)
        question = None
        if isinstance(slot, Body) and found is None and slot.tracking_id not in visible and slot.message["role"] == "user":
            question = copy_of(slot)
    # A window that went back in time ends before a turn does of which it shows the beginning.
    by_id = {slot.tracking_id: slot for slot in carried}
    messages = [slot if isinstance(slot, Logged) else by_id.get(slot.tracking_id) for slot in shown]
    latest = _latest(slot for slot in messages if slot is not None)
    begun = {turn: within for turn, within in _latest(beside).items() if turn not in latest}
    rest = [slot for slot in carried if slot not in messages]
    before, after = _rest_of(begun, rest), _rest_of(latest, rest)
    # Of a turn that goes on in another form here, the other one may show a tool call without its results.
    calls = {id_ for slot in beside if slot.of in latest for id_ in tool_use_ids(slot.message)}
    answers = [s for s in rest if s not in before and s not in after and not calls.isdisjoint(tool_result_ids(s.message))]
    return [*before, *answers, *shown, *after]


def _latest(slots: Iterable[Slot]) -> dict[str, tuple[int, bool, int, int]]:
    """Return up to where each turn is there."""
    latest: dict[str, tuple[int, bool, int, int]] = {}
    for slot in slots:
        if slot.of:
            latest[slot.of] = max(slot.within, latest.get(slot.of, slot.within))
    return latest


def _rest_of(latest: Mapping[str, tuple[int, bool, int, int]], slots: Iterable[Logged]) -> list[Logged]:
    """Return those slots that come later in one of these turns."""
    return [slot for slot in slots if slot.of in latest and slot.within > latest[slot.of]]


def copy_of(body: Body) -> Body:
    """Return the same body, to be stored anew."""
    return dataclasses.replace(body, number=0)


def closes_a_turn(slot: Body) -> bool:
    """Tell whether a slot only says that the turn before it was cut."""
    return _closes(slot.message)


def _closes(message: Message) -> bool:
    return bool({_CUT_MARK, _CUT_RESULTS} & _marks(message).keys())


def _is_note(message: Message) -> bool:
    return _CUT_MARK in _marks(message)


def _marks(message: Message) -> Mapping[str, Any]:
    return (message.get("metadata") or {}).get("custom") or {}


def _note(*, after: Message) -> Message:
    return {
        "role": "assistant",
        "content": [{"text": CUT_TEXT}],
        "tracking_id": _id(_CUT_MARK, after),
        "metadata": {"custom": {_CUT_MARK: True}},
    }


def _id(what: str, after: Message) -> str:
    """Return the same id in every process, as each of them closes the turn for itself."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{what} {after.get('tracking_id')}"))


def _results(ids: set[str], *, after: Message) -> Message:
    return {
        "tracking_id": _id(_CUT_RESULTS, after),
        "role": "user",
        "content": [
            {"toolResult": {"toolUseId": id_, "status": "error", "content": [{"text": CUT_TEXT}]}} for id_ in sorted(ids)
        ],
        "metadata": {"custom": {_CUT_RESULTS: True}},
    }
