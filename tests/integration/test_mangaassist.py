"""Parts of the MangaAssist application; ``tests/browser`` and ``--demo`` test the whole."""

import asyncio
import io
import json
import re
import sys
from collections.abc import AsyncGenerator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agent_squad.agents import AgentOptions
from agent_squad.types import ConversationMessage
from rich.console import Console
from strands import Agent, tool

from strands_manga_memory import MangaMemory, StoreUnavailableError
from strands_manga_memory.squad import SessionStrandsAgent
from strands_manga_memory.testing import ScriptedModel
from tests.support import stub_tool
from tests.unit.session.support import tool_use

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from mangaassist import catalogue, orders, recall
from mangaassist.assistant.classifier import WordClassifier
from mangaassist.assistant.customer import CustomerTool
from mangaassist.assistant.roles import ROLES
from mangaassist.assistant.servers import SHOWN
from mangaassist.assistant.shop import ChatTurn, Piece, Shop
from mangaassist.terminal import Terminal
from mangaassist.web.chat import MOST_PAGES, MOST_TURNS, BusyError, Chat
from mangaassist.web.server import COOKIE, MOST_CHARACTERS, Web
from mangaassist.web.visitors import Visitor, Visitors

PORT = 8765

# --- the assistant --------------------------------------------------------------------------------


async def test_a_model_cannot_say_who_the_customer_is() -> None:
    asked: list[str] = []

    @tool
    def my_orders(customer: str, limit: int = 3) -> str:
        """List orders."""
        asked.append(customer)
        return "none"

    wrapped = CustomerTool(my_orders)
    assert list(wrapped.tool_spec["inputSchema"]["json"]["properties"]) == ["limit"]
    assert (
        "customer" in my_orders.tool_spec["inputSchema"]["json"]["properties"]
    )  # the tool itself is as it was
    use = tool_use("1", "my_orders", customer="hanako", limit=1)
    agent = Agent(model=ScriptedModel([[use], "done"]), tools=[wrapped])
    await agent.invoke_async("orders of hanako!", invocation_state={"user_id": "taro"})
    assert asked == ["taro"]


@pytest.mark.parametrize(
    ("text", "last", "expected"),
    [
        ("Is it in stock?", None, "products"),
        ("『猫と踏切番』は在庫ありますか？", None, "products"),
        ("注文はいつ届きますか？", "[products] はい。", "orders"),
        ("Where is ord-123456789012?", None, "orders"),
        ("And now?", "[orders] My colleague from escalation takes over with your next message.",
            "escalation"),
        ("それで？", "[orders] 次のメッセージから、苦情担当（escalation）の者が対応いたします。",
            "escalation"),
        ("And now?", "[escalation] Your case is open.", "escalation"),
        ("Yes.", "[products] Paper or digital?", "products"),
        ("Yes.", "[nobody] gone", "products"),
        ("Yes.", "no name at all", "products"),
        ("", None, "products"),
    ],
)  # fmt: skip
async def test_words_or_the_last_answer_classify(
    text: str, last: str | None, expected: str
) -> None:
    classifier = WordClassifier()
    options = [AgentOptions(name=role.name, description=role.purpose) for role in ROLES.values()]
    classifier.set_agents(
        {agent.id: agent for agent in (SessionStrandsAgent(each, _never) for each in options)}
    )
    history: list[Any] = (
        [] if last is None else [ConversationMessage("assistant", [{"text": last}])]
    )
    assert (await classifier.process_request(text, history)).selected_agent.id == expected


def _never(scope: Any) -> Agent:
    raise AssertionError("nobody is asked here")


def _shop(folder: Path, **settings: Any) -> Shop:
    """A shop whose tools are functions of this process instead of servers."""

    @tool
    def search_manga(
        query: str = "", genre: str = "", max_price_yen: int = 10_000, limit: int = 5
    ) -> str:
        """Find manga."""
        found = catalogue.search(
            query, genre=genre or None, max_price_yen=max_price_yen, limit=limit
        )
        return json.dumps(found, ensure_ascii=False, default=vars)

    my_orders = stub_tool("my_orders", lambda: json.dumps(orders.orders_of("u")))
    servers: Any = SimpleNamespace(
        catalogue=search_manga, stock=tool(_get_stock, name="get_stock"), order_tools=[my_orders]
    )
    memory = MangaMemory.open(durable=f"sqlite:///{folder}/shop.sqlite3", memories=True)
    return Shop(memory, servers, folder=folder, **settings)


def _get_stock(asin: str, volume: int) -> str:
    """Tell the stock of a volume."""
    return json.dumps(catalogue.stock(asin, volume))


