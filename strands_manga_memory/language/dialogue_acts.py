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


RULES_OF_ROLE = {
    role: tuple(
        (rule, pack is JA) for pack in (JA, EN) for rule in pack.rules("acts") if rule.role == role
    )
    for role in ("user", "assistant")
}
"""Rules in order of priority, keyed by the author's role. Each has a flag: True for Japanese."""
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
    for rule, is_japanese in RULES_OF_ROLE.get(role, ()):
        # A Japanese cue may be a part of a word, an English cue is a whole word.
        has_cue = (
            any(map(text.__contains__, rule.cues))
            if is_japanese
            else not words.isdisjoint(rule.cues)
        )
        if has_cue and rule.pattern.search(text):
            act = DialogueAct(rule.key)
            if act not in _STATING or rule.pattern.search(without_questions_about_oneself(text)):
                return act
    return None


# Small talk: messages of set phrases and nearly nothing else.

_THANKS = EN.words("small_talk.thanks")
_HELLO = EN.words("small_talk.hello")
_YES = EN.words("small_talk.yes")
_ANSWERS = EN.words("small_talk.answers")
_SMALL_TALK = (
    _THANKS | _HELLO | _YES | EN.words("small_talk.closing") | EN.words("small_talk.other_words")
)
_WORD = re.compile(r"[a-z0-9'$&#%][a-z0-9'$&#%-]*")
_LETTER = re.compile(r"[a-z0-9]+|[\u3040-\u30ff\u3400-\u9fff]")
_SET_PHRASES = JA.rules("set_phrases")
_LONGEST, _LONGEST_JAPANESE = 160, 60
_MOST_WORDS = 30
_MOST_OTHER_LETTERS = 2


def small_talk_act(text: str, role: str) -> DialogueAct | None:
    """Return the dialogue act (purpose) of a message that is only small talk, such as a greeting.

    Small talk also includes thanks, farewells, and replies such as "okay" or "sounds good". The
    result is None if the message contains anything else.

    Args:
        text: Text of the message, normalized by ``normalize_message``.
        role: Role of the author, ``"user"`` or ``"assistant"``.
    """
    return _english_small_talk(text, role) if text.isascii() else _japanese_small_talk(text)


def _english_small_talk(text: str, role: str) -> DialogueAct | None:
    """Return the dialogue act of an English message that is only small talk, or None.

    Small talk consists of common words, such as "hello". A message with thanks or a farewell may
    contain one other word. A farewell of the assistant may contain two other words.
    """
    if len(text) > _LONGEST:
        return None
    words = _WORD.findall(
        EN.small_talk.for_calling.sub(" thanks ", text) if role == "assistant" else text
    )
    if not 0 < len(words) <= _MOST_WORDS:
        return None
    others = [word for word in words if word not in _SMALL_TALK]
    if not all(map(str.isalpha, others)):
        return None
    if (role == "user" and ANY.small_talk.answers_question.match(text)) or (
        "?" in text and not EN.small_talk.asks_how.search(text)
    ):
        return None
    has_thanks, has_bye = not _THANKS.isdisjoint(words), EN.small_talk.bye.search(text) is not None
    if len(others) > (1 if has_thanks or has_bye else 0) + (role == "assistant" and has_bye):
        return None
    if EN.small_talk.hi.search(text) and not has_bye:
        return (
            DialogueAct.GREETING if not has_thanks or "?" in text else DialogueAct.ACKNOWLEDGEMENT
        )
    if role == "assistant" and (has_thanks or has_bye):
        return DialogueAct.FAREWELL
    if has_thanks:
        return DialogueAct.ACKNOWLEDGEMENT
    if "?" in text:
        return (
            DialogueAct.GREETING
            if _HELLO.intersection(words) or EN.small_talk.asks_how.match(text)
            else None
        )
    return DialogueAct.FAREWELL if has_bye else _act_of_phrases(text, words, role)


def _act_of_phrases(text: str, words: list[str], role: str) -> DialogueAct | None:
    is_answer = words[0] in _ANSWERS
    if role == "assistant" and is_answer and len(words) > 2:
        return None  # the answer to a question
    if role == "user" and not is_answer and EN.small_talk.closed.search(text):
        return DialogueAct.FAREWELL
    if role == "user" and not is_answer and EN.small_talk.accepts.search(text):
        return DialogueAct.DECISION
    return DialogueAct.ACKNOWLEDGEMENT if is_answer or not _YES.isdisjoint(words) else None


def _japanese_small_talk(text: str) -> DialogueAct | None:
    """Return the dialogue act of a Japanese message that is only small talk, or None.

    Small talk consists of set phrases, such as greetings, and at most two other letters.
    """
    if len(text) > _LONGEST_JAPANESE:
        return None
    found: DialogueAct | None = None
    rest = text
    for rule in _SET_PHRASES:
        rest, hits = rule.pattern.subn(" ", rest)
        if hits and found is None:
            found = DialogueAct(rule.key)
    if (
        found is None
        or JA.small_talk.value.search(rest)
        or ANY.small_talk.answers_question.match(text)
    ):
        return None
    asks = JA.small_talk.asks.search(rest.strip()) is not None
    left = len(_LETTER.findall(JA.small_talk.filler.sub(" ", rest)))
    is_reply = (
        JA.small_talk.short_answer.match(text) is not None
    )  # 「はい、あります」 is the answer to a question
    return found if left <= (0 if asks or is_reply else _MOST_OTHER_LETTERS) else None


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
    kept: list[str] = []
    starts = [
        0,
        *(found.start() or found.end() for found in ANY.questions.clause.finditer(sentence)),
        len(sentence),
    ]
    for start, end in reversed(list(itertools.pairwise(starts))):
        clause = sentence[start:end]
        is_topic_of_question = (
            bool(kept) and not kept[-1] and JA.questions.topic.search(clause) is not None
        )
        kept.append(
            ""
            if is_topic_of_question or _asks_about_speaker(clause, is_question=is_question)
            else clause
        )
    return "".join(reversed(kept))


