"""The root's names: sorted, true, loaded when they are used, and no driver with them before."""

import importlib
import importlib.resources
import pkgutil
import re
import zipfile
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
