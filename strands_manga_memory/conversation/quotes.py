"""Quotes of earlier messages that are added to a request, within a limit of tokens."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime

from strands_manga_memory.conversation.archive import ArchivedMessage, RecallHit
from strands_manga_memory.conversation.token_counter import TokenCounter, tokens_of
from strands_manga_memory.language.search import excerpt_for_query, split_passages
from strands_manga_memory.messages.injection import CONTEXT_FRAME, QUOTES, escape_tags

_HEAD = f"{QUOTES}\nEarlier messages of this conversation:"
_FOOT = "</recalled_history>"

_WHOLE_SHARE, _WHOLE_TOKENS = 0.25, 64
"""Largest message that is quoted whole: a quarter of the budget, or 64 tokens if that is more."""

_LEAST_EXCERPT, _MOST_EXCERPT = 0.25, 0.75
"""Least and largest size of an excerpt of a longer message, as shares of the budget."""

_RESULT_SHARE = 0.08
"""Share of the budget for one tool result, small because the tool can be called again."""

_COMPARED = 4
"""Number of best messages. An excerpt's size depends on its share of their total score."""

_LEAST_ROOM = 50
"""Divisor: no further quote is added if less than 1/50 of the budget is left."""

_MOST_MISSES = 40
"""Number of messages that do not fit, after which no further message is tried."""

_SHORT_REPLY = 40
"""Passages of fewer bytes, such as replies, are quoted even if the request contains them."""

_QUESTION_ENDS = ("?", "？")

_NUMBER = re.compile(r"(?<![A-Za-z0-9-])\d[\d.,]*(?![A-Za-z0-9-])")
"""Pattern of a number that is not part of an identifier."""

_SECONDS_A_DAY = 86_400


class QuoteFormatter:
    """Selects passages of earlier messages, and formats them as quotes for the model.

    Each quote names the speaker and the time in UTC. All quotes together have at most
    ``max_tokens`` tokens.
    """

    def __init__(self, max_tokens: int, counter: TokenCounter) -> None:
        self.max_tokens = max_tokens
        self._counter = counter

    def format(
        self,
        hits: Sequence[RecallHit],
        terms: Collection[str],
        *,
        shown: Mapping[str, int | None] | None = None,
    ) -> str:
        """Return quotes of the best messages as one text, in the order of the conversation.

        The text has at most ``max_tokens`` tokens. It is empty if no message can be quoted.

        Args:
            hits: The messages to quote, the best first. A passage that several messages contain is
                quoted once.
            terms: Search terms of the user's question, by which the passages of long messages are
                selected.
            shown: Texts that the request already contains, with their positions in the conversation
                (None if unknown). Passages of these texts are not quoted.
        """
        shown = shown or {}
        latest = _latest_passages(hits, shown)
        quotes: dict[RecallHit, str] = {}
        days, known = {0}, "\n".join(shown)
        for _ in range(2):  # again, because lines together may count less than one by one
            rendered = _render(quotes)
            left, misses = self.max_tokens - self._tokens(f"{CONTEXT_FRAME}\n{rendered}"), 0
            for hit in hits:
                if left < self.max_tokens // _LEAST_ROOM or misses > _MOST_MISSES:
                    break
                own = "\n".join(text for text, number in shown.items() if number == hit.number)
                omitted = functools.partial(_is_omitted, hit, known, own, latest)
                if hit in quotes or all(map(omitted, split_passages(hit.message.text))):
                    continue
                day = _day(hit.message)
                room = left - (0 if day in days else self._tokens("\n2000-01-01"))
                text, size = self._quote(hit, hits, room, terms, omitted)
                if _is_repeated(hit, text, quotes):
                    continue
                if size > room:
                    misses += 1
                    continue
                left = room - size
                days.add(day)
                known += f"\n{text}"
                quotes[hit] = text
        rendered = _render(quotes)
        while quotes and self._tokens(f"{CONTEXT_FRAME}\n{rendered}") > self.max_tokens:
            quotes.popitem()  # the whole may count more tokens than its lines
            rendered = _render(quotes)
        return rendered if quotes else ""

    def _quote(
        self,
        hit: RecallHit,
        hits: Sequence[RecallHit],
        room: int,
        terms: Collection[str],
        omitted: Callable[[str], bool],
    ) -> tuple[str, int]:
        """Return the text to quote from a message, and the tokens that it adds.

        A text of more than ``room`` tokens does not fit.
        """
        text, size = hit.message.text, self._tokens("\n" + _line(hit.message, hit.message.text))
        is_whole = size <= max(_WHOLE_TOKENS, self.max_tokens * _WHOLE_SHARE)
        is_result = hit.message.speaker == "tool"
        if (
            is_whole
            and not (is_result and "\n" in text)
            and not any(map(omitted, split_passages(text)))
        ):
            return text, size
        best = sum(other.score for other in hits[:_COMPARED]) or 1.0
        share = min(_MOST_EXCERPT, max(_LEAST_EXCERPT, hit.score / best))
        if is_result and "\n" in text:
            share = _RESULT_SHARE
        max_tokens = min(room, max(_WHOLE_TOKENS, int(self.max_tokens * share)))
        frame = self._tokens(_line(hit.message, ""))
        text = excerpt_for_query(
            text,
            terms,
            max_tokens - frame,
            lambda part: self._tokens(_escaped(part)),
            omitted,
            records=is_result,
            follows=not is_whole,
        )
        return text, frame + self._tokens(_escaped(text)) if text else room + 1

    def _tokens(self, text: str) -> int:
        return tokens_of(self._counter, text)


