"""Recorded task dialogues with gold slot values: which values the model still sees at 4,096 tokens, and in which order.

A stream of some 40 dialogues passes a manager message by message. The last request is then searched. The rows are:

* ``values_findable``: share of the current gold values that the request has, in any spelling. Labels that are not words of
  users (``True``, ``dontcare``) and replaced values are left out. Some 3 in 100 labels are in words nobody used ("seven years
  back" is labelled "2012"): they count as lost, unless another dialogue has the words.
* ``values_findable_where_said``: stricter. Share of the values in the user's own words that the request has in text from
  their own dialogue: kept messages, and facts extracted from messages.
* ``superseded_not_current``: share of the replaced values that are absent from all text of their message, or are followed in
  the request by the new value in words of the same dialogue. A replaced value that is last, or alone, appears as current.
* ``superseded_gone``: share of the replaced values that are absent.

Gold labels name no slots. A value counts as replaced if a message labelled as correction, in the same dialogue, has another
value of the same form (a time; a day; a number with the same following word), and the old value does not occur again.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strands import Agent
from strands.hooks import BeforeModelCallEvent

from strands_manga_memory.conversation import (
    ImportanceWeightedConversationManager,
    SummaryTrigger,
    VerifiedSummarizingConversationManager,
    default_counter,
)
from strands_manga_memory.conversation.summary_record import is_synthesized
from strands_manga_memory.language import normalized
from strands_manga_memory.messages.injection import escape_tags, message_text
from strands_manga_memory.testing import ScriptedModel
from tests.benchmarks import progress

SETS = ("sgd", "multiwoz", "tau5")

_NO_VALUES = frozenset({"true", "false", "yes", "no", "dontcare", "none"})
"""Labels of annotators that are not words of users."""


def run(folder: Path) -> dict[str, float]:
    """Return the rows of every set in a folder of ``<name>.jsonl.gz``."""
    rows: dict[str, float] = {}
    for name in SETS:
        rows |= _rows(folder, name)
    return rows


def _rows(folder: Path, name: str) -> dict[str, float]:
    found: dict[str, list[bool]] = {}
    largest = 0

    def note(row: str, hit: bool) -> None:
        found.setdefault(row, []).append(hit)

    for stream in progress(list(streams(folder, name)), f"recorded dialogues, {name}"):
        replaced = list(_replaced_values(stream))
        retracted = {(one.at, one.old) for one in replaced}
        values = [query for query in stream["queries"] if (query.get("value") or "yes").lower() not in _NO_VALUES]
        values = [query for query in values if (query["gold"][0], query["value"]) not in retracted]
        ours = VerifiedSummarizingConversationManager(
            SummaryTrigger(tokens=4_096, hard_tokens=4_096), model=lambda _: "The user asked for several services."
        )
        view, most = _play(ours, stream)
        largest = max(largest, most)
        for query in values:
            note("values_findable", view.shows(query["value"]))
            if _contains_value(message_text(stream["messages"][query["gold"][0]]), query["value"]):
                note("values_findable_where_said", view.shows(query["value"], range(*query["scope"])))
        for one in replaced:
            gone, follows = view.fate(one)
            note("superseded_not_current", gone or follows)
            note("superseded_gone", gone)
        for row, manager in (
            ("values_findable_with_defaults", VerifiedSummarizingConversationManager(model=lambda _: "They talked.")),
            ("values_findable_by_importance", ImportanceWeightedConversationManager(4_096)),
        ):
            other, _ = _play(manager, stream)
            for query in values:
                note(row, other.shows(query["value"]))
    rows = {f"{name}_{row}": sum(hits) / len(hits) for row, hits in found.items()}
    return {
        **rows,
        f"{name}_values": len(found["values_findable"]),
        f"{name}_superseded_values": len(found.get("superseded_gone", ())),
        f"{name}_largest_request_tokens": largest,
    }


def streams(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            stream = json.loads(line)
            for at, message in enumerate(stream["messages"]):
                message["tracking_id"] = f"m{at}"
            yield stream


def _play(manager: Any, stream: dict[str, Any]) -> tuple[_View, int]:
    """Pass a recording through a manager. Return the model's last view, and the tokens of the largest request."""
    agent = Agent(model=ScriptedModel(), conversation_manager=manager, callback_handler=None)
    count = default_counter().count
    largest = 0
    for message in stream["messages"]:
        agent.messages.append(dict(message))
        if message["role"] == "user":
            event = BeforeModelCallEvent(agent=agent, invocation_state={}, projected_input_tokens=0)
            asyncio.run(agent.hooks.invoke_callbacks_async(event))
            largest = max(largest, sum(map(count, agent.messages)))
        elif not any("toolUse" in block for block in message["content"]):
            manager.apply_management(agent)
            if isinstance(manager, VerifiedSummarizingConversationManager):
                manager.finish(agent)
    summary = manager.summary(agent) if isinstance(manager, VerifiedSummarizingConversationManager) else None
    return _View(list(agent.messages), summary.slots if summary else ()), largest


