"""A process that causes all telemetry and prints what an OpenTelemetry SDK received."""

import asyncio
import json
import sys
from contextlib import suppress
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from strands import Agent, tool

from strands_manga_memory import BreakerPolicy, ConversationScope, MangaMemory, guard_tool
from strands_manga_memory.squad import BusyError, ConversationTurns
from strands_manga_memory.testing import ScriptedModel

CANARY = "zanzibar-canary"


@tool
def sick() -> str:
    """Fail."""
    raise RuntimeError(CANARY)


@tool
def known(of: str) -> str:
    """Say what is known."""
    return CANARY


def trouble(memory: MangaMemory) -> None:
    """Go round in circles, and wait for oneself."""
    calls: list[Any] = [
        [{"toolUse": {"toolUseId": f"k{n}", "name": "known", "input": {"of": CANARY}}}]
        for n in range(3)
    ]
    agent = Agent(
        model=ScriptedModel([*calls, "done", "ok"]),
        tools=[known],
        callback_handler=None,
        **memory.agent_kwargs(user_id="secret-user", session_id="s3", task_state=True),
    )
    agent("what is known?")
    agent("and now?")
    asyncio.run(_waits_for_itself(ConversationScope("secret-user", "s3")))


def two_writers(memory: MangaMemory) -> None:
    """Say something in one conversation from two agents that were both restored before."""
    both = [
        Agent(
            model=ScriptedModel(lambda _: CANARY),
            callback_handler=None,
            **memory.agent_kwargs(user_id="secret-user", session_id="s4"),
        )
        for _ in range(2)
    ]
    for agent in (*both, both[0]):
        agent("hello")


async def _waits_for_itself(scope: ConversationScope) -> None:
    turns = ConversationTurns()
    async with turns.wait_for_turn(scope, wait=5):
        with suppress(BusyError):
            async with turns.wait_for_turn(scope, wait=5):
                pass


def main(folder: str) -> None:
    reader, spans, tracing = InMemoryMetricReader(), InMemorySpanExporter(), TracerProvider()
    metrics.set_meter_provider(MeterProvider(metric_readers=[reader]))
    tracing.add_span_processor(SimpleSpanProcessor(spans))
    trace.set_tracer_provider(tracing)
    memory = MangaMemory.open(durable=f"sqlite:///{folder}/s.db", memories=True)
    guarded = guard_tool(sick, BreakerPolicy(failures=1))
    call = {"toolUse": {"toolUseId": "t1", "name": "sick", "input": {}}}
    script = [f"{CANARY} noted. " * 60 for _ in range(8)]
    agent = Agent(
        model=ScriptedModel([[call], *script]),
        tools=[guarded],
        callback_handler=None,
        **memory.agent_kwargs(user_id="secret-user", session_id="secret-session", max_tokens=700),
    )
    for number in range(7):
        agent(f"My favourite genre is {CANARY} {number}.")
    memory.user("secret-user").recall(query=CANARY)
    memory.finalize(ConversationScope("secret-user", "secret-session"))
    long = Agent(
        model=ScriptedModel(lambda _: f"{CANARY} " * 20),
        callback_handler=None,
        **memory.agent_kwargs(user_id="secret-user", session_id="s2", history="summarize"),
    )
    for _ in range(24):
        long(f"Tell me of {CANARY}.")
    asyncio.run(asyncio.sleep(0))
    long.conversation_manager.finish(long)
    trouble(memory)
    two_writers(memory)
    Agent(  # reads for longer than it may
        model=ScriptedModel(),
        **memory.agent_kwargs(user_id="secret-user", session_id="s5", durable_deadline=1e-9),
    )
    stats = memory.stats()
    memory.close()
    data = json.loads(reader.get_metrics_data().to_json())
    ours = [
        metric
        for resource in data["resource_metrics"]
        for scope in resource["scope_metrics"]
        if scope["scope"]["name"] == "strands_manga_memory"
        for metric in scope["metrics"]
    ]
    every = spans.get_finished_spans()
    ids = {span.context.span_id: span.name for span in every}
    told = [
        {
            "name": span.name,
            "parent": ids.get(span.parent.span_id) if span.parent else None,
            "attributes": dict(span.attributes or {}),
            "seconds": (span.end_time - span.start_time) / 1e9,
        }
        for span in every
        if span.instrumentation_scope.name == "strands_manga_memory"
    ]
    print(
        json.dumps(
            {
                "metrics": ours,
                "spans": told,
                "operations": {name: each.count for name, each in stats["operations"].items()},
            }
        )
    )
    print(
        json.dumps(
            {name: value for name, value in stats.items() if name not in ("operations", "tools")}
        ),
        file=sys.stderr,
    )


if __name__ == "__main__":
    main(sys.argv[1])