def _asks_about_speaker(clause: str, *, is_question: bool) -> bool:
    if EN.questions.asked_for.search(clause) or (
        is_question and EN.questions.inverted.search(clause)
    ):
        return True
    return not clause.isascii() and JA.questions.asks.search(clause) is not None


# Changes of subject: "forget that, show me something else".

_OPENING_LENGTH = 160
"""Number of characters at the beginning of a message in which a change of subject is searched."""


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
    """Correct the dialogue act (purpose) of a user's message that replies to the assistant.

    ``act`` was determined from the user's message alone. It is ``"unmatched"`` if no rule applies
    to the message. It is corrected in these cases:

    - A constraint, a decision or an unmatched message becomes a correction if the assistant refused
      and the user proposes something else: "how about eight?" after "there is no table at seven".
    - A decision with a number or a time is a constraint.
    - An unmatched message with a number, a time or a name is a constraint.
    - "No, just the address" only declines an offer. Its act is the act of "just the address".
    - A Japanese message that only declines, or only withdraws a condition ("any day is fine"), is
      unmatched.

    Args:
        text: Text of the user's message.
        answer: Text of the assistant's previous message.
        act: Dialogue act of the user's message, from ``dialogue_act``.
        features: Features of the user's message, from ``text_features``.
        answers_question: Whether the user's message answers a question. If it does, an unmatched
            message is a constraint, unless it ends with a question.

    Returns:
        The corrected dialogue act, or ``"unmatched"``.
    """
    said, before = (
        normalize_message(text),
        normalize_message(answer if len(answer) <= _SHORT else answer[-_END:]),
    )
    if act == DialogueAct.CORRECTION:
        return _act_of_correction(said, before)
    if (
        act in _OPEN_TO_CHANGE
        and not ANY.replies.continues.search(said)
        and _changes(said, before, act, features)
    ):
        return DialogueAct.CORRECTION.value
    if _gives_value(text, act, features) or (
        act == DialogueAct.UNMATCHED and answers_question and not features.ends_with_question
    ):
        act = DialogueAct.CONSTRAINT.value
    return (
        DialogueAct.UNMATCHED.value
        if act == DialogueAct.CONSTRAINT and _only_withdraws_condition(said)
        else act
    )


def _only_withdraws_condition(said: str) -> bool:
    """Return whether a Japanese message only withdraws a condition: "any day is fine"."""
    parts = _PART.findall(said)
    kept = [part for part in parts if not JA.replies.lets_go.search(part)]
    rest = "、".join(kept)
    return (
        len(kept) < len(parts)
        and not _has_value(text_features(rest)[0])
        and dialogue_act(rest, "user") != DialogueAct.CONSTRAINT
    )


def _gives_value(text: str, act: str, features: TextFeatures) -> bool:
    """Return whether a user's message is a constraint, because it gives a value such as a time.

    - A decision is a constraint if it has a number or a time.
    - A message without a dialogue act is a constraint if one of its sentences has a number, a time
      or a name. Sentences with words such as "it" or "that" do not count.
    - For messages with other dialogue acts, the result is False.
    """
    if act == DialogueAct.DECISION:
        return features.has_number or features.has_time
    if act != DialogueAct.UNMATCHED or not _has_value(features):
        return False
    return any(
        _has_value(text_features(one)[0])
        for one in _REPLY_SENTENCE.findall(text)
        if not ANY.replies.points.search(one) and not JA.replies.lets_go.search(one)
    )


def _has_value(features: TextFeatures) -> bool:
    return features.has_number or features.has_time or features.name_count > 0


def _changes(said: str, before: str, act: str, features: TextFeatures) -> bool:
    """Return whether a user answers a refusal with another proposal, such as "how about eight?"."""
    if ANY.replies.declines.search(before) is None:
        return False
    if said.isascii():
        return (
            act == DialogueAct.CONSTRAINT
            or _has_value(features)
            or EN.replies.tries.search(said) is not None
        )
    return (
        JA.replies.counters.search(said) is not None
        and JA.replies.takes_or_asks.search(said) is None
        and JA.replies.lets_go.search(said) is None
    )


def _act_of_correction(said: str, before: str) -> str:
    """Return the dialogue act of a user's message that looks like a correction, such as "No, ...".

    - An English message after an offer or a question can simply decline: "No, just the address" has
      the act of "just the address".
    - A Japanese message that only declines has the act ``UNMATCHED``.
    - Any other message is a correction.

    Args:
        said: The user's message.
        before: The assistant's message before it.
    """
    if JA.replies.refuses.search(said) or JA.replies.lets_go.search(said):
        return DialogueAct.UNMATCHED.value
    is_open = EN.replies.open.search(before[-_END:]) or ANY.replies.continues.search(said)
    if is_open and (turns := EN.replies.turns.match(said)):
        return dialogue_act(said[turns.end() :], "user").value
    question, refuses = _LAST_QUESTION.search(before), EN.replies.refuses.match(said)
    if refuses is None or question is None:
        return DialogueAct.CORRECTION.value
    rest = said[refuses.end() :]
    asked, told = text_features(question[0])[0], text_features(rest)[0]
    if (asked.has_number and told.has_number) or (
        asked.has_time and told.has_time
    ):  # "On Monday?" - "No, on Friday."
        return DialogueAct.CORRECTION.value
    return dialogue_act(rest, "user").value
