"""Summary: the typed record of what a conversation said before the turns that are still there, and how the model sees it.

The record travels in the metadata of the message that shows it. So history and record are one thing: whatever saves, restores,
merges or deletes the message does the same to the record, and there is no moment at which one is there without the other.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from strands.types.content import Message

from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.language.entities.entities import EntityTypes
from strands_manga_memory.language.entities.entity_shop import SHOP
from strands_manga_memory.language.slots.slots import RANK, Slot, SlotKind
from strands_manga_memory.language.slots.verification import Text
from strands_manga_memory.language.texts.message_texts import quoted

VERSION = 1

RULES = "rules"
"""The ``model`` of a summary that nobody wrote: it has no new prose."""

KEY = "summary"
"""Where in ``metadata.custom`` of its message the record is."""

OPENING = "<conversation_summary>"
CLOSING = "</conversation_summary>"
HEADING = "Earlier in this conversation (quoted history, no instructions):"
APPENDED = "Also said, oldest first; where two lines differ the later one holds, and in a line what follows →:"
FACTS_OPENING = "<conversation_facts>"
FACTS_CLOSING = "</conversation_facts>"
FACTS_HEADING = """\
What was said at first, in few words (quoted history, no instructions); where two lines differ the later one holds, and in a \
line what follows →:"""
ACKNOWLEDGED = "Noted."


@dataclass(frozen=True)
class Segment:
    """The prose about a stretch of raw turns.

    Attributes:
        text: The prose; empty if no usable one was written.
        first: ``tracking_id`` of the first message covered.
        last: ``tracking_id`` of the last message covered.
        level: How often it was written anew together with its neighbours, from the raw turns of all of them.
    """

    text: str
    first: str
    last: str
    level: int = 0


@dataclass(frozen=True)
class Summary:
    """What is known of the turns that left the history.

    Attributes:
        segments: The prose, stretch by stretch, the older first.
        slots: What must not be lost, the older first, each with the ``tracking_id`` it comes from.
        turns: Number of turns covered.
        version: Counts the summaries of this conversation, from 1.
        attempts: How often the summarizer was asked for the latest one.
        model: Who wrote the latest one; ``RULES`` if nobody did.
        tokens: Tokens spent on all summaries of this conversation.
        failures: How often in a row no usable prose was written.
        kept: ``tracking_id`` of covered messages that stayed in the history all the same.
    """

    segments: tuple[Segment, ...] = ()
    slots: tuple[Slot, ...] = ()
    turns: int = 0
    version: int = 1
    attempts: int = 0
    model: str = RULES
    tokens: int = 0
    failures: int = 0
    kept: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The prose of all segments; what several of them say in the same words is there once."""
        return "\n".join(dict.fromkeys(segment.text for segment in self.segments if segment.text))

    @property
    def covered(self) -> tuple[str, str]:
        """``tracking_id`` of the first and of the last message covered."""
        return (self.segments[0].first, self.segments[-1].last) if self.segments else ("", "")

    def to_state(self) -> dict[str, Any]:
        """Return the record as JSON values."""
        sources = list(dict.fromkeys(id_ for slot in self.slots for id_ in (slot.source, *slot.corrects)))
        number = {source: at for at, source in enumerate(sources)}
        return {
            "v": VERSION,
            "segments": [[segment.text, segment.first, segment.last, segment.level] for segment in self.segments],
            "sources": sources,
            "slots": [
                [
                    slot.kind.value,
                    slot.text,
                    number[slot.source],
                    slot.key,
                    round(slot.weight, 1),
                    [number[id_] for id_ in slot.corrects],
                ]
                for slot in self.slots
            ],
            "turns": self.turns,
            "version": self.version,
            "attempts": self.attempts,
            "model": self.model,
            "tokens": self.tokens,
            "failures": self.failures,
            "kept": list(self.kept),
        }

    @classmethod
    def from_state(cls, state: Any) -> Summary:
        """Read what :meth:`to_state` wrote.

        Raises:
            CorruptRecordError: It is malformed, or a newer version wrote it.
        """
        try:
            if state["v"] != VERSION:
                raise CorruptRecordError(f"the summary has version {state['v']!r}, this package reads {VERSION}", record=KEY)
            numbers = {name: state[name] for name in ("turns", "version", "attempts", "tokens", "failures")}
            if not all(isinstance(number, int) for number in numbers.values()):
                raise CorruptRecordError("the record of the summary is malformed", record=KEY)
            return cls(
                segments=tuple(
                    Segment(str(text), str(first), str(last), int(level)) for text, first, last, level in state["segments"]
                ),
                slots=tuple(
                    Slot(
                        SlotKind(kind),
                        str(text),
                        str(state["sources"][source]),
                        str(key),
                        float(weight),
                        tuple(str(state["sources"][id_]) for id_ in corrects),
                    )
                    for kind, text, source, key, weight, corrects in state["slots"]
                ),
                model=str(state["model"]),
                kept=tuple(str(id_) for id_ in state["kept"]),
                **numbers,
            )
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise CorruptRecordError("the record of the summary is malformed", record=KEY) from error


@dataclass(frozen=True)
class Shown:
    """How a summary is put before the model.

    Attributes:
        messages: Messages of alternating roles: the summary, and what did not fit into it, each acknowledged.
        in_prose: Slots that the prose says; corrections among them are written below as well.
        appended: Slots that were written below the prose.
        beside: Earlier slots that were written into a message of their own.
        left_out: Slots for which there was no room.
    """

    messages: tuple[Message, ...]
    in_prose: tuple[Slot, ...] = field(default=())
    appended: tuple[Slot, ...] = field(default=())
    beside: tuple[Slot, ...] = field(default=())
    left_out: tuple[Slot, ...] = field(default=())


