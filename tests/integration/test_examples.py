"""The examples do what they say: on servers here, and in ``.ci/run`` without them, too."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import printed_by

EXAMPLES = Path(__file__).parents[2] / "examples"
PNG = b"\x89PNG"


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=100, check=False
    )


def report(example: str, *options: str) -> Any:
    return json.loads(printed_by(EXAMPLES / example, "--json", *options).splitlines()[-1])


@pytest.mark.long
def test_a_new_session_greets_with_what_was_learned() -> None:
    found = report("returning_user.py", "--backend", "services")
    assert found["passed"]
    assert found["greeting"].startswith("Welcome back! More horror today?")
    assert "Uzumaki" in found["greeting"]
    assert found["forgotten"]["sessions"] == 2


@pytest.mark.long
def test_a_killed_reorder_goes_on_where_it_was() -> None:
    found = report("task_state.py")
    assert len(found["checks"]) == 8
    assert all(found["checks"].values())
    assert found["answer"] == "8 copies of B07X3105, volume 2, are in stock."


@pytest.mark.long
def test_a_squad_of_three_agents() -> None:
    answers = report("squad.py", "--backend", "services")["answers"]
    assert [agent for agent, _ in answers] == [
        "products", "products", "orders", "orders", "escalation", "orders", "products",
    ]  # fmt: skip
    assert "Order 17 is three weeks late" in answers[4][1]
    assert answers[5][1] == "Order 17 is not yours."
    assert "horror" in answers[6][1]


@pytest.mark.long
def test_a_graph_that_is_killed_goes_on() -> None:
    found = report("multi_agent.py", "--backend", "services")
    assert found["graph"] == {
        "killed": True,
        "asked_again": ["offer"],
        "order": ["find", "check", "offer"],
    }
    assert found["swarm"] == ["finder", "seller"]
    assert found["tools"] == ["text", "toolUse", "toolResult", "text"]


@pytest.mark.long
def test_two_hundred_turns_with_and_without_summaries(tmp_path: Path) -> None:
    plot = tmp_path / "context.png"
    found = run(str(EXAMPLES / "summaries.py"), "--plot", str(plot))
    assert found.returncode == 0, found.stdout + found.stderr
    assert "lost: nothing; told although corrected: nothing" in found.stdout
    last = re.search(r"turn 200: +([\d,]+) tokens without, +([\d,]+) with summaries", found.stdout)
    assert last is not None
    without, with_summaries = (int(number.replace(",", "")) for number in last.groups())
    assert without > 15_000
    assert with_summaries < 5_000
    assert plot.read_bytes().startswith(PNG)
    assert plot.stat().st_size > 10_000


@pytest.mark.long
def test_a_plot_without_matplotlib_says_what_to_install(tmp_path: Path) -> None:
    arguments = ["--turns", "2", "--plot", str(tmp_path / "x.png")]
    code = (
        f"import runpy, sys; sys.modules['matplotlib'] = None; sys.argv[1:] = {arguments!r}; "
        f"runpy.run_path({str(EXAMPLES / 'summaries.py')!r}, run_name='__main__')"
    )
    found = run("-c", code)
    assert found.returncode == 1
    assert "--plot needs matplotlib: pip install matplotlib" in found.stderr


@pytest.mark.long
def test_the_story_of_guarded_tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import guarded_tools

    monkeypatch.setattr(guarded_tools, "RESET_AFTER", 1.0)
    monkeypatch.setattr(guarded_tools, "PAUSE", 0.0)
    told = guarded_tools.story(talk=False)
    came = [what for _, tool, what in told.calls if tool == "stock"]
    assert came == [
        "success",
        *["tool_error"] * 5,
        "stale",
        "circuit_open",
        "tool_error",
        "circuit_open",
        "success",
        "success",
    ]
    assert {what for _, tool, what in told.calls if tool == "price"} == {"success"}
    assert [state for _, state in told.states] == [
        "closed", "open", "half_open", "open", "half_open", "closed",
    ]  # fmt: skip
    assert "hunter2" not in " ".join(told.results)
    picture = tmp_path / "timeline.png"
    guarded_tools.plot(told).savefig(picture)
    assert picture.read_bytes().startswith(PNG)
