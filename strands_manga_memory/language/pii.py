"""Personal data: rules, checks of numbers, recognition and replacement, in English and Japanese. Pure.

Rules look for forms and for the words before them, not for meaning: an address without a number, or a name, is not found.
"""

from __future__ import annotations

import ipaddress
import re
import string
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args

from strands_manga_memory.messages.text_excerpts import find_matches, map_stretches

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


Action = Literal["redact", "encrypt", "refuse"]

_OF_NAMES = string.ascii_lowercase + "_"
_AROUND = 40
_PREFECTURES = (
    "北海道|東京都|京都府|大阪府|(?:青森|岩手|宮城|秋田|山形|福島|茨城|栃木|群馬|埼玉|千葉|神奈川|新潟|富山|石川|福井|山梨|長野|岐阜|静岡|愛知"
    "|三重|滋賀|兵庫|奈良|和歌山|鳥取|島根|岡山|広島|山口|徳島|香川|愛媛|高知|福岡|佐賀|長崎|熊本|大分|宮崎|鹿児島|沖縄)県"
)
_KANJI_NUMBER = r"[0-9一二三四五六七八九十百]+"
_BLOCK = rf"{_KANJI_NUMBER}(?:丁目|番地?|号|条[東西南北]|[-ー]|の(?=[0-9]))"
_STREET = (
    r"(?:Street|St|Avenue|Ave|Road|Rd|Boulevard|Blvd|Lane|Ln|Drive|Dr|Court|Ct|Way|Place|Pl|Terrace|Ter|Circle|Cir|Parkway|Pkwy"
    r"|Highway|Hwy|Square|Sq|Trail|Trl|Broadway|Alley|Loop)"
)


@dataclass(frozen=True)
class PiiRule:
    """One kind of personal data.

    Args:
        name: Its name, which replaces the data: lower case letters and underscores.
        pattern: Finds it, in text whose full-width letters, digits and signs are made half-width.
        check: Validates a match of the pattern. Default: every match is valid.
        action: ``redact`` (default): replaced by ``[name]``. ``encrypt``: replaced by an encrypted form that the store opens on
            reading. ``refuse``: nothing of the text is stored.
        unless: What around it says that it is something else: searched in up to 40 characters before it, ``<``, what was found,
            ``>``, and up to 40 characters behind it. Default: nothing does.

    Raises:
        ValueError: The name or the action is not allowed.
    """

    name: str
    pattern: re.Pattern[str]
    check: Callable[[str], bool] | None = None
    action: Action = "redact"
    unless: re.Pattern[str] | None = None

    def __post_init__(self) -> None:
        if not self.name or self.name.strip(_OF_NAMES):
            raise ValueError(f"name must be lower case letters and underscores, got {self.name!r:.80}")
        if self.action not in get_args(Action):
            raise ValueError(f"action must be one of {', '.join(map(repr, get_args(Action)))}, got {self.action!r:.80}")

    def finds(self, match: re.Match[str]) -> bool:
        """Whether a match of the pattern is of this kind, given the text around it."""
        if self.check is not None and not self.check(match[0]):
            return False
        if self.unless is None:
            return True
        start, end = match.span()
        text = match.string
        around = f"{text[max(0, start - _AROUND) : start]}<{match[0]}>{text[end : end + _AROUND]}"
        return self.unless.search(around) is None


def _in_ascii(pattern: str, *, ignore_case: bool = False) -> re.Pattern[str]:
    # ASCII: a Japanese letter beside a number is no part of it, so it must not count as a letter of the same word.
    return re.compile(pattern, re.ASCII | (re.IGNORECASE if ignore_case else re.ASCII))


