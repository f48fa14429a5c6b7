"""Stores of the simulation in memory, behind proxies that pause and fail."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.testing import FakeClock
from tests.unit.session.support import MemoryTable, SurvivingHotStore

CHANGING = frozenset({"write", "put", "batch_write"})
_TEXT = re.compile(rb"<(m\d+\.\d+)>")
_REDACTED = re.compile(rb"redacted (m\d+\.\d+)")


@lru_cache(maxsize=50_000)
def texts_in(data: bytes) -> frozenset[str]:
    """Return the message texts in stored bytes."""
    return frozenset(text.decode() for text in _TEXT.findall(data))


@lru_cache(maxsize=50_000)
def redacted_in(data: bytes) -> frozenset[str]:
    """Return the texts of the messages whose replacements are in stored bytes."""
    return frozenset(text.decode() for text in _REDACTED.findall(data))


class HotSide:
    """The hot tier of the simulation."""

    name = "hot"

    def __init__(self, clock: FakeClock) -> None:
        self.store = SurvivingHotStore(clock=clock)

    def texts(self) -> set[str]:
        """Return the message texts in the tier."""
        return {text for data in self._values() for text in texts_in(data)}

    kept_texts = texts

    def redacted(self) -> set[str]:
        """Return the texts of the messages whose replacements are in the tier."""
        return {text for data in self._values() for text in redacted_in(data)}

    def _values(self) -> Iterator[bytes]:
        return (data for one in self.store._conversations.values() for data in one.fields.values())

    def copy(self) -> Any:
        """Return the content, to go back to."""
        return dict(self.store._conversations)

    def go_back(self, content: Any) -> None:
        """Hold an earlier content again."""
        self.store._conversations = dict(content or {})


class DurableSide:
    """The durable tier of the simulation."""

    name = "durable"

    def __init__(self) -> None:
        self.store = MemoryTable()
        self.strays: set[str] = set()

    def texts(self) -> set[str]:
        """Return the message texts in the tier."""
        return {text for row in self.store.rows.values() for text in item_texts(row)}

    def kept_texts(self) -> set[str]:
        """Return the message texts without turns that were put after their incarnation's end."""
        return {
            text
            for (_, sort), row in self.store.rows.items()
            if sort not in self.strays
            for text in item_texts(row)
        }

    def logged_texts(self) -> set[str]:
        """Return the message texts in the log, in their original form or redacted."""
        values = [
            data
            for (_, sort), row in self.store.rows.items()
            if "#TURN#" in sort
            for data in item_values(row)
        ]
        return {text for data in values for text in texts_in(data) | redacted_in(data)}

    def redacted(self) -> set[str]:
        """Return the texts of the messages whose replacements are in the tier."""
        return {
            text
            for row in self.store.rows.values()
            for data in item_values(row)
            for text in redacted_in(data)
        }

    def copy(self) -> Any:
        """Return the content, to go back to."""
        return {key: dict(row) for key, row in self.store.rows.items()}

    def go_back(self, content: Any) -> None:
        """Hold an earlier content again."""
        self.store.rows, self.strays = (
            {key: dict(row) for key, row in (content or {}).items()},
            set(),
        )


def item_texts(item: dict[str, Any]) -> set[str]:
    """Return the message texts in an item of the table."""
    return {text for data in item_values(item) for text in texts_in(data)}


def item_values(item: dict[str, Any]) -> list[bytes]:
    """Return the content of an item of the table."""
    values = [item.get("data"), item.get("turn")]
    return [value.encode() if isinstance(value, str) else value for value in values if value]


def incarnation_of(item: dict[str, Any]) -> int:
    """Return the incarnation of a turn's item; a very high number for any other item."""
    _, found, rest = str(item.get("sk")).partition("#TURN#")
    return int(rest.partition("#")[0]) if found else 10**9


def written_texts(name: str, given: tuple[Any, ...], named: dict[str, Any]) -> set[str]:
    """Return the message texts that a call writes."""
    if name == "write":
        return {text for data in given[1].fields.values() for text in texts_in(data)}
    items = (
        [given[0]]
        if name == "put"
        else list(named.get("puts", ()))
        if name == "batch_write"
        else []
    )
    return {text for item in items for text in item_texts(item)}


class ProcessStore:
    """A store as one process reaches it.

    Args:
        world: Whatever pauses tasks and knows the faults.
        side: The tier.
        process: The process; ``cut`` names the tiers that it cannot reach.
    """

    def __init__(self, world: Any, side: HotSide | DurableSide, process: Any) -> None:
        self._world, self._side, self._process = world, side, process

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._side.store, name)
        if not callable(attribute):
            return attribute

        def call(*given: Any, **named: Any) -> Any:
            world, side, process = self._world, self._side, self._process
            world.count_call(process, side.name)
            world.pause()
            if side.name in process.cut or side.name in world.down:
                raise StoreUnavailableError("it cannot be reached")
            fault = world.faults.pop(side.name, None)
            process.is_troubled = process.is_troubled or fault is not None
            if fault == "fails":
                raise StoreUnavailableError("it failed")

            def effect() -> Any:
                answer = attribute(*given, **named)
                answer = list(answer) if isinstance(answer, Iterator) else answer
                if name in CHANGING and answer not in (False, "conflict", "missing"):
                    world.note_head()
                    if name == "put" and incarnation_of(given[0]) < world.head_incarnation:
                        side.strays.add(given[0]["sk"])  # readers ignore it, and a sweep removes it
                    else:
                        world.note_written(side.name, written_texts(name, given, named))
                return answer

            if fault == "late":
                if name in CHANGING:
                    world.late.append(effect)
                raise StoreUnavailableError("it is late")
            answer = effect()
            if fault == "lost":
                raise StoreUnavailableError("the answer was lost")
            world.pause()
            return iter(answer) if isinstance(answer, list) and name == "query" else answer

        return call
