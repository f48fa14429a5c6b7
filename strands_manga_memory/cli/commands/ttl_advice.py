"""ttl-advice: how long conversations should stay hot."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from strands_manga_memory.cli.exits import FAILED
from strands_manga_memory.cli.options import Durable, Json, settings_of
from strands_manga_memory.cli.output import console, messages, print_json, print_table
from strands_manga_memory.ops.advice import LEAST_GAPS, TtlAdvice, TtlChoice, synthetic_gaps
from strands_manga_memory.ops.advice import ttl_advice as advised
from strands_manga_memory.ops.cost import CostModel, Workload
from strands_manga_memory.session.basis.returns import stored_gaps
from strands_manga_memory.stores import open_table
from strands_manga_memory.telemetry.histogram import LogHistogram

_WIDTH = 50


def ttl_advice(
    file: Annotated[
        Path | None,
        typer.Option("--input", metavar="FILE", help="Gaps in seconds, one a line; default: recorded ones.", exists=True),
    ] = None,
    synthetic: Annotated[int | None, typer.Option(metavar="N", min=1, help="N gaps as a shop's chat might have them.")] = None,
    days: Annotated[float, typer.Option(min=1, max=90, help="Days of recorded gaps to go by.")] = 30,
    ttl_seconds: Annotated[float, typer.Option(min=1, help="The present time to live, in seconds.")] = 2_700,
    messages_per_day: Annotated[float, typer.Option(min=0, help="User messages a day, for the costs.")] = 1e6,
    turns_per_session: Annotated[float, typer.Option(min=1, help="Turns of a session, for the costs.")] = 10,
    durable: Durable = None,
    as_json: Json = False,
) -> int:
    """Say how long conversations should stay hot, from how long users stay away: resumption curve, knee, cost of each side."""
    if file is not None and synthetic is not None:
        raise typer.BadParameter("--input and --synthetic exclude each other")
    if synthetic is not None:
        gaps = synthetic_gaps(synthetic)
    elif file is not None:
        gaps = _read(file)
    else:
        table = open_table(settings_of(durable=durable).durable_url)
        gaps = stored_gaps(table, since=time.time() - days * 86_400)
        table.close()
    if not gaps.total:
        messages.print(
            "no gaps were recorded yet: sessions record them while they are used; --synthetic 100000 shows an example"
        )
        return FAILED
    workload = Workload(messages_per_day=messages_per_day, turns_per_session=turns_per_session, ttl_seconds=ttl_seconds)
    advice = advised(gaps, CostModel.measured(workload))
    if as_json:
        print_json(asdict(advice))
    else:
        _print(advice)
    return 0


def _read(file: Path) -> LogHistogram:
    gaps = LogHistogram()
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        text = line.split(",")[0].strip()
        if not text:
            continue
        try:
            gap = float(text)
        except ValueError:
            if number == 1:
                continue  # a heading
            raise typer.BadParameter(f"{file}, line {number}: {text!r} is no number of seconds") from None
        if not 0 <= gap < 1e9:
            raise typer.BadParameter(f"{file}, line {number}: a gap must be 0 to 1e9 seconds, got {gap!r}")
        gaps.add(gap)
    return gaps


def _print(advice: TtlAdvice) -> None:
    console().print(f"{advice.gaps:,} gaps between two turns" + ("" if advice.enough else f"; an advice needs {LEAST_GAPS:,}"))
    rows = [(_time(choice.seconds), _share(choice.resumed), "#" * round(_WIDTH * choice.resumed)) for choice in advice.choices]
    print_table("Returns that find their conversation hot, by time to live", ("time to live", "share", ""), rows, right=(0, 1))
    knee = [("knee", advice.at_knee)] if advice.enough else []
    named = [("now", advice.current), *knee, *(("", choice) for choice in advice.choices)]
    print_table(
        "What a time to live costs",
        ("", "time to live", "hot", "live", "hot GB", "USD a month", "cold a day", "reload USD", "waits a day"),
        [(name, *_cells(choice)) for name, choice in named],
        right=range(1, 9),
    )
    if not advice.enough:
        return
    console().print(
        f"knee: {_time(advice.knee)} ({advice.knee:,.0f} s); beyond it, more time brings fewer returns than on average. "
        f"MANGA_MEMORY_TTL_SECONDS={advice.knee:.0f} sets it for all users."
    )


def _cells(choice: TtlChoice) -> tuple[str, ...]:
    return (
        _time(choice.seconds),
        _share(choice.resumed),
        _short(choice.live_sessions, 0),
        _short(choice.hot_gb),
        _short(choice.hot_usd_month),
        _short(choice.cold_returns_per_day, 0),
        _short(choice.reload_usd_month),
        _time(choice.reload_seconds_per_day),
    )


def _short(number: float, digits: int = 2) -> str:
    """Return a number in at most seven characters, up to 100 billion."""
    for least, letter in ((1e9, "G"), (1e6, "M")):
        if number >= least:
            return f"{number / least:,.1f}{letter}"
    return f"{number:,.{digits if number < 100 else 0}f}"


def _share(share: float) -> str:
    return f"{share:.1%}" if share < 0.9995 else "100%"


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
