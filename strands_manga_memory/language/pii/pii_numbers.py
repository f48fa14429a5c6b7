"""Numbers of personal data: whether digits that were found are really such a number, by check digits and plans. Pure."""

from __future__ import annotations

import ipaddress
import re

_NO_DIGIT = re.compile(r"\D")
_ISSUER = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|(?:222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720)\d{12}"  # Visa, Mastercard
    r"|3[47]\d{13}|(?:30[0-5]|3[689]\d)\d{11}|35(?:2[89]|[3-8]\d)\d{12}"  # American Express, Diners Club, JCB
    r"|(?:6011|64[4-9]\d|65\d\d)\d{12}|62\d{14,17}|(?:5[06-9]|6\d)\d{11,17}"  # Discover, UnionPay, Maestro
)
"""Prefixes of the issuers of payment cards, and the lengths of their numbers."""


def _digits(text: str) -> str:
    return _NO_DIGIT.sub("", text)


def is_card_number(text: str) -> bool:
    """Tell whether the digits of a text are a payment card's: an issuer's prefix and length, and Luhn's check digit.

    Thirteen digits that are a valid article number (EAN, JAN, ISBN) are none: cards of that length are no longer issued.
    """
    digits = _digits(text)
    if _ISSUER.fullmatch(digits) is None or text.count("\n") > 1 or (len(digits) == 13 and _is_article_number(digits)):
        return False
    doubled = [int(digit) * (1 + at % 2) for at, digit in enumerate(reversed(digits))]
    return sum(number - 9 if number > 9 else number for number in doubled) % 10 == 0


def _is_article_number(digits: str) -> bool:
    return sum(int(digit) * (1 + 2 * (at % 2)) for at, digit in enumerate(digits)) % 10 == 0


def is_my_number(text: str) -> bool:
    """Tell whether the 12 digits of a text have the check digit of a Japanese individual number."""
    digits = [int(digit) for digit in _digits(text)]
    if len(digits) != 12:
        return False
    rest = sum(digit * (n + 1 if n <= 6 else n - 5) for n, digit in enumerate(reversed(digits[:11]), start=1)) % 11
    return digits[11] == (0 if rest <= 1 else 11 - rest)


def is_japanese_phone(text: str) -> bool:
    """Tell whether digits have the length and the beginning of a number of Japan."""
    digits = _digits(text)
    if text.lstrip().startswith("+"):
        digits = f"0{digits[2:].lstrip('0')}"
    return len(digits) in (10, 11) and digits[0] == "0" and digits[1] != "0" and (len(digits) == 10 or digits[1:3] in _ELEVEN)


_ELEVEN = frozenset({"20", "50", "60", "70", "80", "90", "12"})


def is_us_phone(text: str) -> bool:
    """Tell whether ten digits that stand alone are a number of North America, and not an ISBN."""
    import phonenumbers  # its metadata are large, and most texts hold nothing like a number

    checksum = sum(int(digit) * weight for digit, weight in zip(text, range(10, 0, -1), strict=True))
    return checksum % 11 != 0 and phonenumbers.is_valid_number(phonenumbers.parse(text, "US"))


def is_international_phone(text: str) -> bool:
    """Tell whether a number with its country's code may exist."""
    import phonenumbers

    try:
        return phonenumbers.is_possible_number(phonenumbers.parse(text))
    except phonenumbers.NumberParseException:
        return False


def is_ip_address(text: str) -> bool:
    """Tell whether a text is an address of the internet's protocol, and of no machine itself."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified) and text.count(".") != 1


def is_iban(text: str) -> bool:
    """Tell whether letters and digits have the check digits of an international account number."""
    plain = text.replace(" ", "")
    return 15 <= len(plain) <= 34 and int("".join(str(int(sign, 36)) for sign in plain[4:] + plain[:4])) % 97 == 1


def is_ssn(text: str) -> bool:
    """Tell whether nine digits may be a US social security number."""
    digits = _digits(text)
    return digits[:3] not in ("000", "666") and digits[0] != "9" and digits[3:5] != "00" and digits[5:] != "0000"
