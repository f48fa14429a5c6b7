"""Runs the notebooks of ``examples/notebooks`` and writes them with what they showed.

``uv run --group notebooks python -m tests.notebooks`` writes ``examples/notebooks/*.ipynb``, which
are kept in git; ``--out DIR`` writes elsewhere, to see whether everything they claim still holds.
Names choose some of them.
"""

import argparse
import base64
import io
import re
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbclient import NotebookClient
from PIL import Image

FOLDER = Path(__file__).parents[1] / "examples/notebooks"


def executed(source: Path) -> Any:
    """Return the notebook with its outputs; raises the error of a cell that fails."""
    notebook = jupytext.read(source)
    NotebookClient(
        notebook, resources={"metadata": {"path": str(FOLDER)}}, timeout=300, record_timing=False
    ).execute()
    for number, cell in enumerate(notebook.cells, 1):
        cell.id = f"cell-{number}"  # a random one would differ at each run
        for output in cell.get("outputs", ()):
            if "image/png" in (data := output.get("data", {})):
                data["image/png"] = _small(data["image/png"])
                output.metadata["image/png"] = {"alt": picture_text(cell.source)}
                cell.metadata.mystnb = {
                    "image": {"alt": picture_text(cell.source)}
                }  # for the documentation site
    notebook.metadata.pop("jupytext", None)
    notebook.metadata.language_info = {"name": "python"}
    nbformat.validate(notebook)
    return notebook


def picture_text(source: str) -> str:
    """Return a picture's alternative text: the cell's comment that begins with ``Picture:``."""
    found = re.match(r"# Picture: (.+\n(?:# .+\n)*)", source)
    return " ".join(found[1].replace("\n# ", " ").split()) if found else ""


def _small(png: str) -> str:
    """Return a picture with a palette, which makes it a third as large."""
    buffer = io.BytesIO()
    Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB").quantize(64).save(
        buffer, "PNG", optimize=True
    )
    return base64.b64encode(buffer.getvalue()).decode()


def main() -> None:
    """Run the notebooks that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="files to run; all by default")
    parser.add_argument("--out", type=Path, default=FOLDER, help="where to write the notebooks")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for source in [Path(name).resolve() for name in given.names] or sorted(FOLDER.glob("*.py")):
        target = given.out / f"{source.stem}.ipynb"
        nbformat.write(executed(source), target)
        print(f"{target}: {target.stat().st_size / 1000:.0f} KB")


if __name__ == "__main__":
    main()
