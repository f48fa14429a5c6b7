"""Truncation keeps identifiers of JSON, lines of tables and code, and sentences."""

import json
import random
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from strands_manga_memory.conversation import EstimateCounter
from strands_manga_memory.conversation.message_truncation import condensed_message, is_truncated
from strands_manga_memory.conversation.truncation import CUT_MARKER, excerpt_text, truncate_text
from strands_manga_memory.messages.json_text import find_json

COUNTER = EstimateCounter()
WORDS = [
    "dark", "dreary", "spiral", "town", "ghost", "story", "of", "the", "sea", "and", "the",
    "silent", "moon",
]  # fmt: skip
CHANCE = random.Random(7)


def prose(words: int) -> str:
    return " ".join(CHANCE.choices(WORDS, k=words))


ORDERS = {
    "status": "ok",
    "orders": [
        {
            "order_id": f"ORD-{1_000 + n}",
            "total": 10.5 + n,
            "gift": False,
            "note": None,
            "comment": prose(12),
        }
        for n in range(12)
    ],
}
PRODUCT = {
    "asin": "B07X1234",
    "title": "Berserk 3",
    "price": 49.9,
    "description": prose(200),
    "publisher": {"id": 77},
}
JAPANESE = {
    "注文": [
        {"注文番号": f"注文-{n:02}", "商品名": "呪術廻戦", "説明": "とても怖い話です。" * 6}
        for n in range(12)
    ]
}
RESULTS = [{"id": 500 + n, "name": f"Series {n}", "blurb": prose(20)} for n in range(20)]
SHIPMENT = {
    "events": [{"at": f"2026-03-{n:02}", "place": prose(12)} for n in range(14)],
    "shipment": {"tracking_number": "1Z9"},
}
BY_ID = {f"ORD-{n:04}": {"customer": prose(3), "parts": [{"note": prose(9)}]} for n in range(28)}
VALUES: list[Any] = [ORDERS, PRODUCT, JAPANESE, RESULTS, SHIPMENT, BY_ID]
FORMS: dict[str, Callable[[Any], str]] = {
    "compact": lambda value: json.dumps(value, separators=(",", ":"), ensure_ascii=False),
    "escaped": json.dumps,
    "indented": lambda value: json.dumps(value, indent=2, ensure_ascii=False),
    "lines": lambda value: "\n".join(
        json.dumps(part) for part in (value if isinstance(value, list) else [value, {"page": 1}])
    ),
    "fence": lambda value: f"Here:\n```json\n{json.dumps(value, indent=2)}\n```\nAnything else?",
    "sentence": lambda value: f"The shop's answer: {json.dumps(value)}",
    "python": str,
    "string": lambda value: json.dumps(json.dumps(value)),
    "nested": lambda value: json.dumps({"content": [{"type": "text", "text": json.dumps(value)}]}),
}
IDENTIFIERS = re.compile(r"ORD-\d{4}|B07X1234|注文-\d\d|\"id\": \d+|1Z9")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("number", range(len(VALUES)))
def test_an_excerpt_and_a_truncated_text_hold_all_identifiers(form: str, number: int) -> None:
    """Values in nine forms keep all identifiers in 600 characters."""
    text = FORMS[form](VALUES[number])
    wanted = set(IDENTIFIERS.findall(json.dumps(VALUES[number], ensure_ascii=False)))
    for short in (excerpt_text(text, 600), truncate_text(text, 600, len)):
        assert set(IDENTIFIERS.findall(short)) == wanted
        assert len(short) <= 600
        kept = CUT_MARKER.split(short)[0]
        _, found = find_json(kept)
        assert sum(each.end - each.start for each in found) > 0.5 * len(kept)


def test_a_long_list_says_how_many_items_were_dropped() -> None:
    text = json.dumps({"ids": [f"ORD-{n}" for n in range(5_000)]})
    for tokens in (400, 200):
        text = truncate_text(text, tokens, COUNTER.text)
        assert COUNTER.text(text) <= tokens
        ids = json.loads(CUT_MARKER.split(text)[0])["ids"]
        [note] = [item for item in ids if item.startswith("[")]
        assert int(re.findall(r"\d+", note)[0]) == 5_000 - (len(ids) - 1)
        assert [ids[0], ids[-1]] == ["ORD-0", "ORD-4999"]


