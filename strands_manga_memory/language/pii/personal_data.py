"""Recognizer of personal data, shared by entities, summaries, state and user memory. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from strands_manga_memory.language.pii.pii_rules import DEFAULT_RULES, PiiRule
from strands_manga_memory.language.texts.excerpts import by_stretches, matches_of

IDENTIFIERS = frozenset({"bank_account", "card", "government_id", "license", "my_number", "passport", "password", "ssn"})
"""Kinds that are never derived from a conversation: they stand in messages only. Contact data may be part of a request."""

CONTACT = frozenset({"email", "phone"})
"""Kinds that may be entities, such as a telephone number to call back."""

_REMEMBERED, _SHORT = 2_048, 400
_LONGEST = 64
"""Most characters of a match of a rule with a check."""

# Each character is replaced by one character, so positions stay the same.
_HALF_WIDTH = str.maketrans(
    {chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)} | {"　": " "} | dict.fromkeys("‐‑‒–—―−ｰ", "-")
)
_MAY_IDENTIFY = re.compile(r"(?:\d[^\d]{0,9}){3}|pass|pw|pin|パスワード|パスコード", re.IGNORECASE)
"""Text that may hold an identifier: most text does not, and is not searched by every rule."""


class PersonalData(NamedTuple):
    """Personal data in a text: name of the rule, start and end."""

    kind: str
    start: int
    end: int


def half_width_digits(text: str) -> str:
    """Return ``text`` with full-width letters, digits, signs and hyphens half-width; every character keeps its position."""
    return text if text.isascii() else by_stretches(lambda part: part.translate(_HALF_WIDTH), text)


def rule_matches(rule: PiiRule, plain: str) -> Iterator[re.Match[str]]:
    """Yield the valid matches of a rule in half-width text.

    A candidate that fails the rule's check may overlap a valid one: in "2024 4111 1111 1111 1111" the card begins at the second
    group of digits.
    """
    end = 0
    for match in matches_of(rule.pattern, plain):
        if match.start() < end:
            continue
        candidate: re.Match[str] | None = match
        while candidate is not None and candidate.start() < match.end():
            if rule.finds(candidate):
                end = candidate.end()
                yield candidate
                break
            if rule.check is None or len(match[0]) > _LONGEST:
                break
            candidate = rule.pattern.search(plain, candidate.start() + 1, match.end() + _LONGEST)


def replace_personal_data(text: str, rules: Sequence[PiiRule], replacement: Callable[[PiiRule, str], str]) -> str:
    """Return a text in which every match of the rules, tried in order, is replaced.

    Args:
        text: The text.
        rules: The rules.
        replacement: Returns the replacement of a match, from the rule and the matched half-width text.
    """
    plain = half_width_digits(text)
    for rule in rules:
        parts, end = list[str](), 0
        for match in rule_matches(rule, plain):
            parts += [text[end : match.start()], replacement(rule, match[0])]
            end = match.end()
        if parts:
            text = "".join([*parts, text[end:]])
            plain = half_width_digits(text)
    return text


def find_personal_data(text: str) -> tuple[PersonalData, ...]:
    """Return the personal data of a text by the default rules, without overlaps, in the order of the rules."""
    return _remembered(text) if len(text) <= _SHORT else _found(text)


def _found(text: str) -> tuple[PersonalData, ...]:
    plain = half_width_digits(text)
    taken, found = bytearray(len(plain)), list[PersonalData]()
    for rule in DEFAULT_RULES:
        for match in rule_matches(rule, plain):
            start, end = match.span()
            if taken.find(1, start, end) < 0:
                taken[start:end] = b"\1" * (end - start)
                found.append(PersonalData(rule.name, start, end))
    return tuple(found)


_remembered = lru_cache(_REMEMBERED)(_found)

_IDENTIFIER_RULES = tuple(rule for rule in DEFAULT_RULES if rule.name in IDENTIFIERS)


def without_identifiers(text: str) -> str:
    """Return a text with cards, accounts, passwords and numbers of official documents replaced, as in ``[card]``.

    Summaries, facts and state are made from the result. Contact data stays: an address may be what a request is about.
    """
    return _remembered_without(text) if len(text) <= _SHORT else _without(text)


def _without(text: str) -> str:
    if _MAY_IDENTIFY.search(half_width_digits(text)) is None:
        return text
    return replace_personal_data(text, _IDENTIFIER_RULES, lambda rule, _: f"[{rule.name}]")


_remembered_without = lru_cache(_REMEMBERED)(_without)


def value_without_identifiers(value: Any) -> Any:
    """Return a JSON value whose texts, and numbers that are identifiers, are replaced as by ``without_identifiers``."""
    if isinstance(value, dict):
        return {key: value_without_identifiers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [value_without_identifiers(item) for item in value]
    if isinstance(value, str):
        return without_identifiers(value)
    if isinstance(value, int) and not isinstance(value, bool) and (cleaned := without_identifiers(str(value))) != str(value):
        return cleaned
    return value
