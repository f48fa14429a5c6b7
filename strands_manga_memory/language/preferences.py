"""Preferences that a user states, clause by clause, by rules in English and Japanese. Pure.

A clause is a preference if its predicate is known ("I'm tired of ..."), or if it names a known value (a genre, a format, an
author) and the speaker evaluates it. Statements about other people, questions and wishes of the moment are none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from strands_manga_memory.language.dialogue_acts import DialogueAct, dialogue_act, revokes_instruction, statements
from strands_manga_memory.language.packs import EN, JA, PACKS, any_language
from strands_manga_memory.language.preference_slots import (
    DISLIKES,
    LIKES,
    STYLE,
    TASTES,
    Preference,
    apply_preference,
    canonical_value,
    slot_for_key,
    split_values,
)
from strands_manga_memory.language.text_features import is_evaluative, sentiment_score, split_sentences
from strands_manga_memory.messages.text_excerpts import head_and_tail
from strands_manga_memory.messages.tokens import shorten_line

_VALUES = tuple((slot, any_language(f"known_values.{slot}")) for slot in ("genre", "format", "language"))
_PERSONAL_FACTS = tuple(rule for pack in PACKS for rule in pack.rules("personal_facts"))
_WISHES = tuple(rule for pack in PACKS for rule in pack.rules("wishes"))
_AUTHOR = any_language("preferences.author")


_ADDS = any_language("preferences.adds")


_ASKS_FOR = any_language("preferences.asks_for")
_SHOP = any_language("preferences.shop")

MOST_PREFERENCES = 5
"""Largest number of preferences of a message; those with a slot come first."""

_ITSELF = any_language("preferences.itself")


def extract_preferences(texts: Iterable[str]) -> list[Preference]:
    """Extract the preferences of a message: at most 5, in the order of the text.

    A preference or fact without a slot is kept as a whole sentence. Of a text over 8,000 characters the beginning and the
    end are read.
    """
    found: dict[tuple[str, str], Preference] = {}
    for text in texts:
        subject = SubjectTracker()
        for sentence in resolve_pronouns(join_answers(split_sentences(head_and_tail(text)))):
            for said in _of_sentence(subject.own_part(sentence)):
                if not subject.is_own(said.slot) or (said.slot == "budget" and not _NUMBER.search(said.value)):
                    continue
                place = said.slot, canonical_value(said.value)
                adds = said.adds or (_is_one_of_several(said, found) and not _CORRECTS.search(sentence))
                found.pop(place, None)
                found[place] = replace(said, adds=adds)
    chosen = sorted(found.values(), key=lambda said: not said.slot)[:MOST_PREFERENCES]
    return [said for said in found.values() if said in chosen]


_NUMBER = any_language("preferences.number")


_CORRECTS = any_language("preferences.corrects")


def _is_one_of_several(said: Preference, before: Mapping[tuple[str, str], Preference]) -> bool:
    """Whether a taste is added to an earlier one of the same message: two loved genres are no change of mind."""
    is_liked = said.liked is True and said.slot in TASTES
    return is_liked and any(each.slot == said.slot and each.liked for each in before.values())


def collect_preferences(texts: Iterable[str]) -> dict[str, str]:
    """Return the value of each slot after a user's texts, in their order; a statement without a slot is its own key."""
    slots: dict[str, str] = {}
    for text in texts:
        for said in extract_preferences([text]):
            changed = apply_preference(slots, said) if said.slot else {_name_of(said.value): said.value}
            for slot, value in changed.items():
                slots.pop(slot, None)
                if value:
                    slots[slot] = value
    return slots


def parse_preference(key: str, value: str) -> list[Preference]:
    """Return the preferences of a key and a value, from ``collect_preferences`` or from a model's summary."""
    key, value = shorten_line(key.strip(), 60), shorten_line(value.strip(), 120)
    if not key or not value:
        return []
    if key == _name_of(value):
        return [Preference("", value)]
    slot = slot_for_key(key)
    if slot == DISLIKES:
        return [Preference(LIKES, each, liked=False) for each in split_values(value)]
    if slot == LIKES:
        return [Preference(LIKES, each, adds=True) for each in reversed(split_values(value))]
    return [Preference(slot, value)]


def _name_of(statement: str) -> str:
    """Return the key of a statement that belongs to no slot."""
    return shorten_line(statement.rstrip(".!。！").lower(), 40)


