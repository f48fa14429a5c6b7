"""rivals: our session manager and others, each in its own environment, on the same servers.

``python -m tests.benchmarks rivals --json`` installs the others from PyPI below ``build/rivals``
(once), ``--write strands_manga_memory/guide/comparison.md`` writes the table to the guide, and ten
of its rows to the README, ``--installed`` compares only with Strands' own managers.
"""

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.benchmarks import progress
from tests.benchmarks.rivals.catalogue import RIVALS, Rival, installed
from tests.benchmarks.rivals.measures import MEASURES, by_age
from tests.benchmarks.rivals.stage import RivalError, stage_of
from tests.benchmarks.rivals.table import (
    SETUPS_BEGIN,
    SETUPS_END,
    Column,
    in_short,
    markdown,
    setups,
    write,
)


def measured(rival: Rival, version: str) -> Column:
    """Measure everything of one rival, on new servers. Each question has sessions of its own."""
    column = Column(rival, version)
    with stage_of() as stage:
        for measure in MEASURES:
            try:
                column.cells |= measure(rival, stage)
            except RivalError as error:
                if measure is by_age:
                    column.failed = str(error)
                    return column
                column.cells[f"{measure.__name__} failed"] = str(error)[:60]
    return column


def compare(rivals: Sequence[Rival]) -> list[Column]:
    """Install and measure rivals, one after the other."""
    columns = []
    for rival in progress(list(rivals), "rivals"):
        version, failed = installed(rival)
        columns.append(
            Column(rival, version, failed=failed) if failed else measured(rival, version)
        )
    return columns


def main(*, as_json: bool, into: Path | None, only_installed: bool) -> int:
    """Run the comparison, print the table, and write it to a file on request."""
    rivals = [rival for rival in RIVALS if not rival.packages] if only_installed else list(RIVALS)
    columns = compare(rivals)
    breakers: Mapping[str, float] | None = None
    if not only_installed:
        from tests.benchmarks import breaker

        breakers = breaker.run()
    today = dt.datetime.now(dt.UTC).date()
    table, details = markdown(columns, breakers=breakers), setups(columns, today=today)
    print(f"{table}\n\n{details}")
    if into is not None:
        write(into, table)
        write(into, details, SETUPS_BEGIN, SETUPS_END)
        write(Path("README.md"), in_short(into.read_text(encoding="utf-8")))
    if as_json:
        found = [
            {
                "name": column.rival.name,
                "version": column.version,
                "note": column.rival.note,
                "failed": column.failed,
                "cells": column.cells,
            }
            for column in columns
        ]
        print(
            json.dumps(
                {
                    "rivals": {
                        "date": today.isoformat(),
                        "columns": found,
                        "breakers": dict(breakers or {}),
                    }
                }
            )
        )
    return 0
