"""Writing a summary: from raw turns, chunk by chunk, each draft verified and asked for again while it lacks something."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from strands.types.content import Message

from strands_manga_memory.conversation.history.summary import RULES, Segment, Summary
from strands_manga_memory.conversation.summaries.summary_policies import SummarySizes
from strands_manga_memory.conversation.summaries.writing.conversation_text import chunks, cut_to, transcript
from strands_manga_memory.conversation.summaries.writing.summarizers import ModelSummarizer, asked, name_of
from strands_manga_memory.conversation.summaries.writing.summary_cache import SummaryCache
from strands_manga_memory.conversation.summaries.writing.summary_prompts import asked_for
from strands_manga_memory.conversation.tokens.thresholds import window_of
from strands_manga_memory.conversation.tokens.token_counter import TokenCounter, tokens_of
from strands_manga_memory.language.entities import EntityTypes
from strands_manga_memory.language.pii import redact_identifiers
from strands_manga_memory.language.session_summaries import Prompt, Summarizer
from strands_manga_memory.language.summary_facts import (
    Fact,
    FactExtractor,
    FactKind,
    RuleFactExtractor,
    merge_facts,
    select_facts,
)
from strands_manga_memory.language.verification import SearchableText, render_complaint, verify_draft
from strands_manga_memory.messages import id_of, is_turn_start
from strands_manga_memory.messages.injection import escape_tags

logger = logging.getLogger(__name__)

Log = Callable[[], Iterable[Message]]
"""Returns the raw messages of the conversation from its beginning, as a session's log keeps them."""

MOST_ATTEMPTS = 3
FAN_IN = 4
"""So many neighbouring segments of a level are written anew as one, from their raw turns."""

_SOURCE_TOKENS = 12_000
_PROSE_SHARE = 0.6
_REQUIRED_SHARE = 0.6


@dataclass(frozen=True)
class Work:
    """What a summarizer did.

    Attributes:
        text: The prose; empty if none was usable.
        attempts: How often the summarizer was asked; 0 if the cache had the answer.
        tokens: Tokens read and written.
    """

    text: str
    attempts: int
    tokens: int


