"""The example of a task that survives its process does what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_killed_reorder_goes_on_where_it_was() -> None:
    command = [sys.executable, str(ROOT / "examples/task_state.py"), "--json"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=100)
    report = json.loads(found.stdout.splitlines()[-1])
    assert found.returncode == 0, found.stdout + found.stderr
    assert len(report["checks"]) == 8
    assert all(report["checks"].values())
    assert report["answer"] == "8 copies of B07X3105, volume 2, are in stock."
