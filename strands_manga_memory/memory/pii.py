"""PiiPolicy: personal data that must not be remembered, found by rules, in English and Japanese (mission D4). Pure.

The rules are data. They look for forms, not for meaning: an address without a number, or a name, is not found.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from strands_manga_memory.exceptions import PersonalDataError
from strands_manga_memory.stores.codec import Cipher

Action = Literal["redact", "encrypt", "refuse"]

# Full-width forms have the width of one character in both scripts, so positions stay what they are.
_HALF = str.maketrans(
    {chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)} | {"　": " "} | dict.fromkeys("‐‑‒–—―−ｰ", "-")
)
_SEALED = re.compile(r"\[pii:([a-z_]+):([A-Za-z0-9+/=]+)\]")
_PREFECTURES = (
    "北海道|東京都|京都府|大阪府|(?:青森|岩手|宮城|秋田|山形|福島|茨城|栃木|群馬|埼玉|千葉|神奈川|新潟|富山|石川|福井|山梨|長野|岐阜|静岡|愛知"
    "|三重|滋賀|兵庫|奈良|和歌山|鳥取|島根|岡山|広島|山口|徳島|香川|愛媛|高知|福岡|佐賀|長崎|熊本|大分|宮崎|鹿児島|沖縄)県"
)
_KANJI_NUMBER = r"[0-9一二三四五六七八九十百]+"
_BLOCK = rf"{_KANJI_NUMBER}(?:丁目|番地?|号|[-ー]|の(?=[0-9]))"
_STREET = (
    r"(?:Street|St|Avenue|Ave|Road|Rd|Boulevard|Blvd|Lane|Ln|Drive|Dr|Court|Ct|Way|Place|Pl|Terrace|Ter|Circle|Cir|Parkway|Pkwy"
    r"|Highway|Hwy|Square|Sq|Trail|Trl|Broadway|Alley|Loop)"
)


@dataclass(frozen=True)
class PiiRule:
    """One kind of personal data.

    Args:
        name: What it is called in place of the data: lower case letters and underscores.
        pattern: Finds it, in text whose full-width letters, digits and signs are made half-width.
        check: Tells whether a text that the pattern found is really of this kind. Default: it is.
        action: ``redact`` (default): replaced by ``[name]``. ``encrypt``: replaced by an encrypted form that the store opens on
            reading. ``refuse``: nothing of the text is stored.

    Raises:
        ValueError: The name or the action is not allowed.
    """

    name: str
    pattern: re.Pattern[str]
    check: Callable[[str], bool] | None = None
    action: Action = "redact"

    def __post_init__(self) -> None:
        if not re.fullmatch("[a-z_]+", self.name):
            raise ValueError(f"name must be lower case letters and underscores, got {self.name!r}")
        if self.action not in get_args(Action):
            raise ValueError(f"action must be one of {', '.join(map(repr, get_args(Action)))}, got {self.action!r}")


def _digits(text: str) -> str:
    return re.sub(r"\D", "", text)


def is_card_number(text: str) -> bool:
    """Tell whether the digits of a text are a payment card's: an issuer's prefix, 13 to 19 digits, and Luhn's check digit."""
    digits = _digits(text)
    if not 13 <= len(digits) <= 19 or not re.match(r"4|5[1-5]|2[2-7]|3[04-68]|6[024-9]|50|5[6-9]", digits):
        return False
    doubled = [int(digit) * (1 + at % 2) for at, digit in enumerate(reversed(digits))]
    return sum(number - 9 if number > 9 else number for number in doubled) % 10 == 0


def is_my_number(text: str) -> bool:
    """Tell whether the 12 digits of a text have the check digit of a Japanese individual number."""
    digits = [int(digit) for digit in _digits(text)]
    if len(digits) != 12:
        return False
    rest = sum(digit * (n + 1 if n <= 6 else n - 5) for n, digit in enumerate(reversed(digits[:11]), start=1)) % 11
    return digits[11] == (0 if rest <= 1 else 11 - rest)


def _is_japanese_phone(text: str) -> bool:
    digits = _digits(text)
    if text.lstrip().startswith("+"):
        digits = f"0{digits[2:].lstrip('0')}"
    return len(digits) in (10, 11) and digits[0] == "0" and digits[1] != "0" and (len(digits) == 10 or digits[1:3] in _ELEVEN)


_ELEVEN = frozenset({"20", "50", "60", "70", "80", "90", "12"})


