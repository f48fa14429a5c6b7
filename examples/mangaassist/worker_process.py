"""Parent's side of a worker process: starts it, sends requests, kills it."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Event = dict[str, Any]
EXAMPLES = Path(__file__).parents[1]


class WorkerError(Exception):
    """A worker failed, stopped, or did not answer in time."""


@dataclass(frozen=True)
class WorkerSettings:
    """Settings of a worker. Its memory is ``manga`` or ``strands``."""

    hot: str
    durable: str
    model: str
    session: str
    folder: Path
    environment: Mapping[str, str]
    timeout: float = 120.0
    memory: str = "manga"


class WorkerProcess:
    """Running worker in its own process session: Ctrl-C reaches only the parent."""

    def __init__(self, settings: WorkerSettings) -> None:
        command = [
            *(
                sys.executable,
                "-m",
                "mangaassist.worker",
                f"--model={settings.model}",
                f"--session={settings.session}",
            ),
            f"--memory={settings.memory}",
        ]
        self._timeout = settings.timeout
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            cwd=settings.folder,
            env=_environment(settings),
            start_new_session=True,
        )
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._last_words: deque[str] = deque(maxlen=15)
        self._readers = [
            threading.Thread(target=read, daemon=True)
            for read in (self._read_events, self._read_words)
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        """Process id of the worker."""
        return self._process.pid

    def send(self, op: str, **data: Any) -> None:
        """Send one request."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"op": op, **data}, ensure_ascii=False) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise WorkerError(f"the worker is gone:\n{''.join(self._last_words)}") from error

    def events(self) -> Iterator[Event]:
        """Yield the events of the worker.

        Raises:
            WorkerError: The worker reports a failure, ends, or is silent for longer than the
                timeout.
        """
        while True:
            try:
                event = self._events.get(timeout=self._timeout)
            except queue.Empty:
                raise WorkerError(
                    f"no answer for {self._timeout:.0f} seconds:\n{''.join(self._last_words)}"
                ) from None
            if event is None:
                self._wait()
                raise WorkerError(f"the worker ended by itself:\n{''.join(self._last_words)}")
            if event["event"] == "failed":
                raise WorkerError(event["error"])
            yield event

    def wait_for(self, *names: str) -> Event:
        """Return the next event with one of these names, and drop earlier events."""
        return next(event for event in self.events() if event["event"] in names)

    def kill(self) -> None:
        """End the process with SIGKILL, so that it cannot save anything."""
        self._process.kill()
        self._wait()

    def close(self) -> Event:
        """Ask the worker to close its memory and end, and return its last event."""
        self.send("close")
        closed = self.wait_for("closed")
        self._wait()
        return closed

    def _wait(self) -> None:
        """Wait for the worker and its MCP server, which ends after the worker."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(self._timeout)
        for reader in self._readers:
            reader.join(10)

    def _read_events(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.endswith("\n"):  # a killed worker may leave half a line
                    self._events.put(json.loads(line))
        self._events.put(None)

    def _read_words(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            self._last_words.extend(lines)


def _environment(settings: WorkerSettings) -> dict[str, str]:
    """Return the environment with the URLs, whose passwords a command line would show."""
    urls = {"MANGA_MEMORY_HOT_URL": settings.hot, "MANGA_MEMORY_DURABLE_URL": settings.durable}
    path = os.pathsep.join(filter(None, [str(EXAMPLES), os.environ.get("PYTHONPATH")]))
    return {**os.environ, **settings.environment, **urls, "PYTHONPATH": path}
