"""A history in the form that model providers take."""

import copy
import gc
import operator
import time
from typing import Any

import pytest
from hypothesis import given, settings

from strands_manga_memory.messages import for_model
from tests.histories import damaged_histories, histories
from tests.provider_formats import PROVIDERS, problems, rules
from tests.support import CUT_TEXT, PLACEHOLDER, tool_results
from tests.unit.conversation.messages import assistant, calls, results, user

THINKING: dict[str, Any] = {
    "reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}
}


def image(size: int = 10) -> dict[str, Any]:
    return {"image": {"format": "png", "source": {"bytes": bytes(size)}}}


def document(name: str, size: int = 10) -> dict[str, Any]:
    return {"document": {"format": "pdf", "name": name, "source": {"bytes": bytes(size)}}}


def contents(messages: list[Any]) -> list[Any]:
    return [message["content"] for message in messages]


def ids(messages: list[Any]) -> list[tuple[list[str], list[str]]]:
    """Return the ids of the calls and of the results of each message that has any."""
    found = [
        (
            [block["toolUse"]["toolUseId"] for block in content if "toolUse" in block],
            [block["toolResult"]["toolUseId"] for block in content if "toolResult" in block],
        )
        for content in contents(messages)
    ]
    return [each for each in found if each != ([], [])]


def result_texts(messages: list[Any]) -> list[str]:
    return [item["text"] for result in tool_results(messages) for item in result["content"]]


def valid(messages: list[Any]) -> list[Any]:
    """Return the messages of a request, after a check by every validator."""
    shown = for_model(messages)
    assert {provider: problems(shown, provider) for provider in PROVIDERS} == {
        provider: [] for provider in PROVIDERS
    }
    return shown


def test_the_same_id_in_two_turns_gets_a_suffix_in_call_and_result() -> None:
    """Servers such as llama.cpp number the calls of each answer from 0."""
    turns = [
        message
        for n in range(3)
        for message in (
            user(f"{n}?"),
            calls("call_0"),
            results("call_0", content=[{"text": f"r{n}"}]),
            assistant("It is here, as I said."),
        )
    ]
    shown = valid(turns)
    assert ids(shown) == [
        (["call_0"], []),
        ([], ["call_0"]),
        (["call_0_2"], []),
        ([], ["call_0_2"]),
        (["call_0_3"], []),
        ([], ["call_0_3"]),
    ]
    assert result_texts(shown) == ["r0", "r1", "r2"]


def test_the_same_id_in_one_message_gets_a_suffix_in_call_and_result() -> None:
    answers = [
        *results("x", content=[{"text": "one"}])["content"],
        *results("x", content=[{"text": "two"}])["content"],
    ]
    shown = valid([user(), calls("x", "x"), {"role": "user", "content": answers}])
    assert ids(shown) == [(["x", "x_2"], []), ([], ["x", "x_2"])]
    assert result_texts(shown) == ["one", "two"]


def test_a_suffix_does_not_repeat_an_id_of_the_history() -> None:
    shown = valid([user(), calls("x", "x_2", "x"), results("x", "x_2")])
    assert ids(shown) == [(["x", "x_2", "x_3"], []), ([], ["x_3", "x", "x_2"])]


def test_an_id_that_a_provider_refuses_is_replaced_in_call_and_result() -> None:
    long = "functions.find:0" * 5
    [(used, _), (_, answered)] = ids(valid([user(), calls(long, "a.b"), results(long, "a.b")]))
    assert used == answered
    assert used[1] == "a_b"


@pytest.mark.parametrize("between", [[], [assistant("The payment was cancelled, as you wished.")]])
def test_the_last_result_of_a_call_counts(between: list[Any]) -> None:
    cancelled = results("c", content=[{"text": "cancelled"}], status="error")
    shown = valid(
        [
            user("pay"),
            calls("c"),
            cancelled,
            *between,
            results("c", content=[{"text": "paid"}]),
            assistant("done"),
        ]
    )
    assert ids(shown) == [(["c"], []), ([], ["c"])]
    assert result_texts(shown) == ["paid"]


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    shown = valid(
        [user("go"), calls("a", "b"), results("b"), assistant("fine"), user("on"), calls("c")]
    )
    assert result_texts(shown) == [CUT_TEXT, "result of b", CUT_TEXT]
    assert shown[-1]["content"][0]["toolResult"]["status"] == "error"


def test_results_of_unknown_calls_are_left_out() -> None:
    shown = valid([results("z"), user("go"), assistant("fine"), results("y"), user("on")])
    assert contents(shown) == [[{"text": "go"}], [{"text": "fine"}], [{"text": "on"}]]


