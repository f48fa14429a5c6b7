"""The closing table of a run, and the same as one JSON object."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from mangaassist.survival import BUDGET, Evidence

_BARS = "▁▂▃▄▅▆▇█"
_KINDS = {"unmatched": "other"}


def as_dict(evidence: Evidence, *, backend: str, model: str, token_unit: str) -> dict[str, Any]:
    """Return the result of a run for machines.

    ``round_trips_per_turn`` is the median of what a turn needs of the hot tier until its answer: 0 without a network, None if
    nobody could count. The other two figures per turn are means of everything, background work included.
    """
    return {
        "turns": evidence.turns,
        "max_tokens_seen": max(evidence.tokens, default=0),
        "budget": BUDGET,
        "restored_exactly": evidence.restored_exactly,
        "messages_lost": len(evidence.lost),
        "round_trips_per_turn": evidence.round_trips_per_turn(),
        "passed": evidence.passed,
        "backend": backend,
        "model": model,
        "token_unit": token_unit,
        "model_calls": len(evidence.tokens),
        "min_tokens_seen": min(evidence.tokens, default=0),
        "median_tokens_seen": round(median(evidence.tokens or [0])),
        "messages_doubled": evidence.doubled,
        "invalid_requests": evidence.invalid_requests,
        "log_messages": evidence.log_messages,
        "log_tokens": evidence.log_tokens,
        "kept_messages": evidence.kept_messages,
        "kept_tokens": evidence.kept_tokens,
        "kept_by_kind": {kind: {"kept": kept, "of": of} for kind, (kept, of) in evidence.kept_by_kind().items()},
        "hot_commands_per_turn": round(evidence.hot_trips / max(evidence.turns, 1), 2),
        "durable_requests_per_turn": round(evidence.durable_requests / max(evidence.turns, 1), 2),
        "tool_calls": evidence.tools,
        "restarts": [vars(restart) for restart in evidence.restarts],
    }


def print_json(result: dict[str, Any]) -> None:
    """Print the result as the last line of standard output."""
    print(json.dumps(result, ensure_ascii=False), flush=True)


def print_table(console: Console, evidence: Evidence, result: dict[str, Any]) -> None:
    """Print the result for people."""
    table = Table(title=f"MangaAssist, {result['backend']}, {result['model']} model", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    for name, value in _rows(evidence, result):
        table.add_row(name, value)
    console.print(table)


def sparkline(values: Sequence[int], top: int, width: int = 40) -> str:
    """Draw values from 0 to ``top`` as ``width`` bars at most; a bar that stands for several values shows their highest."""
    if not values:
        return ""
    width = min(width, len(values))
    edges = [round(index * len(values) / width) for index in range(width + 1)]
    peaks = [max(values[start:end]) for start, end in pairwise(edges)]
    return "".join(_BARS[min(len(_BARS) - 1, peak * len(_BARS) // (top + 1))] for peak in peaks)


def _rows(evidence: Evidence, result: dict[str, Any]) -> list[tuple[str, str]]:
    tools = ", ".join(f"{name} {count}" for name, count in sorted(evidence.tools.items())) or "none"
    if result["model"] == "local":
        tools += ": the local model cannot call tools"
    kinds = ", ".join(
        f"{_KINDS.get(kind, kind.replace('_', ' '))} {kept}/{of}" for kind, (kept, of) in evidence.kept_by_kind().items()
    )
    dropped = evidence.log_messages - evidence.kept_messages
    over = "[red]OVER BUDGET[/red]" if result["max_tokens_seen"] > BUDGET else "[green]within budget[/green]"
    return [
        ("turns", f"{result['turns']}, with {result['model_calls']} model calls"),
        ("tool calls", tools),
        (
            "tokens per call",
            f"min {result['min_tokens_seen']:,}  median {result['median_tokens_seen']:,}  max {result['max_tokens_seen']:,}"
            f"  of {BUDGET:,} {result['token_unit']}: {over}\n{sparkline(evidence.tokens, BUDGET)}",
        ),
        (
            "kept for the model",
            f"{evidence.kept_messages} messages, {evidence.kept_tokens:,} of {evidence.log_tokens:,} tokens; "
            f"{dropped} messages are in the log only\n{kinds}",
        ),
        ("restored exactly", "\n".join(_restart_line(restart) for restart in evidence.restarts)),
        ("messages lost", _verdict(result["messages_lost"]) + f" of {evidence.log_messages} in the log"),
        ("messages doubled", _verdict(result["messages_doubled"])),
        ("invalid requests", _verdict(len(evidence.invalid_requests)) + "".join(f"\n{p}" for p in evidence.invalid_requests)),
        ("round trips per turn", _round_trips(result)),
    ]


def _restart_line(restart: Any) -> str:
    answer = "[green]yes[/green]" if restart.exact else "[red]NO[/red] "
    return f"{answer} {restart.how} ({restart.messages} messages, {restart.seconds:.1f} s)"


def _verdict(count: int) -> str:
    return f"[{'red' if count else 'green'}]{count}[/]"


def _round_trips(result: dict[str, Any]) -> str:
    if result["backend"] == "embedded":
        return "0 over the network"
    hot, durable = result["round_trips_per_turn"], result["durable_requests_per_turn"]
    if hot is None:
        return f"hot tier not counted; durable tier {durable:g}"
    everything = f"hot tier {result['hot_commands_per_turn']:g}, durable tier {durable:g}"
    return f"hot tier {hot:g} until the answer\nwith background work: {everything}"
