"""LiveAgent: an agent and its conversation, and what becomes of each when Strands says that something happened."""

from __future__ import annotations

import asyncio
import copy
import logging
import uuid
import weakref
from collections.abc import Mapping
from concurrent.futures import Future
from types import MappingProxyType
from typing import Any

from strands import Agent
from strands.hooks import AfterInvocationEvent
from strands.types.agent import ConcurrentInvocationMode
from strands.types.content import Message

from strands_manga_memory.announcements import announced
from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.messages import is_message
from strands_manga_memory.session.agents import snapshot, stash
from strands_manga_memory.session.agents.waiting import saved, settled
from strands_manga_memory.session.basis.facts import CHECKPOINT
from strands_manga_memory.session.sync.conversation import Conversation
from strands_manga_memory.stores.encoding.codec import dump

logger = logging.getLogger(__name__)

_PENDING_SECONDS = 1.0


def check_supported(agent: object) -> None:
    """Raise ``ValueError`` for an agent whose turns cannot be saved one by one."""
    if not isinstance(agent, Agent):
        raise ValueError(f"agent must be a strands Agent, got {type(agent).__name__}; use SnapshotSessionManager for it")
    if agent.concurrent_invocation_mode == ConcurrentInvocationMode.UNSAFE_REENTRANT:
        raise ValueError("concurrent_invocation_mode UNSAFE_REENTRANT cannot be saved turn by turn; use THROW")


