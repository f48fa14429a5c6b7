"""Extraction of the facts of a conversation that its summary must contain.

Facts are values and statements, such as an order number or a decision. Later corrections of the
user change or remove facts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from strands.types.content import Message

from strands_manga_memory.arguments import with_repr
from strands_manga_memory.language.dialogue_acts import SMALL_TALK_ACTS, DialogueAct, dialogue_act
from strands_manga_memory.language.entities import SHOP, Entity, EntityTypes
from strands_manga_memory.language.instructions import are_instructions_active
from strands_manga_memory.language.packs import ANY, EN
from strands_manga_memory.language.pii import redact_identifiers
from strands_manga_memory.language.search import content_terms
from strands_manga_memory.language.text_features import (
    information_weight,
    normalized,
    split_sentences,
    with_pauses,
    words,
)
from strands_manga_memory.messages.injection import message_text
from strands_manga_memory.messages.message_parts import id_of, leaves
from strands_manga_memory.messages.texts import shorten_line


class FactKind(StrEnum):
    """Kind of a fact, such as a correction or a decision, in order of importance.

    If not all facts fit into a summary, facts of more important kinds have priority.
    """

    CORRECTION = "correction"
    PREFERENCE = "preference"
    DECISION = "decision"
    ENTITY = "entity"
    QUESTION = "open question"
    PROMISE = "promise"
    OUTCOME = "outcome"
    STATEMENT = "said"
    FINDING = "finding"
    TASK = "task"


@dataclass(frozen=True, slots=True)
class Fact:
    """Value or statement from a conversation that a summary must contain.

    Attributes:
        kind: Kind of the fact.
        text: Short text of the fact, such as "I want 3 books".
        source: ``tracking_id`` of the message that contains the fact.
        key: Subject of the fact, such as ``budget``, or empty. A later fact of the same kind and
            subject replaces this fact. Corrections, preferences, decisions and statements count as
            one kind.
        weight: Amount of specific information in the fact, from ``information_weight``.
        corrects: ``tracking_id`` of each message that this fact corrects.
    """

    kind: FactKind
    text: str
    source: str = ""
    key: str = ""
    weight: float = 1.0
    corrects: tuple[str, ...] = ()


class FactExtractor(Protocol):
    """Protocol for extractors of the facts in messages that a summary must contain.

    If an extractor raises an error, rules extract the facts.
    """

    def extract(self, messages: Sequence[Message]) -> Iterable[Fact]:
        """Return the facts in messages, in order.

        The ``source`` of each fact is the ``tracking_id`` of its message.
        """
        ...


def select_facts(
    facts: Sequence[Fact], *, max_tokens: int, count: Callable[[str], int]
) -> list[Fact]:
    """Select the most important facts of a conversation that fit into ``max_tokens`` tokens.

    The limit is for all selected facts together. They are returned in their original order.
    """
    chosen, kinds = set(), list(FactKind)
    for fact in sorted(facts, key=lambda fact: (kinds.index(fact.kind), -fact.weight)):
        tokens = count(fact.text)
        if tokens <= max_tokens:
            chosen.add(fact)
            max_tokens -= tokens
    return [fact for fact in facts if fact in chosen]


USER_KINDS = frozenset(
    {FactKind.CORRECTION, FactKind.PREFERENCE, FactKind.DECISION, FactKind.STATEMENT}
)

_REACH = 6
"""Number of previous facts that a correction may change even if it shares no words with them."""

_LONGER = 3
"""Only words with more letters than this number count as words of a topic."""

_COMPARED = frozenset(
    {
        *("quantity", "date", "weekday", "time", "price", "volume", "title", "language"),
        *("order_id", "asin", "isbn", "email", "phone", "reference"),
    }
)
"""Entity types whose values a correction replaces."""


def _correctable_values(text: str, types: EntityTypes) -> dict[tuple[str, str], Entity]:
    """Return the values in a text that a later message may correct, such as dates and prices.

    The keys are pairs of entity type and unit. The unit is empty except for quantities. The last
    value of each key is returned.
    """
    compared = (entity for entity in types.find(text) if entity.type in _COMPARED)
    return {
        (one.type, one.value.partition(" ")[2] if one.type == "quantity" else ""): one
        for one in compared
    }


def apply_corrections(facts: Sequence[Fact], types: EntityTypes, *, since: int = 0) -> list[Fact]:
    """Replace outdated values in the facts of a conversation by the values of later corrections.

    Example: "not 3 books, 4 books" changes the earlier fact "I want 3 books".

    A correction changes one earlier fact of the user, which has a value of the same entity type and
    unit and shares most words with the correction. Identifiers, such as order numbers, and
    quantities with a unit may be in any earlier message. Other values must be in the user's
    previous message that has facts. If the changed fact is a correction itself, the facts that it
    changed are changed, too.

    ``facts`` begin with the oldest. Corrections before the position ``since`` are not applied.
    """
    changed = list(facts)
    for at in range(since, len(changed)):
        if changed[at].kind is not FactKind.CORRECTION:
            continue
        for kind, new in _correctable_values(changed[at].text, types).items():
            before, old = _find_corrected_fact(changed, at, kind, types)
            if old is None or old.value == new.value:
                continue
            # The old value may itself come from a correction, which has changed earlier facts to
            # it.
            sources = changed[before].corrects
            corrects = dict.fromkeys((*changed[at].corrects, *sources, changed[before].source))
            changed[at] = replace(changed[at], corrects=tuple(corrects))
            for place in range(before + 1):
                if place < before and changed[place].source not in sources:
                    continue
                text = changed[place].text
                known = _correctable_values(text, types).get(kind)
                if known is not None and known.value == old.value:
                    changed[place] = replace(
                        changed[place], text=text[: known.start] + new.text + text[known.end :]
                    )
    return changed


def _find_corrected_fact(
    facts: Sequence[Fact], at: int, kind: tuple[str, str], types: EntityTypes
) -> tuple[int, Entity | None]:
    """Return the position and the old value of the fact that the correction at ``at`` changes.

    The value is None if there is no such fact. ``kind`` is the entity type and the unit; the
    unit may be empty.
    """
    topic = _topic(facts[at].text)
    is_exact = types[kind[0]].is_exact
    found: tuple[int, Entity | None] = (at, None)
    most = -1
    for before in range(at - 1, -1, -1):
        fact = facts[before]
        if fact.source == facts[at].source or fact.kind not in USER_KINDS:
            continue
        is_far = before < at - _REACH
        if (is_far and found[1] is not None) or not (
            is_exact or kind[1] or _are_successive(before, at, facts)
        ):
            break
        shared = len(topic & _topic(fact.text))
        if is_far and shared < (1 if is_exact else 2):
            continue
        if shared > most and (old := _correctable_values(fact.text, types).get(kind)) is not None:
            found, most = (before, old), shared
    return found


def _topic(text: str) -> frozenset[str]:
    return (
        frozenset(word for word in words(text) if len(word) > _LONGER and word.isalpha())
        - EMPTY_WORDS
    )


def _are_successive(before: int, at: int, facts: Sequence[Fact]) -> bool:
    """Return whether two facts are from the same message or from successive messages of the user.

    Messages without facts do not count.
    """
    ends = {facts[before].source, facts[at].source}
    return all(fact.source in ends for fact in facts[before + 1 : at] if fact.kind in USER_KINDS)


EMPTY_WORDS = EN.words("facts.empty")
"""English words without meaning of their own."""
NEGATIVE_WORDS, ORDER_WORDS = EN.words("facts.negative"), EN.words("facts.order")
FILLER_WORDS = EMPTY_WORDS - NEGATIVE_WORDS - ORDER_WORDS
"""English words that may be missing in a text that repeats a sentence."""
_LEADING_NO = re.compile(r"\A\W*no\s*[,.;:!\u2014-]+\s*", re.IGNORECASE)


def without_leading_no(text: str) -> str:
    """Remove "No," from the beginning of a text: it denies an earlier message."""
    return _LEADING_NO.sub("", text)


_LONGEST = 220
"""Most characters of the text of a fact. A longer sentence keeps its beginning and its end."""

_END = 300
"""Number of last characters of the assistant's message that are searched for a refusal."""

