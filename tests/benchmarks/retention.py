"""retention: what of a conversation survives trimming, and what recall brings back.

With ``--kit FOLDER`` the benchmark kit in that folder is run on its recorded conversations, message by message, and with recall
through real agents; then each signal is switched off in turn, on the conversations as a whole. That takes some twenty minutes.
Without the kit, a conversation made of the shop talk of the tests is used.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from strands import Agent
from strands.types.content import Message

from strands_manga_memory.conversation import (
    HistoryRecall,
    ImportanceWeightedConversationManager,
    SignalWeights,
    default_counter,
)
from strands_manga_memory.messages import content_fingerprint
from strands_manga_memory.testing import ScriptedModel
from tests.benchmarks import progress
from tests.unit.language.shop_talk import ACTS, PARAPHRASES

KIT: Path | None = None
"""The folder of the kit; set by the command line."""

PLOT: Path | None = None
"""Where to write recall against budget as PNG; needs the kit and matplotlib."""

BUDGETS: dict[str, Any] = {"preferences_kept": ">= 0.9", "answers_in_view": ">= 0.9", "largest_request_in_tokens": "<= 4096"}

_KIT_BUDGETS = {
    "locomo_recall": ">= 0.404",
    "prefdaily_recall": ">= 0.93",
    "sgd_recall": ">= 0.93",
    "sgd_tool_support": ">= 0.77",
    "multiwoz_recall": ">= 0.93",
    "tau5_recall": ">= 0.98",
    "tau5_tool_support": ">= 0.985",
    "locomo_in_view_with_recall": ">= 0.86",
    "prefdaily_in_view_with_recall": ">= 0.95",
    "sgd_sent_with_recall_over_kept_without": ">= 0.99",
    "multiwoz_sent_with_recall_over_kept_without": ">= 0.99",
    "tau5_sent_with_recall_over_kept_without": ">= 0.99",
}
_SETS = ("locomo", "prefdaily", "sgd", "multiwoz", "tau5")
_LABELS = {
    "locomo": "LoCoMo",
    "prefdaily": "PrefEval in small talk",
    "sgd": "SGD",
    "multiwoz": "MultiWOZ",
    "tau5": "tau-bench, five in a row",
    "fifo": "drop the oldest",
    "user-first": "assistant and tools first",
    "shortest": "keep the shortest",
    "tfidf": "tf-idf",
    "hybrid": "tf-idf, role and keywords",
    "ours": "this package",
}
_WEIGHTS = "RETENTION_WEIGHTS"
_FILLER = 600


class _KitCounter:
    """Counts as the kit does."""

    exact = True

    def count(self, message: Message) -> int:
        from retention.tokens import count  # type: ignore[import-not-found]

        return int(count(message))


def _count_anew() -> None:
    """Let the kit know a content by what it says.

    It knows one by its address, which Python gives to another list when a message is shortened again.
    """
    from retention.tokens import Counter, count  # type: ignore[import-not-found]

    known: dict[tuple[str | None, int], int] = {}

    def counted(_: object, message: Message) -> int:
        key = message.get("tracking_id"), content_fingerprint(message)
        if key not in known:
            known[key] = int(count(message))
        return known[key]

    Counter.__call__ = counted


def manager(budget: int) -> ImportanceWeightedConversationManager:
    """Return a manager for the kit, with the weights of the environment."""
    _count_anew()
    weights = SignalWeights(**json.loads(os.environ.get(_WEIGHTS, "{}")))
    return ImportanceWeightedConversationManager(budget, counter=_KitCounter(), signals=weights)


def agent(model: Any, tools: list[Any], budget: int, recall_budget: int) -> Agent:
    """Return an agent for the kit, with recall if it has a budget: within that of the history, which gives way for one call."""
    plugins: list[Any] = [HistoryRecall(recall_budget, counter=_KitCounter())] if recall_budget else []
    kept = manager(budget + recall_budget)
    kept.includes_recall = bool(recall_budget)
    return Agent(model=model, tools=tools, conversation_manager=kept, plugins=plugins, callback_handler=None)


def run() -> dict[str, float]:
    """Return the share of what matters that is left, in percent of one."""
    return _with_kit(KIT) if KIT is not None else _shop_talk()


def _with_kit(folder: Path) -> dict[str, float]:
    global BUDGETS
    BUDGETS = _KIT_BUDGETS
    sys.path.insert(0, str(folder))
    values = _measured()
    values |= {**_recalled(values), **{f"at_once_{name}": value for name, value in _at_once({}).items()}}
    off = [field.name for field in dataclasses.fields(SignalWeights) if field.name != "half_life"]
    for name in progress(off, "each signal off in turn"):
        values |= {f"at_once_without_{name}_{label}": value for label, value in _at_once({name: 0.0}).items()}
    if PLOT is not None:
        _plot(PLOT)
    return values


def _bench(specs: dict[str, Any], budgets: list[int], sets: Sequence[str] = _SETS, *, recall: int = 0) -> dict[str, Any]:
    from retention import run as kit

    found: dict[str, Any] = kit.bench(list(sets), specs, budgets, workers=os.cpu_count() or 1, recall_budget=recall)
    return found


def _measured() -> dict[str, float]:
    """Return what is left when the conversations come message by message."""
    os.environ[_WEIGHTS] = "{}"
    found = _bench({"ours": ("manager", "tests.benchmarks.retention:manager")}, [4_096])
    values = {}
    for name, by_budget in found.items():
        result = by_budget["4096"]["ours"]
        values[f"{name}_recall"] = result["recall"][0]
        if name in ("sgd", "tau5"):
            values[f"{name}_tool_support"] = result["support_tool"][0]
    return values


def _recalled(without: Mapping[str, float]) -> dict[str, float]:
    """Return what real agents are sent, a quarter of the budget being for recall: to be asked, or, in tasks, at the end."""
    specs = {"ours": ("agent", "tests.benchmarks.retention:agent")}
    found = {name: by_budget["4096"]["ours"] for name, by_budget in _bench(specs, [4_096], recall=1_024).items()}
    asked = {name: result["in_view"] for name, result in found.items() if result["in_view"]}
    return {
        **{f"{name}_in_view_with_recall": in_view[0] for name, in_view in asked.items()},
        **{
            f"{name}_sent_with_recall_over_kept_without": result["recall"][0] / without[f"{name}_recall"]
            for name, result in found.items()
            if name not in asked
        },
    }


def _at_once(weights: dict[str, float]) -> dict[str, float]:
    """Return what is left of the conversations when they come as a whole, with some weights changed."""
    from retention import data

    os.environ[_WEIGHTS] = json.dumps(weights)
    values = {}
    for name in _SETS:
        shares = []
        for stream in data.load(name):
            kept = {id(message) for message in manager(4_096).fitted(stream["messages"], 4_096)}
            for query in stream["queries"]:
                gold = [id(stream["messages"][number]) in kept for number in query["gold"]]
                shares += [sum(gold) / len(gold)] if gold else []
        values[name] = sum(shares) / len(shares)
    return values


def _plot(path: Path) -> None:
    import matplotlib.pyplot as plt  # type: ignore[import-not-found]

    budgets = [1_024, 2_048, 4_096, 8_192]
    names = ("fifo", "user-first", "shortest", "tfidf", "hybrid")
    os.environ[_WEIGHTS] = "{}"
    found = _bench({**{name: name for name in names}, "ours": ("manager", "tests.benchmarks.retention:manager")}, budgets)
    figure, axes = plt.subplots(1, len(_SETS), figsize=(3.2 * len(_SETS), 3.6), sharey=True)
    for axis, name in zip(axes, _SETS, strict=True):
        for policy in (*names, "ours"):
            recalls = [found[name][str(budget)][policy]["recall"][0] for budget in budgets]
            label, width = _LABELS.get(policy, policy), 3 if policy == "ours" else 1
            axis.plot(range(len(budgets)), recalls, marker="o", label=label, linewidth=width)
        axis.set(title=_LABELS.get(name, name), xlabel="tokens of history", ylim=(0, 1.02))
        axis.set_xticks(range(len(budgets)), [f"{budget:,}" for budget in budgets])
    axes[0].set_ylabel("share that is still there")
    axes[0].legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path)


def _shop_talk() -> dict[str, float]:
    """Talk of preferences and facts, then of nothing in particular, then ask."""
    model = ScriptedModel(lambda _: "承知しました。")
    talker = Agent(
        model=model,
        conversation_manager=ImportanceWeightedConversationManager(3_072),
        plugins=[HistoryRecall(1_024)],
        callback_handler=None,
    )
    preferences = [text for role, text, act in ACTS if act == "preference" and role == "user"]
    for text in (*preferences, *(answer for _, answer in PARAPHRASES)):
        talker(text)
    for number in progress(range(_FILLER), "small talk"):
        talker(f"今日は天気がいいですね、散歩に行った話を続けます。その{number}番目の道は静かでした。")
    shown = json.dumps(talker.messages, ensure_ascii=False)
    found = 0
    for question, answer in PARAPHRASES:
        talker(question)
        found += answer in json.dumps(model.requests[-1].messages, ensure_ascii=False)
    count = default_counter().count
    return {
        "preferences_kept": sum(text in shown for text in preferences) / len(preferences),
        "answers_in_view": found / len(PARAPHRASES),
        "largest_request_in_tokens": max(sum(map(count, request.messages)) for request in model.requests[-50:]),
    }
