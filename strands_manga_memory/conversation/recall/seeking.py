"""Seeking: which earlier messages fit a question, found by its terms, by those of what was found, by neighbours and by days."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime

from strands.types.content import Message

from strands_manga_memory.conversation.recall.archive import Archived, Hit, Retriever
from strands_manga_memory.language.search import Days, parse_days, query_terms, search_terms
from strands_manga_memory.language.text_forms import split_sentences
from strands_manga_memory.lazy import expression
from strands_manga_memory.messages import is_turn_start
from strands_manga_memory.messages.injection import message_text
from strands_manga_memory.messages.text_excerpts import head_and_tail

_SHARES = ((0, 1.0), (-1, 0.5), (1, 0.5), (-2, 0.2), (2, 0.2))
"""What of its score a hit gives to messages so many places away: the answer often does not repeat the question's words."""

_QUESTION = 0.7
"""A question seldom answers one."""

_ASKS = ("?", "？", "か", "か。")

_AGAIN, _FROM = 0.7, 5
"""A second search asks with the words of the first so many hits as well; its scores count so much."""

_THEN = 1.5
"""What a message gains that is of the days the question speaks of."""

_CANDIDATES = 250
_LOOKED_AROUND = 30

_FOLLOWS = expression(
    r"\A\W*(?:and\b|what about|how about|which one|the (?:first|second|third|other|last) one|それ|その|じゃあ|では|あと"
    r"|次は|もう一つ)"
    r"|\b(?:it|that|those|them|this one|that one)\b\W*\Z|\A.{0,10}(?:は|の方は|のほうは)[?？]\Z",
    re.IGNORECASE,
)
_ANSWER_FORMAT = expression(
    r"\A\W{0,3}(?:please )?(?:answer|reply|respond|write your answer|give (?:me )?(?:the|your|an) answer)\b(?!.{0,200}\?)"
    r"|(?:答えて|回答して|返答して|お答え)(?:ください|下さい|くださいね)?[。！!]?\Z",
    re.IGNORECASE,
)
_FEW_TERMS = 3
"""A question of so few terms that follows another one speaks of the same thing."""


class Seeking:
    """Ranks what a retriever finds for a question."""

    def __init__(self, retriever: Retriever, clock: Callable[[], float]) -> None:
        self._retriever = retriever
        self._clock = clock

    def hits(self, question: str, leave_out: Iterable[str] = ()) -> list[Hit]:
        """Return the messages that fit a question, the best first.

        What surrounds a message adds to its score, but each message shares a term with the question, or the retriever itself
        found it for the question.
        """
        question = head_and_tail(question)
        scores, found, direct = self._searched(question)
        asked = frozenset(query_terms(question))
        for number in sorted(scores, key=lambda number: (-scores[number], -number))[:_LOOKED_AROUND]:
            found.update(self._retriever.around(number))
        fit = dict.fromkeys(found, 0.0)
        for number, score in scores.items():
            for away, share in _SHARES:
                if number + away in fit:
                    fit[number + away] += share * score
        days = parse_days(question, lambda: _day(self._clock()))
        unwanted = frozenset(leave_out)
        ranked = [
            Hit(number, message, fit[number] * _worth(message, days))
            for number, message in found.items()
            if message.id not in unwanted
            and message.text
            and (number in direct or not asked.isdisjoint(search_terms(message.text)))
        ]
        return sorted(ranked, key=lambda hit: (-hit.score, -hit.number))

    def _searched(self, question: str) -> tuple[dict[int, float], dict[int, Archived], set[int]]:
        """Return the scores and messages of both searches, and the numbers that the question itself found."""
        first = self._retriever.search(question, _CANDIDATES)
        scores = {hit.number: hit.score for hit in first}
        found = {hit.number: hit.message for hit in first}
        if first:
            told = " ".join(hit.message.text for hit in first[:_FROM])
            for hit in self._retriever.search(f"{question} {told}", _CANDIDATES):
                scores[hit.number] = scores.get(hit.number, 0.0) + _AGAIN * hit.score
                found[hit.number] = hit.message
        return scores, found, {hit.number for hit in first}


def _worth(message: Archived, days: Days | None) -> float:
    """Return by how much a message counts whatever it was found by."""
    worth = _QUESTION if message.text.endswith(_ASKS) else 1.0
    if days is not None and message.at and _day(message.at) in days:
        worth *= _THEN
    return worth


def _day(at: float) -> date:
    return datetime.fromtimestamp(at, UTC).date()


def without_answer_format(question: str) -> str:
    """Return a question without its sentences that only say how to answer: "Answer in number of semesters."."""
    asks = [sentence for sentence in split_sentences(question) if _ANSWER_FORMAT.search(sentence) is None]
    return " ".join(asks) or question


def in_full(question: str, history: Sequence[Message]) -> str:
    """Return a question, a long one cut, with the one before it if it follows that one: "And the second one?", 「それは？」."""
    question = head_and_tail(question)
    if not _FOLLOWS.search(question) or len(query_terms(question)) > _FEW_TERMS:
        return question
    texts = (message_text(message) for message in reversed(history) if is_turn_start(message))
    earlier = next((text for text in texts if text.strip() and text != question), "")
    return f"{question} {earlier}".strip()
