"""Rules that classify the messages of a conversation by their purpose (dialogue act).

Messages may be in English or Japanese. Dialogue acts are, for example, greetings, corrections and
standing instructions. A standing instruction is an order for all later answers: it forbids
something, applies every time, or concerns the length, tone, language or format of answers.
"""

from __future__ import annotations

import itertools
import re
from enum import StrEnum

from strands_manga_memory.language.packs import ANY, EN, JA
from strands_manga_memory.language.text_features import (
    TextFeatures,
    has_question_mark,
    lower_case,
    standard_spelling,
    text_features,
)


class DialogueAct(StrEnum):
    """Purpose of a message in a conversation, such as a greeting or a correction."""

    INSTRUCTION = "instruction"
    PREFERENCE = "preference"
    CORRECTION = "correction"
    CONSTRAINT = "constraint"
    DECISION = "decision"
    FACT = "fact"
    RECOMMENDATION = "recommendation"
    ACKNOWLEDGEMENT = "acknowledgement"
    GREETING = "greeting"
    FAREWELL = "farewell"
    UNMATCHED = "unmatched"


SMALL_TALK_ACTS = frozenset(
    {DialogueAct.GREETING, DialogueAct.ACKNOWLEDGEMENT, DialogueAct.FAREWELL}
)
"""Acts of greetings, thanks and farewells.
Such messages are not stored as memories, searched for or quoted.
"""


RULES = ANY.rules("acts")
"""Rules that determine dialogue acts, in order of priority."""
_CUE = re.compile(r"[a-z']+")
_SPACE_IN_CONTRACTION = re.compile(r"(?<! ) +(?=(?:'(?:s|m|re|ve|ll|d)|n't)\b)")
_HEAD, _TAIL = 600, 200
"""Numbers of characters that are read at the beginning and at the end of a longer text."""
_STATING = frozenset({DialogueAct.PREFERENCE, DialogueAct.FACT})


def dialogue_act(text: str, role: str) -> DialogueAct:
    """Classify a message of a conversation by its purpose, such as a greeting or a correction.

    Only the message itself is read, not the messages before it. A message is a greeting, farewell
    or acknowledgement only if it has nearly no other words. For example, "Hi, do you have volume
    12?" is no greeting. Of a text of over 800 characters, only the first 600 and the last 200 are
    read.

    Args:
        text: Text of the message.
        role: Role of the author, ``"user"`` or ``"assistant"``. Only assistants give
            recommendations. Only users state preferences, corrections, constraints and decisions.

    Returns:
        The dialogue act, or ``DialogueAct.UNMATCHED`` if no rule matches.
    """
    text = normalize_message(text)
    return small_talk_act(text, role) or _act_by_rule(text, role) or DialogueAct.UNMATCHED


def normalize_message(text: str) -> str:
    """Normalize a message for the rules that determine its dialogue act (purpose).

    The result is in lower case, with ASCII apostrophes and standard spelling ("i'm" for "im"). Of a
    text of over 800 characters, only the first 600 and the last 200 are kept.
    """
    text = text.strip()
    if len(text) > _HEAD + _TAIL:
        text = f"{text[:_HEAD]}\n{text[-_TAIL:]}"
    return _SPACE_IN_CONTRACTION.sub("", standard_spelling(text).lower())


def _act_by_rule(text: str, role: str) -> DialogueAct | None:
    words = set(_CUE.findall(text))
    for rule in RULES:
        # A Japanese cue may be a part of a word, an English cue is a whole word.
        has_cue = rule.role == role and any(
            cue in (words if cue.isascii() else text) for cue in rule.cues
        )
        if has_cue and rule.pattern.search(text):
            act = DialogueAct(rule.key)
            if act not in _STATING or rule.pattern.search(without_questions_about_oneself(text)):
                return act
    return None


# Small talk: messages of set phrases and nearly nothing else.

_OTHER = re.compile(r"[a-z0-9][a-z0-9'-]*|[^\W_]")
_SET_PHRASES = ANY.rules("set_phrases")
_LONGEST = 160


def small_talk_act(text: str, role: str) -> DialogueAct | None:
    """Return the dialogue act (purpose) of a message that is only small talk, such as a greeting.

    Small talk also includes thanks, farewells, and replies such as "okay" or "sounds good". A few
    other words are allowed, such as the name in "Thanks, Ken". Otherwise, the result is None.
    ``text`` must be normalized by ``normalize_message``.
    """
    rules = ANY.small_talk
    if len(text) > _LONGEST or rules.content.search(text):
        return None
    for rule in _SET_PHRASES:
        if rule.role in ("", role) and rule.pattern.search(text):
            rest = rules.filler.sub(" ", text)
            others = 0 if JA.small_talk.exact.search(text) else rule.others
            is_small_talk = len(_OTHER.findall(rest)) <= others and not rules.value.search(rest)
            return DialogueAct(rule.key) if is_small_talk else None
    return None


# Questions about oneself state nothing: "What is my favorite genre?" says of no genre that it is
# liked.

_SENTENCE_WITH_END = re.compile(r"[^.!?。！？\n]*[.!?。！？\n]?")


def without_questions_about_oneself(text: str) -> str:
    """Remove questions of users about themselves, such as "what is my favorite genre", from a text.

    Such a question mentions a preference, but does not state a preference.
    """
    sentences = _SENTENCE_WITH_END.findall(text)
    return "".join(
        _without_questions(each) if ANY.questions.cue.search(each) else each for each in sentences
    )


