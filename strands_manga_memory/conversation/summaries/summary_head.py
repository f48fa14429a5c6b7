"""SummaryHead: what stands before the recent turns once a summary has taken the place of older ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial

from strands.types.content import Message

from strands_manga_memory.conversation.history.shown_summary import Shown, shown
from strands_manga_memory.conversation.history.summary import RULES, Summary, is_synthesized
from strands_manga_memory.conversation.importance.importance import ImportanceWeightedConversationManager
from strands_manga_memory.conversation.importance.weighing.scoring import Band
from strands_manga_memory.conversation.summaries.folding import staying
from strands_manga_memory.conversation.summaries.summary_policies import SummarySizes
from strands_manga_memory.conversation.tokens.token_counter import tokens_of
from strands_manga_memory.language.entities import EntityTypes
from strands_manga_memory.messages import id_of

_REMEMBERED = 4_096
"""So many texts are not counted twice: the same facts are laid out with every summary."""


class SummaryHead:
    """Lays a summary out within the bounds of a history."""

    def __init__(self, trimmer: ImportanceWeightedConversationManager, types: EntityTypes, sizes: SummarySizes) -> None:
        self.facts_tokens = trimmer.max_tokens * 3 // 4 if sizes.facts_tokens is None else sizes.facts_tokens
        self.sizes = sizes
        self._trimmer = trimmer
        self._types = types
        self._text_tokens = lru_cache(_REMEMBERED)(partial(tokens_of, trimmer.counter))
        self._prepared: tuple[Summary, Shown] | None = None

    def prepare(self, summary: Summary) -> None:
        """Lay the summary out and count it, away from the event loop: there it is only put in its place."""
        laid_out = self.shown(summary, self.facts_tokens)
        self._trimmer.tokens(laid_out.messages)
        self._prepared = summary, laid_out

    def of(
        self, summary: Summary, history: Sequence[Message], split: int, *, room: int, is_tight: bool = False
    ) -> tuple[list[Message], list[Message]]:
        """Return what stands before the recent turns, which begin at ``split``, and the messages that leave.

        The history should have ``room`` tokens then. If it ``is_tight``, only pinned messages stay beside the summary.
        """
        tokens, most = self._trimmer.tokens, self._trimmer.max_tokens
        covered = [message for message in history[:split] if not is_synthesized(message)]
        own = room * 2 // 3  # recent turns full of tool results must not drive out what was said: the trimmer shortens those
        room -= tokens(history[split:])
        facts = max(0, min(self.facts_tokens, max(room, own) - self.sizes.summary_tokens))
        laid_out = self._as_prepared(summary, facts) or self.shown(summary, facts)
        taken = tokens(laid_out.messages)
        kept = staying(
            covered,
            min(room, most // 2) - taken,  # there must be room to grow before the next one
            bands=() if is_tight else self._bands(summary),
            band_of=lambda message: self._trimmer.bands.of(self._trimmer.score(message)),
            tokens_of=tokens,
            outdated={id_ for slot in summary.slots for id_ in slot.corrects},
        )
        ids = frozenset(message.get("tracking_id") for message in kept)
        if kept:
            laid_out = self.shown(replace(summary, kept=tuple(id_of(message) for message in kept)), facts)
        return [*laid_out.messages, *kept], [message for message in covered if message.get("tracking_id") not in ids]

    def _as_prepared(self, summary: Summary, facts_tokens: int) -> Shown | None:
        """Return what was laid out before, if it is this summary and its facts have no more than so many tokens."""
        if self._prepared is None or self._prepared[0] is not summary:
            return None
        laid_out = self._prepared[1]
        return laid_out if not laid_out.beside or self._trimmer.tokens(laid_out.messages[:2]) <= facts_tokens else None

    def shown(self, summary: Summary, facts_tokens: int) -> Shown:
        """Lay the summary out as messages."""
        return shown(
            summary,
            summary_tokens=self.sizes.summary_tokens,
            facts_tokens=facts_tokens,
            count=self._text_tokens,
            types=self._types,
        )

    def _bands(self, summary: Summary) -> Sequence[Band]:
        if summary.model == RULES:
            return (Band.HIGH, Band.MIDDLE, Band.LOW)
        return (Band.HIGH,) if self.sizes.keep_important else ()
