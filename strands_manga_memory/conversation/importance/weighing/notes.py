"""What is noted about each message, once: its tokens, what it is worth, and what the signals need."""

from __future__ import annotations

import inspect
import logging
import math
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from strands.types.content import Message

from strands_manga_memory.conversation.history.gist import without_idle_texts
from strands_manga_memory.conversation.history.stubs import is_stub
from strands_manga_memory.conversation.importance.weighing.note import Note
from strands_manga_memory.conversation.importance.weighing.scoring import WEIGHTS, ImportanceScorer, message_act
from strands_manga_memory.conversation.importance.weighing.vocabulary import Vocabulary
from strands_manga_memory.conversation.tokens.ledger import Ledger
from strands_manga_memory.conversation.tokens.token_counter import TokenCounter
from strands_manga_memory.joining import parted
from strands_manga_memory.language.dialogue_acts import DialogueAct, act_of_reply, are_instructions_active, revokes_instruction
from strands_manga_memory.language.text_features import content_word_set, intern_words, text_features
from strands_manga_memory.messages import is_turn_start
from strands_manga_memory.messages.injection import message_text

logger = logging.getLogger(__name__)

_NEXT = 8
"""So many messages are looked at for words that refer back to one."""

_READ_CLOSELY = 2_000
"""Of a longer history that comes all at once, older messages are read closely only if their score is above average.

It bounds the time: 10,000 messages take half of what they would. It costs quality: up to a fifth of what would have been
kept."""

_HALF = 0.5

_OF_TOOLS = ("tool_use", "tool_result")
_ENDS = (DialogueAct.CORRECTION, DialogueAct.INSTRUCTION)


@dataclass(eq=False, slots=True)
class _Recent:
    """A message of late, and which of its words were taken up since; as tuples, which take a quarter of what sets do."""

    note: Note
    words: tuple[str, ...]
    taken_up: tuple[str, ...] = ()

    def hear(self, words: frozenset[str]) -> None:
        if not words.isdisjoint(self.words):
            self.taken_up = tuple(words.intersection(self.words).union(self.taken_up))
            self.note.referenced = max(self.note.referenced, len(self.taken_up))


