"""Search and replacement of personal data in English and Japanese text.

Rules match the form of the data and the words before it. Names, and addresses without a number,
are not found.
"""

from __future__ import annotations

import ipaddress
import itertools
import re
import string
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from strands_manga_memory.arguments import check_instance
from strands_manga_memory.language.packs import cached_if_short, in_context, load_pack
from strands_manga_memory.messages.texts import find_matches

_NO_DIGIT = re.compile(r"\D")
_ISSUER = re.compile(
    # Visa, Mastercard
    r"4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|(?:222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720)\d{12}"
    # American Express, Diners Club, JCB
    r"|3[47]\d{13}|(?:30[0-5]|3[689]\d)\d{11}|35(?:2[89]|[3-8]\d)\d{12}"
    # Discover, UnionPay, Maestro
    r"|(?:6011|64[4-9]\d|65\d\d)\d{12}|62\d{14,17}|(?:5[06-9]|6\d)\d{11,17}"
)
"""Prefixes of the issuers of payment cards, with the lengths of the card numbers."""


def _digits(text: str) -> str:
    return _NO_DIGIT.sub("", text)


def is_card_number(text: str) -> bool:
    """Return whether the digits of a text are a valid payment card number.

    The digits must have the prefix of an issuer, a valid length and a valid check digit. Thirteen
    digits that are a valid article number, such as an ISBN, are not a card number.
    """
    digits = _digits(text)
    if (
        _ISSUER.fullmatch(digits) is None
        or text.count("\n") > 1
        or (len(digits) == 13 and is_article_number(digits))
    ):
        return False
    doubled = (int(digit) * (1 + at % 2) for at, digit in enumerate(reversed(digits)))
    return sum(number - 9 if number > 9 else number for number in doubled) % 10 == 0


def is_article_number(digits: str) -> bool:
    """Return whether the check digit of an article number, such as a 13-digit ISBN, is valid."""
    return _weighted_sum(digits, itertools.cycle((1, 3))) % 10 == 0


def _weighted_sum(digits: str, weights: Iterable[int]) -> int:
    return sum(int(digit) * weight for digit, weight in zip(digits, weights, strict=False))


def is_my_number(text: str) -> bool:
    """Return whether a text is a valid Japanese individual number (My Number).

    It must have 12 digits, the last of which is a valid check digit.
    """
    digits = _digits(text)
    rest = _weighted_sum(digits, (6, 5, 4, 3, 2, 7, 6, 5, 4, 3, 2)) % 11
    return len(digits) == 12 and int(digits[11]) == (0 if rest <= 1 else 11 - rest)


def is_japanese_phone(text: str) -> bool:
    """Return whether a text has the length and the prefix of a Japanese phone number."""
    digits = _digits(text)
    if text.lstrip().startswith("+"):
        digits = f"0{digits[2:].lstrip('0')}"
    return _JAPANESE_PHONE.fullmatch(digits) is not None


_JAPANESE_PHONE = re.compile(r"0(?:[1-9]\d{8}|(?:[25-9]0|12)\d{8})")


def is_us_phone(text: str) -> bool:
    """Return whether ten digits are a valid North American phone number, and no valid ISBN."""
    import phonenumbers  # its metadata are large, and most texts hold nothing like a number

    is_isbn = _weighted_sum(text, range(10, 0, -1)) % 11 == 0
    return not is_isbn and phonenumbers.is_valid_number(phonenumbers.parse(text, "US"))


def is_international_phone(text: str) -> bool:
    """Return whether a text is a possible phone number with a country code."""
    import phonenumbers

    try:
        return phonenumbers.is_possible_number(phonenumbers.parse(text))
    except phonenumbers.NumberParseException:
        return False


def is_ip_address(text: str) -> bool:
    """Return whether a text is an IP address that may identify a device, unlike ``127.0.0.1``."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified) and text.count(".") != 1


def is_iban(text: str) -> bool:
    """Return whether a text has the length and the check digits of a bank account number (IBAN)."""
    plain = text.replace(" ", "")
    return (
        15 <= len(plain) <= 34
        and int("".join(str(int(sign, 36)) for sign in plain[4:] + plain[:4])) % 97 == 1
    )


Action = Literal["redact", "encrypt", "refuse"]

_OF_NAMES = string.ascii_lowercase + "_"
_AROUND = 40


@dataclass(frozen=True)
class PiiRule:
    """Rule for one kind of personal data.

    Args:
        name: Name of the kind of data, in lower case letters and underscores.
        pattern: Pattern of the data. It is searched in a copy of the text with half-width instead
            of full-width characters.
        check: Function that validates the text of a match. Default: every match is valid.
        action: Treatment of the data. ``redact`` (default) replaces the data by ``[name]``.
            ``encrypt`` replaces the data by an encrypted form, which the store decrypts on reading.
            With ``refuse``, no part of the text is stored.
        unless: Pattern for a context in which a match is not personal data. The pattern is searched
            in a text of the form ``before<match>after``, with at most 40 characters before and
            after the match. Default: none.

    Raises:
        ValueError: The name, the pattern or the action is not allowed.
    """

    name: str
    pattern: re.Pattern[str]
    check: Callable[[str], bool] | None = None
    action: Action = "redact"
    unless: re.Pattern[str] | None = None

    def __post_init__(self) -> None:
        check_instance("pattern", self.pattern, re.Pattern, "a compiled pattern")
        if not self.name or self.name.strip(_OF_NAMES):
            raise ValueError(
                f"name must be lower case letters and underscores, got {self.name!r:.80}"
            )
        if self.action not in get_args(Action):
            raise ValueError(
                f"action must be one of {', '.join(map(repr, get_args(Action)))}, got"
                f" {self.action!r:.80}"
            )

    def finds(self, match: re.Match[str]) -> bool:
        """Return whether a match of the rule's pattern is personal data.

        The result is False if ``check`` rejects the match, or if ``unless`` matches the text around
        the match.
        """
        if self.check is not None and not self.check(match[0]):
            return False
        context = in_context(match.string, *match.span(), _AROUND)
        return self.unless is None or self.unless.search(context) is None


_PACK = load_pack("personal_data")
_CHECKS: dict[str, Callable[[str], bool]] = {
    check.__name__: check
    for check in (
        *(is_card_number, is_iban, is_international_phone, is_ip_address),
        *(is_japanese_phone, is_my_number, is_us_phone),
    )
}

DEFAULT_RULES = tuple(
    PiiRule(
        rule.key,
        rule.pattern,
        _CHECKS.get(rule.check),
        unless=getattr(_PACK.around, rule.unless, None),
    )
    for rule in _PACK.rules("personal_data")
)
"""Rules for e-mail, password, birthday, SSN, passport, driver's license, insurance and pension
numbers, bank account, IP address, card, My Number, phone and address."""


IDENTIFIERS = frozenset(
    {"bank_account", "card", "government_id", "license", "my_number", "passport", "password", "ssn"}
)
"""Kinds of data that are removed from summaries, facts and state.

