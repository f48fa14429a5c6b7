"""points: what each part of the choice gives, and what its weights would give if they were fitted anew.

Needs ``--kit FOLDER``. Each part is taken out in turn, on five conversations of each set and on long answers; weights are drawn
at random around those that stand, and the best on all sets, and on all but one, are judged on each. What is chosen once, from a
whole conversation, says ``kept``; the parts that show only message by message, or with recall, go through real agents.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from strands_manga_memory.conversation import ImportanceWeightedConversationManager, SignalWeights
from strands_manga_memory.conversation.history.shortening import Shortener
from strands_manga_memory.conversation.importance import importance
from strands_manga_memory.conversation.importance.reserve import Reserve
from strands_manga_memory.conversation.importance.weighing import scoring, vocabulary
from strands_manga_memory.conversation.importance.weighing.notes import Notes
from strands_manga_memory.conversation.importance.weighing.scoring import ImportanceWeights
from strands_manga_memory.conversation.recall import seeking
from strands_manga_memory.language import DialogueAct
from strands_manga_memory.language.acts import acts, replies
from tests.benchmarks import progress, retention
from tests.benchmarks.long_answers import conversations

KIT: Path | None = None
"""The folder of the kit; set by the command line."""

BUDGETS: dict[str, Any] = {}

_STREAMS, _DRAWN, _SPREAD = 5, 100, 0.5
_SETS = ("locomo", "prefdaily", "sgd", "multiwoz", "jmultiwoz", "long", "long_japanese")


class Set:
    """The conversations of a set, and a manager for each that has read it."""

    def __init__(self, name: str) -> None:
        from retention import data  # type: ignore[import-not-found]

        self.counts_by = "retention.tokens:by_script" if name in ("jmultiwoz", "long_japanese") else None
        self.use()
        if name == "long":
            self.streams = list(conversations(("prefdaily", "sgd"), _STREAMS, is_japanese=False))
        elif name == "long_japanese":
            self.streams = list(conversations(("jmultiwoz",), _STREAMS, is_japanese=True))
        else:
            self.streams = data.load(name, None, _STREAMS)

    def use(self) -> None:
        """Let tokens be counted as this set is counted."""
        from retention import tokens  # type: ignore[import-not-found]

        tokens.set_text_counter(self.counts_by)

    def managers(self) -> list[ImportanceWeightedConversationManager]:
        """Return a new manager for each conversation."""
        return [retention.manager(4_096) for _ in self.streams]

    def kept(self, managers: list[ImportanceWeightedConversationManager], budget: int) -> float:
        """Return the share of needed messages that stay."""
        self.use()
        shares: list[float] = []
        for stream, manager in zip(self.streams, managers, strict=True):
            shown = {id(message) for message in manager.fitted(stream["messages"], budget)}
            for query in stream["queries"]:
                gold = [id(stream["messages"][number]) in shown for number in query["gold"]]
                shares += [sum(gold) / len(gold)] if gold else []
        return sum(shares) / len(shares)

    def through_agents(self, recall: int = 0) -> Mapping[str, Any]:
        """Return what the kit finds when the conversations go through real agents."""
        from retention import run as kit

        self.use()
        found: Mapping[str, Any] = kit.aggregate(
            [kit.stream_once(stream, retention.OURS, 4_096, recall_budget=recall) for stream in self.streams]
        )
        return found


def run() -> dict[str, float]:
    """Return what is kept as it is, and without each point."""
    if KIT is None:
        return {}
    sys.path.insert(0, str(KIT))
    sets = {name: Set(name) for name in progress(_SETS, "conversations")}
    values = {f"{name}_as_it_is": value for name, value in _chosen_once(sets).items()}
    for point in progress(list(POINTS), "without each point"):
        with POINTS[point]():
            values |= {f"{name}_without_{point}": value for name, value in _chosen_once(sets).items()}
    read = {name: each.managers() for name, each in sets.items()}
    off = [weight.name for weight in dataclasses.fields(SignalWeights) if weight.name != "half_life"]
    for signal in progress(off, "each signal off in turn"):
        found = _weighed(sets, read, SignalWeights(**{signal: 0.0}), 4_096)
        values |= {f"{name}_without_signal_{signal}": value for name, value in found.items()}
    return {**values, **_fitted(sets, read), **_through_agents(sets)}


def _chosen_once(sets: Mapping[str, Set]) -> dict[str, float]:
    found = {name: each.kept(each.managers(), 4_096) for name, each in sets.items()}
    small = {f"{name}_at_1024": sets[name].kept(sets[name].managers(), 1_024) for name in ("long", "long_japanese")}
    return {**found, **small}


# --- Points -------------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _without_instructions() -> Iterator[None]:
    as_any = dataclasses.replace(ImportanceWeights(), instruction=ImportanceWeights().unmatched)
    weights = SignalWeights(instruction=0.0)
    with (
        mock.patch.object(scoring, "ImportanceWeights", return_value=as_any),
        mock.patch.object(importance, "SignalWeights", return_value=weights),
    ):
        yield


@contextlib.contextmanager
def _without_first_answer_cut() -> Iterator[None]:
    shorten = Shortener.shorten

    def spares_answer(self: Shortener, kind: str, positions: Any, target: int, floor: int) -> None:
        if target:
            shorten(self, kind, positions, target, floor)

    with mock.patch.object(Shortener, "shorten", spares_answer):
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
    "replies": lambda: mock.patch.object(Notes, "_hear_reply", return_value=None),
    "whoever_names_a_value": lambda: mock.patch.object(replies, "_gives_value", return_value=False),
    "japanese_rules_for_wishes": _without_japanese_wishes,
    "who_writes_at_length_serves": lambda: mock.patch.multiple(vocabulary, _AS_LONG=1e9, _MUCH_LONGER=2e9),
}
"""What is chosen once without a part of the choice."""


def _through_agents(sets: Mapping[str, Set]) -> dict[str, float]:
    values: dict[str, float] = {}
    worn_down = mock.patch.object(Reserve, "is_due", return_value=False)
    for name in progress(("locomo", "sgd", "jmultiwoz", "long"), "through agents, chosen anew or worn down"):
        values[f"{name}_by_agents"] = sets[name].through_agents()["recall"][0]
        with worn_down:
            values[f"{name}_by_agents_worn_down"] = sets[name].through_agents()["recall"][0]
    locomo = sets["locomo"]
    values["locomo_in_view"] = locomo.through_agents(3_072)["in_view"][0]
    values["locomo_in_view_of_a_quarter"] = locomo.through_agents(1_024)["in_view"][0]
    with mock.patch.object(seeking, "_AGAIN", 0.0):
        values["locomo_in_view_by_one_search"] = locomo.through_agents(3_072)["in_view"][0]
    return values


# --- Weights ------------------------------------------------------------------------------------------------------------------


Read = Mapping[str, list[ImportanceWeightedConversationManager]]


def _weighed(sets: Mapping[str, Set], read: Read, weights: SignalWeights, budget: int) -> dict[str, float]:
    for managers in read.values():
        for manager in managers:
            manager.signals = weights
    return {name: each.kept(read[name], budget) for name, each in sets.items()}


def _fitted(sets: Mapping[str, Set], read: Read) -> dict[str, float]:
    """Return the mean of what 1,024 and 4,096 tokens keep, with weights that were fitted on all sets, and on all but one."""
    drawn = random.Random(25)
    tried = [SignalWeights(), *(_near(drawn) for _ in range(_DRAWN))]
    found: list[dict[str, float]] = []
    for weights in progress(tried, "weights drawn anew"):
        small, large = (_weighed(sets, read, weights, budget) for budget in (1_024, 4_096))
        found.append({name: (small[name] + large[name]) / 2 for name in sets})
    best = max(found, key=lambda kept: sum(kept.values()))
    values = {f"mean_{name}": value for name, value in found[0].items()}
    values |= {f"mean_{name}_fitted": value for name, value in best.items()}
    for name in sets:
        others = max(found, key=lambda kept: sum(value for other, value in kept.items() if other != name))
        values[f"mean_{name}_fitted_without_it"] = others[name]
    return values


def _near(drawn: random.Random) -> SignalWeights:
    stand = dataclasses.asdict(SignalWeights())
    changed = {name: value * (1 + drawn.uniform(-_SPREAD, _SPREAD)) for name, value in stand.items()}
    return SignalWeights(**{name: changed[name] if drawn.random() < _SPREAD else value for name, value in stand.items()})
