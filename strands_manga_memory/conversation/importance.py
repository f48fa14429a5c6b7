"""Importance of messages: scorers, importance levels, and measured features of each message.

Features are, for example, the tokens, the score and the dialogue act (purpose) of a message. They
are measured again only if the content of the message has changed.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice
from typing import Any, Protocol

from strands.types.content import Message

from strands_manga_memory.arguments import Share, checked, with_repr
from strands_manga_memory.conversation.token_counter import TokenCounter
from strands_manga_memory.language.dialogue_acts import (
    DialogueAct,
    act_of_reply,
    dialogue_act,
)
from strands_manga_memory.language.instructions import are_instructions_active, revokes_instruction
from strands_manga_memory.language.packs import ANY
from strands_manga_memory.language.text_features import TextFeatures, text_features
from strands_manga_memory.messages import content_fingerprint, is_turn_start
from strands_manga_memory.messages.injection import message_text
from strands_manga_memory.messages.message_parts import PLACEHOLDER, block_kinds
from strands_manga_memory.messages.provider_format import placeholder_count
from strands_manga_memory.messages.texts import head_and_tail

logger = logging.getLogger(__name__)

# --- Scores ---------------------------------------------------------------------------------------


class ImportanceScorer(Protocol):
    """Protocol for scorers that rate the importance of a conversation's messages.

    Unimportant messages are evicted from the history first. A message is scored again only if its
    content or its dialogue act (purpose) changes. A scorer may be slow, but must not wait for I/O.

    A scorer whose scores can change later has an attribute ``revision``, a whole number. After each
    increase of this number, all messages are scored again.
    """

    def score(self, message: Message, act: str, context: Sequence[Message]) -> float:
        """Return the importance of a message, from 0 to 1.

        Args:
            message: The message.
            act: Dialogue act (purpose) of the message, found by rules. For messages of tools,
                ``"tool_use"`` or ``"tool_result"``.
            context: Messages of the conversation, oldest first: the history and, in some calls,
                evicted messages.
        """


class Band(IntEnum):
    """Importance level of a message. Messages of a low level are evicted from the history first."""

    LOW = 0
    """Evicted first."""

    MIDDLE = 1
    """Kept if the budget has room."""

    HIGH = 2
    """Kept as long as other messages can be evicted."""


LOW, MIDDLE, HIGH = Band
"""Importance levels as plain names, because a look-up in an enumeration is slow."""


_HIGH_FROM, _MIDDLE_FROM = 0.8, 0.5
"""Lowest scores of the importance levels ``HIGH`` and ``MIDDLE``."""


def band_of(score: float) -> Band:
    """Return the importance level of a score: high from 0.8 on, middle from 0.5 on, else low."""
    return HIGH if score >= _HIGH_FROM else MIDDLE if score >= _MIDDLE_FROM else LOW


@checked
@dataclass(frozen=True, kw_only=True)
class ImportanceWeights:
    """Importance scores of messages, from 0 to 1, by dialogue act (purpose of a message).

    ``tool_use`` and ``tool_result`` are the scores of tool calls and tool results. ``unmatched`` is
    the score of messages that no rule recognizes.

    Raises:
        ValueError: A score is not between 0 and 1.
    """

    instruction: Share = 0.95
    preference: Share = 0.9
    correction: Share = 0.85
    fact: Share = 0.8
    constraint: Share = 0.75
    decision: Share = 0.6
    recommendation: Share = 0.6
    unmatched: Share = 0.5
    tool_use: Share = 0.4
    tool_result: Share = 0.4
    acknowledgement: Share = 0.2
    greeting: Share = 0.1
    farewell: Share = 0.1


WEIGHTS = ImportanceWeights()
"""Default scores of dialogue acts, tool calls and tool results."""


@with_repr("weights")
class RuleScorer:
    """Scorer that rates the importance of a message by its dialogue act, without a model.

    The dialogue act is the purpose of the message, such as a greeting or a preference. Rules in
    English and Japanese recognize it.

    Args:
        weights: Score of each dialogue act.
    """

    def __init__(self, weights: ImportanceWeights | None = None) -> None:
        self.weights = weights or WEIGHTS

    def score(self, message: Message, act: str = "", context: Sequence[Message] = ()) -> float:
        """Return the importance of a message: the score of its dialogue act (purpose).

        If ``act``, the dialogue act, is empty, rules find it in the message.
        """
        return float(getattr(self.weights, act or message_act(message)))


def message_act(message: Message) -> str:
    """Find the dialogue act (purpose) of a message by rules.

    Returns:
        A value of ``DialogueAct``, such as ``"greeting"``. For messages of tools, ``"tool_use"`` or
        ``"tool_result"``.
    """
    kinds = block_kinds(message)
    if "toolResult" in kinds:
        return "tool_result"
    if "toolUse" in kinds:
        return "tool_use"
    return dialogue_act(message_text(message), message["role"]).value


SIGNAL_WEIGHTS = {
    "act": 6.0,  # importance score of the message, minus 0.5
    "instruction": 3.0,  # the user sets a rule for all answers
    "constraint": 1.5,  # the user sets a condition, such as a number, a time, a place or a price
    # the assistant wrote the message: from 0 to 1, the more it acts like a help desk
    "service": -7.0,
    "answers": 1.2,  # the previous message asked a question
    "number": 1.1,  # the message contains a number
    "names": 0.9,  # logarithm of the number of names in the message
    "time": 0.85,  # the message mentions a day, a date or a time
    "wants": 0.8,  # the speaker states a wish
    "asks": -0.2,  # the message asks a question
    "tells": 0.35,  # the speaker talks about themselves
    "new": 0.6,  # logarithm of the number of words that are new in the conversation
    "recency": 1.0,  # 1 in the last turn, and halved every HALF_LIFE turns
    "fresh_service": 6.5,  # "service" multiplied by the recency
    "tool": -2.5,  # the message is a tool call or a tool result
    "fresh_tool": 7.0,  # recency of a tool call or a tool result
    # the part of a text or tool result that its short form leaves out
    "whole_result": -1.0,
    "size": -1.0,  # logarithm of the number of tokens
}
"""Weights of the properties of a message (signals) that decide whether it stays in the history."""

HALF_LIFE = 3.0
"""Number of turns after which the recency of a message is half as large."""


# --- Features -------------------------------------------------------------------------------------

_TOOL_ACTS = ("tool_use", "tool_result")
_ENDING_ACTS = (DialogueAct.CORRECTION, DialogueAct.INSTRUCTION)
_NO_TRAITS = TextFeatures()
_PLACEHOLDER: Message = {"role": "assistant", "content": [{"text": PLACEHOLDER}]}
_NEUTRAL_SCORE = 0.5

_text_features = functools.lru_cache(8_192)(text_features)
"""``text_features`` with a cache, for agents that are built for each turn and read texts again."""


@dataclass(eq=False, slots=True)
class MessageFeatures:
    """Measured properties of a message, which decide whether it stays in the history.

    Attributes:
        tokens: Number of tokens in the message.
        score: Importance of the message as rated by the scorer, from 0 to 1.
        act: Dialogue act of the message. For tool messages ``"tool_use"`` or ``"tool_result"``.
            Empty if only the tokens were counted yet.
        role: ``"user"`` or ``"assistant"``.
        traits: Properties that depend on the text alone, such as the number of names in it.
        answers: Whether the previous message ends with a question, so that this message may answer
            it. False after a recommendation.
        new: Number of words of the message that no earlier message of the conversation has.
        may_revoke: Whether the message may revoke an earlier instruction of the user.
        condensed: Shortened form of the message and its number of tokens. None if not computed yet.
    """

    tokens: int
    score: float
    act: str = "unmatched"
    role: str = "user"
    traits: TextFeatures = _NO_TRAITS
    answers: bool = False
    new: int = 0
    may_revoke: bool = False
    condensed: tuple[Message, int] | None = None


def signals_of(features: MessageFeatures, *, service_style: float, age: float) -> dict[str, float]:
    """Return the weighted properties by which a selection keeps or evicts a message.

    Keys are names of properties, for example ``number`` if the text contains a number. A positive
    value is a reason to keep the message, a negative value to evict it. Properties with the value 0
    are left out.

    Args:
        features: Measured properties of the message.
        service_style: Style of the assistant, from 0 (companion) to 1 (help desk). It has no effect
            on messages of the user.
        age: Number of turns that began after the turn of the message.
    """
    traits, fresh = features.traits, 0.5 ** (age / HALF_LIFE)
    style = service_style if features.role == "assistant" else 0.0
    signals: dict[str, float] = {"act": features.score - _NEUTRAL_SCORE}
    if features.act in _TOOL_ACTS:
        signals |= {"tool": 1, "fresh_tool": fresh}
    else:
        signals |= {
            "instruction": features.act == DialogueAct.INSTRUCTION,
            "constraint": features.act == DialogueAct.CONSTRAINT,
            "answers": features.answers,
            "number": traits.has_number,
            "names": math.log1p(traits.name_count),
            "time": traits.has_time,
            "wants": traits.has_wish,
            "asks": traits.ends_with_question,
            "tells": traits.is_about_speaker,
            "new": math.log1p(features.new),
            "size": math.log(features.tokens + 2),
            "recency": fresh,
            "service": style,
            "fresh_service": style * fresh,
        }
    return {name: SIGNAL_WEIGHTS[name] * value for name, value in signals.items() if value}


def size_of(value: Any) -> int:
    """Estimate the size of a message or of another nested value.

    Each character of a text and each byte counts as 1. Every other item, such as a number, as 8.
    """
    size, left = 0, [value]
    while left:
        one = left.pop()
        if isinstance(one, str | bytes):
            size += len(one)
        elif isinstance(one, dict):
            left += [*one, *one.values()]
        elif isinstance(one, list | tuple):
            left += one
        else:
            size += 8
    return size


def same_objects(one: Sequence[Message], other: Sequence[Message]) -> bool:
    """Return whether two lists contain the same message objects, in the same order.

    A copy of a message is another object.
    """
    return [*map(id, one)] == [*map(id, other)]


def _key(message: Message) -> int:
    return hash((message.get("tracking_id"), content_fingerprint(message)))


class TextStatistics:
    """Statistics on the texts of a conversation so far: known words, and sizes of messages by role.

    The words show which words of a later message are new. The sizes show whether the assistant acts
    like a help desk or like a companion.
    """

    _MOST_WORDS = 20_000
    _PRIOR_TEXTS = 10
    _SERVING_RATE, _COMPANION_RATE = 0.05, 0.15
    _AS_LONG, _MUCH_LONGER = 2.0, 4.0

    def __init__(self) -> None:
        self._words: dict[str, None] = {}
        self._texts = 0
        self._texts_of_self = 0
        self._tokens = {"user": 0, "assistant": 0}

    def learn(self, features: MessageFeatures, words: Iterable[str]) -> int:
        """Add the features and words of a message. Return the number of words that are new."""
        role = features.role
        self._tokens[role] = self._tokens.get(role, 0) + features.tokens
        if role == "assistant":
            self._texts += 1
            self._texts_of_self += features.traits.is_about_speaker
        before = len(self._words)
        self._words.update(dict.fromkeys(words))
        new = len(self._words) - before
        if len(self._words) > self._MOST_WORDS:
            self._words = dict.fromkeys(islice(self._words, self._MOST_WORDS // 2, None))
        return new

    @property
    def service_style(self) -> float:
        """Style of the assistant, from 0 (companion) to 1 (help desk).

        Old messages of a help desk are less important than those of a companion.

        - 0: The assistant talks about itself in at least 15 % of its messages, and writes at most
          twice as much as the user.
        - 1: The assistant talks about itself in at most 5 % of its messages, or writes at least
          four times as much as the user.
        - In all other cases, the value is between 0 and 1. A new conversation begins with 1.
        """
        rate = self._texts_of_self / (self._texts + self._PRIOR_TEXTS)
        tells = (rate - self._SERVING_RATE) / (self._COMPANION_RATE - self._SERVING_RATE)
        longer = self._tokens["assistant"] / max(1, self._tokens["user"])
        writes = (longer - self._AS_LONG) / (self._MUCH_LONGER - self._AS_LONG)
        return max(1.0 - min(1.0, max(0.0, tells)), min(1.0, max(0.0, writes)))


class FeatureCache:
    """Cache of the features of a conversation's messages, such as tokens and importance.

    If the scorer fails or returns no number, the message gets the score 0.5. Only the first failure
    is logged as a warning.
    """

    def __init__(self, counter: TokenCounter, scorer: ImportanceScorer) -> None:
        self.statistics = TextStatistics()
        self.counter = counter
        self._features: dict[int, MessageFeatures] = {}
        self._scorer = scorer
        self._has_warned = False
        self._revision = 0

    def tokens(self, message: Message) -> int:
        """Count the tokens of a message, or return the cached count."""
        return self._cached(message).tokens

    def _cached(self, message: Message) -> MessageFeatures:
        key = _key(message)
        features = self._features.get(key)
        if features is None:
            tokens = self.counter.count(message)
            features = self._features[key] = MessageFeatures(tokens, _NEUTRAL_SCORE, "")
        return features

    def total(self, messages: Sequence[Message]) -> int:
        """Return the number of tokens that messages have in a model request.

        Placeholder messages, which providers require for example between consecutive user messages,
        count too.
        """
        placeholders = placeholder_count(messages)
        of_placeholders = placeholders * self.tokens(_PLACEHOLDER) if placeholders else 0
        return sum(map(self.tokens, messages)) + of_placeholders

    def uncounted_size(self, messages: Iterable[Message]) -> int:
        """Estimate the characters of the messages whose tokens have not been counted yet."""
        return sum(size_of(one) for one in messages if _key(one) not in self._features)

    def measure(
        self,
        message: Message,
        history: Sequence[Message] = (),
        before: tuple[Message, MessageFeatures] | None = None,
    ) -> MessageFeatures:
        """Return the features of a message, such as its tokens, dialogue act and importance.

        ``before`` is the previous message with its features. The dialogue act (purpose) of a user's
        message can depend on it: "the second one" answers a question. The scorer gets ``history``.
        """
        features = self._cached(message)
        if features.act:
            return features
        act, role = message_act(message), message["role"]
        features.role, features.score = role, self._score(message, act, history)
        if act not in _TOOL_ACTS:
            text, is_of_user = message_text(message), role == "user"
            features.traits, words = _text_features(text)
            features.answers = (
                before is not None
                and before[1].traits.ends_with_question
                and before[1].act != DialogueAct.RECOMMENDATION
            )
            revokes = is_of_user and act in _ENDING_ACTS and revokes_instruction(text)
            ends = is_of_user and ANY.instructions.ended.search(head_and_tail(text)) is not None
            features.may_revoke = revokes or ends
            is_served = self.statistics.service_style > _NEUTRAL_SCORE
            if is_of_user and before and not revokes and is_served:
                answers = features.answers and bool(words)
                previous, by_rules = message_text(before[0]), act
                act = act_of_reply(text, previous, act, features.traits, answers_question=answers)
                if act != by_rules:
                    features.score = self._score(message, act, history)
            features.new = self.statistics.learn(features, words)
        features.act = act
        return features

    def __len__(self) -> int:
        return len(self._features)

    def measure_all(self, messages: Sequence[Message]) -> list[MessageFeatures]:
        """Return the features of each message of a history, such as its tokens and importance.

        If the scorer's ``revision`` has changed, all messages are scored again. An instruction that
        the user has revoked gets the score of an ordinary message.
        """
        revision = getattr(self._scorer, "revision", 0)
        found: list[MessageFeatures] = []
        revokes = False
        for message in messages:
            before = (messages[len(found) - 1], found[-1]) if found else None
            features = self.measure(message, messages, before)
            if revision != self._revision:
                features.score = self._score(message, features.act, messages)
            found.append(features)
            revokes = revokes or features.may_revoke
        self._revision = revision
        if revokes:
            starts = [at for at, message in enumerate(messages) if is_turn_start(message)]
            said = [(found[at].act, message_text(messages[at])) for at in starts]
            for at, is_active in zip(starts, are_instructions_active(said), strict=True):
                if found[at].act == DialogueAct.INSTRUCTION and not is_active:
                    found[at].act, found[at].score = "unmatched", WEIGHTS.unmatched
        return found

    def forget_all_but(self, messages: Iterable[Message]) -> None:
        """Remove the cached features of all messages except the given ones."""
        keep = [*map(_key, messages)]
        self._features = {key: self._features[key] for key in keep if key in self._features}

    def _score(self, message: Message, act: str, history: Sequence[Message]) -> float:
        try:
            value = self._scorer.score(message, act, history)
            if not math.isnan(value):
                return min(1.0, max(0.0, float(value)))
            problem = "it is no number"
        except Exception as error:  # the user's own code must not end the conversation
            problem = type(error).__name__
            logger.debug("the scorer failed", exc_info=True)
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "scorer=<%s>, problem=<%s> | a score is unusable",
                type(self._scorer).__name__,
                problem,
            )
        return WEIGHTS.unmatched