_SAYS = r"[^\d\n。.!?]{0,24}?"
"""Words that may stand between the name of a number and the number."""
_NO = r"(?:[ ]?(?:number|num\b\.?|no\b\.?|nr\b\.?|#|№|の?(?:番号|ナンバー)))"
"""Forms of "number" behind the name of a document or an account."""
_IS = r"(?:\s?(?:is|was|:|=|は|が|に|第|-){1,2})?\s?"
"""Words between a name that is followed directly by its number, and the number."""
_SIGN = r"記号[^\d\n]{0,4}\d{1,8}[^\d\n]{0,4}"
"""First of the two numbers of an insurance card."""
_NO_DATE = r"(?!(?:19|20)\d\d[ -]\d{1,2}[ -]\d{1,2}(?!\d))"
_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}"
_DATE = (
    rf"(?:{_MONTH}\.? \d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?|\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {_MONTH}(?:,? \d{{4}})?"
    r"|\d{1,4}[/.-]\d{1,2}[/.-]\d{1,4}|(?:\d{4}|(?:昭和|平成|令和|大正)(?:\d{1,2}|元))年\d{1,2}月\d{1,2}日|\d{1,2}月\d{1,2}日)"
)

_THINGS_NUMBER = _in_ascii(
    r"\b(?!(?:tele)?phones?\b|tel\b|mobile|cell|contact|fax|home|work|office|emergency|whatsapp|(?:my|your|our|his|her|their|the"
    r"|this|that|an?|new|old|best|right|wrong|same|other)\b)[a-z][a-z-]{1,20} (?:number|no\.?|code|id|#)(?: is| was|:)?\W{0,3}<"
    r"|\b(?:item|order|tracking|invoice|ticket|reference|ref|sku|ean|upc|jan|isbn|product|serial|case|part|model)\b\W{0,3}<"
    r"|(?<!電話)(?<!携帯)(?<!連絡先)(?<!FAX)番号(?:は|が|:)?\s?<\d+>",
    ignore_case=True,
)
"""A number that is named as that of a thing, and no telephone's."""
_PARCEL = _in_ascii(
    r"(?:伝票|追跡|送り状|問い?合わ?せ|荷物|注文|受付|予約|会員|商品|管理|tracking|order|invoice|shipment|parcel|waybill|item|sku|ticket"
    r"|reference)[^\d<]{0,20}<",
    ignore_case=True,
)
"""Name of a parcel's or an order's number: those often have twelve digits, as individual numbers have."""
_COUNTED = (
    r"(?:versions?|ver|v|release|firmware|build|revision|patch|chapters?|sections?|バージョン|ファームウェア|リリース|ビルド"
    r"|版|章)"
)
_VERSION = _in_ascii(
    rf"(?:(?<![a-z]){_COUNTED}(?: number| no\.?)?(?: is| was| to| from|は|が|を|の|に|:|\.)?\s?<"
    rf"|>\s?(?:の|of )?{_COUNTED}(?![a-z])|> (?:is|was|for) (?:an? |the )?(?:[\w-]{{1,20}} ){{0,3}}?{_COUNTED}(?![a-z]))",
    ignore_case=True,
)
"""Numbers with dots that are a version or a chapter, and no IP address."""


