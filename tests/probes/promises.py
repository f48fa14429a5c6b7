"""Promises of the package, and their tests.
``python -m tests.probes.promises`` writes the page of the guide.
"""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "strands_manga_memory" / "guide" / "promises.md"

TOPICS: dict[str, dict[str, list[str]]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
"""Tests by topic and by name of a probe, or by the text of a promise without a probe."""


def probes() -> dict[str, tuple[str, str]]:
    """Return the promise and the file of each probe by the name of its test."""
    found: dict[str, tuple[str, str]] = {}
    for path in sorted(Path(__file__).parent.glob("test_probes_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                promise = (ast.get_docstring(node) or "").replace("\n", " ")
                assert promise, f"{node.name} has no docstring"
                assert node.name not in found, f"two probes are named {node.name}"
                found[node.name] = promise, f"tests/probes/{path.name}"
    return found


def promises() -> dict[str, dict[str, tuple[str, ...]]]:
    """Return the promises with their tests, by topic."""
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    known = probes()
    for topic, rows in TOPICS.items():
        found[topic] = {}
        for name, further in rows.items():
            tests = tuple(f"tests/{test}" for test in further)
            if name.startswith("test_"):
                promise, path = known[name]
                found[topic][promise] = (f"{path}::{name}", *tests)
            else:
                found[topic][name] = tests
    return found


def table() -> str:
    """Build the page of the guide."""
    lines = [
        "# Promises",
        "",
        (
            "Every promise has tests. Those of `tests/probes` use the public API only, on SQLite"
            " and on Valkey with DynamoDB."
        ),
        "`uv run python -m tests.probes.promises` writes this page, and a test compares it.",
    ]
    for topic, tested in promises().items():
        lines += ["", f"## {topic}", "", "| promise | tests |", "|---|---|"]
        for promise, tests in tested.items():
            files = dict.fromkeys(test.partition("::")[0] for test in tests)
            links = ", ".join(
                f"[{Path(file).stem.removeprefix('test_')}](../../{file})" for file in files
            )
            lines.append(f"| {promise} | {links} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="utf-8")
