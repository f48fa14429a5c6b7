"""The parts of the state alone: phases, slots, steps, entities, goals, environment."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from strands import Agent

from strands_manga_memory import (
    ConversationScope,
    DialogueSlot,
    Environment,
    MangaMemory,
    StateError,
    TtlPolicy,
)
from strands_manga_memory.language import SHOP
from strands_manga_memory.language.text_features import normalized
from strands_manga_memory.state import (
    ActiveEntities,
    ActiveEntity,
    Dialogue,
    EnvironmentTracker,
    Goals,
    GoalStatus,
    Phase,
    SlotStatus,
    StateCoordinator,
    StateLimits,
    StepStatus,
    Subtask,
    export_for_human,
)
from strands_manga_memory.state.dialogue import MOVES
from strands_manga_memory.state.goals import Execution, part_tokens
from strands_manga_memory.testing import FakeClock, ScriptedModel

# Phases and slots


@pytest.mark.parametrize(
    ("slot", "value", "message"),
    [
        (DialogueSlot(name="format", allowed=("paper", "digital")), "vinyl",
            "one of 'paper', 'digital'; got 'vinyl'"),
        (DialogueSlot(name="order", entity="order_id"), "ORD-1", "valid order_id"),
        (DialogueSlot(name="zip", pattern=r"\d{3}-\d{4}"), "12-34", "matches"),
        (DialogueSlot(name="any"), "", "1 to 200 characters"),
        (DialogueSlot(name="any"), "x" * 201, "1 to 200 characters, got 201"),
        (DialogueSlot(name="volume", entity="volume"), "volume 3 " * 30,
            "1 to 200 characters, got 269"),
        (DialogueSlot(name="zip", pattern=r"\d{3}-\d{4}"), "12-34" * 50,
            "1 to 200 characters, got 250"),
        (DialogueSlot(name="any"), ["a"], "a text or a number"),
        (DialogueSlot(name="any"), True, "a text or a number"),
        (DialogueSlot(name="any"), None, "a text or a number"),
    ],
)  # fmt: skip
def test_bad_values_name_what_is_allowed(slot: DialogueSlot, value: object, message: str) -> None:
    with pytest.raises(StateError, match=message):
        slot.filled(value, SHOP, confirmed=True)


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ({"entity": "title"}, "「" + "ﷺ" * 20 + "」"),
        ({"allowed": (normalized("ﷺ" * 20),)}, "ﷺ" * 20),
    ],
    ids=["entity", "allowed"],
)
def test_value_with_a_long_canonical_form_is_refused(given: dict[str, Any], value: str) -> None:
    """The sign has 18 letters in the canonical form.

    A longer stored value could not be read again.
    """
    dialogue = StateCoordinator(intents={"buy": [DialogueSlot(name="what", **given)]}).dialogue
    dialogue.set_intent("buy")
    with pytest.raises(
        StateError, match="'what' takes 1 to 200 characters, got 360 in the canonical form"
    ):
        dialogue.fill_slot("what", value)
    assert Dialogue.loaded(dialogue.stored()).values() == dialogue.values()


def test_values_are_kept_in_their_canonical_form() -> None:
    assert (
        DialogueSlot(name="f", allowed=("Paper",)).filled(" paper ", SHOP, confirmed=True).value
        == "Paper"
    )
    volume = DialogueSlot(name="v", entity="volume")
    assert volume.filled("第3巻", SHOP, confirmed=False).value == "3"
    assert volume.filled("3", SHOP, confirmed=False).value == "3"
    assert (
        DialogueSlot(name="o", entity="order_id").filled("ord-12345", SHOP, confirmed=True).value
        == "ORD-12345"
    )
    assert DialogueSlot(name="n").filled(7, SHOP, confirmed=True).value == "7"


def test_an_inferred_value_does_not_satisfy_a_required_slot() -> None:
    slot = DialogueSlot(name="volume")
    assert [each.is_missing for each in (slot, slot.filled("3", SHOP, confirmed=False))] == [
        True,
        True,
    ]
    assert not slot.filled("3", SHOP, confirmed=True).is_missing
    assert not DialogueSlot(name="gift", required=False).is_missing


def test_status_of_a_slot_follows_from_its_value() -> None:
    slot = DialogueSlot(name="a")
    assert slot.status is SlotStatus.EMPTY
    assert slot.replaced(value="x").status is SlotStatus.INFERRED
    assert slot.replaced(value="x", is_confirmed=True).status is SlotStatus.CONFIRMED
    with pytest.raises(ValidationError):
        DialogueSlot(name="no spaces allowed")


def test_questions_are_asked_in_order_and_removed_when_their_slot_is_confirmed() -> None:
    dialogue = StateCoordinator().dialogue
    dialogue.add_slot(DialogueSlot(name="volume", question="Which volume?"))
    dialogue.add_slot(DialogueSlot(name="format"))
    assert dialogue.next_question == "Which volume?"
    for question, slot in (("Paper?", "format"), ("Paper?", "format"), ("For whom?", None)):
        dialogue.ask(question, slot=slot)
    assert [each.question for each in dialogue.clarifications] == ["Paper?", "For whom?"]
    dialogue.fill_slot("format", "paper", confirmed=True)
    assert dialogue.next_question == "For whom?"
    dialogue.answered()
    assert dialogue.next_question == "Which volume?"
    for number in range(30):
        dialogue.ask(f"{number}?")
    assert len(dialogue.clarifications) == 10


def test_unknown_fields_of_a_later_release_are_kept() -> None:
    """Also a field with the name of a method, which stays a method."""
    unknown = {"mood": "curious", "ask": ["x"], "lines": 3}
    stored = json.dumps({"version": 1, "phase": "follow_up", **unknown})
    coordinator = StateCoordinator()
    agent = Agent(model=ScriptedModel(), plugins=[coordinator], state={Dialogue.KEY: stored})
    coordinator.dialogue.set_intent("buy")
    coordinator.dialogue.ask("Which one?")
    assert "Ask the user next: Which one?" in coordinator.to_agent_context()
    again = Dialogue.loaded(agent.state.get(Dialogue.KEY))
    assert (again.model_extra, again.intent) == (unknown, "buy")


# Steps


def test_a_step_has_its_own_duration() -> None:
    clock = FakeClock()
    task = StateCoordinator(clock=clock).task
    step = task.add_step("search")
    attempts = (
        (0.5, {"status": StepStatus.QUEUED}),
        (1.0, {"status": StepStatus.FAILED, "error": "boom"}),
        (0.25, {"result": "ok"}),
    )
    seen = []
    for seconds, outcome in attempts:
        clock.advance(10)
        task.start_step(step.id)
        clock.advance(seconds)
        task.end_step(step.id, **outcome)
        seen.append((step.duration_ms, step.error, step.retries))
    assert seen == [(500.0, None, 0), (1500.0, "boom", 0), (1750.0, None, 1)]
    with pytest.raises(StateError, match="from completed to failed; allowed are: none"):
        task.end_step(step.id, StepStatus.FAILED)


def test_a_task_keeps_its_last_hundred_steps() -> None:
    task = StateCoordinator().task
    task.begin_call("open", "waits", {})
    for number in range(300):
        task.begin_call(str(number), "x", {})
        task.end_call(str(number), ok=number % 2 == 0, text="x")
    assert (len(task.steps), task.dropped) == (100, 201)
    assert list(task.steps) == [str(number) for number in range(200, 300)]
    task.end_call("open", ok=False, text="late")
    task.end_call("open", ok=False, text="late")
    assert "open" not in task.steps
    assert (task.successes, task.errors) == ({"x": 150}, {"x: x": 150, "waits: late": 1})
    for number in range(40):
        task.record("replanning", f"plan {number}", confidence=0.5)
    assert (task.plan_changes[-1], len(task.plan_changes), len(task.steps)) == ("plan 39", 20, 100)
    assert (next(iter(task.steps)), task.dropped) == ("240", 241)
    task.record("validation", "the price is below 10", ok=False)
    assert "the price is below 10" not in [step.name for step in task.failed()]
    for text in ("The shop is closed", "the shop  is closed", "It rains"):
        task.add_finding(text)
    assert task.findings[-2:] == ("The shop is closed", "It rains")
    with pytest.raises(ValidationError):
        task.record("tool", "x", confidence=1.5)
    with pytest.raises(ValueError, match="is not a valid StepKind"):
        task.record("dreaming", "x")


# Entities


def entity(type_: str, value: str, *, by_user: bool = True, turn: int = 1) -> ActiveEntity:
    return ActiveEntity(type=type_, value=value, is_confirmed=by_user, turn=turn, message="m")


def entities_after(*messages: list[ActiveEntity]) -> ActiveEntities:
    """Return the active entities after messages that named the given ones."""
    layer = StateCoordinator().entities
    for message in messages:
        layer.mention(message, by_user=message[0].is_confirmed)
    return layer


def values(layer: ActiveEntities, type_: str) -> list[str]:
    return [each.value for each in layer.groups.get(type_, ())]


def test_a_newer_entity_replaces_the_one_of_its_type() -> None:
    layer = entities_after([entity("asin", "B07X1234")], [entity("asin", "B07X9999", turn=2)])
    assert values(layer, "asin") == ["B07X9999"]
    layer.mention([entity("volume", "1", turn=3), entity("volume", "2", turn=3)])
    assert values(layer, "volume") == ["1", "2"]


def test_a_tool_does_not_replace_what_the_user_named_in_the_same_turn() -> None:
    layer = entities_after(
        [entity("asin", "B07X1234", turn=4)], [entity("asin", "B07X5555", by_user=False, turn=4)]
    )
    assert values(layer, "asin") == ["B07X1234"]
    layer.mention([entity("asin", "B07X5555", by_user=False, turn=5)], by_user=False)
    assert values(layer, "asin") == ["B07X5555"]


def test_a_listing_is_about_nothing_and_about_the_known_one_if_that_is_in_it() -> None:
    listing = [entity("asin", f"B07X{number:04}", by_user=False, turn=9) for number in range(10)]
    assert entities_after(listing).groups == {}
    [kept] = entities_after([entity("asin", "B07X0003", turn=1)], listing).groups["asin"]
    assert (kept.value, kept.turn, kept.is_confirmed) == ("B07X0003", 9, True)


def test_another_title_takes_what_belonged_to_the_one_before_with_it() -> None:
    named = [
        entity("title", "harbor lights"),
        entity("asin", "B07X1234"),
        entity("language", "english"),
    ]
    for by_user in (True, False):
        layer = entities_after(named, [entity("title", "night ferry", by_user=by_user, turn=2)])
        assert list(layer.groups) == ["title", "language"]
    # The user named another ASIN, and a tool says what it is called: that is the ASIN's title.
    layer = entities_after(
        named,
        [entity("asin", "B07X9999", turn=2)],
        [entity("title", "night ferry", by_user=False, turn=2)],
    )
    assert {name: values(layer, name) for name in ("title", "asin")} == {
        "title": ["night ferry"],
        "asin": ["B07X9999"],
    }


def test_set_entity_has_a_known_type_and_a_valid_value() -> None:
    layer = StateCoordinator().entities
    assert layer.set("asin", "b07x1234").value == "B07X1234"
    with pytest.raises(StateError, match="value must be a valid asin, got 'B07-1234'"):
        layer.set("asin", "B07-1234")
    with pytest.raises(StateError, match="there is no entity type 'shoe'; there are: "):
        layer.set("shoe", "42")


def test_entities_expire_when_nobody_names_them() -> None:
    coordinator = StateCoordinator()
    layer = coordinator.entities
    layer.mention([entity("asin", "B07X1234", turn=1), entity("email", "a@b.c", turn=15)])
    for turn, left in ((21, ["asin", "email"]), (22, ["email"])):
        coordinator.dialogue.turns = turn
        layer.begin_turn(is_new_subject=False)
        assert list(layer.groups) == left


def test_types_without_end_are_bounded() -> None:
    layer = entities_after(*([entity(f"type{number}", "x", turn=number)] for number in range(100)))
    assert len(layer.groups) == 30
    assert "type99" in layer.groups


def test_entities_of_a_fork_without_a_number_of_turns_expire() -> None:
    coordinator = StateCoordinator()
    layer = coordinator.entities
    layer.mention([entity("asin", "B07X1234", turn=30)])
    for turn, left in ((30, ["asin"]), (50, ["asin"]), (51, [])):
        layer.begin_turn(is_new_subject=False)
        assert (coordinator.dialogue.turn_count, list(layer.groups)) == (turn, left)
        coordinator.dialogue.turns = turn + (20 if turn == 30 else 1)


# Goals


@pytest.mark.parametrize("wrong", [None, 5, ["a"]])
def test_change_with_a_value_of_a_wrong_type_is_a_state_error(wrong: Any) -> None:
    coordinator = StateCoordinator()
    coordinator.goals.set("Refund order 17")
    for change in (
        coordinator.goals.set,
        coordinator.goals.complete,
        coordinator.goals.add_finding,
        coordinator.dialogue.ask,
    ):
        with pytest.raises(StateError, match="must be a text, got"):
            change(wrong)
    assert coordinator.goals.goal().text == "Refund order 17"


def goals_of() -> Goals:
    return StateCoordinator(wall_clock=lambda: 7.0).goals


def call(goals: Goals, calls: int) -> None:
    for number in range(calls):
        ok = number % 10 != 9
        execution = Execution(tool=f"tool{number % 3}", ok=ok, ms=5.0, note="n" * 80)
        goals.record(execution, error="" if ok else f"Timeout {number}", size=400)


def test_completing_archives_counts_errors_and_the_time_range() -> None:
    goals = goals_of()
    goals.set("find volume 4", context="c" * 3000)
    call(goals, 50)
    for finding in ("it is sold out", "It is  sold out"):
        goals.add_finding(finding)
    for number, theme in enumerate(("search", "search", "order")):
        goals.add_subtask(f"s{number}", f"do {number}", theme=theme)
    goals.fail_subtask("s0", "closed")
    archive = goals.complete()
    assert goals.archive == (archive,)
    assert (archive.calls, archive.success_rate, archive.outcome) == (50, 0.9, "it is sold out")
    assert archive.tools == {"tool0": (17, 2), "tool1": (17, 2), "tool2": (16, 1)}
    assert archive.themes == {"search": {"failed": 1, "open": 1}, "order": {"open": 1}}
    assert (archive.first_at, archive.last_at) == (7.0, 7.0)
    assert archive.failed == ("do 0: closed",)
    assert len(archive.context) == 500
    assert len(archive.model_dump_json(exclude_defaults=True)) < 0.1 * archive.raw_characters


def test_a_new_goal_archives_the_one_before_and_the_caps_hold() -> None:
    goals = goals_of()
    for number in range(30):
        goals.set(f"goal {number} " + "g" * 200, context="語" * 2000)
        goals.add_finding("発見" * 100)
    assert len(goals.archive) <= 10
    assert goals.archive[-1].status is GoalStatus.SUPERSEDED
    assert sum(map(part_tokens, goals.archive)) <= 6_000
    assert part_tokens(goals) <= 12_000
    assert goals.goal().id == 30


def test_limits_of_goals_and_steps_can_be_set(caplog: pytest.LogCaptureFixture) -> None:
    limits = StateLimits(
        goal_tokens=1_000,
        goal_warn_tokens=200,
        goal_archive_tokens=100,
        goals_kept=2,
        executions_kept=3,
        failed_subtasks_kept=1,
        goal_context_characters=4_000,
        steps_kept=2,
    )
    state = StateCoordinator(limits=limits)
    goals = state.goals
    goals.set("find it", context="word " * 800)
    assert goals.goal().context == "word " * 800
    call(goals, 9)
    assert len(goals.goal().recent) == 3
    for id_ in ("a", "b"):
        goals.add_subtask(id_, id_)
        goals.fail_subtask(id_, "closed")
        state.task.record("reasoning", id_)
        state.task.record("reasoning", "again")
    assert len(state.task.steps) == 2
    assert len(goals.complete().failed) == 1
    for number in range(4):
        goals.set(f"goal {number}")
        goals.complete()
    assert [each.text for each in goals.archive] == ["goal 2", "goal 3"]
    goals.set("big", context="word " * 160)
    assert "cap=<1000> | the goals of the session are close" in caplog.text
    assert state.stats()["caps"] == {"session": 1_000, "warning": 200, "archives": 100}


def test_without_an_archive_a_goal_that_ends_is_returned_and_dropped() -> None:
    goals = StateCoordinator(limits=StateLimits(goals_kept=0)).goals
    goals.set("one")
    goals.set("two")
    assert goals.complete("found").outcome == "found"
    assert goals.archive == ()
    assert list(goals.lines()) == []


def test_a_session_stays_under_its_cap_and_what_is_oldest_goes_first() -> None:
    goals = goals_of()
    goals.set("old")
    goals.set("new", context="文脈" * 900)
    goals.active = goals.goal().replaced(
        subtasks={
            f"s{number}": Subtask(id=f"s{number}", text="語" * 100, result="果" * 300)
            for number in range(25)
        }
    )
    goals.reduce()
    assert part_tokens(goals) <= 12_000
    assert goals.archive == ()
    assert len(goals.goal().subtasks) == 25
    goals.active = goals.goal().replaced(
        subtasks={f"s{number}": Subtask(id=f"s{number}", text="語" * 300) for number in range(50)}
    )
    with pytest.raises(StateError, match="over the limit of 12000; complete the goal"):
        goals.reduce()


def test_goal_too_large_in_itself_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    coordinator = StateCoordinator()
    agent = Agent(model=ScriptedModel(), plugins=[coordinator])
    goals = coordinator.goals
    goals.set("old")
    goals.set("new", context="文脈")
    subtasks = {f"s{n}": Subtask(id=f"s{n}", text="語" * 300, result="果") for n in range(50)}
    goals.active = goals.goal().replaced(subtasks=subtasks)
    agent("hello")
    agent("go on")
    assert (goals.goal().context, goals.goal().subtasks) == ("文脈", subtasks)
    assert [each.text for each in goals.archive] == ["old"]
    assert caplog.text.count("cap=<12000> | the active goal alone exceeds the size limit") == 1
    goals.complete("done")
    assert part_tokens(goals) < 1_000


def test_a_circle_of_subtasks_is_refused_and_named() -> None:
    goals = goals_of()
    goals.set("g")
    goals.add_subtask("a", "a")
    goals.add_subtask("b", "b", depends_on=("a",))
    with pytest.raises(StateError, match=r"form a cycle: .*a.*b"):
        goals.add_subtask("a", "a", depends_on=("b",))
    with pytest.raises(StateError, match="form a cycle: c -> c"):
        goals.add_subtask("c", "c", depends_on=("c",))
    with pytest.raises(StateError, match="there is no subtask 'x'; there are: 'a', 'b', 'd'"):
        goals.add_subtask("d", "d", depends_on=("x",))


def test_a_subtask_is_ready_when_what_it_depends_on_is_done() -> None:
    goals = goals_of()
    goals.set("g")
    for id_, needs in (("a", ()), ("b", ("a",)), ("c", ("a", "b"))):
        goals.add_subtask(id_, id_, depends_on=needs)
    assert [each.id for each in goals.goal().ready] == ["a"]
    with pytest.raises(
        StateError, match="'b' has ended, or waits for another subtask; ready are: 'a'"
    ):
        goals.complete_subtask("b")
    goals.complete_subtask("a")
    assert [each.id for each in goals.goal().ready] == ["b"]
    goals.fail_subtask("b", "closed")
    assert goals.goal().ready == []
    with pytest.raises(StateError, match="'a' is completed and cannot fail"):
        goals.fail_subtask("a", "closed")
    assert [each.status for each in goals.goal().subtasks.values()] == [
        "completed",
        "failed",
        "open",
    ]


def test_a_goal_has_at_most_fifty_subtasks() -> None:
    goals = goals_of()
    goals.set("g")
    for number in range(50):
        goals.add_subtask(f"s{number}", "x", depends_on=(f"s{number - 1}",) if number else ())
    with pytest.raises(StateError, match="at most 50 subtasks"):
        goals.add_subtask("s50", "x")
    goals.add_subtask("s49", "another text")


def test_the_context_of_a_goal_keeps_its_end() -> None:
    goals = goals_of()
    goals.set("g", context="x" * 3_000 + "the end")
    assert goals.goal().context == "x" * 1_993 + "the end"


def test_events_and_calls_allow_the_same_moves() -> None:
    dialogue = StateCoordinator().dialogue
    for start, end in itertools.product(Phase, Phase):
        dialogue.phase = start
        if end is start or end in MOVES[start]:
            dialogue.set_phase(end)
            assert dialogue.phase is end
        else:
            with pytest.raises(
                StateError, match=f"phase cannot go from {start} to {end}; allowed are"
            ):
                dialogue.set_phase(end)
        # After a handoff, no event moves the conversation on.
        dialogue.phase = start
        dialogue.advance(end)
        assert dialogue.phase is (
            end if end in MOVES[start] and start is not Phase.HANDOFF else start
        )


SCOPE = ConversationScope("u1", "s1", tenant="shop")


@pytest.mark.parametrize(
    ("answer", "known"),
    [
        ({"tier": "vip"}, Environment(tier="vip")),
        (Environment(tier="vip"), Environment(tier="vip")),
        (None, Environment()),
    ],
)
def test_source_returns_an_environment_or_its_fields(answer: Any, known: Environment) -> None:
    assert EnvironmentTracker(lambda scope: answer, SCOPE).environment == known


def test_other_values_of_a_source_are_logged_and_not_used(caplog: pytest.LogCaptureFixture) -> None:
    wrong: Any = 5
    assert EnvironmentTracker(lambda scope: wrong, SCOPE).environment == Environment()
    assert "the environment could not be read, keeping the last values" in caplog.text


def test_wrong_fields_of_a_source_are_logged_and_the_others_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    answers = iter([{"tier": "vip"}, {"tier": 5, "cart": ["Gyo"], "timezone": "Mars"}])
    ids = {"user_id": "u1", "session_id": "s1"}
    with MangaMemory.open(
        durable=f"sqlite:///{tmp_path}/s.db", environment=lambda scope: next(answers)
    ) as memory:
        agent = memory.agent(ScriptedModel(lambda _: "Noted."), **ids, task_state=True)
        memory.changes(**ids).publish()
        agent("What is in my cart?")
        assert export_for_human(agent, reason="asked").environment == Environment(
            tier="vip", cart=("Gyo",)
        )
    assert "fields=<tier, timezone> | wrong fields" in caplog.text


def test_source_that_is_no_function_is_refused() -> None:
    wrong: Any = {"tier": "vip"}
    with pytest.raises(
        ValueError, match=r"source must be EnvironmentSource, got \{'tier': 'vip'\}"
    ):
        EnvironmentTracker(wrong, SCOPE)


@pytest.mark.parametrize(
    ("hour", "part"),
    [(3, "night"), (8, "morning"), (14, "afternoon"), (19, "evening"), (23, "night")],
)
def test_the_time_of_day_is_that_of_the_user(hour: int, part: str) -> None:
    assert Environment(timezone="Asia/Tokyo").part_of_day((hour - 9) % 24 * 3600) == part
    assert Environment(timezone="Asia/Tokyo", time_of_day="tea time").part_of_day(0) == "tea time"
    assert Environment().part_of_day(0) is None
    with pytest.raises(ValidationError, match="IANA name"):
        Environment(timezone="../etc/passwd")


@pytest.mark.parametrize(
    ("given", "kept"), [(1200, "1,200"), (12.5, "12.5"), ("1,200 JPY", "1,200 JPY"), (None, None)]
)
def test_total_of_the_cart_is_kept_as_text(given: object, kept: str | None) -> None:
    assert (
        Environment.model_validate({"cart": ["B07X1234"], "cart_total": given}).cart_total == kept
    )
    with pytest.raises(ValidationError):
        Environment.model_validate({"cart_total": ["1"]})


def test_the_agent_cannot_change_it() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Environment().tier = "vip"
    assert len(Environment.model_validate({"cart": [str(n) for n in range(500)]}).cart) == 50


def test_a_policy_asks_for_the_tier_at_each_use() -> None:
    tiers = iter(["standard", "vip", "unheard of"])
    policy = TtlPolicy(tier=lambda: next(tiers))
    assert [policy.ttl(1) for _ in range(3)] == [1800, 3600, 1800]
    with pytest.raises(ValueError, match="tier must be a text or a function"):
        TtlPolicy(tier=5)
