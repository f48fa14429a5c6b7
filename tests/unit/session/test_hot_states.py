"""The states of a conversation in the hot tier: what a turn writes of them, and that nothing else comes back."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.session.difference import applied, difference
from strands_manga_memory.session.hot_states import HotStates
from strands_manga_memory.stores.codec import dump

AGENT, SINCE = "state.agent", "state.agent.since"


def large(**fields: Any) -> bytes:
    words = random.Random(7)
    return dump({"notes": ["".join(words.choices(string.ascii_lowercase, k=40)) for _ in range(50)], **fields})


def store(hash_: dict[str, bytes], states: HotStates, now: Mapping[str, bytes]) -> dict[str, bytes]:
    write = states.changed(now)
    assert not set(write.fields) & set(write.removed)
    hash_.update(write.fields)
    for name in write.removed:
        del hash_[name]
    states.written(write)
    return dict(write.fields)


def test_small_change_of_a_large_state_is_a_few_bytes() -> None:
    states, hash_ = HotStates("s"), dict[str, bytes]()
    first = store(hash_, states, {AGENT: large(turn=1)})
    second = store(hash_, states, {AGENT: large(turn=2)})
    assert list(first) == [AGENT]
    assert list(second) == [SINCE]
    assert len(second[SINCE]) < 60
    assert store(hash_, states, {AGENT: large(turn=2)}) == {}
    assert HotStates("s").read(hash_) == {AGENT: large(turn=2)}


def test_state_that_changed_much_is_written_whole_again() -> None:
    states, hash_ = HotStates("s"), dict[str, bytes]()
    store(hash_, states, {AGENT: large(turn=1)})
    store(hash_, states, {AGENT: large(turn=2)})
    other = dump({"text": random.Random(1).randbytes(2_000).hex()})
    assert store(hash_, states, {AGENT: other}) == {AGENT: other}
    assert set(hash_) == {AGENT}
    assert HotStates("s").read(hash_) == {AGENT: other}


def test_small_states_are_whole() -> None:
    states, hash_ = HotStates("s"), dict[str, bytes]()
    for turn in range(3):
        store(hash_, states, {AGENT: dump({"turn": turn})})
    assert hash_ == {AGENT: dump({"turn": 2})}


def test_after_forgetting_everything_is_written() -> None:
    states, hash_ = HotStates("s"), dict[str, bytes]()
    store(hash_, states, {AGENT: large(turn=1)})
    states.forget()
    assert store(hash_, states, {AGENT: large(turn=2)}) == {AGENT: large(turn=2)}


@pytest.mark.parametrize("damage", ["cut", "flipped", "of another state", "no difference", "not an object"])
def test_damaged_difference_is_refused_by_name(damage: str) -> None:
    whole = large(turn=1)
    since = difference(large(turn=2), whole)
    damaged = {
        "cut": since[:-3],
        "flipped": since[:8] + bytes([since[8] ^ 255]) + since[9:],
        "of another state": difference(large(turn=2), large(turn=3)),
        "no difference": b"{}",
        "not an object": difference(b"[1]", whole),
    }[damage]
    with pytest.raises(CorruptRecordError, match=r"state\.agent"):
        HotStates("s").read({AGENT: whole, SINCE: damaged})


def test_difference_without_its_whole_is_no_state() -> None:
    assert HotStates("s").read({SINCE: difference(large(), large())}) == {}


def test_what_unpacks_to_too_much_is_refused() -> None:
    with pytest.raises(ValueError, match="64"):
        applied(difference(bytes(64 * 1024 * 1024 + 1), b"x"), b"x")


class StatesMachine(RuleBasedStateMachine):
    """Writes that succeed, fail or are read anew by another process: what is read is what was written last."""

    def __init__(self) -> None:
        super().__init__()
        self.states, self.hash = HotStates("s"), dict[str, bytes]()
        self.value: dict[str, Any] = {"keys": {str(key): f"value {key} of the state, in some words" for key in range(30)}}
        self.stored: bytes | None = None

    @rule(key=st.integers(0, 40), words=st.text(max_size=60))
    def change(self, key: int, words: str) -> None:
        self.value = {"keys": {**self.value["keys"], str(key): words}}

    @rule(words=st.text(max_size=400))
    def begin_anew(self, words: str) -> None:
        self.value = {"keys": {"0": words}}

    @rule()
    def save(self) -> None:
        store(self.hash, self.states, {AGENT: dump(self.value)})
        self.stored = dump(self.value)

    @rule()
    def fail(self) -> None:
        self.states.changed({AGENT: dump(self.value)})

    @rule()
    def read_anew(self) -> None:
        self.states = HotStates("s")
        self.states.read(self.hash)

    @invariant()
    def is_what_was_written(self) -> None:
        read = HotStates("s").read(self.hash)
        assert read.get(AGENT) == self.stored
        if self.stored is not None:
            json.loads(read[AGENT])


StatesMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestStatesMachine = StatesMachine.TestCase