class Notes:
    """Notes on the messages of one history, taken in the order of speech.

    Tokens are noted apart from the rest: a history within its budget needs no more. The scorer's ``score`` may take the
    message alone or the history as well. One that fails, or gives no number, leaves a message at the score of one that no rule
    knows; that is logged once.
    """

    __slots__ = (
        "__weakref__",
        "_average",
        "_before",
        "_counter",
        "_history",
        "_kept",
        "_mark_tokens",
        "_notes",
        "_previous",
        "_recent",
        "_revision",
        "_score_of_act",
        "_scorer",
        "_skims",
        "_takes_history",
        "_unheard",
        "_warned",
        "tokens",
        "vocabulary",
    )

    def __init__(self, counter: TokenCounter, scorer: ImportanceScorer, history: Callable[[], Sequence[Message]]) -> None:
        self._counter = counter
        self._mark_tokens: int | None = None
        me = weakref.proxy(self)  # a part that held it would be a cycle with it
        self.tokens = Ledger[int](lambda message: me.count(message))
        self.vocabulary = Vocabulary()
        self._notes = Ledger[Note](lambda message: me._note(message))  # noqa: SLF001
        self._scorer = scorer
        self._score_of_act: Callable[[str], float] | None = getattr(scorer, "score_of_act", None)
        self._history = history
        self._takes_history = self._score_of_act is None and _takes_history(scorer)
        self._average = WEIGHTS.unmatched
        self._previous: Note | None = None
        self._before: Message | None = None
        self._recent: tuple[_Recent, ...] = ()
        self._kept: Callable[[], Sequence[tuple[Message, Note]]] | None = None
        self._unheard: Sequence[tuple[Message, Note]] = ()
        self._skims = False
        self._warned = False
        self._revision = 0

    def count(self, message: Message) -> int:
        """Return the tokens of a message, counted anew unless it is a mark: all marks are alike. Parts count one by one."""
        parts = parted(message)
        if len(parts) > 1:
            return sum(map(self.tokens, parts))
        if not is_stub(message):
            return self._counter.count(message)
        if self._mark_tokens is None:
            self._mark_tokens = self._counter.count(message)
        return self._mark_tokens

    def total(self, messages: Sequence[Message]) -> int:
        """Return the tokens of all ``messages`` together."""
        tokens, new = self.tokens.known(messages)
        return sum(tokens) + sum(map(self.tokens, new))

    def counted(self, messages: Sequence[Message]) -> tuple[int, list[Message]]:
        """Return the tokens of those messages that were counted before, and the others, wherever they stand."""
        tokens, new = self.tokens.known(messages)
        return sum(tokens), new

    def take_over(self, counted: Iterable[tuple[Message, int]], noted: Callable[[], Sequence[tuple[Message, Note]]]) -> None:
        """Take over the tokens of messages that were counted before, and the notes on them.

        ``noted`` is called when the first note is asked for, as most turns ask for none. The words of those messages are
        learned when another one is noted.
        """
        self.tokens.know(counted)
        self._kept = noted

    def _take_in(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            self._unheard = kept()
            self._notes.know(self._unheard)

    def each(self, messages: Sequence[Message]) -> list[Note | None]:
        """Return the notes of messages, None of those of which none was taken."""
        self._take_in()
        return self._notes.each(messages)

    @property
    def taken(self) -> tuple[int, int]:
        """How many messages were counted, and noted, here."""
        return self.tokens.count, self._notes.count

    def score_of(self, act: str) -> float:
        """Return the score of an act, by a scorer that goes by acts."""
        return self._score({"role": "user", "content": []}, act)

    def read(self, messages: Sequence[Message]) -> list[Note]:
        """Return the notes of a history; of messages not seen before they are taken now, in order.

        Of a history of more than 2,000 messages that were not seen before the older ones are only skimmed: what is no
        preference, correction, condition or the like has no traits, and its words are not learned.
        """
        self._take_in()
        self._take_up_answers(messages)
        closely_from = len(messages) - _READ_CLOSELY
        found: list[Note] = []
        for at, note in enumerate(self._notes.each(messages)):
            if note is None:
                self._skims, self._previous = at < closely_from, found[-1] if found else None
                self._before = messages[at - 1] if at else None
                note = self._notes(messages[at])
            found.append(note)
        self._skims = False
        self._take_back(messages, found)
        return found

    def _take_back(self, messages: Sequence[Message], notes: Sequence[Note]) -> None:
        """Let instructions that the user has taken back count as any other message."""
        if not any(note.takes_back for note in notes):
            return
        said = [(note, message_text(message)) for note, message in zip(notes, messages, strict=True) if is_turn_start(message)]
        stands = are_instructions_active([(note.act, text) for note, text in said])
        for (note, _), still in zip(said, stands, strict=True):
            if note.act == DialogueAct.INSTRUCTION and not still:
                note.act, note.score, note.worth = "unmatched", self._average, None

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
        self._take_in()
        return self._notes(message)

    def __contains__(self, message: Message) -> bool:
        return message in self.tokens

    def __len__(self) -> int:
        return len(self.tokens)

    def forget_all_but(self, messages: Iterable[Message]) -> None:
        """Drop what is known of every other message."""
        self._take_in()
        keep = list(messages)
        self.tokens.forget_all_but(keep)
        self._notes.forget_all_but(keep)

    def _note(self, message: Message) -> Note:
        if self._unheard:
            self._hear_again()
        is_mark = is_stub(message)
        act = DialogueAct.UNMATCHED.value if is_mark else message_act(message)
        note = Note(self.tokens(message), self._score(message, act), act)
        if is_mark or (self._skims and note.score <= self._average):
            return note
        if act in _OF_TOOLS:
            text = _tool_text(message)
            words = text_features(text)[1] if text else frozenset[str]()
        else:
            note.traits, words = text_features(text := message_text(without_idle_texts(message)))
            note.answers = self._previous is not None and self._previous.asks
            if message["role"] == "user":
                note.takes_back = act in _ENDS and revokes_instruction(text)
                self._hear_reply(note, message, text, says_something=bool(words))
            self.vocabulary.hears(message["role"], tells=note.traits.tells, tokens=note.tokens)
        note.new = self._hear(note, words)
        return note

    def _hear(self, note: Note, words: frozenset[str]) -> int:
        """Learn the words of a message, and which of those of earlier ones it takes up; return how many are new."""
        kept = intern_words(words)
        new = self.vocabulary.learn(kept)
        for earlier in self._recent:
            earlier.hear(words)
        self._recent = (*self._recent[1 - _NEXT :], _Recent(note, kept))
        return new

    def _hear_again(self) -> None:
        """Learn the words of messages whose notes were taken over."""
        unheard, self._unheard = self._unheard, ()
        for message, note in unheard:
            self._hear(note, content_word_set(_tool_text(message) if note.act in _OF_TOOLS else message_text(message)))

    def _hear_reply(self, note: Note, message: Message, text: str, *, says_something: bool) -> None:
        """Take a user's message for what it does as a reply to somebody who serves; among companions it is talk.

        What answers a question says how something is to be.
        """
        if self._before is None or note.takes_back or self.vocabulary.service <= _HALF:
            return
        answers = note.answers and says_something
        act = act_of_reply(text, message_text(self._before), note.act, note.traits, answers=answers)
        if act != note.act:
            note.act = act
            note.score = self._score(message, act) if self._score_of_act is not None else note.score

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
        return WEIGHTS.unmatched


def _tool_text(message: Message) -> str:
    """Return the inputs of a message's tool calls as text: their words refer back to what was said before."""
    return " ".join(str(block["toolUse"]["input"]) for block in message["content"] if "toolUse" in block)


def _takes_history(scorer: ImportanceScorer) -> bool:
    try:
        inspect.signature(scorer.score).bind({}, [])
    except (TypeError, ValueError):
        return False
    return True
