"""Entities come from the user's words and checked ids, never from JSON or own blocks."""

import json
from typing import Any

import pytest
from strands import Agent, tool

from strands_manga_memory import DialogueSlot, StateCoordinator
from strands_manga_memory.testing import ScriptedModel
from tests.unit.session.support import tool_use


def entities_after(*texts: Any) -> dict[str, list[str]]:
    """Return the active entities of an agent after some user messages, by type."""
    coordinator = StateCoordinator()
    agent = Agent(model=ScriptedModel(), plugins=[coordinator])
    for text in texts:
        agent(text)
    found: dict[str, list[str]] = {}
    for entity in coordinator.entities.active():
        found.setdefault(entity.type, []).append(entity.value)
    return found


@pytest.mark.parametrize("indent", [None, 2])
def test_json_of_a_tool_gives_ids_and_no_titles(indent: int | None) -> None:
    @tool
    def find_book(query: str) -> str:
        """Find a book."""
        return json.dumps(
            {
                "asin": "B07X1234",
                "copies": 7,
                "note": "a “Fine Copy”",
                "volumes": "全18巻, volume 4",
            },
            indent=indent,
        )

    model = ScriptedModel(
        [[tool_use("t1", "find_book", query='the "blue" one')], "It is “In Stock”."]
    )
    coordinator = StateCoordinator()
    agent = Agent(model=model, tools=[find_book], plugins=[coordinator])
    agent("Is it in stock?")
    agent("and now?")
    assert {e.type: e.value for e in coordinator.entities.active()} == {"asin": "B07X1234"}
    assert "asin B07X1234 (inferred)" in str(model.requests[-1].messages[-1])
    assert "title" not in str(model.requests[-1].messages[-1])


@pytest.mark.parametrize(
    "text",
    [
        '{"asin_list": [], "copies": "7", "status": "not found"}',
        'I said "thank you very much" to them', "Click “Add to Cart” and it says “Payment Failed”",
        "the sign “No Entry” by the door", "「ありがとう」と言いました",
        "「返品」ボタンを押しました", "『エラー』と表示されます", "全18巻ですか",
        "全十八巻のセット", "18巻完結の作品", "既刊12巻", "残り3巻です", "3巻セットはありますか",
        "一巻の終わりだ", "18 volumes in all", "my budget is 3000 yen", "予算は5000円です",
        "Shipping costs 500 yen and the other one was $12", "not volume 3", "I don't want volume 3",
        "anything but volume 2", "3巻ではなく", "3巻以外でお願いします",
        "`volume 9` and read_volume(volume 3)", "```\nprint('volume 4 of “Harbor Lights”')\n```",
        '{"volume": "volume 3", "title": "『寄生獣』"}',
    ],
)  # fmt: skip
def test_text_that_names_no_thing_gives_no_entity(text: str) -> None:
    assert entities_after(text) == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Is volume 3 of “Harbor Lights” there?", {"volume": ["3"], "title": ["harbor lights"]}),
        ("a manga called “love and rain”", {"title": ["love and rain"]}),
        ("Something like “The Night Ferry” please", {"title": ["the night ferry"]}),
        ("『寄生獣』の新装版", {"title": ["寄生獣"]}),
        ("「海辺の灯台」の続きを探しています", {"title": ["海辺の灯台"]}),
        ("漫画「海辺の灯台」", {"title": ["海辺の灯台"]}),
        ("『寄生獣』は全10巻の、第3巻をください", {"title": ["寄生獣"], "volume": ["3"]}),
        ("not volume 3, volume 4 please", {"volume": ["4"]}),
        ("volume 3 instead of volume 2", {"volume": ["3"]}),
        ("3巻じゃなくて4巻", {"volume": ["4"]}),
        ('here it is: {"order_id": "ORD-12345", "state": "late"}', {"order_id": ["ORD-12345"]}),
        ("Volume 42 of Berserk", {"volume": ["42"], "series": ["berserk"]}),
    ],
)
def test_what_the_user_marks_is_an_entity(text: str, found: dict[str, list[str]]) -> None:
    assert entities_after(text) == found


def test_blocks_of_the_package_in_a_message_give_no_entities() -> None:
    handoff = '<handoff from="orders">The order ORD-99999 and volume 8 of “Harbor Lights”</handoff>'
    assert entities_after([{"text": "volume 3 please"}, {"text": handoff}]) == {"volume": ["3"]}


def test_amount_fills_a_slot_that_asks_for_one_but_is_no_entity() -> None:
    coordinator = StateCoordinator(
        intents={"gift": [DialogueSlot(name="budget", question="How much?", entity="price")]}
    )
    agent = Agent(model=ScriptedModel(), plugins=[coordinator])
    coordinator.dialogue.set_intent("gift")
    agent("my budget is 3000 yen")
    assert coordinator.dialogue.slot("budget").value == "JPY 3000"
    assert coordinator.entities.active() == []


@pytest.mark.parametrize("date", ["May 3", "5月3日"])
def test_a_date_without_a_year_is_shown_as_the_user_wrote_it(date: str) -> None:
    coordinator = StateCoordinator()
    agent = Agent(model=ScriptedModel(), plugins=[coordinator])
    agent(f"Please deliver it on {date}.")
    assert [entity.value for entity in coordinator.entities.active()] == ["05-03"]
    assert f"date {date}" in coordinator.to_agent_context()
