"""RuleSlotExtractor: slots found by rules, in English and Japanese."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from strands.types.content import Message

from strands_manga_memory.language.acts.act_rules import DialogueAct
from strands_manga_memory.language.acts.acts import dialogue_act
from strands_manga_memory.language.acts.instructions import standing, takes_back
from strands_manga_memory.language.acts.replies import DECLINES, ELSE, Phrases
from strands_manga_memory.language.entities.entities import Entity, EntityTypes
from strands_manga_memory.language.entities.entity_shop import SHOP
from strands_manga_memory.language.pii.personal_data import value_without_identifiers, without_identifiers
from strands_manga_memory.language.slots.corrections import Value, values_of
from strands_manga_memory.language.slots.slots import Slot, SlotKind
from strands_manga_memory.language.texts.condense import condensed, sentences, weight
from strands_manga_memory.language.texts.excerpts import excerpt
from strands_manga_memory.language.texts.message_texts import message_text
from strands_manga_memory.language.texts.normalize import normalized
from strands_manga_memory.language.texts.unhurried import unhurried

_DECISION = Phrases(
    "take,go with,choose,pick,book,buy,order,settle,let's,decided,にし,に決,を買,を注,で予,でお",
    r"\b(?:i|we)(?:'ll| will| am going to|'m going to)? (?:take|go with|choose|pick|book|buy|order|settle on)\b"
    r"|\blet's (?:go|do|make|book|take)\b"
    r"|\bbook (?:it|that|me)\b|\bi(?:'ve| have) decided\b|にします|に決め|を買い|を注文|で予約|でお願い",
)
_PROMISE = Phrases(
    "will,'ll,going to,promise,連絡,お送,手配,発送,お届,返金,確認",
    r"\b(?:i|we)(?:'ll| will| am going to|'re going to|'m going to) (?!(?:be|need) (?:happy|glad|to)\b)"
    r"|\bwill be (?:back|sent|delivered|refunded)\b"
    r"|\bi promise\b|ご連絡(?:いた|し)|お送り(?:いた|し)|手配(?:いた|し)"
    r"|発送(?:いた|し|予定)|お届け|返金(?:され|いた|し)|確認して",
)
_OUTCOME = Phrases(
    "ed,paid,success,complete,number,code,done,完了,手続,予約,変更,キャンセル,承り",
    r"\b(?:booked|reserved|confirmed|cancell?ed|refunded|ordered|shipped|delivered|scheduled|paid|updated|changed|added|removed"
    r"|registered|transferred|successful(?:ly)?|completed?|reference (?:number|code)|confirmation (?:number|code)|done)\b"
    r"|完了|手続き|予約(?:でき|し)|変更(?:しま|いた)|キャンセル(?:しま|いた)|承り",
)
_OFFER = Phrases(
    "?,？,would you,shall i,do you,can i,anything,let me,ませんか,でしょうか",
    r"\?\s*\Z|[かね][？?]\s*\Z|\b(?:would you|shall i|do you want|can i|anything else|let me know)\b|ませんか|でしょうか",
)
_ASKS = re.compile(r"[?？]\s*\Z|\b(?:could|can|would) you\b|か[。]?\s*\Z")
_WAITS = Phrases(
    "let me,'ll,will,know,not sure,moment,get back,確認,調べ,わかりかね,お待ち",
    r"\b(?:let me (?:check|see|look)|i(?:'ll| will) (?:check|look|find out|get back|ask|forward)|i (?:don't|do not) know"
    r"|not sure|one moment"
    r"|get back to you)\b|確認(?:いた|して|し、)|お調べ|調べて|わかりかね|お待ちください",
)
_INSTEAD = Phrases(
    "no,wrong,about,instead,actually,sorry,change,guess,try,make it,else,other,different,additional,work,代わり,変更,別の,違う",
    r"\A(?:no|nope|wrong|actually|(?:i'm |i am )?sorry)\b|\b(?:how|what) about\b|\binstead\b|\bchanged?\b|\bi guess\b"
    r"|\b(?:can|could|will|would) (?:you|we|i) (?:please )?try\b|\btry (?:again|for|it)\b|\blet ?'s try\b"
    r"|(?:\A|\b(?:yes|yeah|ok|okay|sure|please|then),? )try\b|(?:\A|[,.] ?|\band |\bplease )make it\b"
    r"|\b(?:some|any)(?:thing|where|one) else\b|\b(?:any|there|have an?|what|which|is there an) ?other\b"
    r"|\badditional options\b|\ba different\b|\b(?:won't|doesn't|does not|will not) work\b|代わりに|変更|別の|違う",
)
"""The user says that something else is wanted than what was spoken of."""
_CONFIRMS = Phrases(
    "confirm,correct,right,ok,ensure,clear,よろしい,確認",
    r"\bconfirm|\bcorrect\b|\bensure\b|\bbe clear\b|\b(?:right|okay|ok) ?\?"
    r"|よろしいでしょうか|よろしいですか|でよろしい|ご確認",
)
"""The assistant repeats what it understood: another value than it says is a correction."""
_MY = re.compile(r"\b(?:my|our) ((?:[\w'-]+ ){0,2}[\w'-]+?) (?:is|are|was|will be|has changed to|should be)\b")
_SET_ACTS = frozenset({DialogueAct.GREETING, DialogueAct.FAREWELL, DialogueAct.ACKNOWLEDGEMENT})

_LONGEST = 220
"""Most characters of the text of a slot: a longer sentence keeps its beginning and its end."""

_END = 300
"""So many characters at the end of an answer are what the user replies to."""

_ENOUGH = 0.5
"""What the assistant says in passing must weigh at least so much more than nothing to be a finding."""


class RuleSlotExtractor:
    """Finds slots by rules, without a model: well under a tenth of a millisecond a sentence.

    From the user: preferences, corrections, decisions, open questions, and what else was said, in few words. From the
    assistant: promises, outcomes, findings, and entities that identify something. From tool calls: what was done. Text of tool
    results is never taken: it is large, and not of the conversation. Cards, accounts and numbers of documents are left out.

    Args:
        types: The entity types to look for.
    """

    def __init__(self, types: EntityTypes = SHOP) -> None:
        self.types = types

    def extract(self, messages: Sequence[Message]) -> list[Slot]:
        """Return the slots of ``messages``, the older first; see ``language.merging`` for which of them are current."""
        found: list[Slot] = []
        open_questions: list[Slot] = []
        answer = ""
        for message in unhurried(messages):
            source = message.get("tracking_id") or ""
            if message["role"] == "user":
                text = without_identifiers(message_text(message))
                if not text:
                    continue
                said = list(self._of_user(text, source, answer))
                # What a question names is said, whether it is answered or not; the question itself is open until then.
                open_questions = [slot for slot in said if slot.kind is SlotKind.QUESTION]
                found += [
                    Slot(SlotKind.STATEMENT, slot.text, source, weight=slot.weight - 0.5)
                    if slot.kind is SlotKind.QUESTION
                    else slot
                    for slot in said
                ]
                continue
            text = without_identifiers(message_text(message))
            answer = text or answer
            if text and open_questions and _WAITS.are_in(text.lower()):
                found += open_questions
            if text:
                open_questions = []
            found += self._of_assistant(text, source)
            found += self._of_calls(message, source)
        ended = _taken_back(messages)
        return [slot for slot in found if (slot.source, slot.text) not in ended] + open_questions

    def _of_user(self, text: str, source: str, answer: str) -> Iterator[Slot]:
        lower = answer[-_END:].lower()
        corrects, was_declined = False, DECLINES.are_in(lower) and ELSE.search(text.lower()) is None
        understood = values_of(excerpt(answer), self.types) if _CONFIRMS.are_in(lower) else []
        for sentence in sentences(text):
            act = dialogue_act(sentence, "user")
            lower = sentence.lower()
            if act in _SET_ACTS:
                corrects = corrects or (bool(understood) and _INSTEAD.are_in(lower))
                continue
            corrects = corrects or act is DialogueAct.CORRECTION or _INSTEAD.are_in(lower)
            said = condensed(_cut(sentence))
            if not said:
                continue
            worth = weight(sentence)
            entities = self.types.find(sentence)
            values = values_of(said, self.types) if corrects or was_declined or understood else []
            if (
                (corrects and (act is DialogueAct.CORRECTION or values))
                or (was_declined and any(value.is_definite for value in values))
                or _differ(values, understood)
            ):
                kind = SlotKind.CORRECTION  # also the sentence after "No, sorry."
            elif act in (DialogueAct.PREFERENCE, DialogueAct.INSTRUCTION):
                kind = SlotKind.PREFERENCE
            elif _DECISION.are_in(lower):
                kind = SlotKind.DECISION
            elif _ASKS.search(lower):
                kind = SlotKind.QUESTION
            else:
                kind = SlotKind.STATEMENT
            yield Slot(kind, said, source, self._key(lower, entities), worth + len(entities))

    def _key(self, lower: str, entities: Sequence[Entity]) -> str:
        """What a sentence is about, if a later one on the same takes its place: "my budget is", or an e-mail address."""
        for entity in entities:
            if self.types[entity.type].is_single:
                return entity.type
        match = _MY.search(lower)
        if match is None or any(self.types[entity.type].is_exact for entity in entities):
            return ""  # two orders have two numbers
        return normalized(match[1])

    def _of_assistant(self, text: str, source: str) -> Iterator[Slot]:
        for sentence in sentences(text) if text else ():
            exact = [entity for entity in self.types.find(sentence) if self.types[entity.type].is_exact]
            worth = weight(sentence)
            kind = self._kind_of_assistant(sentence, worth, names_something=bool(exact))
            if kind is not None and (said := condensed(_cut(sentence))):
                yield Slot(kind, said, source, weight=worth + 2 * len(exact))

    def _kind_of_assistant(self, sentence: str, worth: float, *, names_something: bool) -> SlotKind | None:
        lower = sentence.lower()
        kind = SlotKind.OUTCOME if _OUTCOME.are_in(lower) else SlotKind.PROMISE if _PROMISE.are_in(lower) else SlotKind.FINDING
        if (
            kind is SlotKind.FINDING
            and not names_something
            and (worth <= _ENOUGH or dialogue_act(sentence, "assistant") in _SET_ACTS)
        ):
            return None
        if _OFFER.are_in(lower):
            return SlotKind.FINDING if names_something else None
        return kind

    def _of_calls(self, message: Message, source: str) -> Iterator[Slot]:
        for block in message["content"]:
            if "toolUse" in block:
                use = block["toolUse"]
                values = ", ".join(_short(value) for value in _leaves(value_without_identifiers(use["input"])))
                yield Slot(SlotKind.TASK, f"{use['name']}({values})"[:_LONGEST], source, key=use["name"], weight=0.5)


def _taken_back(messages: Sequence[Message]) -> frozenset[tuple[str, str]]:
    """Return source and text of instructions that the user has taken back since."""
    said = [
        (message.get("tracking_id") or "", sentence)
        for message in messages
        if message["role"] == "user"
        for sentence in sentences(without_identifiers(message_text(message)))
    ]
    if not any(takes_back(sentence) for _, sentence in said):
        return frozenset()
    acts = [(dialogue_act(sentence, "user"), sentence) for _, sentence in said]
    stands = standing(acts)
    return frozenset(
        (source, condensed(_cut(sentence)))
        for (source, sentence), (act, _), still in zip(said, acts, stands, strict=True)
        if act is DialogueAct.INSTRUCTION and not still
    )


def _differ(values: Sequence[Value], understood: Sequence[Value]) -> bool:
    """Whether one of ``values`` is another than what was understood of its kind; what was understood is in none of them."""
    return any(
        any(value.is_like(other) for other in understood)
        and all(value.differs_from(other) for other in understood if value.is_like(other))
        for value in values
    )


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
