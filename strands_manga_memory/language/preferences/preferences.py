"""What a user says he prefers, slot by slot, by rules, in English and Japanese. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from strands_manga_memory.language.acts.act_rules import DialogueAct
from strands_manga_memory.language.acts.acts import dialogue_act
from strands_manga_memory.language.acts.asking import statements
from strands_manga_memory.language.acts.instructions import takes_back
from strands_manga_memory.language.acts.stated import NAMED, STATED, is_so_no_more
from strands_manga_memory.language.preferences import preference_rules as rules
from strands_manga_memory.language.preferences.attitude import attitude
from strands_manga_memory.language.preferences.clauses import clauses, with_answers, with_antecedents
from strands_manga_memory.language.preferences.slot_values import (
    DISLIKES,
    LIKES,
    STYLE,
    TASTES,
    Preference,
    canonical,
    slot_of,
    touched,
    values_of,
)
from strands_manga_memory.language.preferences.subjects import SubjectTracker
from strands_manga_memory.language.preferences.tastes import tastes_in_english, tastes_in_japanese, wanted_instead
from strands_manga_memory.language.text_forms import split_sentences
from strands_manga_memory.messages.text_excerpts import head_and_tail
from strands_manga_memory.messages.tokens import shorten_line

MOST_HEARD = 5
"""So many preferences of a message are heard; those that belong to a slot first."""

_ITSELF = re.compile(
    r"\A\W*(?:please |can you |could you |also )*(?:remember|note|keep in mind|(?:don't|do not) forget)\b"
    r"(?: that\b|:)?,? ?"
    r"|\A\W*(?:[こそ]の(?:こと|話)|これ|それ)?[をは]?(?:必ず|ちゃんと|ぜひ)?(?:覚えて|記憶して|メモして|忘れないで)"
    r"(?:おいて)?(?:ください|下さい|くださいね|ね|ほしいです|欲しいです)?\W*\Z",
    re.IGNORECASE,
)
"""What says that something is to be remembered, and not what."""


def heard_in(texts: Iterable[str]) -> list[Preference]:
    """Return what the texts of a message say of their speaker: at most 5 preferences, in the order in which they are said.

    What belongs to no slot, but is a preference or a fact, is kept whole. Of a text over 8,000 characters the beginning and the
    end are read.
    """
    found: dict[tuple[str, str], Preference] = {}
    for text in texts:
        subject = SubjectTracker()
        for sentence in with_antecedents(with_answers(split_sentences(head_and_tail(text)))):
            for said in _heard(subject.own_part(sentence)):
                if not subject.is_own(said.slot) or (said.slot == "budget" and not _NUMBER.search(said.value)):
                    continue
                place = said.slot, canonical(said.value)
                adds = said.adds or (_is_one_of_several(said, found) and not _CORRECTS.search(sentence))
                found.pop(place, None)
                found[place] = replace(said, adds=adds)
    chosen = sorted(found.values(), key=lambda said: not said.slot)[:MOST_HEARD]
    return [said for said in found.values() if said in chosen]


_NUMBER = re.compile(r"[\d〇一二三四五六七八九十百千万]|\b(?:ten|twenty|thirty|forty|fifty|hundred|thousand)\b", re.IGNORECASE)


_CORRECTS = re.compile(
    r"\b(?:actually|instead|rather|now|no,|wait|i mean|correction|changed my mind|favou?rite)\b"
    r"|やっぱり|いや、|訂正|一番|いちばん",
    re.IGNORECASE,
)


def _is_one_of_several(said: Preference, before: Mapping[tuple[str, str], Preference]) -> bool:
    """Tell whether a taste stands beside one that its message told before: who loves two genres has not changed his mind."""
    is_liked = said.liked is True and said.slot in TASTES
    return is_liked and any(each.slot == said.slot and each.liked for each in before.values())


def stated_preferences(texts: Iterable[str]) -> dict[str, str]:
    """Return what a user's texts come to, taken one after the other: the value of each slot; a statement is its own key."""
    slots: dict[str, str] = {}
    for text in texts:
        for said in heard_in([text]):
            changed = touched(slots, said) if said.slot else {_name_of(said.value): said.value}
            for slot, value in changed.items():
                slots.pop(slot, None)
                if value:
                    slots[slot] = value
    return slots


def preferences_of(key: str, value: str) -> list[Preference]:
    """Return what a key and a value of ``stated_preferences``, or of a model's summary, stand for."""
    key, value = shorten_line(key.strip(), 60), shorten_line(value.strip(), 120)
    if not key or not value:
        return []
    if key == _name_of(value):
        return [Preference("", value)]
    slot = slot_of(key)
    if slot == DISLIKES:
        return [Preference(LIKES, each, liked=False) for each in values_of(value)]
    if slot == LIKES:
        return [Preference(LIKES, each, adds=True) for each in reversed(values_of(value))]
    return [Preference(slot, value)]


def _name_of(statement: str) -> str:
    """Return the key of a statement that belongs to no slot."""
    return shorten_line(statement.rstrip(".!。！").lower(), 40)


