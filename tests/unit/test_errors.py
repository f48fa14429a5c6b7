"""What an error tells of a bad value is short, whatever the value."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from strands_manga_memory import MangaMemory, MangaMemorySettings
from strands_manga_memory.memory import CallablePreferenceSink
from strands_manga_memory.testing import ScriptedModel

PACKAGE = Path(__file__).parents[2] / "strands_manga_memory"
LONG = "x" * 1_000_000
OF_ARGUMENTS = {"ValueError", "TypeError", "StateError"}


def uncut(source: str) -> Iterator[int]:
    """Yield the lines of argument errors that show a whole value."""
    for raised in ast.walk(ast.parse(source)) if "!r}" in source else ():
        if not (isinstance(raised, ast.Raise) and isinstance(raised.exc, ast.Call)):
            continue
        if getattr(raised.exc.func, "id", "") not in OF_ARGUMENTS:
            continue
        for shown in ast.walk(raised.exc):
            is_repr = isinstance(shown, ast.FormattedValue) and shown.conversion == ord("r")
            if is_repr and shown.format_spec is None and not isinstance(shown.value, ast.Subscript):
                yield raised.lineno


def test_every_error_of_an_argument_cuts_what_it_shows() -> None:
    assert [
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line in uncut(path.read_text(encoding="utf-8"))
    ] == []


def test_one_that_does_not_would_be_found() -> None:
    assert list(uncut('raise ValueError(f"turns must be 1 or more, got {turns!r}")')) == [1]
    assert list(uncut('raise ValueError(f"turns must be 1 or more, got {turns!r:.80}")')) == []


ASKED: dict[str, Callable[[MangaMemory], Any]] = {
    "recall": lambda memory: memory.user("u").recall(type=LONG),
    "remember": lambda memory: memory.user("u").remember("tea", type=LONG),
    "history": lambda memory: memory.agent_kwargs(user_id="u", session_id="s", history=LONG),
    "learn": lambda memory: memory.agent_kwargs(user_id="u", session_id="s", learn=LONG),
    "max_tokens": lambda memory: memory.agent_kwargs(user_id="u", session_id="s", max_tokens=LONG),
    "instructions": lambda memory: memory.agent_kwargs(
        user_id="u", session_id="s", instructions=LONG
    ),
    "setting": lambda memory: memory.agent_kwargs(user_id="u", session_id="s", refresh=LONG),
    "name": lambda memory: memory.agent_kwargs(user_id="u", session_id="s", **{LONG: 1}),
    "name of an agent": lambda memory: memory.agent(
        ScriptedModel(), user_id="u", session_id="s", **{LONG: 1}
    ),
    "name of a process": lambda _: MangaMemorySettings(**{LONG: 1}),
    "id": lambda memory: memory.user(LONG),
    "url": lambda _: MangaMemory.open(durable=LONG),
    "variable": lambda _: MangaMemorySettings.from_env(hot_url=LONG),
    "pairs": lambda _: MangaMemorySettings(pii_actions={LONG: LONG}),
}


@pytest.mark.parametrize("asked", ASKED)
def test_a_value_of_a_million_letters_makes_a_short_error(memory: MangaMemory, asked: str) -> None:
    with pytest.raises(ValueError, match=r".") as raised:
        ASKED[asked](memory)
    assert 20 < len(str(raised.value)) < 2_000


WRONG: dict[str, tuple[Callable[[MangaMemory], object], str]] = {
    "agent to explain": (
        lambda memory: memory.explain("agent"),
        "agent must be Agent, got 'agent'",
    ),
    "memory to forget": (
        lambda memory: memory.user("u1").forget(5),
        "memory_id must be the id of a memory, got 5",
    ),
    "option of the task state": (
        lambda memory: memory.agent(
            ScriptedModel(), user_id="u1", session_id="s1", task_state={"time_budget": 3}
        ),
        "Unknown setting 'time_budget'. Did you mean 'time_budget_ms'?",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_error_names_the_argument_and_what_is_allowed(memory: MangaMemory, name: str) -> None:
    call, message = WRONG[name]
    with pytest.raises(ValueError) as raised:
        call(memory)
    assert message in str(raised.value)


def test_a_sink_needs_memories(tmp_path: Path) -> None:
    sink = CallablePreferenceSink(print)
    with pytest.raises(ValueError, match="memories is None: pass"):
        MangaMemory.open(durable=f"sqlite:///{tmp_path}/s.db", sink=sink)
