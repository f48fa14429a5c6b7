"""Every public name is documented, and the documentation can be rendered."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import strands_manga_memory as package

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


def test_the_site_is_rendered(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pdoc",
        "-o",
        str(tmp_path),
        "strands_manga_memory.settings",
        "strands_manga_memory.doctor",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "strands_manga_memory" / "settings.html").read_text(encoding="utf-8")
    assert "MANGA_MEMORY_FLUSH_EVERY" in page
    guide = (tmp_path / "strands_manga_memory" / "doctor.html").read_text(encoding="utf-8")
    assert "Stuck sweeper" in guide  # the runbook is part of the doctor's page