_READ = 300
_SAYS = re.compile(r"\w\w")


def _heard(sentence: str) -> Iterator[Preference]:
    """Yield what a sentence says, clause by clause: "my name is Ken and I hate horror" states two things."""
    if len(sentence) > _READ or not _SAYS.search(sentence):
        return
    parts = list(with_antecedents(clauses(sentence)))
    found: list[Preference] = []
    for part in parts:
        after_dislike = bool(found) and found[-1].liked is False and not _is_known(part)
        found += (wanted_instead(part) if after_dislike else []) or _of_clause(part)
    if found:
        yield from found
    elif not any(map(_is_known, parts)):
        yield from _of_no_slot(sentence)


def _is_known(clause: str) -> bool:
    return any(
        pattern.search(clause) for pattern in (rules.LIKES, rules.DISLIKES, rules.ONCE, rules.NOT_SAID_JAPANESE)
    ) or bool(rules.NOT_SAID.search(clause) and clause.rstrip().endswith("?"))


def _of_clause(clause: str) -> list[Preference]:
    is_request = _REQUEST.search(clause) is not None
    asked = clause.rstrip().endswith(("?", "？")) and not is_request
    if not (said := clause if is_request else statements(clause)).strip():
        return []
    for key, pattern in NAMED:
        if (match := pattern.search(said)) is not None and not (key == "home" and _names_a_value(match[2])):
            name, value = slot_of(" ".join(match.expand(key).lower().split())), shorten_line(match[2].strip(" ."), 120)
            if key not in ("name", "home") or not is_so_no_more(said, match.span(2)):
                return [Preference(shorten_line(name, 60), value)]
            asked_for = (
                [Preference(STYLE, shorten_line(said.strip(" .。!！"), 60), adds=True)] if _NOT_TO_CALL.search(said) else []
            )
            return [Preference(name, value, liked=None), *asked_for]
    stated = [
        Preference(slot, shorten_line(match[1].strip(" ."), 60))
        for slot, pattern in STATED
        if (match := pattern.search(said)) is not None
    ]
    if stated:
        return stated[:1]
    return tastes_in_english(said, asked=asked) if said.isascii() or not _JAPANESE.search(said) else tastes_in_japanese(said)


_NOT_TO_CALL = re.compile(
    r"\b(?:don't|do not|never|stop|quit) call(?:ing)? me\b|呼ばないで|呼んで(?:ほし|欲し)くな", re.IGNORECASE
)
_REQUEST = re.compile(
    r"\b(?:can|could|would|will) you (?:please |just )?(?:keep|stay|use|answer|reply|be|avoid|stick|limit|write"
    r"|speak|leave|skip|stop|not)\b"
    r"|(?:答え|返事し|返信し|話し|書い|説明し)て(?:もらえ|いただけ|頂け|くれ)(?:ます|ません|る)か?[。?？]?\s*\Z",
    re.IGNORECASE,
)
"""A question by its form that asks for nothing to be told."""
_JAPANESE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")


def _is_somebody_elses(sentence: str) -> bool:
    if sentence.isascii() and not rules.SPEAKER.search(sentence) and not rules.INSTRUCTION.search(sentence):
        return True
    return any(pattern.search(sentence) for pattern in (rules.NOT_SAID, rules.NOT_SAID_JAPANESE, rules.SOMEBODY))


def _names_a_value(sentence: str) -> bool:
    return any(pattern.search(sentence) for _, pattern in rules.VALUES)


_ANAPHORA = re.compile(
    r"\bi (?:really |also |do )?(?:like|love|want|enjoy|prefer|hate) (?:it|that|this|them|those|these|your|the|both|one)\b"
    r"|\b(?:i'd|i would|we'd) (?:like|love)\b|\bi (?:want|need) to\b",
    re.IGNORECASE,
)


_BETWEEN_VALUES = re.compile("[,、，]")
"""What is between the values of a slot: within one it would make two of it."""


def _of_no_slot(sentence: str) -> Iterator[Preference]:
    if sentence.rstrip().endswith(("?", "？")) or _ANAPHORA.search(sentence) or rules.AS_ONE_LIKES.search(sentence):
        return
    act = dialogue_act(sentence, "user")
    if rules.SHOP.search(sentence) and attitude(sentence) and act is DialogueAct.PREFERENCE:
        return
    if _is_somebody_elses(sentence) and (act is DialogueAct.PREFERENCE or _names_a_value(sentence)):
        return
    if act is DialogueAct.INSTRUCTION or takes_back(sentence):
        text = shorten_line(_BETWEEN_VALUES.sub(";", sentence.strip().rstrip(".。!！")), 120)
        yield Preference(STYLE, text, None if takes_back(sentence) else True, adds=True)
    elif act in (DialogueAct.PREFERENCE, DialogueAct.FACT):
        text = _ITSELF.sub("", sentence).strip()
        if _SAYS.search(text):
            yield Preference("", shorten_line(text, 120))