DEFAULT_RULES: tuple[PiiRule, ...] = (
    PiiRule(
        "email",
        _in_ascii(
            r"(?<![A-Za-z0-9._%+'-])[A-Za-z0-9._%+'-]{1,64}(?:@|\s?[(\[{<【〔]\s?(?:at|アット(?:マーク)?|あっと)\s?[)\]}>】〕]\s?)"
            r"(?:[A-Za-z0-9-]{1,63}(?:\.|\s?[(\[{<【〔]\s?(?:dot|ドット|どっと)\s?[)\]}>】〕]\s?)){1,8}[A-Za-z]{2,24}"
            r"|(?<![A-Za-z0-9._%+'-])[A-Za-z0-9._%+'-]{1,64}\s?(?:\bat\b|アット(?:マーク)?)\s?[A-Za-z0-9-]{1,63}"
            r"(?:\s?(?:\bdot\b|ドット)\s?[A-Za-z0-9-]{2,24}){0,3}\s?(?:\bdot\b|ドット)\s?[A-Za-z]{2,4}(?![A-Za-z0-9-])",
            ignore_case=True,
        ),
    ),
    PiiRule(
        "email",
        _in_ascii(
            r"(?<![\w.%+-])[A-Za-z0-9_%+-]{1,64}(?: ?\. ?[A-Za-z0-9_%+-]{1,64}){0,4} ?@ ?[A-Za-z0-9-]{1,63}"
            r"(?: ?\. ?[A-Za-z0-9-]{2,63}){1,4}(?![\w-])",
        ),
    ),
    PiiRule(
        "password",
        _in_ascii(
            r"(?:\b(?:password|passcode|passphrase|pass ?word|pwd|pw|pin(?: code| number)?)|パスワード|暗証番号|パスコード)"
            r"(?:(?: is| was|:|=| -){1,2}|\s?(?:は|が))\s?(?!(?:wrong|not|reset|expired|too|the|a|my|incorrect"
            r"|in|so|and|safe)\b)"
            r"[!-~]{4,64}",
            ignore_case=True,
        ),
    ),
    PiiRule(
        "birthday",
        _in_ascii(
            rf"(?:\b(?:born(?: on)?|birthday|birth ?date|date of birth|d\.?o\.?b\.?)\b|誕生日|生年月日){_SAYS}{_DATE}"
            rf"|{_DATE}(?:生まれ|に生まれ)",
            ignore_case=True,
        ),
    ),
    PiiRule("ssn", _in_ascii(r"(?<![\w-])\d{3}-\d{2}-\d{4}(?![\w-])"), is_ssn),
    PiiRule(
        "ssn",
        _in_ascii(
            rf"\b(?:s\.?s\.?n\.?|itin|soc(?:ial|\.)?(?: ?sec(?:urity|\.)?)?)(?![a-z]){_NO}?{_SAYS}"
            r"\d{3}[ .-]?\d{2}[ .-]?\d{4}(?![\w-])"
            rf"|\b(?:national insurance|nino?)(?![a-z]){_NO}?{_SAYS}[a-z]{{2}}(?: ?\d{{2}}){{3}} ?[a-d](?![\w-])",
            ignore_case=True,
        ),
    ),
    PiiRule(
        "passport",
        _in_ascii(
            rf"(?:\bpassport(?![a-z])(?: \([a-z]{{2,6}}\))?|パスポート|旅券){_NO}?{_IS}"
            r"(?:[a-z]{0,2} ?\d{6,9}|[a-z](?=[a-z0-9]{0,7}\d[a-z]{0,6}\d[a-z]{0,6}\d)[a-z0-9]{7,8})(?![\w])",
            ignore_case=True,
        ),
    ),
    PiiRule(
        "license",
        _in_ascii(
            rf"(?:\b(?:driv(?:er['’]?s?['’]?|ing) licen[cs]e|licen[cs]e(?={_NO})|dl(?={_NO}))(?![a-z])|免許証?(?=の?番号|No))"
            rf"{_NO}?{_SAYS}[a-z]{{0,5}}\d(?:[ -]?\d){{4,13}}[a-z0-9]{{0,5}}(?![\w])",
            ignore_case=True,
        ),
    ),
    PiiRule(
        "government_id",
        _in_ascii(
            rf"(?:健康保険|保険証|被保険者|基礎年金|年金手帳|在留カード|住民票コード|(?:health|medical) insurance|pension"
            rf"|residence card)(?:証|カード)?(?:\s?{_SIGN}番号|{_SIGN}|{_NO})"
            rf"[^\d\n。!?]{{0,10}}?[a-z]{{0,2}}\d(?:[ -]?\d){{3,11}}[a-z]{{0,2}}(?![\w])",
            ignore_case=True,
        ),
    ),
    PiiRule(
        "bank_account",
        _in_ascii(
            rf"(?:\b(?:account|acct?\.?|a/c)(?![a-z]){_NO}|口座(?:番号|{_NO})?){_SAYS}{_NO_DATE}\d(?:[ -]?\d){{5,16}}(?!\d|-\d)"
            rf"|\b(?:account|acct?\.?|a/c)(?![a-z]){_IS}\d{{7,17}}(?!\d|-\d)"
            r"|(?:普通|当座)(?:預金)?(?:口座)?[)\]]?[^\w\n]{0,3}\d{6,8}(?!\d|-\d)|[(\[](?:普|当)[)\]]\s?\d{6,8}(?!\d|-\d)"
            r"|記号[^\d\n]{0,4}\d{5}(?:-?\d)?[^\d\n]{0,4}番号[^\d\n]{0,4}\d{2,8}(?!\d)",
            ignore_case=True,
        ),
    ),
    PiiRule(
        "bank_account",
        _in_ascii(
            rf"\b(?:(?:transit[ /]?)?routing(?![a-z])(?:[ /]transit)?{_NO}|(?:aba|rtn)(?![a-z])(?: routing)?{_NO}?){_SAYS}"
            r"\d{4}[ -]?\d{4}[ -]?\d(?!\d|-\d)"
            rf"|\b(?:routing|transit)(?![a-z]){_IS}\d{{9}}(?!\d|-\d)"
            rf"|\bsort code(?![a-z]){_NO}?{_SAYS}\d{{2}}[ -]?\d{{2}}[ -]?\d{{2}}(?!\d|-\d)",
            ignore_case=True,
        ),
    ),
    PiiRule("bank_account", _in_ascii(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,4})?\b(?=[^A-Z0-9]|\Z)"), is_iban),
    PiiRule(
        "ip_address",
        _in_ascii(r"(?<![\w.:-])\d{1,3}(?:\.\d{1,3}){3}(?![\w.:-]\w|\w)"),
        is_ip_address,
        unless=_VERSION,
    ),
    PiiRule(
        "ip_address",
        _in_ascii(r"(?<![\w.:-])[0-9a-f]{1,4}(?::{1,2}[0-9a-f]{1,4}){2,7}(?![\w:])", ignore_case=True),
        is_ip_address,
    ),
    PiiRule(
        "card",
        _in_ascii(
            # Digits alone, in fours, or as on American Express and Diners Club; a line may end between the groups.
            r"(?<![\w-])(?:\d{13,19}|\d{4}(?:[ ._ー-]{0,2}\n?[ ]{0,2}\d{4}){3}(?:[ ._ー-]{1,2}\d{1,3})?"
            r"|\d{4}[ ._ー-]{0,2}\n?[ ]{0,2}\d{6}[ ._ー-]{0,2}\n?[ ]{0,2}\d{4,5})(?![\w]|-\d)"
        ),
        is_card_number,
    ),
    PiiRule(
        "card",
        _in_ascii(
            rf"(?:\b(?:card|visa|mastercard|amex)(?![a-z])|クレジットカード|クレカ|カード番号){_NO}?[^\d\n。!?]{{0,24}}?"
            r"\d{4}(?:[ ._ー-]{0,2}\d{4}){3}(?![\w]|-\d)"
            r"|(?:\b(?:cvv2?|cvc2?|security code|card verification (?:code|value))(?![a-z])|セキュリティ(?:コード|番号))"
            r"[^\d\n。!?]{0,24}?\d{3,4}(?!\w|-\d|\.\d)",
            ignore_case=True,
        ),
    ),
    PiiRule(
        "my_number",
        _in_ascii(r"(?<![\w-])(?<!\d{4}[ ー])\d{4}[ ー-]?\d{4}[ ー-]?\d{4}(?![\w]|-\d| \d{4})"),
        is_my_number,
        unless=_PARCEL,
    ),
    PiiRule(
        "my_number",
        _in_ascii(r"(?:マイナンバー|個人番号|my ?number)[^\d\n]{0,20}\d{4}[ ー-]?\d{4}[ ー-]?\d{4}(?!\d)", ignore_case=True),
    ),
    PiiRule(
        "phone",
        _in_ascii(
            r"(?<![\w.-])(?:\+81[ .ー-]?(?:\(0\))?|\(?0)\d{1,4}\)?(?:[ .()ー-]{0,2}\d{1,4}){1,2}[ .()ー-]{0,2}\d{3,4}"
            r"(?!\d|[ー-]\d)"
        ),
        is_japanese_phone,
    ),
    PiiRule(
        "phone",
        _in_ascii(
            r"(?<![\w.-])(?:(?:\+?1[ .-]?)?\([2-9]\d{2}\)[ .-]?\d{3}[ .-]?\d{4}|(?:\+?1[ .-]?)?[2-9]\d{2}[ .-]\d{3}[ .-]\d{4}"
            r"|\+1[ ]?[2-9]\d{9})(?![\w]|-\d)"
        ),
    ),
    PiiRule(
        "phone",
        _in_ascii(
            r"\b(?:phone|tel|telephone|mobile|cell|call|ring|text|reach|fax)\b[^\d\n]{0,24}"
            r"(?:(?:\+?1[ .-]?)?[2-9]\d{2}[ .-]?\d{3}[ .-]?\d{4}|0\d(?:[ .()-]{0,2}\d){7,9})(?!\d|-\d)",
            ignore_case=True,
        ),
    ),
    PiiRule("phone", _in_ascii(r"(?<![\w.+-])\+[1-9](?:[ ().-]{0,2}\d){7,14}(?!\d|-\d)"), is_international_phone),
    PiiRule("phone", _in_ascii(r"(?<![\w.#/-])[2-9]\d{2}[2-9]\d{6}(?![\w-]|\.\d)"), is_us_phone, unless=_THINGS_NUMBER),
    PiiRule(
        "address",
        _in_ascii(
            r"(?:〒\s?|郵便番号\s?(?:は|が|:)?\s?)\d{3}[ー-]?\d{4}(?!\d)"
            r"|\b(?:zip(?: ?code)?|postal code|post ?code)(?![a-z])(?:\s?(?:is|was|:|=))?\s?"
            r"(?:\d{5}(?:-\d{4})?|\d{3}-\d{4}|[a-z]{1,2}\d[a-z0-9]? ?\d[a-z]{2}|[a-z]\d[a-z] ?\d[a-z]\d)(?![\w-])",
            ignore_case=True,
        ),
    ),
    PiiRule(
        "address",
        _in_ascii(
            r"\b\d{1,4}(?: ?(?:bis|ter))?,? (?:rue|avenue|boulevard|place|quai|chemin|impasse|allée|via|viale|piazza|calle"
            r"|plaza|rua) [^\W\d][^\n,;。!?]{1,40}, ?\d{5} (?-i:[A-Z])[^\W\d]{1,30}"
            r"|\b[a-z][^\W\d]{2,30}(?:straße|strasse|str\.|weg|platz|gasse|allee) \d{1,4}[a-z]?, ?\d{5} (?-i:[A-Z])\w{1,30}",
            ignore_case=True,
        ),
    ),
    PiiRule(
        "address",
        _in_ascii(
            rf"(?:〒?\s?\d{{3}}-?\d{{4}}\s*)?(?:{_PREFECTURES})(?![でをはがに])[^\d\n、。,]{{1,24}}?(?:{_BLOCK})+(?:{_KANJI_NUMBER})?(?:号室?"
            rf"|号棟)?"
            r"(?:[ ]?[^\s、。,]{1,16}?(?:[0-9]{1,4}号室?|[0-9]{3,4}(?!\d)))?"
        ),
    ),
    PiiRule(
        "address",
        _in_ascii(
            rf"[一-龥ァ-ヶぁ-んー]{{1,8}}[市区町村郡](?!長|民"
            rf"|場)[一-龥ァ-ヶぁ-んー]{{0,12}}(?:{_BLOCK})+(?:{_KANJI_NUMBER})?(?:号室?)?"
        ),
    ),
    PiiRule(
        "address",
        _in_ascii(
            rf"\b\d{{1,6}}[A-Za-z]?\s+(?:(?:[NSEW]|North|South|East|West|NE|NW|SE"
            rf"|SW)\.?\s+)?(?:[A-Z0-9][\w'.-]*\s+){{1,4}}?{_STREET}\b\.?"
            r"(?:\s+(?:[NSEW]{1,2}|North|South|East|West))?"
            r"(?:,?\s*(?:#|(?:Apt|Apartment|Suite|Ste|Unit|Floor|Fl)\b\.?)\s*[\w-]+)?"
            r"(?:,\s*[A-Z][\w .'-]{1,30}(?:,?\s+[A-Z]{2})?(?:\s+\d{5}(?:-\d{4})?)?)?"
        ),
    ),
    PiiRule(
        "address",
        _in_ascii(r"\bP\.?\s?O\.?\s?Box\s+\d+(?:,\s*[A-Z][\w .'-]{1,30},?\s+[A-Z]{2}\s+\d{5}(?:-\d{4})?)?", ignore_case=True),
    ),
    PiiRule(
        "address",
        _in_ascii(
            r"\b(?:[A-Z][\w' -]{1,30} \d{2,4}, )?\d{1,4}-\d{1,4}(?:-\d{1,4})? [A-Z][\w'-]{1,30}"
            r"(?:[ ,]{1,3}[A-Z][\w'-]{0,30}){0,6}?"
            r"(?:-ku|-shi|-cho|-machi|-ken|-to|-fu|, Tokyo|, Osaka|, Kyoto)\b"
            r"(?:[ ,]{1,3}[A-Z][\w'-]{0,30}){0,6}(?:[ ,]{1,3}\d{3}-\d{4})?"
        ),
    ),
    PiiRule("address", _in_ascii(r"\b[A-Z][a-z]+(?: [A-Z][a-z]+)?, [A-Z]{2} \d{5}(?:-\d{4})?\b")),
)
"""E-mail, password, birthday, SSN, passport, driver's license, insurance and pension numbers, bank account, IP address, card,
My Number, phone, address."""


