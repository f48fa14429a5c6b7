"""Command ``ttl-advice``: recommend a TTL for the hot tier."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from strands_manga_memory.cli.options import Durable, Json, settings_of
from strands_manga_memory.cli.output import FAILED, console, messages, print_json, print_table
from strands_manga_memory.ops.advice import LEAST_GAPS, TtlAdvice, TtlChoice, synthetic_gaps
from strands_manga_memory.ops.advice import ttl_advice as advised
from strands_manga_memory.ops.cost import CostModel, Workload
from strands_manga_memory.session.ttl import stored_gaps
from strands_manga_memory.stores import open_table
from strands_manga_memory.telemetry.histogram import LogHistogram

_WIDTH = 50


def ttl_advice(
    file: Annotated[
        Path | None,
        typer.Option("--input", metavar="FILE", help="Gaps in seconds, one per line; default: recorded gaps.", exists=True),
    ] = None,
    synthetic: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Use N random gaps, typical of a shop's chat.")
    ] = None,
    days: Annotated[float, typer.Option(min=1, max=90, help="Days of recorded gaps to use.")] = 30,
    ttl_seconds: Annotated[float, typer.Option(min=1, help="Current TTL in seconds.")] = 2_700,
    messages_per_day: Annotated[float, typer.Option(min=0, help="User messages per day, for the cost.")] = 1e6,
    turns_per_session: Annotated[float, typer.Option(min=1, help="Turns per session, for the cost.")] = 10,
    durable: Durable = None,
    as_json: Json = False,
) -> int:
    """Recommend a TTL for the hot tier from the gaps between turns: resumption curve, knee, cost of each choice."""
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
                continue  # a header line
            raise typer.BadParameter(f"{file}, line {number}: {text!r} is not a number of seconds") from None
        if not 0 <= gap < 1e9:
            raise typer.BadParameter(f"{file}, line {number}: a gap must be 0 to 1e9 seconds, got {gap!r}")
        gaps.add(gap)
    return gaps


def _print(advice: TtlAdvice) -> None:
    console().print(
        f"{advice.gaps:,} gaps between two turns" + ("" if advice.enough else f"; a recommendation needs {LEAST_GAPS:,}")
    )
    rows = [(_time(choice.seconds), _share(choice.resumed), "#" * round(_WIDTH * choice.resumed)) for choice in advice.choices]
    print_table("Returning users whose conversation is still hot, by TTL", ("TTL", "share", ""), rows, right=(0, 1))
    knee = [("knee", advice.at_knee)] if advice.enough else []
    named = [("now", advice.current), *knee, *(("", choice) for choice in advice.choices)]
    print_table(
        "Cost of a TTL",
        ("", "TTL", "hot", "live", "hot GB", "USD/month", "cold/day", "reload USD", "waits/day"),
        [(name, *_cells(choice)) for name, choice in named],
        right=range(1, 9),
    )
    if not advice.enough:
        return
    console().print(
        f"knee: {_time(advice.knee)} ({advice.knee:,.0f} s); a longer TTL gains fewer returns per second than the average. "
        f"To set it for all users: MANGA_MEMORY_TTL_SECONDS={advice.knee:.0f}"
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
    """Format a number of up to 100 billion in at most seven characters."""
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
