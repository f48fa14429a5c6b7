"""The example of summaries does what it says, and draws its plot."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples/summaries.py"
PNG = b"\x89PNG\r\n\x1a\n"


def run(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(EXAMPLE), *options], capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.long
def test_two_hundred_turns_with_and_without_summaries(tmp_path: Path) -> None:
    plot = tmp_path / "context.png"
    found = run("--plot", str(plot))
    assert found.returncode == 0, found.stdout + found.stderr
    assert "lost: nothing; told although corrected: nothing" in found.stdout
    last = re.search(r"turn 200: +([\d,]+) tokens without, +([\d,]+) with summaries", found.stdout)
    assert last is not None
    without, with_summaries = (int(number.replace(",", "")) for number in last.groups())
    assert without > 15_000
    assert with_summaries < 5_000
    assert plot.read_bytes().startswith(PNG)
    assert plot.stat().st_size > 10_000


def test_a_plot_without_matplotlib_says_what_to_install(tmp_path: Path) -> None:
    arguments = ["--turns", "2", "--plot", str(tmp_path / "x.png")]
    code = (
        f"import runpy, sys; sys.modules['matplotlib'] = None; sys.argv[1:] = {arguments!r}; "
        f"runpy.run_path({str(EXAMPLE)!r}, run_name='__main__')"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert found.returncode == 1
    assert "--plot needs matplotlib: pip install matplotlib" in found.stderr


def test_an_impossible_number_of_turns_is_refused() -> None:
    found = run("--turns", "0")
    assert found.returncode == 2
    assert "--turns must be at least 1, got 0" in found.stderr