@pytest.mark.parametrize(("records", "kept"), [(30, 30), (45, 45), (60, 17), (90, 17)])
def test_as_many_identifiers_and_details_are_kept_as_fit(records: int, kept: int) -> None:
    note = "ships late in the month " * 4
    listed = [
        {"id": f"B{at:07d}", "title": f"Volume {at} of a series", "price": 900 + at, "note": note}
        for at in range(records)
    ]
    shorter = truncate_text(json.dumps(listed), 1_200, len)
    assert sum(f"B{at:07d}" in shorter for at in range(records)) == kept
    assert 1_100 < len(shorter) <= 1_200


def test_numbers_of_the_first_records_are_kept_before_lists_of_words() -> None:
    volumes = [
        {
            "sku": f"B07X2201-{number:02d}",
            "price_yen": 594 + number,
            "editions": ["ja", "en"],
            "about": "A story. " * 30,
        }
        for number in range(36)
    ]
    kept = truncate_text(json.dumps(volumes), 700, COUNTER.text)
    assert all(volume["sku"] in kept for volume in volumes)
    assert "594" in kept


def test_an_object_of_lists_does_not_remove_the_identifiers_beside_it() -> None:
    """A list without identifiers may be longer than the other members of its object."""
    first = {"note": "short", "tags": [f"tag {number}" for number in range(40)]}
    orders = [{"sku": f"ORD-{n}", "name": "Uzumaki " * 9, "about": "story " * 40} for n in range(4)]
    text = "\n".join(map(json.dumps, [first, *orders]))
    for most in range(200, 600, 30):
        assert all(order["sku"] in truncate_text(text, most, len) for order in orders)


def test_prose_beside_a_list_takes_no_room_from_its_identifiers() -> None:
    about = {f"note {at}": "Leave it at the door. " * 9 for at in range(9)}
    orders = [{"order_id": f"ORD-{at}", "comment": "Thanks. " * 9} for at in range(20)]
    shorter = truncate_text(json.dumps({**about, "orders": orders}), 700, len)
    assert len(re.findall(r"ORD-\d+", shorter)) == len(orders)


@pytest.mark.parametrize("envelope", ["code", "request_id", "statusCode"])
def test_an_identifier_beside_a_list_does_not_take_its_place_in_an_excerpt(envelope: str) -> None:
    orders = [{"order_id": f"ORD-{at}", "note": "Leave it at the door. " * 4} for at in range(40)]
    excerpt = excerpt_text(json.dumps({envelope: 200, "data": {"orders": orders}}), 600)
    assert excerpt.startswith(f'{{"{envelope}": 200, "data": {{"orders": [{{"order_id": "ORD-0"}}')
    assert len(re.findall(r"ORD-\d+", excerpt)) > 15


@pytest.mark.parametrize(
    "shorten", [excerpt_text, lambda text, most: truncate_text(text, most, len)]
)
def test_items_with_one_identifier_keep_differences(shorten: Callable[[str, int], str]) -> None:
    items = [
        {"asin": "B07X1003", "volume": at, "about": "An edition in hardcover. " * 4}
        for at in range(1, 26)
    ]
    shorter = shorten(json.dumps({"found": 25, "items": items}), 1000)
    assert len(re.findall(r'"volume": \d+', shorter)) > 8


def test_json_that_fits_without_its_white_space_loses_nothing() -> None:
    """Indentation goes first; then nothing is marked as cut."""
    text = json.dumps(ORDERS, indent=8)
    assert json.loads(truncate_text(text, len(json.dumps(ORDERS)) + 80, len)) == ORDERS


def test_numbers_and_unpaired_surrogates_are_kept_as_written() -> None:
    text = (
        '{"total": 19.90, "id": 123456789012345678901234567890, "name": "\\ud800", "text": "'
        + "word " * 400
        + '"}'
    )
    short = truncate_text(text, 300, len)
    assert '"total": 19.90, "id": 123456789012345678901234567890' in short
    assert short.encode()


