"""retention: messages of a conversation that survive trimming, and messages that recall returns.

The benchmark kit in the folder of ``--kit`` runs on its recorded conversations, message by message
with real agents, with and without recall. The kit's simple policies, and its policy that knows the
questions, are measured as well. That takes some ten minutes.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from strands import Agent
from strands.types.content import Message

from strands_manga_memory.conversation import HistoryRecall, ImportanceWeightedConversationManager
from strands_manga_memory.messages import content_fingerprint
from tests.benchmarks import progress

KIT: Path | None = None
"""Folder of the kit; set by the command line, which requires it."""

PLOT: Path | None = None
"""PNG file for a plot of the kept messages; needs the kit and matplotlib."""

BUDGETS = {
    "locomo_recall": ">= 0.4", "prefdaily_recall": ">= 0.97", "sgd_recall": ">= 0.965",
    "sgd_tool_support": ">= 0.77", "multiwoz_recall": ">= 0.96", "jmultiwoz_recall": ">= 0.74",
    "jmultiwoz_value": ">= 0.75", "tau5_recall": ">= 0.98", "tau5_tool_support": ">= 0.985",
    "locomo_in_view_with_recall": ">= 0.88", "prefdaily_in_view_with_recall": ">= 0.95",
}  # fmt: skip
_LABELS = {
    "locomo": "LoCoMo",
    "prefdaily": "PrefEval in\nsmall talk",
    "sgd": "SGD",
    "multiwoz": "MultiWOZ",
    "jmultiwoz": "JMultiWOZ\n(Japanese)",
    "tau5": "tau-bench,\nfive in a row",
}
_COUNTED_BY = {"jmultiwoz": "retention.tokens:by_script"}
"""Token counters of the sets in which a token is not about four characters."""

_POLICIES = ("fifo", "user-first", "shortest", "tfidf", "hybrid", "oracle")
OURS = ("agent", "tests.benchmarks.retention:agent")
"""Function that the kit calls to get an agent of this package."""


class _KitCounter:
    """Token counter that counts as the kit does."""

    exact = True

    def count(self, message: Message) -> int:
        from retention.tokens import count

        return int(count(message))


def _identify_by_text() -> None:
    """Make the kit identify a content by its text.

    The kit identifies it by its memory address, which Python reuses when a message is truncated
    again.
    """
    from retention.tokens import Counter, count

    known: dict[tuple[str | None, int], int] = {}

    def counted(_: object, message: Message) -> int:
        key = message.get("tracking_id"), content_fingerprint(message)
        if key not in known:
            known[key] = int(count(message))
        return known[key]

    Counter.__call__ = counted


def manager(budget: int) -> ImportanceWeightedConversationManager:
    """Return a manager for the kit."""
    _identify_by_text()
    return ImportanceWeightedConversationManager(budget, counter=_KitCounter())


def agent(model: Any, tools: list[Any], budget: int, recall_budget: int) -> Agent:
    """Return an agent for the kit.

    A recall budget above 0 enables recall, and enlarges the budget of history and quotes.
    """
    plugins: list[Any] = (
        [HistoryRecall(recall_budget, counter=_KitCounter())] if recall_budget else []
    )
    kept = manager(budget + recall_budget)
    kept.includes_recall = bool(recall_budget)
    return Agent(
        model=model, tools=tools, conversation_manager=kept, plugins=plugins, callback_handler=None
    )


def run() -> dict[str, float]:
    """Return the shares of needed messages that are left."""
    if KIT is None:
        raise ValueError("retention needs --kit, the folder of the benchmark kit, got none")
    sys.path.insert(0, str(KIT))
    values: dict[str, float] = {}
    for name in progress(list(_LABELS), "recorded conversations"):
        found = _bench(name, {**{policy: policy for policy in _POLICIES}, "ours": OURS})
        for policy, result in found.items():
            values[f"{name}_recall" if policy == "ours" else f"{name}_recall_{policy}"] = result[
                "recall"
            ][0]
        ours = found["ours"]
        values |= {f"{name}_value": ours["value"][0]} if ours["value"] else {}
        values |= {f"{name}_tool_support": ours["support_tool"][0]} if ours["support_tool"] else {}
    for name in progress(("locomo", "prefdaily"), "with recall"):
        values[f"{name}_in_view_with_recall"] = _bench(name, {"ours": OURS}, recall=3_072)["ours"][
            "in_view"
        ][0]
    if PLOT is not None:
        _plot(PLOT, values)
    return values


def _bench(name: str, specs: Mapping[str, Any], *, recall: int = 0) -> dict[str, Any]:
    from retention import run as kit

    workers = os.cpu_count() or 1
    found = kit.bench(
        [name],
        dict(specs),
        [4_096],
        workers,
        recall_budget=recall,
        token_counter=_COUNTED_BY.get(name),
    )
    return dict(found[name]["4096"])


def _plot(path: Path, values: Mapping[str, float]) -> None:
    import matplotlib.pyplot as plt

    bars = {
        "the best control": [
            max(values[f"{name}_recall_{policy}"] for policy in _POLICIES if policy != "oracle")
            for name in _LABELS
        ],
        "this package": [values[f"{name}_recall"] for name in _LABELS],
        "whoever knows the questions": [values[f"{name}_recall_oracle"] for name in _LABELS],
    }
    figure, axes = plt.subplots(figsize=(10, 4))
    for at, ((label, shares), color) in enumerate(
        zip(bars.items(), ("#b9c4ce", "#2f6f9f", "#e5d9c5"), strict=True)
    ):
        axes.bar(
            [place + 0.27 * (at - 1) for place in range(len(shares))],
            shares,
            0.27,
            label=label,
            color=color,
        )
    axes.set(ylim=(0, 1.02), ylabel="needed messages kept")
    axes.set_xticks(range(len(_LABELS)), list(_LABELS.values()), fontsize="small")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="upper center", ncols=3, frameon=False, fontsize="small")
    figure.savefig(path)
