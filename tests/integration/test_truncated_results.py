"""Truncated tool results of many forms: what the model receives of them."""

import base64
import json
import random
import re
from typing import Any

import pytest
from strands import Agent

from strands_manga_memory import ImportanceWeightedConversationManager
from strands_manga_memory.testing import ScriptedModel
from tests.support import stub_tool

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
