"""summaries: facts that survive summaries, and the cost of summaries.

Facts are planted in a conversation of 200 turns, and searched for in the model's requests.
Summarizers are scripted: one drops each fact with probability .5, one invents, one refuses, one
copies. Strands' ``SummarizingConversationManager`` is measured with the same ones.
"""

import logging
from collections.abc import Sequence
from typing import Any

from strands import Agent
from strands.agent.conversation_manager import SummarizingConversationManager

from strands_manga_memory.conversation import (
    VerifiedSummarizingConversationManager,
    default_counter,
)
from strands_manga_memory.conversation.summary_record import record_of
from strands_manga_memory.testing import ScriptedModel
from tests.benchmarks import planted, progress

_CHECKED = (30, 80, 200)

BUDGETS: dict[str, str | float] = {
    **{
        f"{name}_preserved_at_{turn}_percent": "== 100"
        for name in planted.SUMMARIZERS
        for turn in _CHECKED
    },
    **{f"{name}_largest_summary_tokens": "<= 500" for name in planted.SUMMARIZERS},
    **{f"{name}_context_at_50_tokens": "<= 5000" for name in planted.SUMMARIZERS},
    **{f"{name}_invented_values": "== 0" for name in planted.SUMMARIZERS},
    **{f"{name}_superseded_told_as_current": "== 0" for name in planted.SUMMARIZERS},
}


def _count(messages: Sequence[Any]) -> int:
    return sum(map(default_counter().count, messages))


def _view(messages: Sequence[Any]) -> str:
    return "\n".join(block["text"] for m in messages for block in m["content"] if "text" in block)


# --- Planted facts --------------------------------------------------------------------------------


def _tokens_read(model: ScriptedModel) -> int:
    """Return the tokens that a scripted summarizer read, including the instructions."""
    prompts: list[Any] = [
        {"role": "user", "content": [{"text": request.system_prompt or ""}]}
        for request in model.requests
    ]
    return sum(_count(request.messages) for request in model.requests) + _count(prompts)


def _hold_conversation(manager: Any, aux: Any, name: str) -> tuple[dict[str, float], Agent, int]:
    """Hold the conversation; return the results at the checked turns."""
    turns = planted.TURNS
    chat = ScriptedModel(planted.answer, usage=_count)
    chat.update_config(
        context_window_limit=11_428
    )  # 70 % of it, where Strands' own manager begins, are 8,000
    agent = Agent(model=chat, aux_model=aux, conversation_manager=manager, callback_handler=None)
    rows: dict[str, float] = {}
    said = 0
    largest = 0
    for turn in progress(range(1, turns + 1), name):
        agent(planted.prompt(turn))
        said += _count(agent.messages[-2:])
        if isinstance(manager, VerifiedSummarizingConversationManager):
            manager.finish(agent, 600)
            largest = max([largest, *(_count([m]) for m in agent.messages if record_of(m))])
        if turn == 50:
            rows["context_at_50_tokens"] = _count(agent.messages)
        if turn in _CHECKED:
            view = _view(agent.messages)
            facts = planted.current(turn)
            rows[f"preserved_at_{turn}_percent"] = (
                100 * sum(planted.is_in(fact.value, view) for fact in facts) / len(facts)
            )
    if largest:
        summary = manager.summary(agent)
        view, prose = _view(agent.messages), summary.text if summary else ""
        old = [fact for fact in planted.current(turns) if fact.turn < turns - 3]
        in_prose = sum(planted.is_in(fact.value, prose) for fact in old)
        rows["in_prose_percent"] = 100 * in_prose / len(old)
        rows["appended_percent"] = 100 * sum(planted.is_in(fact.value, view) for fact in old) / len(
            old
        ) - 100 * in_prose / len(old)
        rows["largest_summary_tokens"] = largest
    rows["superseded_told_as_current"] = len(planted.stale_facts(_view(agent.messages)))
    rows["invented_values"] = sum(planted.is_in(v, _view(agent.messages)) for v in planted.INVENTED)
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
    return rows


def run() -> dict[str, float]:
    """Hold the conversations."""
    logging.getLogger("strands_manga_memory").setLevel(
        logging.ERROR
    )  # warnings that a history is long are no news here
    return _planted()
