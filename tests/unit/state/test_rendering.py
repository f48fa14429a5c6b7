"""What the model is told of the state: a rendering that remembers parts says what a new one would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from strands_manga_memory.exceptions import StateError
from strands_manga_memory.state import DialogueSlot, StateCoordinator
from strands_manga_memory.state.environment import Environment
from strands_manga_memory.state.rendering import StateRenderer
from strands_manga_memory.testing import FakeClock

_SLOTS = [DialogueSlot(name="volume", question="Which volume?"), DialogueSlot(name="format", allowed=("paper", "digital"))]

_CHANGES: list[Callable[[StateCoordinator, int], Any]] = [
    lambda state, number: state.dialogue.set_intent("reorder" if number % 2 else "browse"),
    lambda state, number: state.dialogue.set_phase("handoff" if number % 3 == 0 else "slot_filling"),
    lambda state, number: state.dialogue.fill_slot("volume", number + 1, confirmed=number % 2 == 0),
    lambda state, _: state.dialogue.clear_slot("volume"),
    lambda state, number: state.dialogue.ask(f"Question {number}?"),
    lambda state, _: state.dialogue.answered(),
    lambda state, number: state.entities.set("asin", f"B07X{1000 + number}"),
    lambda state, _: state.entities.drop(),
    lambda state, number: state.goals.set(f"goal {number}"),
    lambda state, number: state.execution.add_finding(f"finding {number}"),
    lambda state, _: state.goals.complete("done"),
    lambda state, number: state.goals.add_subtask(f"s{number}", f"subtask {number}"),
    lambda state, _: state.task.begin(),
    lambda state, number: state.task.start_step(state.task.add_step(f"step {number}").id),
    lambda state, number: state.task.fail_step(next(reversed(state.task.layer.steps), ""), f"error {number}"),
    lambda state, number: state.execution.record("replanning", f"plan {number}"),
]


@given(st.lists(st.tuples(st.integers(0, len(_CHANGES)), st.integers(0, 20)), max_size=30))
def test_a_rendering_that_remembers_says_what_a_new_one_says(changes: list[tuple[int, int]]) -> None:
    clock = FakeClock()
    state = StateCoordinator(intents={"reorder": _SLOTS}, clock=clock, wall_clock=clock)
    state.dialogue.set_intent("reorder")
    for which, number in changes:
        clock.advance(0.9)
        if which == len(_CHANGES):
            state._environment_tracker.environment = Environment(tier="vip", cart=(f"item {number}",), timezone="Asia/Tokyo")
        else:
            try:
                _CHANGES[which](state, number)
            except StateError:
                continue
        assert state.to_agent_context() == StateRenderer(state.max_tokens)(state._view())