_READ = 300
_SAYS = re.compile(r"\w\w")


def _of_sentence(sentence: str) -> Iterator[Preference]:
    """Yield the preferences of a sentence, clause by clause: "my name is Ken and I hate horror" has two."""
    if len(sentence) > _READ or not _SAYS.search(sentence):
        return
    parts = list(resolve_pronouns(split_clauses(sentence)))
    found: list[Preference] = []
    for part in parts:
        after_dislike = bool(found) and found[-1].liked is False and not _is_known(part)
        found += (_replacement_wishes(part) if after_dislike else []) or _of_clause(part)
    if found:
        yield from found
    elif not any(map(_is_known, parts)):
        yield from _of_no_slot(sentence)


def _is_known(clause: str) -> bool:
    return any(
        pattern.search(clause)
        for pattern in (EN.preferences.likes, EN.preferences.dislikes, EN.preferences.once, JA.preferences.not_said)
    ) or bool(EN.preferences.not_said.search(clause) and clause.rstrip().endswith("?"))


def _of_clause(clause: str) -> list[Preference]:
    is_request = _REQUEST.search(clause) is not None
    asked = clause.rstrip().endswith(("?", "？")) and not is_request
    if not (said := clause if is_request else statements(clause)).strip():
        return []
    for rule in _PERSONAL_FACTS:
        key = rule.key
        if (match := rule.pattern.search(said)) is not None and not (key == "home" and _names_a_value(match[2])):
            name, value = slot_for_key(" ".join(match.expand(key).lower().split())), shorten_line(match[2].strip(" ."), 120)
            if key == "language":  # "answer in English and keep it short" states a style too
                return [Preference(name, value), *(wish for wish in _wishes(said) if wish.slot == STYLE)]
            if key not in ("name", "home") or not _is_past_or_denied(said, match.span(2)):
                return [Preference(shorten_line(name, 60), value)]
            asked_for = (
                [Preference(STYLE, shorten_line(said.strip(" .。!！"), 60), adds=True)] if _NOT_TO_CALL.search(said) else []
            )
            return [Preference(name, value, liked=None), *asked_for]
    if wishes := _wishes(said):
        return wishes
    return (
        _english_preferences(said, asked=asked) if said.isascii() or not _JAPANESE.search(said) else _japanese_preferences(said)
    )


def _wishes(statement: str) -> list[Preference]:
    """Return the first wish of a statement, in a list."""
    for rule in _WISHES:
        if (match := rule.pattern.search(statement)) is not None:
            return [Preference(rule.key, shorten_line(match[1].strip(" ."), 60))]
    return []


_NOT_TO_CALL = any_language("preferences.not_to_call")
_REQUEST = any_language("preferences.request")
_JAPANESE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")


def _is_somebody_elses(sentence: str) -> bool:
    if sentence.isascii() and not EN.preferences.speaker.search(sentence) and not EN.preferences.instruction.search(sentence):
        return True
    return any(
        pattern.search(sentence) for pattern in (EN.preferences.not_said, JA.preferences.not_said, EN.preferences.somebody)
    )


def _names_a_value(sentence: str) -> bool:
    return any(pattern.search(sentence) for _, pattern in _VALUES)


_BETWEEN_VALUES = re.compile("[,、，]")
"""Separators of the values of a slot, which no single value may contain."""


def _of_no_slot(sentence: str) -> Iterator[Preference]:
    if (
        sentence.rstrip().endswith(("?", "？"))
        or EN.preferences.anaphora.search(sentence)
        or JA.preferences.as_one_likes.search(sentence)
    ):
        return
    act = dialogue_act(sentence, "user")
    if _SHOP.search(sentence) and sentiment_score(sentence) and act is DialogueAct.PREFERENCE:
        return
    if _is_somebody_elses(sentence) and (act is DialogueAct.PREFERENCE or _names_a_value(sentence)):
        return
    if act is DialogueAct.INSTRUCTION or revokes_instruction(sentence):
        text = shorten_line(_BETWEEN_VALUES.sub(";", sentence.strip().rstrip(".。!！")), 120)
        yield Preference(STYLE, text, None if revokes_instruction(sentence) else True, adds=True)
    elif act in (DialogueAct.PREFERENCE, DialogueAct.FACT):
        text = _ITSELF.sub("", sentence).strip()
        if _SAYS.search(text):
            yield Preference("", shorten_line(text, 120))


