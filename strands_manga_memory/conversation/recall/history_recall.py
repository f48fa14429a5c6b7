"""HistoryRecall: what has left the window stays findable, and comes back for one turn when a question needs it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from strands import tool
from strands.hooks import AgentInitializedEvent, BeforeInvocationEvent, HookOrder, MessageAddedEvent
from strands.middleware import InvokeModelContext, InvokeModelStage
from strands.plugins import Plugin
from strands.types.content import Message

from strands_manga_memory.arguments import function, positive
from strands_manga_memory.conversation.history.requests import without_added
from strands_manga_memory.conversation.history.stubs import as_said
from strands_manga_memory.conversation.recall.archive import Bm25Retriever, Hit, Retriever
from strands_manga_memory.conversation.recall.fusing import FusedRetriever
from strands_manga_memory.conversation.recall.intake import Intake, Said, Source, archived
from strands_manga_memory.conversation.recall.quotes import Quoting
from strands_manga_memory.conversation.recall.seeking import Seeking, in_full, without_answer_format
from strands_manga_memory.conversation.serving import Served, trimmer_of
from strands_manga_memory.conversation.tokens.budget import history_tokens
from strands_manga_memory.conversation.tokens.thresholds import window_of
from strands_manga_memory.conversation.tokens.token_counter import TokenCounter, default_counter
from strands_manga_memory.language.acts.act_rules import DialogueAct
from strands_manga_memory.language.acts.acts import dialogue_act
from strands_manga_memory.language.search import query_terms
from strands_manga_memory.messages.injection import message_text, with_turn_text
from strands_manga_memory.messages.turn_context import begins_turn, opening_id, opening_position

if TYPE_CHECKING:
    from strands.agent.agent import Agent

logger = logging.getLogger(__name__)

_ASKS_NOTHING = (DialogueAct.GREETING, DialogueAct.ACKNOWLEDGEMENT, DialogueAct.FAREWELL)


_MOST_TOKENS = 1_024
_WEAK = 0.2
"""Hits with less than this part of the best hit's score are not quoted, also if the best is still in the history."""


