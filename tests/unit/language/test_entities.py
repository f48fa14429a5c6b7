"""Entities: found by patterns, refused by validators, the same in every spelling."""

import re
from datetime import date

import pytest

from strands_manga_memory.language import GENERAL, SHOP, EntityType, EntityTypes, named
from tests.lines import rows


def found(text: str) -> list[tuple[str, str]]:
    return [(entity.type, entity.value) for entity in SHOP.find(text)]


@pytest.mark.parametrize(("text", "entity"), rows("found_entities"))
def test_found(text: str, entity: list[str]) -> None:
    assert tuple(entity) in found(text)


@pytest.mark.parametrize(("name", "text"), rows("refused_entities"))
def test_refused(name: str, text: str) -> None:
    assert SHOP.value(name, text) is None
    assert name not in [entity for entity, _ in found(f"it is {text} today")]


@pytest.mark.parametrize(("text", "types"), rows("no_entities"))
def test_digits_without_a_label_or_with_another_one_are_no_order_and_no_volume(
    text: str, types: list[str]
) -> None:
    assert {entity for entity, _ in found(text)}.isdisjoint(types)


def test_match_whose_canonical_form_raises_is_no_entity(caplog: pytest.LogCaptureFixture) -> None:
    day = EntityType("day", re.compile(r"\d+/\d+"), lambda match: f"{date(2026, *split(match))}")

    def split(match: re.Match[str]) -> tuple[int, int]:
        month, of_month = match[0].split("/")
        return int(month), int(of_month)

    types = EntityTypes([day])
    assert [each.value for each in types.find("13/45, then 3/14")] == ["2026-03-14"]
    assert types.value("day", "13/45") is None
    assert "type=<day>, error=<ValueError>" in caplog.text


def test_places_are_those_of_the_text_as_written() -> None:
    text = "ＯＲＤ－１２３４５ and 『塔』"
    assert [text[entity.start : entity.end] for entity in SHOP.find(text)] == [
        entity.text for entity in SHOP.find(text)
    ]


def test_types_are_data() -> None:
    shelf = EntityType(
        "shelf",
        re.compile(r"\bshelf (?P<value>[A-Z]\d)\b"),
        lambda match: match["value"],
        is_exact=True,
    )
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
    found = [
        (each.type, each.value) for each in types.find("HL, series: Berserk, or One Piece 105")
    ]
    assert found == [
        ("series", "Harbor Lights"),
        ("series", "berserk"),
        ("series", "one piece"),
        ("volume", "105"),
    ]
    assert [types.value("series", text) for text in ("hl", "Berserk", "series: Berserk")] == [
        "Harbor Lights",
        "berserk",
        "berserk",
    ]


@pytest.mark.parametrize(("name", "text", "value"), rows("bare_entities"))
def test_no_label_is_needed_of_a_known_type(name: str, text: str, value: str | None) -> None:
    assert SHOP.value(name, text) == value
