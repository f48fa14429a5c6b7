"""Preferences that a user states, by rules in English and Japanese, and the slots in which they are kept. Pure.

A clause is a preference if its predicate is known ("I'm tired of ..."), or if it names a known value (a genre, a format, an
author) and the speaker evaluates it. Statements about other people, questions and wishes of the moment are none. The values
of a slot are canonical across languages.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from strands_manga_memory.language.dialogue_acts import DialogueAct, dialogue_act, revokes_instruction, statements
from strands_manga_memory.language.packs import EN, JA, PACKS, any_language, canonical_words
from strands_manga_memory.language.search import search_terms
from strands_manga_memory.language.text_features import is_evaluative, sentiment_score, split_sentences
from strands_manga_memory.messages.text_excerpts import head_and_tail
from strands_manga_memory.messages.tokens import shorten_line

DISLIKES, LIKES, STYLE = "dislikes", "likes", "style"
"""Slots of unwanted things, of wanted things without a slot of their own, and of the style of answers."""

TASTES = ("genre", "author", "format", LIKES)
"""The slots that a thing leaves when it is not wanted any more."""

_SLOT_OF = canonical_words("preferences.slots")
_OWNER = re.compile(rf"\A(?:{any_language('preference_keys.owner').pattern})\s?")
_ROLES = ("unwanted", "wanted", "amount", "answer")
_ANY_ROLE = "|".join(f"(?P<{role}>{any_language(f'preference_keys.{role}').pattern})" for role in _ROLES)
_ROLE = re.compile(rf"\A(?:{_ANY_ROLE})\s?")
"""Words before the name of a slot that keep it that slot, or turn it into dislikes."""
_OF_ROLE = {
    "unwanted": dict.fromkeys(("genre", "author", "format", LIKES), DISLIKES),
    "wanted": {slot: slot for slot in ("genre", "author", "format", "language", STYLE, LIKES)},
    "amount": {"budget": "budget"},
    "answer": {STYLE: STYLE, "language": "language"},
}
_MOST_VALUES = {DISLIKES: 8, LIKES: 8}
_MOST_OF_A_SLOT = 4
_BETWEEN_VALUES = re.compile("[,、，]")
"""Separators of the values of a slot, which no single value may contain."""
_CANONICAL = canonical_words("preferences.canonical_values")


@dataclass(frozen=True, slots=True)
class Preference:
    """A preference that a user stated.

    Attributes:
        slot: Its slot: ``genre``, ``author``, ``format``, ``language``, ``budget``, ``style``, ``likes``, ``name``;
            empty: a statement that belongs to none.
        value: The preferred value, or the whole statement.
        liked: False: it is not wanted; None: it was wanted once.
        adds: It is added to earlier values of the slot and replaces none.
    """

    slot: str
    value: str
    liked: bool | None = True
    adds: bool = False


def slot_for_key(key: str) -> str:
    """Return the slot of a key. ``favorite genres`` of a profile and "my favorite genre" of a user have the same slot."""
    plain = " ".join(unicodedata.normalize("NFKC", key).replace("_", " ").casefold().split()).replace("favourite", "favorite")
    bare = _OWNER.sub("", plain)
    role = _ROLE.match(bare)
    name = bare if role is None else bare[role.end() :]
    for ending in ("", "s", " preference", " preferences", "の好み"):
        slot = _SLOT_OF.get(name.removesuffix(ending), "")
        if role is not None and role.lastgroup is not None:
            slot = _OF_ROLE[role.lastgroup].get(slot, "")
        if slot:
            return slot
    return f"favorite {name}" if role is not None and role["wanted"] and not role["wanted"].isascii() else plain


def canonical_value(value: str) -> str:
    """Return the canonical form of a value: ``ホラー``, ``Horror manga`` and ``horror`` have the same."""
    plain = " ".join(unicodedata.normalize("NFKC", value).casefold().split()).removeprefix("the ")
    for ending in (" manga", " comics", " stories", " books", " series", "漫画", "マンガ", "もの", "系"):
        shorter = plain.removesuffix(ending).strip()
        plain = shorter or plain
    for name in (plain, plain.removesuffix("s") if len(plain) > 4 and plain.isascii() else plain):
        if name.replace(" ", "-") in _CANONICAL:
            return _CANONICAL[name.replace(" ", "-")]
    return plain


def split_values(text: str) -> list[str]:
    """Return the values of a slot."""
    return [value for each in _BETWEEN_VALUES.split(text) if (value := each.strip())]


def remove_values(text: str, value: str) -> str:
    """Return the values of a slot without those that mean the same as a value in ``value``."""
    gone = set(map(canonical_value, split_values(value)))
    kept = [each for each in split_values(text) if canonical_value(each) not in gone]
    return text if len(kept) == len(split_values(text)) else ", ".join(kept)


def _nearest_value(text: str, values: Sequence[str]) -> str:
    """Return the value that shares most terms with a text, the first of several; the text itself if none shares any."""
    wanted = frozenset(search_terms(text))
    shared = [len(wanted.intersection(search_terms(value))) for value in values]
    return values[shared.index(max(shared))] if any(shared) else text


def _with_value(slot: str, text: str, said: Preference) -> str:
    """Return the values of a slot after a statement, the latest first."""
    if not said.adds and slot not in _MOST_VALUES:
        return said.value
    rest = remove_values(text, said.value)
    kept = [said.value, *split_values(rest)] if rest else [said.value]
    return ", ".join(kept[: _MOST_VALUES.get(slot, _MOST_OF_A_SLOT)])


def apply_preference(slots: Mapping[str, str], said: Preference) -> dict[str, str]:
    """Return the slots that a statement changes, with their new values; an empty value removes the slot.

    A wanted value leaves ``dislikes``; a value that is no longer wanted leaves its slot.
    """
    if not said.slot:
        return {}
    if said.slot == STYLE and said.liked is None:
        said = replace(said, value=_nearest_value(said.value, split_values(slots.get(STYLE, ""))))
    into = DISLIKES if said.liked is False else said.slot if said.liked else ""
    leaves = (DISLIKES,) if said.liked else (*TASTES, said.slot, DISLIKES)
    changed = {slot: remove_values(slots[slot], said.value) for slot in leaves if slot in slots and slot != into}
    if into:
        changed[into] = _with_value(into, slots.get(into, ""), said)
    return {slot: text for slot, text in changed.items() if text != slots.get(slot)}


# Extraction.

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
        for sentence in split_sentences(head_and_tail(text)):
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
    """Parse preferences from a key and a value, as ``collect_preferences`` or a model's summary returns them."""
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
    parts = split_clauses(sentence)
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
            is_past = key in ("name", "home") and _is_past_or_denied(said, match.span(2))
            return [Preference(shorten_line(name, 60), value, liked=None if is_past else True)]
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


