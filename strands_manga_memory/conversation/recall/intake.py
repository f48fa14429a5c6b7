"""Intake: keeps an archive as the conversation has it, whichever conversation manager drops, folds or changes messages."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import filterfalse
from typing import Any, NamedTuple

from strands.types.content import Message

from strands_manga_memory.conversation.history.shortening import is_shortened
from strands_manga_memory.conversation.history.stubs import is_stub
from strands_manga_memory.conversation.history.summary import is_synthesized
from strands_manga_memory.conversation.history.tool_texts import result_text, results_of
from strands_manga_memory.conversation.recall.archive import Archived, Retriever
from strands_manga_memory.language.acts.act_rules import DialogueAct
from strands_manga_memory.language.acts.acts import dialogue_act
from strands_manga_memory.language.pii import redact_identifiers
from strands_manga_memory.messages import content_fingerprint, id_of, tool_result_ids
from strands_manga_memory.messages.injection import is_quote, message_text
from strands_manga_memory.messages.json_text import describe_json, find_json

logger = logging.getLogger(__name__)

Source = Callable[[], Iterable[Message | Mapping[str, Any]]]

_TOOL_CHARACTERS = 2_000
_MOST_TRIES = 3
_SMALL_TALK = 120
"""A longer text is not small talk."""
_SMALL_TALK_ACTS = frozenset({DialogueAct.GREETING, DialogueAct.ACKNOWLEDGEMENT, DialogueAct.FAREWELL})


class Said(NamedTuple):
    """A message, and when it was said, in seconds since the epoch; 0 if that is not known."""

    message: Message
    at: float


class Intake:
    """Takes in what is said, after its turn: until then it may be redacted.

    What changes in the history later changes in the archive. A history that holds nothing of what was known is another
    conversation, or a deleted one: then everything is forgotten, so that nobody is shown the words of someone else. The
    ``source`` has the messages of before this process; it is read once, in up to three turns if it fails, and again after
    everything was forgotten. What is taken in is told to ``learn`` first.
    """

    def __init__(self, retriever: Retriever, source: Source | None, learn: Callable[[Sequence[Archived]], None]) -> None:
        self._retriever = retriever
        self._learn = learn
        self._source = source
        self._tries = _MOST_TRIES
        self._lock = threading.Lock()
        self._pending: list[Said] = []
        self._settled = 0
        self._seen: dict[str, int] = {}
        self._forgotten: set[str] = set()

    def said(self, message: Message, at: float) -> None:
        """Take note of a message of the present turn."""
        self._pending.append(Said(message, at))

    def turn_begins(self) -> None:
        """Settle what was said so far: from now on other messages may still be redacted."""
        self._settled = len(self._pending)

    def bring_up(self, history: Sequence[Message]) -> None:
        """Bring the archive up to what was settled, and to the history as it is now. Not for the event loop."""
        with self._lock:
            ready = self._pending[: self._settled]
            open_ids = {id_of(said.message) for said in self._pending[self._settled :]}
            present = {id_: message for message in history if (id_ := id_of(message)) and id_ not in open_ids}
            known = self._seen.keys() | {id_of(said.message) for said in ready}
            if known and known.isdisjoint(present):
                logger.debug("forgotten=<%d> | the history is another one | forgetting the earlier", len(known))
                self._retriever.clear()
                self._tries = _MOST_TRIES
                ready, self._pending, self._settled = [], self._pending[self._settled :], 0
            self._read_source(open_ids)
            seen = {id_: content_fingerprint(message) for id_, message in present.items()}
            changed = [Said(message, 0.0) for id_, message in present.items() if self._seen.get(id_) != seen[id_]]
            self._add(archived([*ready, *changed]))
            self._seen = seen
            del self._pending[: len(ready)]
            self._settled -= len(ready)

    def forget(self, id_: str) -> None:
        """Remove a message for good: also if the history or the source still has it, it is not taken in again."""
        with self._lock:
            self._forgotten.add(id_)
            self._retriever.forget(id_)

    def _add(self, messages: Iterable[Archived]) -> None:
        wanted = [message for message in messages if message.id not in self._forgotten]
        self._learn(wanted)
        self._retriever.add(wanted)

    def _read_source(self, open_ids: set[str]) -> None:
        if self._source is None or not self._tries:
            return
        self._tries -= 1
        try:
            self._add(each for each in archived(map(_said, self._source())) if each.id not in open_ids)
            self._tries = 0
        except Exception as error:
            logger.warning(
                "error=<%s> | the earlier history could not be read, recalling only what this process has seen",
                type(error).__name__,
            )
            logger.debug("the earlier history could not be read", exc_info=True)


def archived(messages: Iterable[Said]) -> Iterator[Archived]:
    """Return messages as the archive keeps them: without identifiers such as card numbers, which must not be quoted.

    Marks, summaries, shortened messages and quotes are left out.
    """
    for message, at in messages:
        if is_stub(message) or is_synthesized(message) or is_shortened(message):
            continue
        if tool_result_ids(message):
            speaker, text = "tool", "\n".join(filter(None, map(_readable, results_of(message))))
        else:
            speaker, text = message["role"], message_text(message)
        if text and not is_quote(text) and not _is_small_talk(text, speaker):
            text = redact_identifiers(text)
            text = text[:_TOOL_CHARACTERS] if speaker == "tool" else text
            yield Archived(id_of(message) or str(uuid.uuid4()), speaker, text, at or None)


def _readable(result: Any) -> str:
    """Return the values of a successful tool result in words; an empty text for a failed one."""
    if result.get("status") == "error":
        return ""
    source, found = find_json(result_text(result))
    parts, end = [], 0
    for each in found:
        parts += [source[end : each.start], "\n".join(map(describe_json, filterfalse(_is_of_guard, each.values)))]
        end = each.end
    return "".join([*parts, source[end:]]).strip()


def _is_of_guard(value: Any) -> bool:
    """Whether a value is the problem that a tool guard appended to the last good result."""
    return isinstance(value, dict) and {"code", "request_id", "retryable"} <= value.keys()


def _is_small_talk(text: str, speaker: str) -> bool:
    return len(text) <= _SMALL_TALK and dialogue_act(text, speaker) in _SMALL_TALK_ACTS


def _said(record: Any) -> Said:
    return Said(record["message"], float(record.get("at") or 0)) if "message" in record else Said(record, 0.0)
