"""long-answers: needed messages and instructions that stay in conversations with long answers.

Needs ``--kit FOLDER``. Conversations of 160 turns are joined from the kit: turns of PrefEval in small talk and of SGD in turn,
five of each; in Japanese, turns of JMultiWOZ. 70 % of the answers are replaced by 300 to 900 tokens of sentences that
assistants wrote elsewhere in the sets, under headings. Six standing instructions from the tests are added. Needed are the
preferences, the values of slots and the instructions, but not a "no" to "anything else?", which SGD labels too. Kept messages
are counted in the last request of an agent that had the whole conversation, and in a single selection from all of it.
"""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from strands.types.content import Message

from strands_manga_memory.language import DialogueAct, dialogue_act
from strands_manga_memory.language.search import split_passages
from tests.benchmarks import progress
from tests.benchmarks.acts import labels_of
from tests.benchmarks.retention import OURS, manager
from tests.unit.language.test_instructions import INSTRUCTIONS

KIT: Path | None = None
"""Folder of the kit; set by the command line."""

BUDGETS: dict[str, Any] = {}

_KIT_BUDGETS = {
    f"{language}_instructions_kept_at_{budget}": ">= 0.95"
    for language in ("english", "japanese")
    for budget in (1_024, 2_048, 4_096, 8_192)
}

_TURNS, _INSTRUCTIONS, _IN_A_ROW = 160, 6, 5
_LONG = 0.7
_LEAST, _MOST = 300, 900
_CONTROLS = ("fifo", "user-first", "shortest", "tfidf", "hybrid")


class Turn(NamedTuple):
    """User message, whether it is needed later, and the answer."""

    said: str
    is_needed: bool
    answer: str


def run() -> dict[str, float]:
    """Return the shares of needed messages and of instructions that are kept, by budget, and those of the best control."""
    if KIT is None:
        return {}
    global BUDGETS
    BUDGETS = _KIT_BUDGETS
    sys.path.insert(0, str(KIT))
    values: dict[str, float] = {}
    for language, sets, number, budgets, by in (
        ("english", ("prefdaily", "sgd"), 20, (1_024, 2_048, 4_096, 8_192), None),
        ("japanese", ("jmultiwoz",), 6, (1_024, 2_048, 4_096, 8_192), "retention.tokens:by_script"),
    ):
        from retention import tokens  # type: ignore[import-not-found]

        tokens.set_text_counter(by)
        streams = list(conversations(sets, number, is_japanese=by is not None))
        for budget in progress(budgets, f"long answers, {language}"):
            values |= {f"{language}_{name}_at_{budget}": value for name, value in _kept(streams, budget).items()}
    return values


def conversations(sets: tuple[str, ...], number: int, *, is_japanese: bool) -> Iterator[dict[str, Any]]:
    """Yield conversations in the format of the kit, the same ones every time."""
    from retention import data

    turns = [[turn for stream in data.load(name) for turn in _turns(stream)] for name in sets]
    sentences = [part.strip() for one in turns for turn in one for part in split_passages(turn.answer)]
    told = [text for text in INSTRUCTIONS if text.isascii() is not is_japanese]
    for seed in range(number):
        drawn = random.Random(seed)
        begins = [drawn.randrange(len(one) - _TURNS) for one in turns]
        rows = [_in_rows(one[begin : begin + _TURNS]) for one, begin in zip(turns, begins, strict=True)]
        joined = list(itertools.chain.from_iterable(itertools.chain.from_iterable(zip(*rows, strict=True))))[
            : _TURNS - _INSTRUCTIONS
        ]
        for text in drawn.sample(told, _INSTRUCTIONS):
            joined.insert(drawn.randrange(len(joined) // 2), Turn(text, is_needed=True, answer="Understood."))
        yield _stream(joined, sentences, drawn, seed)


def _turns(stream: dict[str, Any]) -> Iterator[Turn]:
    """Yield the turns of a conversation, without its tool calls."""
    needed = labels_of(stream)
    said: tuple[int, str] | None = None
    for at, message in enumerate(stream["messages"]):
        text = message["content"][0].get("text")
        if text and message["role"] == "user":
            said = at, text
        elif text and said is not None:
            yield Turn(said[1], said[0] in needed, text)
            said = None


def _in_rows(turns: list[Turn]) -> list[list[Turn]]:
    return [turns[at : at + _IN_A_ROW] for at in range(0, len(turns), _IN_A_ROW)]


def _stream(turns: list[Turn], sentences: list[str], drawn: random.Random, seed: int) -> dict[str, Any]:
    messages: list[Message] = []
    queries = []
    for turn in turns:
        if turn.is_needed:
            stands = dialogue_act(turn.said, "user") == DialogueAct.INSTRUCTION
            queries.append({"kind": "instruction" if stands else "needed", "gold": [len(messages)]})
        answer = _at_length(sentences, drawn) if drawn.random() < _LONG else turn.answer
        messages += [{"role": "user", "content": [{"text": turn.said}]}, {"role": "assistant", "content": [{"text": answer}]}]
    for at, message in enumerate(messages):
        message["tracking_id"] = f"{seed}-{at}"  # type: ignore[typeddict-unknown-key]
    return {"id": str(seed), "messages": messages, "queries": queries}


def _at_length(sentences: list[str], drawn: random.Random) -> str:
    from retention.tokens import text_tokens

    size, parts, tokens = drawn.randint(_LEAST, _MOST), [], 0
    while tokens < size:
        parts.append(f"\n\n## {drawn.choice(sentences)[:40]}\n\n" if len(parts) % 6 == 0 else f"{drawn.choice(sentences)} ")
        tokens += text_tokens(parts[-1])
    return "".join(parts).strip()


def _kept(streams: list[dict[str, Any]], budget: int) -> dict[str, float]:
    from retention import run as kit

    once: dict[str, list[bool]] = {"instruction": [], "needed": []}
    for stream in streams:
        shown = {id(message) for message in manager(budget)._trimmer.select(stream["messages"]).messages}
        for query in stream["queries"]:
            once[query["kind"]].append(id(stream["messages"][query["gold"][0]]) in shown)
    both = once["instruction"] + once["needed"]
    policies = {name: [kit.stream_once(each, name, budget) for each in streams] for name in _CONTROLS}
    controls = {name: kit.aggregate(found)["recall"][0] for name, found in policies.items()}
    best = max(controls, key=controls.__getitem__)
    ours = kit.aggregate([kit.stream_once(each, OURS, budget) for each in streams])
    return {
        "kept": ours["recall"][0],
        "instructions_kept": ours["kinds"]["instruction"]["recall"][0],
        "requests_in_budget": ours["in_budget"][0],
        "kept_chosen_once": sum(both) / len(both),
        "instructions_kept_chosen_once": sum(once["instruction"]) / len(once["instruction"]),
        f"best_control_{best}": controls[best],
    }
