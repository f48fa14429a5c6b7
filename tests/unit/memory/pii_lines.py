"""Lines with personal data, made here, and lines that look like it and hold none.

All data are invented.
"""

from __future__ import annotations

import random

_RANDOM = random.Random(20)


def _luhn(prefix: str, length: int) -> str:
    body = prefix + "".join(str(_RANDOM.randrange(10)) for _ in range(length - len(prefix) - 1))
    total = 0
    for at, digit in enumerate(reversed(body)):
        number = int(digit) * (2 if at % 2 == 0 else 1)
        total += number - 9 if number > 9 else number
    return body + str(-total % 10)


def _my_number() -> str:
    digits = [_RANDOM.randrange(10) for _ in range(11)]
    total = sum(
        digit * (n + 1 if n <= 6 else n - 5) for n, digit in enumerate(reversed(digits), start=1)
    )
    rest = total % 11
    return "".join(map(str, digits)) + str(0 if rest <= 1 else 11 - rest)


def _grouped(digits: str, sign: str) -> str:
    return sign.join(digits[at : at + 4] for at in range(0, len(digits), 4))


_FULL_WIDTH = str.maketrans("0123456789-", "０１２３４５６７８９－")


def _number(pattern: str) -> str:
    return "".join(str(_RANDOM.randrange(2, 10)) if sign == "#" else sign for sign in pattern)


def lines() -> list[tuple[str, str]]:
    """Return some 200 lines, each with the personal data that must not be left in it."""
    names = ["hanako", "taro.yamada", "j.smith+manga", "k_sato", "o'brien", "anna-lee"]
    hosts = ["example.com", "mail.example.co.jp", "shop-example.org", "xn--example.net"]
    emails = [f"{name}@{host}" for name in names for host in hosts]
    japanese_phones = [
        *(_number(f"{head}-####-####") for head in ("090", "080", "070", "050")),
        *(f"{head}{_number('########')}" for head in ("090", "080", "070")),
        *(
            _number(pattern)
            for pattern in (
                "03-####-####",
                "06-####-####",
                "045-###-####",
                "0120-###-###",
                "0422-##-####",
            )
        ),
        *(
            _number(pattern)
            for pattern in (
                "+81 90 #### ####",
                "+81-3-####-####",
                "+8190########",
                "(03) ####-####",
                "(03)####-####",
            )
        ),
        *(_number(pattern).translate(_FULL_WIDTH) for pattern in ("090-####-####", "03-####-####")),
    ]
    american_phones = [
        _number(pattern)
        for pattern in (
            "(###) ###-####",
            "###-###-####",
            "###.###.####",
            "### ### ####",
            "+1 ### ### ####",
            "+1-###-###-####",
            "1-###-###-####",
            "+1##########",
        )
    ] * 5
    japanese_phones += [
        _number(head + "-####-####") for head in ("090", "080", "070", "03", "06") for _ in range(3)
    ]
    cards = [
        *(
            _grouped(_luhn(prefix, 16), sign)
            for prefix in ("4", "51", "2720", "6011", "3528")
            for sign in (" ", "-", "")
        ),
        *(_luhn("34", 15), _luhn("37", 15)),
        _grouped(_luhn("4", 16), " ").translate(_FULL_WIDTH),
    ]
    my_numbers = [
        *(_my_number() for _ in range(6)),
        *(_grouped(_my_number(), "-") for _ in range(6)),
        *(_grouped(_my_number(), " ") for _ in range(6)),
    ]
    japanese_addresses = [
        "東京都渋谷区神南1-2-3",
        "〒150-0041 東京都渋谷区神南1丁目2番3号",
        "大阪府大阪市北区梅田３丁目１番３号",
        "北海道札幌市中央区北一条西2-1",
        "京都府京都市東山区祇園町北側347番地",
        "神奈川県横浜市西区みなとみらい2-2-1",
        "愛知県名古屋市中区三の丸三丁目1番2号",
        "福岡県福岡市博多区博多駅前2-1-1 コーポ山田101号室",
        "渋谷区道玄坂2-10-7",
        "〒530-0001",
        "沖縄県那覇市泉崎1-2-2",
        "埼玉県川口市青木2丁目1番1号",
    ]
    american_addresses = [
        "123 Main Street, Springfield, IL 62704",
        "742 Evergreen Terrace",
        "1600 Pennsylvania Ave NW, Washington, DC 20500",
        "55 West 42nd Street, Apt 5B, New York, NY 10036",
        "4059 Mt Lee Dr.",
        "P.O. Box 1234, Austin, TX 78701",
        "9 N. Elm Rd",
        "350 Fifth Avenue, Suite 300",
        "221B Baker St",
        "1-2-3 Shibuya, Shibuya-ku, Tokyo 150-0002",
        "12 Ocean View Blvd, San Diego, CA 92107",
        "San Francisco, CA 94103",
    ]
    english = [
        "My address is {}, thanks",
        "Please use {} for the order",
        "You can reach me at {} after six",
        "It's {}.",
        "{}",
    ]
    japanese = [
        "{}に送ってください",
        "連絡先は{}です。",
        "私のは{}です",
        "（{}）",
        "注文は{}でお願いします。",
    ]
    made: list[tuple[str, str]] = []
    for number, data in enumerate(
        [*emails, *japanese_phones, *cards, *my_numbers, *japanese_addresses]
    ):
        made.append((japanese[number % 5].format(data), data))
    for number, data in enumerate(
        [*emails, *american_phones, *cards, *american_addresses, *japanese_phones[:8]]
    ):
        made.append((english[number % 5].format(data), data))
    return made


HARMLESS = [
    "Do you have volume 12 of the box set, ISBN 978-4-06-370654-3?",
    "ISBN 9784063706543 and ISBN-10 4063706540",
    "Order ORD-12345 of 2026-11-22 cost 4,980 yen.",
    "The ASIN is B07X1234 and the series has 108 chapters.",
    "1000ページくらいの本を3冊、予算は5000円です。",
    "第12巻から第34巻まで、2026年11月22日に届きました。",
    "I read 20 volumes in 3 weeks, from 1999 to 2004.",
    "Ask at @mangashop about it at 10:30.",
    "My favourite is chapter 90-95 of volume 8.",
    "Pages 100-200, 300-400 and 500-600 are torn.",
    "Version 1.62.0 costs 12.50 dollars, 3 for 30.",
    "京都の市場で3冊買いました。",
]