@pytest.mark.parametrize(
    "report",
    [
        "ERROR order ORD-77 was refused",
        "E  ValueError: bad code B07X",
        "注文に失敗しました: ORD-77",
    ],
)
def test_a_line_that_reports_an_error_stays_in_its_place(report: str) -> None:
    lines = [f"2026-11-27 10:{at // 60:02}:{at % 60:02} GET /volumes/{at} 200" for at in range(600)]
    text = "\n".join([*lines[:300], report, *lines[300:]])
    short = text
    for tokens in (400, 150):
        short = truncate_text(short, tokens, COUNTER.text)
        assert COUNTER.text(short) <= tokens
        marker = CUT_MARKER.search(short)
        head, behind = short[: marker.start()], short[marker.end() :]
        assert head.startswith(lines[0])
        assert behind.startswith(f"{report}\n")
        assert behind.endswith(lines[-1])
        assert int(marker[1]) == len(text) - len(head) - len(behind)


@pytest.mark.parametrize(
    "failing", [range(40), range(560, 600), range(600)], ids=["first", "last", "all"]
)
def test_errors_at_the_beginning_or_end_of_a_log_leave_no_room_unused(failing: range) -> None:
    lines = [
        f"10:{at // 60:02}:{at % 60:02} {'ERROR refused' if at in failing else 'GET'} {at}"
        for at in range(600)
    ]
    assert 3_100 < len(truncate_text("\n".join(lines), 4_000, len)) <= 4_000


@pytest.mark.parametrize(
    "row",
    ["    return state({0})  # {1}\n", "| {0} | {1} |\n", "{0},{1},5\n"],
    ids=["code", "table", "CSV"],
)
def test_rows_of_tables_and_code_about_errors_stay_in_their_place(row: str) -> None:
    text = "".join(row.format(at, "sent" if at % 50 else "failed") for at in range(300))
    marker = CUT_MARKER.search(short := truncate_text(text, 900, len))
    assert text.startswith(short[: marker.start()])
    assert text.endswith(short[marker.end() :])


TABLE = "| id | state |\n|---|---|\n" + "".join(f"| {n} | Sent. On its way |\n" for n in range(200))
TABS = "id\tstate\tprice\n" + "".join(f"{n}\tSent. On its way\t5\n" for n in range(200))
CSV = "id,state,price\n" + "".join(f"{n},Sent. On its way,5\n" for n in range(200))
CODE = "```python\n" + "".join(f"    total = add(total, {n}). done\n" for n in range(200)) + "```\n"
XML = "<orders>\n" + "".join(f"  <o id='{n}'>Sent. Off</o>\n" for n in range(99)) + "</orders>"


@pytest.mark.parametrize(
    "text", [TABLE, TABS, CSV, CODE, XML], ids=["table", "tabs", "csv", "code", "xml"]
)
def test_tables_and_code_keep_whole_lines(text: str) -> None:
    for tokens in (200, 60):
        short = truncate_text(text, tokens, COUNTER.text)
        head, marker, tail = short.partition("\n[...")
        assert marker
        lines = [
            line for line in [*head.splitlines(), *tail.partition("]\n")[2].splitlines()] if line
        ]
        assert set(lines) <= set(text.splitlines())
        assert len(lines) >= 3
        assert [lines[0], lines[-1]] == [text.splitlines()[0], text.splitlines()[-1]]


def test_a_row_that_is_too_long_is_cut_between_words() -> None:
    """A number is never cut within its digits."""
    row = "7,9,8," + " ".join(str(123_456_789 + n) for n in range(90))
    for tokens in range(50, 90, 7):
        head = truncate_text(f"{row}\n{row}", tokens, COUNTER.text).partition("\n[...")[0]
        assert row.startswith(head)
        assert row[len(head.rstrip())] == " "


@pytest.mark.parametrize(
    "text",
    [
        *(form(value) for form in FORMS.values() for value in VALUES),
        json.dumps([True] * 900),
        TABLE,
        "店は開きます。" * 90,
        "x" * 900,
    ],
)
def test_a_truncated_text_is_never_empty(text: str) -> None:
    """Even without any room some characters stay beside the marker."""
    for tokens in (1, 5, 20, 40):
        assert CUT_MARKER.sub("", truncate_text(text, tokens, COUNTER.text)).strip()
        assert CUT_MARKER.sub("", excerpt_text(text, tokens)).strip()


