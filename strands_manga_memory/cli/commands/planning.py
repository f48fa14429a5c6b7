"""Commands ``cost`` and ``ttl-advice``, which estimate cost and recommend a TTL."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import asdict, replace
from typing import Annotated

import typer

from strands_manga_memory.cli.options import Durable, Json, read_settings, refusing_wrong_values
from strands_manga_memory.cli.output import console, print_json, print_table
from strands_manga_memory.ops.advice import LEAST_GAPS, TtlAdvice
from strands_manga_memory.ops.advice import ttl_advice as advised
from strands_manga_memory.ops.cost_model import Cost, CostModel, differences
from strands_manga_memory.ops.workload import Workload
from strands_manga_memory.session.ttl import stored_gaps
from strands_manga_memory.stores import open_table
from strands_manga_memory.stores.urls import without_password


def cost(
    messages_per_day: Annotated[float, typer.Option(min=0, help="User messages per day.")] = 1e6,
    users: Annotated[float, typer.Option(min=0, help="Users with memories.")] = 200_000,
    turns_per_session: Annotated[float, typer.Option(min=1, help="Turns per session.")] = 10,
    bytes_per_message: Annotated[float, typer.Option(min=0, help="Bytes per message.")] = 500,
    ttl_seconds: Annotated[
        float, typer.Option(min=0, help="Seconds a conversation stays hot after its last turn.")
    ] = 2_700,
    cache_hit_rate: Annotated[
        float, typer.Option(min=0, max=0.9, help="Prompt-cache hit rate on the worst day.")
    ] = 0.70,
    keeps_agents: Annotated[
        bool,
        typer.Option(
            help="Whether a worker keeps a session's agent; else it is restored for each message."
        ),
    ] = True,
    peak: Annotated[
        float, typer.Option(min=1, help="Load of the busiest second, as a multiple of the mean.")
    ] = 3.0,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="NAME=SHARE",
            help="Share of messages that a model answers; can be repeated.",
        ),
    ] = None,
    preset: Annotated[
        str, typer.Option(help="'measured': this package; 'paper': a published design.")
    ] = "measured",
    as_json: Json = False,
) -> None:
    """Estimate the resources and the cost of a deployment per month."""
    if preset not in ("measured", "paper"):
        raise typer.BadParameter(f"--preset must be measured or paper, got {preset!r}")
    with refusing_wrong_values():
        workload = Workload(
            messages_per_day=messages_per_day,
            users=users,
            turns_per_session=turns_per_session,
            bytes_per_message=bytes_per_message,
            ttl_seconds=ttl_seconds,
            cache_hit_rate=cache_hit_rate,
            peak=peak,
            keeps_agents=keeps_agents,
        )
        if model is not None:
            workload = replace(workload, models=_shares(model))
        chosen = CostModel.paper(workload) if preset == "paper" else CostModel.measured(workload)
        found = chosen.cost()
    if as_json:
        print_json(
            {
                "preset": preset,
                "workload": {**vars(workload), "models": dict(workload.models)},
                "total_usd_month": found.total_usd_month,
                **asdict(found),
                "differences": [asdict(each) for each in differences(workload)],
            }
        )
        return
    _print_cost(workload, found, preset)


def _shares(given: list[str]) -> dict[str, float]:
    try:
        return {name: float(share) for name, share in (each.split("=", 1) for each in given)}
    except ValueError as error:
        raise typer.BadParameter(
            f"--model must be NAME=SHARE, such as haiku=0.8, got {given}"
        ) from error


def _print_cost(workload: Workload, found: Cost, preset: str) -> None:
    use = found.use
    console().print(
        f"{workload.messages_per_day:,.0f} messages a day of {workload.users:,.0f} users,"
        f" {workload.turns_per_session:g} turns a session, {workload.bytes_per_message:g} bytes a"
        " message\n"
    )
    rows = [(name, f"{usd:,.2f}") for name, usd in found.parts.items()]
    rows.append(("hot tier and tables", f"{found.redis_usd_month + found.dynamodb_usd_month:,.2f}"))
    rows.append(("total", f"{found.total_usd_month:,.2f}"))
    print_table(
        f"US dollars per month, preset {preset}, prices of {found.prices_date}",
        ("item", "USD"),
        rows,
        right=(1,),
    )
    console().print(
        f"{found.usd_per_message * 1000:,.4f} USD per 1,000 messages; {found.nodes} nodes"
        f" {found.node}"
    )
    console().print(
        f"{(use.write_units + use.index_write_units) / 1e6:,.1f}M write units,"
        f" {use.read_units / 1e6:,.1f}M read units, {use.stored_gb + use.index_gb:,.1f} GB stored,"
        f" {use.live_sessions:,.0f} live sessions in {use.hot_gb:,.2f} GB\n"
    )
    print_table(
        "Differences between the published design and this package",
        ("quantity", "paper", "measured", "reason"),
        [
            (each.what, f"{each.paper:,.6g}", f"{each.measured:,.6g}", each.why)
            for each in differences(workload)
        ],
        right=(1, 2),
    )


_WIDTH = 50
_MINUTES = (1, 2, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 480, 720, 1440)


def ttl_advice(
    days: Annotated[float, typer.Option(min=1, max=90, help="Days of recorded gaps to use.")] = 30,
    ttl_seconds: Annotated[
        float, typer.Option(min=1, max=1e9, help="Current TTL in seconds.")
    ] = 2_700,
    durable: Durable = None,
    as_json: Json = False,
) -> None:
    """Recommend a TTL for the hot tier from the gaps between turns.

    Show the share of users who return within various TTLs.
    """
    url = read_settings(durable_url=durable).durable_url
    with refusing_wrong_values():
        opened = open_table(url)
    with closing(opened) as table:
        gaps = stored_gaps(table, since=time.time() - days * 86_400)
    if not gaps.total:
        raise ValueError(
            f"no gaps between turns are recorded in {without_password(url)} for the last {days:g}"
            " days: let agents use this durable tier, name another one with --durable, or raise"
            " --days"
        )
    advice = advised(gaps)
    if as_json:
        shares = {
            "resumed_now": advice.share_within(ttl_seconds),
            "resumed_at_knee": advice.share_within(advice.knee),
        }
        print_json({**asdict(advice), **shares})
    else:
        _print_advice(advice, ttl_seconds)


def _print_advice(advice: TtlAdvice, now: float) -> None:
    if not advice.has_enough_gaps:
        console().print(
            f"{advice.gaps:,} gaps between two turns; a recommendation needs {LEAST_GAPS:,}"
        )
        return
    console().print(f"{advice.gaps:,} gaps between two turns")
    named: dict[float, str] = {
        **dict.fromkeys((60.0 * minutes for minutes in _MINUTES), ""),
        now: "now",
        advice.knee: "knee",
    }
    rows = [
        (
            name,
            _time(seconds),
            f"{advice.share_within(seconds):.1%}",
            "#" * round(_WIDTH * advice.share_within(seconds)),
        )
        for seconds, name in sorted(named.items())
    ]
    print_table(
        "Returning users whose conversation is still hot, by TTL",
        ("", "TTL", "share", ""),
        rows,
        right=(1, 2),
    )
    console().print(
        f"knee: {_time(advice.knee)} ({advice.knee:,.0f} s); a longer TTL gains fewer returns per"
        " second than the average. To set it for all users:"
        f" MANGA_MEMORY_TTL_SECONDS={advice.knee:.0f}"
    )


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