async def _answer(shop: Shop, text: str) -> tuple[str, str]:
    pieces = [piece async for piece in shop.ask("u", "s", text)]
    assert "".join(piece.text for piece in pieces) == pieces[-1].answer
    return pieces[-1].agent, pieces[-1].answer or ""


async def test_shop_goes_on_after_a_restart_and_shows_all_outcomes(tmp_path: Path) -> None:
    changes: list[tuple[str, dict[str, Any]]] = []
    shop = _shop(tmp_path, budget=800, on_change=lambda s, view: changes.append((s.agent_id, view)))
    answers = [
        await _answer(shop, text)
        for text in (
            "My favorite genre is fantasy.",
            "Find me some manga.",
            "料理の漫画を探しています。",
            "Where is my order?",
        )
    ]
    assert [agent for agent, _ in answers] == ["products", "products", "products", "orders"]
    assert "Lighthouse Star Post" in answers[1][1]
    assert "潮待ち食堂" in answers[2][1]
    assert all(view["request_tokens"] <= view["budget"] <= 800 for _, view in changes)
    assert changes[-1][1]["tiers"]["unsaved_messages"] == 0
    shop.memory.close()

    again = _shop(tmp_path, budget=800)
    assert [(one.agent, one.answer) for one in await again.history("u", "s")] == answers
    views = again.views("u", "s")
    assert list(views) == ["products", "orders"]
    rows = views["products"]["messages"]
    assert [row["role"] for row in rows[:4]] == ["user", "assistant", "user", "assistant"]
    assert len(rows) == 10
    assert (
        {"kept", "dropped"} <= {row["outcome"] for row in rows} <= {"kept", "shortened", "dropped"}
    )
    left = next(row for row in rows if row["outcome"] == "dropped")
    assert left["why"]
    assert 0 <= left["score"] <= 1
    kept = [row for row in rows if row["outcome"] != "dropped"]
    # A request has a placeholder between neighbors of one role, which is one token.
    placeholders = sum(one["role"] == other["role"] for one, other in pairwise(kept))
    assert views["products"]["tokens"] == sum(row["tokens"] for row in kept) + placeholders
    assert again.views("stranger", "s") == {}
    assert "fantasy" in again.known("u")
    assert again.forget("u")
    assert await again.history("u", "s") == []
    again.memory.close()


@pytest.mark.parametrize(
    "talk",
    [
        {"Is The Cat and the Crossing Keeper volume 2 in stock?": "18 copies",
            "I would like to buy it.": "Paper or digital?",
            "Paper.": "Volume 2 (paper) is in your basket."},
        {"『猫と踏切番』2巻は在庫ありますか？": "18冊", "それを買いたいです。": "電子版、どちらに",
            "紙で": "第2巻（紙の本）をかごに"},
        {"Show me The Tide-Waiting Diner.": "18 volumes",
            "And volume 3?": "The Tide-Waiting Diner, volume 3",
            "Is The Cat and the Crossing Keeper in stock?": "volume 1", "buy it": "Which volume",
            "5": "Paper or digital?"},
        {"Is volume 9 of The Cat and the Crossing Keeper in stock?": "has volumes 1 to 5"},
        {"My name is Ken.": "Nice to meet you, Ken", "What is my name?": "Ken"},
        {"私の名前はケンです。": "ケン様", "私の名前は何ですか？": "ケン"},
        {"Is there a cheaper edition of The Lighthouse Star Post?": "These cost less",
            "もっと安い版は？": "もっと安い作品"},
        {"Is there a cheaper edition of Lodgers of Echo House?": "(16 volumes, 561 yen)"},
        {"Do you have horror?": "We have no horror",
            "ホラー漫画はありますか？": "ホラーの作品は取り扱いがありません"},
        {"Where is my order?": "ORD-", "Thanks!": "You are welcome",
            "Do you have sports manga?": "We have no sports"},
    ],
    ids=lambda talk: next(iter(talk)),
)  # fmt: skip
async def test_the_script_knows_the_conversation(tmp_path: Path, talk: dict[str, str]) -> None:
    """A message without a series, volume or genre is answered from earlier ones."""
    shop = _shop(tmp_path)
    for text, part in talk.items():
        assert part in (await _answer(shop, text))[1]
    shop.memory.close()


async def test_a_complaint_goes_to_a_human_with_what_was_said(tmp_path: Path) -> None:
    shop = _shop(tmp_path)
    assert (await _answer(shop, "配送がひどい。苦情です！"))[0] == "orders"
    agent, answer = await _answer(shop, "それで？")
    assert agent == "escalation"
    case = tmp_path / "cases" / f"{answer.split('番')[0].rpartition('、')[2]}.md"
    assert "配送がひどい。苦情です！" in case.read_text(encoding="utf-8")
    assert shop.views("u", "s")["escalation"]["state"]["phase"] == "handoff"
    shop.memory.close()


