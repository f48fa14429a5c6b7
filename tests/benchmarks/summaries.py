"""summaries: what survives summarizing, what it costs, and how often each stage of compaction is enough.

Facts are planted in a conversation of 200 turns and looked for in what the model is sent. Summarizers are scripted: one drops
each fact with probability .5, one invents, one refuses, one copies.
Strands' own ``SummarizingConversationManager`` runs beside ours
with the same ones. ``MANGA_MEMORY_LOCAL_MODEL=1`` adds a small local model (it takes minutes), and
``MANGA_MEMORY_STREAMS=<folder>`` recorded task dialogues with gold slot values, one ``<name>.jsonl.gz`` each.
"""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strands import Agent
from strands.agent.conversation_manager import SummarizingConversationManager
from strands.hooks import BeforeModelCallEvent
from strands.tools import PythonAgentTool

from strands_manga_memory.conversation import (
    ImportanceWeightedConversationManager,
    MicroCompaction,
    Reactive,
    Snip,
    TieredCompactionConversationManager,
    ToolResultCap,
    VerifiedSummarizingConversationManager,
    VerifiedSummary,
    default_counter,
)
from strands_manga_memory.conversation.summary import record_of
from strands_manga_memory.language import RuleSlotExtractor, normalized
from strands_manga_memory.language.merging import merged
from strands_manga_memory.language.slots import SlotKind
from strands_manga_memory.testing import ScriptedModel
from tests.benchmarks import planted, progress, seconds_queued, text

_CHECKED = (30, 80, 200)
_STREAMS = os.environ.get("MANGA_MEMORY_STREAMS", "")
_SETS = ("sgd", "multiwoz", "tau5") if _STREAMS else ()
_LOCAL = bool(os.environ.get("MANGA_MEMORY_LOCAL_MODEL"))
_NAMES = [*planted.SUMMARIZERS, *(["local_model"] if _LOCAL else [])]

