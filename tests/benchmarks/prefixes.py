"""Recorded dialogues trimmed in steps and in every turn: whole prefixes, and kept messages.

Streams pass a manager message by message. Turns count from the first trim on. A turn has a whole
prefix if each of its requests begins with the complete previous request, letter by letter. The rest
of a request's history is not in a provider's cache. ``kept`` is the share of gold messages that the
history has word for word, as a mean over the last turns, because a history that is trimmed in steps
varies in size.
"""

import asyncio
import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from strands import Agent
from strands.hooks import BeforeModelCallEvent, MessageAddedEvent
from strands.types.content import Message

from strands_manga_memory import MangaMemorySettings
from strands_manga_memory.assembly.agent_parts import make_history_manager
from strands_manga_memory.conversation import ImportanceWeightedConversationManager, default_counter
from strands_manga_memory.messages import for_model, is_turn_start
from strands_manga_memory.stores import InMemoryHotStore
from strands_manga_memory.testing import ScriptedModel
from tests.benchmarks import progress

SETS = ("locomo", "prefdaily", "sgd", "multiwoz", "tau5")
BUDGETS = {
    **{f"{name}_whole_prefixes": ">= 0.85" for name in SETS},
    **{f"{name}_uncached_over_every_turn": "<= 0.45" for name in SETS},
    **{f"{name}_kept_beside_equal_tokens": ">= -0.01" for name in SETS},
    "largest_request_in_tokens": "<= 4096",
}
_MAX_TOKENS = 4_096
_LAST_TURNS = 40


@dataclass
class Seen:
    """Observations of one stream: whole prefixes, uncached tokens and tokens of each turn."""

    whole: list[bool] = field(default_factory=list)
    uncached: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    kept: float = 0.0
    largest: int = 0


class _Watch:
    """Comparison of each request with the previous one."""

    def __init__(self) -> None:
        self.seen = Seen()
        self._before: list[tuple[str, ...]] = []
        self._count = default_counter().count
        self._sizes: dict[tuple[str, ...], int] = {}

    def request(
        self, messages: Sequence[Message], *, begins_turn: bool, is_full: bool, new: int
    ) -> None:
        sent = for_model(list(messages))
        told = list(map(_texts, sent))
        sizes = [self._size(each, message) for each, message in zip(told, sent, strict=True)]
        same = next(
            (
                at
                for at, (now, then) in enumerate(zip(told, self._before, strict=False))
                if now != then
            ),
            None,
        )
        same = min(len(told), len(self._before)) if same is None else same
        is_whole = same == len(self._before)
        self._before = told
        self.seen.largest = max(self.seen.largest, sum(sizes))
        if not is_full:
            return
        uncached = max(0, sum(sizes[same:]) - new)
        if begins_turn or not self.seen.whole:
            self.seen.whole.append(is_whole)
            self.seen.uncached.append(uncached)
            self.seen.tokens.append(sum(sizes))
        else:
            self.seen.whole[-1] &= is_whole
            self.seen.uncached[-1] += uncached

    def _size(self, told: tuple[str, ...], message: Message) -> int:
        size = self._sizes.get(told)
        if size is None:
            size = self._sizes[told] = self._count(message)
        return size


def _texts(message: Message) -> tuple[str, ...]:
    blocks = (
        block["text"] if block.keys() == {"text"} else json.dumps(block, sort_keys=True)
        for block in message["content"]
    )
    return (message["role"], *blocks)


def watched(manager: ImportanceWeightedConversationManager, stream: dict[str, Any]) -> Seen:
    """Pass a stream through a manager, and return the observations."""
    agent = Agent(model=ScriptedModel(), conversation_manager=manager, callback_handler=None)
    watch, count = _Watch(), default_counter().count
    starts = [at for at, message in enumerate(stream["messages"]) if is_turn_start(message)]
    judged = frozenset(starts[-_LAST_TURNS:])
    shares: list[float] = []
    new = 0
    runner = asyncio.Runner()
    for at, original in enumerate(stream["messages"]):
        message: Message = dict(original)
        agent.messages.append(message)
        new += count(message)
        runner.run(agent.hooks.invoke_callbacks_async(MessageAddedEvent(agent, message)))
        if message["role"] == "user":
            event = BeforeModelCallEvent(agent=agent, invocation_state={}, projected_input_tokens=0)
            runner.run(agent.hooks.invoke_callbacks_async(event))
            watch.request(
                agent.messages,
                begins_turn=is_turn_start(message),
                is_full=len(agent.messages) <= at,
                new=new,
            )
            new = 0
        elif not any("toolUse" in block for block in message["content"]):
            manager.apply_management(agent)
        if at in judged:
            shares.append(_kept_share(agent.messages, stream, at))
    runner.close()
    watch.seen.kept = fmean(shares)
    return watch.seen


