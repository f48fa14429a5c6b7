"""What is remembered of messages that left: all that explain() tells, in little memory."""

from __future__ import annotations

import gc
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from strands_manga_memory.conversation.importance import fates as module
from strands_manga_memory.conversation.importance.fates import REMEMBERED_DROPS, Fates, MessageFate
from tests.unit.conversation.messages import user

SIGNALS = ("act", "number", "names", "new", "referenced", "size", "recency")

remembered = st.builds(
    MessageFate,
    tracking_id=st.none() | st.text(max_size=4),
    role=st.sampled_from(["user", "assistant"]),
    act=st.text(max_size=8),
    score=st.floats(0, 1),
    tokens=st.integers(0, 10**9),
    fate=st.just("dropped"),
    why=st.text(max_size=8),
    signals=st.dictionaries(st.sampled_from(SIGNALS), st.floats(allow_nan=False), max_size=len(SIGNALS)),
)


def fate(number: int) -> MessageFate:
    return MessageFate(
        f"{number:036}", "user", "unmatched", 0.5, 100 + number % 50, "dropped", "low", dict.fromkeys(SIGNALS, number / 7)
    )


@given(remembered)
def test_what_is_dropped_comes_back_as_it_was(dropped: MessageFate) -> None:
    fates = Fates()
    fates.drop(dropped)
    [found] = fates.in_order([])
    assert found == dropped
    assert list(found.signals) == list(dropped.signals)


@given(remembered)
def test_a_mark_tells_what_the_message_was(before: MessageFate) -> None:
    stub = MessageFate(before.tracking_id, before.role, "unmatched", 0.1, 1, "shortened", "left out", {"act": 1.0})
    fates = Fates()
    assert fates.marked(stub) == stub
    fates.mark(before)
    found = fates.marked(stub)
    assert (found.act, found.score, found.signals) == (before.act, before.score, before.signals)
    assert (found.tokens, found.fate, found.why) == (1, "shortened", "left out")
    fates.drop(MessageFate(before.tracking_id, before.role, "unmatched", 0.1, 1, "dropped", "no room"))
    [dropped] = fates.in_order([])
    assert (dropped.act, dropped.tokens, dropped.fate, dropped.why) == (before.act, before.tokens, "dropped", "no room")


def tracked(root: object) -> int:
    """Return how many objects the garbage collector has to look at for ``root``: those of other threads do not count."""
    gc.collect()
    found, todo = {id(root)}, [root]
    while todo:
        for each in gc.get_referents(todo.pop()):
            if gc.is_tracked(each) and not isinstance(each, type) and id(each) not in found:
                found.add(id(each))
                todo.append(each)
    return len(found)


def test_a_thousand_of_them_are_small_and_nothing_to_the_garbage_collector() -> None:
    """As objects with a dictionary each they took twice as much, and two containers apiece."""
    fates, messages = Fates(), [user("x") for _ in range(5 * REMEMBERED_DROPS)]
    for number, message in enumerate(messages):
        message["tracking_id"] = f"{number:036}"  # type: ignore[typeddict-unknown-key]
    tracemalloc.start()
    for number, message in enumerate(messages):
        fates.see([message])
        fates.drop(fate(number))
    fates.forget_all_but(messages[-10:])
    taken = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, module.__file__)])
    size = sum(line.size for line in taken.statistics("filename"))
    tracemalloc.stop()
    assert tracked(fates) < REMEMBERED_DROPS / 10
    assert size < 450 * REMEMBERED_DROPS
    assert len(fates.in_order([])) == REMEMBERED_DROPS
