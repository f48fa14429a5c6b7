"""Demonstration with checks: two users, a failing server, a restart, twenty parallel chats."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

from mangaassist.assistant.opening import open_shop
from mangaassist.assistant.shop import Shop
from mangaassist.orders import orders_of
from mangaassist.services import Backend
from strands_manga_memory import ConversationScope

HANAKO, TARO, SESSION = "hanako", "taro", "storefront#1"
CHATS = 20
_PATIENCE = 20.0
_ORDER = re.compile(r"ORD-\d+")
_JAPANESE = re.compile(r"[ぁ-んァ-ヶ]")


class Visit:
    """Conversations while the shop is open once, and their observed views."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self.within_budget = True
        self.outcomes: set[str] = set()
        shop.on_change = self._record_view

    def _record_view(self, scope: ConversationScope, view: dict[str, Any]) -> None:
        self.within_budget &= view["request_tokens"] <= view["budget"]
        self.outcomes |= {message["outcome"] for message in view["messages"]}

    async def ask(self, user: str, text: str, *, session: str = SESSION, aloud: bool = True) -> str:
        """Send a message, and return the answer."""
        speaker, answer = "", ""
        async for piece in self.shop.ask(user, session, text):
            speaker, answer = piece.agent, piece.answer or ""
        if aloud:
            print(f"{user}> {text}\n{speaker}> {answer}")
        return answer

    def breaker(self) -> dict[str, Any]:
        """Return the status of the tool that fails on demand."""
        return self.shop.servers.status()["get_stock"]


async def first(visit: Visit) -> dict[str, bool]:
    """Hold the conversations before the restart, and return the checks."""
    checks: dict[str, bool] = {}
    await visit.ask(HANAKO, "Hello! My favorite genre is mystery.")
    found = await visit.ask(HANAKO, "Recommend me something to read.")
    checks["a favourite that was said is used"] = "Detective of Glass Town" in found
    in_japanese = await visit.ask(TARO, "『猫と踏切番』3巻は在庫ありますか？")
    checks["a Japanese question gets a Japanese answer"] = (
        in_japanese == "『猫と踏切番』第3巻の在庫は12冊です。"
    )
    orders = {
        user: await visit.ask(user, text)
        for user, text in ((HANAKO, "Where is my order?"), (TARO, "注文はいつ届きますか？"))
    }
    checks["everybody sees his own orders"] = all(
        _ORDER.findall(answer) == _numbers(user) for user, answer in orders.items()
    )
    foreign = await visit.ask(TARO, f"Where is order {_numbers(HANAKO)[0]}?")
    checks["nobody sees those of others"] = foreign == "You have no order of this number."
    await visit.ask(HANAKO, "Show me all volumes of The Night-Round Detective of Glass Town.")
    await visit.ask(HANAKO, "I would like to buy it.")
    asked = await visit.ask(HANAKO, "Volume 2, please.")
    checks["what is missing is asked for"] = asked == "Paper or digital?"

    print("-- the stock server fails")
    visit.shop.servers.set_fault("error")
    for volume in (1, 2, 4):
        await visit.ask(TARO, f"『猫と踏切番』{volume}巻は在庫ありますか？")
    checks["failures open the breaker"] = visit.breaker()["state"] == "open"
    stale = await visit.ask(TARO, "『猫と踏切番』3巻は在庫ありますか？")
    checks["an earlier answer stands in, and says so"] = (
        stale.startswith(in_japanese) and "前の情報" in stale
    )
    checks["nobody else's answer does"] = "cannot look that up" in await visit.ask(
        HANAKO, "Is The Cat and the Crossing Keeper volume 3 in stock?"
    )
    print("-- it is repaired; the breaker lets a probe through")
    visit.shop.servers.set_fault("none")
    checks["a probe closes the breaker"] = await _wait_for_recovery(visit)
    print("-- it dies with the next look-up")
    visit.shop.servers.set_fault("exit")
    await visit.ask(TARO, "『潮待ち食堂』2巻は在庫ありますか？")
    checks["a dead server comes back"] = await _wait_for_recovery(visit)
    return checks


