"""The package needs nothing that only POSIX systems have."""

from pathlib import Path

import strands_manga_memory as package
from tests.support import printed_by

CHILD = Path(__file__).with_name("without_posix.py")


def test_all_names_and_sessions_work_where_processes_cannot_fork(tmp_path: Path) -> None:
    printed = printed_by("-W", "error", CHILD, tmp_path)
    assert printed.splitlines()[-1] == f"{len(package.__all__)} names, 4 messages"
