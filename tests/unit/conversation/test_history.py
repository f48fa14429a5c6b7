"""A history copies itself like copy.deepcopy, in less time."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strands import Agent
from strands.session import FileSessionManager

from strands_manga_memory import ImportanceWeightedConversationManager
from strands_manga_memory.conversation import history
from strands_manga_memory.conversation.history import History
from strands_manga_memory.testing import ScriptedModel

_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner),
    max_leaves=12,
)
_messages = st.lists(st.dictionaries(st.sampled_from(["role", "content", "metadata"]), _values))


def containers(value: Any) -> set[int]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return {id(value), *(f for i in inner for f in containers(i) if isinstance(i, dict | list))}


@settings(max_examples=12)
@given(_messages)
def test_a_copy_is_equal_and_shares_nothing_that_can_change(messages: list[Any]) -> None:
    whole = History(messages)
    copied = copy.deepcopy(whole)
    assert copied == whole
    assert json.dumps(copied, default=repr) == json.dumps(messages, default=repr)
    assert containers(copied).isdisjoint(containers(whole))
    assert type(copied) is History


def test_what_is_no_plain_value_is_copied_as_ever() -> None:
    class Image:
        def __init__(self) -> None:
            self.pixels = [1]

    message: Any = {"role": "user", "content": [{"image": {"source": Image()}}]}
    copied: Any = copy.deepcopy(History([message]))
    before, after = (each["content"][0]["image"]["source"] for each in (message, copied[0]))
    assert after is not before
    assert after.pixels == [1]
    assert after.pixels is not before.pixels


def test_a_message_that_contains_itself_is_copied_too() -> None:
    message: Any = {"role": "user", "content": []}
    message["content"].append({"json": message})
    copied: Any = copy.deepcopy(History([message]))
    assert copied[0]["content"][0]["json"] is copied[0]
    assert copied[0] is not message


@pytest.mark.parametrize("restored", [False, True])
def test_both_copies_of_a_turn_are_quick_ones(
    restored: bool, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def agent() -> Agent:
        return Agent(
            model=ScriptedModel(),
            agent_id="a",
            session_manager=FileSessionManager("s", storage_dir=str(tmp_path)),
            conversation_manager=ImportanceWeightedConversationManager(),
        )

    talking = agent()
    talking("greetings to quick copies")
    talking = agent() if restored else talking
    copies: list[Any] = []
    monkeypatch.setattr(
        history, "_copied", lambda value, memo: copies.append(value) or copy.deepcopy(value, memo)
    )
    talking("and again")
    own = [value for value in copies if "quick copies" in str(value)]  # not of another thread
    assert len(own) == 2 + 1, "Strands copies the history twice, the model its request"