IDENTIFIERS = frozenset({"bank_account", "card", "government_id", "license", "my_number", "passport", "password", "ssn"})
"""Kinds that occur in messages only: summaries, facts and state never contain them. Contact data may be part of a request."""

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
    return text if text.isascii() else map_stretches(lambda part: part.translate(_HALF_WIDTH), text)


def rule_matches(rule: PiiRule, plain: str) -> Iterator[re.Match[str]]:
    """Yield the valid matches of a rule in half-width text.

    A candidate that fails the rule's check may overlap a valid one: in "2024 4111 1111 1111 1111" the card begins at the second
    group of digits.
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


def redact_identifiers(text: str) -> str:
    """Return a text with cards, accounts, passwords and numbers of official documents replaced, as in ``[card]``.

    Summaries, facts and state are made from the result. Contact data stays: a request may be about an address.
    """
    return _remembered_without(text) if len(text) <= _SHORT else _without(text)


def _without(text: str) -> str:
    if _MAY_IDENTIFY.search(half_width_digits(text)) is None:
        return text
    return replace_personal_data(text, _IDENTIFIER_RULES, lambda rule, _: f"[{rule.name}]")


_remembered_without = lru_cache(_REMEMBERED)(_without)


def redact_value_identifiers(value: Any) -> Any:
    """Return a JSON value whose texts, and numbers that are identifiers, are replaced as by ``without_identifiers``."""
    if isinstance(value, dict):
        return {key: redact_value_identifiers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redact_value_identifiers(item) for item in value]
    if isinstance(value, str):
        return redact_identifiers(value)
    if isinstance(value, int) and not isinstance(value, bool) and (cleaned := redact_identifiers(str(value))) != str(value):
        return cleaned
    return value
