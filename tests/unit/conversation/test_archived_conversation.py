"""The archive is what the conversation said, whatever happens to the history: nothing is lost, nothing taken back stays."""

from __future__ import annotations

import copy
import itertools
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from strands.types.content import Message

from strands_manga_memory.conversation import MessageArchive

PICK = st.integers(min_value=0, max_value=30)


class Talks(RuleBasedStateMachine):
    """Random turns, evictions, marks, edits, redactions, deletions, other conversations and restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = itertools.count()
        self.log: list[Message] = []
        self.start()

    def start(self) -> None:
        self.archive = MessageArchive(source=lambda: iter(copy.deepcopy(self.log)))
        self.history = [copy.deepcopy(message) for message in self.log[-3:]]
        self.expected = {message["tracking_id"]: message["content"][0]["text"] for message in self.log}

    def added(self, role: Any) -> Message:
        number = next(self.numbers)
        message: Message = {"role": role, "content": [{"text": f"word{number}"}], "tracking_id": f"id{number}"}
        self.history.append(message)
        self.log.append(copy.deepcopy(message))
        self.archive.note(message, float(number))
        return message

    def change(self, message: Message, text: str) -> None:
        for logged in self.log:
            if logged["tracking_id"] == message["tracking_id"]:
                logged["content"] = [{"text": text}]

    @rule(redacted=st.booleans())
    def turn(self, redacted: bool) -> None:
        self.archive.begin_turn()
        asked = self.added("user")
        self.archive.update(self.history[:])
        assert len(self.archive) == len(self.expected)
        for id_, text in self.expected.items():
            assert [hit.message.id for hit in self.archive.search(text, 2)] == [id_]
        if redacted:
            asked["content"] = [{"text": "redacted" + asked["tracking_id"]}]
            self.change(asked, "redacted" + asked["tracking_id"])
        answer = self.added("assistant")
        for message in (asked, answer):
            self.expected[message["tracking_id"]] = message["content"][0]["text"]

    @rule(at=PICK)
    def evict(self, at: int) -> None:
        if len(self.history) > 1:
            del self.history[at % (len(self.history) - 1)]

    @precondition(lambda self: self.history)
    @rule(at=PICK, in_place=st.booleans())
    def edit(self, at: int, in_place: bool) -> None:
        message = self.history[at % len(self.history)]
        id_ = message["tracking_id"]
        if id_ not in self.expected:
            return
        text = f"edited{next(self.numbers)}"
        if in_place:
            message["content"] = [{"text": text}]
        else:
            self.history[at % len(self.history)] = {**message, "content": [{"text": text}]}
        self.change(message, text)
        self.expected[id_] = text
        self.turn(redacted=False)

    @precondition(lambda self: self.expected)
    @rule(at=PICK)
    def forget(self, at: int) -> None:
        id_ = list(self.expected)[at % len(self.expected)]
        self.archive.forget(id_)
        del self.expected[id_]
        self.log = [message for message in self.log if message["tracking_id"] != id_]

    @precondition(lambda self: self.log)
    @rule()
    def another_conversation(self) -> None:
        self.log = []
        self.history = []
        self.expected = {}

    @rule()
    def restart(self) -> None:
        self.start()


Talks.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None, derandomize=True)
TestTalks = Talks.TestCase