def _compiled(pattern: str, *, ignore_case: bool = False) -> re.Pattern[str]:
    # ASCII: a Japanese letter beside a number is no part of it, so it must not count as a letter of the same word.
    return re.compile(pattern, re.ASCII | (re.IGNORECASE if ignore_case else re.ASCII))


DEFAULT_RULES: tuple[PiiRule, ...] = (
    PiiRule(
        "email",
        _compiled(
            r"(?<![A-Za-z0-9._%+'-])[A-Za-z0-9._%+'-]{1,64}(?:@|\s?[(\[]\s?at\s?[)\]]\s?)"
            r"(?:[A-Za-z0-9-]{1,63}(?:\.|\s?[(\[]\s?dot\s?[)\]]\s?)){1,8}[A-Za-z]{2,24}",
            ignore_case=True,
        ),
    ),
    PiiRule("card", _compiled(r"(?<![\w-])\d(?:[ .-]{0,2}\d){12,18}(?![\w]|-\d)"), is_card_number),
    PiiRule("my_number", _compiled(r"(?<![\w-])\d{4}[ -]?\d{4}[ -]?\d{4}(?![\w]|-\d)"), is_my_number),
    PiiRule(
        "my_number",
        _compiled(r"(?:マイナンバー|個人番号|my ?number)[^\d\n]{0,20}\d{4}[ -]?\d{4}[ -]?\d{4}(?!\d)", ignore_case=True),
    ),
    PiiRule(
        "phone",
        _compiled(
            r"(?<![\w.-])(?:\+81[ .-]?(?:\(0\))?|\(?0)\d{1,4}\)?(?:[ .()-]{0,2}\d{1,4}){1,2}[ .()-]{0,2}\d{3,4}(?!\d|-\d)"
        ),
        _is_japanese_phone,
    ),
    PiiRule(
        "phone",
        _compiled(
            r"(?<![\w.-])(?:(?:\+?1[ .-]?)?\([2-9]\d{2}\)[ .-]?\d{3}[ .-]?\d{4}|(?:\+?1[ .-]?)?[2-9]\d{2}[ .-]\d{3}[ .-]\d{4}"
            r"|\+1[ ]?[2-9]\d{9})(?![\w]|-\d)"
        ),
    ),
    PiiRule(
        "phone",
        _compiled(
            r"\b(?:phone|tel|telephone|mobile|cell|call|text|reach|fax)\b[^\d\n]{0,24}"
            r"(?:\+?1[ .-]?)?[2-9]\d{2}[ .-]?\d{3}[ .-]?\d{4}(?!\d)",
            ignore_case=True,
        ),
    ),
    PiiRule("address", _compiled(r"〒\s?\d{3}-?\d{4}")),
    PiiRule(
        "address",
        _compiled(
            rf"(?:〒?\s?\d{{3}}-?\d{{4}}\s*)?(?:{_PREFECTURES})[^\d\n、。,]{{1,24}}?(?:{_BLOCK})+(?:{_KANJI_NUMBER})?(?:号室?|号棟)?"
            r"(?:[ ]?[^\s、。,]{1,16}?(?:[0-9]{1,4}号室?|[0-9]{3,4}(?!\d)))?"
        ),
    ),
    PiiRule(
        "address",
        _compiled(
            rf"[一-龥ァ-ヶぁ-んー]{{1,8}}[市区町村郡](?!長|民|場)[一-龥ァ-ヶぁ-んー]{{0,12}}(?:{_BLOCK})+(?:{_KANJI_NUMBER})?(?:号室?)?"
        ),
    ),
    PiiRule(
        "address",
        _compiled(
            rf"\b\d{{1,6}}[A-Za-z]?\s+(?:(?:[NSEW]|North|South|East|West|NE|NW|SE|SW)\.?\s+)?(?:[A-Z0-9][\w'.-]*\s+){{1,4}}?{_STREET}\b\.?"
            r"(?:\s+(?:[NSEW]{1,2}|North|South|East|West))?"
            r"(?:,?\s*(?:#|(?:Apt|Apartment|Suite|Ste|Unit|Floor|Fl)\b\.?)\s*[\w-]+)?"
            r"(?:,\s*[A-Z][\w .'-]{1,30}(?:,?\s+[A-Z]{2})?(?:\s+\d{5}(?:-\d{4})?)?)?"
        ),
    ),
    PiiRule(
        "address",
        _compiled(r"\bP\.?\s?O\.?\s?Box\s+\d+(?:,\s*[A-Z][\w .'-]{1,30},?\s+[A-Z]{2}\s+\d{5}(?:-\d{4})?)?", ignore_case=True),
    ),
    PiiRule(
        "address",
        _compiled(
            r"\b(?:[A-Z][\w' -]{1,30} \d{2,4}, )?\d{1,4}-\d{1,4}(?:-\d{1,4})? [A-Z][\w'-]{1,30}"
            r"(?:[ ,]{1,3}[A-Z][\w'-]{0,30}){0,6}?"
            r"(?:-ku|-shi|-cho|-machi|-ken|-to|-fu|, Tokyo|, Osaka|, Kyoto)\b"
            r"(?:[ ,]{1,3}[A-Z][\w'-]{0,30}){0,6}(?:[ ,]{1,3}\d{3}-\d{4})?"
        ),
    ),
    PiiRule("address", _compiled(r"\b[A-Z][a-z]+(?: [A-Z][a-z]+)?, [A-Z]{2} \d{5}(?:-\d{4})?\b")),
)
"""E-mail, payment card, My Number, Japanese and US phone, Japanese and US postal address."""


