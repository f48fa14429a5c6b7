"""recall: what finding a message among 50,000 archived ones costs, and what keeping them does.

Times are CPU times of this thread, so that other work on the machine does not count.
"""

from __future__ import annotations

import statistics
import time
import tracemalloc
from typing import Any

from strands_manga_memory.conversation import Archived, HistoryRecall
from tests.benchmarks import progress, text
from tests.unit.language.shop_talk import PARAPHRASES

BUDGETS = {
    "adding_a_message_p95_ms": "< 1.0",
    "query_p95_ms": "<= 5.0",
    "index_bytes_a_message": "< 1024",
    "japanese_paraphrases_found_in_3": ">= 0.95",
}

_MESSAGES, _SINGLY, _QUESTIONS = 50_000, 500, 300
_CHARACTERS = 120


def _messages(count: int) -> list[Archived]:
    return [
        Archived(f"id-{number:032}", "user" if number % 2 else "assistant", text(_CHARACTERS), 1.0) for number in range(count)
    ]


def _p95(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=20)[-1] * 1_000


def run() -> dict[str, float]:
    """Index 50,000 messages, the last 500 one by one, and ask 300 questions."""
    recall = HistoryRecall()
    messages = _messages(_MESSAGES)
    recall.retriever.add(progress(messages[:-_SINGLY], "archiving"))
    adding, asking = [], []
    for message in messages[-_SINGLY:]:
        start = time.thread_time()
        recall.retriever.add([message])
        adding.append(time.thread_time() - start)
    for _ in progress(range(_QUESTIONS), "questions"):
        question = text(60)
        start = time.thread_time()
        recall.search(question)
        asking.append(time.thread_time() - start)
    return {
        "messages": _MESSAGES,
        "adding_a_message_p95_ms": _p95(adding),
        "query_p50_ms": statistics.median(asking) * 1_000,
        "query_p95_ms": _p95(asking),
        "index_bytes_a_message": _bytes(_messages(_MESSAGES // 10)),
        "japanese_paraphrases_found_in_3": _paraphrases(),
    }


def _bytes(messages: list[Archived]) -> float:
    """Return what the index takes beside the texts themselves: in Python and in SQLite."""
    recall: Any = HistoryRecall()
    recall.retriever.add(messages[:1])  # what is made once
    tracemalloc.start()
    recall.retriever.add(messages)
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return (taken + recall.retriever.index_bytes) / len(messages)


def _paraphrases() -> float:
    recall = HistoryRecall()
    recall.retriever.add(Archived(str(at), "user", answer) for at, (_, answer) in enumerate(PARAPHRASES))
    found = sum(
        answer in [hit.message.text for hit in recall.retriever.search(question, 3)] for question, answer in PARAPHRASES
    )
    return found / len(PARAPHRASES)
