"""Transfer: a conversation outside the tiers, on its way from another session manager or to another deployment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from strands.types.content import Message

from strands_manga_memory.exceptions import ConflictError
from strands_manga_memory.session.agents import snapshot
from strands_manga_memory.session.basis.facts import ORCHESTRATOR
from strands_manga_memory.session.sync.agent_copy import AgentCopy
from strands_manga_memory.session.sync.conversation import Conversation
from strands_manga_memory.stores.encoding.codec import dump, load

Standing = Literal["new", "exists", "ended"]
"""What the tiers have of a conversation: nothing, a living one, or one that ended or was deleted."""


@dataclass(frozen=True, kw_only=True)
class TransferredConversation:
    """A conversation of an agent outside the tiers.

    Args:
        log: Every message and when it was said, in seconds since 1970, in order. Each has a ``tracking_id``.
        window: The agent's history. A message that the log has as it is must be equal to it; others are the window's own.
            None: the log.
        states: What else there is of the agent, by the names of a Strands snapshot: ``state``, ``conversation_manager_state``,
            ``interrupt_state``, ``model_state``. What is missing stays as the agent was built.
        metadata: What ``set_metadata`` stored.
        created: When the conversation began, in seconds since 1970; None: now.
    """

    log: Sequence[tuple[Message, float]]
    window: Sequence[Message] | None = None
    states: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    created: float | None = None

    def give(self, copy: AgentCopy) -> None:
        """Make a new conversation of it."""
        for message, at in self.log:
            copy.say(message, at=at)
        window = [message for message, _ in self.log] if self.window is None else self.window
        copy.capture(window, snapshot.fields_of(self.states), in_turn=False)
        if self.metadata:
            copy.set_meta(self.metadata)
        if self.created is not None:
            copy.begin_at(self.created)


@dataclass(frozen=True)
class TransferredOrchestrator:
    """The state of a Graph or Swarm outside the tiers, as its ``serialize_state`` returned it."""

    state: Mapping[str, Any]

    def give(self, copy: AgentCopy) -> None:
        """Make a new record of it."""
        copy.capture([], {ORCHESTRATOR: dump(self.state)}, in_turn=False)


def standing_of(conversation: Conversation) -> Standing:
    """Look what the tiers have of a conversation; raises what :meth:`Conversation.open` does."""
    if conversation.open(inspect=True) is not None:
        return "exists"
    return "ended" if conversation.pair.copy.graves else "new"


def store(conversation: Conversation, transferred: TransferredConversation | TransferredOrchestrator) -> Standing:
    """Store what was transferred, if there is nothing yet; return what there was before.

    It is one commit: after a crash there is all of it or nothing. Raises ``StoreUnavailableError`` also if the answer was lost.
    """
    standing = standing_of(conversation)
    if standing != "new":
        return standing
    with conversation.lock:
        transferred.give(conversation.own)
        conversation.own.touch()
        conversation.own.closing = True
    try:
        conversation.commits.request_flush().result()
    except ConflictError:
        return "exists"  # someone else was first, just now
    return "new"


def taken_out(conversation: Conversation) -> TransferredConversation:
    """Return what an opened conversation holds, to be stored elsewhere."""
    with conversation.lock:
        fields, created, meta = conversation.own.fields, conversation.own.facts.created, conversation.own.meta
    return TransferredConversation(
        log=[(one.message, one.at) for one in conversation.history()],
        window=conversation.shown(),
        states=snapshot.states_of(fields),
        metadata=meta,
        created=created,
    )


def orchestrator_taken_out(conversation: Conversation) -> TransferredOrchestrator | None:
    """Return what an opened record of a Graph or Swarm holds; None if it never ran."""
    with conversation.lock:
        state = conversation.own.fields.get(ORCHESTRATOR)
    return None if state is None else TransferredOrchestrator(load(state))
