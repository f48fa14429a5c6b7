"""LiveAgent: an agent and its conversation, and what becomes of each when Strands says that something happened."""

from __future__ import annotations

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

from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.session import snapshot
from strands_manga_memory.session.conversation import Conversation
from strands_manga_memory.session.waiting import saved
from strands_manga_memory.session.window import tool_use_ids

logger = logging.getLogger(__name__)

_PENDING_SECONDS = 1.0


def check_supported(agent: object) -> None:
    """Raise ``ValueError`` for an agent whose turns cannot be saved one by one."""
    if not isinstance(agent, Agent):
        raise ValueError(f"agent must be a strands Agent, got {type(agent).__name__}; use SnapshotSessionManager for it")
    if agent.concurrent_invocation_mode == ConcurrentInvocationMode.UNSAFE_REENTRANT:
        raise ValueError("concurrent_invocation_mode UNSAFE_REENTRANT cannot be saved turn by turn; use THROW")


class LiveAgent:
    """An agent while its process lives. A session manager does not keep it alive, so it is passed in with what happened."""

    def __init__(self, agent: Agent, conversation: Conversation) -> None:
        self._agent = weakref.ref(agent)
        self.conversation = conversation
        self._as_built = snapshot.taken(agent)
        self._in_turn = False

    @property
    def agent(self) -> Agent | None:
        """The agent; None if it is no longer used."""
        return self._agent()

    def begin(self, agent: Agent, messages: list[Message] | None) -> None:
        """Give the agent the ``messages`` of its conversation and its states, or begin the conversation with its own."""
        conversation, model = self.conversation, self.conversation.model
        seeds = list(agent.messages)
        if agent.model.stateful:
            model.keeps_window, model.slots = False, []
        has_log = bool(messages or model.head.messages)
        if messages is not None:
            if seeds and has_log:
                logger.warning("messages=<%d> | the agent's own messages give way to the restored session", len(seeds))
            self._restore(agent, seeds if not has_log else [] if agent.model.stateful else messages)
        if not has_log:
            self._seed(agent.messages)
            with conversation.lock:  # an agent as it was built is nothing to save
                model.fields = {**snapshot.fields_of(self._as_built), **model.fields}

    def _restore(self, agent: Agent, messages: list[Message], *, over: Mapping[str, Any] = MappingProxyType({})) -> None:
        with self.conversation.lock:
            fields = self.conversation.model.fields
        snapshot.give(agent, messages, fields, over=over, record=self.conversation.place.conversation)

    def _seed(self, seeds: list[Message]) -> None:
        now = self.conversation.tiers.clock()
        with self.conversation.lock:
            for message in seeds:
                if not message.get("tracking_id"):
                    message["tracking_id"] = str(uuid.uuid4())
                self.conversation.model.append(message, at=now)
            self.conversation.model.touched = bool(seeds)

    # What happens in a turn, in this order

    async def before_turn(self, agent: Agent) -> None:
        """Save what is left over, and give the agent what someone else saved.

        Raises:
            StoreUnavailableError: Too much is unsaved.
            ConflictError: Someone else's change cannot be merged.
            CorruptRecordError: What is stored cannot be trusted.
        """
        conversation, model = self.conversation, self.conversation.model
        conversation.check()
        if conversation.is_dirty or model.stale:
            self._capture(agent, in_turn=False)
            if conversation.is_dirty:
                await saved(conversation, conversation.request())
        if conversation.tiers.refresh == "turn":
            await saved(conversation, conversation.request_refresh())
        if model.unsaved >= conversation.tiers.max_unsaved:
            raise StoreUnavailableError(f"{model.unsaved} messages could not be saved; no store answers")
        messages = conversation.take_over(agent.messages)
        if messages is not None:
            self._restore(agent, messages, over=copy.deepcopy(self._as_built.data))
        self._in_turn = True
        with conversation.lock:
            head, now = model.head, conversation.tiers.clock()
            away = now - head.active if head.messages else None
            model.begin_turn()
        if away is not None:
            conversation.tiers.returned(away, now)

    def append(self, message: Message, agent: Agent) -> None:
        """Take note of a message, without I/O."""
        conversation, model = self.conversation, self.conversation.model
        now = conversation.tiers.clock()
        with conversation.lock:
            if model.deleted:  # the turn began before that, nothing of it may come back
                model.dropped += 1
                return
            model.closing = False
            identity = message.get("tracking_id") or ""
            known = model.knows(identity)
            live = sum((other.get("tracking_id") or "") == identity for other in agent.messages) if known else 0
            # A continuation adds to the last message and announces it again; a caller's second use of a message is a new one.
            is_continuation = 0 < live <= known
            if not is_continuation or model.revise(message, at=now) is None:
                intent = model.meta.get("active_intent")
                model.append(message, at=now, extra={"intent": intent} if intent else None)
        conversation.request_soon(_PENDING_SECONDS)

    async def after_message(self, message: Message, agent: Agent) -> None:
        """Save a message of a turn."""
        if self._in_turn:
            is_final = message["role"] == "assistant" and not tool_use_ids(message)
            self._capture(agent, in_turn=not is_final)
            await saved(self.conversation, self.conversation.request())

    def redact(self, message: Message) -> Future[None] | None:
        """Put ``message`` in place of the original everywhere; return when that is stored, None if it is not known."""
        with self.conversation.lock:
            revised = self.conversation.model.revise(message, at=self.conversation.tiers.clock(), every=True)
        return None if revised is None else self.conversation.request_flush()

    def turn_ended(self) -> None:
        """Take note of it, without I/O."""
        self._in_turn = False
        with self.conversation.lock:
            model = self.conversation.model
            model.in_turn, model.touched = False, model.touched or model.in_turn

    async def after_turn(self, event: AfterInvocationEvent) -> None:
        """Save the turn."""
        self._capture(event.agent, in_turn=False)
        is_interrupted = bool(event.result is not None and event.result.stop_reason == "interrupt")
        await saved(self.conversation, self.conversation.request(flush=is_interrupted))

    # Beside the turns

    def touch(self) -> None:
        """Take note that the agent changed."""
        with self.conversation.lock:
            self.conversation.model.touched = True

    def capture_between_turns(self) -> None:
        """Take the agent's window and states, unless it is used just now, or no longer."""
        agent = self.agent
        if agent is not None and not self._in_turn:
            self._capture(agent, in_turn=False)

    def _capture(self, agent: Agent, *, in_turn: bool) -> None:
        fields = snapshot.fields_of(snapshot.taken(agent))
        with self.conversation.lock:
            if not self.conversation.model.deleted:
                self.conversation.model.capture(agent.messages, fields, in_turn=in_turn)
