"""Slots found by a model: only what is really said."""

from __future__ import annotations

import json
import logging

import pytest

from strands_manga_memory.conversation import ModelFactExtractor
from strands_manga_memory.language import FactKind
from strands_manga_memory.testing import ScriptedModel
from tests.unit.conversation.messages import assistant, user

MESSAGES = [user("the tower is where we meet, by the blue door"), assistant("Fine."), user("ok")]


def test_facts_are_added_to_those_of_the_rules() -> None:
    facts = [
        {"line": 1, "kind": "decision", "text": "meet by the blue door", "about": "Meeting"},
        {"line": 1, "kind": "said", "text": "the code is 9999"},
        {"line": 9, "kind": "said", "text": "blue door"},
    ]
    slots = ModelFactExtractor(ScriptedModel([json.dumps({"facts": facts})])).extract(MESSAGES)
    (added,) = [slot for slot in slots if slot.kind is FactKind.DECISION]
    assert (added.text, added.source, added.key) == ("meet by the blue door", MESSAGES[0]["tracking_id"], "meeting")
    assert len(slots) > 1
    assert not any("9999" in slot.text for slot in slots)


@pytest.mark.parametrize("reply", ["no json", RuntimeError("down")])
def test_a_model_that_fails_leaves_the_rules(reply: str | Exception, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        slots = ModelFactExtractor(ScriptedModel([reply])).extract(MESSAGES)
    assert any("blue door" in slot.text for slot in slots)
    assert "the rules did" in caplog.text
