"""Core: one process's hold on the simulated conversation, and the machine that it runs on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from tests.faults.simulation.writer import TaskWriter

FLUSH_EVERY = 2
"""Turns after which the durable tier is written."""

HOT_SECONDS = 1800.0
"""Seconds after which a conversation has expired in the hot tier."""

SESSION_SECONDS = 86_400.0
"""Seconds after which a session has ended; graves and copies stay for another hour."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The stores of one process, its writer and its clock.

    Args:
        hot: A ``HotStore``, or None.
        durable: A ``Table``, or None.
        writer: What does its background work.
        clock: Seconds since 1970 as this process has it.
    """

    hot: Any
    durable: Any
    writer: TaskWriter
    clock: Callable[[], float]


class Core(Protocol):
    """One process's hold on the one conversation there is. What returns a future is done on the writer."""

    @property
    def is_dirty(self) -> bool:
        """Whether there is something that no tier has confirmed."""

    @property
    def is_stale(self) -> bool:
        """Whether others have saved something that the live agent has not taken over."""

    @property
    def is_deleted(self) -> bool:
        """Whether the conversation was deleted, and the live agent does not know."""

    @property
    def epoch(self) -> int:
        """One more than the graves that it knows of, of those that there have been."""

    @property
    def unsaved(self) -> set[str]:
        """Ids of the messages that no tier has confirmed."""

    @property
    def held(self) -> set[str]:
        """Ids of this process's own messages that it would store again if the hot tier lost them."""

    @property
    def being_flushed(self) -> set[str]:
        """Ids of the messages that this process put into the log, and that no head includes yet."""

    def open(self, *, inspect: bool = False) -> list[Any] | None:
        """Read the conversation; its messages, or None if there is none."""

    def begin_turn(self) -> None:
        """Take note that a turn begins."""

    def append(self, message: Any, *, at: float) -> None:
        """Log a message."""

    def state(self) -> dict[str, Any]:
        """Return the agent's state as it is known here."""

    def capture(self, messages: Sequence[Any], state: Mapping[str, Any], *, in_turn: bool) -> None:
        """Take the live agent's history and state."""

    def revise(self, message: Any) -> bool:
        """Put a message in place of the one with its id; False if there is none."""

    def set_metadata(self, name: str, value: Any) -> None:
        """Keep a value beside the conversation."""

    def take_over(self, live: Sequence[Any]) -> list[Any] | None:
        """Return the history that the live agent is to go on with, if it is another one."""

    def save(self) -> Future[Any]:
        """Save; done when the first tier has it."""

    def flush(self) -> Future[Any]:
        """Flush; done when the durable tier has it."""

    def refresh(self) -> Future[Any]:
        """Read what others have saved."""

    def delete(self) -> Future[Any]:
        """Leave tombstones."""

    def delete_listed(self) -> Future[Any]:
        """Leave a tombstone of the session, and end what is listed of it."""

    def forget_user(self) -> Future[Any]:
        """Leave a tombstone of the user, and end what is listed of him."""

    def close(self) -> Future[Any]:
        """Flush for the last time."""

    def history(self) -> Iterator[tuple[str, int]]:
        """Yield the id and the number of the turn of every message of the log."""