def test_the_chat_in_the_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shop = _shop(tmp_path)
    shop.servers.status = lambda: {
        "get_stock": dict.fromkeys(SHOWN, 0) | {"state": "open", "server_state": "up"}
    }
    shop.servers.set_fault = lambda kind: kind == "error"
    lines = [
        "Find me some manga about [red]fantasy[/red].", "", "/memory", "/tools", "/fault error",
        "/fault exit", "/what",
    ]  # fmt: skip
    monkeypatch.setattr(Console, "input", lambda self, prompt: lines.pop(0) if lines else "/quit")
    screen = io.StringIO()
    visitors = Visitors(tmp_path / "visitors.sqlite3")
    Terminal(shop, visitors, "u", Console(file=screen, width=120)).chat()
    shown = screen.getvalue()
    for text in (
        "How about one of these?", "[calls search_manga]", "open", "done", "is down", "/forget",
        "breaker not closed",
    ):  # fmt: skip
        assert text in shown
    lines[:] = ["/forget"]
    screen.truncate(0)
    Terminal(shop, visitors, "u", Console(file=screen, width=120)).chat()
    assert "going on after 1 turns" in screen.getvalue()
    assert "[red]fantasy[/red]" in screen.getvalue()  # what was said is text
    assert "everything is gone" in screen.getvalue()
    visitors.close()
    shop.memory.close()


