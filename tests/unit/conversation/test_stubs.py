"""What a model is sent where messages were left out of the history."""

from __future__ import annotations

from typing import Any

from strands_manga_memory.conversation.history.stubs import STUB, stub_of
from strands_manga_memory.messages import for_model
from tests.unit.conversation.messages import assistant, calls, results, user


def shown(*messages: Any) -> list[tuple[str, list[str]]]:
    return [(each["role"], [block.get("text", "") for block in each["content"]]) for each in for_model(list(messages))]


def gone(message: Any) -> Any:
    return stub_of(message)


def test_of_questions_whose_answers_are_left_out_a_model_is_sent_one_message() -> None:
    asked = [user("A?"), gone(assistant()), user("B?"), gone(assistant())]
    expected = [("user", ["A?", "B?"]), ("assistant", [STUB]), ("user", ["C?"]), ("assistant", ["c"])]
    assert shown(*asked, user("C?"), assistant("c")) == expected


def test_what_is_asked_now_stands_apart_from_what_was_asked_and_answered_before() -> None:
    before = [user("Is volume 3 here?"), gone(assistant()), user("And volume 4?")]
    expected = [("user", ["Is volume 3 here?"]), ("assistant", [STUB]), ("user", ["And volume 4?"])]
    assert shown(*before) == expected
    assert shown(*before, calls("t"), results("t"))[:3] == expected
    assert shown(*before, assistant("It is."), user("Thanks."))[:3] == expected


def test_of_answers_whose_questions_are_left_out_a_model_is_sent_one_message() -> None:
    talk = [user("Hi."), assistant("Hello."), gone(user()), assistant("Volume 3 is here."), user("Fine.")]
    assert shown(*talk) == [("user", ["Hi."]), ("assistant", ["Hello.", "Volume 3 is here."]), ("user", ["Fine."])]