def _without_questions(sentence: str) -> str:
    is_question = has_question_mark(sentence)
    ends = (found.start() or found.end() for found in ANY.questions.clause.finditer(sentence))
    kept: list[str] = []
    is_dropped = False
    for start, end in reversed(list(itertools.pairwise([0, *ends, len(sentence)]))):
        clause = sentence[start:end]
        is_topic = is_dropped and JA.questions.topic.search(clause)
        is_asked = is_question and EN.questions.inverted.search(clause)
        is_dropped = bool(is_topic or is_asked or ANY.questions.asks.search(clause))
        if not is_dropped:
            kept.append(clause)
    return "".join(reversed(kept))


# Changes of subject: "forget that, show me something else".

_OPENING_LENGTH = 160
"""Number of first characters of a message in which a change of subject is searched."""


def changes_subject(text: str) -> bool:
    """Return whether a message changes the subject, as in "forget that, show me something else".

    Only the first 160 characters are read.
    """
    return ANY.subject_changes.changes.search(lower_case(text[:_OPENING_LENGTH])) is not None


# Replies: after "there is no table at seven", "how about eight?" corrects.


_PART = re.compile(r"[^、。！？!?\n]+")
_LAST_QUESTION = re.compile(r"(?<![^.!?\n])[^.!?\n]*+\?\s*\Z")
_REPLY_SENTENCE = re.compile(r"(?:[^.。！？!?\n]|\.(?!\s))+")

_SHORT, _END = 300, 100
"""Of a previous message of over 300 characters, only the last 100 are read."""

_OPEN_TO_CHANGE = frozenset({DialogueAct.CONSTRAINT, DialogueAct.DECISION, DialogueAct.UNMATCHED})


def act_of_reply(
    text: str, answer: str, act: str, features: TextFeatures, *, answers_question: bool = False
) -> str:
    """Return the dialogue act (purpose) of a user's reply to the assistant.

    The result is ``act``, the act of the reply alone, except in these cases:

    - A new proposal after a refusal becomes a correction: "how about eight?" after "there is no
      table at seven".
    - A decision with a number or a time becomes a constraint. So does a message that fits no rule
      (act ``"unmatched"``) but has a number, a time or a name.
    - After an offer, "no, just the address" gets the act of "just the address".
    - A Japanese message that only declines, or only withdraws a condition ("any day is fine"),
      becomes unmatched.

    Args:
        text: Text of the user's message.
        answer: Text of the assistant's previous message.
        act: Dialogue act of the user's message, from ``dialogue_act``.
        features: Features of the user's message, from ``text_features``.
        answers_question: Whether the message answers a question. An unmatched answer becomes a
            constraint, unless it ends with a question.
    """
    said = normalize_message(text)
    before = normalize_message(answer if len(answer) <= _SHORT else answer[-_END:])
    if act == DialogueAct.CORRECTION:
        return _act_of_correction(said, before)
    if (
        act in _OPEN_TO_CHANGE
        and not ANY.replies.continues.search(said)
        and _changes_declined_request(said, before, act, features)
    ):
        return DialogueAct.CORRECTION
    if _gives_value(text, act, features) or (
        act == DialogueAct.UNMATCHED and answers_question and not features.ends_with_question
    ):
        act = DialogueAct.CONSTRAINT
    only_withdraws = act == DialogueAct.CONSTRAINT and _only_withdraws_condition(said)
    return DialogueAct.UNMATCHED if only_withdraws else act


def _only_withdraws_condition(said: str) -> bool:
    # As in "any day is fine", in Japanese.
    parts = _PART.findall(said)
    kept = [part for part in parts if not JA.replies.lets_go.search(part)]
    rest = "、".join(kept)
    return (
        len(kept) < len(parts)
        and not text_features(rest)[0].has_value
        and dialogue_act(rest, "user") != DialogueAct.CONSTRAINT
    )


def _gives_value(text: str, act: str, features: TextFeatures) -> bool:
    if act == DialogueAct.DECISION:
        return features.has_number or features.has_time
    # A sentence with a word such as "it" or "that" gives no value.
    return (
        act == DialogueAct.UNMATCHED
        and features.has_value
        and any(
            text_features(one)[0].has_value
            for one in _REPLY_SENTENCE.findall(text)
            if not ANY.replies.points.search(one) and not JA.replies.lets_go.search(one)
        )
    )


def _changes_declined_request(said: str, before: str, act: str, features: TextFeatures) -> bool:
    """Return whether the user changes a request that the assistant has declined.

    An example is "How about eight?" after "Sorry, there is no table at seven."
    """
    takes = JA.replies.takes_or_asks.search(said) or JA.replies.lets_go.search(said)
    if takes or ANY.replies.declines.search(before) is None:
        return False
    gives_value = said.isascii() and (act == DialogueAct.CONSTRAINT or features.has_value)
    return gives_value or ANY.replies.tries.search(said) is not None


def _act_of_correction(said: str, before: str) -> DialogueAct:
    """Return the dialogue act of a user's message with the words of a correction.

    After an offer or a question, "no, just the address" gets the act of "just the address".
    """
    if JA.replies.refuses.search(said) or JA.replies.lets_go.search(said):
        return DialogueAct.UNMATCHED
    is_open = EN.replies.open.search(before[-_END:]) or ANY.replies.continues.search(said)
    question, refusal = _LAST_QUESTION.search(before), EN.replies.refuses.match(said)
    if is_open and (turn := EN.replies.turns.match(said)):
        refusal = turn
    elif question is not None and refusal is not None:
        asked, told = text_features(question[0])[0], text_features(said[refusal.end() :])[0]
        if (asked.has_number and told.has_number) or (asked.has_time and told.has_time):
            return DialogueAct.CORRECTION  # "On Monday?" - "No, on Friday."
    else:
        return DialogueAct.CORRECTION
    return dialogue_act(said[refusal.end() :], "user")
