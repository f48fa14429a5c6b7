"""A long text of the user is condensed to its wishes."""

from typing import Any

import pytest

from strands_manga_memory.conversation.message_truncation import condensed_message, is_truncated

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