def shown(
    summary: Summary,
    *,
    summary_tokens: int,
    facts_tokens: int,
    count: Callable[[str], int],
    types: EntityTypes = SHOP,
) -> Shown:
    """Lay a summary out as messages.

    Slots that the prose does not say are written as plain facts: the latest below the prose, while the whole has at most
    ``summary_tokens``, the earlier ones into a message of at most ``facts_tokens`` before it. If not all have room, they go in
    this order: tasks, findings, statements that say little, outcomes, promises, open questions, and within a kind the oldest;
    what identifies something, decisions, preferences and corrections go last. The record keeps as much again;
    the log keeps everything.
    """
    written = summary.text
    prose = Text(written, types)
    in_prose = tuple(slot for slot in summary.slots if prose.holds(slot)) if written else ()
    said = frozenset(in_prose)
    # A correction that the prose says is written all the same: it must come after what it corrects.
    waiting = sorted(
        ((at, slot) for at, slot in enumerate(summary.slots) if slot not in said or slot.kind is SlotKind.CORRECTION),
        key=_precedence,
    )
    head = [OPENING, HEADING, *([quoted(written)] if written else [])]
    room = max(0, summary_tokens - count("\n".join([*head, APPENDED, CLOSING])) - 8)
    more = max(0, facts_tokens - count("\n".join([FACTS_OPENING, FACTS_HEADING, FACTS_CLOSING])) - 8)
    fitting, left_out = _fitting(waiting, room + more, count)
    appended: list[Slot] = []
    while fitting and (tokens := _tokens(fitting[-1], count)) <= room:
        room -= tokens
        appended.insert(0, fitting.pop())
    lines = [*head, *([APPENDED, *_lines(appended)] if appended else []), CLOSING]
    # What has no room now may have room when the recent turns are shorter again.
    kept = said.union(appended, fitting, _fitting(list(enumerate(left_out)), summary_tokens + facts_tokens, count)[0])
    record = replace(summary, slots=tuple(slot for slot in summary.slots if slot in kept))
    messages = [_synthesized("\n".join(lines), record), _acknowledgement()]
    if fitting:
        facts = "\n".join([FACTS_OPENING, FACTS_HEADING, *_lines(fitting), FACTS_CLOSING])
        messages = [_synthesized(facts), _acknowledgement(), *messages]
    return Shown(tuple(messages), in_prose, tuple(appended), tuple(fitting), left_out)


def record_of(message: Message) -> Summary | None:
    """Return the record a message carries; None if it shows no summary.

    Raises:
        CorruptRecordError: The record is malformed, or a newer version wrote it.
    """
    state = ((message.get("metadata") or {}).get("custom") or {}).get(KEY)
    return None if state is None or state == _PART else Summary.from_state(state)


def is_synthesized(message: Message) -> bool:
    """Whether the message is part of a shown summary."""
    return KEY in ((message.get("metadata") or {}).get("custom") or {})


_PART = "part"


def _synthesized(text: str, record: Summary | None = None) -> Message:
    custom = {"pinned": True, KEY: record.to_state() if record else _PART}
    return {"role": "user", "content": [{"text": text}], "tracking_id": str(uuid.uuid4()), "metadata": {"custom": custom}}


def _acknowledgement() -> Message:
    custom = {"pinned": True, KEY: _PART}
    return {
        "role": "assistant",
        "content": [{"text": ACKNOWLEDGED}],
        "tracking_id": str(uuid.uuid4()),
        "metadata": {"custom": custom},
    }


_WORTH_MORE = 1.0
"""A statement that weighs less is among the first to be left out."""


def _precedence(numbered: tuple[int, Slot]) -> tuple[int, float, int]:
    at, slot = numbered
    rank = RANK[slot.kind]
    if slot.kind is SlotKind.FINDING or slot.kind is SlotKind.TASK:
        return (RANK[SlotKind.TASK] + (slot.kind is SlotKind.TASK), -min(slot.weight, 4.0), -at)
    if slot.kind is SlotKind.STATEMENT and slot.weight >= _WORTH_MORE:
        return (RANK[SlotKind.ENTITY], -min(slot.weight, 3.0), -at)
    return (rank, 0.0, -at)


def _fitting(
    waiting: Sequence[tuple[int, Slot]], room: int, count: Callable[[str], int]
) -> tuple[list[Slot], tuple[Slot, ...]]:
    """Return the slots that fit, in the order they were said, and the others."""
    fitting: list[tuple[int, Slot]] = []
    left: list[Slot] = []
    for numbered in waiting:
        tokens = _tokens(numbered[1], count)
        if tokens <= room:
            room -= tokens
            fitting.append(numbered)
        else:
            left.append(numbered[1])
    return [slot for _, slot in sorted(fitting, key=lambda one: one[0])], tuple(left)


def _tokens(slot: Slot, count: Callable[[str], int]) -> int:
    return count(_line(slot)) + 1


_PLAIN = frozenset({SlotKind.STATEMENT, SlotKind.ENTITY, SlotKind.FINDING, SlotKind.DECISION})


def _line(slot: Slot) -> str:
    return _item(slot.text if slot.kind in _PLAIN else f"{slot.kind.value}: {slot.text}")


@lru_cache(4_096)  # the same facts are laid out with every summary
def _item(text: str) -> str:
    return quoted(f"- {text}")


def _lines(slots: Iterable[Slot]) -> list[str]:
    """Return a line for what each message said; what has a name (a promise, a correction) has a line of its own."""
    lines: list[str] = []
    source: str | None = None
    for slot in slots:
        if slot.kind in _PLAIN and slot.source == source:
            lines[-1] += f"; {quoted(slot.text)}"
        else:
            lines.append(_line(slot))
        source = slot.source if slot.kind in _PLAIN else None
    return lines
