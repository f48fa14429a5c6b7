"""Run benchmarks: ``python -m tests.benchmarks [NAME ...] [--json] [--check]``; default all."""

import argparse
import importlib
import json
import operator
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.benchmarks import reset_texts, slowness

NAMES = ["roundtrips", "restore", "turn", "contexts", "summaries", "breaker", "cost"]

LONG = ["scale", "session-cost", "retention"]
"""Benchmarks that take long or need much, and therefore run only when they are named."""

_MOST_RUNS = 3
_TIMING = ("_us", "_ms", "_s")
_COMPARE = {
    "<=": operator.le,
    "<": operator.lt,
    "==": operator.eq,
    ">=": operator.ge,
    ">": operator.gt,
}
_BUDGET = re.compile(r"(<=|<|==|>=|>) *(-?[\d.]+)")


@dataclass(frozen=True)
class Row:
    """Measured value with its budget. A row without a budget is always ok.

    Values in microseconds measure only Python instructions, so their budgets grow with ``slowness``
    of the machine.
    """

    name: str
    value: float
    budget: str | None
    slowness: float = 1.0

    @property
    def ok(self) -> bool:
        """Whether the value is within its budget."""
        if self.budget is None:
            return True
        found = _BUDGET.fullmatch(self.budget)
        if found is None:
            raise ValueError(f"budget of {self.name} must be such as '<= 6', got {self.budget!r}")
        return bool(_COMPARE[found[1]](self.settled, float(found[2])))

    @property
    def settled(self) -> float:
        """Value as expected on the machine of the budgets."""
        return self.value / self.slowness if self.name.endswith("_us") else self.value

    @property
    def is_timing(self) -> bool:
        """Whether a busy machine can make the value worse."""
        return self.name.endswith(_TIMING)

    def as_json(self) -> dict[str, Any]:
        """Return the value, the budget, and whether the budget is met."""
        return {
            "value": self.value if isinstance(self.value, int) else round(self.value, 4),
            "budget": self.budget,
            "ok": self.ok,
            **({} if self.settled == self.value else {"slowness": round(self.slowness, 2)}),
        }


def rows_of(
    values: Mapping[str, float], budgets: Mapping[str, str | float], slowness: float = 1.0
) -> list[Row]:
    """Return the rows of one run. A budget that is a number is a maximum."""
    missing = sorted(set(budgets) - set(values))
    if missing:
        raise ValueError(f"these budgets have no value: {missing}")
    written = {
        name: limit if isinstance(limit, str) else f"<= {limit}" for name, limit in budgets.items()
    }
    return [Row(name, value, written.get(name), slowness) for name, value in values.items()]


def measured(name: str) -> tuple[list[Row], int]:
    """Run a benchmark up to three times, as long as only timings miss their budgets.

    Return the rows and the number of runs.

    A timing with a budget has the value of its best run, every other row that of the last run.
    """
    module = _module(name)
    rows, runs = _run(module), 1
    most = getattr(module, "MOST_RUNS", _MOST_RUNS)
    while (
        runs < most
        and any(not row.ok for row in rows)
        and all(row.ok or row.is_timing for row in rows)
    ):
        before = {row.name: row for row in rows if row.is_timing and row.budget}
        again = _run(module)
        rows, runs = (
            [min(row, before.get(row.name, row), key=lambda row: row.settled) for row in again],
            runs + 1,
        )
    return rows, runs


def _run(module: ModuleType) -> list[Row]:
    reset_texts()  # the texts do not depend on the benchmarks that ran before
    before, values = slowness(), module.run()
    return rows_of(values, module.BUDGETS, max(before, slowness()))


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"tests.benchmarks.{name.replace('-', '_')}")


def show(name: str, rows: Sequence[Row], runs: int) -> None:
    """Print the rows of a benchmark as a table."""
    title = name if runs == 1 else f"{name} (best timings of {runs} runs)"
    slow = max((r.slowness for r in rows if r.budget and r.name.endswith("_us")), default=1.0)
    if slow > 1.0:
        title += f" (a slow machine, or minute: budgets in µs times {slow:.1f})"
    cells = [
        (
            row.name,
            f"{row.value:,.4g}" if abs(row.value) < 1e4 else f"{row.value:,.0f}",
            row.budget or "",
        )
        for row in rows
    ]
    verdicts = ["" if row.budget is None else "ok" if row.ok else "MISSED" for row in rows]
    table = Table(title=title, title_justify="left")
    for heading, side in (("", "left"), ("value", "right"), ("budget", "left"), ("", "left")):
        table.add_column(heading, justify=side, no_wrap=True)
    for cell, verdict in zip(cells, verdicts, strict=True):
        table.add_row(*cell, f"[red]{verdict}[/red]" if verdict == "MISSED" else verdict)
    Console(width=None if sys.stdout.isatty() else 110).print(table)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks of the command line, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks", description="Measure against the budgets."
    )
    names_help = (
        f"any of: {', '.join([*NAMES, *LONG])}; default: all but {', '.join(LONG)}; or rivals, by"
        " itself"
    )
    parser.add_argument("names", nargs="*", metavar="name", help=names_help)
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a budget is missed")
    parser.add_argument(
        "--kit",
        type=Path,
        metavar="FOLDER",
        help="folder of the benchmark kit, for benchmarks that can use it",
    )
    plot_help = (
        "retention: file to draw what is kept to (needs --kit); scale: folder to draw the curves to"
    )
    parser.add_argument("--plot", type=Path, metavar="PATH", help=plot_help)
    parser.add_argument(
        "--minutes",
        type=float,
        metavar="N",
        help="scale: how long ten times the peak is held (default 10)",
    )
    parser.add_argument(
        "--soak",
        type=float,
        metavar="N",
        help="scale: also 50 messages a second for N minutes (default 0)",
    )
    parser.add_argument(
        "--write",
        type=Path,
        metavar="FILE.md",
        help="rivals: put the table between its markers there",
    )
    parser.add_argument(
        "--installed", action="store_true", help="rivals: only those that are in this environment"
    )
    options = parser.parse_args(arguments)
    if options.names == ["rivals"]:  # it installs packages, and is a table of its own
        return int(
            _module("rivals").main(
                as_json=options.json, into=options.write, only_installed=options.installed
            )
        )
    unknown = [name for name in options.names if name not in [*NAMES, *LONG]]
    if unknown:
        parser.error(
            f"there is no benchmark {', '.join(map(repr, unknown))}; there are:"
            f" {', '.join([*NAMES, *LONG])}"
        )
    for module in map(_module, options.names or NAMES):
        paths = {
            name: path.resolve()
            for name, path in (("KIT", options.kit), ("PLOT", options.plot))
            if path is not None
        }
        for setting, given in {**paths, "MINUTES": options.minutes, "SOAK": options.soak}.items():
            if given is not None and hasattr(module, setting):
                setattr(module, setting, given)
    report: dict[str, dict[str, Any]] = {}
    missed: list[str] = []
    for name in options.names or NAMES:
        rows, runs = measured(name)
        show(name, rows, runs)
        report[name] = {row.name: row.as_json() for row in rows}
        missed += [f"{name} {row.name}" for row in rows if not row.ok]
    if missed:
        print(f"missed: {', '.join(missed)}", file=sys.stderr)
    if options.json:
        print(json.dumps(report))
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
