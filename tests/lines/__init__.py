"""Sentences with the values that the package finds in them, as JSON lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def rows(table: str) -> list[Any]:
    """Return the rows of a table: texts, or lists of a text and the expected values."""
    lines = (Path(__file__).parent / f"{table}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]
