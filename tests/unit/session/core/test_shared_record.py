"""A record whose values are an agent's own: whatever becomes of the agent's message, it is made again as it was."""

from __future__ import annotations

import copy
import gc
import sys
from dataclasses import replace
from typing import Any

import pytest

from strands_manga_memory.session.core.identity import Name, Segment
from strands_manga_memory.session.core.records import Message
from strands_manga_memory.session.core.shared_record import made, shared_with
from strands_manga_memory.stores.encoding.codec import dump

SAID = {"role": "user", "content": [{"text": "a text " * 100}], "tracking_id": "one"}
ANSWER = {
    "role": "assistant",
    "content": [{"text": "an answer"}, {"toolUse": {"toolUseId": "t", "name": "find", "input": {"of": [1, 2.5, None, True]}}}],
    "metadata": {"usage": {"inputTokens": 12, "outputTokens": 3}, "custom": {}},
    "tracking_id": "two",
}
IMAGE = {"role": "user", "content": [{"image": {"format": "png", "source": {"bytes": b"\x00\xff"}}}], "tracking_id": "three"}


@pytest.mark.parametrize("message", [SAID, ANSWER, IMAGE])
def test_a_record_is_made_again_though_the_agents_message_was_changed_in_place(message: dict[str, Any]) -> None:
    own = copy.deepcopy(message)
    record = shared_with(own, dump(message))
    own["content"][0].clear()
    own.pop("tracking_id")

    assert record is not None
    assert made(record) == dump(message)


def test_a_record_takes_little_beside_the_agents_message() -> None:
    another = {**SAID, "tracking_id": "another"}
    record, other = shared_with(SAID, dump(SAID)), shared_with(another, dump(another))

    assert record is not None
    assert other is not None
    assert record[0] is other[0]
    assert SAID["content"][0]["text"] in record  # type: ignore[index]
    assert sys.getsizeof(record) < len(dump(SAID)) / 5
    gc.collect()
    assert not gc.is_tracked(record)


class Text(str):
    """Such as a user may have put into a message."""

    __slots__ = ()


def cycle() -> dict[str, Any]:
    message: dict[str, Any] = {"role": "user"}
    message["content"] = [message]
    return message


@pytest.mark.parametrize(
    "own",
    [
        {**SAID, "role": "assistant"},
        {**SAID, "content": [{"text": Text("a text " * 100)}]},
        {**SAID, "content": ({"text": "a text " * 100},)},
        {**SAID, 1: object()},
        cycle(),
        None,
    ],
)
def test_another_message_and_one_with_what_may_change_share_nothing(own: Any) -> None:
    assert shared_with(own, dump(SAID)) is None


def test_a_message_is_the_same_however_its_record_is_kept() -> None:
    one, other = (Message(Segment("life", 1, "a", 1), Name("a", 1), 1, 2.0, dump(SAID)) for _ in range(2))
    one.share(SAID)
    assert isinstance(one.kept, tuple)
    assert one == other
    assert one.has_id("one")
    assert not one.has_id("two")
    assert one != replace(other, kept=dump(ANSWER))
    assert one != replace(other, revision=1)
