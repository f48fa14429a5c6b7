"""The example of summaries does what it says, and draws its plot."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples/summaries.py"
PNG = b"\x89PNG\r\n\x1a\n"


def test_two_hundred_turns_with_and_without_summaries(tmp_path: Path) -> None:
    plot = tmp_path / "context.png"
    command = [sys.executable, str(EXAMPLE), "--plot", str(plot)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "lost: nothing; told although corrected: nothing" in found.stdout
    last = re.search(r"turn 200: +([\d,]+) tokens without, +([\d,]+) with summaries", found.stdout)
    assert last is not None
    without, with_summaries = (int(number.replace(",", "")) for number in last.groups())
    assert without > 15_000
    assert with_summaries < 5_000
    assert plot.read_bytes().startswith(PNG)
    assert plot.stat().st_size > 10_000


def test_a_plot_without_matplotlib_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    plot = runpy.run_path(str(EXAMPLE))["plot"]
    with pytest.raises(SystemExit, match="--plot needs matplotlib: pip install matplotlib"):
        plot(tmp_path / "x.png", [1], [1])


def test_an_impossible_number_of_turns_is_refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "--turns", "0"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert ended.value.code == 2
    assert "--turns must be at least 1, got 0" in capsys.readouterr().err
