"""Truncated tool results of many forms and sizes: what the model receives of them."""

import base64
import json
import random
import re
from collections.abc import Callable
from typing import Any

import pytest
from strands import Agent, tool
from strands.agent.conversation_manager.compression.pin_message import pin_message
from strands.types.content import Message

from strands_manga_memory import ImportanceWeightedConversationManager, MangaMemory
from strands_manga_memory.conversation import TieredCompactionConversationManager, default_counter
from strands_manga_memory.testing import ScriptedModel
from tests.histories import problems
from tests.support import stub_tool, tool_results
from tests.unit.session.support import assistant, tool_result, tool_use, user

READER = re.compile(r"\n\[\.\.\. \d+ characters cut; read_cut_message\('\w{8}'\) \.\.\.\]\n")


def received(text: str, budget: int = 600, later: int = 0) -> str:
    """Return the result of a tool as a model receives it, ``later`` turns after the call."""

    fetch = stub_tool("fetch", lambda: text)
    call = [{"toolUse": {"toolUseId": "c1", "name": "fetch", "input": {}}}]
    model = ScriptedModel([call, *["Yes."] * (later + 1)])
    agent = Agent(
        model=model,
        tools=[fetch],
        conversation_manager=ImportanceWeightedConversationManager(max_tokens=budget),
        callback_handler=None,
    )
    agent("Please fetch the document, I need it.")
    for number in range(later):
        agent(f"And what does part {number} say about the order?")
    [result] = [
        block["toolResult"]
        for message in model.requests[-1].messages
        for block in message["content"]
        if "toolResult" in block
    ]
    return str(result["content"][0]["text"])


REPORTS: list[dict[str, Any]] = [
    {"level": "ERROR", "msg": "charge of ORD-55120 declined", "detail": "code 51 of the gateway"},
    {"severity": "critical", "message": "disk /dev/sda1 is full", "detail": "code 51"},
    {"error": "ORD-55120 was refused", "detail": "code 51"},
    {"is_failed": True, "order": "ORD-55120", "detail": "code 51"},
    {"状態": "失敗", "注文": "ORD-55120", "detail": "コード code 51"},
]


@pytest.mark.parametrize("report", REPORTS)
@pytest.mark.parametrize("form", ["lines", "list"])
@pytest.mark.parametrize("budget", [300, 600, 2_000])
def test_json_of_an_error_stays_in_a_list(report: dict[str, Any], form: str, budget: int) -> None:
    records: list[dict[str, Any]] = [
        {"ts": f"10:{at // 60:02}:{at % 60:02}", "level": "INFO", "msg": f"GET {at}", "id": at}
        for at in range(300)
    ]
    records[150] |= report
    kept = received(
        "\n".join(map(json.dumps, records)) if form == "lines" else json.dumps({"log": records}),
        budget,
    )
    assert json.dumps(records[150], ensure_ascii=False) in kept
    left_out = sum(map(int, re.findall(r"\[\.\.\. (\d+) more items \.\.\.\]", kept)))
    assert left_out == 300 - len(re.findall(r'"id"', kept))
    assert READER.search(kept)


@pytest.mark.parametrize("lines", [True, False])
def test_many_reports_of_errors_do_not_drive_out_the_identifiers(lines: bool) -> None:
    orders = [
        {"order_id": f"ORD-{at}", "state": "failed", "note": "Leave it at the door. " * 4}
        for at in range(40)
    ]
    kept = received("\n".join(map(json.dumps, orders)) if lines else json.dumps(orders))
    assert all(order["order_id"] in kept for order in orders)


def test_a_line_of_an_error_within_a_list_of_texts_stays() -> None:
    texts = [f"10:00 INFO served volume {at} to a reader" for at in range(300)]
    texts[150] = "10:00 ERROR ORD-55120 declined"
    assert texts[150] in received(json.dumps({"log": texts}))


SCRIPT = "window.dataLayer.push({event: 'view', value: 1}); if (a < b && c > d) track('error');\n"
STYLE = ".item { margin: 0; color: #fefefe }\n"
ROWS = [("うずまき", "900円", "在庫切れ"), ("Akira", "1,200円", "在庫あり")] * 9
PAGE = (
    '<!DOCTYPE html>\n<html lang="ja"><head><title>Manga &amp; more</title>\n'
    f"<style>{STYLE * 90}</style><script>{SCRIPT * 60}</script></head>\n"
    "<body><!-- <p>not shown</p> --><h1>In <b>sto</b>ck</h1>\n<table>\n"
    + "".join(
        "<tr>\n" + "".join(f'  <td class="item">{cell}</td>\n' for cell in row) + "</tr>\n"
        for row in ROWS
    )
    + f"</table><pre>def total():\n    return 5</pre><p>Hotline<br>0120-555-777</p>"
    f"<SCRIPT type='module'>{SCRIPT * 60}</SCRIPT ></body></html>"
)


