"""The snippets of README, guides and recipes pass mypy."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.test_readme import ROOT, SNIPPETS


@pytest.mark.long  # .ci/run has mypy's cache by then
@pytest.mark.timeout(400)  # without a cache of an earlier run everything that is imported is read
def test_its_python_is_typed(tmp_path: Path) -> None:
    for snippet in SNIPPETS:
        if "troubleshooting" in str(snippet.id):
            continue  # its snippets show mistakes
        name = re.sub(r"\W", "_", str(snippet.id))
        (tmp_path / f"{name}.py").write_text(
            f"from strands.models import Model\nmodel: Model\n{snippet.values[0]}", "utf-8"
        )
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file",
        str(ROOT / "pyproject.toml"),
    ]
    # The constructor of Agent Squad's own class is without types, so that of a class made of it is,
    # too.
    found = subprocess.run(
        [
            *command,
            "--untyped-calls-exclude=strands_manga_memory_squad_README_md_1",
            *map(str, [*tmp_path.glob("*.py"), *(ROOT / "examples/recipes").glob("*.py")]),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stdout.startswith("Success: no issues found in"), found.stdout + found.stderr
