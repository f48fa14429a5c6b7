"""The stored outputs of the notebooks are those of their sources."""

import ast
import re
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "examples/notebooks").glob("*.py"))
NOTEBOOKS = [source.with_suffix(".ipynb") for source in SOURCES]
MOST_BYTES = 150_000
MOST_COLUMNS = 88


def read(notebook: Path) -> Any:
    return nbformat.read(notebook, as_version=4)


def test_they_are_numbered_linked_from_the_readme_and_run_by_ci() -> None:
    assert [int(s.stem.split("_")[0]) for s in SOURCES] == list(range(1, len(SOURCES) + 1))
    assert len(SOURCES) >= 9
    assert sorted((ROOT / "examples").rglob("*.ipynb")) == NOTEBOOKS
    readme = (ROOT / "examples/README.md").read_text(encoding="utf-8")
    assert [n.name for n in NOTEBOOKS if f"(notebooks/{n.name})" not in readme] == []
    assert "python -m tests.notebooks --out build/notebooks" in (ROOT / ".ci/run").read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_it_says_first_what_is_seen_and_it_explains_plots_and_asserts(source: Path) -> None:
    text = source.read_text(encoding="utf-8")
    tree = compile(text, source.name, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    first = jupytext.reads(text, fmt="py:percent").cells[0].source
    assert re.match(rf"# {source.stem[0]}\. .+\n\n\*\*What you will see:\*\*\n\w", first)
    assert text.count("# %% [markdown]") >= 4
    assert sum(isinstance(node, ast.Assert) for node in ast.walk(tree)) >= 5


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_the_notebook_is_its_source_run_from_top_to_bottom(source: Path) -> None:
    notebook = read(source.with_suffix(".ipynb"))
    cells = jupytext.read(source).cells
    assert [(cell.cell_type, cell.source) for cell in notebook.cells] == [
        (cell.cell_type, cell.source) for cell in cells
    ]
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_shows_pictures_and_texts_and_is_small(notebook: Path) -> None:
    outputs = [output for cell in read(notebook).cells for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"] == []
    assert notebook.stat().st_size <= MOST_BYTES
    texts = "".join(output.get("text", "") for output in outputs)
    assert texts
    assert not re.search(r"/(?:tmp|root|home|var)/", texts), "a path of the machine that ran it"


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_its_code_fits_on_a_page_and_its_pictures_have_alternative_texts(notebook: Path) -> None:
    cells = [cell for cell in read(notebook).cells if cell.cell_type == "code"]
    assert [line for c in cells for line in c.source.splitlines() if len(line) > MOST_COLUMNS] == []
    for cell in cells:
        for output in cell.outputs:
            if "image/png" in output.get("data", {}):
                text = output.metadata["image/png"]["alt"]
                assert len(text) > 50
                assert cell.source.startswith("# Picture: " + text[:60])
                assert cell.metadata["mystnb"]["image"]["alt"] == text
