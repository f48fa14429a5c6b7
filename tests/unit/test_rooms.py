"""Modules are small enough to be read in one go, and import one another one way only."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "strands_manga_memory"
TEXTS = {
    path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8")
    for path in PACKAGE.rglob("*.py")
}


def test_a_file_name_stands_for_one_thing() -> None:
    names = Counter(path.name for path in PACKAGE.rglob("*.py") if not path.name.startswith("__"))
    assert {name for name, count in names.items() if count > 1} == set()


def test_no_module_exceeds_600_lines() -> None:
    lengths = {name: len(text.splitlines()) for name, text in TEXTS.items()}
    assert len(lengths) > 100
    assert {name: length for name, length in lengths.items() if length > 600} == {}


CROWDED = {"conversation": 21, "language": 14, "memory": 15}
"""Folders of more than a dozen modules, and how many each may have at most; numbers go down and
names go from here.
"""


def test_no_folder_has_more_than_a_dozen_modules() -> None:
    of = Counter(
        path.parent.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if path.name != "__init__.py"
    )
    assert len(of) > 10
    assert {folder: many for folder, many in of.items() if many > CROWDED.get(folder, 12)} == {}
    assert {f for f in CROWDED if of[f] <= 12} == set(), "these need no exception any more"


def test_nothing_that_is_shipped_uses_the_test_doubles() -> None:
    uses = re.compile(
        r"^\s*from strands_manga_memory(\.testing import|.* import .*\btesting\b)", re.MULTILINE
    )
    assert uses.search("from strands_manga_memory.testing import ScriptedModel")
    assert [name for name, text in TEXTS.items() if uses.search(text)] == []


def imported(path: Path) -> Iterator[str]:
    """Yield the modules of the package that a file imports, in functions, too."""
    root = PACKAGE.name
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.startswith(root))
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == root:
            for each in node.names:
                module = f"{node.module}.{each.name}"
                yield module if module in MODULES else node.module


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(
        ".__init__"
    )


MODULES = {name_of(path): path for path in PACKAGE.rglob("*.py")}


def test_no_modules_import_one_another_in_a_circle() -> None:
    graph = {name: set(imported(path)) - {name} for name, path in MODULES.items()}
    assert sum(map(len, graph.values())) > 500
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle = " -> ".join(reversed(error.args[1]))
        raise AssertionError(circle) from None


def test_a_circle_would_be_found(tmp_path: Path) -> None:
    source = tmp_path / "one.py"
    source.write_text(
        "if TYPE_CHECKING:\n    from strands_manga_memory.stores import table\n", encoding="utf-8"
    )
    assert list(imported(source)) == ["strands_manga_memory.stores.table"]
    with pytest.raises(CycleError):
        TopologicalSorter({"one": {"two"}, "two": {"one"}}).prepare()