BUDGETS: dict[str, str | float] = {
    **{f"{name}_preserved_at_{turn}_percent": "== 100" for name in _NAMES for turn in _CHECKED},
    **{f"{name}_largest_summary_tokens": "<= 500" for name in _NAMES},
    **{f"{name}_context_at_50_tokens": "<= 5000" for name in _NAMES},
    **{f"{name}_invented_values": "== 0" for name in _NAMES},
    "longest_stall_with_a_1_s_summarizer_ms": "< 10",
    "rules_at_200_turns_ms": "< 10",
    **{f"{name}_{what}": ">= 0.98" for name in _SETS for what in ("values_findable", "superseded_not_current")},
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


def _spent(model: ScriptedModel) -> int:
    """Tokens a scripted summarizer read: what it was sent, with the instructions."""
    prompts: list[Any] = [{"role": "user", "content": [{"text": request.system_prompt or ""}]} for request in model.requests]
    return sum(_count(request.messages) for request in model.requests) + _count(prompts)


def _held(manager: Any, aux: Any, name: str, turns: int = planted.TURNS) -> tuple[dict[str, float], Agent, int]:
    """Hold the conversation; return what was found at the turns that are checked."""
    chat = ScriptedModel(planted.answer, usage=_count)
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
            found, _, said = _held(manager, aux, f"{label}, {planted.TURNS} turns")
            rows |= {f"{label}_{row}": value for row, value in found.items()}
            rows[f"{label}_summarizing_tokens_per_1000"] = 1000 * _spent(aux) / said
    if _LOCAL:
        found, _, _ = _held(
            VerifiedSummarizingConversationManager(model=_local_model(), source_tokens=3_000), None, "local model"
        )
        rows |= {f"local_model_{row}": value for row, value in found.items()}
    return rows


def _local_model() -> Any:
    import sys

    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
    from mangaassist.model import open_model

    return open_model("local")


# --- Speed ------------------------------------------------------------------------------------------------------------------


def _stall_ms() -> float:
    """Return how long an event loop stands still at most while a summarizer takes a second beside it."""
    manager = VerifiedSummarizingConversationManager(trigger_tokens=3_000, trigger_turns=8)
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
                start, queued = time.perf_counter(), seconds_queued()
                await asyncio.sleep(0.001)
                longest = max(longest, time.perf_counter() - start - 0.001 - (seconds_queued() - queued))

        watcher = asyncio.create_task(watch())
        for turn in progress(range(8, 40), "turns beside a summarizer of 1 s"):
            await agent.invoke_async(planted.prompt(turn))
        watcher.cancel()
        return 1000 * longest

    longest = asyncio.run(watched())
    if not manager.stats().swapped:
        raise RuntimeError("no summary was swapped in while the loop was watched")
    return longest


def _rules_ms() -> float:
    """Return the CPU time of all that rules do at turn 200 for one more summary: find, merge and lay out the slots."""
    manager = VerifiedSummarizingConversationManager(model=lambda _: "They talked about books.")
    _, agent, _ = _held(manager, None, "for the time of the rules")
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
    for _ in range(5):
        start = time.thread_time()
        merged(RuleSlotExtractor().extract(fresh), earlier=summary.slots)
        manager._head(summary, agent.messages, 0)
        best = min(best, time.thread_time() - start)
    return 1000 * best


# --- Recorded dialogues -----------------------------------------------------------------------------------------------------

_NO_VALUES = frozenset({"true", "false", "yes", "no", "dontcare", "none"})
"""Labels of annotators, not words of users."""


def _streams(name: str) -> Iterator[dict[str, Any]]:
    with gzip.open(Path(_STREAMS) / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            stream = json.loads(line)
            for at, message in enumerate(stream["messages"]):
                message["tracking_id"] = f"m{at}"
            yield stream


def _streamed(manager: Any, stream: dict[str, Any]) -> tuple[Agent, int]:
    """Put a recording through a manager, message by message; return the agent and the largest request."""
    agent = Agent(model=ScriptedModel(), conversation_manager=manager, callback_handler=None)
    largest = 0
    for message in stream["messages"]:
        agent.messages.append(message)
        if message["role"] == "user":
            event = BeforeModelCallEvent(agent=agent, invocation_state={}, projected_input_tokens=0)
            asyncio.run(agent.hooks.invoke_callbacks_async(event))
            largest = max(largest, _count(agent.messages))
        elif not any("toolUse" in block for block in message["content"]):
            manager.apply_management(agent)
            if isinstance(manager, VerifiedSummarizingConversationManager):
                manager.finish(agent)
    return agent, largest


def _copied(stream: dict[str, Any]) -> dict[str, Any]:
    return {**stream, "messages": [dict(message) for message in stream["messages"]]}


def _everything(messages: Sequence[Any]) -> str:
    return json.dumps([message["content"] for message in messages], ensure_ascii=False).lower()


def _superseded(stream: dict[str, Any]) -> Iterator[tuple[int, str]]:
    """Yield what a user took back: a value, of the same form as the one said in a correction of the same dialogue after it."""
    corrections = {at for query in stream["queries"] if query["kind"] == "correction" for at in query["gold"]}
    informed: dict[Any, list[tuple[int, str]]] = {}
    for query in stream["queries"]:
        if query.get("value"):
            informed.setdefault(tuple(query["scope"]), []).append((query["gold"][0], query["value"]))
    for said in informed.values():
        for (first, old), (second, new) in itertools.combinations(said, 2):
            same_form = _form(old) == _form(new) and normalized(old) != normalized(new)
            told_again = any(at >= second and normalized(value) == normalized(old) for at, value in said)
            between = any(first < at < second and _form(value) == _form(old) for at, value in said)
            if same_form and first < second and second in corrections and not told_again and not between:
                yield first, old


def _end(stream: dict[str, Any], at: int) -> int:
    """Return where the dialogue ends that a message belongs to."""
    return next(query["scope"][1] for query in stream["queries"] if query["scope"][0] <= at < query["scope"][1])


def _form(value: str) -> str:
    """Numbers, times and dates can take each other's place; a word may be an answer to any question."""
    plain = normalized(value)
    if re.fullmatch(r"\d{1,2}", plain):
        return "number"
    if re.search(r"\d{1,2}:\d{2}|\d ?[ap]m|morning|evening|afternoon", plain):
        return "time"
    return "date" if re.search(r"day|march|\d(?:st|nd|rd|th)", plain) else plain


def _recorded(name: str) -> dict[str, float]:
    found: dict[str, list[int]] = {
        "values_findable": [],
        "values_findable_by_importance": [],
        "values_findable_with_defaults": [],
        "superseded_gone": [],
        "superseded_not_current": [],
    }
    largest = 0
    for stream in progress(list(_streams(name)), f"recorded dialogues, {name}"):
        said = [
            query["value"].lower() for query in stream["queries"] if (query.get("value") or "yes").lower() not in _NO_VALUES
        ]
        old = set(_superseded(stream))
        gone = {value.lower() for _, value in old}
        wanted = [value for value in said if value not in gone]
        ours = VerifiedSummarizingConversationManager(
            4_096, hard_tokens=4_096, model=lambda _: "The user asked for several services."
        )
        agent, most = _streamed(ours, _copied(stream))
        largest = max(largest, most)
        view = _everything(agent.messages)
        found["values_findable"] += [value in view for value in wanted]
        summary = ours.summary(agent)
        slots = summary.slots if summary else ()
        for at, value in old:
            own = [normalized(slot.text) for slot in slots if slot.source == f"m{at}"]
            is_gone = not any(re.search(rf"\b{re.escape(normalized(value))}\b", text) for text in own)
            dialogue = {f"m{number}" for number in range(at + 1, _end(stream, at))}
            is_corrected = any(slot.source in dialogue and slot.kind is SlotKind.CORRECTION for slot in slots)
            found["superseded_gone"].append(is_gone)
            found["superseded_not_current"].append(is_gone or is_corrected)
        agent, _ = _streamed(
            VerifiedSummarizingConversationManager(model=lambda _: "The user asked for services."), _copied(stream)
        )
        found["values_findable_with_defaults"] += [value in _everything(agent.messages) for value in wanted]
        agent, _ = _streamed(ImportanceWeightedConversationManager(4_096), stream)
        found["values_findable_by_importance"] += [value in _everything(agent.messages) for value in wanted]
    rows = {f"{name}_{row}": sum(hits) / len(hits) if hits else 1.0 for row, hits in found.items()}
    return {
        **rows,
        f"{name}_superseded_values": len(found["superseded_not_current"]),
        f"{name}_largest_request_tokens": largest,
    }


# --- Tiered compaction ------------------------------------------------------------------------------------------------------


def _stages() -> dict[str, float]:
    """Return how often each stage was enough, in a conversation full of tool results and a window of 32,000 tokens."""
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
    rows = _planted()
    rows["longest_stall_with_a_1_s_summarizer_ms"] = _stall_ms()
    rows["rules_at_200_turns_ms"] = _rules_ms()
    for name in _SETS:
        rows |= _recorded(name)
    return rows | _stages()
