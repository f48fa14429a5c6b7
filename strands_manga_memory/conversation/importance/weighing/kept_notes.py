"""Notes that travel with a session, so that an agent restored for one message reads only what was said since."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from itertools import starmap
from typing import Any, NamedTuple

from strands.types.content import Message

from strands_manga_memory.conversation.history.stubs import as_said, is_stub
from strands_manga_memory.conversation.importance.weighing.note import Note
from strands_manga_memory.conversation.importance.weighing.notes import Notes
from strands_manga_memory.conversation.importance.weighing.scoring import ImportanceScorer
from strands_manga_memory.conversation.tokens.token_counter import TokenCounter
from strands_manga_memory.joining import parted
from strands_manga_memory.language.acts.act_rules import DialogueAct
from strands_manga_memory.language.acts.traits import traits_of

VERSION = 5
"""Raised whenever the same message is counted or noted differently."""

_FEW_COUNTED, _FEW_NOTED = 24, 12
"""So many messages counted, or noted, since are no reason to write anew."""

_ACTS = (*(act.value for act in DialogueAct), "tool_use", "tool_result")
_COUNTED = len(_ACTS)
"""In place of an act: only the tokens are known."""

_ENTRY, _SCORED = struct.Struct(">IHBBBBB"), struct.Struct(">IHBBBBBd")

_MOST = 255


class _Kept(NamedTuple):
    """What was kept of a message."""

    key: int
    tokens: int
    act: int
    bits: int
    names: int
    new: int
    referenced: int
    score: float | None = None

    def note(self, notes: Notes) -> Note | None:
        """Return it as a note; None if only its tokens are known."""
        if self.act >= _COUNTED:
            return None
        act, bits = _ACTS[self.act], self.bits
        score = notes.score_of(act) if self.score is None else self.score
        shown = traits_of(
            number=bool(bits & 1),
            names=self.names,
            time=bool(bits & 2),
            wants=bool(bits & 4),
            asks=bool(bits & 8),
            tells=bool(bits & 16),
        )
        return Note(
            self.tokens,
            score,
            act,
            shown,
            answers=bool(bits & 32),
            new=self.new,
            referenced=self.referenced,
            takes_back=bool(bits & 64),
        )


def _bits(note: Note) -> int:
    shown = note.traits
    flags = (shown.number, shown.time, shown.wants, shown.asks, shown.tells, note.answers, note.takes_back)
    return sum(flag << at for at, flag in enumerate(flags))


class KeptNotes:
    """The notes on a history as they were last written: they are written anew when a good many messages have come since.

    A message is known by a hash of its role and content; what was noted is good for the counter and the scorer that were asked.
    These are known by their ``repr``, a scorer that goes by dialogue acts by what it does. The counts of a counter that has no
    ``repr`` of its own do not travel, nor do the notes of such a scorer.

    Args:
        counter: Counts the tokens of a message.
        scorer: Says what a message is worth.
    """

    __slots__ = ("_at", "_by_act", "_counter", "_entry", "_scorer", "_state")

    def __init__(self, counter: TokenCounter, scorer: ImportanceScorer) -> None:
        self._counter = _name(counter)
        self._by_act = getattr(scorer, "score_of_act", None) is not None
        self._scorer = "" if self._by_act else _name(scorer)
        self._entry = _ENTRY if self._by_act else _SCORED
        self._state: dict[str, Any] | None = None
        self._at = 0, 0
        """How many messages had been counted and noted when it was written."""

    def to_state(self, messages: Sequence[Message], notes: Notes) -> dict[str, Any] | None:
        """Return what a session keeps of the notes on a history; the same until they are due to be written anew.

        Nothing is counted or noted for it: a session is also saved on an event loop.
        """
        if self._counter is not None and self._is_due(messages, notes):
            entries = [entry for message in as_said(messages) if (entry := self._packed(message, notes)) is not None]
            self._state = {
                "v": VERSION,
                "by": [self._counter, self._scorer],
                "of": base64.b64encode(b"".join(entries)).decode(),
                "said": list(notes.vocabulary.said),
            }
            self._at = notes.taken
        return self._state

    def _is_due(self, messages: Sequence[Message], notes: Notes) -> bool:
        counted, noted = (min(now - then, len(messages)) for now, then in zip(notes.taken, self._at, strict=True))
        return counted > _FEW_COUNTED or (self._scorer is not None and noted > _FEW_NOTED)

    def _packed(self, message: Message, notes: Notes) -> bytes | None:
        tokens = notes.tokens.get(message)
        if tokens is None or tokens >= 1 << 16 or is_stub(message):
            return None
        note = None if self._scorer is None else notes.noted(message)
        noted: tuple[int, ...] = (_COUNTED, 0, 0, 0, 0)
        score = 0.0
        if note is not None and note.act in _ACTS:
            few = (min(_MOST, count) for count in (note.traits.names, note.new, note.referenced))
            noted, score = (_ACTS.index(note.act), _bits(note), *few), note.score
        return self._entry.pack(_key(message), tokens, *noted, *(() if self._by_act else (score,)))

    def restore(self, state: Any) -> None:
        """Take back what a session kept, if the same counter and scorer were asked."""
        if isinstance(state, Mapping) and state.get("v") == VERSION and self._counter is not None:
            self._state = dict(state) if state.get("by") == [self._counter, self._scorer] else None

    def give(self, messages: Sequence[Message], notes: Notes) -> None:
        """Let notes take over what was kept of a restored history."""
        if self._state is None:
            return
        try:
            found = self._read(base64.b64decode(self._state["of"], validate=True))
            texts, telling, user, assistant = map(int, self._state["said"])
        except (KeyError, TypeError, ValueError, struct.error):  # nothing is lost: they are counted and noted anew
            self._state = None
            return
        known, counted = list[tuple[Message, _Kept]](), list[tuple[Message, int]]()
        for message in messages:
            tokens: list[int] = []
            for part in (parts := parted(message)):
                if is_stub(part):
                    tokens.append(notes.count(part))
                elif kept := found.get(_key(part)):
                    tokens.append(kept.tokens)
                    known.append((part, kept))
                    counted += [(part, kept.tokens)] if len(parts) > 1 else []
            if len(tokens) == len(parts):
                counted.append((message, sum(tokens)))
        notes.take_over(counted, lambda: [(message, note) for message, kept in known if (note := kept.note(notes)) is not None])
        notes.vocabulary.take_over(texts, telling, user, assistant)
        self._at = notes.taken

    def _read(self, packed: bytes) -> dict[int, _Kept]:
        return {kept.key: kept for kept in starmap(_Kept, self._entry.iter_unpack(packed))}


def _name(asked: object) -> str | None:
    return None if type(asked).__repr__ is object.__repr__ else repr(asked)


def _key(message: Message) -> int:
    """Return a hash of what a model is sent of a message that is the same in every process."""
    said = message["content"][0]["text"] if len(message["content"]) == 1 and message["content"][0].keys() == {"text"} else None
    text = said if said is not None else json.dumps(message["content"], sort_keys=True, default=repr)
    return zlib.crc32(f"{message['role']}\0{text}".encode(errors="surrogatepass"))