def _render(quotes: Mapping[RecallHit, str]) -> str:
    lines, last = [_HEAD], 0
    for hit in sorted(quotes, key=lambda hit: hit.number):
        if (day := _day(hit.message)) and day != last:
            lines.append(f"{datetime.fromtimestamp(day * _SECONDS_A_DAY, UTC):%Y-%m-%d}")
            last = day
        lines.append(_line(hit.message, quotes[hit]))
    return "\n".join([*lines, _FOOT])


def _latest_passages(hits: Iterable[RecallHit], shown: Mapping[str, int | None]) -> dict[str, int]:
    """Map each passage with numbers to the position of the latest message with it.

    "Volume 2 costs 480 yen" and "Volume 2 costs 500 yen" are one passage, with the key
    "Volume # costs # yen".
    """
    texts = [(hit.message.text, hit.number) for hit in hits if hit.message.speaker != "user"]
    texts += [(text, number) for text, number in shown.items() if number is not None]
    latest: dict[str, int] = {}
    for text, number in texts:
        for key in _keys(text):
            latest[key] = max(number, latest.get(key, 0))
    return latest


def _is_omitted(
    hit: RecallHit, known: str, own: str, latest: Mapping[str, int], passage: str
) -> bool:
    """Return whether a quote leaves out a passage, because it is known or outdated.

    ``known`` is all text in the request. ``own`` is the part of it that is from the quoted message.
    """
    plain = passage.strip()
    is_outdated = (
        hit.message.speaker != "user" and latest.get(_without_numbers(passage), 0) > hit.number
    )
    return is_outdated or plain in own or (_is_long(plain) and plain in known)


def _is_repeated(hit: RecallHit, text: str, quotes: Mapping[RecallHit, str]) -> bool:
    """Return whether the same speaker is already quoted with the same text.

    Questions, and the messages after quoted questions, may repeat: "Which city?" "Kyoto".
    """
    asked = {each.number for each, quote in quotes.items() if quote.endswith(_QUESTION_ENDS)}
    return not text.endswith(_QUESTION_ENDS) and any(
        each.message.speaker == hit.message.speaker
        and quote == text
        and asked.isdisjoint((each.number - 1, hit.number - 1))
        for each, quote in quotes.items()
    )


def _is_long(passage: str) -> bool:
    return len(passage.encode(errors="replace")) >= _SHORT_REPLY


@functools.lru_cache(maxsize=4_096)
def _keys(text: str) -> tuple[str, ...]:
    return (
        tuple(filter(None, map(_without_numbers, split_passages(text))))
        if _NUMBER.search(text)
        else ()
    )


def _without_numbers(passage: str) -> str:
    """Replace numbers in a passage by ``#``. Return "" if it is short or has no number."""
    plain = passage.strip()
    key, found = _NUMBER.subn("#", plain) if _is_long(plain) else ("", 0)
    return key if found else ""


def _day(message: ArchivedMessage) -> int:
    return int(message.at // _SECONDS_A_DAY) if message.at else 0


def _line(message: ArchivedMessage, text: str) -> str:
    minutes = int(message.at % _SECONDS_A_DAY // 60) if message.at else 0
    at = f" {minutes // 60:02}:{minutes % 60:02}" if message.at else ""
    return f"[{message.speaker}{at}] {_escaped(text)}"


def _escaped(text: str) -> str:
    return escape_tags(text.replace("&", "&amp;")).replace("\n", "\n  ")