async def second(visit: Visit, folder: Path) -> dict[str, bool]:
    """Hold the conversations after the restart, and return the checks."""
    checks: dict[str, bool] = {}
    bought = await visit.ask(HANAKO, "On paper.")
    checks["a purchase goes on after a restart"] = bought == "Volume 2 (paper) is in your basket."
    await visit.ask(HANAKO, "My parcel is late again, this is unacceptable. I want to complain!")
    case = await visit.ask(HANAKO, "And now?")
    number = re.search(r"C-\w{8}", case)
    text = (folder / "cases" / f"{number[0]}.md").read_text(encoding="utf-8") if number else ""
    checks["a complaint is handed over, and on to a human"] = "My parcel is late again" in text
    turns = await visit.shop.history(HANAKO, SESSION)
    checks["the whole conversation is there"] = (turns[0].question, turns[-1].answer) == (
        "Hello! My favorite genre is mystery.",
        case,
    )
    await asyncio.to_thread(visit.shop.finish, HANAKO, SESSION)
    print("-- hanako comes back for a new session")
    known = await visit.ask(
        HANAKO, "What manga do you know I like? What do you know about me?", session="storefront#2"
    )
    checks["a new session knows the user"] = "mystery" in known
    print(f"-- {CHATS} chats at once")
    checks[f"{CHATS} chats at once do not mix"] = all(
        await asyncio.gather(*(_chat(visit, n) for n in range(CHATS)))
    )
    return checks


async def _chat(visit: Visit, number: int) -> bool:
    """Hold one of many conversations, and return whether it contains only its own data."""
    user = f"reader-{number}"
    japanese = number % 2 == 1
    texts = (
        ("注文はいつ届きますか？", f"配送先は{number}番です")
        if japanese
        else ("Where is my order?", f"Deliver to door {number}")
    )
    answers = [await visit.ask(user, text, session="s", aloud=False) for text in texts]
    turns = await visit.shop.history(user, "s")
    return (
        [one.question for one in turns] == list(texts)
        and [one.answer for one in turns] == answers
        and all(_ORDER.findall(answer) == _numbers(user) for answer in answers)
        and all((_JAPANESE.search(answer) is not None) == japanese for answer in answers)
    )


async def _wait_for_recovery(visit: Visit) -> bool:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        answer = await visit.ask(
            "keeper", "Is The Tide-Waiting Diner volume 1 in stock?", aloud=False
        )
        if answer.endswith("are in stock.") and visit.breaker()["state"] == "closed":
            return True
        await asyncio.sleep(0.25)
    return False


def _numbers(user: str) -> list[str]:
    return [order["order_id"] for order in orders_of(user)]


def run(backend: Backend, folder: Path, *, budget: int, as_json: bool) -> int:
    """Run the demonstration. Return 0 if every check passed, otherwise 1."""
    checks: dict[str, bool] = {}
    within_budget, outcomes = True, set[str]()
    for number in range(2):
        with open_shop(backend, folder, budget=budget) as shop:
            visit = Visit(shop)
            checks |= asyncio.run(second(visit, folder) if number else first(visit))
            within_budget &= visit.within_budget
            outcomes |= visit.outcomes
        if not number:
            print("-- the shop closes, and opens again")
    checks["the history was within its budget at every model call"] = within_budget
    checks["messages were shortened or dropped for it"] = bool(outcomes & {"dropped", "shortened"})
    for check, passed in checks.items():
        print(f"{'ok    ' if passed else 'FAILED'} {check}")
    passed = all(checks.values())
    if as_json:
        print(
            json.dumps(
                {"passed": passed, "backend": backend.name, "checks": checks}, ensure_ascii=False
            )
        )
    return 0 if passed else 1
