"""Measures the time that the memory layer's hooks take in each turn."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any, cast

from strands.hooks import AfterInvocationEvent, BeforeInvocationEvent, HookOrder, HookRegistry

from strands_manga_memory.attachments import attachments
from strands_manga_memory.telemetry.events import TURN
from strands_manga_memory.telemetry.recording import recorder


def timed(registry: HookRegistry) -> HookRegistry:
    """Wrap a hook registry to measure the duration of the callbacks that are added through the wrapper.

    At the end of each turn, one event records the duration of the turn and of these callbacks. While telemetry is off,
    ``registry`` is returned unchanged.
    """
    if not recorder.enabled:
        return registry
    clock: _TurnClock | None = attachments(registry).get("turn_clock")
    if clock is None:
        clock = attachments(registry)["turn_clock"] = _TurnClock()
        registry.add_callback(BeforeInvocationEvent, clock.begin, order=HookOrder.SDK_FIRST - 2)
        registry.add_callback(AfterInvocationEvent, clock.end, order=HookOrder.SDK_LAST + 2)
    return cast("HookRegistry", _TimedRegistry(registry, clock))


class _TurnClock:
    """Duration of a turn and of the memory layer's hooks. The callbacks of one agent never run at the same time."""

    __slots__ = ("_start", "layer")

    def __init__(self) -> None:
        self.layer = 0.0
        self._start: float | None = None

    def begin(self, event: BeforeInvocationEvent) -> None:
        self._start, self.layer = time.perf_counter(), 0.0

    def end(self, event: AfterInvocationEvent) -> None:
        if self._start is not None:
            recorder.note(TURN, time.perf_counter() - self._start, counts={"layer": self.layer})
            self._start = None


class _TimedRegistry:
    """Hook registry that wraps each added callback in a ``_TimedCallback``."""

    def __init__(self, registry: HookRegistry, clock: _TurnClock) -> None:
        self._registry = registry
        self._clock = clock

    def add_callback(self, event_type: Any, callback: Callable[[Any], Any], **options: Any) -> None:
        timed = _TimedCallback(callback, self._clock)
        is_awaited = inspect.iscoroutinefunction(callback)
        self._registry.add_callback(event_type, timed.awaited if is_awaited else timed, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registry, name)


class _TimedCallback:
    """Callback that adds its duration to the total of the turn's callbacks. Slots save memory in thousands of callbacks."""

    __slots__ = ("_callback", "_clock")

    def __init__(self, callback: Callable[[Any], Any], clock: _TurnClock) -> None:
        self._callback, self._clock = callback, clock

    async def awaited(self, event: Any) -> None:
        start = time.perf_counter()
        try:
            await self._callback(event)
        finally:
            self._clock.layer += time.perf_counter() - start

    def __call__(self, event: Any) -> None:
        start = time.perf_counter()
        try:
            self._callback(event)
        finally:
            self._clock.layer += time.perf_counter() - start