@pytest.mark.parametrize("command", ["/new", "/forget"])
def test_new_session_in_the_terminal(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shop = _shop(tmp_path)
    shop.servers.status = dict
    visitors = Visitors(tmp_path / "visitors.sqlite3")
    lines = [
        "Find me some manga about fantasy.",
        command,
        "/memory",
        "Find me some manga about food.",
    ]
    monkeypatch.setattr(Console, "input", lambda self, prompt: lines.pop(0) if lines else "/quit")
    screen = io.StringIO()
    Terminal(shop, visitors, "u", Console(file=screen, width=120)).chat()
    _, _, after = screen.getvalue().partition("(none yet)")
    assert "fantasy" not in after
    began = visitors.at_terminal("u").session_id
    history = asyncio.run(shop.history("u", began))
    assert [turn.question for turn in history] == ["Find me some manga about food."]
    lines[:] = [command]
    Terminal(shop, visitors, "u", Console(file=screen, width=120)).chat()
    screen.truncate(0)
    Terminal(shop, visitors, "u", Console(file=screen, width=120)).chat()  # as after a restart
    assert "going on" not in screen.getvalue()
    assert visitors.at_terminal("someone else").session_id != began
    visitors.close()
    shop.memory.close()


# --- visitors and chats ---------------------------------------------------------------------------


def test_visitors_are_known_after_a_restart_by_a_token_that_is_not_stored(tmp_path: Path) -> None:
    path = tmp_path / "visitors.sqlite3"
    visitors = Visitors(path)
    (token, visitor), (other, stranger) = visitors.welcome(), visitors.welcome()
    assert visitor.user_id != stranger.user_id
    moved = visitors.begin_session(visitor.user_id)
    visitors.close()
    assert token.encode() not in b"".join(file.read_bytes() for file in tmp_path.iterdir())
    again = Visitors(path)
    assert again.find(token) == moved != visitor
    assert again.find(other) == stranger
    assert [again.find(wrong) for wrong in (None, "", visitor.user_id, token[:-1])] == [None] * 4
    again.close()


class FakeShop:
    """A shop whose answers wait until they are let go."""

    def __init__(self) -> None:
        self.played_by = "scripted"
        self.go = asyncio.Event()
        self.fails: Exception | None = None
        self.on_change: Any = None
        self.servers = SimpleNamespace(status=dict, fault="none", set_fault=lambda k: k != "exit")
        self.ended: list[tuple[str, str]] = []

    async def history(self, user: str, session: str) -> list[ChatTurn]:
        if self.fails:
            raise self.fails
        return [ChatTurn("before?", "products", "before.")]

    def views(self, user: str, session: str) -> dict[str, Any]:
        return {}

    def known(self, user: str) -> str:
        return "nothing"

    def memories(self, user: str, session: str) -> list[dict[str, Any]]:
        return []

    async def ask(self, user: str, session: str, text: str) -> AsyncGenerator[Piece, None]:
        yield Piece("products", "o")
        await self.go.wait()
        if self.fails:
            raise self.fails
        yield Piece("products", "k")
        yield Piece("products", answer="ok")

    def finish(self, user: str, session: str) -> None:
        self.ended.append((user, session))


async def _next(events: AsyncGenerator[str, None]) -> dict[str, Any]:
    return dict(json.loads(await asyncio.wait_for(anext(events), 5)))


async def test_a_page_gets_all_there_is_and_then_each_change() -> None:
    shop: Any = FakeShop()
    chat = Chat(shop, Visitor("u", "s"))
    early = chat.events()
    assert [turn["answer"] for turn in (await _next(early))["turns"]] == ["before."]
    chat.start_turn("<b>now?</b>")
    assert (await _next(early))["turn"]["question"] == "<b>now?</b>"
    assert (await _next(early))["text"] == "o"
    late = chat.events()
    assert (await _next(late))["turns"][1] == {
        "id": 2,
        "question": "<b>now?</b>",
        "agent": "products",
        "answer": "o",
        "quotes": [],
        "done": False,
    }
    shop.go.set()
    for page in (early, late):
        assert (await _next(page))["text"] == "k"
        done = await _next(page)
        assert (done["type"], done["turn"]["answer"], done["turn"]["done"]) == ("done", "ok", True)
        assert (await _next(page))["type"] == "tools"
    await chat.finished()
    assert not chat.is_idle(0)
    chat.end()
    for page in (early, late):
        with pytest.raises(StopAsyncIteration):
            await anext(page)
    assert chat.is_idle(0)


async def test_what_fails_is_told_without_its_words_and_tried_again() -> None:
    shop: Any = FakeShop()
    chat = Chat(shop, Visitor("u", "s"))
    shop.fails = RuntimeError("db password=hunter2")
    with pytest.raises(RuntimeError):
        await chat.opened()
    shop.fails = None
    await chat.opened()
    shop.fails = RuntimeError("db password=hunter2")
    page = chat.events()
    await _next(page)
    shop.go.set()
    for _ in range(MOST_TURNS):
        chat.start_turn("hello")
    with pytest.raises(BusyError):
        chat.start_turn("one too many")
    await chat.finished()
    events = [await _next(page) for _ in range(4 * MOST_TURNS)]
    assert [e["turn"]["done"] for e in events if e["type"] == "done"] == [True] * MOST_TURNS
    assert "hunter2" not in str(events)


async def test_a_slow_page_is_sent_away_and_the_number_of_pages_is_bounded() -> None:
    shop: Any = FakeShop()
    chat = Chat(shop, Visitor("u", "s"))
    pages = [chat.events() for _ in range(MOST_PAGES)]
    for page in pages:
        await _next(page)
    with pytest.raises(BusyError):
        await anext(chat.events())
    for _ in range(2_000):
        chat.publish_tool_status()
    count = 0
    async for _ in pages[0]:
        count += 1
    assert 0 < count < 2_000


# --- the server -----------------------------------------------------------------------------------

GOOD = {
    "host": f"127.0.0.1:{PORT}",
    "origin": f"http://127.0.0.1:{PORT}",
    "content-type": "application/json",
}


class Site:
    """The application, called as an ASGI server does, by a visitor it knows."""

    def __init__(self, folder: Path) -> None:
        self.shop: Any = FakeShop()
        self.visitors = Visitors(folder / "visitors.sqlite3")
        self.token, self.visitor = self.visitors.welcome()
        self.app = Web(self.shop, self.visitors, port=PORT).app

    async def send(
        self, method: str, path: str, body: bytes = b"{}", **headers: str | None
    ) -> tuple[int, dict[str, str], str]:
        given = {
            **GOOD,
            "cookie": f"{COOKIE}={self.token}",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        raw = [(name.encode(), v.encode()) for name, v in given.items() if v is not None]
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": raw,
            "http_version": "1.1",
            "scheme": "http",
            "server": ("127.0.0.1", PORT),
            "client": ("127.0.0.1", 1),
            "root_path": "",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
        }
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return (
            sent[0]["status"],
            found,
            b"".join(each.get("body", b"") for each in sent[1:]).decode(),
        )


@pytest.fixture
def site(tmp_path: Path) -> Any:
    made = Site(tmp_path)
    yield made
    made.visitors.close()


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": f"evil.example:{PORT}", "origin": f"http://evil.example:{PORT}"},
        {"host": "127.0.0.1:1"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": None},
        {"origin": f"http://127.0.0.1:{PORT + 1}"},
        {"content_type": "text/plain"},
        {"content_type": "application/x-www-form-urlencoded"},
        {"content_type": None},
        {"sec_fetch_site": "cross-site", "sec_fetch_mode": "cors"},
        {"sec_fetch_site": "same-site", "sec_fetch_mode": "no-cors"},
    ],
)
async def test_other_sites_can_change_nothing(site: Site, headers: dict[str, str | None]) -> None:
    for path in ("/messages", "/sessions", "/fork", "/rewind", "/forget", "/stock"):
        status, _, _ = await site.send("POST", path, b'{"text": "hello"}', **headers)
        assert status == 403
    assert site.shop.ended == []


