"""Names of the root, which are loaded when they are used, and structure of the package."""

import ast
import importlib
import importlib.resources
import pkgutil
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import strands_manga_memory as package
from tests.support import printed_by

HOME_OF = {name: module for module, names in package._NAMES.items() for name in names.split()}


def test_all_is_sorted_and_complete() -> None:
    def place(name: str) -> tuple[int, str]:
        return (0 if name.isupper() else 1 if name[0].isupper() else 2), name

    assert package.__all__ == sorted(package.__all__, key=place)
    assert len(package.__all__) == len(set(package.__all__))
    assert set(package.__all__) == set(HOME_OF)


def test_the_door_is_small() -> None:
    assert len(package.__all__) <= 48


def test_every_name_loads_from_the_root_and_from_its_folder() -> None:
    assert dir(package) == sorted(package.__all__)
    for name in package.__all__:
        home = importlib.import_module(f"strands_manga_memory.{HOME_OF[name]}")
        assert getattr(package, name) is getattr(home, name)
        assert name in getattr(home, "__all__", [name])


def test_the_names_of_the_folders_are_true() -> None:
    for module in pkgutil.iter_modules(package.__path__):
        home = importlib.import_module(f"strands_manga_memory.{module.name}")
        for name in getattr(home, "__all__", ()):
            assert getattr(home, name) is not None
            assert name in dir(home)


def test_an_unknown_name_is_an_attribute_error() -> None:
    for module in (package, importlib.import_module("strands_manga_memory.stores")):
        with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
            _ = module.nothing
    with pytest.raises(ImportError):
        exec("from strands_manga_memory import nothing")


LOADED_LATER = {
    "import strands_manga_memory": {"boto3", "botocore", "redis", "tiktoken", "strands"},
    "from strands_manga_memory.ops import Workload": {"boto3", "redis", "strands"},
    "import strands_manga_memory.stores": {"redis"},
    "memory = strands_manga_memory.open_table('sqlite:///t.db')": {"redis", "tiktoken"},
    "from strands_manga_memory import MangaMemory": {
        f"strands_manga_memory.{folder}" for folder in ("conversation", "mcp", "state", "user_data")
    },
    "import strands_manga_memory.conversation": {"tiktoken"},
}
"""Statements, and modules that none of them loads up to there."""


def test_drivers_vocabularies_and_parts_of_agents_are_loaded_when_they_are_used() -> None:
    code = "\n".join(["import sys", *(f"{each}; print(*sys.modules)" for each in LOADED_LATER)])
    printed = printed_by("-c", code).splitlines()
    for loaded, later in zip(printed, LOADED_LATER.values(), strict=True):
        assert not {
            name
            for name in loaded.split()
            if later & {name.split(".")[0], name, ".".join(name.split(".")[:2])}
        }


def test_the_whole_package_is_typed() -> None:
    assert (importlib.resources.files("strands_manga_memory") / "py.typed").is_file()


def test_classes_that_pages_import_are_importable_from_where_the_page_says() -> None:
    root = Path(package.__path__[0])
    imported = re.compile(
        r"^from (strands_manga_memory[\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE
    )
    found = [
        (module, name)
        for page in [root.parent / "README.md", *root.rglob("*.md")]
        for module, names in imported.findall(page.read_text(encoding="utf-8"))
        for name in re.findall(r"\w+", names.partition("#")[0])
    ]
    assert len(found) > 20
    assert [each for each in found if not hasattr(importlib.import_module(each[0]), each[1])] == []
    assert package.SettingsError.__base__ is ValueError


def test_the_package_runs_from_a_zip_file(tmp_path: Path) -> None:
    source = Path(package.__file__).parent
    with zipfile.ZipFile(tmp_path / "package.zip", "w") as archive:
        for path in source.rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                archive.write(path, path.relative_to(source.parent))
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'package.zip')!r})\n"
        "from strands_manga_memory.stores import RedisHotStore\n"
        "from strands_manga_memory.language.packs import EN, JA\n"
        "assert EN.files[0]['code'] == 'en'\n"
        "assert 'package.zip' in sys.modules['strands_manga_memory'].__file__"
    )
    printed_by("-c", code)


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
