"""The README tells the truth: its commands are the ones CI runs, and its Python runs."""

import re
from pathlib import Path

import pytest

from strands_manga_memory.testing import ScriptedModel

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_it_opens_with_two_sentences_and_two_commands() -> None:
    commands = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    assert [command.strip() for command in commands] == [
        "pip install uv && uv run examples/quickstart.py",
        "pip install uv && uv run pytest",
    ]
    opening = README.split("\n\n")[1]
    assert opening.count(". ") == 1
    assert opening.endswith(".")


def test_ci_runs_the_readmes_test_command() -> None:
    assert "\npip install uv && uv run pytest\n" in (ROOT / ".ci/run").read_text(encoding="utf-8")


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_its_python_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {"model": ScriptedModel(["はい、あります。"])})
    assert any(tmp_path.rglob("*.sqlite3"))
