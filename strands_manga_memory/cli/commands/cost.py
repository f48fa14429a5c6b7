"""Command ``cost``: monthly cost of a deployment, its sensitivity to inputs, and the capacity it needs."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from strands_manga_memory.cli.options import Json
from strands_manga_memory.cli.output import console, print_json, print_table
from strands_manga_memory.ops.cost import Cost, CostModel, Workload, capacity_plan, differences, prices, sensitivity
from strands_manga_memory.ops.cost.capacity import ASSUMPTIONS, CapacityPlan

_BAR = 30


def cost(
    messages_per_day: Annotated[float, typer.Option(min=0, help="User messages per day.")] = 1e6,
    users: Annotated[float, typer.Option(min=0, help="Users with memories.")] = 200_000,
    turns_per_session: Annotated[float, typer.Option(min=1, help="Turns per session.")] = 10,
    bytes_per_message: Annotated[float, typer.Option(min=0, help="Bytes per message.")] = 500,
    ttl_seconds: Annotated[float, typer.Option(min=0, help="Seconds a conversation stays hot after its last turn.")] = 2_700,
    cache_hit_rate: Annotated[float, typer.Option(min=0, max=1, help="Prompt-cache hit rate on the worst day.")] = 0.70,
    keeps_agents: Annotated[
        bool, typer.Option(help="Whether a worker keeps a session's agent; else it is restored for each message.")
    ] = True,
    peak: Annotated[float, typer.Option(min=1, help="Load of the busiest second, as a multiple of the mean.")] = 3.0,
    replicas: Annotated[int, typer.Option(min=0, help="Replicas of each shard of the hot tier.")] = 1,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", metavar="NAME=SHARE", help="Share of messages that a model answers; can be repeated."),
    ] = None,
    preset: Annotated[str, typer.Option(help="'measured': this package; 'paper': a published design.")] = "measured",
    node: Annotated[str | None, typer.Option(help="Node type of the hot tier; default: the cheapest that fits.")] = None,
    prices_of: Annotated[
        str | None, typer.Option(metavar="YYYY-MM-DD", help="Date of the price list; default: that of the preset.")
    ] = None,
    prices_file: Annotated[
        Path | None,
        typer.Option("--prices", metavar="FILE", help="Your own prices, in the format of prices.json.", exists=True),
    ] = None,
    as_json: Json = False,
) -> None:
    """Estimate the monthly cost of a deployment, its sensitivity to each input, and the nodes and partitions it needs."""
    if preset not in ("measured", "paper"):
        raise typer.BadParameter(f"--preset must be measured or paper, got {preset!r}")
    workload = Workload(
        messages_per_day=messages_per_day,
        users=users,
        turns_per_session=turns_per_session,
        bytes_per_message=bytes_per_message,
        ttl_seconds=ttl_seconds,
        cache_hit_rate=cache_hit_rate,
        peak=peak,
        keeps_agents=keeps_agents,
        replicas=replicas,
    )
    if model is not None:
        workload = replace(workload, models=_shares(model))
    asked = None if prices_of is None and prices_file is None else prices(prices_of, file=prices_file)
    chosen = CostModel.paper(workload, at=asked) if preset == "paper" else CostModel.measured(workload, at=asked, node=node)
    found, plan, varied = chosen.cost(), capacity_plan(chosen), sensitivity(chosen)
    if as_json:
        print_json(
            {
                "preset": preset,
                **{name: getattr(found, name) for name in ("redis_usd_month", "dynamodb_usd_month", "model_usd_month")},
                "total_usd_month": found.total_usd_month,
                "usd_per_message": found.usd_per_message,
                **{name: value for name, value in _plain(found).items() if name not in ("use",)},
                "use": _plain(found.use),
                "sensitivity": {name: {"low": low, "high": high} for name, (low, high) in varied.items()},
                "capacity": _plain(plan),
                "assumptions": list(ASSUMPTIONS),
                "differences": [asdict(each) for each in differences(workload)],
            }
        )
        return
    _print(found, plan, varied, preset)
    _print_differences(workload)


def _shares(given: list[str]) -> dict[str, float]:
    try:
        return {name: float(share) for name, share in (each.split("=", 1) for each in given)}
    except ValueError as error:
        raise typer.BadParameter(f"--model must be NAME=SHARE, such as haiku=0.8, got {given}") from error


def _plain(value: Any) -> dict[str, Any]:
    return {name: _value(getattr(value, name)) for name in value.__dataclass_fields__}


def _value(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return _plain(value)
    if hasattr(value, "items"):
        return {key: _value(each) for key, each in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _print(found: Cost, plan: CapacityPlan, varied: dict[str, tuple[float, float]], preset: str) -> None:
    use = found.use
    rows = [(name, f"{usd:,.2f}") for name, usd in found.parts.items()]
    rows.append(("hot tier and tables", f"{found.redis_usd_month + found.dynamodb_usd_month:,.2f}"))
    rows.append(("total", f"{found.total_usd_month:,.2f}"))
    print_table(f"US dollars per month, preset {preset}, prices of {found.prices_of}", ("item", "USD"), rows, right=(1,))
    console().print(f"{found.usd_per_message * 1000:,.4f} USD per 1,000 messages; {found.nodes} nodes {found.node}")
    console().print(
        f"{(use.write_units + use.index_write_units) / 1e6:,.1f}M write units, {use.read_units / 1e6:,.1f}M read units, "
        f"{use.stored_gb + use.index_gb:,.1f} GB stored, {use.live_sessions:,.0f} live sessions in {use.hot_gb:,.2f} GB\n"
    )
    widest = max(abs(high - low) for low, high in varied.values()) or 1.0
    ordered = sorted(varied.items(), key=lambda entry: -abs(entry[1][1] - entry[1][0]))
    print_table(
        "Total with an input halved or doubled (cache-hit rate: 0.5 and 0.9)",
        ("input", "half: USD", "twice: USD", ""),
        [(name, f"{low:,.0f}", f"{high:,.0f}", "#" * round(_BAR * abs(high - low) / widest)) for name, (low, high) in ordered],
        right=(1, 2),
    )
    names = {"hot_gb": "hot GB", "stored_gb": "stored GB"}
    table = [
        (names.get(name, name.replace("_", " ")), f"{value:,.1f}" if isinstance(value, float) else value)
        for name, value in _plain(plan).items()
        if name != "limits"
    ]
    print_table("Capacity at the peak", ("quantity", "value"), table, right=(1,))
    for limit in plan.limits:
        console().print(f"limit: {limit}", markup=False)
    for assumption in ASSUMPTIONS:
        console().print(f"assumption: {assumption}", markup=False, style="dim")


def _print_differences(workload: Workload) -> None:
    rows = [(each.what, f"{each.paper:,.6g}", f"{each.measured:,.6g}", each.why) for each in differences(workload)]
    print_table(
        "Differences between the published design and this package",
        ("quantity", "paper", "measured", "reason"),
        rows,
        right=(1, 2),
    )
