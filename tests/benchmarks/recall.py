"""recall: cost of finding a message among 50,000 archived ones, and of archiving messages.

Times are CPU times of this thread, so that other work on the machine does not count.
"""

from __future__ import annotations

import statistics
import time
import tracemalloc
from typing import Any

from strands_manga_memory.conversation import ArchivedMessage, HistoryRecall
from tests.benchmarks import progress, text
from tests.benchmarks.sentences import prose
from tests.lines import rows

RATIOS = {"question_over_its_search": "<= 1.3", "question_over_its_search_at_2000": "<= 1.3"}
BUDGETS = {
    "adding_a_message_p95_ms": "< 1.0",
    "query_p95_ms": "<= 5.0",
    **RATIOS,
    "long_answers_question_ms_at_2000": "<= 10.0",
    "index_bytes_a_message": "< 1024",
    "japanese_paraphrases_found_in_3": ">= 0.95",
}

_MESSAGES, _FEW, _SINGLY, _QUESTIONS = 50_000, 2_000, 500, 300
_CHARACTERS, _LONG = 120, 2_500


def _messages(count: int) -> list[ArchivedMessage]:
    return [
        ArchivedMessage(f"id-{number:032}", "user" if number % 2 else "assistant", text(_CHARACTERS), 1.0)
        for number in range(count)
    ]


def _p95(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=20)[-1] * 1_000


def run() -> dict[str, float]:
    """Index 50,000 messages, the last 500 one by one, and ask 300 questions."""
    recall = HistoryRecall()
    messages = _messages(_MESSAGES)
    recall.archive.add(progress(messages[:-_SINGLY], "archiving"))
    adding = []
    for message in messages[-_SINGLY:]:
        start = time.thread_time()
        recall.archive.add([message])
        adding.append(time.thread_time() - start)
    searching, asking = _ask(recall, messages)
    long = [_message(number, _LONG if number % 2 else _CHARACTERS) for number in range(_FEW)]
    return {
        "messages": _MESSAGES,
        "adding_a_message_p95_ms": _p95(adding),
        "query_p50_ms": statistics.median(searching) * 1_000,
        "query_p95_ms": _p95(searching),
        "question_over_its_search": _ratio(searching, asking),
        "question_over_its_search_at_2000": _ratio_at_2000(),
        "long_answers_question_ms_at_2000": statistics.median(_ask(_recall(long), long)[1]) * 1_000,
        "index_bytes_a_message": _bytes(_messages(_MESSAGES // 10)),
        "japanese_paraphrases_found_in_3": _paraphrases(),
    }


def ratios() -> dict[str, float]:
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


def _bytes(messages: list[ArchivedMessage]) -> float:
    """Return the size of the index without the texts, in Python and in SQLite."""
    recall: Any = HistoryRecall()
    recall.archive.add(messages[:1])  # what is made once
    tracemalloc.start()
    recall.archive.add(messages)
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    database = recall.archive._words._database
    pages, size = (database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    return (taken + pages * size) / len(messages)


def _paraphrases() -> float:
    paraphrases = rows("paraphrases")
    recall = HistoryRecall()
    recall.archive.add(ArchivedMessage(str(at), "user", answer) for at, (_, answer) in enumerate(paraphrases))
    found = sum(answer in [hit.message.text for hit in recall.archive.search(question, 3)] for question, answer in paraphrases)
    return found / len(paraphrases)
