"""Token counts of messages are cached until the content changes."""

import copy
from typing import Any

from strands_manga_memory.conversation import RuleScorer
from strands_manga_memory.conversation.importance import FeatureCache, size_of
from tests.unit.conversation.messages import user


class Counter:
    def __init__(self) -> None:
        self.counted: list[Any] = []

    def count(self, message: Any) -> int:
        self.counted.append(message)
        return len(message["content"][0]["text"])


def cache(counter: Counter) -> FeatureCache:
    return FeatureCache(counter, RuleScorer())


def test_a_message_is_counted_once() -> None:
    counter = Counter()
    counted = cache(counter).tokens
    message = user("four")
    assert [counted(message), counted(copy.deepcopy(message))] == [4, 4]
    assert len(counter.counted) == 1


def test_a_message_is_counted_again_when_its_content_has_changed_in_place() -> None:
    features = cache(Counter())
    message = user("four")
    features.tokens(message)
    message["content"][0]["text"] = "fourteen"
    assert features.uncounted_size([message]) > 0
    assert features.tokens(message) == 8


def test_metadata_does_not_matter() -> None:
    features = cache(Counter())
    message = user("four")
    features.tokens(message)
    assert features.uncounted_size([{**message, "metadata": {"usage": {"inputTokens": 1}}}]) == 0


def test_messages_that_left_are_forgotten() -> None:
    features = cache(Counter())
    messages = [user(str(number)) for number in range(10)]
    assert [features.tokens(message) for message in messages] == [1] * 10
    features.forget_all_but(messages[:2])
    assert features.uncounted_size(messages) == size_of(messages[2:])


def test_placeholders_between_messages_count() -> None:
    """A request has a placeholder of 3 characters between two questions without an answer."""
    assert cache(Counter()).total([user("four"), user("five")]) == 4 + 3 + 4
