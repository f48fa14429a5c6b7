"""Files with personal data are readable by their owner alone."""

import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from strands_manga_memory import MangaMemory
from strands_manga_memory.testing import ScriptedModel
from tests.support import run


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A durable tier with a session of a user, and a umask that lets everybody read new files."""
    before = os.umask(0)
    url = f"sqlite:///{tmp_path / 'm.sqlite3'}"
    with MangaMemory.open(durable=url) as memory:
        memory.agent(ScriptedModel(), user_id="u1", session_id="s1")("my secret wish")
    yield url
    os.umask(before)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("mode", [None, 0o644, 0o666])
def test_an_export_file_is_private(url: str, tmp_path: Path, mode: int | None) -> None:
    """``export --out`` writes mode 0600, also over a longer public file."""
    file = tmp_path / "export.json"
    if mode is not None:
        file.write_text("x" * 1_000_000)
        file.chmod(mode)
    assert run(["export", "u1", "--durable", url, "--out", str(file)]) == 0
    assert _mode(file) == 0o600
    assert "my secret wish" in file.read_text()
    assert "xxx" not in file.read_text()


def test_an_export_to_a_pipe_is_written(url: str, tmp_path: Path) -> None:
    """``export --out`` writes to a named pipe, whose mode stays."""
    pipe, found = tmp_path / "pipe", []
    os.mkfifo(pipe, 0o622)
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()))
    reader.start()
    assert run(["export", "u1", "--durable", url, "--out", str(pipe)]) == 0
    reader.join(10)
    assert "my secret wish" in found[0]
    assert _mode(pipe) == 0o622