@pytest.mark.parametrize("before", ["", "Status Code: 200\nHeaders: {'a': 'b'}\nBody:"])
def test_a_page_of_html_keeps_its_visible_text(before: str) -> None:
    kept = received(before + PAGE)
    assert kept.startswith(
        f"{before}\nManga & more\nIn stock\nうずまき\t900円\t在庫切れ\n".lstrip()
    )
    assert "\nAkira\t1,200円\t在庫あり\n" in kept
    assert "def total():\n    return 5\nHotline\n0120-555-777" in kept
    assert not re.search("dataLayer|margin|not shown|<", kept)
    [cut] = re.findall(r"(\d+) characters cut", kept)
    assert int(cut) == len(before + PAGE) - len(READER.sub("", kept))
    assert READER.search(kept)


def test_a_page_within_json_keeps_its_visible_text() -> None:
    kept = received(json.dumps({"status": 200, "url": "https://shop.example/1", "body": PAGE}))
    assert kept.startswith('{"status": 200, "url": "https://shop.example/1", "body": "')
    assert "Manga & more" in kept
    assert "dataLayer" not in kept


@pytest.mark.parametrize(
    "text",
    [
        "".join(f'<item id="{at}"><p>{at}</p></item>\n' for at in range(200)),
        "# Pages\n\n```html\n<html><body>\n```\n" + "A page has a body. " * 200,
        "".join(f"if a < b and c > {at}: use(List<int>)\n" for at in range(200)),
    ],
    ids=["XML", "Markdown", "code"],
)
def test_other_texts_with_tags_keep_them(text: str) -> None:
    kept = received(text)
    assert kept.startswith(text[:40])
    assert kept.endswith(text[-20:])


@pytest.mark.parametrize("wrap", [10_000, 76])
def test_of_a_base64_value_only_the_beginning_stays(wrap: int) -> None:
    data = base64.b64encode(random.Random(7).randbytes(9_000)).decode()
    blob = "\n".join(data[at : at + wrap] for at in range(0, len(data), wrap))
    kept = received(f"cover.png, 9 KB:\n{blob}\nStored as s3://covers/9f86d081.png\n")
    assert kept.startswith(f"cover.png, 9 KB:\n{data[:22]}")
    assert "\nStored as s3://covers/9f86d081.png\n" in kept
    assert len(READER.sub("", kept)) < 200


def test_an_element_of_xml_is_not_mixed_with_others() -> None:
    """The line of a failed order would be read as the beginning of the order at the end."""
    text = "<orders>\n" + "".join(
        f'  <order id="ORD-{at}" state="{"failed" if at == 50 else "sent"}">\n'
        f"    <total>{900 + at}</total>\n  </order>\n"
        for at in range(100)
    )
    assert "ORD-50" not in received(text)


@pytest.mark.parametrize(
    "line",
    [
        '10.0.0.7 - - [02/Mar/2026:10:02:20 +0000] "POST /pay/ORD-55120 HTTP/1.1" 503 87',
        "npm ERR! code ERESOLVE",
        "Process 88 crashed",
    ],
)
def test_lines_of_failures_without_the_word_error_stay(line: str) -> None:
    lines = [f"10:{at // 60:02}:{at % 60:02} GET /volumes/{at} 200" for at in range(600)]
    assert line in received("\n".join([*lines[:300], line, *lines[300:]]))


@pytest.mark.parametrize(
    "text", ["A spiral. " * 900, json.dumps([{"id": at} for at in range(900)])]
)
def test_small_and_old_results_say_how_to_read_them(text: str) -> None:
    for budget in (160, 200, 300, 600):
        assert READER.search(received(text, budget)), budget
    for later in (1, 3):
        assert READER.search(received(text, 400, later)), later


@pytest.mark.parametrize("budget", [200, 400, 900])
def test_numbers_of_records_without_an_identifier_keep_their_labels_and_units(budget: int) -> None:
    """A revenue without its segment, or an amount without its currency, would mislead."""
    rows = [
        {"segment": f"Segment {letter}", "revenue": -1_234_567.5 * at, "cash": {
            "amount": 10.5 * at, "currency": "EUR"}, "note": "As planned in the spring. " * 4}
        for at, letter in enumerate("ABCDEFGHIJKLMNOP", start=1)
    ]  # fmt: skip
    kept = json.loads(received(json.dumps({"rows": rows}), budget).split("\n[...")[0])["rows"]
    shown = [row for row in kept if isinstance(row, dict)]
    assert shown
    assert shown[0]["cash"] == rows[0]["cash"]
    assert all(row["segment"].startswith("Segment ") for row in shown)


