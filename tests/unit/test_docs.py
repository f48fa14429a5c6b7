"""Every public name is documented, and the documentation can be rendered."""

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
SITE = runpy.run_path(str(ROOT / ".ci/site.py"))
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if "__main__" not in module.name
)


def public(owner: Any) -> list[tuple[str, Any]]:
    names = getattr(owner, "__all__", None) or [n for n in vars(owner) if not n.startswith("_")]
    return [(name, getattr(owner, name)) for name in names]


def test_modules_classes_functions_and_methods_say_what_they_are() -> None:
    assert len(MODULES) > 100
    homes = [importlib.import_module(module) for module in MODULES]
    assert [each.__name__ for each in homes if not each.__doc__] == []
    members = [(home.__name__, *member) for home in homes for member in public(home)]
    for home, name, value in members:
        if not (
            inspect.isclass(value) or inspect.isfunction(value)
        ) or not value.__module__.startswith(package.__name__):
            continue
        assert inspect.getdoc(value), f"{home}.{name}"
        if inspect.isclass(value) and value.__module__ == home:
            for method, function in vars(value).items():
                if not method.startswith("_") and (
                    inspect.isfunction(function) or isinstance(function, property)
                ):
                    assert inspect.getdoc(getattr(value, method)), f"{home}.{name}.{method}"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Source of the site, before Sphinx builds it."""
    folder = tmp_path_factory.mktemp("site") / "source"
    SITE["stage"](folder)
    return folder


def test_the_site_has_every_guide_every_notebook_and_every_folder(source: Path) -> None:
    listed = (source / "index.md").read_text(encoding="utf-8").split("```{toctree}", 1)[1]
    guides = [
        ROOT / "README.md",
        *(ROOT / "strands_manga_memory").rglob("*.md"),
        *(ROOT / "examples/notebooks").glob("*.ipynb"),
    ]
    assert len(guides) > 20
    assert [g for g in guides if f"\n{g.relative_to(ROOT).with_suffix('')}\n" not in listed] == []
    folders = {m.name for m in pkgutil.iter_modules(package.__path__) if m.ispkg} - {"cli"}
    assert folders <= {page.stem for page in (source / "reference").glob("*.md")}
    assert "EnvironmentSource" in (source / "reference/state.md").read_text(encoding="utf-8")


def test_every_root_name_has_a_page_with_an_example_and_a_row_in_the_index(source: Path) -> None:
    index = (source / "strands_manga_memory/guide/api.md").read_text(encoding="utf-8")
    assert (
        re.findall(r"^\| \[`(\w+)`\]\(../../api/\1.md\) \| \S", index, re.MULTILINE)
        == package.__all__
    )
    for name in package.__all__:
        page = (source / f"api/{name}.md").read_text(encoding="utf-8")
        example = re.search(
            r"## Example\n\n```python\n(.*?)```\n\n```text\n.+?```", page, re.DOTALL
        )
        assert example, name
        assert re.search(rf"\b{name}\b", example[1]), name


def test_llms_txt_lists_every_page_with_a_sentence(source: Path) -> None:
    listed = re.findall(
        r"^- \[.+\]\((.+)\.html\): \S",
        (source / "llms.txt").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    toc = (source / "index.md").read_text(encoding="utf-8").split("```{toctree}", 1)[1]
    assert listed == [line for line in toc.splitlines() if re.fullmatch(r"[\w/]+", line)]
    assert len(listed) > 100


def test_searched_phrases_are_in_the_index_of_the_site(source: Path) -> None:
    phrases = [phrase for listed in SITE["SEARCHES"].values() for phrase in listed]
    assert len(phrases) == len(set(phrases))
    assert "   ! single: redis down\n" in (
        source / "strands_manga_memory/ops/runbook.md"
    ).read_text(encoding="utf-8")
    assert "   ! single: summary model\n" in (
        source / "strands_manga_memory/conversation/README.md"
    ).read_text(encoding="utf-8")


def test_names_in_a_text_link_to_their_pages_and_code_does_not(source: Path) -> None:
    text = (source / "strands_manga_memory/guide/choosing.md").read_text(encoding="utf-8")
    assert "| [`TieredSessionManager`](../../api/TieredSessionManager.md)," in text
    blocks = re.findall(r"```.*?```", text, re.DOTALL)
    assert blocks
    assert not any("](" in block for block in blocks)


def test_pages_that_llms_txt_does_not_list_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").touch()
    (tmp_path / "search.html").touch()
    (tmp_path / "llms.txt").write_text("- [A](a.html): A.\n- [B](b.html): B.\n", encoding="utf-8")
    assert SITE["unlisted"](tmp_path) == ["b.html"]
    (tmp_path / "c.html").touch()
    assert SITE["unlisted"](tmp_path) == ["b.html", "c.html"]


def test_links_of_the_site_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    broken = SITE["broken"]
    (tmp_path / "deep").mkdir()
    (tmp_path / "index.html").write_text(
        '<h1 id="top"></h1><a href="deep/a.html#here">a</a><a href="#top">b</a>'
    )
    (tmp_path / "deep/a.html").write_text(
        '<p id="here"></p><a href="../index.html">a</a><a href="https://example.com/x">b</a>'
    )
    assert broken(tmp_path) == []
    (tmp_path / "deep/a.html").write_text(
        '<a href="../gone.html">a</a><img src="../index.html#gone"><a href="#gone">c</a>'
    )
    assert broken(tmp_path) == [
        "deep/a.html: #gone",
        "deep/a.html: ../gone.html",
        "deep/a.html: ../index.html#gone",
        "index.html: deep/a.html#here",
    ]


@pytest.mark.parametrize("folder", ["strands_manga_memory", "tests", "examples"])
def test_texts_cite_nothing_that_is_not_in_the_repository(folder: str) -> None:
    outside = re.compile(
        r"\b(?:mission|design section|issue) (?:rows? )?[A-F]?\d|\bthe mission\b", re.IGNORECASE
    )
    texts = [
        path
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".md"} and path != Path(__file__)
    ]
    assert len(texts) > 10
    cited = {p: found for p in texts if (found := outside.findall(p.read_text(encoding="utf-8")))}
    assert not cited
