"""A slice of the fault campaign; and that it finds what is wrong."""

import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.faults import talk
from tests.faults.campaign import run
from tests.faults.judge import Kept, Loss, is_excused, judged
from tests.faults.scenario import Durable, Hot, Scenario
from tests.faults.stage import Servers
from tests.faults.worker import PLANTS
from tests.support import CUT_TEXT

pytestmark = pytest.mark.xdist_group("campaign")

LONE = next(
    seed
    for seed in range(1000)
    if Scenario.drawn(seed).workers == 2 and not Scenario.drawn(seed).together
)


@pytest.fixture(scope="module")
def running() -> Iterator[Servers]:
    with Servers() as started:
        yield started


@pytest.mark.parametrize(
    ("hot", "durable"),
    [
        *(("single", "dynamodb"), ("replicated", "sqlite"), ("none", "postgres")),
        *(
            pytest.param(*kind, marks=pytest.mark.long)
            for kind in (("cluster", "dynamodb"), ("single", "postgres"), ("none", "sqlite"))
        ),
    ],
)
def test_a_seed_of_each_kind(running: Servers, hot: Hot, durable: Durable) -> None:
    result = run(LONE, running, hot=hot, durable=durable)
    assert result.passed, "\n".join([result.line, *result.verdict.wrong, str(result.folder)])
    assert result.verdict.acknowledged > 4


def test_whatever_is_done_wrong_is_found(running: Servers) -> None:
    plants = tuple(sorted(PLANTS))  # a deletion comes first: the rest is said after it
    assert plants[0] == "deleted"
    result = run(LONE, running, hot="none", durable="sqlite", plants=plants)
    wrong = "\n".join(result.verdict.wrong)
    canary = Scenario.drawn(LONE).canary(0)
    for words in (
        rf"{canary}w\S+ is back: in durable",
        r"out of order: \S+n97 comes after number 98",
        rf"doubled: user:{canary}twice text 2 times in the log",
        rf"foreign: user:{Scenario.drawn(LONE).canary(1)}stray text in the log",
        r"lost: \S+n99 was acknowledged",
        r"[0-9a-f]{10,16} is back: in durable",
        r"unbounded: worker 2.0 ended with threads=1\d\d",
    ):
        assert re.search(words, wrong), f"{words} not in\n{wrong}"
    assert not result.passed
    assert result.folder is not None
    assert result.line.startswith(f"seed {LONE}: FAILED")
    assert any("ack" in path.read_text() for path in result.folder.glob("*.jsonl"))
    shutil.rmtree(result.folder)


def ack(tag: str, at: float, *, worker: str = "0.0", unsaved: int = 0) -> dict[str, Any]:
    """A turn that took a second."""
    known = {"kind": "text", "epoch": 1, "dropped": False, "unsaved": unsaved}
    return {
        "what": "ack", "at": at, "began": at - 1, "worker": worker, "user": 0,
        "tag": f"canary7user0{tag}", **known,
    }  # fmt: skip


def killed(at: float, *durable: str, worker: str | None = "0.0") -> Loss:
    return Loss(at, worker, {0: frozenset(f"canary7user0{tag}" for tag in durable)})


def forgot(at: float, *durable: str) -> Loss:
    return killed(at, *durable, worker=None)


@pytest.mark.parametrize(
    ("losses", "unsaved", "may_be_lost"),
    [
        ([], 0, False),
        ([killed(9)], 0, False),  # the hot tier has it
        ([forgot(8)], 0, False),  # the worker has it
        ([killed(9), forgot(9.5)], 0, True),
        ([killed(9, "a"), forgot(9.5)], 0, False),  # the durable tier has it
        ([killed(9), forgot(9.5, "a")], 0, False),  # somebody else brought it there
        ([forgot(8), killed(9)], 0, True),
        ([forgot(3), killed(9)], 0, False),  # before it was said
        ([killed(9)], 2, True),  # nobody had confirmed it
        ([killed(9, worker="1.0"), forgot(9.5)], 0, False),
    ],
)
def test_the_loss_bound_and_no_wider(losses: list[Loss], unsaved: int, may_be_lost: bool) -> None:
    events = [ack("a", 5.0, unsaved=unsaved)]
    closed = [
        {"what": "closed", "at": 10.0, "worker": "9.0", "user": user, "window": []}
        for user in range(2)
    ]
    kept = {user: Kept([], {"the tiers": []}) for user in range(2)}
    verdict = judged(Scenario.drawn(7), [*events, *closed], losses, kept)
    assert verdict.at_risk == verdict.lost == may_be_lost
    assert any("lost: canary7user0a" in wrong for wrong in verdict.wrong) == (not may_be_lost)


def test_a_later_save_confirms_what_came_before() -> None:
    events = [ack("a", 5.0), ack("b", 7.5)]
    kept = {user: Kept([], {}) for user in range(2)}
    verdict = judged(Scenario.drawn(7), events, [forgot(6), killed(9)], kept)
    assert verdict.at_risk == 0
    assert len([wrong for wrong in verdict.wrong if "lost: " in wrong]) == 2


def test_what_a_killed_worker_left_waits_for_who_saves_next() -> None:
    turns, losses = [ack("a", 5.0), ack("b", 5.0, worker="1.0")], [killed(9)]
    assert [is_excused(turn, turns, losses) for turn in turns] == [True, False]
    assert not is_excused(turns[0], [*turns, ack("c", 11.0, worker="1.0")], losses)
    assert is_excused(turns[0], [*turns, ack("c", 11.0, worker="1.0")], [forgot(8), *losses])


@pytest.mark.parametrize(
    ("text", "is_wrong"), [("canary7user0w0.0n1 text", False), (CUT_TEXT, True)]
)
def test_a_turn_that_was_cut_stays_as_it_is(text: str, is_wrong: bool) -> None:
    window = [{"role": "user", "content": [{"text": text}]}]
    closed = [
        {"what": "closed", "at": 2.0, "worker": "1.0", "user": user, "window": window}
        for user in range(2)
    ]
    kept = {0: Kept(window, {"the tiers": window}), 1: Kept([], {})}
    verdict = judged(Scenario.drawn(7), closed, [], kept)
    assert any(wrong.startswith("user 0: synthesized: ") for wrong in verdict.wrong) == is_wrong
    assert not any("invalid" in wrong for wrong in verdict.wrong)


def test_a_request_that_a_provider_would_refuse_is_found() -> None:
    asked: list[Any] = [{"role": "user", "content": [{"text": text}]} for text in "ab"]
    events = [
        {"what": "requests", "at": 1.0, "worker": "0.0", "invalid": talk.request_problems(asked)}
    ]
    verdict = judged(Scenario.drawn(7), events, [], {user: Kept([], {}) for user in range(2)})
    assert any(
        "invalid: a request of worker 0.0, messages 0 and 1 are both of role user" in wrong
        for wrong in verdict.wrong
    )


def test_the_same_seed_draws_the_same_scenario() -> None:
    assert [Scenario.drawn(s) for s in range(50)] == [Scenario.drawn(s) for s in range(50)]
    assert {name for seed in range(400) for name in Scenario.drawn(seed).faults} >= {
        *("kill", "stop", "reset", "delay", "blackhole", "half_open", "drip", "drop_answers",
            "hot_pause", "hot_empty"),
        *("memory_pressure", "failover", "reshard", "all_lost", "throttle", "server_error",
            "durable_timeout", "disk_full"),
    }  # fmt: skip