_ENOUGH = 0.5
"""Amount of specific information above which a sentence of the assistant is a finding."""


@with_repr("types")
class RuleFactExtractor:
    """Extractor that finds facts in messages by rules, without a model.

    It finds these facts:

    - in messages of the user: preferences, corrections, decisions, open questions and other
      statements,
    - in messages of the assistant: promises, outcomes, findings and identifiers, such as order
      numbers,
    - in tool calls: tasks.

    Tool results are ignored, because they are large. Numbers of cards, accounts and official
    documents are redacted.

    Args:
        types: Entity types to search for.
    """

    def __init__(self, types: EntityTypes = SHOP) -> None:
        self.types = types

    def extract(self, messages: Sequence[Message]) -> list[Fact]:
        """Return the facts in messages, the oldest first.

        Instructions that the user revoked later are left out. Values that the user corrected later
        are included; ``merge_facts`` replaces them. Questions that are still open come last.
        """
        found: list[Fact] = []
        asked: list[Fact] = []
        is_answered: bool | None = None  # by the assistant's last message; None: no message yet
        spoken: list[tuple[DialogueAct, str, str]] = []
        answer = ""
        for message in with_pauses(messages):
            source, text = id_of(message), redact_identifiers(message_text(message))
            if message["role"] == "assistant":
                answer = text or answer
                if text:
                    is_answered = ANY.answers.postponed.search(text.lower()) is None
                found += self._assistant_facts(text, source)
                found += self._call_facts(message, source)
            elif text:
                sentences = [(dialogue_act(each, "user"), each) for each in split_sentences(text)]
                spoken += [(act, sentence, source) for act, sentence in sentences]
                was_declined = ANY.replies.declines.search(
                    answer[-_END:].lower()
                ) and not ANY.replies.continues.search(text.lower())
                if is_answered is False:
                    found += asked
                asked, is_answered = [], None
                for fact in self._user_facts(sentences, source, was_declined=bool(was_declined)):
                    if fact.kind is FactKind.QUESTION:
                        # The things that a question names are facts, answered or not; the question
                        # itself is open until its answer.
                        asked.append(fact)
                        weight = fact.weight - 0.5
                        fact = replace(fact, kind=FactKind.STATEMENT, key="", weight=weight)
                    found.append(fact)
        stands = are_instructions_active([(act, sentence) for act, sentence, _ in spoken])
        ended = {
            (source, _shorten_sentence(sentence))
            for (act, sentence, source), still in zip(spoken, stands, strict=True)
            if act is DialogueAct.INSTRUCTION and not still
        }
        found += [] if is_answered else asked
        open_ = {(fact.source, fact.text) for fact in found if fact.kind is FactKind.QUESTION}
        return [
            fact
            for fact in found
            if (fact.source, fact.text) not in ended
            and not (fact.kind is FactKind.STATEMENT and (fact.source, fact.text) in open_)
        ]

    def _user_facts(
        self, sentences: Sequence[tuple[DialogueAct, str]], source: str, *, was_declined: bool
    ) -> Iterator[Fact]:
        corrects = False
        for act, sentence in sentences:
            lower = sentence.lower()
            if act in SMALL_TALK_ACTS:
                continue
            corrects |= act is DialogueAct.CORRECTION or bool(ANY.facts.instead.search(lower))
            said, worth = _shorten_sentence(sentence), information_weight(sentence)
            entities = self.types.find(sentence)
            if not (worth or entities) and _has_no_content(sentence):
                continue
            if act is DialogueAct.CORRECTION or (
                (corrects or was_declined) and _correctable_values(said, self.types)
            ):
                kind = FactKind.CORRECTION  # also the sentence after "No, sorry."
            elif act in (DialogueAct.PREFERENCE, DialogueAct.INSTRUCTION):
                kind = FactKind.PREFERENCE
            elif act is DialogueAct.DECISION or ANY.facts.decision.search(lower):
                kind = FactKind.DECISION
            elif ANY.facts.asks.search(lower):
                kind = FactKind.QUESTION
            else:
                kind = FactKind.STATEMENT
            yield Fact(
                kind, said, source, self._subject_key(lower, entities), worth + len(entities)
            )

    def _subject_key(self, lower: str, entities: Sequence[Entity]) -> str:
        """Return the subject of a sentence, such as ``budget`` in "my budget is 30", or ""."""
        for entity in entities:
            if self.types[entity.type].is_single:
                return entity.type
        match = EN.facts.my.search(lower)
        if match is None or any(self.types[entity.type].is_exact for entity in entities):
            return ""  # two orders have two numbers
        return normalized(match[1])

    def _assistant_facts(self, text: str, source: str) -> Iterator[Fact]:
        for sentence in split_sentences(text):
            lower, worth = sentence.lower(), information_weight(sentence)
            exact = sum(self.types[entity.type].is_exact for entity in self.types.find(sentence))
            is_offer = ANY.facts.offer.search(lower) is not None
            if not is_offer and ANY.facts.outcome.search(lower):
                kind = FactKind.OUTCOME
            elif not is_offer and ANY.facts.promise.search(lower):
                kind = FactKind.PROMISE
            elif exact or (
                not is_offer
                and worth > _ENOUGH
                and dialogue_act(sentence, "assistant") not in SMALL_TALK_ACTS
            ):
                kind = FactKind.FINDING
            else:
                continue
            yield Fact(kind, _shorten_sentence(sentence), source, weight=worth + 2 * exact)

    def _call_facts(self, message: Message, source: str) -> Iterator[Fact]:
        for block in message["content"]:
            if "toolUse" in block:
                name, values = block["toolUse"]["name"], block["toolUse"]["input"]
                shown = ", ".join(
                    shorten_line(redact_identifiers(str(value)), 40) for value in leaves(values)
                )
                text = f"{name}({shown})"[:_LONGEST]
                yield Fact(FactKind.TASK, text, source, key=name, weight=0.5)


