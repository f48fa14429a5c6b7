"""Restore of a Strands agent, and storage of its messages and states in each turn."""

from __future__ import annotations

import asyncio
import copy
import logging
import re
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from strands import Agent, Snapshot
from strands.hooks import AfterInvocationEvent
from strands.middleware import InvokeModelContext
from strands.types.content import Message

from strands_manga_memory.deadline import as_asyncio_future
from strands_manga_memory.exceptions import ConflictError, StoreError, StoreUnavailableError
from strands_manga_memory.lifecycle import attachments, renew_in_child
from strands_manga_memory.messages import calls_tools, for_model, is_repair, tool_result_ids
from strands_manga_memory.session.agent_conversation import AgentConversation, check_messages
from strands_manga_memory.session.agent_snapshot import MANAGER_STATE
from strands_manga_memory.session.session_log import LogEntry
from strands_manga_memory.session.ttl import gaps_of
from strands_manga_memory.stores.codec import dump, parsing

logger = logging.getLogger(__name__)

_PENDING_SECONDS = 0.25  # saving at once would double the requests of a short turn
"""Seconds after which the messages of a running turn are saved."""

_REFERENCES = re.compile(r"\[refs?: ([^\]\n\\]{1,1000})\]")
"""Pattern of references to messages in the agent's stash, such as ``[ref: id_1]``."""


def render_request(context: InvokeModelContext) -> InvokeModelContext:
    """Return a model request that every model provider accepts.

    For example, a tool call without a result gets an error as its result, and consecutive messages
    of one role are merged. The agent's history is not changed.
    """
    messages = for_model(context.messages)
    return context if messages is context.messages else context.replace(messages=messages)


