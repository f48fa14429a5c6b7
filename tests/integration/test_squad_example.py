"""The examples with many agents do what they say: on servers here, and in ``.ci/run`` without them, too."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def report(example: str) -> Any:
    command = [sys.executable, str(ROOT / "examples" / example), "--backend", "services", "--json"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert found.returncode == 0, found.stdout + found.stderr
    return json.loads(found.stdout.splitlines()[-1])


def test_a_squad_of_three_agents() -> None:
    answers = report("squad.py")["answers"]
    assert [agent for agent, _ in answers] == [
        "products", "products", "orders", "orders", "escalation", "orders", "products",
    ]  # fmt: skip
    assert "Order 17 is three weeks late" in answers[4][1]
    assert answers[5][1] == "Order 17 is not yours."
    assert "horror" in answers[6][1]


def test_a_graph_that_is_killed_goes_on() -> None:
    found = report("multi_agent.py")
    assert found["graph"] == {"killed": True, "asked_again": ["offer"], "order": ["find", "check", "offer"]}
    assert found["swarm"] == ["finder", "seller"]
    assert found["tools"] == ["text", "toolUse", "toolResult", "text"]
