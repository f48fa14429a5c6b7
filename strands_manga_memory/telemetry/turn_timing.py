"""Measures the time that the memory layer's hooks take in each turn."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from strands.hooks import AfterInvocationEvent, BeforeInvocationEvent, HookOrder, HookRegistry

from strands_manga_memory.attachments import attachments
from strands_manga_memory.telemetry.events import TURN
from strands_manga_memory.telemetry.recording import recorder


def timed(registry: HookRegistry) -> HookRegistry:
    """Return a wrapper of a hook registry that measures the duration of the callbacks added through it.

    At the end of each turn, one event records the duration of the turn, and the total duration of these callbacks. While
    telemetry is off, ``registry`` itself is returned.
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
    """Stopwatch for one agent: duration of the current turn, and total duration of this package's callbacks in the turn.

    The callbacks of one agent never run at the same time.
    """

    def __init__(self) -> None:
        self.layer = 0.0
        self._start: float | None = None

    def begin(self, event: BeforeInvocationEvent) -> None:
        self._start, self.layer = time.perf_counter(), 0.0

    def end(self, event: AfterInvocationEvent) -> None:
        if self._start is not None:
            recorder.note(TURN, time.perf_counter() - self._start, counts={"layer": self.layer})
            self._start = None

    @contextmanager
    def in_layer(self) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.layer += time.perf_counter() - start


class _TimedRegistry:
    """Hook registry that measures the duration of each callback added to it, and adds this to the total of the turn."""

    def __init__(self, registry: HookRegistry, clock: _TurnClock) -> None:
        self._registry = registry
        self._clock = clock

    def add_callback(self, event_type: Any, callback: Callable[[Any], Any], **options: Any) -> None:
        in_layer = self._clock.in_layer  # the callbacks keep the clock alive, not the registry that holds them

        async def awaited(event: Any) -> None:
            with in_layer():
                await callback(event)

        def called(event: Any) -> None:
            with in_layer():
                callback(event)

        self._registry.add_callback(event_type, awaited if inspect.iscoroutinefunction(callback) else called, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registry, name)
