"""Values of recorded dialogues that count as findable, as replaced, and as presented as current."""

from __future__ import annotations

from typing import Any

import pytest

from strands_manga_memory.language import Fact, FactKind
from tests.benchmarks import recorded


def message(at: int, text: str) -> dict[str, Any]:
    return {"role": "user" if at % 2 == 0 else "assistant", "content": [{"text": text}], "tracking_id": f"m{at}"}


def stream(*said: tuple[str, str | None], corrections: tuple[int, ...] = ()) -> dict[str, Any]:
    queries: list[dict[str, Any]] = [
        {"kind": "inform", "gold": [2 * at], "value": value, "scope": [0, 20]} for at, (_, value) in enumerate(said) if value
    ]
    queries += [{"kind": "correction", "gold": [2 * at], "value": None, "scope": [0, 20]} for at in corrections]
    return {
        "messages": [one for at, (text, _) in enumerate(said) for one in (message(2 * at, text), message(2 * at + 1, "ok"))],
        "queries": queries,
    }


@pytest.mark.parametrize(
    ("first", "second", "is_replaced"),
    [
        (("one ticket please", "one"), ("make that 2 tickets", "2"), True),
        (("for 6 people", "6"), ("try 1 night", "1"), False),
        (("at 4:30 pm", "4:30 pm"), ("at half past 12 in the afternoon", "half past 12 in the afternoon"), True),
        (("on March 7th", "March 7th"), ("next Friday", "next Friday"), True),
        (("in Boston", "Boston"), ("in Chicago", "Chicago"), False),
        (("for 2 people", "2"), ("yes, two people", "two"), False),
    ],
)
def test_a_value_is_taken_back_by_another_of_its_form(first: Any, second: Any, is_replaced: bool) -> None:
    found = list(recorded._replaced_values(stream(first, second, corrections=(1,))))
    assert [(one.old, one.new) for one in found] == ([(first[1], second[1])] if is_replaced else [])
    assert list(recorded._replaced_values(stream(first, second))) == []


ONE = recorded._ReplacedValue(at=0, old="2", by=2, new="3", end=10)


@pytest.mark.parametrize(
    ("shown", "fate"),
    [
        ([message(2, "no, 3 people")], (True, True)),
        ([message(0, "for 2 people"), message(2, "no, 3 people")], (False, True)),
        ([message(2, "no, 3 people"), message(0, "for 2 people")], (False, False)),
        ([message(0, "for 2 people")], (False, False)),
        ([message(0, "for 2 people"), message(12, "another dialogue, 3 people")], (False, False)),
        ([message(4, "2 nights, 3 people")], (True, True)),
    ],
)
def test_a_value_that_stands_last_or_alone_is_presented_as_current(shown: list[Any], fate: tuple[bool, bool]) -> None:
    assert recorded._View(shown, ()).fate(ONE) == fate


def test_facts_count_where_they_stand_in_the_summary() -> None:
    summary = {**message(0, "- for 2 people\n- correction: 3 people"), "tracking_id": "s"}
    summary["metadata"] = {"custom": {"summary": "part"}}
    slots = [Fact(FactKind.STATEMENT, "for 2 people", "m0"), Fact(FactKind.CORRECTION, "3 people", "m2")]
    assert recorded._View([summary], slots).fate(ONE) == (False, True)
    view = recorded._View([summary], [*slots, Fact(FactKind.STATEMENT, "had no room", "m6")])
    assert view.shows("3 people", range(3))
    assert not view.shows("no room")
