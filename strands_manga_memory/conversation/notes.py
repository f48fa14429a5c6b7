"""What is noted about each message, once: its tokens, what it is worth, and what the signals need."""

from __future__ import annotations

import inspect
import logging
import math
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from strands.types.content import Message

from strands_manga_memory.conversation.ledger import Ledger
from strands_manga_memory.conversation.scoring import ImportanceScorer, ImportanceWeights, message_act
from strands_manga_memory.conversation.stubs import is_stub
from strands_manga_memory.conversation.tokens import TokenCounter
from strands_manga_memory.conversation.vocabulary import Vocabulary
from strands_manga_memory.language.messages import message_text
from strands_manga_memory.language.traits import Traits, shared, traits

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

_NEXT = 8
"""So many messages are looked at for words that refer back to one."""

_READ_CLOSELY = 2_000
"""Of a longer history that comes all at once, older messages are read closely only if their score is above average.

It bounds the time: 10,000 messages take half of what they would. It costs quality: up to a fifth of what would have been
kept."""

_NO_TRAITS = Traits()


@dataclass(eq=False, slots=True)
class Note:
    """What is known about a message.

    Attributes:
        tokens: Its tokens.
        score: The scorer's score, 0 to 1.
        act: What it does: a dialogue act, ``"tool_use"`` or ``"tool_result"``.
        traits: What its text shows.
        answers: Whether the message before it asked a question.
        new: How many of its words the conversation had not seen before.
        referenced: How many of its words the next messages took up.
        worth: The sum of its signals that do not change, and the weights they were added up with.
        worth_by: See ``worth``.
        gist: Of tool results: the message cut down to its values, and its tokens.
    """

    tokens: int
    score: float
    act: str = "unmatched"
    traits: Traits = _NO_TRAITS
    answers: bool = False
    new: int = 0
    referenced: int = 0
    worth: float | None = None
    worth_by: Any = None
    gist: tuple[Message, int] | None = None


def weakly(method: Callable[..., _T]) -> Callable[..., _T]:
    """Return a method as a function that does not keep its object alive: held by a part of it, that would be a cycle."""
    reference = weakref.WeakMethod(method)

    def call(*arguments: Any) -> _T:
        bound = reference()
        if bound is None:
            raise ReferenceError("the object is gone")
        return bound(*arguments)

    return call


@dataclass(eq=False, slots=True)
class _Recent:
    """A message of late, and which of its words were taken up since; as tuples, which take a quarter of what sets do."""

    note: Note
    words: tuple[str, ...]
    taken_up: tuple[str, ...] = ()

    def hear(self, words: frozenset[str]) -> None:
        if not words.isdisjoint(self.words):
            self.taken_up = tuple(words.intersection(self.words).union(self.taken_up))
            self.note.referenced = len(self.taken_up)


class Notes:
    """Notes on the messages of one history, taken in the order of speech.

    Tokens are noted apart from the rest: a history within its budget needs no more. A scorer that fails, or gives no number,
    leaves a message at the score of one that no rule knows; that is logged once.

    Args:
        counter: Counts the tokens of a message.
        scorer: Says what a message is worth; its ``score`` may take the message alone or the history as well.
        history: Returns the present history, for the scorer.
    """

    def __init__(self, counter: TokenCounter, scorer: ImportanceScorer, history: Callable[[], Sequence[Message]]) -> None:
        self._counter = counter
        self._mark_tokens: int | None = None
        self.tokens = Ledger(weakly(self.count))
        self.vocabulary = Vocabulary()
        self._notes = Ledger(weakly(self._note))
        self._scorer = scorer
        self._score_of_act: Callable[[str], float] | None = getattr(scorer, "score_of_act", None)
        self._history = history
        self._takes_history = _takes_history(scorer)
        self._average = ImportanceWeights().unmatched
        self._previous: Note | None = None
        self._recent: deque[_Recent] = deque(maxlen=_NEXT)
        self._skims = False
        self._warned = False
        self._revision = 0

    def count(self, message: Message) -> int:
        """Return the tokens of a message, counted anew unless it is a mark: all marks are alike."""
        if not is_stub(message):
            return self._counter.count(message)
        if self._mark_tokens is None:
            self._mark_tokens = self._counter.count(message)
        return self._mark_tokens

    def total(self, messages: Iterable[Message]) -> int:
        """Return the tokens of all ``messages`` together."""
        return sum(map(self.tokens, messages))

    def read(self, messages: Sequence[Message]) -> list[Note]:
        """Return the notes of a history; of messages not seen before they are taken now, in order.

        Of a history of more than 2,000 messages that were not seen before the older ones are only skimmed: what is no
        preference, correction, condition or the like has no traits, and its words are not learned.
        """
        self._take_up_answers(messages)
        self._previous = None
        closely_from = len(messages) - _READ_CLOSELY
        found = []
        for at, message in enumerate(messages):
            self._skims = at < closely_from
            note = self._notes(message)
            self._previous = note
            found.append(note)
        self._skims = False
        return found

    def _take_up_answers(self, messages: Sequence[Message]) -> None:
        """Score messages again if the scorer has thought of something since."""
        revision = getattr(self._scorer, "revision", 0)
        if revision == self._revision:
            return
        self._revision = revision
        for message in messages:
            if message in self._notes:
                note = self._notes(message)
                note.score, note.worth = self._score(message, note.act), None

    def __call__(self, message: Message) -> Note:
        """Return the note of one message."""
        return self._notes(message)

    def __contains__(self, message: Message) -> bool:
        return message in self.tokens

    def __len__(self) -> int:
        return len(self.tokens)

    def forget_all_but(self, messages: Iterable[Message]) -> None:
        """Drop what is known of every other message."""
        keep = list(messages)
        self.tokens.forget_all_but(keep)
        self._notes.forget_all_but(keep)

    def _note(self, message: Message) -> Note:
        act = message_act(message)
        note = Note(self.tokens(message), self._score(message, act), act)
        if is_stub(message) or (self._skims and note.score <= self._average):
            return note
        if act in ("tool_use", "tool_result"):
            text = _tool_text(message)
            words = traits(text)[1] if text else frozenset[str]()
        else:
            note.traits, words = traits(message_text(message))
            note.answers = self._previous is not None and self._previous.traits.asks
            self.vocabulary.hears(message["role"], tells=note.traits.tells)
        kept = shared(words)
        note.new = self.vocabulary.learn(kept)
        for earlier in self._recent:
            earlier.hear(words)
        self._recent.append(_Recent(note, kept))
        return note

    def _score(self, message: Message, act: str) -> float:
        try:
            if self._score_of_act is not None:
                value = self._score_of_act(act)
            elif self._takes_history:
                value = self._scorer.score(message, self._history())
            else:
                value = self._scorer.score(message)
            if not math.isnan(value):
                return min(1.0, max(0.0, float(value)))
            problem = "it is no number"
        except Exception as error:  # a scorer is the user's own code and must not end the conversation
            problem = type(error).__name__
            logger.debug("the scorer failed", exc_info=True)
        if not self._warned:
            self._warned = True
            logger.warning("scorer=<%s>, problem=<%s> | a score is unusable", type(self._scorer).__name__, problem)
        return ImportanceWeights().unmatched


def _tool_text(message: Message) -> str:
    """Return the inputs of a message's tool calls as text: their words refer back to what was said before."""
    return " ".join(str(block["toolUse"]["input"]) for block in message["content"] if "toolUse" in block)


def _takes_history(scorer: ImportanceScorer) -> bool:
    try:
        inspect.signature(scorer.score).bind({}, [])
    except (TypeError, ValueError):
        return False
    return True
