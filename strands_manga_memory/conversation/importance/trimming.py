"""Trimming: keeps the history of an agent within its budget, and remembers what left it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from strands.types.content import Message
from strands.types.exceptions import ContextWindowOverflowException

from strands_manga_memory.conversation.history.layout import ensure_ids
from strands_manga_memory.conversation.history.results import ResultArchive
from strands_manga_memory.conversation.history.stubs import as_said, is_stub
from strands_manga_memory.conversation.history.summary import is_synthesized
from strands_manga_memory.conversation.importance import headroom
from strands_manga_memory.conversation.importance.choosing.choice import Choice
from strands_manga_memory.conversation.importance.fates import Explanations, MessageFate
from strands_manga_memory.conversation.importance.history_budget import HistoryBudget
from strands_manga_memory.conversation.importance.manager_state import ManagerState
from strands_manga_memory.conversation.importance.reserve import Reserve
from strands_manga_memory.conversation.importance.view import View
from strands_manga_memory.conversation.importance.weighing.notes import Notes
from strands_manga_memory.conversation.importance.weighing.workload import Work, Workload, on_event_loop
from strands_manga_memory.conversation.serving import Served
from strands_manga_memory.conversation.tokens.ledger import same_objects

if TYPE_CHECKING:
    from strands.agent.agent import Agent

logger = logging.getLogger(__name__)


class Trimming:
    """Drops and shortens messages of one agent's history, and lets some come back, each time in one step."""

    __slots__ = (
        "_archive",
        "_budget",
        "_explanations",
        "_lock",
        "_notes",
        "_reserve",
        "_served",
        "_state",
        "_warned_over_budget",
        "_within",
        "_workload",
        "on_evict",
    )

    def __init__(
        self,
        budget: HistoryBudget,
        workload: Workload,
        notes: Notes,
        state: ManagerState,
        archive: ResultArchive,
        served: Served,
        on_evict: Callable[[list[Message]], None] | None,
    ) -> None:
        self.on_evict = on_evict
        self._budget = budget
        self._workload = workload
        self._notes = notes
        self._state = state
        self._archive = archive
        self._served = served
        self._explanations = Explanations(notes, budget.signals)
        self._reserve = Reserve()
        self._lock = threading.RLock()
        self._within: list[Message] = []
        self._warned_over_budget = False

    async def keep_on(self, agent: Agent) -> None:
        """Keep the budget if anything was added since the last time."""
        if not same_objects(agent.messages, self._within):  # what is sent is counted again
            await self.keep(agent, [])

    async def keep(self, agent: Agent, coming: Sequence[Message]) -> None:
        """Keep the budget with what is ``coming``, where it can be waited for."""
        work, tokens = self._workload.of([*agent.messages, *coming], anew=False)
        if work is Work.NONE:
            self._is_within(agent, coming, tokens)
        else:
            await work.done(lambda: self._trim(agent, coming))

    def keep_now(self, agent: Agent, *, ends_turn: bool = False) -> None:
        """Keep the budget where nothing can be waited for; on an event loop long work is left to the end of the invocation.

        At the end of a turn room is made for the next request too, or the same choice would be made again when it comes.
        """
        messages, room = agent.messages[:], 0
        if ends_turn and not self._budget.steps:
            room = headroom.next_request(as_said(messages), self._budget.tokens, self._notes.tokens)
        work, tokens = self._workload.of(messages, room, anew=False)
        if work is Work.NONE:
            self._is_within(agent, [], tokens)
        elif work is Work.SHORT or not on_event_loop():
            self._trim(agent, [], room)

    def reduce(self, agent: Agent, e: Exception | None) -> None:
        """Make the history smaller by a quarter of what need not stay; after an overflow by half, or raise another one."""
        with self._lock:
            said = as_said(history := agent.messages[:])
            self._reserve.take_in(said, self._notes.tokens)
            if e is None:
                choice = self._budget.three_quarters(said)
            else:
                choice = self._budget.half(said)
                if choice.tokens > choice.budget or not choice.kept:
                    raise ContextWindowOverflowException(
                        f"the window is full and the history cannot be halved: of {choice.tokens_before} tokens "
                        f"{choice.tokens} must stay"
                    ) from e
            self._commit(agent, history, said, choice, said)
        logger.debug("tokens_before=<%d>, tokens_after=<%d> | reduced the history", choice.tokens_before, choice.tokens)

    def explain(self, messages: Sequence[Message]) -> list[MessageFate]:
        """Return what became of each message, of the history and of the last 1,000 dropped ones, in the order of speech."""
        said = as_said(messages)
        return self._explanations.of(said, self._budget.choice(said).why)

    def forget(self, tracking_id: str) -> None:
        """Forget what a message said that has left the history: it does not come back."""
        self._reserve.forget(tracking_id)

    def evicted(self, messages: Sequence[Message]) -> None:
        """Tell ``on_evict`` of messages that left the history; marks and parts of summaries among them are left out."""
        said = [message for message in as_said(messages) if not is_stub(message) and not is_synthesized(message)]
        if said and self.on_evict is not None:
            try:
                self.on_evict(said)
            except Exception as error:
                logger.warning("error=<%s> | on_evict failed, the messages have left the history", type(error).__name__)
                logger.debug("on_evict failed", exc_info=True)

    def _trim(self, agent: Agent, coming: Sequence[Message], room: int = 0) -> None:
        """Drop and shorten messages of the agent until they are within the budget, with those ``coming`` and some room."""
        try:
            with self._lock:
                ensure_ids(history := agent.messages[:])
                messages = [*history, *coming]
                stays = coming
                if self._budget.is_over(messages, self._notes.total(messages) + room):
                    said = as_said(history)
                    choice, pool = self._chosen_anew(said, coming, room)
                    self._commit(agent, history, said, choice, pool)
                    stays = [message for at, message in choice.kept.items() if at >= len(pool)]
                self._within = []
                if same_objects(stays, coming):
                    self._is_within(agent, coming)
        except Exception as error:
            logger.warning("error=<%s> | the history could not be trimmed, leaving it as it is", type(error).__name__)
            logger.debug("the history could not be trimmed", exc_info=True)

    def _chosen_anew(self, said: list[Message], coming: Sequence[Message], beside: int) -> tuple[Choice, list[Message]]:
        """Return a choice and what it is made from: in a step all that is at hand.

        Where every turn is trimmed, that is done now and then, and when the history alone would leave much room.
        """
        budget, reserve = self._budget, self._reserve
        reserve.take_in(said, self._notes.tokens)
        if not budget.steps and not reserve.is_due(budget.max_tokens, 0):
            choice = budget.choice([*said, *coming], beside=beside, coming=len(coming))
            if not reserve.is_due(budget.max_tokens, choice.budget - choice.tokens):
                return choice, said
        pool = reserve.at_hand(said, budget.max_tokens, self._notes.total, budget.narrowed)
        mark = budget.steps.mark([*pool, *coming], self._notes.total)
        return budget.choice([*pool, *coming], beside=beside, trim_to=mark, coming=len(coming)), pool

    def _commit(
        self, agent: Agent, history: list[Message], said: list[Message], choice: Choice, pool: Sequence[Message]
    ) -> None:
        """Make a choice from ``pool`` the agent's history, in one step; what was added to ``history`` meanwhile stays."""
        if choice.tokens > choice.budget and not self._warned_over_budget:
            self._warned_over_budget = True
            what = "what must stay (pinned messages, reasoning, waiting tool calls) is over the budget"
            logger.warning("tokens=<%d>, budget=<%d> | %s", choice.tokens, choice.budget, what)
        view = View(history, said, pool, choice)
        if view.is_unchanged:
            self._reserve.show(said, said)
            return
        if not same_objects(agent.messages[: len(history)], history):
            logger.debug("the history was replaced meanwhile | leaving it as it is")
            return
        agent.messages[: len(history)] = view.messages
        self._reserve.show(said, view.said)
        self._archive.keep_cut(self._served.agent, pool, view.cut)
        view.tell(self._notes.total(history), choice)
        self._explanations.follow(view, pool, choice.why)
        self.evicted(view.left)

    def _is_within(self, agent: Agent, coming: Sequence[Message], tokens: int | None = None) -> None:
        """Take note that the history is within the budget, with what is ``coming``; forget what is known of other messages."""
        with self._lock:
            ensure_ids(agent.messages)
            self._within = [*agent.messages, *coming]
            if tokens is None:
                self._workload.forget()
            else:
                self._workload.counted(self._within, tokens)
            if len(self._notes) > 2 * max(len(agent.messages), len(self._reserve)) + 128:
                for memory in (self._notes, self._state, self._explanations):
                    memory.forget_all_but([*self._reserve, *agent.messages, *as_said(agent.messages)])
