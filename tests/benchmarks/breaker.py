"""breaker: cost of a check and of a guarded call, and other libraries.

The scenario table counts for each library: callers out of 100 concurrent ones that pass a half-open
breaker; whether a caller passes after a cancelled probe; whether a cancelled probe, and a probe
that fails because of its caller, leave the breaker half-open, because neither says anything about
the service.
"""

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from importlib import import_module
from statistics import median, quantiles
from typing import Any

from strands import tool

from strands_manga_memory import BreakerPolicy, GuardedMCPTools, guard_tool
from strands_manga_memory.mcp import CircuitBreaker
from tests import mcp_servers
from tests.benchmarks import progress
from tests.integration.mcp_support import until

LIBRARIES = ["pybreaker", "purgatory", "aiobreaker", "circuitbreaker"]

BUDGETS = {
    "check_p50_us": "<= 2",
    "check_p99_us": "<= 10",
    "open_reject_p50_us": "<= 1",
    "added_to_a_call_p50_us": "<= 60",
    "open_rejection_of_a_call_p50_us": "<= 50",
    "healthy_call_beside_a_hanging_one_ratio": "<= 1.2",
    "strands_manga_memory_probes_of_100": "== 1",
    "strands_manga_memory_probes_of_100_failing": "== 1",
    "strands_manga_memory_admits_after_a_cancelled_probe": "== 1",
    "strands_manga_memory_half_open_after_a_cancelled_probe": "== 1",
    "strands_manga_memory_half_open_after_an_ignored_probe": "== 1",
}

_CHECKS = 50_000
_CALLS = 3_000
_SERVER_CALLS = 300
_RESET_AFTER = 0.05


class CallerIsWrongError(Exception):
    """Error of a caller, which says nothing about the service."""


def run() -> dict[str, float]:
    """Measure everything in one run."""
    table = [
        asyncio.run(_scenarios(name))
        for name in progress(["strands_manga_memory", *LIBRARIES], "the scenario table")
    ]
    return {
        **_check(),
        **asyncio.run(_calls()),
        **asyncio.run(_server()),
        **{name: value for rows in table for name, value in rows.items()},
    }


# --- the core -------------------------------------------------------------------------------------


def _timed(step: Callable[[], object], times: int) -> list[float]:
    """Return the microseconds of each step, including the cost of the clock."""
    clock, found = time.perf_counter, []
    gc.collect()
    for _ in range(times):
        start = clock()
        step()
        found.append(1e6 * (clock() - start))
    return found


def _check() -> dict[str, float]:
    closed, opened = CircuitBreaker(), CircuitBreaker()
    opened.restore(5, 3600.0)

    def check() -> None:
        permit = closed.try_acquire()
        if permit is not None:
            permit.success()

    checks, rejections = _timed(check, _CHECKS), _timed(opened.try_acquire, _CHECKS)
    return {
        "check_p50_us": median(checks),
        "check_p99_us": quantiles(checks, n=100)[98],
        "open_reject_p50_us": median(rejections),
    }


# --- whole calls ----------------------------------------------------------------------------------


async def _calls() -> dict[str, float]:
    @tool
    async def trivial(n: int) -> str:
        """Do next to nothing."""
        return str(n)

    guarded = guard_tool(trivial)
    times: dict[str, list[float]] = {"bare": [], "guarded": []}
    for _ in progress(range(_CALLS), f"{_CALLS} calls, bare and guarded side by side"):
        times["bare"].append(await _call_us(trivial))
        times["guarded"].append(await _call_us(guarded))
    guarded.breaker.restore(5, 3600.0)
    rejections = [await _call_us(guarded) for _ in range(_CALLS)]
    return {
        "bare_call_p50_us": median(times["bare"]),
        "guarded_call_p50_us": median(times["guarded"]),
        "guarded_call_p99_us": quantiles(times["guarded"], n=100)[98],
        "added_to_a_call_p50_us": median(times["guarded"]) - median(times["bare"]),
        "open_rejection_of_a_call_p50_us": median(rejections),
    }


async def _call_us(of: Any, name: str = "trivial", **arguments: Any) -> float:
    use = {"toolUseId": "t", "name": name, "input": arguments or {"n": 1}}
    start = time.perf_counter()
    async for _ in of.stream(use, {}):
        pass
    return 1e6 * (time.perf_counter() - start)