async def test_text_that_no_page_could_show_is_refused_or_mended(site: Site) -> None:
    assert (await site.send("POST", "/messages", b"[" * 16_000))[0] == 400
    assert (await site.send("POST", "/messages", b'{"text": ' + b"[" * 12_000))[0] == 400
    from mangaassist.web.chat import _json

    encoded = _json({"type": "said", "text": "half an emoji \ud83d"})
    assert encoded.encode()
    assert json.loads(encoded)["text"] == "half an emoji \ud83d"


async def test_a_visitor_gets_a_cookie_that_scripts_and_other_sites_do_not_see(site: Site) -> None:
    status, headers, body = await site.send(
        "GET", "/", cookie=None, sec_fetch_site="cross-site", sec_fetch_mode="navigate"
    )
    assert status == 200
    assert {"HttpOnly", "SameSite=lax"} <= set(headers["set-cookie"].split("; "))
    assert "default-src 'none'; script-src 'self'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "<script>" not in body
    status, headers, _ = await site.send("GET", "/")  # one who has it keeps it
    assert (status, "set-cookie" in headers) == (200, False)
    for path, kind in (("/page.js", "text/javascript"), ("/page.css", "text/css")):
        status, headers, body = await site.send("GET", path)
        assert (status, headers["content-type"].partition(";")[0]) == (200, kind)
        assert "innerHTML" not in body
    assert (await site.send("GET", "/../__main__.py"))[0] == 404
    for path in ("/messages", "/sessions", "/fork", "/rewind", "/forget", "/stock"):
        assert (await site.send("POST", path, cookie=f"{COOKIE}={site.visitor.user_id}"))[0] == 401


async def test_requests_are_checked_and_bounded(site: Site) -> None:
    async def say(body: bytes) -> int:
        return (await site.send("POST", "/messages", body))[0]

    site.shop.fails = StoreUnavailableError("redis://:hunter2@cache does not answer")
    status, _, text = await site.send("POST", "/messages", b'{"text": "hello"}')
    assert (status, "hunter2" in text, "Nothing of it is lost" in text) == (503, False, True)
    site.shop.fails = None
    for path in ("/fork", "/rewind"):
        for named in (b"{}", b'{"turn": 99}', b'{"turn": [1]}', b'{"turn": true}'):
            assert (await site.send("POST", path, named))[0] == 422
    assert await say(b"{") == 400
    assert await say(b"\xff\xfe") == 400
    for body in (
        "[]",
        "{}",
        '{"text": 5}',
        '{"text": " "}',
        json.dumps({"text": "x" * (MOST_CHARACTERS + 1)}),
    ):
        assert await say(body.encode()) == 422
    assert await say(b'{"text": "' + b"x" * 20_000 + b'"}') == 413
    found = [await say(b'{"text": "\xe6\xbc\xab\xe7\x94\xbb"}') for _ in range(MOST_TURNS + 1)]
    assert found == [202] * MOST_TURNS + [429]
    assert (await site.send("GET", "/page.js", host="evil.example"))[0] == 403
    site.shop.go.set()
    assert (await site.send("POST", "/stock", b'{"fault": "fire"}'))[0] == 422
    assert (await site.send("POST", "/stock", b'{"fault": "error"}'))[0] == 200
    assert (await site.send("POST", "/stock", b'{"fault": "exit"}'))[0] == 503  # it is down already
    assert (await site.send("POST", "/sessions"))[0] == 200  # after the turns that were under way
    assert site.shop.ended == [(site.visitor.user_id, site.visitor.session_id)]
    assert site.visitors.find(site.token).session_id != site.visitor.session_id


def test_the_quick_start_shows_an_instruction_kept_and_a_japanese_passage_recalled() -> None:
    console = Console(record=True, width=160, file=io.StringIO())
    recall.show(console)
    shown = console.export_text()
    assert re.search(r"kept +high band +毎回、税込価格で教えてください。", shown)
    quoted = next(line for line in shown.splitlines() if line.lstrip().startswith("[assistant"))
    assert "返品は到着から八日以内であれば送料無料で承ります。" in quoted
    assert "営業時間は店舗" not in quoted, "of a long answer only what fits the question is quoted"
