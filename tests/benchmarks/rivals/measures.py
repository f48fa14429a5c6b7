"""Questions to each rival. Each function returns cells of the table."""

from collections.abc import Callable, Sequence
from typing import Any

from tests.benchmarks.rivals.catalogue import Rival
from tests.benchmarks.rivals.stage import RivalError, Stage, driven
from tests.benchmarks.wire import Chunk, requests, rounds

AGES = (10, 100)
AWAY = 0.05
"""Seconds that the stores are away while stalls of the event loop are measured."""

WORDS = "Which volume of Attack on Titan comes after 12, and is it in stock as a paperback? " * 3
CANARY = "canary-7Kx"

TTL = 2
"""Time to live in seconds of sessions whose remains are checked."""

Cell = float | int | str | None


def by_age(rival: Rival, stage: Stage) -> dict[str, Cell]:
    """Count commands and bytes of a text turn at each age, and of a restore at the last."""
    cells: dict[str, Cell] = {}
    session, counted = stage.new_session(), 5
    with driven(rival, stage, session=session) as driver:
        for turn in range(AGES[-1]):
            if turn + counted in AGES:
                stage.cut()
                before = driver.written()
            driver.ask("turn", text=f"{turn} {WORDS}")
            if turn + 1 in AGES:
                wrote, chunks = driver.written() - before, stage.cut()
                size = (
                    sum(len(chunk.data) for chunk in chunks if chunk.sent)
                    if rival.stores != ("files",)
                    else wrote
                )
                cells[f"bytes written a turn, after {turn + 1} turns"] = round(size / counted)
                if rival.stores != ("files",):
                    cells[f"round trips a turn, after {turn + 1} turns"] = round(
                        rounds(chunks) / counted, 1
                    )
                    cells[f"commands a turn, after {turn + 1} turns"] = round(
                        commands(chunks, stage) / counted, 1
                    )
        driver.ask("close")
    stage.cut()
    with driven(rival, stage, session=session) as driver:
        found = driver.texts()
        if rival.stores != ("files",):
            cells[f"round trips to restore {AGES[-1]} turns"] = rounds(stage.cut())
    cells[f"restored of {2 * AGES[-1]} messages"] = len(found)
    return cells


def commands(chunks: Sequence[Chunk], stage: Stage) -> int:
    """Count Redis commands and DynamoDB requests."""
    redis = stage.wires[0].port
    streams: dict[Any, bytearray] = {}
    for chunk in chunks:
        if chunk.sent and chunk.connection[0] == redis:
            streams.setdefault(chunk.connection, bytearray()).extend(chunk.data)
    count = sum(_commands_of(bytes(stream)) for stream in streams.values())
    return count + len(requests([chunk for chunk in chunks if chunk.connection[0] != redis]))


def _commands_of(stream: bytes) -> int:
    count = at = 0
    while stream[at : at + 1] == b"*":
        end = stream.index(b"\r\n", at)
        parts, at = int(stream[at + 1 : end]), end + 2
        for _ in range(parts):
            end = stream.index(b"\r\n", at)
            at = end + 2 + int(stream[at + 1 : end]) + 2
        count += 1
    return count


def stall(rival: Rival, stage: Stage) -> dict[str, Cell]:
    """Measure how long the event loop is blocked in a turn while the stores are away."""
    if rival.stores == ("files",):
        return {}
    with driven(rival, stage, session=stage.new_session()) as driver:
        driver.ask("turn", text="first")
        for wire in stage.wires:
            wire.hold = AWAY
        try:
            found = sorted(driver.ask("turn", text=f"turn {n}")["stall"] for n in range(3))
        finally:
            for wire in stage.wires:
                wire.hold = 0.0
    return {f"event loop stall in a turn, stores {AWAY * 1000:.0f} ms away, ms": round(found[1])}