def _has_no_content(sentence: str) -> bool:
    return EMPTY_WORDS.issuperset(words(sentence)) or not (
        sentence.isascii() or content_terms(sentence)
    )


def _shorten_sentence(sentence: str) -> str:
    sentence = sentence.strip(" .,;:|-。、")
    if len(sentence) <= _LONGEST:
        return sentence
    return (
        f"{sentence[: _LONGEST * 2 // 3].rsplit(' ', 1)[0]} …"
        f" {sentence[-_LONGEST // 3 :].split(' ', 1)[-1]}"
    )


def merge_facts(
    facts: Iterable[Fact], *, earlier: Sequence[Fact] = (), types: EntityTypes = SHOP
) -> list[Fact]:
    """Return the facts of a conversation that are still valid, the oldest fact first.

    Values of later corrections replace outdated values. Then a fact is removed if a later fact
    contains all its words, or has the same kind and the same subject (``key``). Corrections,
    preferences, decisions and statements count as one kind. A fact of the assistant never removes a
    fact of the user.

    Args:
        facts: New facts.
        earlier: Result of the previous call. Its facts do not remove each other.
        types: Entity types whose values are compared.
    """
    since = len(earlier)
    together = apply_corrections([*earlier, *facts], types, since=since)
    newest: list[Fact] = []
    keys: set[tuple[FactKind, str]] = set()
    # The words of each later fact, and whether it is the user's.
    later: list[tuple[frozenset[str], bool]] = []
    for at in with_pauses(range(len(together) - 1, -1, -1)):
        fact = together[at]
        is_of_user = fact.kind in USER_KINDS
        group = FactKind.STATEMENT if is_of_user else fact.kind
        said = frozenset(words(without_leading_no(fact.text))) - FILLER_WORDS or {fact.text}
        if (
            not fact.text
            or (fact.key and (group, fact.key) in keys)
            or any(said <= others and (of_user or not is_of_user) for others, of_user in later)
        ):
            continue
        newest.append(fact)
        if at >= since:
            keys.add((group, fact.key))
            if fact.kind is not FactKind.TASK:
                later.append((frozenset(said), is_of_user))
    return newest[::-1]