def _is_past_or_denied(statement: str, value: tuple[int, int]) -> bool:
    """Whether a statement denies the name or home at these positions, or speaks of the past."""
    start, end = value
    return (
        EN.statements.not_before.search(statement[:start]) is not None
        or JA.statements.not_after.match(statement[end:]) is not None
    )


# Preferences of a clause: by predicate, or by a known value and its evaluation.


def _english_preferences(clause: str, *, asked: bool) -> list[Preference]:
    """Return the preferences of an English clause; of a question only those of known values."""
    said = clause.replace("\u2019", "'").strip()
    if EN.preferences.not_said.search(said) or EN.preferences.somebody.search(said):
        return []
    for liked, pattern in ((None, EN.preferences.once), (False, EN.preferences.dislikes), (True, EN.preferences.likes)):
        if (match := pattern.search(said)) is not None:
            if not EN.tastes.thing.search(said[match.end() :]):
                break  # what it is about stands before it: "horror is what I love most"
            rest, *others = EN.preferences.but_not.split(said[match.end() :], maxsplit=1)
            adds = _ADDS.search(said) is not None
            found = _named(rest, liked=liked, adds=adds, asked=asked or EN.preferences.moment.search(match[0]) is not None)
            return found + [each for other in others for each in _named(other, liked=liked is False, adds=True, asked=True)]
    return [] if asked else _valued(said)


def _replacement_wishes(clause: str) -> list[Preference]:
    """Return the wishes of a clause that follows a dislike: "no more romance, mystery please"."""
    asked = EN.tastes.instead.sub("", clause)
    if (
        not _ASKS_FOR.search(clause)
        or EN.preferences.unwanted.search(clause)
        or sentiment_score(EN.tastes.explicit.sub("", asked)) < 0
    ):
        return []
    return _all_values(asked, liked=True, adds=True)


def _valued(said: str) -> list[Preference]:
    """Return the preferences of a clause with a known value, by its sentiment."""
    text = EN.tastes.instead.sub("", said)
    named = _named_in(text)
    if not named or _SHOP.search(text) or not _is_the_speakers(text, named):
        return []
    rest = said
    for _, value, _ in named:
        rest = rest.replace(value, "*")
    score = sentiment_score(rest)
    if EN.preferences.instruction.search(text) and EN.preferences.unwanted.search(rest):
        score = -1
    if not score and not is_evaluative(rest):
        score = _stand(rest, frozenset(slot for slot, _, _ in named))
    if score == 0:
        return []
    adds = _ADDS.search(said) is not None
    slots = dict.fromkeys(slot for slot, _, _ in named)
    values = {slot: [value for at, value, _ in named if at == slot] for slot in slots}
    return [each for slot in slots for each in _preferences(slot, values[slot], liked=score > 0, adds=adds)]


def _named_in(text: str) -> list[tuple[str, str, int]]:
    """Return slot, value and position of the known values of a clause."""
    found = [(slot, match) for slot, pattern in _VALUES for match in pattern.finditer(text)]
    if (author := _AUTHOR.search(text)) is not None:
        found.append(("author", author))
    return [(slot, next(filter(None, match.groups()), match[0]), match.start()) for slot, match in found]


def _is_the_speakers(text: str, named: list[tuple[str, str, int]]) -> bool:
    if any(EN.preferences.specific.search(text[:start]) for slot, _, start in named if slot != "author"):
        return False
    starts = min(start for _, _, start in named)
    return bool(starts <= _AT_THE_BEGINNING or EN.preferences.speaker.search(text) or EN.preferences.instruction.search(text))


def _stand(rest: str, slots: frozenset[str]) -> int:
    """Return the polarity of a clause without evaluating words: a habit is a like."""
    if EN.preferences.needed.search(rest) and slots <= {"format", "language"}:
        return 1
    if EN.preferences.as_a_rule.search(rest) and not EN.preferences.no_taste.search(rest):
        return -1 if EN.preferences.negative.search(rest) else 1
    return -1 if EN.preferences.negative.search(rest) and EN.preferences.for_me.search(rest) else 0


_AT_THE_BEGINNING = 12


