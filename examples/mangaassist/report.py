"""Closing table of a run, and its result as one JSON object."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from mangaassist.survival import BUDGET, Evidence

_BARS = "▁▂▃▄▅▆▇█"
_KINDS = {"unmatched": "other"}


def as_dict(
    evidence: Evidence,
    *,
    backend: str,
    model: str,
    token_unit: str,
    strands: Evidence | None = None,
) -> dict[str, Any]:
    """Return the result of a run as a JSON object.

    ``strands`` is the same conversation with Strands' own memory.

    ``round_trips_per_turn`` is the median of a turn's round trips to the hot tier until its answer:
    0 without a network, None if not counted. The other two figures per turn are means, including
    background work.
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
        "messages_doubled": evidence.duplicates,
        "invalid_requests": evidence.invalid_requests,
        "log_messages": evidence.log_messages,
        "log_tokens": evidence.log_tokens,
        "kept_messages": evidence.kept_messages,
        "kept_tokens": evidence.kept_tokens,
        "kept_by_kind": {
            kind: {"kept": kept, "of": of} for kind, (kept, of) in evidence.kept_by_kind().items()
        },
        "hot_commands_per_turn": round(evidence.hot_trips / max(evidence.turns, 1), 2),
        "durable_requests_per_turn": round(evidence.durable_requests / max(evidence.turns, 1), 2),
        "tool_calls": evidence.tools,
        "restarts": [vars(restart) for restart in evidence.restarts],
        "facts_stated": len(evidence.facts),
        "facts_known": sum(evidence.facts.values()),
        "strands": (
            strands
            and {
                "median_tokens_seen": round(median(strands.tokens or [0])),
                "max_tokens_seen": max(strands.tokens, default=0),
                "facts_known": sum(strands.facts.values()),
                "messages_lost": len(strands.lost),
                "invalid_requests": strands.invalid_requests,
                "restarts": [vars(restart) for restart in strands.restarts],
            }
        ),
    }


def print_json(result: dict[str, Any]) -> None:
    """Print the result as the last line of standard output."""
    print(json.dumps(result, ensure_ascii=False), flush=True)


def print_table(console: Console, evidence: Evidence, result: dict[str, Any]) -> None:
    """Print the result as a table."""
    strands = result["strands"]
    table = Table(
        title=f"MangaAssist, {result['backend']}, {result['model']} model", title_justify="left"
    )
    table.add_column(style="bold")
    table.add_column("strands_manga_memory")
    if strands:
        table.add_column("Strands' sliding window and file session")
        for name, own, other in _compared(result, strands):
            table.add_row(name, own, other)
    else:
        for name, own, _ in _compared(result, result):
            table.add_row(name, own)
    console.print(table)
    for name, value in _details(evidence, result):
        console.print(f"[bold]{name}[/bold]: {value}")


def sparkline(values: Sequence[int], top: int, width: int = 40) -> str:
    """Draw values from 0 to ``top`` as at most ``width`` bars, by the highest of each bar."""
    if not values:
        return ""
    width = min(width, len(values))
    edges = [round(index * len(values) / width) for index in range(width + 1)]
    peaks = [max(values[start:end]) for start, end in pairwise(edges)]
    return "".join(_BARS[min(len(_BARS) - 1, peak * len(_BARS) // (top + 1))] for peak in peaks)


def _compared(result: dict[str, Any], strands: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield rows of the table: name, and the figures of both memories."""
    sides = (result, strands)
    stated = result["facts_stated"]
    yield (
        "facts in the request, of those stated",
        *(f"{side['facts_known']} of {stated}" for side in sides),
    )
    yield ("tokens per request, median", *(f"{side['median_tokens_seen']:,}" for side in sides))
    yield ("tokens per request, most", *(f"{side['max_tokens_seen']:,}" for side in sides))
    yield ("messages lost", *(_verdict(side["messages_lost"]) for side in sides))
    yield (
        "malformed requests: roles or tool results",
        *(_verdict(len(side["invalid_requests"])) for side in sides),
    )
    restarts = zip(result["restarts"], strands["restarts"], strict=False)
    for own, other in restarts:
        yield (f"restored, {own['how']}", _restart_line(own), _restart_line(other))


def _details(evidence: Evidence, result: dict[str, Any]) -> Iterator[tuple[str, str]]:
    tools = ", ".join(f"{name} {count}" for name, count in sorted(evidence.tools.items())) or "none"
    if result["model"] == "local":
        tools += ": the local model cannot call tools"
    kinds = ", ".join(
        f"{_KINDS.get(kind, kind.replace('_', ' '))} {kept}/{of}"
        for kind, (kept, of) in evidence.kept_by_kind().items()
    )
    dropped = evidence.log_messages - evidence.kept_messages
    over = (
        "[red]OVER BUDGET[/red]"
        if result["max_tokens_seen"] > BUDGET
        else "[green]within budget[/green]"
    )
    yield "turns", f"{result['turns']}, with {result['model_calls']} model calls; tools: {tools}"
    yield (
        "budget",
        f"{BUDGET:,} {result['token_unit']}: {over} {sparkline(evidence.tokens, BUDGET)}",
    )
    yield (
        "in view",
        (
            f"{evidence.kept_messages} messages, {evidence.kept_tokens:,} of"
            f" {evidence.log_tokens:,} tokens; {dropped} messages are in the log only; by kind:"
            f" {kinds}"
        ),
    )
    yield "messages doubled", _verdict(result["messages_doubled"])
    yield from (("refused", problem) for problem in evidence.invalid_requests)
    yield "round trips per turn", _round_trips(result)


def _restart_line(restart: dict[str, Any]) -> str:
    answer = "[green]exactly[/green]" if restart["exact"] else "[red]not exactly[/red]"
    return f"{answer}: {restart['messages']} messages in {1000 * restart['seconds']:.0f} ms"


def _verdict(count: int) -> str:
    return f"[{'red' if count else 'green'}]{count}[/]"


def _round_trips(result: dict[str, Any]) -> str:
    if result["backend"] == "embedded":
        return "0 over the network"
    hot, durable = result["round_trips_per_turn"], result["durable_requests_per_turn"]
    if hot is None:
        return f"hot tier not counted; durable tier {durable:g}"
    everything = f"hot tier {result['hot_commands_per_turn']:g}, durable tier {durable:g}"
    return f"hot tier {hot:g} until the answer; with background work: {everything}"