def window(rival: Rival, stage: Stage) -> dict[str, Cell]:
    """Compare the window of a live agent that trimmed and pinned with a restored one."""
    if not rival.remembers_window:
        return {}
    session = stage.new_session()
    with driven(rival, stage, session=session, window=8) as driver:
        for number in range(10):
            driver.ask("turn", text=f"turn {number}")
        live = driver.texts()
        driver.ask("close")
    with driven(rival, stage, session=session, window=8) as driver:
        return {
            "window after trimming with pins restored exactly": (
                "yes" if driver.texts() == live else "no"
            )
        }


def two_writers(rival: Rival, stage: Stage) -> dict[str, Cell]:
    """Count the lost turns if two processes that both know a session hold one turn each."""
    session = stage.new_session()
    with driven(rival, stage, session=session) as one:
        one.ask("turn", text="turn 0")
        one.ask("close")
        with driven(rival, stage, fresh=True, session=session) as other:
            one.ask("turn", text="turn of one")
            other.ask("turn", text="turn of other")
            for driver in (one, other):
                driver.ask("close")
    with driven(rival, stage, session=session) as driver:
        found = driver.texts()
    wanted = ("turn 0", "turn of one", "turn of other")
    return {"of 3 turns of two writers lost": sum(text not in found for text in wanted)}


def killed(rival: Rival, stage: Stage) -> dict[str, Cell]:
    """Count the finished turns that are lost by kill -9 right after the last one."""
    session = stage.new_session()
    with driven(rival, stage, fresh=True, session=session) as driver:
        for number in range(4):
            driver.ask("turn", text=f"turn {number}")
        driver.kill()
    with driven(rival, stage, session=session) as driver:
        found = driver.texts()
    return {"of 4 turns lost by kill -9": sum(f"turn {number}" not in found for number in range(4))}


def oversized(rival: Rival, stage: Stage) -> dict[str, Cell]:
    """Send a message of 500 KB. Both the message and the next turn must be stored."""
    session, large = stage.new_session(), "large " + "x" * 500_000
    name = "a message of 500 KB"
    with driven(rival, stage, session=session) as driver:
        try:
            driver.ask("turn", text=large)
            driver.ask("turn", text="next")
            driver.ask("close")
        except RivalError as error:
            return {name: str(error).partition(":")[0]}
    with driven(rival, stage, session=session) as driver:
        found = driver.texts()
    return {name: "kept" if large in found and "next" in found else "lost"}


def redacted(rival: Rival, stage: Stage) -> dict[str, Cell]:
    """Have a guardrail redact a user message, and search every stored byte for it."""
    if not rival.remembers_window:
        return {}
    with driven(rival, stage, session=stage.new_session()) as driver:
        driver.ask("turn", text="before")
        driver.ask("turn", text=f"REDACT {CANARY}")
        driver.ask("turn", text="after")
        driver.ask("close")
    return {"traces of a redacted message": stage.stored().count(CANARY.encode())}


def neighbours(rival: Rival, stage: Stage) -> dict[str, Cell]:
    """Delete a session whose id is a pattern or prefix, and ask for an agent by a pattern."""
    cells: dict[str, Cell] = {}
    base = stage.new_session()
    for label, victim, deleted in (
        ("pattern", f"{base}u1", f"{base}u?"),
        ("beginning", f"{base}p0", f"{base}p"),
    ):
        with driven(rival, stage, session=victim) as driver:
            driver.ask("turn", text="mine")
            driver.ask("close")
        name = f"deleting a session whose id is a {label} of another's deletes that too"
        try:
            with driven(rival, stage, session=deleted) as driver:
                driver.ask("turn", text="yours")
                driver.ask("delete", session=deleted)
        except RivalError as error:
            cells[name] = "no delete" if "NotImplemented" in str(error) else "id refused"
            continue
        with driven(rival, stage, session=victim) as driver:
            cells[name] = "no" if "mine" in driver.texts() else "YES"
    if rival.remembers_window:
        with driven(rival, stage, session=f"{base}g", agent="a1") as driver:
            driver.ask("turn", text="secret of a1")
            driver.ask("close")
        try:
            with driven(rival, stage, session=f"{base}g", agent="a?") as driver:
                driver.ask("turn", text="of another agent")
                driver.ask("close")
            with driven(rival, stage, session=f"{base}g", agent="a?") as driver:
                cells["an agent 'a?' gets the messages of 'a1'"] = (
                    "YES" if "secret of a1" in driver.texts() else "no"
                )
        except RivalError:
            cells["an agent 'a?' gets the messages of 'a1'"] = "id refused"
    return cells