def _named(rest: str, *, liked: bool | None, adds: bool, asked: bool) -> list[Preference]:
    """Return the preferences that an object names; one that names nothing known is a like or a dislike as it stands."""
    whole = _SENTENCE_ENDS.sub("", rest.strip()).strip(" ,;:-\"'")
    thing = EN.preferences.ends.sub("", whole).strip(" ,;:-\"'")
    found = _all_values(thing, liked=liked, adds=adds)
    if not found and EN.preferences.narrowed.match(whole[len(thing) :]):
        thing, found = whole, _all_values(whole, liked=liked, adds=adds)
    author = _AUTHOR.search(rest)
    if author is not None:
        found += _preferences("author", [next(filter(None, author.groups()))], liked=liked, adds=adds)
    if found or asked or EN.preferences.empty_object.match(thing) or len(thing) > _LONGEST_THING or _is_at_hand(thing):
        return found
    return [Preference("likes", thing, liked, adds=True)]


_SENTENCE_ENDS = re.compile(r"[.!?…].*", re.DOTALL)
_LONGEST_THING = 60


def _all_values(thing: str, *, liked: bool | None, adds: bool) -> list[Preference]:
    return [each for slot, pattern in _VALUES for each in _values(slot, pattern, thing, liked=liked, adds=adds)]


def _is_at_hand(thing: str) -> bool:
    """Whether an object is a single item or a service of the shop, and no kind of things."""
    return _SHOP.search(thing) is not None or (
        EN.tastes.at_hand.match(thing) is not None and not any(word[:1].isupper() for word in thing.split())
    )


def _values(slot: str, pattern: re.Pattern[str], text: str, *, liked: bool | None, adds: bool) -> list[Preference]:
    names = [(match[1] or match[0]) if match.lastindex else match[0] for match in pattern.finditer(text)]
    return _preferences(slot, names, liked=liked, adds=adds)


def _preferences(slot: str, names: Iterable[str], *, liked: bool | None, adds: bool) -> list[Preference]:
    keeps = slot == "author"
    values = [name.rstrip(".") if keeps or name.isupper() else name.lower() for name in dict.fromkeys(names)][:3]
    if not values:
        return []
    if liked is True:
        return [Preference(slot, ", ".join(values), liked, adds)]
    return [Preference(slot, value, liked, adds) for value in values]


def _japanese_preferences(sentence: str) -> list[Preference]:
    """Return the preferences of a Japanese sentence: a value belongs to the first evaluating predicate after it."""
    found: list[Preference] = []
    parts = [part for part in JA.preferences.clauses.split(sentence) if part.strip(" 。！!")]
    carried = ""
    for at, part in enumerate(parts):
        clause = JA.preferences.rather.sub("", part.strip(" 。！!"))
        if JA.preferences.not_said.search(clause):
            continue
        if carried and not _values_japanese(clause):
            clause = f"{carried}{clause}"
        said = _of_japanese_clause(clause, is_last=at == len(parts) - 1)
        said = said or (_replacement_wishes(clause) if found and found[-1].liked is False else [])
        carried = "" if said else clause if _values_japanese(clause) else ""
        found += said
    return found


def _values_japanese(clause: str) -> list[tuple[str, list[str]]]:
    values = [(slot, names) for slot, pattern in _VALUES if (names := [match[0] for match in pattern.finditer(clause)])]
    author = None if values else _AUTHOR.search(clause)
    return values if author is None else [("author", [next(filter(None, author.groups()))])]


def _of_japanese_clause(clause: str, *, is_last: bool) -> list[Preference]:
    excepted, sign, others = clause.partition("以外")
    if sign and others and (liked := _liked_in(others, is_last=is_last)) and (but := _values_japanese(excepted)):
        sides = [(slot, names, liked == "no") for slot, names in but]
        sides += [(slot, names, liked == "yes") for slot, names in _values_japanese(others)]
        return [each for slot, names, side in sides for each in _preferences(slot, names, liked=side, adds=True)]
    plain = JA.preferences.as_one_likes.sub("", clause)
    values = _values_japanese(plain)
    rest = plain
    for _, names in values:
        for name in names:
            rest = rest.replace(name, "*")
    liked = _liked_in(rest, is_last=is_last)
    if not liked or _SHOP.search(rest):
        return []
    adds = _ADDS.search(clause) is not None
    found = [each for slot, names in values for each in _preferences(slot, names, liked=_POLARITY[liked], adds=adds)]
    thing = JA.preferences.thing.search(plain) if not found else None
    if thing is not None and not JA.preferences.no_thing.search(thing[1]):
        return [Preference("likes", thing[1], _POLARITY[liked], adds=True)]
    return found


_POLARITY: dict[str, bool | None] = {"yes": True, "no": False, "once": None}