class SessionAgent:
    """Strands agent that is connected to its stored conversation.

    The object has only a weak reference to the agent, so some methods get the agent as an argument.

    Attributes:
        in_turn: Whether the agent is being invoked.
    """

    def __init__(self, agent: Agent, conversation: AgentConversation) -> None:
        self.agent = weakref.ref(agent)
        self.conversation = conversation
        self._gaps = gaps_of(conversation.tiers.writer, conversation.tiers.durable)
        self._initial_states = _states_of(agent)
        self._attached = attachments(agent)
        self._redactions: set[Future[None]] = set()
        self.in_turn = False
        renew_in_child(self)

    def begin(self, agent: Agent, messages: list[Message] | None) -> None:
        """Restore an agent from its stored conversation, or begin a new conversation.

        ``messages`` is the stored history; None if no conversation is stored. A new conversation
        begins with the messages and states of the agent.
        """
        seeds, conversation = list(agent.messages), self.conversation
        conversation.keeps_window = conversation.keeps_window and not agent.model.stateful
        has_log = bool(messages or conversation.local.record.message_count)
        if messages is not None:
            if seeds and has_log:
                text = "messages=<%d> | the agent's own messages give way to the restored session"
                logger.warning(text, len(seeds))
            if not has_log:
                messages = seeds
            elif agent.model.stateful:
                messages = []
            self._restore(agent, messages, {})
            self._refill_stash(agent)
        conversation.note_agent_states(_states_of(agent))
        if has_log:
            return
        check_messages(agent.messages)
        with conversation.lock:
            for message in agent.messages:
                if not message.get("tracking_id"):
                    message["tracking_id"] = str(uuid.uuid4())
                conversation.add(message)
            conversation.local.end_turn()

    def _restore(self, agent: Agent, messages: list[Message], built: Mapping[str, Any]) -> None:
        """Give an agent its stored messages and states.

        ``built`` has default values of states that are not stored.
        """
        data = {**built, **self.conversation.snapshot}
        used = type(agent.conversation_manager).__name__
        if (notes := data.get(MANAGER_STATE)) is not None and notes.get("__name__") != used:
            logger.warning(
                "saved=<%s>, used=<%s> | another conversation manager takes over, it begins without"
                " state",
                notes.get("__name__"),
                used,
            )
            del data[MANAGER_STATE]
        with parsing(self.conversation.key.name):
            snapshot = Snapshot(scope="agent", schema_version="1.0", data=data, app_data={})
            agent.load_snapshot(snapshot)
        agent.messages = messages  # not with the snapshot, whose messages are copied recursively

    def _refill_stash(self, agent: Agent) -> None:
        """Store the offloaded messages of an agent in its stash again, after a restart.

        Strands moves such messages from the history to a store, the stash. A stash in memory is
        empty after a restart.
        """
        manager = agent.context_manager
        if manager is None or manager.stash is None or manager.stash_is_durable:
            return
        text, stash = dump([message["content"] for message in agent.messages]), manager.stash
        groups = _REFERENCES.findall(text.decode())
        names = [name.strip() for group in groups for name in group.split(",")]
        wanted = {name.rpartition("_")[0] for name in names}
        if not wanted:
            return
        try:
            log = [entry.message for entry in self.conversation.history()]
        except StoreError as error:
            name = type(error).__name__
            logger.warning("error=<%s> | offloaded messages cannot be read or restored", name)
            return

        async def store() -> None:
            for message in log:
                if wanted & {message.get("tracking_id"), *tool_result_ids(message)}:
                    await stash.store_message(message)

        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, store()).result()

    # Events of a turn, in order

    async def before_turn(self, agent: Agent) -> None:
        """Prepare an agent's turn: save unsaved changes, and take over other processes' changes.

        These are the changes that earlier reads and saves have found. With ``refresh="turn"``, or
        if no store has answered for hours, the stores are read first.

        Raises:
            StoreUnavailableError: ``max_unsaved`` or more messages are unsaved.
            ConflictError: Another process's change cannot be merged. Or another process has
                answered or deleted the agent's interrupt: call the agent with a new request.
            CorruptRecordError: A stored record is damaged.
        """
        conversation = self.conversation
        conversation.saver.check()
        await self._await_redactions()
        tiers, last_used = conversation.tiers, conversation.local.base.last_used
        # A flush of an idle agent ends its silence, but does not use the session.
        has_ended = 0 < last_used <= tiers.clock() - tiers.ttl.session
        is_silent = conversation.storage.is_silent or has_ended
        if tiers.refresh == "turn" or is_silent:
            await conversation.saver.wait(conversation.saver.request_refresh())
        if is_silent and not conversation.local.base.is_empty:
            await asyncio.to_thread(conversation.end_if_expired)
        if conversation.local.is_dirty or conversation.has_remote_changes:
            self._capture(agent)
            if conversation.local.is_dirty:
                await conversation.saver.wait(conversation.saver.request())
                unsaved = conversation.local.unsaved_messages
                if unsaved >= conversation.tiers.max_unsaved:
                    used = dict.fromkeys((conversation.storage.nearest, conversation.storage.first))
                    causes = "; ".join(tier.health.error for tier in used if tier.health.error)
                    raise StoreUnavailableError(
                        f"{unsaved} messages could not be saved; no store answers: {causes}"
                    )
        if conversation.has_remote_changes:
            is_interrupted = _is_interrupted(agent)
            await asyncio.to_thread(self._adopt_changes, agent)
            if is_interrupted and not _is_interrupted(agent):
                raise ConflictError(
                    "the interrupt has ended, because its turn was deleted, or answered by another"
                    " worker; call the agent with a new request"
                )
        self.in_turn = True
        if used_at := conversation.local.base.last_used:
            tiers, now = conversation.tiers, conversation.tiers.clock()
            self._gaps.add(now - used_at, now, tiers.writer)

    def _adopt_changes(self, agent: Agent) -> None:
        messages = self.conversation.adopt_changes(agent.messages)
        if messages is None:
            return
        built = copy.deepcopy(dict(self._initial_states))
        if self.conversation.local.record.message_count:
            built["state"] = {}  # another process has begun it, with other states
        self._restore(agent, messages, built)
        self._refill_stash(agent)

    def end_interrupt(self) -> None:
        """End an idle agent's wait for an answer, if the interrupt's turn was deleted or rewound.

        Without this call, Strands would reject the next request of the user before any hook runs.
        """
        agent = self.agent()
        if agent is not None and not self.in_turn and _is_interrupted(agent):
            self._adopt_changes(agent)

    def append(self, message: Message, agent: Agent) -> None:
        """Add a new message of the agent to its conversation. A background save stores it soon.

        Between turns, Strands may add an error result for a tool call of an interrupted turn. This
        result is removed from the history and not stored, because another process may still be
        running that turn.
        """
        if not self.in_turn and is_repair(message):
            if agent.messages and agent.messages[-1] is message:
                agent.messages.pop()
            return
        conversation = self.conversation
        with conversation.lock:
            conversation.saver.is_closing = False
            conversation.add(message, history=agent.messages)
            if not self.in_turn and message["role"] == "assistant" and not calls_tools(message):
                conversation.end_turn()
        conversation.saver.request_soon(_PENDING_SECONDS)

    def redact(self, message: Message, read_log: Callable[[], Iterable[LogEntry]]) -> None:
        """Replace a message of the agent by its redacted version, in memory and in all stores.

        The replaced message has the same ``tracking_id``. A message that is not in memory is
        searched in all stored messages, the result of ``read_log``. The stores are read and changed
        in the background, with retries: see ``wait_for_redactions``.
        """
        conversation = self.conversation
        saver, writer = conversation.saver, conversation.tiers.writer
        if conversation.redact(message):
            saver.request()  # the hot tier gets the redaction without waiting for the flush
            self._redactions.add(saver.request_flush())
        elif message.get("tracking_id"):
            self._redactions.add(self._redact_logged(message, read_log))
        agent = self.agent()
        manager = None if agent is None else agent.context_manager
        if manager is not None and (stash := manager.stash) is not None:

            def replace_in_stash() -> None:
                asyncio.run(stash.store_message(message))

            self._redactions.add(writer.submit((self, "stash"), replace_in_stash, slow=True))

    def _redact_logged(
        self, message: Message, read_log: Callable[[], Iterable[LogEntry]]
    ) -> Future[None]:
        conversation, stored = self.conversation, Future[None]()

        def redact() -> None:
            try:
                conversation.redact(message, read_log())
                conversation.saver.commit_all()
            except StoreUnavailableError:
                raise  # repeated by the writer
            except Exception as error:  # noqa: BLE001 - the waiting caller gets it
                name = type(error).__name__
                logger.warning("error=<%s> | a logged message could not be redacted", name)
                stored.set_exception(error)
            else:
                stored.set_result(None)

        conversation.tiers.writer.repeat((self, "redact"), redact)
        return stored

    def wait_for_redactions(self, *, timeout: float, must: bool = False) -> None:
        """Block the thread until pending redactions are stored.

        Args:
            timeout: Longest wait in seconds. A redaction that takes longer is completed in the
                background.
            must: Whether to raise an error for a redaction that takes longer.

        Raises:
            StoreUnavailableError: A redaction takes longer, and ``must`` is True.
            ConflictError: Another process's change cannot be merged.
            CorruptRecordError: A stored record is damaged.
        """
        ended, pending = wait(self._redactions, timeout=timeout)
        self._redactions -= ended
        for future in pending if must else ended:
            self.conversation.saver.block(future, must=must, has_waited=True)

    def renew_after_fork(self) -> None:
        """Discard the list of pending redactions in a child process. The parent completes them."""
        self._redactions = set()

    async def _await_redactions(self) -> None:
        if not self._redactions:
            return
        tier = self.conversation.storage.first
        if tier.health.is_up:
            pending = [as_asyncio_future(future) for future in self._redactions]
            await asyncio.wait(pending, timeout=tier.deadline)
        self.wait_for_redactions(timeout=0.0)

    def end_turn(self) -> None:
        """Mark the agent's turn as ended in its conversation, without saving the turn.

        The session manager calls ``after_turn`` next, which saves the turn.
        """
        self.in_turn = False
        self._set_changed_meta()  # the intent at the end of the turn is stored with the turn
        self.conversation.end_turn()

    async def after_turn(self, event: AfterInvocationEvent) -> None:
        """Save the agent's turn that has ended, and wait for the save.

        A turn that ended with an interrupt or checkpoint is also written to the durable tier.
        """
        await self._await_redactions()
        self._capture(event.agent)
        saver, result = self.conversation.saver, event.result
        is_paused = result is not None and result.stop_reason in ("interrupt", "checkpoint")
        await saver.wait(saver.request())
        if is_paused:
            saver.request_flush()

    # State between turns

    def capture_between_turns(self) -> None:
        """Copy the history and states of an idle agent to its conversation, for the next save.

        During a turn, nothing is copied.
        """
        agent = self.agent()
        if agent is not None and not self.in_turn:
            self._capture(agent)

    def _capture(self, agent: Agent) -> None:
        self.conversation.capture(agent.messages, _states_of(agent))
        self._set_changed_meta()

    def _set_changed_meta(self) -> None:
        self.conversation.set_changed_meta(self._attached.get("metadata", dict)())


def _is_interrupted(agent: Agent) -> bool:
    return bool(_states_of(agent).get("interrupt_state", {}).get("activated"))


def _states_of(agent: Agent) -> Mapping[str, Any]:
    return agent.take_snapshot(preset="session", exclude=["messages"]).data