_REQUEST = any_language("preferences.request")
_JAPANESE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")


def _is_somebody_elses(sentence: str) -> bool:
    if sentence.isascii() and not EN.preferences.speaker.search(sentence):
        return True
    return any(
        pattern.search(sentence) for pattern in (EN.preferences.not_said, JA.preferences.not_said, EN.preferences.somebody)
    )


def _names_a_value(sentence: str) -> bool:
    return any(pattern.search(sentence) for _, pattern in _VALUES)


def _of_no_slot(sentence: str) -> Iterator[Preference]:
    is_question = sentence.rstrip().endswith(("?", "？"))
    if is_question or _ANAPHORA.search(sentence) or JA.preferences.as_one_likes.search(sentence):
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


def _find_values(text: str) -> list[tuple[str, str, int]]:
    """Return slot, value and position of the known values of a text, and of an author."""
    found = [(slot, match) for slot, pattern in _VALUES for match in pattern.finditer(text)]
    if (author := _AUTHOR.search(text)) is not None:
        found.append(("author", author))
    return [(slot, next(filter(None, match.groups()), match[0]), match.start()) for slot, match in found]


def _as_preferences(named: Sequence[tuple[str, str, int]], *, liked: bool | None, adds: bool) -> list[Preference]:
    """Return the preferences of found values: wanted ones of a slot together, others one by one."""
    found: list[Preference] = []
    for slot in dict.fromkeys(slot for slot, _, _ in named):
        names = list(dict.fromkeys(value for at, value, _ in named if at == slot))[:3]
        values = [name.rstrip(".") if slot == "author" or name.isupper() else name.lower() for name in names]
        found += [Preference(slot, value, liked, adds) for value in ([", ".join(values)] if liked else values)]
    return found


