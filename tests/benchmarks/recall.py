"""Time of a recall question relative to its search, among 50,000 and among 2,000 archived messages.

Part of the benchmark ``turn``. Times are CPU times of this thread, so that other work on the machine does not count.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from strands_manga_memory.conversation import ArchivedMessage, HistoryRecall
from tests.benchmarks import progress, text
from tests.benchmarks.sentences import prose

BUDGETS = {"question_over_its_search": "<= 1.3", "question_over_its_search_at_2000": "<= 1.3"}
_MESSAGES, _FEW, _QUESTIONS, _CHARACTERS = 50_000, 2_000, 300, 120


def _messages(count: int) -> list[ArchivedMessage]:
    return [
        ArchivedMessage(f"id-{number:032}", "user" if number % 2 else "assistant", text(_CHARACTERS), 1.0)
        for number in range(count)
    ]


def run() -> dict[str, float]:
    """Return the time of a whole question, relative to its search."""
    messages = _messages(_MESSAGES)
    return {
        "question_over_its_search": _ratio(*_ask(_recall(messages), messages)),
        "question_over_its_search_at_2000": _ratio_at_2000(),
    }


def _ratio_at_2000() -> float:
    few = [_message(number, _CHARACTERS) for number in range(_FEW)]
    return _ratio(*_ask(_recall(few), few))


def _ratio(searching: list[float], asking: list[float]) -> float:
    return statistics.median(one / other for one, other in zip(asking, searching, strict=True))


def _message(number: int, characters: int) -> ArchivedMessage:
    start = number * 211 % (len(prose()) - characters)
    speaker = "assistant" if number % 2 else "user"
    return ArchivedMessage(f"id-{number}", speaker, prose()[start : start + characters], 1.7e9 + 60 * number)


def _recall(messages: list[ArchivedMessage]) -> HistoryRecall:
    recall = HistoryRecall()
    recall.archive.add(messages)
    return recall


def _ask(recall: Any, messages: list[ArchivedMessage]) -> tuple[list[float], list[float]]:
    """Return the seconds of the searches and of the whole questions. They alternate, so that load affects both alike."""

    searching, asking = [], []
    for number in progress(range(_QUESTIONS), "questions"):
        question = messages[number * 37 % len(messages)].text[:60]
        for seconds, ask in ((searching, recall.search), (asking, lambda text: recall.quote(text, []))):
            start = time.thread_time()
            ask(question)
            seconds.append(time.thread_time() - start)
    return searching, asking