@dataclass(frozen=True)
class _ReplacedValue:
    """Replaced value: stated in message ``at``, replaced in message ``by``, in a dialogue that ends before ``end``."""

    at: int
    old: str
    by: int
    new: str
    end: int


@dataclass(frozen=True)
class _Line:
    """Text that the model sees: its position, the number of its source message, and its words."""

    position: int
    source: int
    text: str


class _View:
    """Texts that the model sees in the last request."""

    def __init__(self, messages: Sequence[Any], slots: Sequence[Any]) -> None:
        self.lines: list[_Line] = []
        self.text = ""
        for message in messages:
            text = json.dumps(message["content"], ensure_ascii=False) if _is_tool(message) else message_text(message)
            if not is_synthesized(message) and message.get("tracking_id", "").startswith("m"):
                self.lines.append(_Line(len(self.text), int(message["tracking_id"][1:]), text))
            self.text += f"{text}\n"
        for slot in slots:
            position = self.text.find(escape_tags(slot.text))
            if position >= 0:  # the record also knows what had no room
                self.lines.append(_Line(position, int(slot.source[1:]), slot.text))
        self._form = _form(self.text)

    def shows(self, value: str, messages: range | None = None) -> bool:
        """Return whether the view has a value, optionally only in text from some messages."""
        if messages is None:
            return _form(value) in self._form
        return any(line.source in messages and _form(value) in _form(line.text) for line in self.lines)

    def fate(self, one: _ReplacedValue) -> tuple[bool, bool]:
        """Return of a replaced value whether it is absent, and whether the new value follows it."""
        old = [line for line in self.lines if line.source == one.at and _contains_value(line.text, one.old)]
        new = [line for line in self.lines if line.source in range(one.by, one.end) and _contains_value(line.text, one.new)]
        last = max((line.position for line in old), default=-1)
        return not old, any(line.position > last for line in new)


def _is_tool(message: Any) -> bool:
    return any("toolUse" in block or "toolResult" in block for block in message["content"])


# --- Values taken back ------------------------------------------------------------------------------------------------------


def _replaced_values(stream: dict[str, Any]) -> Iterator[_ReplacedValue]:
    corrections = {at for query in stream["queries"] if query["kind"] == "correction" for at in query["gold"]}
    dialogues: dict[tuple[int, int], list[tuple[int, str]]] = {}
    for query in stream["queries"]:
        if query.get("value"):
            said = dialogues.setdefault((query["scope"][0], query["scope"][1]), [])
            if (query["gold"][0], query["value"]) not in said:
                said.append((query["gold"][0], query["value"]))

    def kind(at: int, value: str) -> str:
        return _kind(value, message_text(stream["messages"][at]))

    for (_, end), said in dialogues.items():
        for by, new in said:
            if by not in corrections or not kind(by, new):
                continue
            before = [(at, old) for at, old in said if at < by and kind(at, old) == kind(by, new) and _form(old) != _form(new)]
            if before and not any(at >= by and _form(value) == _form(before[-1][1]) for at, value in said):
                yield _ReplacedValue(*before[-1], by, new, end)


_WORD_AFTER = r"(?<![\w:]){}(?![\w:])[ -]*(?:other |more |different )?([a-z]+)?"


def _kind(value: str, said: str) -> str:
    """Return the form of values that can replace a value; empty if none can, because a word may answer any question."""
    plain = _form(value)
    if re.fullmatch(r"\d{1,2}", plain):
        found = re.search(_WORD_AFTER.format(plain), _form(said))
        return f"number of {(found[1] or '').rstrip('s')}" if found else ""
    if re.search(r"\d{1,2}:\d{2}|\d ?[ap]m\b|morning|evening|afternoon", plain):
        return "time"
    return "day" if re.search(r"day\b|march|\d(?:st|nd|rd|th)\b", plain) else ""


def _form(text: str) -> str:
    return re.sub(r"\b0(?=\d:)", "", normalized(text))


def _contains_value(text: str, value: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(_form(value))}(?!\w)", _form(text)) is not None