@pytest.mark.parametrize("budget", [130, 200, 400])
def test_left_out_records_of_an_object_are_counted(budget: int) -> None:
    """Eight nodes by name are not shown as an object of five."""
    nodes = {
        f"node-{at}": {"zone": "eu-1a", "pods": [{"podId": f"pod-{at}-{n}"} for n in range(20)]}
        for at in range(8)
    }
    kept = json.loads(received(json.dumps({"nodes": nodes}), budget).split("\n[...")[0])["nodes"]
    assert len(kept.keys() & nodes) + kept.get("[... more items ...]", 0) == len(nodes)


LINES = {
    "values": "".join(f"customer_{at}_balance: {at * 1234.56:.2f}\n" for at in range(150)),
    "addresses": "\n".join(f"https://shop.example/item/{at * 7919}?ref={at}" for at in range(90)),
    "csv": "id,sku,note\n" + "".join(f'ORD-{at},SKU-{at},"leave, at door"\n' for at in range(90)),
    "table": "| id | state |\n|---|---|\n" + "".join(f"| {n} | On its way |\n" for n in range(90)),
}


@pytest.mark.parametrize("text", LINES.values(), ids=LINES)
def test_the_end_of_a_list_starts_with_a_whole_line(text: str) -> None:
    """A value without its key, or the second half of an address, would mislead."""
    for budget in range(90, 300, 13):
        end = READER.split(received(text, budget))[-1]
        assert set(end.splitlines()) <= set(text.splitlines()), budget


@pytest.mark.parametrize("later", [0, 3])
def test_a_null_in_the_first_record_that_others_lack_is_no_error(later: int) -> None:
    """Without a truncation, the whole request would be sent as it is."""
    records = [{"id": 1, "note": None}, *[{"id": at, "text": "story " * 9} for at in range(2, 99)]]
    assert READER.search(received(json.dumps(records), 400, later))


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


_WINDOW = 32_000
_TRIGGER = 21_440


def _tokens(messages: list[Message]) -> int:
    return sum(map(default_counter().count, messages))


def _call(number: int) -> list[dict[str, Any]]:
    return [tool_use(f"t{number}", "search", query=str(number))]


@tool
def search(query: str) -> dict[str, Any]:
    """Search the shop."""
    titles = [
        {"id": f"B{query}{at:04d}", "title": f"A Silent Voice {at}", "price": 4.5, "stock": at}
        for at in range(1_500)
    ]
    return {
        "status": "success",
        "content": [{"json": {"query": query, "titles": titles, "total": 1_500}}],
    }


def _agent(turns: int, **more: Any) -> Agent:
    replies: list[Any] = []
    for number in range(turns):
        replies += [_call(number), "It is in stock. " * 8]
    model = ScriptedModel(replies, usage=lambda _: 0)
    return Agent(
        model=model,
        tools=[search],
        conversation_manager=TieredCompactionConversationManager(window=_WINDOW),
        **more,
    )


def test_large_results_among_the_latest_messages_are_capped() -> None:
    """Two results over the trigger are cut to 10,000 characters each."""
    agent = _agent(2)
    for number in range(2):
        agent(f"What about {number}?")
    assert all(_tokens(request.messages) < _TRIGGER for request in agent.model.requests)
    assert all(problems(request.messages) == [] for request in agent.model.requests)
    assert all(len(r["content"][0]["text"]) <= 10_000 for r in tool_results(agent.messages))
    assert len(tool_results(agent.messages)) == 2


def test_capped_json_result_stays_json_and_can_be_read_in_full() -> None:
    """It keeps keys and some items, and names the tool for all of it."""
    agent = _agent(1)
    agent("What about 0?")
    text, _, note = tool_results(agent.messages)[0]["content"][0]["text"].partition("\n[... ")
    shown = json.loads(text)
    assert shown.keys() == {"query", "titles", "total"}
    assert shown["titles"][0] == {
        "id": "B00000",
        "title": "A Silent Voice 0",
        "price": 4.5,
        "stock": 0,
    }
    assert f"[... {1_500 - len(shown['titles']) + 1} more items ...]" in shown["titles"]
    assert len(shown["titles"]) > 50
    name = note.partition("read_cut_message('")[2].partition("'")[0]
    read, more = "", True
    while more:
        page = agent.tool.read_cut_message(
            name=name, offset=len(read), record_direct_tool_call=False
        )
        part, more, _ = page["content"][0]["text"].partition("\n[characters")
        read += part
    assert len(json.loads(read)["titles"]) == 1_500


