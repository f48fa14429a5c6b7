"""HistoryBudget: what a history may take, and what of it stays within that. Nothing of a history is changed here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from strands.types.content import Message

from strands_manga_memory.conversation.history.exchanges import ids_of_first_turn, results_of_last_turn
from strands_manga_memory.conversation.history.stubs import as_said
from strands_manga_memory.conversation.importance import headroom
from strands_manga_memory.conversation.importance.choosing.choice import Choice, Limits
from strands_manga_memory.conversation.importance.choosing.selection import choose
from strands_manga_memory.conversation.importance.steps import Steps
from strands_manga_memory.conversation.importance.weighing.note import Note
from strands_manga_memory.conversation.importance.weighing.notes import Notes
from strands_manga_memory.conversation.importance.weighing.scoring import Bands
from strands_manga_memory.conversation.importance.weighing.signals import SignalWeights
from strands_manga_memory.conversation.serving import Served
from strands_manga_memory.conversation.tokens.calibration import Calibration
from strands_manga_memory.messages import for_model, is_turn_start

_NO_IDS: frozenset[str] = frozenset()

_TRIES = 2
"""So often a choice is made with room for marks that the history does without; then all of them count."""


class HistoryBudget:
    """What the history of one agent may take, by the counter and by what the model reports, and the choice within it."""

    __slots__ = (
        "_calibration",
        "_first_turn",
        "_notes",
        "_served",
        "_spare",
        "bands",
        "grow_to",
        "max_tokens",
        "max_turns",
        "reserved",
        "signals",
        "trim_every",
        "trim_to",
    )

    def __init__(
        self,
        max_tokens: int,
        trim_to: int | None,
        trim_every: int | None,
        max_turns: int | None,
        bands: Bands,
        signals: SignalWeights,
        notes: Notes,
        calibration: Calibration,
        served: Served,
    ) -> None:
        self.max_tokens = self.grow_to = max_tokens
        self.trim_to = trim_to
        self.trim_every = trim_every
        self.max_turns = max_turns
        self.bands = bands
        self.signals = signals
        self._notes = notes
        self._calibration = calibration
        self._served = served
        self._first_turn = _NO_IDS
        self._spare = 0
        self.reserved = 0

    @property
    def most(self) -> int:
        """Most tokens of the history: those of the budget that are not reserved for quotes."""
        return self.max_tokens - self.reserved

    @property
    def tokens(self) -> int:
        """The budget, in tokens of the counter."""
        return self._calibration.budget(self.most)

    @property
    def steps(self) -> Steps:
        """The marks between which a history grows, by the number of tokens that it may have now."""
        low = self.most if self.trim_to is None else min(self.trim_to, self.most)
        return Steps(self.most, low, self.trim_every)

    def reported(self, messages: Sequence[Message]) -> int:
        """Return the tokens of messages as the model counts them."""
        return self._calibration.reported(self._notes.total(messages))

    def usage(self, messages: Sequence[Message]) -> dict[str, int]:
        """Return the tokens of a history as the model counts them, the budget, and what is left of it."""
        tokens, budget = self.reported(messages), self.most + self.room_beyond(messages, self.most)
        return {"tokens": tokens, "budget": budget, "left": budget - tokens}

    def room_beyond(self, messages: Sequence[Message], limit: int) -> int:
        """Return by how many tokens, as the model counts them, a limit grows for what the user says now."""
        return self._calibration.reported(self._headroom(messages, self._calibration.budget(limit)).tokens)

    def is_over(self, messages: Sequence[Message], tokens: int) -> bool:
        """Whether messages of so many tokens have to be trimmed."""
        most = self._calibration.budget(max(self.most, self.grow_to - self.reserved))
        if tokens > most and tokens > most + self._headroom(messages, most).tokens:
            return True
        if self.grow_to <= self.max_tokens and self._results_are_due(messages, tokens):
            return True
        return self.max_turns is not None and sum(map(is_turn_start, as_said(messages))) > self.max_turns

    def _results_are_due(self, messages: Sequence[Message], tokens: int) -> bool:
        """Whether a turn begins, and the results of the one before take much of a history that is above its low mark."""
        steps = self.steps
        if not steps or tokens <= self._calibration.budget(steps.lowest) or not is_turn_start(messages[-1]):
            return False
        return self._notes.total(results_of_last_turn(messages[:-1])) >= self._calibration.budget(steps.large)

    def choice(
        self, messages: Sequence[Message], *, beside: int = 0, trim_to: int | None = None, coming: int | None = None
    ) -> Choice:
        """Return what of messages stays within the budget, of which ``beside`` is for something else.

        If it is brought down at all, it is to ``trim_to`` tokens as the model counts them, where that is less. All but the last
        ``coming`` are to be a history, which does without most marks; without that number all marks count.
        """
        notes = self._notes.read(messages)
        limits = self._limits(max(1, self.tokens - beside), self._headroom(messages, self.tokens))
        if trim_to is not None and trim_to < self.most:
            limits = replace(
                limits,
                fill_to=self._calibration.budget(trim_to) + limits.headroom,
                turns=self.max_turns and max(1, self.max_turns * trim_to // self.most),
                lasts=self.steps.turns or 0,
            )
        if coming is None:
            return self._chosen(messages, notes, limits)
        return self._condensed(messages, notes, limits, len(messages) - coming)

    def _condensed(self, messages: Sequence[Message], notes: Sequence[Note], limits: Limits, until: int) -> Choice:
        """Choose where marks that the history does without take no room: as much as the last time, less if that is too much."""
        most = limits.tokens if limits.fill_to is None else min(limits.tokens, limits.fill_to)
        spare = self._spare
        for _ in range(_TRIES):
            fill_to = None if limits.fill_to is None else limits.fill_to + spare
            roomier = replace(limits, tokens=limits.tokens + spare, fill_to=fill_to)
            choice = self._chosen(messages, notes, roomier).as_history(until)
            stays = {at for run in choice.runs for at in run}
            gone = (message for at, message in choice.kept.items() if at < until and at not in stays)
            self._spare = sum(map(self._notes.count, gone))
            tokens = choice.tokens - self._spare
            if not spare or tokens <= most:
                return replace(choice, tokens=tokens, budget=limits.tokens)
            spare = max(0, min(spare, self._spare) - (tokens - most))
        return self._chosen(messages, notes, limits).as_history(until)

    def half(self, messages: Sequence[Message]) -> Choice:
        """Return what of a history stays in half of the tokens that it has."""
        notes = self._notes.read(messages)
        limits = self._limits(min(self.tokens, sum(note.tokens for note in notes) // 2))
        return self._chosen(messages, notes, limits).as_history(len(messages))

    def three_quarters(self, messages: Sequence[Message]) -> Choice:
        """Return what of a history stays in three quarters of the tokens that it has, more if more must stay as it is."""
        notes, budget = self._notes.read(messages), self.tokens + self._headroom(messages, self.tokens).tokens
        before = sum(note.tokens for note in notes)
        limits = replace(self._limits(min(budget, before * 3 // 4)), may_shorten=before > budget)
        return self._chosen(messages, notes, limits).as_history(len(messages))

    def fitted(self, messages: Sequence[Message], max_tokens: int) -> list[Message]:
        """Return what of messages stays in so many tokens as the model counts them."""
        if self.reported(messages) <= max_tokens:
            return list(messages)
        said = as_said(messages)
        notes = self._notes.read(said)
        return for_model(self._chosen(said, notes, self._limits(self._calibration.budget(max_tokens))).messages)

    def narrowed(self, messages: Sequence[Message], tokens: int) -> list[Message]:
        """Return what of messages stays, whole, in so many tokens, however many turns they are."""
        limits = replace(self._limits(tokens), turns=None, may_shorten=False)
        return self._chosen(messages, self._notes.read(messages), limits).messages

    def _headroom(self, messages: Sequence[Message], budget: int) -> headroom.Headroom:
        return headroom.headroom_for(messages, budget, self._served.agent, self._calibration, self._notes.tokens)

    def _limits(self, tokens: int, room: headroom.Headroom = headroom.NO_HEADROOM) -> Limits:
        return Limits(
            tokens + room.tokens,
            self.max_turns,
            self.bands,
            weights=self.signals,
            service=self._notes.vocabulary.service,
            headroom=room.tokens,
            spares_request=room.is_enough,
        )

    def _chosen(self, messages: Sequence[Message], notes: Sequence[Note], limits: Limits) -> Choice:
        """Choose; the first turn is known by its ids once it is over: told anew from what is left it might grow."""
        if self._first_turn.isdisjoint(message.get("tracking_id") for message in messages):
            self._first_turn = ids_of_first_turn(messages)
        return choose(messages, notes, limits, first_turn=self._first_turn, count=self._notes.count)