class LiveAgent:
    """An agent while its process lives. A session manager does not keep it alive, so it is passed in with what happened.

    Attributes:
        conversation: Its conversation.
        in_turn: Whether it is being invoked.
    """

    __slots__ = ("_agent", "_as_built", "_unsettled", "conversation", "in_turn")

    def __init__(self, agent: Agent, conversation: Conversation) -> None:
        self._agent = weakref.ref(agent)
        self.conversation = conversation
        self._as_built = snapshot.taken(agent)
        self._unsettled: list[Future[None]] = []
        self.in_turn = False

    @property
    def agent(self) -> Agent | None:
        """The agent; None if it is no longer used."""
        return self._agent()

    def begin(self, agent: Agent, messages: list[Message] | None) -> None:
        """Give the agent the ``messages`` of its conversation and its states, or begin the conversation with its own."""
        seeds = list(agent.messages)
        with self.conversation.lock:
            own = self.conversation.own
            own.keeps_window = own.keeps_window and not agent.model.stateful
            has_log, fields = bool(messages or own.facts.messages), own.fields
        if messages is not None:
            if seeds and has_log:
                logger.warning("messages=<%d> | the agent's own messages give way to the restored session", len(seeds))
            self._restore(agent, seeds if not has_log else [] if agent.model.stateful else messages, fields)
            self._give_back_stash(agent)
        with self.conversation.lock:  # an agent as it was built is nothing to save
            own.as_built(snapshot.fields_of(self._as_built), fields)
        if not has_log:
            self._seed(agent.messages)

    def _restore(
        self, agent: Agent, messages: list[Message], fields: Mapping[str, bytes], over: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        snapshot.give(agent, messages, fields, over=over, record=self.conversation.place.conversation)

    def _give_back_stash(self, agent: Agent) -> None:
        stash.give_back(agent, lambda: (slot.message for slot in self.conversation.history()))

    def _seed(self, seeds: list[Message]) -> None:
        now = self.conversation.tiers.clock()
        with self.conversation.lock:
            for message in seeds:
                if not is_message(message):
                    raise ValueError(
                        "messages must have a role and a list of content blocks: text in what the assistant says, an id in "
                        f"each tool call and result, name and input in each call; got {message!r:.200}"
                    )
                if not message.get("tracking_id"):
                    message["tracking_id"] = str(uuid.uuid4())
                self.conversation.own.say(message, at=now)

    # What happens in a turn, in this order

    async def before_turn(self, agent: Agent) -> None:
        """Save what is left over, and give the agent what someone else saved.

        Raises:
            StoreUnavailableError: Too much is unsaved.
            ConflictError: Someone else's change cannot be merged.
            CorruptRecordError: What is stored cannot be trusted.
        """
        conversation = self.conversation
        conversation.commits.check()
        await self._settle()
        if conversation.is_dirty or conversation.has_news:
            self._capture(agent, in_turn=False)
            if conversation.is_dirty:
                await saved(conversation, conversation.commits.request())
        if conversation.tiers.refresh == "turn":
            await saved(conversation, conversation.commits.request_refresh())
        unsaved = conversation.own.author.outbox.unstored
        if unsaved >= conversation.tiers.max_unsaved:
            healths = (conversation.commits.hot_health, conversation.commits.durable_health)
            causes = "; ".join(health.error for health in healths if health.error)
            raise StoreUnavailableError(f"{unsaved} messages could not be saved; no store answers: {causes}")
        messages = conversation.take_over(agent.messages)
        if messages is not None:
            with conversation.lock:
                fields = conversation.own.fields
            self._restore(agent, messages, fields, copy.deepcopy(self._as_built))
            await asyncio.to_thread(self._give_back_stash, agent)
        self.in_turn = True
        with conversation.lock:
            facts, now = conversation.own.facts, conversation.tiers.clock()
            away = now - facts.active if facts.messages else None
            conversation.own.begin_turn()
        if away is not None:
            conversation.tiers.returned(away, now)

    def append(self, message: Message, agent: Agent) -> None:
        """Take note of a message, without I/O."""
        conversation, own = self.conversation, self.conversation.own
        with conversation.lock:
            own.closing = False
            identity = message.get("tracking_id") or ""
            known = own.knows(identity)
            live = sum((other.get("tracking_id") or "") == identity for other in agent.messages) if known else 0
            # A continuation adds to the last message and announces it again; a caller's second use of a message is a new one.
            is_continuation = 0 < live <= known
            if not is_continuation or not own.revise(message):
                own.say(message, at=conversation.tiers.clock())
        conversation.commits.request_soon(_PENDING_SECONDS)

    def redact(self, message: Message) -> list[Future[None]]:
        """Put ``message`` in place of the original everywhere; the returned futures end when that is stored."""
        with self.conversation.lock:
            is_known = self.conversation.own.revise(message, every=True)
        futures = [self.conversation.commits.request_redaction()] if is_known else []
        replace_in_stash = stash.replacement(self.agent, message)
        if replace_in_stash is not None:
            futures.append(self.conversation.tiers.writer.submit((self, "stash"), replace_in_stash, slow=True))
        return futures

    def settle_later(self, future: Future[None]) -> None:
        """Have the agent's next hook wait for a redaction, as a synchronous call must not wait on the event loop."""
        self._unsettled = [one for one in self._unsettled if not one.done() or one.exception()] + [future]

    async def _settle(self) -> None:
        """Wait until the redactions are stored that were made on the event loop."""
        futures, self._unsettled = self._unsettled, []
        for future in futures:
            await settled(future, self.conversation.tiers)

    def turn_ended(self) -> None:
        """Take note of it, without I/O."""
        self.in_turn = False
        with self.conversation.lock:
            self.conversation.own.end_turn()

    async def after_turn(self, event: AfterInvocationEvent) -> None:
        """Save the turn."""
        await self._settle()
        self._capture(event.agent, in_turn=False)
        reason = event.result.stop_reason if event.result is not None else None
        if reason == "checkpoint":
            with self.conversation.lock:
                own, messages = self.conversation.own, event.agent.messages
                if messages and not own.author.is_gone:
                    own.set_field(CHECKPOINT, dump({"after": messages[-1].get("tracking_id")}))
        await saved(self.conversation, self.conversation.commits.request(flush=reason in ("interrupt", "checkpoint")))

    # Beside the turns

    def touch(self) -> None:
        """Take note that the agent changed."""
        with self.conversation.lock:
            self.conversation.own.touch()

    def capture_between_turns(self) -> None:
        """Take the agent's window and states, unless it is used just now, or no longer."""
        agent = self.agent
        if agent is not None and not self.in_turn:
            self._capture(agent, in_turn=False)

    def _capture(self, agent: Agent, *, in_turn: bool) -> None:
        fields = snapshot.fields_of(snapshot.taken(agent))
        told = announced(agent)
        with self.conversation.lock:
            self.conversation.own.capture(agent.messages, fields, in_turn=in_turn)
            self.conversation.own.announce(told)
