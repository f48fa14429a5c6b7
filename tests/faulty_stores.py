"""Wrappers of stores whose calls fail on request."""

import threading
from typing import Any

from strands_manga_memory import StoreUnavailableError


class _FaultyStore:
    """Wrapper of a store for tests, which can make the calls of the store fail."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._faults: list[tuple[BaseException, bool]] = []
        self.down = False
        self.calls: list[str] = []

    def fail_next(
        self, count: int = 1, *, error: BaseException | None = None, after: bool = False
    ) -> None:
        """Make the next calls of the wrapped store fail.

        Args:
            count: Number of calls.
            error: Error to raise. Default ``StoreUnavailableError``.
            after: True: the store executes the call, and then the error is raised. False (default):
                the call is not executed.
        """
        fault = error or StoreUnavailableError("injected fault")
        with self._lock:
            self._faults += [(fault, after)] * count

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._store, name)
        if not callable(attribute):
            return attribute

        def call(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                self.calls.append(name)
                fault, after = self._faults.pop(0) if self._faults else (None, False)
            if self.down:
                raise StoreUnavailableError("injected outage")
            if fault and not after:
                raise fault
            result = attribute(*args, **kwargs)
            if fault:
                raise fault
            return result

        return call


class FaultyHotStore(_FaultyStore):
    """Wrapper of a hot store whose calls fail on request, for tests of outages.

    ``fail_next`` makes the next calls fail. While ``down`` is True, all calls fail.
    """


class FaultyTable(_FaultyStore):
    """Wrapper of a durable table whose calls fail on request, for tests of outages.

    ``fail_next`` makes the next calls fail. While ``down`` is True, all calls fail.
    """
