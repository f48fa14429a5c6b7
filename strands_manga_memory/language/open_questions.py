"""Unanswered questions of a conversation, and completion of short answers.

The user's questions are open until the assistant answers them. A short answer of the user becomes a
sentence: "Kenji", after "What's your name?", becomes "My name is Kenji.".
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence

from strands_manga_memory.language.dialogue_acts import SMALL_TALK_ACTS, dialogue_act
from strands_manga_memory.language.packs import ANY
from strands_manga_memory.language.search import evidence_terms
from strands_manga_memory.language.subjects import split_clauses
from strands_manga_memory.language.text_features import (
    sentiment_score,
    split_sentences,
    standard_spelling,
    words,
)
from strands_manga_memory.messages.texts import head_and_tail, shorten_line

Line = tuple[str, str]
"""Role (``user`` or ``assistant``) and text of a message."""

MOST_OPEN = 5


def has_content(text: str, role: str = "user") -> bool:
    """Return whether a message says more than small talk, such as greetings and thanks."""
    return bool(text.strip()) and dialogue_act(text, role) not in SMALL_TALK_ACTS


def is_question(text: str) -> bool:
    """Return whether a sentence has the form of a question.

    It ends with a question mark, or with a Japanese ending such as ``ですか``.
    """
    return ANY.questions.ending.search(text.rstrip(" \n。.")) is not None


def without_interim_answers(lines: Sequence[Line]) -> list[Line]:
    """Remove assistant messages that directly precede another one, such as "Let me check"."""
    return [
        line
        for role, run in itertools.groupby(lines, key=lambda line: line[0])
        for line in (list(run)[-1:] if role == "assistant" else run)
    ]


def find_open_questions(lines: Sequence[Line]) -> list[str]:
    """Find the user's unanswered questions and requests: at most the last 5, the oldest first.

    A reply such as "I will check" is no answer.
    """
    lines = [(role, head_and_tail(text)) for role, text in without_interim_answers(lines)]
    found: dict[str, None] = {}
    question = ""
    for at, (role, text) in enumerate(lines):
        if role != "user" or not has_content(text):
            continue
        asks = any(map(_asks, split_sentences(text)))
        waits = ANY.summaries.waits.search(text) is not None
        answers = [
            (asked, answer)
            for (_, asked), (who, answer) in itertools.pairwise(lines[at:])
            if who == "assistant" and answer.strip()
        ]
        first = answers[0][1] if answers else ""
        is_postponed = ANY.answers.postponed.search(first) is not None
        if not (
            asks
            or waits
            or (is_postponed and (ANY.asked.order.search(text) or sentiment_score(text) < 0))
        ):
            continue
        # "I still need an answer to that" is about the question before it, or else about its own
        # message.
        question = text if asks or not (waits and question) else question
        # A postponed answer leaves the question open, unless a later answer is about it.
        if (
            (waits or is_postponed or _is_no_answer(first, question))
            and not _is_withdrawn(question, [each for who, each in lines[at + 1 :] if who == role])
            and not any(
                _is_answer_in_session(each, question, asked)
                or (is_postponed and _gives_postponed_answer(each, asked))
                for asked, each in answers[0 if waits else 1 :]
            )
        ):
            found[_shorten_question(question)] = None
    return list(found)[-MOST_OPEN:]


def _is_withdrawn(question: str, later: Sequence[str]) -> bool:
    found = [ANY.questions.withdrawn.search(text) for text in later]
    # "Never mind, I found it" withdraws only the question in the message before, and "Forget the
    # surfboard" each question about it.
    return any(
        _terms(match[match.lastindex]) <= _terms(question) if match.lastindex else match is found[0]
        for match in filter(None, found)
    )


def _asks(sentence: str) -> bool:
    return is_question(sentence) or ANY.questions.indirect.search(sentence) is not None


def _shorten_question(text: str) -> str:
    for sentence in split_sentences(text):
        text = text if has_content(sentence) else text.replace(sentence, "").strip()
    if len(text) > _LONGEST:
        text = " ".join(filter(_asks, split_sentences(text))) or text
    return shorten_line(text, _LONGEST)


def _gives_postponed_answer(text: str, asked: str) -> bool:
    # After small talk of the user, as in "OK, thanks", the answer need not be announced.
    is_next = not has_content(asked) and ANY.given.promise.search(text) is None
    return (
        (is_next or ANY.answers.reports.search(text) is not None)
        and ANY.answers.postponed.search(text) is None
        and has_content(text, "assistant")
        and not all(map(is_question, split_sentences(text)))
    )


def _is_no_answer(text: str, question: str) -> bool:
    if not text or has_content(text, "assistant"):
        return not text
    # "OK" answers a request, and "Yes" a yes-or-no question.
    return any(kind in _KINDS for kind in _asked_kinds(question)[0]) or (
        is_question(question)
        and not ANY.asked.order.search(question)
        and ANY.given.acknowledged.search(text) is not None
    )


# Answers.

_DIGITS = re.compile(r"\d+")
_NAMES = re.compile(r"(?<=[\w,] )[A-Z]\w{2,}|[\u30a1-\u30fa\u30fc]{2,}|(?<=[『「])[^』」]+")
_HIRAGANA = re.compile(r"[\u3041-\u309f]")
_LONGEST = 120
_KINDS = ("date", "price", "number", "place", "person")
_ASKED = {kind: getattr(ANY.asked, kind) for kind in (*_KINDS, "other", "stock")}
_GIVEN = {kind: getattr(ANY.given, kind) for kind in (*_KINDS, "stock", "yes_or_no")}
_CLAUSES = re.compile(r"[、,.!?。！？\n]")
_SAME = ANY.canonical_words("questions.same")
_SAME_WORD = re.compile(
    "|".join(rf"\b{word}\b" if word.isascii() else word for word in _SAME), re.IGNORECASE
)
_ADDED_WORDS = ANY.words("questions.added")
_SAME_SUBJECT = 0.75


def is_answer(answer: str, question: str, asked: str = "") -> bool:
    """Return whether an assistant's message certainly answers a question of the user.

    The question must be a yes-or-no question, or ask for a value such as a price. The message
    answers the question in one of these cases:

    - A sentence of the message says yes or no, or gives the value, and all its other content words
      are in the question. The user's last message (``asked``) and this message together contain
      most content words of the question, and all its numbers and names.
    - ``asked`` repeats a yes-or-no question, and the message begins with yes or no.
    - ``asked`` asks for news ("What about the parking?"), and the message is definite.

    A message that only asks, or that promises an answer ("I will check"), is no answer.

    Args:
        answer: Text of the assistant's message.
        question: Question of the user, which may be from an earlier message.
        asked: Text of the user's message before ``answer``. Empty to judge ``answer`` alone.
    """
    kinds, rest = _asked_kinds(question)
    is_order = ANY.asked.order.search(question) is not None
    is_postponed = ANY.answers.postponed.search(answer) is not None
    is_definite = not (
        is_postponed
        or ANY.given.promise.search(answer)
        or any(map(is_question, split_sentences(answer)))
    )
    if is_definite and (
        _answers_reminder(answer, question, asked, kinds)
        or (
            kinds in (["yes_or_no"], ["stock"])
            and not is_order
            and _GIVEN["yes_or_no"].search(answer)
            and _only_repeats_question(asked, question)
        )
    ):
        return True
    text = f"{asked}\n{answer}"
    terms = _terms(rest)
    needed = 1.0 if "yes_or_no" in kinds else _SAME_SUBJECT
    return (
        bool(kinds)
        and not is_postponed
        and (not is_order or bool(_terms(_GIVEN["yes_or_no"].sub(" ", answer))))
        and len(terms & _terms(text)) >= needed * len(terms)
        and set(_DIGITS.findall(question)) <= set(_DIGITS.findall(text))
        and all(name.lower() in text.lower() for name in _NAMES.findall(question))
        and all(
            any(_answers_with_value(kind, each, rest) for each in split_sentences(answer))
            for kind in kinds
        )
    )


def _is_answer_in_session(answer: str, question: str, asked: str) -> bool:
    # In the session of the question, the message before an answer may be about it only if it
    # repeats it or asks for its news.
    about = (
        asked
        if _only_repeats_question(asked, question) or ANY.questions.asks_for_news.search(asked)
        else ""
    )
    return is_answer(answer, question, about)


def _only_repeats_question(asked: str, question: str) -> bool:
    questions = [each for each in split_sentences(question) if is_question(each)] or [question]
    said = [each for each in split_sentences(asked) if has_content(each)]
    if len(questions) != 1 or len(said) != 1:
        return False
    first, again = (
        [word for word in words(each) if word not in _ADDED_WORDS] for each in (*questions, *said)
    )
    return bool(first) and first == again


def _answers_reminder(answer: str, question: str, asked: str, kinds: Sequence[str]) -> bool:
    """Return whether ``answer`` answers ``question``, of which ``asked`` reminds the assistant.

    For example, ``question`` is "When does the parking reopen?", and ``asked`` is "What about the
    parking?". ``kinds`` is from ``_asked_kinds``.
    """
    clauses = [each for each in _CLAUSES.split(asked) if ANY.questions.asks_for_news.search(each)]
    subject = frozenset[str]().union(
        *(_terms(ANY.questions.asks_for_news.sub(" ", each)) for each in clauses)
    )
    return (
        bool(subject and (kinds or not is_question(question)))
        and subject <= _terms(question)
        and has_content(answer, "assistant")
        and not ANY.given.no_news.search(answer)
        and all(
            _GIVEN[kind].search(answer) for kind in kinds if kind in ("date", "price", "number")
        )
    )


def _asked_kinds(question: str) -> tuple[list[str], str]:
    """Return the kinds of values that a question asks for, and the rest of the question.

    "When does it arrive?" has the kind ``date`` and the rest "does it arrive?". The list is empty
    if the question asks for something else, such as a reason.
    """
    kinds, rest = [], " ".join(filter(is_question, split_sentences(question))) or question
    for kind in _KINDS:
        rest, count = _ASKED[kind].subn(" ", rest)
        kinds += [kind] if count else []
    if _ASKED["other"].search(rest):
        return [], rest
    return kinds or (["stock"] if _ASKED["stock"].search(rest) else ["yes_or_no"]), rest


def _answers_with_value(kind: str, sentence: str, question: str) -> bool:
    """Return whether a sentence answers a question with a value of the given kind.

    "It costs 12 euros" answers "How much does it cost?". "It costs 12 euros in Osaka" does not,
    because "Osaka" is not in the question.
    """
    values = [match[0] for match in _GIVEN[kind].finditer(sentence)]
    if (
        is_question(sentence)
        or not values
        or (kind != "stock" and all(value in question for value in values))
    ):
        return False
    for each in (kind,) if kind == "yes_or_no" else (kind, "date", "price"):
        sentence = _GIVEN[each].sub(" ", sentence)
    said = frozenset(term for term in _terms(sentence) if not term.isdigit())
    if kind == "date" and said:
        # The last word usually names the event, as in "When does my order arrive?".
        event = max(
            _terms(_GIVEN["date"].sub(" ", question)), key=question.lower().rfind, default=""
        )
        return event in said and said <= _terms(question)
    return said <= _terms(question)


def _terms(text: str) -> frozenset[str]:
    plain = ANY.given.around.sub(" ", ANY.search.request_words.sub(" ", text))
    plain = _SAME_WORD.sub(lambda word: _SAME[word[0].lower()], plain)
    # Terms with hiragana are mostly grammatical.
    return frozenset(term for term in evidence_terms(plain) if not _HIRAGANA.search(term))


# Short answers of the user to questions of the assistant.

_RULES = ANY.rules("answers")
_LAST, _LONGEST_ANSWER = 3, 300
"""Number of last sentences that are searched for a question, and most characters of an answer."""


def complete_answer(text: str, question: str) -> str:
    """Expand a short answer at the beginning of a user's text to a whole sentence.

    "Kenji" after "What's your name?" becomes "My name is Kenji.". The text is returned unchanged if
    ``question`` does not ask for a taste or a fact of the user, or if the answer has an unexpected
    form, such as "surprise me".

    Args:
        text: Text of the user.
        question: Message of the assistant before the text. Empty if there is none.
    """
    if not question or len(text) > _LONGEST_ANSWER:
        return text
    said = list(split_sentences(standard_spelling(text))) or [""]
    if len(said) > 1 and ANY.answered.nothing_yet.search(said[0]):
        del said[0]
    asked = list(split_sentences(head_and_tail(question)))[-_LAST:]
    answers = [said[:1]]
    if not ANY.answered.says_yes.match(said[0]):  # "Yes, show me the sale" does not mean "Yes."
        answers.append(split_clauses(said[0]))
    for answer, *others in filter(None, answers):
        if statement := _implied_statement(asked, answer):
            return "\n".join((statement, *others, *said[1:]))
    return text


def _implied_statement(asked: Sequence[str], answer: str) -> str:
    """Return the statement that a short answer implies: "My name is Kenji." for "Kenji".

    The result is empty if the answer implies none. ``asked`` are the last sentences of the
    assistant's message.
    """
    for sentence in reversed(asked):
        for rule in () if ANY.asked_about.another.search(sentence) else _RULES:
            question = rule.pattern.search(sentence)
            value = question and getattr(ANY.answered, rule.check).search(answer)
            if question is None or value is None:
                continue
            if rule.unless and getattr(ANY.asked_about, rule.unless).search(" ".join(asked)):
                continue
            source = question if question.lastindex else value
            return rule.key.replace("*", source[source.lastindex or 0])
        if is_question(sentence):
            break
    return ""


def complete_answers(lines: Iterable[Line]) -> list[str]:
    """Return the user's messages, with short answers expanded by ``complete_answer``."""
    texts, question = [], ""
    for role, text in lines:
        if role == "user":
            texts.append(complete_answer(text, question))
        question = text if role == "assistant" else ""
    return texts