class HistoryRecall(Plugin):
    """Brings back earlier messages that fit the user's question, for one turn, within a budget of tokens.

    A greeting, thanks or a farewell asks for nothing and brings nothing back. Every message of the agent is indexed, also
    under conversation managers that are not ours; what is in the history whole is not quoted again. The quotes stand before the
    user's own words in the message that opened the turn, in each request of it, escaped, each with speaker and time (UTC).
    Each contains a content word of the question; small talk and failed tool results are not quoted. They are never stored.
    Indexing and searching run in a thread; the default index is in memory only.

    What is redacted is not brought back: a message is indexed after its turn, one that changes in the history later is indexed
    anew, and ``forget`` takes one that has left the history. A history that holds nothing of what was known (the session was
    deleted, or the agent was given another conversation) empties the index. One plugin serves one agent.

    Args:
        max_tokens: The most that is quoted, framing included. A question takes what its hits are worth: those that are much
            weaker than the best are left out. None: 1,024, but at most a quarter of the budget of the agent's history, or of
            the default budget for the context window of its model if that is less.
        retriever: Finds messages beside BM25 (in memory, English and Japanese, the last 50,000 messages): what both find comes
            first. None: BM25 alone.
        alone: Whether ``retriever`` takes the place of BM25.
        history: Returns the messages of before this process, oldest first, as messages or as records with ``message`` and
            ``at``; read in a thread at the first question, and again when everything was forgotten.
            ``TieredSessionManager.records`` is such a function. None: after a restart only what the restored window holds is
            known.
        counter: Counts tokens; default: as the conversation managers do.
        offer_tool: Also offer the model a tool, ``search_history``, to look for itself.
        clock: Returns the time, in seconds since the epoch.

    Raises:
        ValueError: ``max_tokens`` is not a positive whole number, or another argument is not of its kind. From the agent's
            constructor: the plugin already serves another agent.
    """

    name = "strands-manga-memory:history-recall"

    def __init__(
        self,
        max_tokens: int | None = _MOST_TOKENS,
        *,
        retriever: Retriever | None = None,
        alone: bool = False,
        history: Source | None = None,
        counter: TokenCounter | None = None,
        offer_tool: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        if retriever is not None and not callable(getattr(retriever, "search", None)):
            raise ValueError(f"retriever must have methods add, search, around, forget and clear, got {retriever!r:.80}")
        if history is not None:
            function("history", history, "a function that returns messages")
        self.counter = counter if counter is not None else default_counter()
        words = Bm25Retriever()
        self.retriever: Retriever = words if retriever is None else retriever if alone else FusedRetriever(words, retriever)
        self._seeking = Seeking(self.retriever, clock)
        self._follows_window = max_tokens is None
        tokens = _MOST_TOKENS if max_tokens is None else positive("max_tokens", max_tokens)
        self._quoting = Quoting(tokens, self.counter)
        self._intake = Intake(self.retriever, history, self._quoting.learn)
        self._clock = clock
        if not offer_tool:
            self._tools = []
        self._served = Served()
        self._forget_question()

    @property
    def max_tokens(self) -> int:
        """Return the budget of what is quoted."""
        return self._quoting.max_tokens

    # --- What is indexed ------------------------------------------------------------------------------------------------------

    def init_agent(self, agent: Agent) -> None:
        """Listen to the agent's messages, and stand in the way to the model."""
        if not self._served.take(agent):
            raise ValueError(
                "this HistoryRecall already serves an agent; give each agent its own: Agent(plugins=[HistoryRecall()])"
            )
        agent.add_hook(self._restored, AgentInitializedEvent, order=HookOrder.SDK_LAST)
        agent.add_hook(self._added, MessageAddedEvent)
        agent.add_hook(self._turn_begins, BeforeInvocationEvent)
        agent.add_middleware(InvokeModelStage.Input, self._before_request)

    def _restored(self, event: AgentInitializedEvent[Agent]) -> None:
        tokens = _default_tokens(event.agent) if self._follows_window else self.max_tokens
        trimmer = trimmer_of(event.agent)
        self._quoting.max_tokens = tokens if trimmer is None else trimmer.reserve(tokens)
        for message in as_said(event.agent.messages):
            self._intake.said(message, 0.0)

    def _added(self, event: MessageAddedEvent[Agent]) -> None:
        self._intake.said(event.message, self._clock())

    def _turn_begins(self, event: BeforeInvocationEvent) -> None:
        self._intake.turn_begins()

    def _forget_question(self) -> None:
        self._shown = ""
        self._turn = ""

    def forget(self, tracking_id: str) -> None:
        """Forget a message for good: it is never quoted again. For one that is redacted after it has left the history."""
        self._intake.forget(tracking_id)

    # --- What is recalled -----------------------------------------------------------------------------------------------------

    async def _before_request(self, context: InvokeModelContext) -> InvokeModelContext:
        at = opening_position(context.messages)
        if at is None:
            return context
        turn = opening_id(context.agent.messages)
        if begins_turn(context.messages):
            asked = without_added(context)[0][at]  # blocks of other plugins are no part of the question
            self._forget_question()
            self._turn = turn
            self._shown = await self._done(self._recalled, message_text(asked), context.agent)
        elif self._turn != turn:
            self._forget_question()
        return with_turn_text(context, self._shown)

    async def _done(self, work: Callable[..., str], *arguments: Any) -> str:
        """Return the quotes that work finds; an empty text if there are none, or it fails."""
        try:
            return await asyncio.to_thread(work, *arguments)
        except Exception as error:
            logger.warning("error=<%s> | recall failed, sending the request without it", type(error).__name__)
            logger.debug("recall failed", exc_info=True)
            return ""

    @tool
    def search_history(self, query: str) -> str:
        """Search what was said earlier in this conversation and is no longer shown.

        Args:
            query: What to look for, in the words it was probably said in.
        """
        return self._quotes(query, as_said(self._served.history())) or "Nothing was found."

    def _recalled(self, question: str, agent: Any) -> str:
        history = as_said(agent.messages)
        self._intake.bring_up(history)
        if dialogue_act(question, "user") in _ASKS_NOTHING:
            return ""
        asked = without_answer_format(in_full(question, history))
        return self._quotes(asked, history)

    def _quotes(self, question: str, history: Sequence[Message]) -> str:
        """Return quotes of what the history has not whole, neither the message nor its passages."""
        hits, asked = self.search(question), query_terms(question)
        hits = [hit for hit in hits if hit.score >= _WEAK * hits[0].score]
        shown = list(archived(Said(message, 0.0) for message in history))
        ids, texts = {message.id for message in shown}, [message.text for message in shown]
        return self._quoting.quoted([hit for hit in hits if hit.message.id not in ids], asked, beside=texts)

    def search(self, question: str, *, leave_out: Iterable[str] = ()) -> list[Hit]:
        """Return the messages that fit a question best, the best first; neighbours of good ones are among them.

        Args:
            question: The question.
            leave_out: Tracking ids of messages not wanted.
        """
        return self._seeking.hits(question, leave_out)


def _default_tokens(agent: Agent) -> int:
    tokens, trimmer = history_tokens(window_of(agent.model)), trimmer_of(agent)
    return max(1, min(_MOST_TOKENS, (tokens if trimmer is None else min(tokens, trimmer.max_tokens)) // 4))
