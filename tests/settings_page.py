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

GROUPS = {
    "hot_url": "Stores", "ttl_tier": "Time to live", "history": "Window",
    "summary_trigger_tokens": "Summaries", "recall": "Recall", "task_state": "Task state",
    "pii_actions": "Memories", "breaker_failures": "Tools and telemetry",
}  # fmt: skip
"""Headings of the groups of settings, each with the first setting of its group."""

_LONGEST_DEFAULT = 32
"""Most characters of a default that is shown in its own column, and not in the description."""


def page() -> str:
    """Return the page as it should be."""
    text = PAGE.read_text(encoding="utf-8")
    return (
        text[: text.index("<!-- settings: begin -->")]
        + "".join(_tables())
        + text[text.index("<!-- settings: end -->") :]
    )


def variables() -> str:
    """Return a table of the settings of each group, with their environment variables."""
    lines = []
    for setting, name, default, what, why in setting_rows():
        if setting in GROUPS:
            head = "| variable | default | takes | meaning |\n|---|---|---|---|\n"
            lines.append(f"\n### {GROUPS[setting]}\n\n{head}")
        lines.append(f"| `{name}` | `{default}` | {what} | {why} |\n")
    return "".join(lines).lstrip()


def _tables() -> Iterator[str]:
    yield f"<!-- settings: begin -->\n{variables()}\n"
    yield (
        "## Parameters of the parts\n\nThe defaults above apply to the agents of `memory.agent`."
        " The defaults below apply only to a part that you build yourself, so some differ:"
        " `ImportanceWeightedConversationManager` has `max_tokens=4096` and `trim_every=0`, but an"
        " agent of `memory.agent` a quarter of the context window and 7. Parameters without a"
        " default are required.\n"
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
    return [(name, *_cells(p.default, said[name])) for name, p in declared.items()]


def _said(docstring: str) -> Iterator[tuple[str, str]]:
    section = re.search(r"^(?:Args|Attributes):\n((?:(?: {4}.*)?\n?)+)", docstring, re.MULTILINE)
    for entry in re.split(r"\n(?= {4}\w)", section[1].rstrip() if section else ""):
        if found := re.match(r"\s*\**(\w+):\s*(.*)", entry, re.DOTALL):
            yield found[1], " ".join(found[2].split())


def _cells(value: Any, text: str) -> tuple[str, str]:
    """Return the default and the description of a parameter.

    A short default that only the description states, such as ``TtlPolicy()`` for None, becomes the
    default. The description does not repeat the default.
    """
    text = text.replace("``", "`").replace("|", "\\|")
    shown = _default(value)
    stated = re.search(r"(?:^| )Default:? (?!and )((?:`[^`]*`|\d\.\d|[^.`])+)\.(?= |$)", text)
    if stated and len(stated[1]) <= _LONGEST_DEFAULT:
        if not shown or value is None:
            shown = stated[1]
        text = (text[: stated.start()] + text[stated.end() :]).strip()
    if value is not None:
        text = text.replace(" (default)", "").replace(", the default)", ")")
    return shown or ("" if value is inspect.Parameter.empty else "see right"), text


def _default(value: Any) -> str:
    """Return a default value as code; empty if it is missing or too long."""
    if value is inspect.Parameter.empty:
        return ""
    if isinstance(value, bool | int | float | str) or value is None:
        return f"`{value!r}`"
    return f"`{value.__name__}`" if callable(value) and hasattr(value, "__name__") else ""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