def test_the_users_words_stand_apart_from_results() -> None:
    """Llama and Mistral on Bedrock refuse text beside tool results."""
    together = {"role": "user", "content": [*results("a")["content"], {"text": "stop it"}]}
    expected = [["toolResult"], [PLACEHOLDER], ["stop it"]]
    for history in (
        [user(), calls("a"), together],
        [user(), calls("a"), results("a"), user("stop it")],
    ):
        shown = valid(history)
        assert [
            [block.get("text", "toolResult") for block in content]
            for content in contents(shown)[2:]
        ] == expected


def test_neighbours_of_one_role_become_one_message_with_the_id_of_the_first() -> None:
    first, second = assistant("one"), assistant("two")
    message = valid([user(), first, second, user()])[1]
    assert message["content"] == [{"text": "one"}, {"text": "two"}]
    assert message["tracking_id"] == first["tracking_id"]
    assert first["content"] == [{"text": "one"}]


def test_a_question_does_not_run_into_the_next_one() -> None:
    """Of several messages of the user the last one stands alone: the answer is to that one."""
    asked = [user("one"), user("two"), user("three")]
    together = [[{"text": "one"}, {"text": "two"}], [{"text": PLACEHOLDER}], [{"text": "three"}]]
    assert contents(valid(asked)) == together
    assert contents(valid([*asked, assistant("fine"), user("four")])) == [
        *together,
        [{"text": "fine"}],
        [{"text": "four"}],
    ]


def test_a_history_that_starts_with_the_assistant_gets_a_short_user_message() -> None:
    assert contents(valid([assistant("Welcome!"), user()]))[:2] == [
        [{"text": "[conversation start]"}],
        [{"text": "Welcome!"}],
    ]


def test_blank_texts_and_empty_messages_are_left_out_or_get_a_placeholder() -> None:
    history = [
        {"role": "user", "content": [{"text": " "}, {"text": "hi"}]},
        {"role": "assistant", "content": []},
        {"role": "user", "content": [{"text": ""}]},
    ]
    assert contents(valid(history)) == [
        [{"text": "hi"}],
        [{"text": PLACEHOLDER}],
        [{"text": PLACEHOLDER}],
    ]


@pytest.mark.parametrize("content", [[], [{"text": ""}], None])
def test_a_result_without_content_says_so(content: Any) -> None:
    answer = {
        "role": "user",
        "content": [{"toolResult": {"toolUseId": "a", "status": "success", "content": content}}],
    }
    assert result_texts(valid([user(), calls("a"), answer])) == ["[no output]"]


def test_blocks_and_status_that_a_tool_has_made_up_are_valid() -> None:
    """Formatters of providers raise an error for them, in every later request of the session."""
    content = [{"rows": [1]}, {"image": "x.png"}, {"json": {"n": 1}}]
    shown = valid([user(), calls("a"), results("a", content=content, status="done")])
    [result] = tool_results(shown)
    assert result["status"] == "success"
    assert result["content"] == [
        {"text": '{"rows": [1]}'},
        {"text": '{"image": "x.png"}'},
        {"json": {"n": 1}},
    ]


def test_json_of_a_result_that_is_no_object_is_text() -> None:
    """Converse takes JSON objects alone."""
    answer = results("a", content=[{"json": ["よ", 1]}, {"json": {"n": 1}}])
    [result] = valid([user(), calls("a"), answer])[-1]["content"]
    assert result["toolResult"]["content"] == [{"text": '["よ", 1]'}, {"json": {"n": 1}}]


def test_reasoning_stays_with_its_call_and_does_not_end_a_message() -> None:
    call = calls("a")
    call["content"].insert(0, THINKING)
    trailing = {"role": "assistant", "content": [{"text": "fine"}, THINKING]}
    shown = valid(
        [
            user(),
            call,
            results("a"),
            trailing,
            user("on"),
            {"role": "assistant", "content": [THINKING]},
            user("?"),
        ]
    )
    assert shown[1] is call
    assert contents(shown)[3:6] == [[{"text": "fine"}], [{"text": "on"}], [{"text": PLACEHOLDER}]]


def test_the_oldest_media_beyond_a_limit_give_way_to_notes() -> None:
    pictures = {"role": "user", "content": [{"text": "look"}, *(image(2_000) for _ in range(25))]}
    papers = {
        "role": "user",
        "content": [{"text": "read"}, *(document(f"d{n}", 1_500_000) for n in range(7))],
    }
    shown = valid([pictures, assistant(), papers, assistant(), user()])
    assert [block.get("text") for block in shown[0]["content"][1:7]] == [
        "[image, 2 KB, not kept]"
    ] * 5 + [None]
    notes = ['[document "d0", 1.5 MB, not kept]', '[document "d1", 1.5 MB, not kept]', None]
    assert [block.get("text") for block in shown[2]["content"][1:4]] == notes