def _without_values(text: str, named: Sequence[tuple[str, str, int]]) -> str:
    """Return a text with ``*`` for each value: the name of a genre evaluates nothing."""
    for _, value, _ in named:
        text = text.replace(value, "*")
    return text


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
            asked = asked or EN.preferences.moment.search(match[0]) is not None
            found = _of_object(rest, liked=liked, adds=adds, asked=asked)
            return found + [each for other in others for each in _of_object(other, liked=liked is False, adds=True, asked=True)]
    return [] if asked else _of_evaluated_values(said)


def _of_object(rest: str, *, liked: bool | None, adds: bool, asked: bool) -> list[Preference]:
    """Return the preferences that an object names; an object without known values is a like or dislike in its own words."""
    whole = _SENTENCE_ENDS.sub("", rest.strip()).strip(" ,;:-\"'")
    thing = EN.preferences.ends.sub("", whole).strip(" ,;:-\"'")
    named = _find_values(thing)
    if not named and EN.preferences.narrowed.match(whole[len(thing) :]):
        thing, named = whole, _find_values(whole)
    found = _as_preferences(named, liked=liked, adds=adds)
    if found or asked or EN.preferences.empty_object.match(thing) or len(thing) > _LONGEST_THING or _is_at_hand(thing):
        return found
    return [Preference(LIKES, thing, liked, adds=True)]


_SENTENCE_ENDS = re.compile(r"[.!?…].*", re.DOTALL)
_LONGEST_THING = 60


def _is_at_hand(thing: str) -> bool:
    """Return whether an object is a single item or a service of the shop, not a kind of things."""
    return _SHOP.search(thing) is not None or (
        EN.tastes.at_hand.match(thing) is not None and not any(word[:1].isupper() for word in thing.split())
    )


def _replacement_wishes(clause: str) -> list[Preference]:
    """Return the wishes of a clause that follows a dislike: "no more romance, mystery please"."""
    asked = EN.tastes.instead.sub("", clause)
    if (
        not _ASKS_FOR.search(clause)
        or EN.preferences.unwanted.search(clause)
        or sentiment_score(EN.tastes.explicit.sub("", asked)) < 0
    ):
        return []
    return _as_preferences([each for each in _find_values(asked) if each[0] != "author"], liked=True, adds=True)


def _of_evaluated_values(said: str) -> list[Preference]:
    """Return the preferences of a clause with a known value, by its sentiment."""
    text = EN.tastes.instead.sub("", said)
    named = _find_values(text)
    if not named or _SHOP.search(text) or not _is_the_speakers(text, named):
        return []
    rest = _without_values(said, named)
    score = sentiment_score(rest)
    if not score and not is_evaluative(rest):
        score = _side_by_habit(rest, {slot for slot, _, _ in named})
    return _as_preferences(named, liked=score > 0, adds=_ADDS.search(said) is not None) if score else []


def _is_the_speakers(text: str, named: Sequence[tuple[str, str, int]]) -> bool:
    if any(EN.preferences.specific.search(text[:start]) for slot, _, start in named if slot != "author"):
        return False
    return min(start for _, _, start in named) <= _AT_THE_BEGINNING or EN.preferences.speaker.search(text) is not None


