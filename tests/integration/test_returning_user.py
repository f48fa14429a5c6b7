"""The example of a returning user does what it says: on servers here, and in ``.ci/run`` without them, too."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_new_session_greets_with_what_was_learned() -> None:
    command = [sys.executable, str(ROOT / "examples/returning_user.py"), "--backend", "services", "--json"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=100)
    report = json.loads(found.stdout.splitlines()[-1])
    assert report["passed"], found.stdout + found.stderr
    assert report["greeting"].startswith("Welcome back! More horror today?")
    assert "Uzumaki" in report["greeting"]
    assert report["forgotten"]["sessions"] == 2
