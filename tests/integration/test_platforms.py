"""The package needs nothing that only POSIX systems have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import strands_manga_memory as package

CHILD = Path(__file__).with_name("without_posix.py")


def test_every_name_is_imported_and_a_session_goes_on_where_processes_cannot_fork(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-W", "error", str(CHILD), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"{len(package.__all__)} names, 4 messages"