Contact data stays, because a request may be about an address."""

CONTACT = frozenset({"email", "phone"})
"""Kinds of personal data that may be entities, such as a telephone number to call back."""

_LONGEST = 64
"""Most characters of an invalid match in which a valid match is searched."""

# Each character is replaced by one character, so positions stay the same.
_HALF_WIDTH = str.maketrans(
    {chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
    | {"　": " ", "￥": "¥"}
    | dict.fromkeys("‐‑‒–—―−ｰ", "-")
)
_WIDE = re.compile(r"[！-～　￥‐‑‒–—―−ｰ]+")
_MAY_IDENTIFY = re.compile(r"\d(?:\D{0,9}\d){2}|[pP](?i:ass|w|in)|パス(?:ワ|コ)ード")
"""Pattern of text that may contain an identifier. Other text is not searched by the rules."""


class PersonalData(NamedTuple):
    """Position of personal data in a text.

    Attributes:
        kind: Name of the rule that found the data.
        start: Position of the first character.
        end: Position after the last character.
    """

    kind: str
    start: int
    end: int


def half_width(text: str) -> str:
    """Replace full-width letters, digits and signs in a text by half-width ones.

    For example, ``１`` becomes ``1``. Every character keeps its position.
    """
    return text if text.isascii() else _WIDE.sub(lambda run: run[0].translate(_HALF_WIDTH), text)


def rule_matches(rule: PiiRule, plain: str) -> Iterator[re.Match[str]]:
    """Yield the parts of a text that are personal data of one kind, such as card numbers.

    If a match fails the rule's check, such as a checksum, the search continues at its second
    character: "2024 4111 1111 1111 1111" contains a card number after "2024". ``plain`` is the
    text in half-width characters, from ``half_width``.
    """
    end = 0
    for match in find_matches(rule.pattern, plain):
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


def replace_personal_data(
    text: str, rules: Sequence[PiiRule], replacement: Callable[[PiiRule, str], str]
) -> str:
    """Replace the personal data that rules find in a text, and return the changed text.

    Args:
        text: Text to search.
        rules: Rules in the order in which they are applied.
        replacement: Function that returns the replacement, given the rule and the matched text in
            half-width characters.
    """
    plain = half_width(text)
    for rule in rules:
        parts, end = list[str](), 0
        for match in rule_matches(rule, plain):
            parts += [text[end : match.start()], replacement(rule, match[0])]
            end = match.end()
        if parts:
            text = "".join([*parts, text[end:]])
            plain = half_width(text)
    return text


@cached_if_short
def find_personal_data(text: str) -> tuple[PersonalData, ...]:
    """Find the personal data in a text, such as card and phone numbers, by the default rules.

    If matches of two rules overlap, only the match of the earlier rule is returned.
    """
    plain = half_width(text)
    taken, found = bytearray(len(plain)), list[PersonalData]()
    for rule in DEFAULT_RULES:
        for match in rule_matches(rule, plain):
            start, end = match.span()
            if taken.find(1, start, end) < 0:
                taken[start:end] = b"\1" * (end - start)
                found.append(PersonalData(rule.name, start, end))
    return tuple(found)


_IDENTIFIER_RULES = tuple(rule for rule in DEFAULT_RULES if rule.name in IDENTIFIERS)


@cached_if_short
def redact_identifiers(text: str) -> str:
    """Replace identifiers in a text, such as card numbers, by names such as ``[card]``.

    Identifiers are passwords, and numbers of cards, accounts and official documents. Contact data,
    such as an address, is not replaced.
    """
    if next(find_matches(_MAY_IDENTIFY, half_width(text)), None) is None:
        return text
    return replace_personal_data(text, _IDENTIFIER_RULES, lambda rule, _: f"[{rule.name}]")
