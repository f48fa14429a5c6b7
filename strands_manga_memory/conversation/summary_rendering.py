"""shown: a summary as the model sees it, within a number of tokens. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from strands.types.content import Message

from strands_manga_memory.conversation.summary_record import KEY, PART, Summary
from strands_manga_memory.language.entities import EntityTypes
from strands_manga_memory.language.entity_types import SHOP
from strands_manga_memory.language.summary_facts import RANK, Fact, FactKind
from strands_manga_memory.language.verification import SearchableText
from strands_manga_memory.messages.injection import escape_tags

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
class RenderedSummary:
    """A summary as messages for the model.

    Attributes:
        messages: Messages of alternating roles: the summary, and facts that did not fit into it, each acknowledged.
        in_prose: Slots that the prose contains; corrections among them are written below as well.
        appended: Slots that were written below the prose.
        beside: Earlier slots that were written into a message of their own.
        left_out: Slots for which there was no room.
    """

    messages: tuple[Message, ...]
    in_prose: tuple[Fact, ...] = field(default=())
    appended: tuple[Fact, ...] = field(default=())
    beside: tuple[Fact, ...] = field(default=())
    left_out: tuple[Fact, ...] = field(default=())


def shown(
    summary: Summary,
    *,
    summary_tokens: int,
    facts_tokens: int,
    count: Callable[[str], int],
    types: EntityTypes = SHOP,
) -> RenderedSummary:
    """Render a summary as messages.

    Slots that are not in the prose are written as plain facts: the latest below the prose, while the whole has at most
    ``summary_tokens``, the earlier ones into a message of at most ``facts_tokens`` before it. If not all have room, they are
    left out in this order: tasks, findings, statements of little content, outcomes, promises, open questions, and within a
    kind the oldest; identifiers, decisions, preferences and corrections come last. The record keeps as much again;
    the log keeps everything.
    """
    written = summary.text
    prose = SearchableText(written, types)
    in_prose = tuple(slot for slot in summary.slots if prose.mentions(slot)) if written else ()
    said = frozenset(in_prose)
    # A correction that the prose says is written all the same: it must come after what it corrects.
    waiting = sorted(
        ((at, slot) for at, slot in enumerate(summary.slots) if slot not in said or slot.kind is FactKind.CORRECTION),
        key=_precedence,
    )
    head = [OPENING, HEADING, *([escape_tags(written)] if written else [])]
    room = max(0, summary_tokens - count("\n".join([*head, APPENDED, CLOSING])) - 8)
    more = max(0, facts_tokens - count("\n".join([FACTS_OPENING, FACTS_HEADING, FACTS_CLOSING])) - 8)
    fitting, left_out = _fitting(waiting, room + more, count)
    appended: list[Fact] = []
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
    return RenderedSummary(tuple(messages), in_prose, tuple(appended), tuple(fitting), left_out)


def _synthesized(text: str, record: Summary | None = None) -> Message:
    custom = {"pinned": True, KEY: record.to_state() if record else PART}
    return {"role": "user", "content": [{"text": text}], "tracking_id": str(uuid.uuid4()), "metadata": {"custom": custom}}


def _acknowledgement() -> Message:
    custom = {"pinned": True, KEY: PART}
    return {
        "role": "assistant",
        "content": [{"text": ACKNOWLEDGED}],
        "tracking_id": str(uuid.uuid4()),
        "metadata": {"custom": custom},
    }


_WORTH_MORE = 1.0
"""A statement that weighs less is among the first to be left out."""


def _precedence(numbered: tuple[int, Fact]) -> tuple[int, float, int]:
    at, slot = numbered
    rank = RANK[slot.kind]
    if slot.kind is FactKind.FINDING or slot.kind is FactKind.TASK:
        return (RANK[FactKind.TASK] + (slot.kind is FactKind.TASK), -min(slot.weight, 4.0), -at)
    if slot.kind is FactKind.STATEMENT and slot.weight >= _WORTH_MORE:
        return (RANK[FactKind.ENTITY], -min(slot.weight, 3.0), -at)
    return (rank, 0.0, -at)


def _fitting(
    waiting: Sequence[tuple[int, Fact]], room: int, count: Callable[[str], int]
) -> tuple[list[Fact], tuple[Fact, ...]]:
    """Return the slots that fit, in the order of the conversation, and the others."""
    fitting: list[tuple[int, Fact]] = []
    left: list[Fact] = []
    for numbered in waiting:
        tokens = _tokens(numbered[1], count)
        if tokens <= room:
            room -= tokens
            fitting.append(numbered)
        else:
            left.append(numbered[1])
    return [slot for _, slot in sorted(fitting, key=lambda one: one[0])], tuple(left)


def _tokens(slot: Fact, count: Callable[[str], int]) -> int:
    return count(_line(slot)) + 1


_PLAIN = frozenset({FactKind.STATEMENT, FactKind.ENTITY, FactKind.FINDING, FactKind.DECISION})


def _line(slot: Fact) -> str:
    return _item(slot.text if slot.kind in _PLAIN else f"{slot.kind.value}: {slot.text}")


@lru_cache(4_096)  # the same facts are laid out with every summary
def _item(text: str) -> str:
    return escape_tags(f"- {text}")


def _lines(slots: Iterable[Fact]) -> list[str]:
    """Return a line for the facts of each message; a named fact (a promise, a correction) has a line of its own."""
    lines: list[str] = []
    source: str | None = None
    for slot in slots:
        if slot.kind in _PLAIN and slot.source == source:
            lines[-1] += f"; {escape_tags(slot.text)}"
        else:
            lines.append(_line(slot))
        source = slot.source if slot.kind in _PLAIN else None
    return lines
