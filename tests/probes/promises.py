"""Promises of the package, and their tests.
``python -m tests.probes.promises`` writes the page of the guide.
"""

import ast
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "strands_manga_memory" / "guide" / "promises.md"

TOPICS: dict[str, dict[str, list[str]]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
"""Page and tests by topic and by name of a probe, or by the text of a promise without a probe."""

FOLDERS = {
    "conversation": "Conversation managers", "mcp": "Guarded tools", "memory": "User memory",
    "messages": "Messages and requests", "ops": "Operation tools", "prompt": "Prompt cache",
    "squad": "Multi-agent", "state": "Task state", "user_data": "User data",
}  # fmt: skip
"""Names of the pages of folders."""

TOPICS_OF_TESTS = {
    "after_a_turn": "background writes", "cli": "commands", "heard": "learned preferences",
    "mcp_agents": "MCP agents", "mcp_scenarios": "MCP scenarios",
    "pii": "personal data", "session_ttl": "session TTL", "state_parts": "parts of the state",
    "summary_runs_apart": "summary runs of processes",
}  # fmt: skip
"""Topics of tests whose files have other names."""

CONDITIONS = {
    "Summaries": 'With `history="summarize"` or `VerifiedSummarizingConversationManager`.',
    "User memory": "With `MangaMemory.open(memories=True)`.",
    "Task state": "With `memory.agent(task_state=True)`.",
    "Tools": "For tools in `memory.guard` or `guard_tool`.",
}
"""Condition of all promises of a topic."""


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


@dataclass(frozen=True)
class Promise:
    """A promise with the page that explains it and the tests that prove it."""

    page: str
    tests: tuple[str, ...]


def promises() -> dict[str, dict[str, Promise]]:
    """Return the promises by topic and text."""
    found: dict[str, dict[str, Promise]] = {}
    known = probes()
    for topic, rows in TOPICS.items():
        found[topic] = {}
        for name, (page, *further) in rows.items():
            tests = tuple(f"tests/{test}" for test in further)
            if name.startswith("test_"):
                promise, path = known[name]
                found[topic][promise] = Promise(page, (f"{path}::{name}", *tests))
            else:
                found[topic][name] = Promise(page, tests)
    return found


def anchor_of(heading: str) -> str:
    """Return the anchor that code hosts give to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def name_of(page: str) -> str:
    """Return the text of a link: the section, or the page if the link has no section."""
    path, _, section = page.partition("#")
    if section:
        text = (TABLE.parent / path).read_text(encoding="utf-8")
        headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        return next(each for each in headings if anchor_of(each) == section)
    return FOLDERS.get(Path(path).parent.name) or Path(path).stem.capitalize()


def topic_of(file: str) -> str:
    """Return the text of a link to a test."""
    name = Path(file).stem.removeprefix("test_")
    if name.startswith("probes_"):
        return f"{name.removeprefix('probes_')} (probe)"
    return TOPICS_OF_TESTS.get(name) or name.replace("_", " ")


def table() -> str:
    """Build the page of the guide."""
    lines = [
        "# Promises",
        "",
        (
            "Promises of the package, each with the tests that check it. Those of the"
            " [README](../../README.md#promises) have their tests there, and"
            " [Sessions](sessions.md#guarantees) explains the guarantees of storage."
        ),
        "",
        (
            "- **Tests.** `uv run pytest tests/probes` runs the probes: tests through the public"
            " API only. The other tests are linked by their topic."
        ),
        (
            "- **Stores.** The promises hold while the stores keep the data that they have"
            " confirmed. [Limits](sessions.md#limits) lists the exceptions."
        ),
        (
            "- **Rules.** *Recognized* means: by the rules for English and Japanese."
            " [Evidence](evidence.md) has their errors."
        ),
    ]
    for topic, tested in promises().items():
        lines += ["", f"## {topic}", ""]
        if topic in CONDITIONS:
            lines += [CONDITIONS[topic], ""]
        lines += ["| promise | explained in | tests |", "|---|---|---|"]
        for text, promise in tested.items():
            files = dict.fromkeys(test.partition("::")[0] for test in promise.tests)
            links = ", ".join(f"[{topic_of(file)}](../../{file})" for file in files)
            explained = f"[{name_of(promise.page)}]({promise.page})"
            lines.append(f"| {text} | {explained} | {links} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="utf-8")