@pytest.mark.parametrize("kind", ["video", "audio"])
def test_videos_and_audio_have_no_limit_of_number(kind: str) -> None:
    clip = {kind: {"format": "mp4", "source": {"bytes": b"clip"}}}
    message: Any = {"role": "user", "content": [{"text": "look"}, clip, clip, clip]}
    assert for_model([message])[0] is message


def test_media_of_too_many_bytes_give_way_but_for_the_newest() -> None:
    looks = [
        message
        for n in range(4)
        for message in (
            {"role": "user", "content": [{"text": "look"}, image(6_000_000)]},
            assistant(),
        )
    ]
    kinds = [[*content[1]] for content in contents(valid([*looks, user()]))[:8:2]]
    assert kinds == [["text"], ["text"], ["image"], ["image"]]
    large = {"role": "user", "content": [{"text": "look"}, image(15_000_001)]}
    assert for_model([large])[0] is large
    stored: Any = {
        "image": {"format": "png", "source": {"location": {"type": "s3", "uri": "s3://bucket/key"}}}
    }
    earlier = {"role": "user", "content": [{"text": "look"}, stored]}
    assert for_model([earlier, assistant(), large])[0] is earlier, "a reference takes no bytes"


def test_media_in_tool_results_count_too() -> None:
    cycles = [
        message
        for n in range(6)
        for message in (calls(f"c{n}"), results(f"c{n}", content=[document("same")]))
    ]
    shown = for_model([user(), *cycles])
    assert [problems(shown, provider) for provider in PROVIDERS if provider != "openai"] == [[]] * 5
    found = [item for result in tool_results(shown) for item in result["content"]]
    assert found[0] == {"text": '[document "same", 1 KB, not kept]'}
    assert [item["document"]["name"] for item in found[1:]] == [
        "same",
        "same (2)",
        "same (3)",
        "same (4)",
        "same (5)",
    ]


def test_document_names_are_unique_and_of_allowed_characters() -> None:
    names = ["report.pdf", "report-pdf", "my  file", "注文書", "x" * 300]
    (message,) = valid([{"role": "user", "content": [{"text": "read"}, *map(document, names)]}])
    after = [block["document"]["name"] for block in message["content"][1:]]
    assert after == ["report-pdf", "report-pdf (2)", "my file", "document", "x" * 180]


def test_a_document_is_accompanied_by_text() -> None:
    assert contents(valid([{"role": "user", "content": [document("a")]}])) == [
        [{"text": PLACEHOLDER}, document("a")]
    ]


def test_a_valid_history_is_returned_itself() -> None:
    call = calls("a", "b")
    call["content"].insert(0, THINKING)
    history = [user(), call, results("b", "a"), assistant(), user()]
    assert for_model(history) is history
    empty: list[Any] = []
    assert for_model(empty) is empty


LEFT_TO_STRANDS = {"formatter raises", "block in a message of the wrong role", "cache points"}
"""Rules that a request may break if bare Strands would break them with the same history."""


def check(history: list[Any]) -> None:
    before = copy.deepcopy(history)
    shown = for_model(history)
    assert history == before
    assert for_model(shown) is shown
    for provider in PROVIDERS:
        broken = rules(problems(shown, provider)) if shown else set()
        assert broken <= LEFT_TO_STRANDS, problems(shown, provider)
        assert not broken or problems(history, provider)


@given(histories)
@settings(max_examples=75, deadline=None)
def test_any_history_becomes_valid_and_stays_so(history: list[Any]) -> None:
    check(history)


@given(damaged_histories)
@settings(max_examples=50, deadline=None)
def test_a_damaged_history_becomes_valid_too(history: list[Any]) -> None:
    check(history)


def test_the_time_grows_with_the_history_alone() -> None:
    def seconds(turns: int) -> float:
        history = [
            m
            for _ in range(turns)
            for m in (user(), calls("x", "x"), results("x", "x"), assistant(), user())
        ]
        start = time.process_time()
        for_model(history)
        return time.process_time() - start

    gc.collect()
    gc.disable()  # a collection takes longer the more objects the whole test process has
    try:
        pairs = [(seconds(300), seconds(3_000)) for _ in range(5)]
    finally:
        gc.enable()
    assert min(long for _, long in pairs) < 25 * min(short for short, _ in pairs)


def test_unchanged_messages_are_the_same_objects() -> None:
    history = [user(), assistant(), user("a"), user("b")]
    assert all(map(operator.is_, for_model(history)[:2], history))
