"""Command ``ttl-advice``: recommend a TTL for the hot tier."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated

import typer

from strands_manga_memory.cli.options import Durable, Json, settings_of
from strands_manga_memory.cli.output import FAILED, console, messages, print_json, print_table
from strands_manga_memory.ops.advice import LEAST_GAPS, TtlAdvice, synthetic_gaps
from strands_manga_memory.ops.advice import ttl_advice as advised
from strands_manga_memory.session.ttl import stored_gaps
from strands_manga_memory.stores import open_table

_WIDTH = 50
_STEPS = (60, 120, 300, 600, 900, 1200, 1800, 2700, 3600, 5400, 7200, 10_800, 14_400, 28_800, 43_200, 86_400)


def ttl_advice(
    synthetic: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Use N random gaps, typical of a shop's chat.")
    ] = None,
    days: Annotated[float, typer.Option(min=1, max=90, help="Days of recorded gaps to use.")] = 30,
    ttl_seconds: Annotated[float, typer.Option(min=1, help="Current TTL in seconds.")] = 2_700,
    durable: Durable = None,
    as_json: Json = False,
) -> int:
    """Recommend a TTL for the hot tier from the gaps between turns. Show the share of users who return within various TTLs."""
    if synthetic is not None:
        gaps = synthetic_gaps(synthetic)
    else:
        table = open_table(settings_of(durable_url=durable).durable_url)
        gaps = stored_gaps(table, since=time.time() - days * 86_400)
        table.close()
    if not gaps.total:
        messages.print(
            "no gaps were recorded yet: sessions record them while they are used; --synthetic 100000 shows an example"
        )
        return FAILED
    advice = advised(gaps)
    if as_json:
        shares = {"resumed_now": advice.resumed(ttl_seconds), "resumed_at_knee": advice.resumed(advice.knee)}
        print_json({**asdict(advice), **shares})
    else:
        _print(advice, ttl_seconds)
    return 0


def _print(advice: TtlAdvice, now: float) -> None:
    if not advice.enough:
        console().print(f"{advice.gaps:,} gaps between two turns; a recommendation needs {LEAST_GAPS:,}")
        return
    console().print(f"{advice.gaps:,} gaps between two turns")
    named: dict[float, str] = {**dict.fromkeys(map(float, _STEPS), ""), now: "now", advice.knee: "knee"}
    rows = [
        (name, _time(seconds), f"{advice.resumed(seconds):.1%}", "#" * round(_WIDTH * advice.resumed(seconds)))
        for seconds, name in sorted(named.items())
    ]
    print_table("Returning users whose conversation is still hot, by TTL", ("", "TTL", "share", ""), rows, right=(1, 2))
    console().print(
        f"knee: {_time(advice.knee)} ({advice.knee:,.0f} s); a longer TTL gains fewer returns per second than the average. "
        f"To set it for all users: MANGA_MEMORY_TTL_SECONDS={advice.knee:.0f}"
    )


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