def _liked_in(clause: str, *, is_last: bool) -> str:
    """Return the polarity of a Japanese predicate: ``yes``, ``no``, ``once``, or empty."""
    if JA.preferences.once.search(clause):
        return "once"
    if JA.preferences.not_disliked.search(clause):
        return ""
    if JA.preferences.dislikes.search(clause) and not JA.preferences.only.search(clause):
        return "no"
    score = sentiment_score(clause)
    if JA.preferences.likes.search(clause) or JA.preferences.only.search(clause):
        return "yes" if score >= 0 or JA.preferences.only.search(clause) else "no"
    if score == 0 and is_last and JA.preferences.object.search(clause) and not JA.preferences.no_taste.search(clause):
        score = -1 if JA.preferences.negative.search(clause) else 1
    return "yes" if score > 0 else "no" if score < 0 else ""


# Clauses, and the antecedents of pronouns in them.

_NEXT = any_language("clauses.next")


def split_clauses(sentence: str) -> list[str]:
    """Return the statements of a sentence, as they follow one another."""
    return [part for each in _NEXT.split(sentence) for part in _apart(each) if part.strip()]


def _apart(clause: str) -> tuple[str, ...]:
    match = EN.clauses.instead.match(clause)
    return (clause,) if match is None else (match[1], match[2])


def join_answers(said: Iterable[str]) -> Iterator[str]:
    """Join a rhetorical question with its answer: "Romance? No thank you."."""
    asked = ""
    for sentence in said:
        if asked:
            sentence = f"{asked.rstrip('?？ ')} - {sentence}"
        asked = sentence if _SELF_ASKED.match(sentence) else ""
        if not asked:
            yield sentence


_SELF_ASKED = re.compile(r"\A\W*+\w[\w-]*+(?: [\w-]++)?[?？]\s*\Z")


def resolve_pronouns(said: Iterable[str]) -> Iterator[str]:
    """Replace pronouns by the genre before them: in "Got any josei? I adore that stuff." the second means josei."""
    genre = ""
    for each in said:
        named = [match for match in _GENRE.finditer(each) if not EN.preferences.specific.search(each[: match.start()])]
        if named:
            genre = named[-1][0]
        elif genre and (match := EN.clauses.of_it.search(each.replace("\u2019", "'"))):
            each = f"{each[: match.start(1)]}{genre}{each[match.end(1) :]}"
        elif genre and JA.clauses.of_it.match(each):
            each = f"{genre}が{each}"
        else:
            genre = ""
        yield each


_GENRE = dict(_VALUES)["genre"]


# Subject of a sentence: the user, or another person.

_OTHER = any_language("subjects.other")
_GIFT = any_language("subjects.gift")
_OCCASION = any_language("subjects.occasion")
_OWN = any_language("subjects.own")
_OF_A_PERSON = frozenset(("genre", "author", "format", "likes", "dislikes", "budget", "name", "home", ""))
"""Slots whose value belongs to the person spoken of; a key such as "sister's birthday" names its person itself."""


_LASTING = frozenset(("genre", "author", "format", "likes", "dislikes", ""))
"""Slots of tastes: a wish for one occasion sets none of them."""


class SubjectTracker:
    """Follows, sentence by sentence of one message, the person that the user speaks of."""

    def __init__(self) -> None:
        self._is_other = False
        self._has_gift = False
        self._is_occasional = False

    def own_part(self, sentence: str) -> str:
        """Read the next sentence and return its clauses without those about another person.

        A sentence about nobody in particular continues with the person of the sentence before it.
        """
        self._is_occasional = _OCCASION.search(sentence) is not None
        self._has_gift = self._has_gift or _GIFT.search(sentence) is not None
        if not _OTHER.search(sentence):
            if _OWN.search(sentence):
                self._is_other = False
            return sentence
        own = [clause for clause in split_clauses(sentence) if _OWN.search(clause) and not _OTHER.search(clause)]
        self._is_other = not own
        return ", ".join(own) if own else sentence

    def is_own(self, slot: str) -> bool:
        """Whether a preference of the sentence just read is the user's own and lasts.

        The budget of a gift is not their own, and a wish for one occasion ("just for today") does not last.
        """
        if self._is_occasional and slot in _LASTING:
            return False
        if slot == "budget" and self._has_gift:
            return False
        return not self._is_other or slot not in _OF_A_PERSON