async def _server() -> dict[str, float]:
    """Measure a healthy tool next to a hanging one."""
    with mcp_servers.client_of("sdk", "stdio") as client:
        guarded = GuardedMCPTools(client, BreakerPolicy(timeout=60.0))
        tools = {
            each.tool_name: each
            for each in await asyncio.to_thread(asyncio.run, guarded.load_tools())
        }
        alone, beside = [], []
        for _ in progress(range(10), "a healthy tool, alone and beside one that hangs"):
            alone += [await _call_us(tools["ok"], "ok") for _ in range(_SERVER_CALLS // 10)]
            hanging = asyncio.create_task(_call_us(tools["hang"], "hang", seconds=60))
            await until(lambda: guarded.status()["hang"]["in_flight"])
            beside += [await _call_us(tools["ok"], "ok") for _ in range(_SERVER_CALLS // 10)]
            hanging.cancel()
            await asyncio.wait({hanging})
        return {
            "healthy_call_alone_us": median(alone),
            "healthy_call_beside_a_hanging_one_ratio": median(beside) / median(alone),
        }


# --- the scenario table ---------------------------------------------------------------------------

Guard = Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]
"""Function that calls a service through a breaker, and raises the error of either."""


async def _scenarios(library: str) -> dict[str, float]:
    make = _MAKERS[library]
    rows: dict[str, float] = {
        "probes_of_100": await _probes(make(), fails=False),
        "probes_of_100_failing": await _probes(make(), fails=True),
    }
    after_cancel, after_ignored = make(), make()
    for guard in (after_cancel, after_ignored):
        await _trip(guard)
    probe = asyncio.ensure_future(after_cancel(lambda: asyncio.sleep(60)))
    await asyncio.sleep(0.01)
    probe.cancel()
    await asyncio.gather(probe, return_exceptions=True)
    admits, half_open = await _is_half_open(after_cancel)
    rows |= {
        "admits_after_a_cancelled_probe": admits,
        "half_open_after_a_cancelled_probe": half_open,
    }
    await _quiet(after_ignored(_wrong))
    _, rows["half_open_after_an_ignored_probe"] = await _is_half_open(after_ignored)
    return {f"{library}_{name}": value for name, value in rows.items()}


async def _trip(guard: Guard) -> None:
    for _ in range(5):
        await _quiet(guard(_fails))
    await asyncio.sleep(1.5 * _RESET_AFTER)


async def _probes(guard: Guard, *, fails: bool) -> int:
    await _trip(guard)
    let_through = 0

    async def probe() -> None:
        nonlocal let_through
        let_through += 1
        await asyncio.sleep(0.02)
        if fails:
            await _fails()

    await asyncio.gather(*(_quiet(guard(probe)) for _ in range(100)))
    return let_through


async def _is_half_open(guard: Guard) -> tuple[int, int]:
    """Return whether a call passes the breaker and its failure has the next one rejected."""
    seen = 0

    async def service() -> None:
        nonlocal seen
        seen += 1
        await _fails()

    await _quiet(guard(service))
    admitted = seen
    await _quiet(guard(service))
    return admitted, int(admitted == 1 and seen == 1)


async def _quiet(call: Awaitable[None]) -> None:
    with suppress(Exception):  # which one depends on the library
        await call


async def _fails() -> None:
    raise ConnectionError("down")


async def _wrong() -> None:
    raise CallerIsWrongError


def _ours() -> Guard:
    breaker = CircuitBreaker(reset_after=_RESET_AFTER)

    async def guard(service: Callable[[], Awaitable[None]]) -> None:
        permit = breaker.try_acquire()
        if permit is None:
            raise RuntimeError("open")
        try:
            await service()
            permit.success()
        except (CallerIsWrongError, asyncio.CancelledError):
            permit.ignore()
            raise
        except Exception:
            permit.failure()
            raise

    return guard


def _pybreaker() -> Guard:
    library = import_module("pybreaker")
    breaker = library.CircuitBreaker(
        fail_max=5, reset_timeout=_RESET_AFTER, exclude=[CallerIsWrongError]
    )

    async def guard(service: Callable[[], Awaitable[None]]) -> None:
        with breaker.calling():
            await service()

    return guard


def _purgatory() -> Guard:
    library = import_module("purgatory")
    factory = library.AsyncCircuitBreakerFactory(
        default_threshold=5, default_ttl=_RESET_AFTER, exclude=[CallerIsWrongError]
    )

    async def guard(service: Callable[[], Awaitable[None]]) -> None:
        async with await factory.get_breaker("service"):
            await service()

    return guard


def _aiobreaker() -> Guard:
    library = import_module("aiobreaker")
    breaker = library.CircuitBreaker(
        fail_max=5, timeout_duration=timedelta(seconds=_RESET_AFTER), exclude=[CallerIsWrongError]
    )

    async def guard(service: Callable[[], Awaitable[None]]) -> None:
        await breaker.call_async(service)

    return guard


def _circuitbreaker() -> Guard:
    library = import_module("circuitbreaker")
    breaker = library.CircuitBreaker(
        failure_threshold=5,
        recovery_timeout=_RESET_AFTER,
        expected_exception=lambda kind, _: kind is not CallerIsWrongError,
    )

    async def guard(service: Callable[[], Awaitable[None]]) -> None:
        await breaker.call_async(service)

    return guard


_MAKERS: dict[str, Callable[[], Guard]] = {
    "strands_manga_memory": _ours,
    "pybreaker": _pybreaker,
    "purgatory": _purgatory,
    "aiobreaker": _aiobreaker,
    "circuitbreaker": _circuitbreaker,
}
