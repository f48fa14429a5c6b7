"""The state under random use is valid, small, and restored exactly."""

import json
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from strands import Agent

from strands_manga_memory import DialogueSlot, StateCoordinator, StateError
from strands_manga_memory.messages.texts import estimate_tokens
from strands_manga_memory.state import ActiveEntities, Dialogue, Goals, Phase
from strands_manga_memory.testing import FakeClock, ScriptedModel

INTENTS = {
    "buy": [
        DialogueSlot(name="volume", question="Which?", entity="volume"),
        DialogueSlot(name="format", allowed=("a", "b")),
    ],
    "return": [DialogueSlot(name="order", question="Which order?", entity="order_id")],
}
TEXTS = st.text(max_size=60) | st.sampled_from(
    [
        "Is volume 3 there?", "B07X1234", "ORD-12345", "Forget that, show me 「灯台」", "hello",
        "bye!", "<b>&amp;</b>\n\u202e", "第4巻",
    ]
)  # fmt: skip
NAMES = st.sampled_from(["volume", "format", "order", "nothing"])
SMALL = st.integers(0, 5)


class StateMachine(RuleBasedStateMachine):
    """An agent with state, whose process ends now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock(0.0)
        self.start({})

    def start(self, state: dict[str, Any]) -> None:
        self.coordinator = StateCoordinator(
            intents=INTENTS, clock=self.clock, wall_clock=self.clock
        )
        self.agent = Agent(model=ScriptedModel(), plugins=[self.coordinator], state=state)

    def parts(self) -> list[str]:
        return [
            layer.stored()
            for layer in (
                self.coordinator.dialogue,
                self.coordinator.entities,
                self.coordinator.goals,
            )
        ]

    def attempt(self, change: Any) -> None:
        """A change is made whole, or refused and nothing of it is made."""
        before = self.parts()
        try:
            change()
        except (StateError, ValueError):
            assert self.parts() == before

    @rule(text=TEXTS)
    def talk(self, text: str) -> None:
        before = self.coordinator.dialogue.turn_count
        self.agent(text or "x")
        assert self.coordinator.dialogue.turn_count == before + 1

    @rule(intent=st.sampled_from(["buy", "return", "unknown", None]))
    def intend(self, intent: str | None) -> None:
        self.coordinator.dialogue.set_intent(intent)
        assert set(self.coordinator.dialogue.slots) == {
            slot.name for slot in INTENTS.get(intent or "", [])
        }

    @rule(name=NAMES, value=TEXTS | st.integers() | st.none(), confirmed=st.booleans())
    def fill(self, name: str, value: Any, confirmed: bool) -> None:
        self.attempt(lambda: self.coordinator.dialogue.fill_slot(name, value, confirmed=confirmed))

    @rule(question=TEXTS, name=NAMES | st.none())
    def ask(self, question: str, name: str | None) -> None:
        self.attempt(lambda: self.coordinator.dialogue.ask(question, slot=name))

    @rule(phase=st.sampled_from(Phase))
    def move(self, phase: Phase) -> None:
        self.attempt(lambda: self.coordinator.dialogue.set_phase(phase))

    @rule(type_=st.sampled_from(["asin", "volume", "nothing"]), value=TEXTS)
    def name_entity(self, type_: str, value: str) -> None:
        self.attempt(lambda: self.coordinator.entities.set(type_, value))

    @rule(text=TEXTS)
    def set_goal(self, text: str) -> None:
        self.attempt(lambda: self.coordinator.goals.set(text, context=text * 50))

    @rule(number=SMALL, needs=st.lists(SMALL, max_size=3))
    def add_subtask(self, number: int, needs: list[int]) -> None:
        self.attempt(
            lambda: self.coordinator.goals.add_subtask(
                f"s{number}", f"do {number}", depends_on=[f"s{each}" for each in needs]
            )
        )

    @rule(number=SMALL, ok=st.booleans())
    def end_subtask(self, number: int, ok: bool) -> None:
        end = (
            self.coordinator.goals.complete_subtask
            if ok
            else lambda id_: self.coordinator.goals.fail_subtask(id_, "no")
        )
        self.attempt(lambda: end(f"s{number}"))

    @rule(outcome=TEXTS, ok=st.booleans())
    def end_goal(self, outcome: str, ok: bool) -> None:
        self.attempt(
            lambda: (self.coordinator.goals.complete if ok else self.coordinator.goals.fail)(
                outcome
            )
        )

    @rule(count=st.integers(1, 150), ok=st.booleans(), text=TEXTS)
    def use_tools(self, count: int, ok: bool, text: str) -> None:
        for number in range(count):
            self.coordinator.task.begin_call(f"t{number}", f"tool{number % 40}", {"text": text})
            self.coordinator.task.end_call(f"t{number}", ok=ok, text=text, ms=1.0, size=len(text))

    @rule(seconds=st.floats(0, 10))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        assert 0 <= self.coordinator.task.remaining_ms() <= 3000

    @rule()
    def restart(self) -> None:
        self.coordinator.store.write()
        before = self.parts()
        self.start(json.loads(json.dumps(self.agent.state.get())))
        assert self.parts() == before

    @invariant()
    def every_layer_is_valid_as_it_is_stored(self) -> None:
        for kind, stored in zip((Dialogue, ActiveEntities, Goals), self.parts(), strict=True):
            fields = json.loads(stored)
            assert fields.pop("version") == kind.VERSION
            assert kind.model_validate(fields).stored() == stored

    @invariant()
    def everything_is_bounded(self) -> None:
        stats = self.coordinator.stats()
        assert sum(stats["tokens"].values()) <= stats["caps"]["session"]
        assert stats["goals"][1] <= 10
        assert stats["executions"][0] <= 100
        assert len(self.coordinator.task.steps) <= 100

    @invariant()
    def what_the_model_is_told_is_one_small_block(self) -> None:
        text = self.coordinator.to_agent_context()
        assert estimate_tokens(text) <= 400
        assert text.count("</conversation_state>") == (1 if text else 0)
        assert "\u202e" not in text
        assert text == self.coordinator.to_agent_context()


class TestState(StateMachine.TestCase):
    settings = settings(max_examples=25, stateful_step_count=20, deadline=None, derandomize=True)
