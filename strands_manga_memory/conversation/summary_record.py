"""Summary: the typed record of the turns that left a conversation's history, and its form for the model.

The record is part of the metadata of the message that shows it. A store that saves, restores, merges or deletes the message
does the same to the record, so neither ever exists without the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from strands.types.content import Message

from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.language.summary_facts import Fact, FactKind

VERSION = 1

RULES = "rules"
"""The ``model`` of a summary that nobody wrote: it has no new prose."""

KEY = "summary"
"""Where in ``metadata.custom`` of its message the record is."""


@dataclass(frozen=True)
class Segment:
    """The prose about a stretch of raw turns.

    Attributes:
        text: The prose; empty if no usable one was written.
        first: ``tracking_id`` of the first message covered.
        last: ``tracking_id`` of the last message covered.
        level: How often it was merged with its neighbours, from the raw turns of all of them.
    """

    text: str
    first: str
    last: str
    level: int = 0


@dataclass(frozen=True)
class Summary:
    """Summary of the turns that left the history.

    Attributes:
        segments: The prose, stretch by stretch, the older first.
        slots: Facts that must not be lost, the older first, each with the ``tracking_id`` of its source.
        turns: Number of turns covered.
        version: Counts the summaries of this conversation, from 1.
        attempts: How often the summarizer was asked for the latest one.
        model: Who wrote the latest one; ``RULES`` if nobody did.
        tokens: Tokens spent on all summaries of this conversation.
        failures: How often in a row no usable prose was written.
        kept: ``tracking_id`` of covered messages that stayed in the history all the same.
    """

    segments: tuple[Segment, ...] = ()
    slots: tuple[Fact, ...] = ()
    turns: int = 0
    version: int = 1
    attempts: int = 0
    model: str = RULES
    tokens: int = 0
    failures: int = 0
    kept: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Prose of all segments; sentences that several segments share appear once."""
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
        """Parse the state of :meth:`to_state`.

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
                    Fact(
                        FactKind(kind),
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


def record_of(message: Message) -> Summary | None:
    """Return the record a message carries, None if it shows no summary; raises as :meth:`Summary.from_state` does."""
    state = _custom_metadata(message).get(KEY)
    return None if state is None or state == PART else Summary.from_state(state)


def is_synthesized(message: Message) -> bool:
    """Whether the message is part of a shown summary."""
    return KEY in _custom_metadata(message)


def _custom_metadata(message: Message) -> dict[str, Any]:
    """Return the custom metadata of a message; empty if it has none, or another kind of value in its place."""
    metadata: Any = message.get("metadata")
    custom = metadata.get("custom") if isinstance(metadata, dict) else None
    return custom if isinstance(custom, dict) else {}


PART = "part"
