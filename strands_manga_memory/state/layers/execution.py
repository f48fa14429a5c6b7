"""ExecutionLayer: what was tried in one task, and what was learned by it. Pure; kept in memory only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pydantic import Field

from strands_manga_memory.language.text_features import normalized
from strands_manga_memory.lazy import expression
from strands_manga_memory.messages.tokens import shorten_line
from strands_manga_memory.state.layers.layer import Part

MOST_STEPS, MOST_FINDINGS, MOST_PATTERNS = 100, 50, 20
OTHER = "other"
"""What a pattern beyond the 20th is counted as."""


class ExecutionKind(StrEnum):
    """What was done."""

    REASONING = "reasoning"
    TOOL = "tool"
    VALIDATION = "validation"
    REPLANNING = "replanning"


class ExecutionStep(Part):
    """One thing that was done.

    Attributes:
        kind: What it was.
        text: In words, at most 300 characters.
        confidence: From 0 to 1; None if nobody said.
        ok: Whether it worked; None if that cannot be said.
    """

    kind: ExecutionKind
    text: str = Field(min_length=1, max_length=300)
    confidence: float | None = Field(default=None, ge=0, le=1)
    ok: bool | None = None


class ExecutionLayer(Part):
    """The last 100 steps of a task, first in, first out.

    Attributes:
        steps: The steps, the older first.
        total: Steps there were.
        findings: What was found out, each once.
        successes: How often what worked, by pattern.
        errors: How often what failed, by pattern.
        plan_changes: Why the plan was changed, the last 20.
    """

    steps: tuple[ExecutionStep, ...] = ()
    total: int = 0
    findings: tuple[str, ...] = ()
    successes: dict[str, int] = Field(default_factory=dict)
    errors: dict[str, int] = Field(default_factory=dict)
    plan_changes: tuple[str, ...] = ()

    def with_step(self, step: ExecutionStep, *, pattern: str = "") -> ExecutionLayer:
        """Return the layer with a step more; ``pattern`` is what a success or an error is counted as."""
        changes: dict[str, Any] = {"steps": (*self.steps, step)[-MOST_STEPS:], "total": self.total + 1}
        if step.ok is not None and pattern:
            name = "successes" if step.ok else "errors"
            changes[name] = counted(getattr(self, name), pattern)
        if step.kind is ExecutionKind.REPLANNING:
            changes["plan_changes"] = (*self.plan_changes, step.text)[-MOST_PATTERNS:]
        return self.replaced(**changes)  # the step was validated when it was made

    def with_finding(self, text: str) -> ExecutionLayer:
        """Return the layer with something found out; what is known already changes nothing."""
        found = added_finding(self.findings, text, MOST_FINDINGS)
        return self if found == self.findings else self.replaced(findings=found)


def added_finding(known: tuple[str, ...], text: str, most: int) -> tuple[str, ...]:
    """Return the findings with one more, unless one says the same; the oldest goes if there are too many."""
    line = shorten_line(text, 300)
    if not line or normalized(line) in {normalized(each) for each in known}:
        return known
    return (*known, line)[-most:]


def counted(counts: Mapping[str, int], pattern: str, most: int = MOST_PATTERNS) -> dict[str, int]:
    """Return the counts with one more of ``pattern``; patterns beyond ``most`` are counted together."""
    name = pattern if pattern in counts or len(counts) < most else OTHER
    return {**counts, name: counts.get(name, 0) + 1}


_VARIABLE = expression(r"0x[0-9a-f]+|[0-9a-f]{8}-[0-9a-f-]{27}|\d+(?:[.,:]\d+)*|'[^']*'|\"[^\"]*\"", re.IGNORECASE)


def error_pattern(text: str) -> str:
    """Return what errors of the same kind have in common: numbers, ids and quoted values become ``#``."""
    return shorten_line(_VARIABLE.sub("#", text[:400]), 80)
