"""The notebooks are kept as text without results; CI runs them, and what they claim is asserted in them."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples/notebooks").glob("*.py"))


def test_ci_runs_them_all_and_the_readme_names_each() -> None:
    assert len(NOTEBOOKS) == 7
    assert "ls examples/notebooks/*.py | xargs" in (ROOT / ".ci/run").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [notebook.stem for notebook in NOTEBOOKS if f"`{notebook.stem}`" not in readme] == []
    assert not list((ROOT / "examples").rglob("*.ipynb"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_explains_plots_and_asserts(notebook: Path) -> None:
    source = notebook.read_text(encoding="utf-8")
    tree = compile(source, notebook.name, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert source.count("# %% [markdown]") >= 4
    assert "plt.show()" in source
    assert sum(isinstance(node, ast.Assert) for node in ast.walk(tree)) >= 5