@pytest.mark.parametrize(
    "part",
    [
        '["', "{'", "[1", '{"a":', "('", '[{"a": 1}, ', "[[0, 1], ", "it's {'a': [", "\\", "a,",
        "| a |\n", "```\n", "店。", "A.b", "<p>", "<p", "<p> <td ", "<script>", "<p><!--",
        "<html>" + " " * 300, "\nA" * 70, '{"error": "failed"}\n', '["error", ',
    ],
)  # fmt: skip
def test_truncation_takes_linear_time(part: str) -> None:
    seconds = []
    for size in (50_000, 200_000):
        text = part * (size // len(part))
        best = 9.0
        for _ in range(3):
            start = time.process_time()
            truncate_text(text, 300, len)
            best = min(best, time.process_time() - start)
        seconds.append(best)
    assert seconds[1] < 8 * seconds[0] + 0.05


@pytest.mark.parametrize("most", [150, 200, 300, 400])
def test_prose_and_json_of_a_result_stay_on_lines_of_their_own(most: int) -> None:
    """A failed tool writes what went wrong, and its details as JSON on the next line."""
    prose = (
        "Error: the order system refused the connection. If the error names a mistake in the call,"
        " correct it. Otherwise, continue without this tool."
    )
    details = json.dumps(
        {
            "code": "tool_error",
            "request_id": "call_5",
            "tool": "order_status",
            "alternatives": ["a" * 300] * 9,
        }
    )
    first, second, *_ = truncate_text(f"{prose}\n{details}", most, len).split("\n")
    assert first.startswith("Error: the order system refused the connection.")
    assert first.endswith("[...]")
    assert second.startswith('{"code": "tool_error"')
    first, second, *_ = truncate_text(f"{details}\n{prose}", most, len).split("\n")
    assert first.startswith('{"code": "tool_error"')
    assert second.startswith("Error: the order system refused the connection.")


LINES = [f"12:00:{number:02} worker-{number} GET /volumes/{number} 200" for number in range(90)]


def texts(*said: str) -> Any:
    return {"role": "user", "content": [{"text": t} for t in said], "tracking_id": "4cfc3cbc-1"}


def test_a_long_text_of_the_user_is_condensed_to_its_wishes() -> None:
    whole = texts(
        "\n".join(
            [*LINES[:30], "I prefer paperbacks.", *LINES[30:], "Please always answer in Japanese."]
        )
    )
    short: Any = condensed_message(whole)
    text = short["content"][0]["text"]
    assert text.startswith("I prefer paperbacks.\n[... ")
    assert text.endswith("read_cut_message('4cfc3cbc') ...]\nPlease always answer in Japanese.")
    assert is_truncated(short)
    assert condensed_message(short) is None, "it is not condensed again"


def test_thanks_beside_a_request_are_left_out_of_the_short_form() -> None:
    short: Any = condensed_message(
        texts("ありがとうございます、助かりました。", "大阪で駐車場のあるホテルを探してください。")
    )
    assert [block["text"] for block in short["content"]] == [
        "[…]",
        "大阪で駐車場のあるホテルを探してください。",
    ]
    assert is_truncated(short)
    assert condensed_message(short) is None, "it is not condensed again"


@pytest.mark.parametrize(
    "said",
    [
        ["\n".join(LINES)],
        ["I prefer paperbacks."],
        ["Thanks."],
        ["Thanks.", "Bye."],
        ["I like A.", "I hate B."],
    ],
)
def test_a_text_without_wishes_and_a_short_one_have_no_short_form(said: list[str]) -> None:
    assert condensed_message(texts(*said)) is None


@pytest.mark.parametrize(
    "content",
    [
        [{"text": None}],
        [{"text": 7}, {"text": "Thanks."}],
        [{"text": "I like it. \U0001f600" * 45}],
    ],
)
def test_odd_texts_have_no_longer_short_form(content: list[Any]) -> None:
    message: Any = {"role": "user", "content": content}
    short: Any = condensed_message(message)
    assert short is None or len(str(short["content"])) < len(str(content))
