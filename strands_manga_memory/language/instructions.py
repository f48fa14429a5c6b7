"""Rules that find the standing instructions of a user, and the later messages that end them.

A standing instruction is an order for all later answers of the assistant, such as "never use
emojis".
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from strands_manga_memory.language.dialogue_acts import RULES, DialogueAct, dialogue_act
from strands_manga_memory.language.packs import ANY, EN, JA, compile_words
from strands_manga_memory.language.search import search_terms
from strands_manga_memory.language.text_features import lower_case
from strands_manga_memory.messages.texts import head_and_tail


def _topic_patterns(name: str) -> list[tuple[str, re.Pattern[str]]]:
    return [(topic, compile_words(words)) for topic, *words in ANY.groups(f"instructions.{name}")]


_TOPICS, _TOPIC_SIDES = _topic_patterns("topics"), _topic_patterns("sides")
_REVOCATIONS = [rule.pattern for rule in RULES if rule.revokes_instruction]


def are_instructions_active(messages: Sequence[tuple[str, str]]) -> list[bool]:
    """Return for each message of a user whether it is a standing instruction that still applies.

    A standing instruction is an order for all later answers. A later message of the user ends it in
    three ways:

    - The message contradicts the instruction: "give long answers" ends "keep answers short".
    - It takes back the reason: "I no longer work nights" ends "never call me in the morning, I work
      nights".
    - It revokes the instruction: "you can stop using bullet points" ends the earlier instruction
      that shares most words or topics with it. "Forget the rules" ends the latest instruction.

    Args:
        messages: Dialogue act and text of each message, the oldest message first.
    """
    texts = [head_and_tail(text) for _, text in messages]
    active: list[int] = []
    for at, text in enumerate(texts):
        if revokes_instruction(text):
            terms = instruction_terms(text)
            earlier = ((len(terms & instruction_terms(texts[one])), one) for one in active)
            shared, ended = max(earlier, default=(0, at))
            if shared or ANY.instructions.names_nothing.search(text.lower()):
                active = [one for one in active if one != ended]
        elif messages[at][0] == DialogueAct.INSTRUCTION:
            active = [one for one in active if not contradicts_instruction(text, texts[one])]
            active.append(at)
        else:
            active = [one for one in active if not _ends_reason(text, texts[one])]
    return [at in active for at in range(len(texts))]


def instruction_terms(text: str) -> frozenset[str]:
    """Return the words and topics of an instruction, by which instructions are compared.

    Words are stems. Topics, such as the length of answers, are the same in English and Japanese.
    """
    return frozenset(search_terms(text)).union(
        f"topic:{topic}" for topic, pattern in _TOPICS if pattern.search(text)
    )


_INSTRUCTION_WORD = re.compile(r"[a-z']+")
_JAPANESE_WORD = re.compile(r"[\u3400-\u9fff々]+|[\u30a1-\u30fa\u30fc]{2,}")
_EVERY_TIME = re.compile(
    "|".join(sorted(word for word in JA.words("instructions.common") if len(word) > 1))
)
_CLAUSE_END = re.compile(r"[,;.!?。！？\n]+")
_SIDE_WORDS = compile_words(
    word for _, *words in ANY.groups("instructions.sides") for word in words
)
_FORBIDDING = EN.words("instructions.negative")


def _stems(name: str) -> frozenset[str]:
    words = ANY.words(f"instructions.{name}")
    return words.union(search_terms(" ".join(filter(str.isascii, words))))


_COMMON_TERMS, _OF_ANSWERS = _stems("negative") | _stems("common"), _stems("of_answers")


def contradicts_instruction(text: str, earlier: str) -> bool:
    """Return whether an instruction contradicts an earlier instruction, and so replaces it.

    An instruction contradicts an earlier one in three cases:

    - They ask for opposite lengths or styles of all answers.
    - One of them forbids the thing that the other asks for.
    - The later one replaces the subject of the earlier one: "tables instead of bullet points".

    An earlier instruction with two orders ("keep answers short, and never use emojis") is never
    contradicted.
    """
    before, *others = _clauses_with_subject(earlier)
    if any(dialogue_act(each, "user") is DialogueAct.INSTRUCTION for each in others):
        return False
    said = [each for each in _clauses_with_subject(text) if forbids(each)] or _clauses_with_subject(
        text
    )[:1]
    sides = _style(before) if others else _style(earlier)
    if any(side != sides.get(topic, side) for each in said for topic, side in _style(each).items()):
        return True
    replaced = ANY.instructions.replaced.search(text)
    terms = subject_terms(next(filter(None, replaced.groups()))) if replaced else frozenset()
    subject = subject_terms(before)
    if terms and terms <= subject and 2 * len(terms) >= len(subject) and not forbids(before):
        return True
    return any(
        forbids(each) != forbids(before) and _is_about_same(each, text, before, earlier)
        for each in said
    )


def _ends_reason(text: str, instruction: str) -> bool:
    """Return whether a text withdraws the reason of an instruction.

    "I don't work nights any more" ends "never call me in the morning, I work nights".
    """
    ended = [
        subject_terms(each)
        for each in _CLAUSE_END.split(text)
        if ANY.instructions.ended.search(each)
    ]
    reasons = [
        subject_terms(each)
        for clause in _CLAUSE_END.split(instruction)
        for each in ANY.instructions.reason.split(clause)
        if dialogue_act(each, "user") is not DialogueAct.INSTRUCTION
    ]
    return any(reason and reason <= terms for reason in reasons for terms in ended)


def _clauses_with_subject(text: str) -> list[str]:
    return [
        each for each in _CLAUSE_END.split(text) if subject_terms(each) or _SIDE_WORDS.search(each)
    ] or [text]


def _is_about_same(clause: str, text: str, before: str, earlier: str) -> bool:
    """Return whether an order ("use tables") and a prohibition ("no tables") have the same subject.

    One is the clause ``clause`` of the instruction ``text``. The other is the clause ``before`` of
    the instruction ``earlier``, which the user gave earlier.
    """
    later, first = subject_terms(clause), subject_terms(before)
    forbidden, ordered = (later, first) if forbids(clause) else (first, later)
    shared = subject_terms(text) & subject_terms(earlier)
    return bool(forbidden) and forbidden <= ordered and 2 * len(shared & ordered) > len(ordered)


def _style(text: str) -> dict[str, bool]:
    """Return the length and politeness that an instruction asks for in all answers.

    ``{"length": True}`` means long answers, and ``{"politeness": True}`` means formal answers.
    """
    if subject_terms(_SIDE_WORDS.sub(" ", text)) - _OF_ANSWERS:
        return {}
    return {
        topic[:-1]: topic.endswith("+") != forbids(text)
        for topic, pattern in _TOPIC_SIDES
        if pattern.search(text)
    }


def subject_terms(text: str) -> frozenset[str]:
    """Return the words that name the subject of an instruction or statement.

    The subject of "always use bullet points" is ``bullet`` and ``point``. Common words of
    instructions, such as "always", are left out.
    """
    english = (term for term in search_terms(text.replace(" than ", " beyond ")) if term.isascii())
    japanese = _JAPANESE_WORD.findall(_EVERY_TIME.sub(" ", text))
    return frozenset((*english, *japanese)) - _COMMON_TERMS


def forbids(text: str) -> bool:
    """Return whether an instruction forbids something, or a statement denies something.

    Two negations cancel each other: "never without tax" requires tax, and forbids nothing.
    """
    lower = lower_case(text)
    found = _FORBIDDING.intersection(_INSTRUCTION_WORD.findall(lower))
    return (bool(found - {"without"}) != ("without" in found)) or JA.instructions.forbids.search(
        lower
    ) is not None


def revokes_instruction(text: str) -> bool:
    """Return whether a user's message revokes an instruction, as in "stop using bullet points"."""
    lower = lower_case(text)
    return any(pattern.search(lower) for pattern in _REVOCATIONS)