class SummaryWriter:
    """Writes summaries of the sizes given; facts that are appended to the prose count as well."""

    def __init__(
        self,
        counter: TokenCounter,
        extractor: FactExtractor | None,
        types: EntityTypes,
        sizes: SummarySizes,
        log: Log | None,
        cache: SummaryCache | None,
    ) -> None:
        self._counter = counter
        self._extractor = extractor or RuleFactExtractor(types)
        self._types = types
        self.sizes = sizes
        self._log = log
        self._cache = cache

    async def write(self, earlier: Summary | None, messages: Sequence[Message], summarizer: Summarizer | None) -> Summary:
        """Return the summary of everything ``earlier`` covers and of raw messages with ids, which follow it.

        The prose of before stays, or is written anew from the raw turns. Without a summarizer only the slots are kept.
        """
        earlier = earlier or Summary(version=0)
        # As the log has them, if it has them all: in the history they may have been shortened.
        raw = self._logged({id_of(message) for message in messages}) or list(messages)
        if summarizer is None:
            return self.from_rules(earlier, raw)
        slots = merge_facts(self._extracted(raw), earlier=earlier.slots, types=self._types)
        parts = chunks(raw, most_tokens=self._source_of(summarizer), count=self._count)
        segments = list(earlier.segments)
        works: list[Work] = []
        for part in parts:
            work = await self._written(part, earlier, slots, summarizer, share=len(segments) + len(parts))
            segments.append(Segment(work.text, id_of(part[0]), id_of(part[-1])))
            works.append(work)
        segments = await self._consolidated(segments, earlier, slots, summarizer, works)
        segments = self._shortened(segments)
        usable = any(work.text for work in works)
        return Summary(
            segments=tuple(segments),
            slots=tuple(slots),
            turns=earlier.turns + sum(is_turn_start(message) for message in messages),
            version=earlier.version + 1,
            attempts=sum(work.attempts for work in works),
            model=name_of(summarizer) if usable else RULES,
            tokens=earlier.tokens + sum(work.tokens for work in works),
            failures=0 if usable else earlier.failures + 1,
        )

    def from_rules(self, earlier: Summary | None, messages: Sequence[Message]) -> Summary:
        """Return the summary of everything so far without asking anybody: what is new in it are slots."""
        earlier = earlier or Summary(version=0)
        if not messages:
            return replace(earlier, version=earlier.version + 1)
        return replace(
            earlier,
            segments=(*earlier.segments, Segment("", id_of(messages[0]), id_of(messages[-1]))),
            slots=tuple(merge_facts(self._extracted(messages), earlier=earlier.slots, types=self._types)),
            turns=earlier.turns + sum(is_turn_start(message) for message in messages),
            version=earlier.version + 1,
            attempts=0,
            model=RULES,
        )

    def _count(self, text: str) -> int:
        return tokens_of(self._counter, text)

    def _source_of(self, summarizer: Summarizer) -> int:
        """Return the most tokens of raw turns that a summarizer reads at a time."""
        window = window_of(summarizer.model) if isinstance(summarizer, ModelSummarizer) else None
        return self.sizes.source_tokens or min(_SOURCE_TOKENS, window * 3 // 5 if window else _SOURCE_TOKENS)

    def _extracted(self, messages: Sequence[Message]) -> list[Fact]:
        try:
            found = self._extractor.extract(messages)
            return [replace(slot, text=redact_identifiers(slot.text), key=redact_identifiers(slot.key)) for slot in found]
        except Exception as error:  # an extractor may be the user's own code; the rules always work
            logger.warning("error=<%s> | the slot extractor failed, using the rules", type(error).__name__)
            logger.debug("the slot extractor failed", exc_info=True)
            return RuleFactExtractor(self._types).extract(messages)

    def _logged(self, ids: Collection[str]) -> list[Message]:
        """Return the logged messages from the first to the last of these; empty if the log does not hold them all.

        Where several processes wrote, a history may have turns in another order than the log.
        """
        if self._log is None:
            return []
        found: list[Message] = []
        left = set(ids)
        try:
            for message in self._log():
                if message.get("tracking_id") in left:
                    left.discard(id_of(message))
                elif not found:
                    continue
                found.append(message)
                if not left:
                    return found
        except Exception as error:  # noqa: BLE001 - the log is a store that may be down
            logger.warning("error=<%s> | the log cannot be read, the history is summarized", type(error).__name__)
        return []

    # --- Prose --------------------------------------------------------------------------------------------------------------

    async def _written(
        self, messages: Sequence[Message], earlier: Summary, slots: Sequence[Fact], summarizer: Summarizer, *, share: int
    ) -> Work:
        """Let the summarizer write about some raw turns, at most three times; return the usable draft that lacks least."""
        source = cut_to(transcript(messages), most_tokens=self._source_of(summarizer), count=self._count)
        if not source.strip():
            return Work("", 0, 0)
        most = max(40, int(self.sizes.summary_tokens * _PROSE_SHARE) // min(max(1, share), FAN_IN))
        required = self._required(messages, slots, most)
        instructions = asked_for(most, required, earlier.text)
        key = (name_of(summarizer), instructions, source)
        if self._cache is not None and (cached := self._cache.get(*key)) is not None:
            return Work(cached, 0, 0)
        known = "\n".join([transcript(messages, most=None), earlier.text, *(slot.text for slot in slots)])
        known_text, source_tokens = SearchableText(known, self._types), self._count(source)
        best: tuple[int, str] | None = None
        material = f"<conversation>\n{escape_tags(source)}\n</conversation>"
        note, tokens, attempts = "", 0, 0
        while attempts < MOST_ATTEMPTS:
            attempts += 1
            prompt = Prompt(instructions + note, material)
            try:
                draft = await asked(summarizer, prompt)
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - a model may raise anything, and this is no catastrophe
                logger.debug("error=<%s> | the summarizer failed", type(error).__name__)
                tokens += self._count(prompt.instructions) + self._count(prompt.source)
                break
            tokens += (draft.input_tokens or self._count(prompt.instructions) + self._count(prompt.source)) + (
                draft.output_tokens or self._count(draft.text)
            )
            text = redact_identifiers(draft.text.strip())
            verdict = verify_draft(
                text, source=known_text, source_tokens=source_tokens, required=required, most_tokens=most, count=self._count
            )
            if verdict.is_usable and (best is None or len(verdict.missing) <= best[0]):
                best = len(verdict.missing), text
            if verdict.is_usable and not verdict.missing:
                break
            note = render_complaint(verdict.problems, verdict.missing)
            if verdict.is_usable:  # what is missing is asked for with the turns that say it: the others need not be read again
                material = _with_draft(text, messages, verdict.missing)
        if best is None:
            return Work("", attempts, tokens)
        if self._cache is not None:
            self._cache.put(*key, text=best[1])
        return Work(best[1], attempts, tokens)

    def _required(self, messages: Sequence[Message], slots: Sequence[Fact], most: int) -> list[Fact]:
        """Return the slots a draft about these messages must hold: the most important, as many as fit a part of its budget."""
        ids = {message.get("tracking_id") for message in messages}
        own = [slot for slot in slots if slot.source in ids and (slot.kind in _TOLD or slot.weight >= 1)]
        return select_facts(own, most_tokens=int(most * _REQUIRED_SHARE), count=self._count)

    async def _consolidated(
        self,
        segments: list[Segment],
        earlier: Summary,
        slots: Sequence[Fact],
        summarizer: Summarizer,
        works: list[Work],
    ) -> list[Segment]:
        """Write neighbouring segments of one level anew as one, from the raw turns in the log: never from their prose.

        So a conversation of any length has few segments, and each raw turn is read again only a logarithmic number of times.
        """
        while self._log is not None:
            at = next(
                (
                    at
                    for at in range(len(segments) - FAN_IN + 1)
                    if all(segment.level == segments[at].level for segment in segments[at : at + FAN_IN])
                ),
                None,
            )
            if at is None:
                break
            raw = self._logged({id_ for segment in segments[at : at + FAN_IN] for id_ in (segment.first, segment.last)})
            if not raw or self._count(transcript(raw)) > self._source_of(summarizer):
                break
            level = segments[at].level
            work = await self._written(
                raw, Summary(segments=tuple(segments[:at])), slots, summarizer, share=len(segments) - FAN_IN + 1
            )
            works.append(work)
            if not work.text:
                break
            segments = [*segments[:at], Segment(work.text, id_of(raw[0]), id_of(raw[-1]), level + 1), *segments[at + FAN_IN :]]
        return segments

    def _shortened(self, segments: list[Segment]) -> list[Segment]:
        """Bring the prose of all segments within its share: the oldest are cut first, sentence by sentence."""
        room = int(self.sizes.summary_tokens * _PROSE_SHARE)
        kept: list[Segment] = []
        for segment in reversed(segments):
            text = segment.text
            while text and self._count(text) > room:
                text = _without_last_sentence(text)
            room -= self._count(text) if text else 0
            kept.append(replace(segment, text=text))
        kept.reverse()
        while len(kept) > 2 * FAN_IN and not kept[0].text and not kept[1].text:
            kept[:2] = [Segment("", kept[0].first, kept[1].last, max(kept[0].level, kept[1].level))]
        return kept


_TOLD = frozenset(FactKind) - {FactKind.STATEMENT, FactKind.FINDING, FactKind.TASK}


def _with_draft(draft: str, messages: Sequence[Message], missing: Sequence[Fact]) -> str:
    sources = {slot.source for slot in missing}
    lines = transcript([message for message in messages if id_of(message) in sources])
    return f"<draft>\n{escape_tags(draft)}\n</draft>\n<conversation>\n{escape_tags(lines)}\n</conversation>"


def _without_last_sentence(text: str) -> str:
    cut = max(text.rstrip(" .。!?！？").rfind(sign) for sign in ".。!?！？")
    return text[: cut + 1].rstrip() if cut > 0 else ""
