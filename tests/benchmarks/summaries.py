"""summaries: facts that survive summaries, cost of summaries, and how often each stage of compaction is enough.

Facts are planted in a conversation of 200 turns, and searched for in the model's requests. Summarizers are scripted: one drops
each fact with probability .5, one invents, one refuses, one copies. Strands' ``SummarizingConversationManager`` is measured
with the same ones. ``MANGA_MEMORY_LOCAL_MODEL=1`` adds a small local model (it takes minutes), and ``--kit FOLDER`` the kit's
recorded task dialogues with gold slot values; see ``recorded``.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strands import Agent
from strands.agent.conversation_manager import NullConversationManager, SummarizingConversationManager
from strands.tools import PythonAgentTool

from strands_manga_memory.conversation import (
    MicroCompaction,
    Reactive,
    Snip,
    SummarySizes,
    SummaryTrigger,
    TieredCompactionConversationManager,
    ToolResultCap,
    VerifiedSummarizingConversationManager,
    VerifiedSummary,
    default_counter,
)
from strands_manga_memory.conversation.summary_record import record_of
from strands_manga_memory.language import RuleFactExtractor
from strands_manga_memory.language.summary_facts import merge_facts
from strands_manga_memory.testing import ScriptedModel
from tests.benchmarks import planted, progress, recorded, reset_texts, text, threads_queued

_CHECKED = (30, 80, 200)
KIT: Path | None = None
"""Folder of the kit; set by the command line."""

_LOCAL = bool(os.environ.get("MANGA_MEMORY_LOCAL_MODEL"))
_NAMES = [*planted.SUMMARIZERS, *(["local_model"] if _LOCAL else [])]

BUDGETS: dict[str, str | float] = {
    **{f"{name}_preserved_at_{turn}_percent": "== 100" for name in _NAMES for turn in _CHECKED},
    **{f"{name}_largest_summary_tokens": "<= 500" for name in _NAMES},
    **{f"{name}_context_at_50_tokens": "<= 5000" for name in _NAMES},
    **{f"{name}_invented_values": "== 0" for name in _NAMES},
    **{f"{name}_superseded_told_as_current": "== 0" for name in _NAMES},
    "longest_stall_with_a_1_s_summarizer_ms": "< 10",
    "rules_at_200_turns_ms": "< 10",
}
_KIT_BUDGETS = {
    **{f"{name}_values_findable": ">= 0.98" for name in recorded.SETS},
    **{f"{name}_superseded_not_current": ">= 0.98" for name in ("sgd", "multiwoz")},  # in tau5 nothing is taken back
}

Reply = Callable[[Any], str]


def _count(messages: Sequence[Any]) -> int:
    return sum(map(default_counter().count, messages))


def _view(messages: Sequence[Any]) -> str:
    return "\n".join(block["text"] for message in messages for block in message["content"] if "text" in block)


# --- Planted facts ----------------------------------------------------------------------------------------------------------


@dataclass
class _Outcome:
    rows: dict[str, float]
    conversation_tokens: int = 0
    summarizer_tokens: int = 0


def _tokens_read(model: ScriptedModel) -> int:
    """Return the tokens that a scripted summarizer read, including the instructions."""
    prompts: list[Any] = [{"role": "user", "content": [{"text": request.system_prompt or ""}]} for request in model.requests]
    return sum(_count(request.messages) for request in model.requests) + _count(prompts)


def _hold_conversation(
    manager: Any, aux: Any, name: str, *, answer: Any = planted.answer
) -> tuple[dict[str, float], Agent, int]:
    """Hold the conversation; return the results at the checked turns."""
    turns = planted.TURNS
    chat = ScriptedModel(answer, usage=_count)
    chat.update_config(context_window_limit=11_428)  # 70 % of it, where Strands' own manager begins, are 8,000
    agent = Agent(model=chat, aux_model=aux, conversation_manager=manager, callback_handler=None)
    rows: dict[str, float] = {}
    said = 0
    largest = 0
    for turn in progress(range(1, turns + 1), name):
        agent(planted.prompt(turn))
        said += _count(agent.messages[-2:])
        if isinstance(manager, VerifiedSummarizingConversationManager):
            manager.finish(agent, 600)
            largest = max([largest, *(_count([message]) for message in agent.messages if record_of(message))])
        if turn == 50:
            rows["context_at_50_tokens"] = _count(agent.messages)
        if turn in _CHECKED:
            view = _view(agent.messages)
            facts = planted.current(turn)
            rows[f"preserved_at_{turn}_percent"] = 100 * sum(planted.is_in(fact.value, view) for fact in facts) / len(facts)
    if largest:
        summary = manager.summary(agent)
        view, prose = _view(agent.messages), summary.text if summary else ""
        old = [fact for fact in planted.current(turns) if fact.turn < turns - 3]
        in_prose = sum(planted.is_in(fact.value, prose) for fact in old)
        rows["in_prose_percent"] = 100 * in_prose / len(old)
        rows["appended_percent"] = 100 * sum(planted.is_in(fact.value, view) for fact in old) / len(old) - 100 * in_prose / len(
            old
        )
        rows["largest_summary_tokens"] = largest
    rows["superseded_told_as_current"] = len(planted.stale_facts(_view(agent.messages)))
    rows["invented_values"] = sum(planted.is_in(value, _view(agent.messages)) for value in planted.INVENTED)
    return rows, agent, said


def _planted() -> dict[str, float]:
    rows: dict[str, float] = {}
    for name, made in planted.SUMMARIZERS.items():
        for label, manager in (
            (name, VerifiedSummarizingConversationManager()),
            (f"strands_{name}", SummarizingConversationManager(proactive_compression=True)),
        ):
            aux = ScriptedModel(made())
            found, _, said = _hold_conversation(manager, aux, f"{label}, {planted.TURNS} turns")
            rows |= {f"{label}_{row}": value for row, value in found.items()}
            rows[f"{label}_summarizing_tokens_per_1000"] = 1000 * _tokens_read(aux) / said
    if _LOCAL:
        rows |= {f"local_model_{row}": value for row, value in _with_local_model().items()}
    return rows


def _with_local_model() -> dict[str, float]:
    """Summarize a short conversation with a model of 135 million parameters, which reads 75 tokens per second on one core."""
    import sys

    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
    from mangaassist.model import open_model

    model: Any = open_model("local")
    model.update_config(params={**model.get_config()["params"], "max_tokens": _LOCAL_ANSWER_TOKENS})
    manager = VerifiedSummarizingConversationManager(model=model, sizes=SummarySizes(source_tokens=1_200))
    answer = "Yes, we have it. It is a quiet story with fine drawings."
    rows, _, said = _hold_conversation(manager, None, f"a small local model, {planted.TURNS} turns", answer=lambda _: answer)
    stats = manager.stats()
    return {
        **rows,
        "summarizing_tokens_per_1000": 1000 * stats.tokens_spent / said,
        "summaries": stats.swapped,
        "summaries_without_usable_prose": stats.failed,
        "asked": stats.attempts,
    }


_LOCAL_ANSWER_TOKENS = 64
"""Most tokens of an answer. A small model does not stop by itself, and a summary that is too long is refused."""


# --- Speed ------------------------------------------------------------------------------------------------------------------


def _stalls_ms() -> dict[str, float]:
    """Return the longest block of an event loop during a summary that takes a second, and without summaries."""
    with_summaries, without = [], []
    for _ in range(_STALL_RUNS):  # the best counts: what the package does on the loop, it does each time
        manager = VerifiedSummarizingConversationManager(SummaryTrigger(tokens=3_000, turns=8))
        with_summaries.append(_stall_ms(manager))
        if not manager.stats().swapped:
            raise RuntimeError("no summary was swapped in while the loop was watched")
        without.append(_stall_ms(NullConversationManager()))
    return {
        "longest_stall_with_a_1_s_summarizer_ms": min(with_summaries),
        "longest_stall_without_summaries_ms": min(without),
    }


_STALL_RUNS = 3


def _stall_ms(manager: Any) -> float:
    aux = ScriptedModel(planted.Dropping(0.5), delay=1.0)
    agent = Agent(
        model=ScriptedModel(planted.answer, delay=0.2), aux_model=aux, conversation_manager=manager, callback_handler=None
    )
    for turn in range(1, 8):
        agent(planted.prompt(turn))

    async def watched() -> float:
        longest = 0.0

        async def watch() -> None:
            nonlocal longest
            while True:
                queued, start = threads_queued(), time.perf_counter()
                await asyncio.sleep(0.001)
                stalled = time.perf_counter() - start - 0.001
                if stalled > longest:
                    # Not counted is what the machine did meanwhile: of the threads, the longest time one could have run.
                    after = threads_queued()
                    stalled -= max((after[thread] - queued[thread] for thread in after.keys() & queued), default=0.0)
                longest = max(longest, stalled)

        watcher = asyncio.create_task(watch())
        for turn in progress(range(8, 40), f"turns with {type(manager).__name__}"):
            await agent.invoke_async(planted.prompt(turn))
        watcher.cancel()
        return 1000 * longest

    gc.collect()
    gc.freeze()  # a full collection takes 15 ms and more of what was there before, whoever happens to trigger it
    try:
        return asyncio.run(watched())
    finally:
        gc.unfreeze()


def _rules_ms() -> float:
    """Return the CPU time of a summary by rules at turn 200: find, merge and lay out the slots of 20 turns."""
    manager = VerifiedSummarizingConversationManager(model=lambda _: "They talked about books.")
    _, agent, _ = _hold_conversation(manager, None, "for the time of the rules")
    summary = manager.summary(agent)
    if summary is None:
        raise RuntimeError("there is no summary after 200 turns")
    fresh: list[Any] = []
    for turn in range(201, 221):
        fresh += [
            {"role": "user", "content": [{"text": planted.prompt(turn)}], "tracking_id": f"u{turn}"},
            {"role": "assistant", "content": [{"text": planted.answer(None)}], "tracking_id": f"a{turn}"},
        ]
    best = 1e9
    for _ in range(20):
        start = time.thread_time()
        merge_facts(RuleFactExtractor().extract(fresh), earlier=summary.slots)
        manager._head(summary, agent.messages, 0, room=4_096)
        best = min(best, time.thread_time() - start)
    return 1000 * best


# --- Tiered compaction ------------------------------------------------------------------------------------------------------


def _stages() -> dict[str, float]:
    """Return how often each stage was enough, in a conversation full of tool results and a window of 32,000 tokens."""
    reset_texts()  # the same conversation, whatever was measured before
    sizes = itertools.cycle((300, 3_000, 14_000, 600, 9_000, 40_000))

    def search(tool_use: Any, **_: Any) -> Any:
        return {"toolUseId": tool_use["toolUseId"], "status": "success", "content": [{"text": text(next(sizes))}]}

    numbers = itertools.count()

    def reply(messages: Any) -> Any:
        if any("toolResult" in block for block in messages[-1]["content"]):
            return planted.answer(messages)
        use = {"toolUseId": f"call-{next(numbers)}", "name": "search", "input": {"query": text(40)}}
        return [{"toolUse": use}]

    stage = VerifiedSummary(model=lambda _: "They looked for books and talked about them.")
    manager = TieredCompactionConversationManager(
        [ToolResultCap(), Snip(), MicroCompaction(), stage, Reactive()], window=32_000
    )
    spec: Any = {"name": "search", "description": "search", "inputSchema": {"json": {"type": "object", "properties": {}}}}
    agent = Agent(
        model=ScriptedModel(reply, usage=lambda _: 0),
        tools=[PythonAgentTool("search", spec, search)],
        conversation_manager=manager,
        callback_handler=None,
    )
    for turn in progress(range(1, 121), "a conversation full of tool results"):
        agent(planted.prompt(turn))
        stage.manager.finish(agent)
    stats = manager.stats()
    rows: dict[str, float] = {"compactions_of_a_tool_heavy_conversation": stats.compactions}
    for name, one in stats.stages.items():
        label = name.replace(" ", "_").replace("-", "_")
        rows |= {f"stage_{label}_runs": one.runs, f"stage_{label}_enough": one.enough, f"stage_{label}_freed_tokens": one.freed}
    return rows


def run() -> dict[str, float]:
    """Hold the conversations."""
    logging.getLogger("strands_manga_memory").setLevel(logging.ERROR)  # warnings that a history is long are no news here
    rows = _planted()
    rows |= _stalls_ms()
    rows["rules_at_200_turns_ms"] = _rules_ms()
    if KIT is not None:
        BUDGETS.update(_KIT_BUDGETS)
        rows |= recorded.run(KIT / "data" / "dev")
    return rows | _stages()
