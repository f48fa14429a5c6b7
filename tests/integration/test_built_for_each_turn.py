"""An agent built for each turn sends the model the requests of a live agent."""

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from strands.types.content import Messages

from strands_manga_memory.conversation import EstimateCounter, SummarySchedule
from strands_manga_memory.testing import ScriptedModel
from tests.support import tool_results
from tests.transcript.conversation import Exchange, hold

_COUNTER = EstimateCounter()
_LARGE = 2_000
"""Characters of a large tool result."""


def _reported(messages: Messages) -> int:
    """Return the input tokens of a model that counts more per text than the counter."""
    return int(1.4 * sum(map(_COUNTER.count, messages))) + 1_000


def _sent(exchange: Exchange) -> list[Any]:
    """Return what the model received in a turn: messages, and names of the tools."""
    return [
        (
            [(message["role"], message["content"]) for message in request.messages],
            [tool["name"] for tool in request.tool_specs or []],
        )
        for request in exchange.requests
    ]


BUDGETS: dict[str, tuple[int, Callable[[Messages], int] | None]] = {
    "counted": (2_048, None),
    "reported": (2_048, _reported),
    "roomy": (8_192, _reported),
}
HISTORIES: dict[str, dict[str, Any]] = {
    "summarize": {"history": "summarize", "max_tokens": 2_048},
    "compact": {"history": "compact", "max_tokens": None, "window": 4_096},
}
SUITE = {("en", "reported"), ("ja", "summarize")}
"""Cases of the suite: one of each test. The others are long."""


def in_both_languages(names: Iterable[str]) -> list[Any]:
    pairs = itertools.product(("en", "ja"), names)
    return [pytest.param(*pair, marks=() if pair in SUITE else pytest.mark.long) for pair in pairs]


@pytest.mark.parametrize(("language", "budget"), in_both_languages(BUDGETS))
def test_rebuilt_agent_has_the_same_requests(tmp_path: Path, language: str, budget: str) -> None:
    """In 40 turns, with large results, and with reported tokens."""
    max_tokens, usage = BUDGETS[budget]
    settings: dict[str, Any] = {"history": "importance", "max_tokens": max_tokens, "usage": usage}
    live = list(hold(tmp_path / "live", language, **settings))
    built = list(hold(tmp_path / "built", language, rebuild=True, **settings))
    assert len(live) == 40
    for one, two in zip(live, built, strict=True):
        assert _sent(two) == _sent(one), f"turn {one.number}"
    assert any(_has_large_result(exchange) for exchange in live)


@pytest.mark.parametrize(("language", "history"), in_both_languages(HISTORIES))
def test_rebuilt_agent_has_the_same_summaries(tmp_path: Path, language: str, history: str) -> None:
    """Each model call waits for the summary that is due, and another model writes it."""
    held = []
    for rebuild in (False, True):
        writer = ScriptedModel(lambda _: "The user asked about manga, and the shop answered.")
        # The message ids of both conversations are the same.
        writer.update_config(model_id=f"writer {rebuild}")
        asynchronous = SummarySchedule(strategy="async")
        options = {**HISTORIES[history], "aux_model": writer, "summary_schedule": asynchronous}
        held.append(list(hold(tmp_path / str(rebuild), language, rebuild=rebuild, **options)))
        assert writer.requests
    for one, two in zip(*held, strict=True):
        assert _sent(two) == _sent(one), f"turn {one.number}"
    assert any("<conversation_summary>" in str(r.messages) for one in held[0] for r in one.requests)


def _has_large_result(exchange: Exchange) -> bool:
    """Tell whether the model received a large tool result in a turn, whole or truncated."""
    texts = [str(result["content"]) for result in tool_results(exchange.requests[-1].messages)]
    return any(len(text) > _LARGE or "characters cut" in text for text in texts)
