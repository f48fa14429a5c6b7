"""Command ``bench``: measure the layer's time per turn on this machine and these stores."""

from __future__ import annotations

import time
import uuid
from dataclasses import asdict
from typing import Annotated

import typer
from strands import Agent

from strands_manga_memory.cli.options import Durable, Hot, Json, opened, settings_of
from strands_manga_memory.cli.output import advance, messages, print_json, print_table, progress
from strands_manga_memory.ops.stand_in import StandInModel
from strands_manga_memory.telemetry import RETURN, OperationStats, recorder

_DEADLINES = {"hot.load": 0.05, "durable.get": 0.05, "serialization": 0.01, "breaker.check": 0.001}
"""Hard deadlines in seconds, by operation."""


def bench(
    turns: Annotated[int, typer.Option(min=1, max=100_000, help="Number of turns.")] = 200,
    rate: Annotated[float, typer.Option(min=0.1, help="Most turns per second.")] = 50.0,
    sessions: Annotated[int, typer.Option(min=1, help="Number of conversations.")] = 10,
    size: Annotated[int, typer.Option(min=1, help="Bytes of each message.")] = 500,
    hot: Hot = None,
    durable: Durable = None,
    as_json: Json = False,
) -> None:
    """Hold conversations with a scripted model on these stores, and show the layer's share of each turn.

    The results depend on your machine and network. The conversations are deleted at the end. Benchmarks with fixed
    budgets are in the package's repository: ``python -m tests.benchmarks``.
    """
    memory = opened(settings_of(hot=hot, durable=durable).model_copy(update={"telemetry": True}))
    memory.durable.create_if_missing()
    recorder.stats()
    user = f"bench-{uuid.uuid4().hex}"
    text = ("manga " * (size // 6 + 1))[:size]
    model = StandInModel(text)
    made = [
        Agent(model=model, callback_handler=None, **memory.agent_kwargs(user_id=user, session_id=str(number)))
        for number in range(sessions)
    ]
    try:
        with progress("turns held") as shown:
            start = time.monotonic()
            for turn in range(turns):
                time.sleep(max(0.0, start + turn / rate - time.monotonic()))
                made[turn % sessions](text)
                advance(shown)
            seconds = time.monotonic() - start
        for agent in made:  # restore each conversation, as another process would
            Agent(
                model=model,
                callback_handler=None,
                **memory.agent_kwargs(user_id=user, session_id=str(made.index(agent)), agent_id=agent.agent_id),
            )
        stats = memory.stats()["operations"]
    finally:
        with messages.status("deleting the conversations"):
            memory.forget_user(user)
            memory.close()
    _show(stats, turns / seconds, as_json=as_json)


def _show(stats: dict[str, OperationStats], rate: float, *, as_json: bool) -> None:
    if as_json:
        print_json({"turns_a_second": round(rate, 1), "operations": {name: asdict(each) for name, each in stats.items()}})
        return
    rows = []
    for name, each in stats.items():
        if name == RETURN.name:  # gaps between scripted turns are meaningless
            continue
        values = [f"{1000 * value:,.2f}" for value in (each.p50, each.p95, each.p99, each.longest)]
        deadline = _DEADLINES.get(name)
        late = "" if deadline is None else f"{1000 * deadline:g}: {'met' if each.p99 <= deadline else 'MISSED'}"
        rows.append((name, f"{each.count:,}", *values, late))
    turn = stats["turn"]
    rows.append(("layer, mean of a turn", f"{turn.count:,}", f"{1000 * turn.sums['layer'] / turn.count:,.2f}", "", "", "", ""))
    print_table(
        f"{rate:,.1f} turns per second, times in milliseconds",
        ("operation", "count", "p50", "p95", "p99", "max", "deadline"),
        rows,
        right=(1, 2, 3, 4, 5),
    )
