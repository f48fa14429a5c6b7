"""Forked processes that talk with their parent over pipes, a JSON object a line."""

import faulthandler
import json
import os
import select
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

WITHIN = 60.0


class Child:
    """One end of the talk: in the parent the child, in the child the parent."""

    def __init__(self, pid: int, reader: int, writer: int) -> None:
        self.pid = pid
        self.reader = reader
        self._writer = writer
        self._buffer = b""

    def say(self, **what: Any) -> None:
        """Send an object."""
        data = json.dumps(what).encode() + b"\n"
        while data:
            data = data[os.write(self._writer, data) :]

    def hear(self, what: str = "", *, within: float = WITHIN) -> dict[str, Any]:
        """Return the next object, which must have ``what``.

        Raises:
            RuntimeError: The other side failed, ended, or says nothing.
        """
        said = self.listen(within)
        if not said or what not in ({"": None} | said):
            raise RuntimeError(f"expected {what!r}, heard {said}")
        return said

    def listen(self, within: float) -> dict[str, Any] | None:
        """Return the next object; ``{}`` after the other side's end, None after a silence."""
        end = time.monotonic() + within
        heard = select.poll()  # unlike select() it takes any number of open files
        heard.register(self.reader, select.POLLIN)
        while b"\n" not in self._buffer:
            if not heard.poll(1_000 * max(0.0, end - time.monotonic())):
                return None
            data = os.read(self.reader, 1 << 20)
            if not data:
                return {}
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        said: dict[str, Any] = json.loads(line)
        return said

    def kill(self) -> list[dict[str, Any]]:
        """Kill it with SIGKILL, and return what it had said before."""
        os.kill(self.pid, signal.SIGKILL)
        return self.end()

    def end(self) -> list[dict[str, Any]]:
        """Wait until it has ended, and return what it said."""
        said = []
        while line := self.listen(WITHIN):
            said.append(line)
        for end in (self.reader, self._writer):
            os.close(end)
        os.waitpid(self.pid, 0)
        return said


def forked_child(work: Callable[[Child], object]) -> Child:
    """Run ``work`` in a forked process; an error there is what it says last, as ``error``."""
    from_child, to_parent = os.pipe()
    from_parent, to_child = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # Python 3.12 warns of threads; that they do not matter is tested
        pid = os.fork()
    if pid:
        os.close(to_parent)
        os.close(from_parent)
        return Child(pid, from_child, to_child)
    os.close(from_child)
    os.close(to_child)
    parent = Child(0, from_parent, to_parent)
    try:
        work(parent)
    except BaseException:
        parent.say(error=traceback.format_exc())
    finally:
        os._exit(0)


def result_of_child(work: Callable[[], Any]) -> Any:
    """Run ``work`` in a forked process and return its result, which must be a value of JSON."""

    def report(parent: Child) -> None:
        faulthandler.dump_traceback_later(WITHIN - 10, exit=True)  # shows where a child hangs
        parent.say(result=work())

    child = forked_child(report)
    try:
        return child.hear("result")["result"]
    finally:
        child.end()
