"""Shortening: head and tail stay, the marker tells what went."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strands_manga_memory.conversation import EstimateCounter
from strands_manga_memory.conversation.message_truncation import MessageTruncator, cap_of, condensed_message, is_truncated
from strands_manga_memory.conversation.truncation import CUT_MARKER, truncate_text
from strands_manga_memory.language.search import split_passages
from tests.unit.conversation.messages import assistant, calls, pinned, results, user

COUNTER = EstimateCounter()
LONG = " ".join(f"word{number}" for number in range(2_000))


def shortener(messages: list[Any], *locked: int) -> MessageTruncator:
    sizes = {at: COUNTER.count(message) for at, message in enumerate(messages)}
    return MessageTruncator(dict(enumerate(messages)), sizes, COUNTER.count, frozenset(locked))


def test_a_short_text_is_left_alone() -> None:
    assert truncate_text("two words", 10, COUNTER.text) == "two words"


def test_head_and_tail_stay_and_the_marker_counts_what_went() -> None:
    cut = truncate_text(LONG, 100, COUNTER.text)
    assert COUNTER.text(cut) <= 100
    assert cut.startswith("word0 word1 ")
    assert cut.endswith(" word1999")
    marker = re.search(r"\n\[\.\.\. (\d+) characters cut \.\.\.\]\n", cut)
    assert marker
    assert int(marker[1]) == len(LONG) - len(cut) + len(marker[0])


@given(st.lists(st.integers(0, 300), min_size=1, max_size=5), st.text(alphabet="ab 漢字\n", max_size=400))
def test_a_text_can_be_cut_again_and_again(sizes: list[int], text: str) -> None:
    whole = text * 5
    cut = whole
    for size in sizes:
        cut = truncate_text(cut, size, COUNTER.text)
        assert COUNTER.text(cut) <= max(size, 30)
    marker = re.search(r"\n\[\.\.\. (\d+) characters cut \.\.\.\]\n", cut)
    if marker:
        assert len(cut) - len(marker[0]) + int(marker[1]) == len(whole)
        assert whole.startswith(cut[: marker.start()])
        assert whole.endswith(cut[marker.end() :])
    else:
        assert cut == whole


ENGLISH = " ".join(f"The shop on floor {number} opens at ten." for number in range(80))
JAPANESE = "".join(f"{number}階の店は十時に開きます。" for number in range(80))
ITEMS = "\n".join(f"- floor {number}: opens at ten" for number in range(80))
TABLE = "\n".join(f"| {number} | opens at ten |" for number in range(80))


@pytest.mark.parametrize("text", [ENGLISH, JAPANESE, ITEMS, TABLE])
def test_a_text_is_cut_between_its_passages(text: str) -> None:
    parts = CUT_MARKER.sub("\0", truncate_text(text, 120, COUNTER.text)).split("\0")
    kept = [said for part in parts for passage in split_passages(part) if (said := passage.strip())]
    whole = [passage.strip() for passage in split_passages(text)]
    assert 4 <= len(kept) < len(whole)
    assert set(kept) <= set(whole)
    assert [kept[0], kept[-1]] == [whole[0], whole[-1]]


@given(st.lists(st.integers(0, 1_000), max_size=8), st.integers(1, 3_000), st.integers(0, 200))
def test_the_cap_frees_what_is_asked_from_the_largest_first(sizes: list[int], excess: int, floor: int) -> None:
    cap = cap_of(sizes, excess, floor)
    freed = sum(max(0, size - cap) for size in sizes)
    assert cap >= floor
    assert freed >= excess or cap == floor
    if cap > floor:  # no smaller than needed
        assert sum(max(0, size - cap - 1) for size in sizes) < excess


def test_the_largest_results_are_cut_to_one_size() -> None:
    history = [
        user(),
        calls("a", "b", "c"),
        {
            "role": "user",
            "content": [
                results("a", content=[{"text": LONG}])["content"][0],
                results("b", content=[{"text": LONG[:8_000]}], status="error")["content"][0],
                results("c", content=[{"text": "short"}])["content"][0],
            ],
        },
    ]
    before = copy.deepcopy(history)
    work = shortener(history)
    work.truncate("toolResult", [0, 1, 2], 600, 50)
    assert work.tokens <= 600
    assert history == before
    first, second, third = (block["toolResult"] for block in work.messages[2]["content"])
    assert abs(COUNTER.text(first["content"][0]["text"]) - COUNTER.text(second["content"][0]["text"])) < 60
    assert third["content"] == [{"text": "short"}]
    assert [result["toolUseId"] for result in (first, second, third)] == ["a", "b", "c"]
    assert second["status"] == "error"
    assert work.changed == {2}
    assert is_truncated(work.messages[2])
    assert not is_truncated(history[2])


def test_json_and_several_texts_of_a_result_become_one_text_and_media_stay() -> None:
    image = {"image": {"format": "png", "source": {"bytes": b""}}}
    work = shortener([results("a", content=[{"json": {"rows": LONG}}, image, {"text": LONG}])])
    work.truncate("toolResult", [0], 3_400, 50)
    content = work.messages[0]["content"][0]["toolResult"]["content"]
    assert content[0]["text"].startswith('{"rows": "word0 ')
    assert " word1999\n[... " in content[0]["text"]
    assert content[1:] == [image]


def test_nothing_goes_below_the_floor_and_nothing_locked_changes() -> None:
    work = shortener([user(LONG), pinned(user(LONG))], 1)
    work.truncate("text", [0, 1], 0, 200)
    assert 150 < COUNTER.count(work.messages[0]) <= 200
    assert work.messages[1]["content"] == [{"text": LONG}]
    assert work.locked_tokens == COUNTER.text(LONG)
    work.drop([1])
    assert 1 in work.messages
    work.drop([0])
    assert list(work.messages) == [1]
    assert work.tokens == work.locked_tokens


@pytest.mark.parametrize(
    "block",
    [
        {"text": LONG},
        {"guardContent": {"text": {"text": LONG, "qualifiers": ["query"]}}},
        {"citationsContent": {"content": [{"text": LONG}], "citations": []}},
    ],
)
def test_every_kind_of_text_can_be_cut(block: Any) -> None:
    work = shortener([{"role": "assistant", "content": [block]}])
    work.truncate("text", [0], 100, 20)
    assert work.tokens <= 100
    assert is_truncated(work.messages[0])


def test_a_shortened_tool_input_keeps_short_members_whole_and_a_note_names_the_others() -> None:
    """No marker stands in an input: a model that takes its calls for examples would write it into a file."""
    given = {"path": "notes.txt", "lines": [LONG, 3], "options": {"note": LONG}, "mode": "append"}
    work = shortener([{**calls("a", tool_input=given), "tracking_id": "4cfc3cbc-1"}])
    work.truncate("toolUse", [0], 200, 20)
    assert work.tokens <= 200
    note, call = work.messages[0]["content"]
    assert call["toolUse"]["input"] == {"path": "notes.txt", "mode": "append"}
    assert call["toolUse"]["toolUseId"] == "a"
    assert "not shown: lines, options\n[... " in note["text"]
    assert "read_cut_message('4cfc3cbc')" in note["text"]
    assert is_truncated(work.messages[0])


def test_several_long_inputs_of_one_message_each_get_a_note() -> None:
    message = calls("a", "b", tool_input={"text": LONG})
    work = shortener([message])
    work.truncate("toolUse", [0], 300, 20)
    assert [next(iter(block)) for block in work.messages[0]["content"]] == ["text", "toolUse", "text", "toolUse"]
    assert [block["toolUse"]["toolUseId"] for block in work.messages[0]["content"] if "toolUse" in block] == ["a", "b"]


def test_media_are_left_out_one_by_one_with_a_note() -> None:
    image = {"image": {"format": "png", "source": {"bytes": b"12345"}}}
    document = {"document": {"format": "pdf", "name": "catalogue", "source": {"bytes": b"x" * 40_000}}}
    work = shortener(
        [{"role": "user", "content": [image]}, results("a", content=[document]), {"role": "user", "content": [image]}]
    )
    work.leave_out_media([0, 1, 2], 1_700)
    assert work.messages[0]["content"] == [{"text": "[image, 1 KB, not kept]"}]
    assert work.messages[1]["content"][0]["toolResult"]["content"] == [{"text": '[document "catalogue", 40 KB, not kept]'}]
    assert work.messages[2]["content"] == [image]
    assert is_truncated(work.messages[1])


def test_a_message_without_anything_cut_is_not_shortened() -> None:
    assert not is_truncated(assistant("[... see below ...]"))
    assert not is_truncated(calls("a", tool_input={"n": [1, None]}))


LINES = [f"12:00:{number:02} worker-{number} GET /volumes/{number} 200" for number in range(90)]


def texts(*said: str) -> Any:
    return {"role": "user", "content": [{"text": text} for text in said], "tracking_id": "4cfc3cbc-1"}


def test_a_long_text_of_the_user_is_condensed_to_its_wishes() -> None:
    whole = texts("\n".join([*LINES[:30], "I prefer paperbacks.", *LINES[30:], "Please always answer in Japanese."]))
    short: Any = condensed_message(whole)
    text = short["content"][0]["text"]
    assert text.startswith("I prefer paperbacks.\n[... ")
    assert text.endswith("read_cut_message('4cfc3cbc') ...]\nPlease always answer in Japanese.")
    assert is_truncated(short)
    assert condensed_message(short) is None, "it is not condensed again"


@pytest.mark.parametrize(
    "said", [["\n".join(LINES)], ["I prefer paperbacks."], ["Thanks."], ["Thanks.", "Bye."], ["I like A.", "I hate B."]]
)
def test_a_text_without_wishes_and_a_short_one_have_no_short_form(said: list[str]) -> None:
    assert condensed_message(texts(*said)) is None


@pytest.mark.parametrize(
    "content", [[{"text": None}], [{"text": 7}, {"text": "Thanks."}], [{"text": "I like it. \U0001f600" * 45}]]
)
def test_odd_texts_have_no_longer_short_form(content: list[Any]) -> None:
    message: Any = {"role": "user", "content": content}
    short: Any = condensed_message(message)
    assert short is None or len(str(short["content"])) < len(str(content))
