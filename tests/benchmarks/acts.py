"""acts: precision and recall of the rules for dialogue acts, act by act.

With ``--kit FOLDER``, the messages are the recorded dialogues of the benchmark kit, each read with the messages before it, as
by a conversation manager, and the kit's labelled single messages. Without the kit, they are the shop talk of the tests.

The labels were written by people. ``inform``: the message states a value that the task needs. ``correction``: the message
changes a value, asks for another option, or denies; a "no" to "anything else?" does not count. ``needed``
is either of them; predicted for it are instructions, preferences, corrections, facts and constraints.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from strands_manga_memory.conversation import EstimateCounter, RuleScorer
from strands_manga_memory.conversation.importance import FeatureCache
from strands_manga_memory.language import dialogue_act
from strands_manga_memory.messages import is_turn_start
from strands_manga_memory.messages.injection import message_text
from tests.benchmarks import progress
from tests.lines import rows

KIT: Path | None = None
"""Folder of the kit; set by the command line."""

BUDGETS: dict[str, Any] = {"shop_talk_preference_precision": ">= 0.9", "shop_talk_correction_f1": ">= 0.7"}

_KIT_BUDGETS = {
    "sgd_correction_f1": ">= 0.7",
    "jmultiwoz_correction_f1": ">= 0.7",
    "single_sgd_correction_f1": ">= 0.7",
    **{f"{name}_needed_precision": ">= 0.8" for name in ("sgd", "multiwoz", "jmultiwoz")},
    **{f"{name}_needed_recall": ">= 0.6" for name in ("sgd", "multiwoz", "jmultiwoz")},
    **{f"{name}_correction_is_needed": ">= 0.7" for name in ("sgd", "multiwoz", "jmultiwoz")},
}
_SETS = ("sgd", "multiwoz", "jmultiwoz")
_NEEDED = frozenset({"instruction", "preference", "correction", "fact", "constraint"})
_LABEL_OF = {"farewell": "greeting", "instruction": "preference", "fact": "preference", "constraint": "preference"}
"""Labels of acts. Labels are coarser than acts: farewells are labelled as greetings, all stated values as preferences."""

_MORE_HELP = re.compile(r"\b(?:else|further|help|assist|assistance|that be all)\b[^.!?]*\?\s*\Z", re.IGNORECASE)

Row = tuple[str, frozenset[str]]
"""Act by the rules, and the labels."""


def run() -> dict[str, float]:
    """Return precision, recall and F1 of each act."""
    if KIT is None:
        shop_talk = rows("shop_acts")
        return _score_acts("shop_talk", [(str(dialogue_act(text, role)), frozenset({act})) for role, text, act in shop_talk])
    global BUDGETS
    BUDGETS = _KIT_BUDGETS
    sys.path.insert(0, str(KIT))
    values: dict[str, float] = {}
    for name in progress(_SETS, "acts in recorded dialogues"):
        values |= _score_dialogues(name, list(_acts_of_dialogues(name)))
    for name, judged in _acts_of_single_messages(KIT / "data" / "acts.jsonl.gz").items():
        values |= _score_acts(f"single_{name}", judged)
    return values


def _acts_of_dialogues(name: str) -> Iterator[Row]:
    """Yield the act of each user message by the rules, and its labels."""
    from retention import data  # type: ignore[import-not-found]

    for stream in data.load(name):
        labels = labels_of(stream)
        notes = FeatureCache(EstimateCounter(), RuleScorer()).measure_all(stream["messages"])
        for at, (message, note) in enumerate(zip(stream["messages"], notes, strict=True)):
            if is_turn_start(message):
                yield note.act, labels.get(at, frozenset())


def labels_of(stream: dict[str, Any]) -> dict[int, frozenset[str]]:
    """Return the labels of a conversation's messages, keyed by number, without the "no" to "anything else?"."""
    labels: defaultdict[int, set[str]] = defaultdict(set)
    for query in stream["queries"]:
        for number in query["gold"]:
            labels[number].add(query["kind"])
    said = [message_text(message) for message in stream["messages"]]
    ends = {at for at, found in labels.items() if found == {"correction"} and at and _MORE_HELP.search(said[at - 1])}
    return {at: frozenset(found) for at, found in labels.items() if at not in ends}


def _acts_of_single_messages(path: Path) -> dict[str, list[Row]]:
    """Return acts and labels of the labelled single messages, keyed by set. The messages before them are unknown."""
    found: dict[str, list[Row]] = {}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            act = str(dialogue_act(line["text"], line["role"]))
            found.setdefault(line["set"], []).append((_LABEL_OF.get(act, act), frozenset(line["labels"])))
    return found


def _score_dialogues(name: str, rows: list[Row]) -> dict[str, float]:
    values = _scores(f"{name}_correction", rows, "correction", "correction")
    needed = [(act, frozenset({"needed"}) if gold else gold) for act, gold in rows]
    values |= _scores(
        f"{name}_needed", [("needed" if act in _NEEDED else act, gold) for act, gold in needed], "needed", "needed"
    )
    for act in sorted(_NEEDED & {act for act, _ in rows}):
        told = [bool(gold) for said, gold in rows if said == act]
        values |= {f"{name}_{act}_told": len(told), f"{name}_{act}_is_needed": sum(told) / len(told)}
    return values


def _score_acts(name: str, rows: list[Row]) -> dict[str, float]:
    acts = sorted({act for _, gold in rows for act in gold} - {"unmatched"})
    return {row: value for act in acts for row, value in _scores(f"{name}_{act}", rows, act, act).items()}


def _scores(name: str, rows: list[Row], act: str, label: str) -> dict[str, float]:
    """Return precision, recall and F1 of an act. A message with several labels is missed only if no label was predicted."""
    told = sum(said == act for said, _ in rows)
    hits = sum(said == act and label in gold for said, gold in rows)
    missed = sum(said != act and label in gold and said not in gold for said, gold in rows)
    precision, recall = hits / max(1, told), hits / max(1, hits + missed)
    f1 = 2 * precision * recall / max(1e-9, precision + recall)
    return {f"{name}_precision": precision, f"{name}_recall": recall, f"{name}_f1": f1}