def lapsed(rival: Rival, stage: Stage) -> dict[str, Cell]:
    """Let a session's TTL end under a live agent that then continues.

    Two processes follow. The second must find the messages that the first one found and added.
    """
    if not rival.expires:
        return {}
    name, session = "a live agent goes on after its session expired", stage.new_session()
    try:
        with driven(rival, stage, session=session, ttl=TTL) as driver:
            driver.ask("turn", text="old turn")
            stage.expire(TTL)
            for text in ("first after", "second after"):
                driver.ask("turn", text=text)
            driver.ask("close")
        stage.expire(0)
        with driven(rival, stage, session=session, ttl=TTL) as driver:
            before = driver.texts()
            driver.ask("turn", text="third after")
            driver.ask("close")
        with driven(rival, stage, session=session, ttl=TTL) as driver:
            kept = [text for text in driver.texts() if "third after" not in text]
    except RivalError as error:
        return {name: str(error).partition(":")[0]}
    if kept != before:
        return {name: "MIXED"}
    return {name: "yes" if {"first after", "second after"} <= set(before) else "turns LOST"}


def in_use(rival: Rival, stage: Stage) -> dict[str, Cell]:
    """Use a session beyond its TTL with shorter pauses; count the turns that are left."""
    if not rival.expires:
        return {}
    session, turns = stage.new_session(), 6
    with driven(rival, stage, session=session, ttl=TTL) as driver:
        for number in range(turns):
            driver.ask("turn", text=f"turn {number}")
            stage.expire(TTL / 2)
        driver.ask("close")
    with driven(rival, stage, session=session, ttl=TTL) as driver:
        found = driver.texts()
    return {
        f"of {turns} turns in use past the TTL left": sum(
            f"turn {number}" in found for number in range(turns)
        )
    }


def alike(rival: Rival, stage: Stage) -> dict[str, Cell]:
    """Use agent ids that consist of separators and words that each other's keys might contain."""
    if not rival.remembers_window:
        return {}
    name, session = (
        "agents 'x', 'x:msgs', 'x#msg' and 'x:messages' in one session",
        stage.new_session(),
    )
    ids = ("x", "x:msgs", "x#msg", "x:messages")
    try:
        for id_ in ids:
            with driven(rival, stage, session=session, agent=id_) as driver:
                driver.ask("turn", text=f"said to {id_}")
                driver.ask("close")
        for id_ in ids:
            with driven(rival, stage, session=session, agent=id_) as driver:
                if [t for t in driver.texts() if t.startswith("said to")] != [f"said to {id_}"]:
                    return {name: "MIXED"}
    except RivalError as error:
        return {name: str(error).partition(":")[0]}
    return {name: "apart"}


def crowded(rival: Rival, stage: Stage) -> dict[str, Cell]:
    """Count round trips to restore one turn among 5,000 keys of another user."""
    if "redis" not in rival.stores:
        return {}
    session = stage.new_session()
    with driven(rival, stage, session=session) as driver:
        driver.ask("turn", text="mine")
        driver.ask("close")
    with stage.valkey.client() as client:
        client.mset({f"foreign:{number}": "x" for number in range(5_000)})
    stage.cut()
    with driven(rival, stage, session=session) as driver:
        driver.texts()
        cells: dict[str, Cell] = {
            "round trips to restore 1 turn with 5,000 foreign keys": rounds(stage.cut())
        }
    with stage.valkey.client() as client:
        client.delete(*(f"foreign:{number}" for number in range(5_000)))
    return cells


MEASURES: tuple[Callable[[Rival, Stage], dict[str, Cell]], ...] = (
    by_age, stall, window, two_writers, killed, oversized, redacted, neighbours, lapsed, in_use,
    alike, crowded,
)  # fmt: skip
