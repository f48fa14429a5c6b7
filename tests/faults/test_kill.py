"""Workers are killed at any moment: nothing acknowledged is lost, doubled or invalid."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.faults.kill import Backend, Stores, campaign


def test_kill_9_loses_nothing_and_doubles_nothing(stores: Stores, unique: str) -> None:
    backend: Backend = "services" if stores.hot else "sqlite"
    report = campaign(stores, backend=backend, rounds=6, seed=os.getpid(), name=unique)
    assert report.is_clean, report
    assert report.kills == 6
    assert report.restores >= 4


@pytest.mark.long
def test_the_campaign_runs_from_the_command_line() -> None:
    command = [
        sys.executable,
        "-m",
        "tests.faults.kill",
        "--rounds",
        "1",
        "--backend",
        "sqlite",
        "--seed",
        "7",
        "--json",
    ]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    counts = json.loads(found.stdout)
    assert {"rounds": 1, "lost": 0, "doubled": 0, "invalid": 0}.items() <= counts.items()
