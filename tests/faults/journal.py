"""Journals of a seed's workers: each line is on disk before the next step."""

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Event = dict[str, Any]
"""``what`` happened, ``at`` which monotonic second (the same clock in every process), and more."""


class Journal:
    """A file that a worker appends events to; what is in it survives the worker."""

    def __init__(self, path: Path, **always: Any) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._always = always

    def note(self, what: str, **more: Any) -> None:
        """Append an event, and wait until it is on disk."""
        event = {"what": what, "at": time.monotonic(), **self._always, **more}
        os.write(self._file, json.dumps(event).encode() + b"\n")
        os.fsync(self._file)


def read(paths: Iterable[Path]) -> list[Event]:
    """Return the events of all journals in the order of time, without a line that a kill cut."""
    lines = [line for path in paths for line in path.read_bytes().splitlines(keepends=True)]
    return sorted(
        (json.loads(line) for line in lines if line.endswith(b"\n")),
        key=lambda event: float(event["at"]),
    )
