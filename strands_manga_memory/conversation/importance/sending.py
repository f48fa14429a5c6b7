"""Sending: what of a history one call of the model is sent, and how much of it may be quotes."""

from __future__ import annotations

import logging

from strands.middleware import InvokeModelContext
from strands.types.content import Message

from strands_manga_memory.conversation.history.message_list import History
from strands_manga_memory.conversation.history.requests import Requests, with_added, without_added
from strands_manga_memory.conversation.history.stubs import as_said
from strands_manga_memory.conversation.importance.history_budget import HistoryBudget
from strands_manga_memory.conversation.importance.weighing.notes import Notes
from strands_manga_memory.conversation.importance.weighing.workload import Work, Workload
from strands_manga_memory.messages import for_model

logger = logging.getLogger(__name__)


class Sending:
    """Trims the messages of a request and gives them the form that providers take; the history itself stays as it is."""

    __slots__ = ("_budget", "_notes", "_requests", "_workload", "includes_recall")

    def __init__(
        self, budget: HistoryBudget, workload: Workload, notes: Notes, requests: Requests, *, includes_recall: bool
    ) -> None:
        self.includes_recall = includes_recall
        self._budget = budget
        self._workload = workload
        self._notes = notes
        self._requests = requests

    async def before_request(self, context: InvokeModelContext) -> InvokeModelContext:
        """Trim the messages of one request, which may hold more than the history: continuations come after the hooks."""
        try:
            messages, added = without_added(context)
            history = for_model(messages)
            work, tokens = self._workload.of(history, 0)
            if work is not Work.NONE:
                history, tokens = await work.done(lambda: self._fitted(history))
                history = for_model(history)
            self._requests.sending(context, tokens, [*added.before, *added.after])
            if history is context.messages:
                return context
            sent = History(with_added(history, added))
            return context.replace(messages=sent, dynamic_trailing_blocks=len(added.after))
        except Exception as error:
            logger.warning(
                "error=<%s> | the history could not be trimmed for this call, sending it as it is", type(error).__name__
            )
            logger.debug("the history could not be trimmed for this call", exc_info=True)
            return context

    def reserve(self, tokens: int) -> int:
        """Reserve tokens of the budget for quotes in every request; return their number.

        The part is fixed, so that the history, and with it the cached prefix, does not depend on what a question finds. At
        most half of the budget is reserved.
        """
        if not self.includes_recall:
            return tokens
        self._budget.reserved = min(tokens, self._budget.max_tokens // 2)
        return max(1, self._budget.reserved)

    def _fitted(self, history: list[Message]) -> tuple[list[Message], int]:
        tokens = self._notes.total(history)
        if not self._budget.is_over(history, tokens):
            return history, tokens
        choice = self._budget.choice(as_said(history))
        return choice.messages, choice.tokens
