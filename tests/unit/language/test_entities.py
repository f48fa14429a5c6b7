"""Entities: found by patterns, refused by validators, the same in every spelling."""

from __future__ import annotations

import re

import pytest

from strands_manga_memory.language import GENERAL, SHOP, EntityType, EntityTypes, named


def found(text: str) -> list[tuple[str, str]]:
    return [(entity.type, entity.value) for entity in SHOP.find(text)]


@pytest.mark.parametrize(
    ("text", "entity"),
    [
        ("about B07X1234 please", ("asin", "B07X1234")),
        ("about b0cxyz1234.", ("asin", "B0CXYZ1234")),
        ("my order ORD-12345 is late", ("order_id", "ORD-12345")),
        ("ＯＲＤ－１２３４５です", ("order_id", "ORD-12345")),
        ("order 250-1234567-7654321", ("order_id", "250-1234567-7654321")),
        ("where is order #12345?", ("order_id", "12345")),
        ("Order no. 12345, please", ("order_id", "12345")),
        ("my order number is 12345", ("order_id", "12345")),
        ("order id: 12345", ("order_id", "12345")),
        ("注文 #12345 はまだですか", ("order_id", "12345")),
        ("注文番号は12345です", ("order_id", "12345")),
        ("注文番号：１２３４５", ("order_id", "12345")),
        ("order #ORD-12345", ("order_id", "ORD-12345")),
        ("ISBN 978-0-306-40615-7", ("isbn", "9780306406157")),
        ("ISBN 0-306-40615-2", ("isbn", "9780306406157")),
        ("ISBN 080442957X", ("isbn", "9780804429573")),
        ("第３巻をください", ("volume", "3")),
        ("二十一巻", ("volume", "21")),
        ("vol. 3 to 5", ("volume", "3-5")),
        ("volume 12", ("volume", "12")),
        ("series: Berserk", ("series", "berserk")),
        ("series: Dr. Stone, volume 3", ("series", "dr. stone")),
        ("シリーズ：ベルセルク", ("series", "ベルセルク")),
        ("One Piece 105", ("series", "one piece")),
        ("One Piece 105", ("volume", "105")),
        ("Is Attack on Titan 34 there?", ("series", "attack on titan")),
        ("6,800円です", ("price", "JPY 6800")),
        ("it is ¥6,800", ("price", "JPY 6800")),
        ("3万5000円", ("price", "JPY 35000")),
        ("for $12.50", ("price", "USD 12.50")),
        ("on March 3rd", ("date", "03-03")),
        ("3月3日に", ("date", "03-03")),
        ("on 2026-11-22", ("date", "2026-11-22")),
        ("the 28th of May", ("date", "05-28")),
        ("at 4:45 pm", ("time", "16:45")),
        ("午後4時45分", ("time", "16:45")),
        ("at 11 am", ("time", "11:00")),
        ("half past 1 in the afternoon", ("time", "13:30")),
        ("quarter to 12 in the morning", ("time", "11:45")),
        ("about 5:15 in the evening", ("time", "17:15")),
        ("around morning 10:15", ("time", "10:15")),
        ("12 in the morning", ("time", "00:00")),
        ("12:30 at night", ("time", "00:30")),
        ("5 o'clock", ("time", "05:00")),
        ("next Friday", ("weekday", "next friday")),
        ("mail A.b@example.co.jp now", ("email", "a.b@example.co.jp")),
        ("four copies", ("quantity", "4 item")),
        ("2冊", ("quantity", "2 item")),
        ("for 3 people", ("quantity", "3 person")),
        ("『寄生獣』の新装版", ("title", "寄生獣")),
        ('called "The Clockmaker"', ("title", "the clockmaker")),
        ("in Japanese", ("language", "japanese")),
        ("case RT5590Q", ("reference", "RT5590Q")),
        ("user mia_li_3668", ("reference", "MIA_LI_3668")),
        ("call 078-555-0142", ("phone", "0785550142")),
        ("see https://example.com/a?b=1.", ("url", "https://example.com/a?b=1")),
    ],
)
def test_found(text: str, entity: tuple[str, str]) -> None:
    assert entity in found(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("asin", "B07-1234"),
        ("asin", "B07X12345678"),
        ("order_id", "ORD-1"),
        ("order_id", "XORD-12345"),
        ("isbn", "9780306406158"),
        ("isbn", "0306406153"),
        ("date", "2026-13-40"),
        ("time", "25:99"),
        ("time", "16:45 pm"),
        ("time", "9 at night"),
        ("time", "1.5 in the evening"),
        ("email", "nobody@nowhere"),
    ],
)
def test_refused(name: str, text: str) -> None:
    assert SHOP.value(name, text) is None
    assert name not in [entity for entity, _ in found(f"it is {text} today")]


