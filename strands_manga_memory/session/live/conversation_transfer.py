"""Transfer of a conversation from another session manager, or to another deployment."""

from __future__ import annotations

from strands_manga_memory.exceptions import ConflictError
from strands_manga_memory.session.live.agent_conversation import AgentConversation
from strands_manga_memory.session.live.agent_states import ORCHESTRATOR
from strands_manga_memory.session.transfer import Standing, TransferredConversation, TransferredOrchestrator
from strands_manga_memory.stores.encoding.codec import dump, load


def standing_of(conversation: AgentConversation) -> Standing:
    """Return what the tiers have of a conversation; raises what ``AgentConversation.open`` does."""
    if conversation.open(inspect=True) is not None:
        return "exists"
    return "ended" if conversation.local.base.incarnation else "new"


def store(conversation: AgentConversation, transferred: TransferredConversation | TransferredOrchestrator) -> Standing:
    """Store a transferred conversation if there is nothing yet; return what there was before.

    It is one commit: after a crash there is all of it or nothing. Raises ``StoreUnavailableError`` also if the answer was lost.
    """
    standing = standing_of(conversation)
    if standing != "new":
        return standing
    if isinstance(transferred, TransferredConversation):
        _add(conversation, transferred)
    else:
        conversation.set_entry(ORCHESTRATOR, transferred.state)
    conversation.saver.is_closing = True
    try:
        conversation.saver.request_flush().result()
    except ConflictError:
        return "exists"  # someone else was first, just now
    return "new"


def _add(conversation: AgentConversation, transferred: TransferredConversation) -> None:
    with conversation.lock:
        if transferred.created is not None:
            conversation.local.begin_at(transferred.created)
        for message, at in transferred.log:
            conversation.add(message, at=at)
        conversation.local.end_turn()
        window = [message for message, _ in transferred.log] if transferred.window is None else transferred.window
        conversation.capture(window, transferred.states)
        if transferred.metadata:
            conversation.set_meta(transferred.metadata)


def taken_out(conversation: AgentConversation) -> TransferredConversation:
    """Return the content of an opened conversation, to be stored elsewhere."""
    with conversation.lock:
        created, meta = conversation.local.base.created, conversation.meta
    return TransferredConversation(
        log=[(entry.message, entry.at) for entry in conversation.history()],
        window=conversation.shown(),
        states=conversation.snapshot,
        metadata=meta,
        created=created,
    )


def orchestrator_taken_out(conversation: AgentConversation) -> TransferredOrchestrator | None:
    """Return the state in an opened record of a Graph or Swarm; None if it never ran."""
    states = conversation.local.states
    return TransferredOrchestrator(load(dump(states[ORCHESTRATOR]))) if ORCHESTRATOR in states else None