def test_compaction_goes_on_after_runs_that_find_nothing_to_do() -> None:
    """Recent messages of fixed size do not stop later compactions."""
    pasted = "I read this review today. " * 2_400
    agent = _agent(30)
    agent.model = ScriptedModel(lambda messages: "Noted.", usage=lambda _: 0)
    for _ in range(2):
        agent(pasted)
    for number in range(4):
        agent(f"And number {number}?")
    stats = agent.conversation_manager.stats()
    assert stats.compactions >= 3
    assert (stats.failures, stats.stopped) == (0, False)
    agent.model = ScriptedModel([_call(7), "In stock."], usage=lambda _: 0)
    agent("What about 7?")
    assert len(tool_results(agent.messages)[-1]["content"][0]["text"]) <= 10_000


def test_pinned_results_are_not_capped() -> None:
    """A message that is pinned keeps its results, however large."""
    agent = _agent(2)
    agent("What about 0?")
    large = tool_result("p", "found " * 4_000)
    use = tool_use("p", "search", query="p")
    agent.messages += [user("look"), assistant(use), user(large), assistant("found")]
    pin_message(agent.messages, len(agent.messages) - 2)
    agent("What about 1?")
    found = next(result for result in tool_results(agent.messages) if result["toolUseId"] == "p")
    assert found == large["toolResult"]


def test_capped_results_are_restored_and_read_from_the_session(tmp_path: Any) -> None:
    """An agent per request shows capped results and reads whole ones from the log."""
    url = f"sqlite:///{tmp_path}/memory.db"
    with MangaMemory.open(durable=url) as memory:
        for number in range(3):
            model = ScriptedModel([_call(number), "In stock."], usage=lambda _: 0)
            model.update_config(context_window_limit=_WINDOW)
            agent = memory.agent(
                model, user_id="u", session_id="s", history="compact", tools=[search]
            )
            agent(f"What about {number}?")
            assert all(_tokens(request.messages) < _TRIGGER for request in model.requests)
        agent = memory.agent(model, user_id="u", session_id="s", history="compact", tools=[search])
        assert all(len(r["content"][0]["text"]) <= 10_000 for r in tool_results(agent.messages))
        name = tool_results(agent.messages)[0]["content"][0]["text"].partition(
            "read_cut_message('"
        )[2][:8]
        page = agent.tool.read_cut_message(name=name, offset=12_000, record_direct_tool_call=False)
        assert "A Silent Voice" in page["content"][0]["text"]


def test_a_long_tool_input_is_shown_whole_or_not_at_all() -> None:
    """Within an input no marker stands, which the model might write into the next file."""
    written: list[str] = []

    @tool
    def save_file(path: str, content: str) -> str:
        """Save a file."""
        written.append(content)
        return f"saved {path}"

    content = "One line of the chapter about the shop.\n" * 700
    call = tool_use("t1", "save_file", path="chapter.md", content=content)
    model = ScriptedModel([[call], "Saved.", "Yes.", "Yes."])
    manager = ImportanceWeightedConversationManager(2_048)
    agent = Agent(model=model, tools=[save_file], conversation_manager=manager)
    agent("Save the chapter.")
    agent("Is it saved?")
    assert written == [content]
    blocks = [block for message in model.requests[1].messages for block in message["content"]]
    inputs = [block["toolUse"]["input"] for block in blocks if "toolUse" in block]
    assert inputs == [{"path": "chapter.md"}]
    assert any("Input of save_file not shown: content" in block.get("text", "") for block in blocks)
    assert all(problems(request.messages) == [] for request in model.requests)


def test_large_result_of_the_current_turn_leaves_room_for_earlier_words() -> None:
    """Trimming in steps truncates the result before it evicts all earlier words."""
    result = json.dumps(
        [
            {"id": f"B{n:04d}", "price": 500 + n, "description": "An edition of 300 pages. " * 12}
            for n in range(20)
        ]
    )

    search = stub_tool("search", lambda: result)
    statements = [f"My shelf number {n} holds {100 + n} volumes of series {n}." for n in range(20)]
    call = tool_use("c1", "search")
    model = ScriptedModel([*["Noted."] * len(statements), [call], "Here they are."])
    manager = ImportanceWeightedConversationManager(2_000, trim_every=7)
    agent = Agent(model=model, tools=[search], conversation_manager=manager)
    for text in [*statements, "Search, please."]:
        agent(text)
    request = str(model.requests[-1].messages)
    assert sum(text in request for text in statements) >= 8
    assert all(f"B{n:04d}" in request for n in range(20))
