"""Slots: what must not be lost when a conversation is summarized, found by rules, in English and Japanese."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from strands.types.content import Message

from strands_manga_memory.language.act_rules import DialogueAct
from strands_manga_memory.language.acts import dialogue_act
from strands_manga_memory.language.condense import condensed, sentences, weight
from strands_manga_memory.language.entities import SHOP, Entity, EntityTypes
from strands_manga_memory.language.messages import message_text
from strands_manga_memory.language.normalize import normalized, words


class SlotKind(StrEnum):
    """What a slot holds; what comes first is kept first when not everything fits."""

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


RANK = {kind: number for number, kind in enumerate(SlotKind)}


@dataclass(frozen=True, slots=True)
class Slot:
    """One fact.

    Attributes:
        kind: What it is.
        text: The fact in few words, as it is written for the model.
        source: ``tracking_id`` of the message that says it.
        key: What it is about; of two slots of a kind with the same key the newer one replaces the other. Empty: only itself.
        weight: How much it says that cannot be guessed, 0 or more.
    """

    kind: SlotKind
    text: str
    source: str = ""
    key: str = ""
    weight: float = 1.0


class SlotExtractor(Protocol):
    """Finds slots; any object with this method will do. It may be slow, it runs beside the conversation."""

    def extract(self, messages: Sequence[Message]) -> Iterable[Slot]:
        """Return the slots of ``messages``, in order; ``source`` is the ``tracking_id`` of the message each comes from."""
        ...


_DECISION = re.compile(
    r"\b(?:i|we)(?:'ll| will| am going to|'m going to)? (?:take|go with|choose|pick|book|buy|order|settle on)\b"
    r"|\blet's (?:go|do|make|book|take)\b"
    r"|\bbook (?:it|that|me)\b|\bi(?:'ve| have) decided\b|にします|に決め|を買い|を注文|で予約|でお願い",
    re.IGNORECASE,
)
_PROMISE = re.compile(
    r"\b(?:i|we)(?:'ll| will| am going to|'re going to|'m going to) (?!(?:be|need) (?:happy|glad|to)\b)"
    r"|\bwill be (?:back|sent|delivered|refunded)\b"
    r"|\bi promise\b|ご連絡(?:いた|し)|お送り(?:いた|し)|手配(?:いた|し)"
    r"|発送(?:いた|し|予定)|お届け|返金(?:され|いた|し)|確認して",
    re.IGNORECASE,
)
_OUTCOME = re.compile(
    r"\b(?:booked|reserved|confirmed|cancell?ed|refunded|ordered|shipped|delivered|scheduled|paid|updated|changed|added|removed"
    r"|registered|transferred|successful(?:ly)?|completed?|reference (?:number|code)|confirmation (?:number|code)|done)\b"
    r"|完了|手続き|予約(?:でき|し)|変更(?:しま|いた)|キャンセル(?:しま|いた)|承り",
    re.IGNORECASE,
)
_OFFER = re.compile(
    r"\?\s*\Z|[かね][？?]\s*\Z|\b(?:would you|shall i|do you want|can i|anything else|let me know)\b|ませんか|でしょうか",
    re.IGNORECASE,
)
_ASKS = re.compile(r"[?？]\s*\Z|\b(?:could|can|would) you\b|か[。]?\s*\Z", re.IGNORECASE)
_WAITS = re.compile(
    r"\b(?:let me (?:check|see|look)|i(?:'ll| will) (?:check|look|find out|get back|ask|forward)|i (?:don't|do not) know"
    r"|not sure|one moment"
    r"|get back to you)\b|確認(?:いた|して|し、)|お調べ|調べて|わかりかね|お待ちください",
    re.IGNORECASE,
)
_INSTEAD = re.compile(r"\A(?:no|nope)\b|\b(?:how|what) about\b|\binstead\b|\bchange\b|\bi guess\b|代わりに|変更", re.IGNORECASE)
_MY = re.compile(
    r"\b(?:my|our|the) ((?:[\w'-]+ ){0,2}[\w'-]+?) (?:is|are|was|will be|has changed to|should be)\b", re.IGNORECASE
)
_SET_ACTS = frozenset({DialogueAct.GREETING, DialogueAct.FAREWELL, DialogueAct.ACKNOWLEDGEMENT})

_LONGEST = 220
"""Most characters of the text of a slot: a longer sentence keeps its beginning and its end."""

_ENOUGH = 0.5
"""What the assistant says in passing must weigh at least so much more than nothing to be a finding."""


class RuleSlotExtractor:
    """Finds slots by rules, without a model: well under a tenth of a millisecond a sentence.

    From the user: preferences, corrections, decisions, open questions, and what else was said, in few words. From the
    assistant: promises, outcomes, findings, and entities that identify something. From tool calls: what was done. Text of tool
    results is never taken: it is large, and not of the conversation.

    Args:
        types: The entity types to look for.
    """

    def __init__(self, types: EntityTypes = SHOP) -> None:
        self.types = types

    def extract(self, messages: Sequence[Message]) -> list[Slot]:
        """Return the slots of ``messages``, the older first; see ``merged`` for which of them are current."""
        found: list[Slot] = []
        open_questions: list[Slot] = []
        for message in messages:
            source = message.get("tracking_id") or ""
            if message["role"] == "user":
                text = message_text(message)
                if not text:
                    continue
                said = list(self._of_user(text, source))
                # What a question names is said, whether it is answered or not; the question itself is open until then.
                open_questions = [slot for slot in said if slot.kind is SlotKind.QUESTION]
                found += [
                    Slot(SlotKind.STATEMENT, slot.text, source, weight=slot.weight - 0.5) if slot in open_questions else slot
                    for slot in said
                ]
                continue
            text = message_text(message)
            if text and open_questions and _WAITS.search(text):
                found += open_questions
            if text:
                open_questions = []
            found += self._of_assistant(text, source)
            found += self._of_calls(message, source)
        return found + open_questions

    def _of_user(self, text: str, source: str) -> Iterator[Slot]:
        corrects = False
        for sentence in sentences(text):
            act = dialogue_act(sentence, "user")
            if act in _SET_ACTS:
                continue
            corrects = corrects or act is DialogueAct.CORRECTION or _INSTEAD.search(sentence) is not None
            said = condensed(_cut(sentence))
            if not said:
                continue
            worth = weight(sentence)
            entities = self.types.find(sentence)
            if corrects and (act is DialogueAct.CORRECTION or _values(said, self.types)):
                kind = SlotKind.CORRECTION  # also the sentence after "No, sorry."
            elif act is DialogueAct.PREFERENCE:
                kind = SlotKind.PREFERENCE
            elif _DECISION.search(sentence):
                kind = SlotKind.DECISION
            elif _ASKS.search(sentence):
                kind = SlotKind.QUESTION
            else:
                kind = SlotKind.STATEMENT
            yield Slot(kind, said, source, self._key(sentence, entities), worth + len(entities))

    def _key(self, sentence: str, entities: Sequence[Entity]) -> str:
        """What a sentence is about, if a later one on the same takes its place: "my budget is", or an e-mail address."""
        for entity in entities:
            if self.types[entity.type].is_single:
                return entity.type
        match = _MY.search(sentence)
        if match is None or any(self.types[entity.type].is_exact for entity in entities):
            return ""  # two orders have two numbers
        return normalized(match[1])

    def _of_assistant(self, text: str, source: str) -> Iterator[Slot]:
        for sentence in sentences(text) if text else ():
            exact = [entity for entity in self.types.find(sentence) if self.types[entity.type].is_exact]
            offers = bool(_OFFER.search(sentence))
            if _OUTCOME.search(sentence) and not offers:
                kind = SlotKind.OUTCOME
            elif _PROMISE.search(sentence) and not offers:
                kind = SlotKind.PROMISE
            elif exact or (weight(sentence) > _ENOUGH and not offers and dialogue_act(sentence, "assistant") not in _SET_ACTS):
                kind = SlotKind.FINDING
            else:
                continue
            said = condensed(_cut(sentence))
            if said:
                yield Slot(kind, said, source, weight=weight(sentence) + 2 * len(exact))

    def _of_calls(self, message: Message, source: str) -> Iterator[Slot]:
        for block in message["content"]:
            if "toolUse" in block:
                use = block["toolUse"]
                values = ", ".join(_short(value) for value in _leaves(use["input"]))
                yield Slot(SlotKind.TASK, f"{use['name']}({values})"[:_LONGEST], source, key=use["name"], weight=0.5)


def merged(slots: Iterable[Slot], *, types: EntityTypes = SHOP) -> list[Slot]:
    """Return the slots that are current, the older first: the newest value wins.

    A slot goes when a later one says the same or more, has the same kind and key, or corrects it: a correction that names an
    entity takes the place of the user's last other entity of that type, with the words around it if they say nothing else.
    """
    newest: list[Slot] = []
    keys: set[tuple[SlotKind, str]] = set()
    later: dict[str, set[int]] = {}  # word to the slots that hold it
    of_users: set[int] = set()
    for slot in reversed(_corrected(list(slots), types)):
        group = SlotKind.STATEMENT if slot.kind in _USERS else slot.kind
        said = frozenset(words(slot.text)) or frozenset((slot.text,))
        if slot.key and (group, slot.key) in keys:
            continue
        # What the user said is not replaced by the assistant's repeating it: that is the first to be left out.
        holders = set.intersection(*(later.get(word, set()) for word in said))
        if holders & of_users if group is SlotKind.STATEMENT else holders:
            continue
        if slot.key:
            keys.add((group, slot.key))
        if group is SlotKind.STATEMENT:
            of_users.add(len(newest))
        if slot.kind is not SlotKind.TASK:
            for word in said:
                later.setdefault(word, set()).add(len(newest))
        newest.append(slot)
    return newest[::-1]


_USERS = frozenset({SlotKind.CORRECTION, SlotKind.PREFERENCE, SlotKind.DECISION, SlotKind.STATEMENT})
_REACH = 6
"""A correction is about one of so many things said before it, or about one further back on the same topic."""

_CORRECTING_WORDS = "actually meant mean instead change make wrong please sorry rather about with from that this"
_CORRECTING = frozenset(_CORRECTING_WORDS.split())
_LONGER = 3

_COMPARED = frozenset(
    {
        "quantity",
        "date",
        "time",
        "price",
        "volume",
        "order_id",
        "asin",
        "isbn",
        "email",
        "phone",
        "reference",
        "language",
        "title",
        "weekday",
    }
)
_GROUPS = {"weekday": "date"}
_BARE_NUMBER = re.compile(r"(?<![\w.:/-])\d{1,4}(?![\w:/-]|\.\d)")


def _corrected(slots: list[Slot], types: EntityTypes) -> list[Slot]:
    """Take out of earlier slots the values that a correction replaced."""
    values = [_values(slot.text, types) if slot.kind in _USERS or slot.kind is SlotKind.QUESTION else {} for slot in slots]
    for at, slot in enumerate(slots):
        if slot.kind is not SlotKind.CORRECTION:
            continue
        topic = _topic(slot.text)
        for type_, (new, _) in values[at].items():
            for before in range(at - 1, -1, -1):
                old = values[before].get(type_)
                if old is None or slots[before].source == slot.source:
                    continue
                shared = 1 if type_ in types and types[type_].is_exact else 2
                if before < at - _REACH and len(topic & _topic(slots[before].text)) < shared:
                    continue
                if old[0] != new:
                    slots[before] = _without(slots[before], old[1])
                    values[before] = _values(slots[before].text, types)
                break
    return [slot for slot in slots if slot.text]


def _topic(text: str) -> set[str]:
    """The words a text is about: its longer ones, without numbers and without those of correcting."""
    return {word for word in words(text) if len(word) > _LONGER and word.isalpha() and word not in _CORRECTING}


def _values(text: str, types: EntityTypes) -> dict[str, tuple[str, str]]:
    """Type to (canonical form, text) of the last entity of each type; numbers that stand alone are a type too."""
    found = {
        _GROUPS.get(entity.type, entity.type): (entity.value, entity.text)
        for entity in types.find(text)
        if entity.type in _COMPARED
    }
    if "quantity" in found:
        found["number"] = (found["quantity"][0].split()[0], found["quantity"][1])
    else:
        plain = normalized(text)
        numbers = _BARE_NUMBER.findall(plain)
        if numbers and len(found) == 0:
            match = next((word for word in text.split() if normalized(word.strip(".,;")) == numbers[-1]), numbers[-1])
            found["number"] = (numbers[-1], match.strip(".,;"))
    return found


def _without(slot: Slot, value: str) -> Slot:
    left = condensed(" ".join(slot.text.replace(value, " ", 1).split()))
    return Slot(slot.kind, left if weight(left) > 0 or len(left.split()) > 2 else "", slot.source, slot.key, slot.weight)


def _cut(sentence: str) -> str:
    if len(sentence) <= _LONGEST:
        return sentence
    return f"{sentence[: _LONGEST * 2 // 3].rsplit(' ', 1)[0]} … {sentence[-_LONGEST // 3 :].split(' ', 1)[-1]}"


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item)
    elif value not in (None, ""):
        yield value


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
