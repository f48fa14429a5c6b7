"""points: contribution of each part of the selection, and results with newly fitted weights.

Needs ``--kit FOLDER``. Each part is disabled in turn, on five conversations of each set and on long answers. Weights are drawn
at random around the current ones. The best weights on all sets, and on all but one, are evaluated on each set. ``kept`` is a
single selection from a whole conversation. Parts that show only message by message, or with recall, are measured with real
agents. Each set has a process of its own; the run takes some ten minutes on two cores.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

from strands_manga_memory.conversation import (
    ImportanceWeightedConversationManager,
    ImportanceWeights,
    SignalWeights,
    importance_manager,
    recall,
    scoring,
    selection,
)
from strands_manga_memory.conversation.features import FeatureCache, Vocabulary
from strands_manga_memory.conversation.log_tail import LogTail
from strands_manga_memory.conversation.message_truncation import MessageTruncator
from strands_manga_memory.language import DialogueAct
from strands_manga_memory.language import dialogue_acts as acts
from strands_manga_memory.language import dialogue_acts as replies
from tests.benchmarks import progress, retention
from tests.benchmarks.long_answers import conversations

KIT: Path | None = None
"""Folder of the kit; set by the command line."""

BUDGETS: dict[str, Any] = {}

_STREAMS, _DRAWN, _SPREAD = 5, 100, 0.5
_SETS = ("sgd", "locomo", "jmultiwoz", "multiwoz", "prefdaily", "long", "long_japanese")
"""Names of the sets, slowest first."""

Managers = Sequence[ImportanceWeightedConversationManager]


class Set:
    """Conversations of a set, with a manager for each."""

    def __init__(self, name: str) -> None:
        from retention import data, tokens  # type: ignore[import-not-found]

        self.name = name
        tokens.set_text_counter("retention.tokens:by_script" if name in ("jmultiwoz", "long_japanese") else None)
        if name == "long":
            self.streams = list(conversations(("prefdaily", "sgd"), _STREAMS, is_japanese=False))
        elif name == "long_japanese":
            self.streams = list(conversations(("jmultiwoz",), _STREAMS, is_japanese=True))
        else:
            self.streams = data.load(name, None, _STREAMS)

    def managers(self) -> Managers:
        """Return a new manager for each conversation."""
        return [retention.manager(4_096) for _ in self.streams]

    def kept(self, managers: Managers, budget: int) -> float:
        """Return the share of needed messages that stay."""
        shares: list[float] = []
        for stream, manager in zip(self.streams, managers, strict=True):
            manager.max_tokens = budget
            shown = {id(message) for message in manager._trimmer.select(stream["messages"]).messages}
            for query in stream["queries"]:
                gold = [id(stream["messages"][number]) in shown for number in query["gold"]]
                shares += [sum(gold) / len(gold)] if gold else []
        return sum(shares) / len(shares)

    def chosen_once(self) -> dict[str, float]:
        """Return the share kept by new managers, and that of long answers with a small budget."""
        managers = self.managers()
        found = {self.name: self.kept(managers, 4_096)}
        return found | ({f"{self.name}_at_1024": self.kept(managers, 1_024)} if self.name.startswith("long") else {})

    def weighed(self, managers: Managers, weights: SignalWeights, budget: int) -> float:
        """Return the share kept by managers that have read the conversations, with other weights."""
        for manager in managers:
            manager.signals = weights
        return self.kept(managers, budget)

    def through_agents(self, recall: int = 0) -> Mapping[str, Any]:
        """Return the results of the kit for the conversations of real agents."""
        from retention import run as kit

        found: Mapping[str, Any] = kit.aggregate(
            [kit.stream_once(stream, retention.OURS, 4_096, recall_budget=recall) for stream in self.streams]
        )
        return found


def run() -> dict[str, float]:
    """Return the shares that are kept with all parts, and without each part."""
    if KIT is None:
        return {}
    values: dict[str, float] = {}
    means: dict[str, list[float]] = {}
    with ProcessPoolExecutor(os.cpu_count() or 1) as pool:
        found = pool.map(_measured, [str(KIT)] * len(_SETS), _SETS)
        for name in progress(_SETS, "sets"):
            more, means[name] = next(found)
            values |= more
    return {**values, **_fitted(means)}


def _measured(kit: str, name: str) -> tuple[dict[str, float], list[float]]:
    """Return all measurements of a set, and the mean share that is kept with each of the drawn weights."""
    sys.path.insert(0, kit)
    each = Set(name)
    values = {f"{row}_as_it_is": value for row, value in each.chosen_once().items()}
    for point, without in POINTS.items():
        with without():
            values |= {f"{row}_without_{point}": value for row, value in each.chosen_once().items()}
    read = each.managers()
    for weight in dataclasses.fields(SignalWeights):
        if weight.name != "half_life":
            values[f"{name}_without_signal_{weight.name}"] = each.weighed(read, SignalWeights(**{weight.name: 0.0}), 4_096)
    means = [sum(each.weighed(read, weights, budget) for budget in (1_024, 4_096)) / 2 for weights in _drawn()]
    return {**values, **_through_agents(each)}, means


# --- Points -------------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _without_instructions() -> Iterator[None]:
    as_any = dataclasses.replace(ImportanceWeights(), instruction=ImportanceWeights().unmatched)
    weights = SignalWeights(instruction=0.0)
    with (
        mock.patch.object(scoring, "ImportanceWeights", return_value=as_any),
        mock.patch.object(importance_manager, "_SIGNALS", weights),
    ):
        yield


@contextlib.contextmanager
def _without_first_answer_cut() -> Iterator[None]:
    shorten = MessageTruncator.truncate

    def spares_answer(self: MessageTruncator, kind: str, positions: Any, target: int, floor: int) -> None:
        if target:
            shorten(self, kind, positions, target, floor)

    with mock.patch.object(MessageTruncator, "truncate", spares_answer):
        yield


@contextlib.contextmanager
def _without_japanese_wishes() -> Iterator[None]:
    rules = {
        role: tuple(rule for rule in each if rule.act is not DialogueAct.CONSTRAINT)
        for role, each in acts._JAPANESE_RULES.items()
    }
    with mock.patch.object(acts, "_JAPANESE_RULES", rules):
        yield


POINTS: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
    "the_act_for_instructions": _without_instructions,
    "a_short_first_answer": _without_first_answer_cut,
    "replies": lambda: mock.patch.object(FeatureCache, "_read_as_reply", return_value=None),
    "whoever_names_a_value": lambda: mock.patch.object(replies, "_gives_value", return_value=False),
    "japanese_rules_for_wishes": _without_japanese_wishes,
    "who_writes_at_length_serves": lambda: mock.patch.multiple(Vocabulary, _AS_LONG=1e9, _MUCH_LONGER=2e9),
    "a_long_answer_that_makes_room": lambda: mock.patch.object(selection, "_final_answer", return_value=[]),
    "conditions_that_are_let_go": lambda: mock.patch.object(replies, "_only_lets_go", return_value=False),
}
"""Context managers that disable a part of a single selection."""


def _through_agents(each: Set) -> dict[str, float]:
    values: dict[str, float] = {}
    if each.name in ("locomo", "sgd", "jmultiwoz", "long"):
        values[f"{each.name}_by_agents"] = each.through_agents()["recall"][0]
        with mock.patch.object(LogTail, "is_due", return_value=False):
            values[f"{each.name}_by_agents_worn_down"] = each.through_agents()["recall"][0]
    if each.name == "locomo":
        values["locomo_in_view"] = each.through_agents(3_072)["in_view"][0]
        values["locomo_in_view_of_a_quarter"] = each.through_agents(1_024)["in_view"][0]
        with mock.patch.object(recall, "_EXPANDED_WEIGHT", 0.0):
            values["locomo_in_view_by_one_search"] = each.through_agents(3_072)["in_view"][0]
    return values


# --- Weights ------------------------------------------------------------------------------------------------------------------


def _drawn() -> list[SignalWeights]:
    """Return the current weights and random ones, the same every time."""
    drawn = random.Random(25)
    return [SignalWeights(), *(_near(drawn) for _ in range(_DRAWN))]


def _fitted(means: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the share of each set that is kept with weights fitted on all sets, and on all sets but this one."""

    def best(names: Sequence[str]) -> int:
        return max(range(_DRAWN + 1), key=lambda at: sum(means[name][at] for name in names))

    values = {f"mean_{name}": kept[0] for name, kept in means.items()}
    values |= {f"mean_{name}_fitted": kept[best(_SETS)] for name, kept in means.items()}
    return values | {
        f"mean_{name}_fitted_without_it": kept[best([other for other in _SETS if other != name])]
        for name, kept in means.items()
    }


def _near(drawn: random.Random) -> SignalWeights:
    stand = dataclasses.asdict(SignalWeights())
    changed = {name: value * (1 + drawn.uniform(-_SPREAD, _SPREAD)) for name, value in stand.items()}
    return SignalWeights(**{name: changed[name] if drawn.random() < _SPREAD else value for name, value in stand.items()})