def _kept_share(messages: Sequence[Message], stream: dict[str, Any], until: int) -> float:
    held = {message.get("tracking_id"): message["content"] for message in messages}
    asked = [q["gold"] for q in stream["queries"] if q["gold"] and max(q["gold"]) <= until]
    found = [
        sum(held.get(f"m{at}") == stream["messages"][at]["content"] for at in gold) / len(gold)
        for gold in asked
    ]
    return fmean(found) if found else 1.0


def _manager_with_low_mark() -> ImportanceWeightedConversationManager:
    manager = make_history_manager(
        MangaMemorySettings(max_tokens=_MAX_TOKENS), None, session=None, hot=InMemoryHotStore()
    )
    assert isinstance(manager, ImportanceWeightedConversationManager)
    return manager


def _both(stream: dict[str, Any]) -> tuple[Seen, Seen, Seen]:
    """Return observations trimmed in steps, in every turn, and every turn with as many tokens."""
    stepwise = watched(_manager_with_low_mark(), stream)
    every_turn = watched(ImportanceWeightedConversationManager(_MAX_TOKENS), stream)
    as_many = (
        round(_MAX_TOKENS * fmean(stepwise.tokens) / fmean(every_turn.tokens))
        if stepwise.tokens
        else _MAX_TOKENS
    )
    return stepwise, every_turn, watched(ImportanceWeightedConversationManager(as_many), stream)


def _streams(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    """Yield the streams of ``<name>.jsonl.gz``, with message numbers as tracking ids."""
    with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            stream = json.loads(line)
            for at, message in enumerate(stream["messages"]):
                message["tracking_id"] = f"m{at}"
            yield stream


def measured(folder: Path) -> Iterator[tuple[str, list[tuple[Seen, Seen, Seen]]]]:
    """Yield each set with the observations of its streams."""
    with ProcessPoolExecutor(2) as workers:
        for name in progress(SETS, "recorded dialogues in steps and in every turn"):
            yield name, list(workers.map(_both, _streams(folder, name)))


def run(folder: Path, *, plot: Path | None = None) -> dict[str, float]:
    """Return the rows of every set ``<name>.jsonl.gz`` of a folder, and plot uncached tokens."""
    rows: dict[str, float] = {}
    largest = 0
    shown: dict[str, tuple[Seen, ...]] = {}

    def of(seen: list[Any], at: int, what: Callable[[Seen], Sequence[float]]) -> float:
        return fmean([value for each in seen for value in what(each[at])])

    for name, seen in measured(folder):
        uncached = [of(seen, at, lambda each: each.uncached) for at in range(3)]
        kept = [of(seen, at, lambda each: [each.kept]) for at in range(3)]
        rows |= {
            f"{name}_whole_prefixes": of(seen, 0, lambda each: each.whole),
            f"{name}_uncached_tokens_a_turn": uncached[0],
            f"{name}_uncached_tokens_a_turn_trimmed_in_every_turn": uncached[1],
            f"{name}_uncached_over_every_turn": uncached[0] / uncached[1],
            f"{name}_mean_tokens": of(seen, 0, lambda each: each.tokens),
            f"{name}_mean_tokens_trimmed_in_every_turn": of(seen, 2, lambda each: each.tokens),
            f"{name}_kept": kept[0],
            f"{name}_kept_at_4096_in_every_turn": kept[1],
            f"{name}_kept_beside_equal_tokens": kept[0] - kept[2],
        }
        largest = max(largest, *(each[0].largest for each in seen))
        shown[name] = seen[0]
    if plot is not None:
        _draw(shown, plot)
    return {**rows, "largest_request_in_tokens": largest}


def _draw(shown: dict[str, tuple[Seen, ...]], path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, len(shown), figsize=(3.4 * len(shown), 3.2), sharey=True, squeeze=False
    )
    for axis, (name, seen) in zip(axes[0], shown.items(), strict=True):
        for each, label in ((seen[1], "trimmed in every turn"), (seen[0], "trimmed in steps")):
            axis.plot(each.uncached[:80], label=label, linewidth=1)
        axis.set(title=name, xlabel="turn since the history is full")
    axes[0][0].set_ylabel("tokens of history not in the cache")
    axes[0][0].legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path)
