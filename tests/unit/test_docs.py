"""Every public name is documented, and the documentation can be rendered."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

import strands_manga_memory as package

ROOT = Path(__file__).parents[2]
MODULES = sorted(
    module.name for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.") if "__main__" not in module.name
)


def public(owner: Any) -> list[tuple[str, Any]]:
    names = getattr(owner, "__all__", None) or [name for name in vars(owner) if not name.startswith("_")]
    return [(name, getattr(owner, name)) for name in names]


@pytest.mark.parametrize("module", MODULES)
def test_modules_classes_functions_and_methods_say_what_they_are(module: str) -> None:
    home = importlib.import_module(module)
    assert home.__doc__
    for name, value in public(home):
        if not (inspect.isclass(value) or inspect.isfunction(value)) or not value.__module__.startswith(package.__name__):
            continue
        assert inspect.getdoc(value), f"{module}.{name}"
        if inspect.isclass(value) and value.__module__ == module:
            for method, function in vars(value).items():
                if not method.startswith("_") and (inspect.isfunction(function) or isinstance(function, property)):
                    assert inspect.getdoc(getattr(value, method)), f"{module}.{name}.{method}"


def test_the_site_has_every_guide_every_notebook_and_every_folder(tmp_path: Path) -> None:
    site = runpy.run_path(str(ROOT / ".ci/site.py"))
    site["stage"](tmp_path / "source")
    listed = (tmp_path / "source/README.md").read_text(encoding="utf-8").split("```{toctree}", 1)[1]
    guides = [*(ROOT / "strands_manga_memory").rglob("*.md"), *(ROOT / "examples/notebooks").glob("*.ipynb")]
    assert len(guides) > 20
    assert [guide for guide in guides if f"\n{guide.relative_to(ROOT).with_suffix('')}\n" not in listed] == []
    folders = {module.name for module in pkgutil.iter_modules(package.__path__) if module.ispkg} - {"cli"}
    assert folders <= {page.stem for page in (tmp_path / "source/reference").glob("*.md")}
    assert "EnvironmentSource" in (tmp_path / "source/reference/state.md").read_text(encoding="utf-8")


def test_links_of_the_site_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    broken = runpy.run_path(str(ROOT / ".ci/site.py"))["broken"]
    (tmp_path / "deep").mkdir()
    (tmp_path / "index.html").write_text('<h1 id="top"></h1><a href="deep/a.html#here">a</a><a href="#top">b</a>')
    (tmp_path / "deep/a.html").write_text('<p id="here"></p><a href="../index.html">a</a><a href="https://example.com/x">b</a>')
    assert broken(tmp_path) == []
    (tmp_path / "deep/a.html").write_text('<a href="../gone.html">a</a><img src="../index.html#gone"><a href="#gone">c</a>')
    assert broken(tmp_path) == [
        "deep/a.html: #gone",
        "deep/a.html: ../gone.html",
        "deep/a.html: ../index.html#gone",
        "index.html: deep/a.html#here",
    ]


@pytest.mark.parametrize("folder", ["strands_manga_memory", "tests", "examples"])
def test_texts_cite_nothing_that_is_not_in_the_repository(folder: str) -> None:
    outside = re.compile(r"\b(?:mission|design section|issue) (?:rows? )?[A-F]?\d|\bthe mission\b", re.IGNORECASE)
    texts = [path for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".md"} and path != Path(__file__)]
    assert len(texts) > 10
    cited = {path: found for path in texts if (found := outside.findall(path.read_text(encoding="utf-8")))}
    assert not cited
