"""state: time of archiving a goal, and the size of goals before and after."""

import json
import time
from statistics import median

from strands_manga_memory import StateCoordinator
from strands_manga_memory.messages.texts import estimate_tokens
from tests.benchmarks import text

BUDGETS: dict[str, str | float] = {
    "archive_of_50_executions_ms": "< 10",
    "archive_smaller_by": ">= 0.9",
    "three_goals_smaller_by": ">= 0.4",
    "three_goals_tokens": "<= 12000",
    "three_goals_findings_lost": "== 0",
}


def run() -> dict[str, float]:
    """Measure."""
    return {**_archive(), **_three_goals()}


def _work(coordinator: StateCoordinator, calls: int) -> int:
    """Have a goal call tools; return the characters of the tools' inputs and results."""
    size = 0
    for number in range(calls):
        id_, given, failed = (
            f"t{number}",
            {"asin": f"B07X{number:04}", "country": "JP"},
            number % 9 == 8,
        )
        answer = f"Timeout after {number} ms" if failed else text(300)
        length = len(json.dumps(given)) + len(answer)
        coordinator.task.begin_call(id_, ("get_stock", "search", "price")[number % 3], given)
        coordinator.task.end_call(id_, ok=not failed, text=answer, ms=12.0, size=length)
        size += length
    return size


def _archive() -> dict[str, float]:
    taken, kept, raw = [], 0, 0
    for _ in range(20):
        coordinator = StateCoordinator()
        coordinator.goals.set("find out which volumes can be had")
        raw = _work(coordinator, 50)
        start = time.perf_counter()
        archive = coordinator.goals.complete("volumes 1 to 4 are in stock")
        taken.append(1000 * (time.perf_counter() - start))
        kept = len(archive.model_dump_json(exclude_defaults=True))
    return {"archive_of_50_executions_ms": median(taken), "archive_smaller_by": 1 - kept / raw}


def _three_goals() -> dict[str, float]:
    coordinator = StateCoordinator()
    found = {
        50: "volume 4 is sold out",
        75: "the box set is cheaper",
        30: "delivery takes two days",
    }
    raw = 0
    for calls, outcome in found.items():
        coordinator.goals.set(f"a goal of {calls} operations")
        raw += _work(coordinator, calls)
        coordinator.task.add_finding(outcome)
        coordinator.goals.complete()
    told, stored = coordinator.to_agent_context(), coordinator.goals.stored()
    return {
        "three_goals_smaller_by": 1 - len(stored) / raw,
        "three_goals_tokens": float(estimate_tokens(stored)),
        "three_goals_findings_lost": float(sum(outcome not in told for outcome in found.values())),
    }