_AT_THE_BEGINNING = 12


def _side_by_habit(rest: str, slots: set[str]) -> int:
    """Return the polarity of a clause without evaluating words: a habit is a like."""
    if EN.preferences.needed.search(rest) and slots <= {"format", "language"}:
        return 1
    if not EN.preferences.as_a_rule.search(rest) or EN.preferences.no_taste.search(rest):
        return 0
    return -1 if EN.preferences.negative.search(rest) else 1


def _japanese_preferences(sentence: str) -> list[Preference]:
    """Return the preferences of a Japanese sentence: a value belongs to the first evaluating predicate after it."""
    found: list[Preference] = []
    parts = [part for part in JA.preferences.clauses.split(sentence) if part.strip(" 。！!")]
    carried = ""
    for at, part in enumerate(parts):
        clause = JA.preferences.rather.sub("", part.strip(" 。！!"))
        if JA.preferences.not_said.search(clause):
            continue
        if carried and not _find_values(clause):
            clause = f"{carried}{clause}"
        said = _of_japanese_clause(clause, is_last=at == len(parts) - 1)
        said = said or (_replacement_wishes(clause) if found and found[-1].liked is False else [])
        carried = "" if said else clause if _find_values(clause) else ""
        found += said
    return found


def _of_japanese_clause(clause: str, *, is_last: bool) -> list[Preference]:
    excepted, sign, others = clause.partition("以外")
    if sign and others and (liked := _liked_in(others, is_last=is_last)) and (but := _find_values(excepted)):
        sides = ((but, liked == "no"), (_find_values(others), liked == "yes"))
        return [each for named, side in sides for each in _as_preferences(named, liked=side, adds=True)]
    plain = JA.preferences.as_one_likes.sub("", clause)
    named = _find_values(plain)
    if any(slot != "author" for slot, _, _ in named):
        named = [each for each in named if each[0] != "author"]
    rest = _without_values(plain, named)
    liked = _liked_in(rest, is_last=is_last)
    if not liked or _SHOP.search(rest):
        return []
    found = _as_preferences(named, liked=_POLARITY[liked], adds=_ADDS.search(clause) is not None)
    thing = JA.preferences.thing.search(plain) if not found else None
    if thing is not None and not JA.preferences.no_thing.search(thing[1]):
        return [Preference(LIKES, thing[1], _POLARITY[liked], adds=True)]
    return found


_POLARITY: dict[str, bool | None] = {"yes": True, "no": False, "once": None}


def _liked_in(clause: str, *, is_last: bool) -> str:
    """Return the polarity of a Japanese predicate: ``yes``, ``no``, ``once``, or empty."""
    if JA.preferences.once.search(clause):
        return "once"
    if JA.preferences.not_disliked.search(clause):
        return ""
    score = sentiment_score(clause)
    if JA.preferences.likes.search(clause) or JA.preferences.only.search(clause):
        return "yes" if score >= 0 or JA.preferences.only.search(clause) else "no"
    if score == 0 and is_last and JA.preferences.object.search(clause) and not JA.preferences.no_taste.search(clause):
        score = -1 if JA.preferences.negative.search(clause) else 1
    return "yes" if score > 0 else "no" if score < 0 else ""


_ANAPHORA = any_language("preferences.anaphora")
_NEXT = any_language("clauses.next")


def split_clauses(sentence: str) -> list[str]:
    """Return the statements of a sentence, as they follow one another."""
    return [part for each in _NEXT.split(sentence) for part in _before_and_after_comma(each) if part.strip()]


def _before_and_after_comma(clause: str) -> tuple[str, ...]:
    """Split "no more romance, mystery please", where only the second part is wanted."""
    match = EN.clauses.instead.match(clause)
    return (clause,) if match is None else (match[1], match[2])


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
