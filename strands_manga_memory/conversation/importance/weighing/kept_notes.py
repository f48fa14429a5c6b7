"""Notes that travel with a session, so that an agent restored for one message reads only what was said since."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from strands.types.content import Message

from strands_manga_memory.conversation.history.stubs import as_said, is_stub
from strands_manga_memory.conversation.importance.weighing.note import Note
from strands_manga_memory.conversation.importance.weighing.notes import Notes
from strands_manga_memory.conversation.importance.weighing.scoring import ImportanceScorer
from strands_manga_memory.conversation.tokens.token_counter import TokenCounter
from strands_manga_memory.joining import parted
from strands_manga_memory.language.dialogue_acts import DialogueAct
from strands_manga_memory.language.text_features import cached_features

VERSION = 6
"""Raised whenever the same message is counted or noted differently."""

_FEW_COUNTED, _FEW_NOTED = 24, 12
"""So many messages counted, or noted, since are no reason to write anew."""

_ACTS = (*(act.value for act in DialogueAct), "tool_use", "tool_result")
_NUMBER_OF = {act: number for number, act in enumerate(_ACTS)}

_COUNTED = len(_ACTS)
"""In place of an act: only the tokens are known."""

_KEY_BYTES = 3
"""Of a hash of a message. Notes are in the order of the history, so only what was changed or inserted may be taken for another
message: once in 200,000 times of a hundred notes."""

_MOST, _MOST_TOKENS = 255, 50_000
"""What a number may be; one that is larger counts as this, a message of more tokens is counted anew."""

_FIRST = ord("#")
"""Stands for 0 where a number is a character: neither it nor the next 56 are written as two in JSON."""

_NUMBERS = {chr(_FIRST + number): number for number in range(_MOST + 1)}


class _Kept(NamedTuple):
    """What was kept of a message."""

    tokens: int
    act: int = _COUNTED
    bits: int = 0
    names: int = 0
    new: int = 0
    referenced: int = 0
    score: float | None = None

    def note(self, notes: Notes) -> Note | None:
        """Return it as a note; None if only its tokens are known."""
        if self.act == _COUNTED:
            return None
        act, bits = _ACTS[self.act], self.bits
        score = notes.score_of(act) if self.score is None else self.score
        shown = cached_features(
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

    __slots__ = ("_at", "_by_act", "_counter", "_scorer", "_state")

    def __init__(self, counter: TokenCounter, scorer: ImportanceScorer) -> None:
        self._counter = _name(counter)
        self._by_act = getattr(scorer, "score_of_act", None) is not None
        self._scorer = "" if self._by_act else _name(scorer)
        self._state: dict[str, Any] | None = None
        self._at = 0, 0
        """How many messages had been counted and noted when it was written."""

    def to_state(self, messages: Sequence[Message], notes: Notes) -> dict[str, Any] | None:
        """Return what a session keeps of the notes on a history; the same until they are due to be written anew.

        Nothing is counted or noted for it: a session is also saved on an event loop.
        """
        if self._counter is not None and self._is_due(messages, notes):
            said = as_said(messages)
            tokens = notes.tokens.each(said)
            noted = [None] * len(said) if self._scorer is None else notes.each(said)
            kept = [
                (_key(message), _kept(count, note))
                for message, count, note in zip(said, tokens, noted, strict=True)
                if count is not None and count < _MOST_TOKENS and not is_stub(message)
            ]
            *columns, scores = zip(*(known for _, known in kept), strict=True) if kept else [()] * 7
            self._state = {
                "v": VERSION,
                "by": [self._counter, self._scorer],
                "keys": base64.b64encode(b"".join(key for key, _ in kept)).decode(),
                "of": ["".join(map(chr, map(_FIRST.__add__, column))) for column in columns],
                "said": list(notes.vocabulary.said),
            }
            if not self._by_act:
                self._state["scores"] = list(scores)
            self._at = notes.taken
        return self._state

    def _is_due(self, messages: Sequence[Message], notes: Notes) -> bool:
        counted, noted = (min(now - then, len(messages)) for now, then in zip(notes.taken, self._at, strict=True))
        return counted > _FEW_COUNTED or (self._scorer is not None and noted > _FEW_NOTED)

    def restore(self, state: Any) -> None:
        """Take back what a session kept, if the same counter and scorer were asked."""
        if isinstance(state, Mapping) and state.get("v") == VERSION and self._counter is not None:
            self._state = dict(state) if state.get("by") == [self._counter, self._scorer] else None

    def give(self, messages: Sequence[Message], notes: Notes) -> None:
        """Let notes take over what was kept of a restored history."""
        if self._state is None:
            return
        try:
            keys, kept = self._read(self._state)
            texts, telling, user, assistant = map(int, self._state["said"])
        except (KeyError, TypeError, ValueError):  # nothing is lost: they are counted and noted anew
            self._state = None
            return
        known, counted = list[tuple[Message, _Kept]](), list[tuple[Message, int]]()
        at = 0
        for message in messages:
            if is_stub(message):
                counted.append((message, notes.count(message)))
                continue
            tokens, is_whole, parts = 0, True, parted(message)
            for part in parts:
                try:
                    at = keys.index(_key(part), at) + 1
                except ValueError:  # it is none of those
                    is_whole = False
                    continue
                found = kept[at - 1]
                known.append((part, found))
                counted.append((part, found.tokens))
                tokens += found.tokens
            if is_whole and len(parts) > 1:
                counted.append((message, tokens))
        notes.take_over(counted, lambda: [(message, note) for message, kept in known if (note := kept.note(notes)) is not None])
        notes.vocabulary.take_over(texts, telling, user, assistant)
        self._at = notes.taken

    def _read(self, state: Mapping[str, Any]) -> tuple[list[bytes], list[_Kept]]:
        """Return the keys of messages and what was kept of them; raise what malformed values raise."""
        packed = base64.b64decode(state["keys"], validate=True)
        keys = [packed[at : at + _KEY_BYTES] for at in range(0, len(packed), _KEY_BYTES)]
        said, *columns = state["of"]
        tokens = [ord(character) - _FIRST for character in said]
        acts, bits, names, new, referenced = (list(map(_NUMBERS.__getitem__, column)) for column in columns)
        if not 0 <= min(tokens, default=0) <= max(tokens, default=0) < _MOST_TOKENS or max(acts, default=0) > _COUNTED:
            raise ValueError("they are no notes")
        scores: Iterable[float | None] = [None] * len(keys) if self._by_act else map(float, state["scores"])
        kept = list(map(_Kept._make, zip(tokens, acts, bits, names, new, referenced, scores, strict=True)))
        if len(kept) != len(keys):
            raise ValueError("there are notes without a key")
        return keys, kept


def _kept(tokens: int, note: Note | None) -> _Kept:
    """Return what is kept of a message of so many tokens."""
    if note is None or note.act not in _NUMBER_OF:
        return _Kept(tokens, score=0.0)
    names, new, referenced = min(_MOST, note.traits.names), min(_MOST, note.new), min(_MOST, note.referenced)
    return _Kept(tokens, _NUMBER_OF[note.act], _bits(note), names, new, referenced, note.score)


def _name(asked: object) -> str | None:
    return None if type(asked).__repr__ is object.__repr__ else repr(asked)


def _key(message: Message) -> bytes:
    """Return a hash of what a model is sent of a message that is the same in every process."""
    content = message["content"]
    if len(content) == 1 and len(block := content[0]) == 1 and "text" in block:
        text = block["text"]
    else:
        text = json.dumps(content, sort_keys=True, default=repr)
    return zlib.crc32(f"{message['role']}\0{text}".encode(errors="surrogatepass")).to_bytes(4, "big")[-_KEY_BYTES:]