class PiiPolicy:
    """What becomes of personal data in a text before anything of it is stored.

    Args:
        rules: The rules, tried in order. Default ``DEFAULT_RULES``; ``()`` keeps everything.
        actions: Actions by name of rule, over those of the rules: ``{"card": "refuse"}``.
        cipher: Encrypts for rules whose action is ``encrypt``, and opens on reading.

    Raises:
        ValueError: An action is unknown, names no rule, or is ``encrypt`` without a cipher.
    """

    def __init__(
        self,
        rules: tuple[PiiRule, ...] = DEFAULT_RULES,
        *,
        actions: Mapping[str, Action] | None = None,
        cipher: Cipher | None = None,
    ) -> None:
        wanted = dict(actions or {})
        unknown = sorted(set(wanted) - {rule.name for rule in rules})
        if unknown:
            raise ValueError(f"actions must name rules, got {unknown}; there are {sorted({rule.name for rule in rules})}")
        self._rules = tuple(replace(rule, action=wanted.get(rule.name, rule.action)) for rule in rules)
        if cipher is None and any(rule.action == "encrypt" for rule in self._rules):
            raise ValueError("cipher must be given for the action 'encrypt', such as AesGcmCipher(...)")
        self._cipher = cipher

    def applied(self, text: str, *, place: str = "") -> str:
        """Return a text with its personal data replaced.

        Args:
            text: The text.
            place: Whose data it is; what is encrypted can be read only there.

        Raises:
            PersonalDataError: A rule refuses it. Its message names the rule, not the data.
        """
        for rule in self._rules:
            plain = text.translate(_HALF)
            for match in reversed(list(rule.pattern.finditer(plain))):
                if rule.check is not None and not rule.check(match[0]):
                    continue
                if rule.action == "refuse":
                    raise PersonalDataError(f"the text holds personal data ({rule.name}), which the policy refuses to store")
                text = text[: match.start()] + self._replacement(rule, match[0], place) + text[match.end() :]
        return text

    def _replacement(self, rule: PiiRule, found: str, place: str) -> str:
        if rule.action == "encrypt" and self._cipher is not None:
            sealed = base64.b64encode(self._cipher.encrypt(found.encode(), place)).decode("ascii")
            return f"[pii:{rule.name}:{sealed}]"
        return f"[{rule.name}]"

    def applied_to(self, value: Any, *, place: str = "") -> Any:
        """Return a value with every text in it, keys of dicts too, treated by ``applied``."""
        if isinstance(value, str):
            return self.applied(value, place=place)
        if isinstance(value, Mapping):
            return {self.applied(str(key), place=place): self.applied_to(item, place=place) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.applied_to(item, place=place) for item in value]
        return value

    def opened(self, text: str, *, place: str = "") -> str:
        """Return a text with what was encrypted for ``place`` in the clear; what cannot be opened is ``[name]``."""
        if "[pii:" not in text:
            return text

        def clear(match: re.Match[str]) -> str:
            try:
                if self._cipher is not None:
                    return self._cipher.decrypt(base64.b64decode(match[2]), place).decode()
            except ValueError:
                pass
            return f"[{match[1]}]"

        return _SEALED.sub(clear, text)
