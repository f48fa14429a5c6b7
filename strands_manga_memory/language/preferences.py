"""Extraction of the preferences that a user states, in English and Japanese.

A clause states a preference by its verb ("I'm tired of ..."), or if it praises or criticizes a
known value, such as a genre. Questions and passing wishes state no preference. Preferences of other
people get keys of their own, such as "sister's likes".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from strands_manga_memory.language.dialogue_acts import (
    DialogueAct,
    dialogue_act,
    without_questions_about_oneself,
)
from strands_manga_memory.language.instructions import revokes_instruction
from strands_manga_memory.language.packs import ANY, EN, JA, in_context
from strands_manga_memory.language.preference_slots import (
    ALLERGY,
    BETWEEN_VALUES,
    DISLIKES,
    FACTS,
    KNOWN_SLOTS,
    LIKES,
    OTHERS_TASTES,
    STYLE,
    TASTES,
    Preference,
    apply_preference,
    as_preferences,
    canonical_value,
    contradicts_statement,
    find_values,
    names_a_value,
    slot_for_key,
    split_values,
    statement_key,
    without_values,
)
from strands_manga_memory.language.subjects import AT_THE_BEGINNING, SubjectTracker, split_clauses
from strands_manga_memory.language.text_features import (
    has_question_mark,
    is_evaluative,
    is_japanese,
    sentiment_score,
    split_sentences,
    standard_spelling,
)
from strands_manga_memory.messages.texts import head_and_tail, shorten_line, without_pasted

ENGLISH, JAPANESE, BOTH = EN.preferences, JA.preferences, ANY.preferences
_SIDES = (*TASTES, DISLIKES)

_PERSONAL_FACTS = ANY.rules("personal_facts")
_SAYS = re.compile(r"\w\w")
_QUOTATION = re.compile(r'["“][^"“”\n]{20,200}["”]')
_QUOTED = re.compile(r"\A[「『“]([^「」『』“”]+)[」』”]\Z")
_DIGITS = re.compile(r"\d[\d,.]*")
_SENTENCE_ENDS = re.compile(r"[.!?…].*", re.DOTALL)
_READ, _LONGEST_THING = 300, 60

MOST_PREFERENCES = 5
"""Most preferences of a message. Preferences with a slot have priority."""

FORGETS_ALL = Preference("", "", None)
"""Preference of a message such as "Forget everything about me", which ends all preferences."""


def extract_preferences(texts: Iterable[str], before: Iterable[str] = ()) -> list[Preference]:
    """Extract at most 5 preferences from the texts of a user's message.

    A preference has a slot (standard key), such as ``genre``. If no slot fits a sentence, its
    preference is the whole sentence. The preferences are in the order of the texts, but whole
    sentences come last. Of a long text, only the beginning and end are read.

    Args:
        texts: Texts of the message.
        before: Texts of the user's two previous messages, whose preferences the message may change.
            If they mention a gift, a budget in ``texts`` is ignored.
    """
    found: dict[tuple[str, str, bool], Preference] = {}
    earlier = list(before)
    subject = SubjectTracker(earlier)
    stated = extract_preferences(list(split_sentences(earlier[-1]))[-1:]) if earlier else []
    last = stated  # preferences of the last sentence that stated any
    has_budget = False  # whether the last sentence with a number states a budget
    has_asked = False  # whether the last sentence is a question
    for text in texts:
        text = _QUOTATION.sub('""', without_pasted(head_and_tail(text)))
        for sentence in split_sentences(standard_spelling(text)):
            if BOTH.jest.search(sentence):
                is_about_earlier = not found and BOTH.jest.match(sentence) is not None
                found = {
                    ("", each.value, True): _retraction(each) for each in stated if is_about_earlier
                }
                continue
            if BOTH.material.search(sentence):
                continue
            # "Is it long? Answer in one word." is about this answer only.
            is_once = has_asked and ANY.questions.answer_format.search(sentence) is not None
            has_asked = has_question_mark(sentence)
            sentence = BOTH.opener.sub("", BOTH.title.sub("", sentence))
            own = subject.own_part(sentence)
            last = stated or last
            stated = (
                _corrected_value(sentence, stated, found.values(), earlier)
                or _sentence_preferences(own, last)
                or _changed_budget(sentence, found.values() if has_budget else (), earlier)
            )
            if _DIGITS.search(sentence):
                has_budget = any(said.slot == "budget" for said in stated)
            for said in stated:
                # "Forget my son's allergy" is about a slot of the user.
                withdraws = not said.slot and said.liked is None
                is_own = withdraws or subject.is_own(said.slot)
                if (
                    not is_own
                    or (is_once and said.slot == STYLE)
                    or (said.slot == "budget" and said.liked and not BOTH.number.search(said.value))
                ):
                    continue
                place = said.slot, canonical_value(said.value), said.liked is None
                is_one_of_several = (
                    said.liked
                    and said.slot in TASTES
                    and not BOTH.corrects.search(sentence)
                    and any(each.slot == said.slot and each.liked for each in found.values())
                )
                adds = said.adds or said.slot == STYLE or bool(is_one_of_several)
                found.pop(place, None)
                found[place] = replace(said, adds=adds)
    statements_last = sorted(
        found.values(), key=lambda said: not said.slot and said.liked is not None
    )
    return statements_last[:MOST_PREFERENCES]


def _changed_budget(
    sentence: str, found: Iterable[Preference], before: Sequence[str]
) -> list[Preference]:
    """Return the user's new budget if a sentence changes an earlier budget, as in "make that 35".

    The earlier budget is in ``found`` (this message) or ``before`` (previous messages).
    """
    if (amount := BOTH.changes_amount.search(sentence)) is None:
        return []
    known = [*extract_preferences(before), *found]
    budget = next((said.value for said in reversed(known) if said.slot == "budget"), "")
    value = next(filter(None, amount.groups())).rstrip(".,")
    numbers = _DIGITS.findall(budget)
    if _DIGITS.fullmatch(value) and len(numbers) == 1:  # the currency is that of the old budget
        value = budget.replace(numbers[0], value)
    return [Preference("budget", value)] if budget else []


def _corrected_value(
    sentence: str, stated: Sequence[Preference], found: Iterable[Preference], before: Sequence[str]
) -> list[Preference]:
    """Return the changes of an earlier preference if a sentence corrects it, as in "X, not Y".

    The preference is in ``found`` (this message) or ``before`` (previous messages). A sentence
    without the old value corrects ``stated[-1]``, but only a fact such as a name.
    """
    last = stated[-1] if stated else None
    has_moved = last is not None and (last.slot, last.liked) == ("home", None)
    corrects = BOTH.current_home if has_moved else BOTH.corrects_value
    if (match := corrects.search(sentence)) is None:
        return []
    named = list(filter(None, match.groups()))
    if len(named) == 1:
        return [Preference(last.slot, named[0])] if last and last.slot in FACTS else []
    for said in reversed([*extract_preferences(before), *found]):
        values = set(map(canonical_value, split_values(said.value)))
        for old, new in (named, reversed(named)):
            if said.liked is not None and canonical_value(old) in values:
                retracted = _retraction(replace(said, value=old))
                if said.slot in (*FACTS, "budget"):
                    return [retracted, Preference(said.slot, new)]
                return [retracted, *_object_preferences(new, liked=said.liked, adds=True)]
    return []


def _retraction(said: Preference) -> Preference:
    return replace(said, slot=DISLIKES if said.liked is False else said.slot, liked=None)


def _changed_taste(clause: str, stated: Sequence[Preference]) -> list[Preference]:
    """Return the preferences that replace the last one in ``stated`` because of a clause.

    Such clauses are "scratch that", "no wait, romance", "stuff like Monster" and "now I love it".
    """
    last = stated[-1] if stated else None
    if last is None:
        return []
    if BOTH.retracts.search(clause):
        return [_retraction(last)]
    if last.liked and (match := BOTH.corrects_taste.search(clause)):
        same = [each for each in find_values(match[0]) if each[0] == last.slot]
        return as_preferences(same, liked=True, adds=False)
    if last.liked and last.slot in TASTES and (match := BOTH.continues.search(clause)):
        return [last, *_object_preferences(_last_group(match), liked=True, adds=True)]
    if last.liked is not False and last.slot in TASTES and BOTH.dislikes_now.search(clause):
        return [replace(last, liked=False)]
    if last.liked or last.slot not in _SIDES:
        return []
    if BOTH.bears_now.search(clause):
        return [Preference(DISLIKES, last.value, None)]
    if not BOTH.likes_now.search(clause):
        return []
    slot = next((slot for slot, _, _ in find_values(last.value)), LIKES)
    return [Preference(slot, last.value, adds=True)]


def _last_group(match: re.Match[str]) -> str:
    return match[match.lastindex or 0]


def _unquoted(text: str) -> str:
    return _QUOTED.sub(r"\1", text)


def _with_ended_dislikes(found: Sequence[Preference], clause: str) -> list[Preference]:
    if BOTH.ended_dislike.search(clause):
        return [replace(each, slot=DISLIKES) for each in found]
    return list(found)


def collect_preferences(texts: Iterable[str]) -> dict[str, str]:
    """Collect the preferences that a user states in texts, keyed by slot (such as ``genre``).

    Later texts change or extend earlier preferences. A sentence that fits no slot is keyed by its
    first 40 characters.
    """
    slots: dict[str, str] = {}
    said_by_user = list(texts)
    for number, text in enumerate(said_by_user):
        for said in extract_preferences([text], said_by_user[max(0, number - 2) : number]):
            changed = {
                key: ""
                for key, text in slots.items()
                if key == statement_key(text) and contradicts_statement(said, text)
            }
            changed |= (
                {statement_key(said.value): said.value}
                if said.liked and not said.slot
                else apply_preference(slots, said)
            )
            for slot, value in changed.items():
                slots.pop(slot, None)
                if value:
                    slots[slot] = value
    return slots


def _sentence_preferences(sentence: str, before: Sequence[Preference] = ()) -> list[Preference]:
    if len(sentence) > _READ or not _SAYS.search(sentence):
        return []
    sentence = EN.clauses.tag.sub("", sentence)
    parts = split_clauses(sentence)
    has_condition = EN.clauses.condition.match(sentence) is not None
    found: list[Preference] = []
    rules: list[Preference] = []
    for part in parts:
        after_dislike = bool(found) and found[-1].liked is False and not _is_about_taste(part)
        if changed := _changed_taste(part, found or before):
            found[-1:] = changed
            continue
        said = (_replacement_wishes(part) if after_dislike else []) or _clause_preferences(part)
        if not said and (found or not has_condition):
            said = [each for each in _whole_sentence_preferences(part) if each.slot == STYLE]
            rules += said
        found += said
    is_diet = [each.slot for each in found] == ["diet"]
    if (found == rules and len(rules) == 1) or (is_diet and BOTH.eats.search(sentence)):
        found = []  # a single rule, or a diet with exceptions, is kept with the clauses around it
    if len(parts) > 1 and has_question_mark(parts[-1]) and not has_question_mark(parts[0]):
        sentence, parts = parts[0], parts[:1]  # "I'm vegetarian, what do you suggest?"
    is_taste = any(map(_is_about_taste, parts))
    return found or [
        each for each in _whole_sentence_preferences(sentence) if each.slot == STYLE or not is_taste
    ]


def _is_about_taste(clause: str) -> bool:
    patterns = ENGLISH.likes, ENGLISH.dislikes, ENGLISH.once, BOTH.not_disliked
    return any(pattern.search(clause) for pattern in patterns)


def _clause_preferences(clause: str) -> list[Preference]:
    is_request = BOTH.request.search(clause) is not None
    if not (said := clause if is_request else without_questions_about_oneself(clause)).strip():
        return []
    asked = has_question_mark(said) and not is_request
    if BOTH.forgets_all.search(said):
        return [FORGETS_ALL]
    if (match := BOTH.withdrawn.search(said) or BOTH.forget.search(said)) is not None:
        things = ANY.statements.between_substances.split(_last_group(match))
        slots = (slot_for_key(each) for each in things)
        return [
            Preference(slot if slot in KNOWN_SLOTS else "", each, None)
            for slot, each in zip(slots, things, strict=True)
        ]
    if facts := _facts_and_wishes(said):
        return facts
    found = (
        _japanese_preferences(said)
        if is_japanese(said)
        else _english_preferences(said, asked=asked)
    )
    return found if found or asked else _idiom_preferences(said)


def _idiom_preferences(said: str) -> list[Preference]:
    """Return the likes and dislikes that idioms state, such as "crowds do my head in"."""
    if BOTH.not_said.search(said):
        return []
    return [
        each
        for liked, pattern in ((True, BOTH.liked_thing), (False, BOTH.disliked_thing))
        for match in pattern.finditer(said)
        if not JAPANESE.no_thing.search(thing := _unquoted(_last_group(match)))
        and not EN.statements.supposed.search(
            in_context(said, *match.span(match.lastindex or 0), _READ)
        )
        for each in _object_preferences(thing, liked=liked, adds=True)
    ]


def _facts_and_wishes(said: str) -> list[Preference]:
    found: dict[str, Preference] = {}
    for rule in _PERSONAL_FACTS:
        if (match := rule.pattern.search(said)) is None:
            continue
        context = in_context(said, *match.span(match.lastindex or 0), _READ)
        slot = shorten_line(slot_for_key(match.expand(rule.key)), 60)
        value = BOTH.closer.sub("", _unquoted(_last_group(match).strip(" .")))
        value = shorten_line(value, 120)
        is_denied = ANY.statements.denied.search(context) is not None
        if slot.endswith(tuple(OTHERS_TASTES)):
            value = JAPANESE.rather.sub("", value)  # "A rather than B"
            things = _object_preferences(value, liked=True, adds=True)
            if find_values(value) or (things and not JAPANESE.no_thing.search(value)):
                owner, value = slot.replace("s's ", "s' "), ", ".join(each.value for each in things)
                found[owner] = Preference(owner, value, adds=True)
        elif (
            EN.statements.supposed.search(context)
            or (slot in FACTS and JA.statements.other_topic.search(context))
            or (is_denied and slot == STYLE)
        ):
            continue  # "If my budget were ...", "people who hate spoilers", "no need to be brief"
        elif slot in FACTS:
            value = ANY.statements.between_substances.sub(", ", value) if slot == ALLERGY else value
            is_named = is_denied or slot_for_key(value) != slot  # "I have allergies" names none
            if is_named and not names_a_value(value):  # "I'm a horror fan"
                found.setdefault(slot, Preference(slot, value, None if is_denied else True))
        elif "language" not in found or slot == STYLE:
            found[slot] = Preference(slot, value)
            if slot != "language":  # "answer in English and keep it short" states a style too
                break
    return list(found.values())


def _whole_sentence_preferences(sentence: str) -> Iterator[Preference]:
    """Yield the whole sentence as a preference, if it states one that no other rule recognizes."""
    is_request = BOTH.request.search(sentence) is not None
    sentence = sentence.rstrip("?？ ") if is_request else sentence
    silent = BOTH.anaphora, BOTH.of_a_slot, *(() if is_request else (JA.statements.whether,))
    if has_question_mark(sentence) or any(pattern.search(sentence) for pattern in silent):
        return
    act, ends = dialogue_act(sentence, "user"), revokes_instruction(sentence)
    if ends or (act is DialogueAct.INSTRUCTION and not BOTH.task.search(sentence)):
        text = BOTH.around_instruction.sub("", sentence.strip().rstrip(".。!！"))
        pause = " " if is_japanese(text) else " -"
        text = shorten_line(BETWEEN_VALUES.sub(pause, text), 120)
        yield Preference(STYLE, text, None if ends else True, adds=True)
        return
    is_silent = sentence.isascii() and not ENGLISH.speaker.search(sentence)
    is_about_shop = act is DialogueAct.PREFERENCE and BOTH.shop.search(sentence)
    if (
        act not in (DialogueAct.PREFERENCE, DialogueAct.FACT)
        or is_silent
        or BOTH.not_said.search(sentence)
        or (is_about_shop and sentiment_score(sentence))
    ):
        return
    text = BOTH.remark.sub("", BOTH.closer.sub("", BOTH.itself.sub("", sentence))).strip()
    if not BOTH.fragment.search(text) and slot_for_key(text) not in KNOWN_SLOTS:
        yield Preference("", shorten_line(text, 120))


# Preferences of a clause: by predicate, or by a known value and its evaluation.


def _english_preferences(clause: str, *, asked: bool) -> list[Preference]:
    said = clause.strip()
    if ENGLISH.not_said.search(said):
        return []
    patterns = (None, ENGLISH.once), (False, ENGLISH.dislikes), (True, ENGLISH.likes)
    for liked, match in ((liked, pattern.search(said)) for liked, pattern in patterns):
        if match is None:
            continue
        if not EN.tastes.thing.search(said[match.end() :]):
            break  # what it is about stands before it: "horror is what I love most"
        turn = ENGLISH.but_disliked if liked else ENGLISH.but_liked
        rest, *others = turn.split(said[match.end() :], maxsplit=1)
        adds = BOTH.adds.search(said) is not None
        asked = asked or ENGLISH.moment.search(match[0]) is not None
        found = _object_preferences(rest, liked=liked, adds=adds, asked=asked)
        if liked is None:
            return _with_ended_dislikes(found, said)
        for other in others:
            found += _object_preferences(other, liked=not liked, adds=True, asked=True)
        if not ENGLISH.of_language.search(said):
            found = [
                replace(each, slot=LIKES, adds=True) if each.slot == "language" else each
                for each in found
            ]
        return found
    return [] if asked else _evaluation_preferences(said)


def _object_preferences(
    rest: str, *, liked: bool | None, adds: bool, asked: bool = False
) -> list[Preference]:
    """Return the preferences in the object of a verb such as "love".

    They are the known values in the object, such as genres, or else the whole object.
    """
    whole = _SENTENCE_ENDS.sub("", rest.strip()).strip(" ,;:-\"'")
    thing = ENGLISH.ends.sub("", whole).strip(" ,;:-\"'")
    named = find_values(thing)
    if not named and ENGLISH.narrowed.match(whole[len(thing) :]):
        thing, named = whole, find_values(whole)
    found = as_preferences(named, liked=liked, adds=adds)
    if (
        found
        or asked
        or ENGLISH.empty_object.match(thing)
        or len(thing) > _LONGEST_THING
        or BOTH.shop.search(thing)
    ):
        return found
    return [Preference(LIKES, thing, liked, adds=True)]


def _replacement_wishes(clause: str) -> list[Preference]:
    """Return the wishes in a clause after a dislike: "mystery please" after "no more romance"."""
    asked = EN.tastes.instead.sub("", clause)
    if not BOTH.asks_for.search(clause) or sentiment_score(asked) < 0:
        return []
    return as_preferences(
        [each for each in find_values(asked) if each[0] != "author"], liked=True, adds=True
    )


def _evaluation_preferences(said: str) -> list[Preference]:
    """Return the preferences in a clause such as "horror is great" or "horror is dull"."""
    said = EN.tastes.contrast.sub("", said)
    text = EN.tastes.instead.sub("", said)
    named = find_values(text)
    if not named or BOTH.shop.search(text):
        return []
    is_subject = min(start for _, _, start in named) <= AT_THE_BEGINNING
    before = [text[:start] for slot, _, start in named if slot != "author"]
    if any(map(ENGLISH.specific.search, before)) or not (
        is_subject or ENGLISH.speaker.search(text)
    ):
        return []
    rest = without_values(said, named)
    if BOTH.ended_dislike.search(rest):
        return _with_ended_dislikes(as_preferences(named, liked=None, adds=False), rest)
    is_report = not is_subject and ENGLISH.no_taste.search(rest) is not None
    score = 0 if is_report else sentiment_score(rest)
    if not score and not is_evaluative(rest):
        score = _habit_score(rest, {slot for slot, _, _ in named})
    return (
        as_preferences(named, liked=score > 0, adds=BOTH.adds.search(said) is not None)
        if score
        else []
    )


def _habit_score(rest: str, slots: set[str]) -> int:
    """Return 1 if a habit shows a like, -1 if it shows a dislike, 0 if neither.

    "I read horror on the train" shows a like, and "I don't read horror" a dislike.
    """
    if ENGLISH.needed.search(rest) and slots <= {"format", "language"}:
        return 1
    if not ENGLISH.as_a_rule.search(rest) or ENGLISH.no_taste.search(rest):
        return 0
    return -1 if ENGLISH.negative.search(rest) else 1


def _japanese_preferences(sentence: str) -> list[Preference]:
    found: list[Preference] = []
    parts = [part for part in JAPANESE.clauses.split(sentence) if part.strip(" 。！!")]
    carried = ""
    for at, part in enumerate(parts):
        clause = JAPANESE.rather.sub("", part.strip(" 。！!"))
        if JAPANESE.not_said.search(clause):
            continue
        if carried and not find_values(clause):
            clause = f"{carried}{clause}"
        said = _japanese_clause_preferences(clause, is_last=at == len(parts) - 1)
        said = said or (_replacement_wishes(clause) if found and found[-1].liked is False else [])
        carried = "" if said else clause if find_values(clause) else ""
        found += said
    return found


def _japanese_clause_preferences(clause: str, *, is_last: bool) -> list[Preference]:
    excepted, _, others = clause.partition("以外")
    if others and (side := _japanese_score(others, is_last=is_last)) and find_values(excepted):
        return [
            each
            for part, liked in ((excepted, side < 0), (others, side > 0))
            for each in as_preferences(find_values(part), liked=liked, adds=True)
        ]
    named = find_values(clause)
    if any(slot != "author" for slot, _, _ in named):
        named = [each for each in named if each[0] != "author"]
    thing = _japanese_thing(clause) if not named else ""
    rest = without_values(clause, named)
    if thing:  # "辛い" in 「辛いもの大好き」 is no criticism
        rest = rest.replace(thing, "*")
    if BOTH.ended_dislike.search(rest):  # "I can read Japanese now" keeps the language
        named = [each for each in named if each[0] != "language"]
    has_ended = JAPANESE.once.search(rest) or BOTH.ended_dislike.search(rest)
    side = _japanese_score(rest, is_last=is_last)
    if not (has_ended or side) or BOTH.shop.search(rest):
        return []
    liked = None if has_ended else side > 0
    found = as_preferences(named, liked=liked, adds=BOTH.adds.search(clause) is not None)
    if not found and thing and not JAPANESE.no_thing.search(thing):
        found = [Preference(LIKES, thing, liked, adds=True)]
    return _with_ended_dislikes(found, rest) if has_ended else found


def _japanese_thing(clause: str) -> str:
    match = JAPANESE.thing.search(clause)
    if match is None:
        return ""
    thing, before = match[1], clause[: match.start(1)]
    if start := JAPANESE.thing_start.search(before):
        return f"{start[1]}{thing}"
    return "" if JAPANESE.cut_thing.search(f"{before}<{thing}>") else thing


def _japanese_score(clause: str, *, is_last: bool) -> int:
    if JAPANESE.not_disliked.search(clause):
        return 0
    if JAPANESE.only.search(clause):
        return 1
    score = sentiment_score(clause)
    if JAPANESE.likes.search(clause):
        return score or 1
    if (
        score == 0
        and is_last
        and JAPANESE.object.search(clause)
        and not JAPANESE.no_taste.search(clause)
    ):
        return -1 if JAPANESE.negative.search(clause) else 1
    return score
