"""Writes the tables of the settings page from fields and docstrings of constructors.

``uv run python -m tests.settings_page`` writes ``strands_manga_memory/guide/settings.md``; a test
compares it.
"""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from strands_manga_memory import (
    BreakerPolicy,
    HistoryRecall,
    ImportanceWeightedConversationManager,
    PiiPolicy,
    StateCoordinator,
    TieredCompactionConversationManager,
    TieredSessionManager,
    TtlPolicy,
    VerifiedSummarizingConversationManager,
)
from strands_manga_memory.assembly.settings import setting_rows
from strands_manga_memory.conversation import SummarySchedule, SummaryTrigger
from strands_manga_memory.state import StateLimits

PAGE = Path(__file__).parents[1] / "strands_manga_memory/guide/settings.md"
DOCUMENTED: tuple[type, ...] = (
    TieredSessionManager, TtlPolicy, ImportanceWeightedConversationManager, HistoryRecall,
    VerifiedSummarizingConversationManager, SummaryTrigger, SummarySchedule,
    TieredCompactionConversationManager, StateCoordinator, StateLimits, BreakerPolicy, PiiPolicy,
)  # fmt: skip


def page() -> str:
    """Return the page as it should be."""
    text = PAGE.read_text(encoding="utf-8")
    return (
        text[: text.index("<!-- settings: begin -->")]
        + "".join(_tables())
        + text[text.index("<!-- settings: end -->") :]
    )


def variables() -> str:
    """Return the table of all settings with their environment variables."""
    head = "| variable | default | takes | meaning |\n|---|---|---|---|\n"
    return head + "".join(
        f"| `{name}` | `{default}` | {what} | {why} |\n"
        for _, name, default, what, why in setting_rows()
    )


def _tables() -> Iterator[str]:
    yield f"<!-- settings: begin -->\n{variables()}\n"
    yield (
        "## Parameters of the parts\n\nFrom the docstrings. Parameters without a default are"
        " required.\n"
    )
    for kind in DOCUMENTED:
        yield f"\n### {kind.__name__}\n\n| parameter | default | meaning |\n|---|---|---|\n"
        for name, default, meaning in parameters(kind):
            yield f"| `{name}` | {default} | {meaning} |\n"


def parameters(kind: type) -> list[tuple[str, str, str]]:
    """Return name, default and description of each parameter of a constructor.

    Raises:
        ValueError: The docstring lacks one, or has one that is not there.
    """
    said = dict(_said(inspect.getdoc(kind) or ""))
    declared = {
        name: parameter
        for name, parameter in inspect.signature(kind).parameters.items()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    }
    if missing := declared.keys() ^ said.keys() - {"name"}:
        raise ValueError(
            f"{kind.__name__}: the docstring and the parameters differ in"
            f" {', '.join(sorted(missing))}"
        )
    return [(name, _default(p.default), _cell(said[name])) for name, p in declared.items()]


def _said(docstring: str) -> Iterator[tuple[str, str]]:
    section = re.search(r"^(?:Args|Attributes):\n((?:(?: {4}.*)?\n?)+)", docstring, re.MULTILINE)
    for entry in re.split(r"\n(?= {4}\w)", section[1].rstrip() if section else ""):
        if found := re.match(r"\s*\**(\w+):\s*(.*)", entry, re.DOTALL):
            yield found[1], " ".join(found[2].split())


def _default(value: Any) -> str:
    if value is inspect.Parameter.empty:
        return ""
    if isinstance(value, bool | int | float | str) or value is None:
        return f"`{value!r}`"
    return f"`{value.__name__}`" if callable(value) and hasattr(value, "__name__") else "see right"


def _cell(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|")


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