@pytest.mark.parametrize(
    "text",
    [
        "I order 1000 copies",
        "in order 2024 comes first",
        "注文 12345",
        "order #12",
        "reorder #12345",
        "order no more",
        "#12345",
    ],
)
def test_digits_without_a_label_are_no_number_of_an_order(text: str) -> None:
    assert "order_id" not in [entity for entity, _ in found(text)]


def test_a_text_without_entities() -> None:
    assert SHOP.find("Do you have something similar, a bit shorter?") == []
    assert SHOP.find("") == []


def test_places_are_those_of_the_text_as_written() -> None:
    text = "ＯＲＤ－１２３４５ and 『塔』"
    assert [text[entity.start : entity.end] for entity in SHOP.find(text)] == [entity.text for entity in SHOP.find(text)]


def test_types_are_data() -> None:
    shelf = EntityType("shelf", re.compile(r"\bshelf (?P<value>[A-Z]\d)\b"), lambda match: match["value"], is_exact=True)
    types = EntityTypes([shelf, *GENERAL])
    assert [(entity.type, entity.value) for entity in types.find("on shelf C4, next Friday")] == [
        ("shelf", "C4"),
        ("weekday", "next friday"),
    ]
    assert "shelf" in types
    assert types["shelf"].is_exact
    assert types.value("shelf", "shelf C4") == "C4"
    with pytest.raises(KeyError):
        types.value("drawer", "C4")


def test_several_types_may_have_one_name() -> None:
    types = EntityTypes([named("series", {"Harbor Lights": ["HL"]}), *SHOP])
    found = [(each.type, each.value) for each in types.find("HL, series: Berserk, or One Piece 105")]
    assert found == [("series", "Harbor Lights"), ("series", "berserk"), ("series", "one piece"), ("volume", "105")]
    assert [types.value("series", text) for text in ("hl", "Berserk", "series: Berserk")] == [
        "Harbor Lights",
        "berserk",
        "berserk",
    ]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [("order_id", "12345", "12345"), ("volume", "3", "3"), ("series", "寄生獣", "寄生獣"), ("order_id", "1", None)],
)
def test_a_bare_value_needs_no_label_where_its_type_is_known(name: str, text: str, value: str | None) -> None:
    assert SHOP.value(name, text) == value


@pytest.mark.parametrize(
    "text",
    [
        "On May 3",
        "Room Number 12",
        "Flight AF 123",
        "Windows 11",
        "US Dollars 500",
        "Jujutsu Kaisen 5 pm",
        "Mr Smith 20% off",
        "shipping: free",
        "One Piece 2026",
        "I Want 3",
    ],
)
def test_what_is_numbered_otherwise_is_no_series(text: str) -> None:
    assert {entity for entity, _ in found(text)}.isdisjoint({"series", "volume"})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The manga: volume 2, please buy it.", [("volume", "2")]),
        ("manga: vol. 3", [("volume", "3")]),
        ("作品名：第3巻", [("volume", "3")]),
        ("manga: Volume 2 of Berserk", [("series", "volume 2 of berserk")]),
        ("I asked about a quiet manga: which one was it?", []),
        ("About that manga: do you have it, too?", []),
        ("manga: What's Michael?", [("series", "what's michael")]),
        ("Title: who made me a princess", [("series", "who made me a princess")]),
    ],
)
def test_a_label_of_a_series_before_a_volume_alone_or_a_question_names_no_series(
    text: str, found: list[tuple[str, str]]
) -> None:
    assert [(entity.type, entity.value) for entity in SHOP.find(text)] == found
