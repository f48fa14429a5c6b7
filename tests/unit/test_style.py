"""Docstrings, comments and pages use standard terms in the listed folders."""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("style")  # one worker parses the package

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "strands_manga_memory"

SOURCES = (
    *("cli", "mcp", "messages", "prompt", "squad", "state", "user_data"),
    *("__init__.py", "arguments.py", "call_state.py", "circuit_breaker.py", "deadline.py"),
    *("exceptions.py", "lifecycle.py", "scope.py", "testing.py"),
)
"""Folders and modules that keep the rules. The list only grows."""

PROSE_SOURCES = (
    *("assembly", "conversation", "language", "memory", "ops", "session", "stores", "telemetry"),
    *("html_tables.py", "lazy_imports.py"),
)
"""Folders whose docstrings and comments keep the rules, but not yet all names.
The list only grows.
"""

PAGES = (
    "README.md",
    "examples/README.md",
    *(
        f"strands_manga_memory/guide/{name}.md"
        for name in (
            *("api", "choosing", "comparison", "concepts", "contributing", "evidence", "glossary",
                "migration"),
            *("operations", "promises", "quickstart", "security", "sessions", "settings",
                "troubleshooting"),
        )
    ),
    *(f"strands_manga_memory/{name}/README.md" for name in ("assembly", "language")),
    *(
        f"strands_manga_memory/{name}/README.md"
        for name in ("conversation", "mcp", "memory", "messages", "ops", "prompt")
    ),
    *(
        f"strands_manga_memory/{name}/README.md"
        for name in ("session", "squad", "state", "stores", "user_data")
    ),
    "strands_manga_memory/memory/details.md",
    "strands_manga_memory/ops/runbook.md",
)  # fmt: skip
"""Pages that keep the rules. The list only grows."""

FREE_RELATIVE = re.compile(r"(?:\w+ )?(?:what(?:ever)?|who(?:ever)?)\b", re.IGNORECASE)
"""Beginning of a docstring that names no thing: "What is told", "Return who waits"."""

NOT_STANDARD = re.compile(
    r"\b(?:graves?|bur(?:y|ied|ies)|dug|digs?|fates?|gist|anew|beside|at hand|by hand|let go|lets"
    r" go|as it is|as they are|"
    r"whoever|whatever|told|heard|hears|said|as it were|surroundings|taken back|going"
    r" on|thereof)\b",
    re.IGNORECASE,
)
"""Figures of speech and private terms. The glossary has the standard ones."""

VAGUE = re.compile(
    r"\b(?:what|whoever|whatever|told|tells|said|says|anew|beside|at hand|lets go|as it is|as they"
    r" are|comes of|goes on|"
    r"by hand|takes? note|heard|hears?|becomes of|stands? (?:for|in)|in the place of)\b",
    re.IGNORECASE,
)
"""Words that mostly replace a noun or a standard verb.
A few are right: they are counted, not forbidden.
"""

CODE_IN_DOCSTRING = re.compile(r"``[^`]+``|^ +\w+:(?= )", re.MULTILINE)
"""Code in a docstring: quoted text, and the names of arguments and attributes.
Names are checked where they are defined.
"""


def files_of(sources: Iterable[str]) -> list[Path]:
    return sorted(
        path
        for name in sources
        for path in ([PACKAGE / name] if name.endswith(".py") else (PACKAGE / name).rglob("*.py"))
    )


def modules() -> list[Path]:
    return [
        *files_of(SOURCES),
        *sorted((ROOT / "examples").glob("*.py")),
        *sorted((ROOT / "examples/recipes").glob("*.py")),
    ]


@cache
def nodes(source: str) -> list[ast.AST]:
    """Return all nodes of a module."""
    return list(ast.walk(ast.parse(source)))


@cache
def docstrings(source: str) -> list[tuple[int, str]]:
    """Return line and text of each docstring, those of constants and attributes included."""
    return [
        (node.lineno, node.value.value)
        for node in nodes(source)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each comment."""
    if "#" in source:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string


def defined_names(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and words of each name that a module defines."""
    for node in nodes(source):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, re.sub(r"(?<=[a-z])(?=[A-Z])", " ", node.name).replace("_", " ")
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id.replace("_", " ")
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg.replace("_", " ")


@cache
def prose_violations(source: str) -> list[tuple[int, str]]:
    """Return line and text of each violation in the docstrings and comments of a module."""
    texts = [*docstrings(source), *comments(source)]
    return [
        *((at, text) for at, text in docstrings(source) if FREE_RELATIVE.match(text)),
        *(
            (at, found[0])
            for at, text in texts
            if (found := NOT_STANDARD.search(CODE_IN_DOCSTRING.sub("", text)))
        ),
    ]


def violations(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each violation in a module."""
    yield from prose_violations(source)
    for line, text in defined_names(source):
        if found := NOT_STANDARD.search(text):
            yield line, found[0]


def test_modules_name_things_in_standard_terms() -> None:
    found = {path: list(violations(path.read_text(encoding="utf-8"))) for path in modules()}
    assert len(found) > 50
    assert {path: listed for path, listed in found.items() if listed} == {}


def test_prose_of_modules_uses_standard_terms() -> None:
    found = {
        path: list(prose_violations(path.read_text(encoding="utf-8")))
        for path in files_of(PROSE_SOURCES)
    }
    assert len(found) > 50
    assert {path: listed for path, listed in found.items() if listed} == {}


def test_pages_use_standard_terms() -> None:
    code = r"```.*?```|`[^`\n]*`|\[[^]]*\]\([^)]*\.py\)|\]\([^)]*\)|<!--.*?-->"
    texts = {
        page: re.sub(code, " ", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
        for page in PAGES
    }
    assert {page: found for page, t in texts.items() if (found := NOT_STANDARD.findall(t))} == {}


def vague_words_per_thousand(texts: Iterable[str]) -> float:
    listed = list(texts)
    return (
        1_000
        * sum(len(VAGUE.findall(text)) for text in listed)
        / sum(len(text.split()) for text in listed)
    )


def test_docstrings_of_the_package_have_few_vague_words() -> None:
    sources = (path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    assert vague_words_per_thousand(text for s in sources for _, text in docstrings(s)) < 1


def test_pages_have_few_vague_words() -> None:
    pages = [ROOT / "README.md", *PACKAGE.rglob("*.md")]
    assert vague_words_per_thousand(page.read_text(encoding="utf-8") for page in pages) < 2


def test_violations_are_found() -> None:
    source = (
        '"""What is told."""\n\ndef dig_grave() -> None:\n    """Return who waits."""\n    # keep'
        " it at hand\n"
    )
    assert sorted(violations(source)) == [
        (1, "What is told."),
        (1, "told"),
        (3, "dig"),
        (4, "Return who waits."),
        (5, "at hand"),
    ]
