"""JSON results of tools keep their keys and identifiers when the history is truncated."""

import json
import random
import re
from collections.abc import Callable
from typing import Any

import pytest
from strands import Agent, tool

from strands_manga_memory import ImportanceWeightedConversationManager
from strands_manga_memory.conversation import TieredCompactionConversationManager
from strands_manga_memory.testing import ScriptedModel
from tests.support import tool_results
from tests.unit.session.support import tool_use

ORDERS = 20
WORDS = [
    "dark", "dreary", "spiral", "town", "ghost", "story", "sea", "silent", "moon", "paper", "old",
]  # fmt: skip
FORMS: dict[str, Callable[[Any], str]] = {
    "compact": lambda value: json.dumps(value, separators=(",", ":")),
    "escaped": json.dumps,
    "indented": lambda value: json.dumps(value, indent=2, ensure_ascii=False),
    "lines": lambda value: "\n".join(
        json.dumps(part) for part in [{"order": value["order"]}, *value["items"]]
    ),
    "fence": lambda value: (
        f"Here it is:\n```json\n{json.dumps(value, indent=2)}\n```\nAnything else?"
    ),
    "sentence": lambda value: f"One order was found: {json.dumps(value)}",
    "python": str,
    "nested": lambda value: json.dumps({"content": [{"type": "text", "text": json.dumps(value)}]}),
}

SUITE = {"compact", "lines", "nested", "json"}
"""Forms of the suite. The others are long."""


def order_of(number: int) -> dict[str, Any]:
    """Return an order of some 250 tokens: items with prose, and its id behind them."""
    chance = random.Random(number)
    items: list[Any] = [
        {
            "comment": " ".join(chance.choices(WORDS, k=30)),
            "gift": False,
            "note": None,
            "price": 10.5 + item,
            "title": f"Uzumaki {item}",
        }
        for item in range(3)
    ]
    return {
        "ok": True,
        "items": items,
        "order": {"order_id": f"ORD-{5_000 + number}", "お届け先": "京都市"},
    }


def talk(form: Callable[[Any], str] | None, manager: Any, *, orders: int = ORDERS) -> str:
    """Look up orders in as many turns, ask a question, and return its request as text."""

    @tool
    def find_order(number: int) -> dict[str, Any]:
        """Find an order."""
        order = order_of(number)
        block = {"json": order} if form is None else {"text": form(order)}
        return {"status": "success", "content": [block]}

    replies: list[Any] = []
    for number in range(orders):
        call = tool_use(f"call-{number}", "find_order", number=number)
        replies += [[call], "I have found it."]
    model = ScriptedModel([*replies, "Twenty."])
    agent = Agent(model=model, tools=[find_order], conversation_manager=manager)
    for number in range(orders):
        agent(f"Please look up number {number} of my orders.")
    agent("How many orders are there?")
    return json.dumps(model.requests[-1].messages, ensure_ascii=False)


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(form, marks=() if form in SUITE else pytest.mark.long)
        for form in (*FORMS, "json")
    ],
)
def test_all_order_ids_of_a_session_stay_in_a_window_of_4096_tokens(form: str) -> None:
    """Twenty results of 250 tokens each are condensed, and each still names its order."""
    request = talk(FORMS.get(form), ImportanceWeightedConversationManager(4_096))
    assert len(set(re.findall(r"ORD-5\d{3}", request))) == ORDERS
    assert "characters cut" in request
    assert re.search(r": ?, ?\W*:", request) is None, "a key or value is missing"


def test_compaction_keeps_the_ids_of_capped_results() -> None:
    """A result capped at 400 characters keeps keys and ids and is JSON."""
    manager = TieredCompactionConversationManager(window=6_000)
    request = talk(FORMS["indented"], manager, orders=15)  # more would begin a summary
    texts = [result["content"][0]["text"] for result in tool_results(json.loads(request))]
    shortened = [text for text in texts if "characters cut" in text]
    assert shortened
    for text in shortened:
        value = json.loads(text.split("\n[... ")[0])
        assert re.fullmatch(r"ORD-5\d{3}", value["order"]["order_id"])
        assert value["items"]
