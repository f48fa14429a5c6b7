"""State of an orchestrator: the state of a Graph or Swarm, kept as a conversation without messages."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING

from strands_manga_memory.session.live.agent_conversation import AgentConversation
from strands_manga_memory.session.live.agent_states import ORCHESTRATOR
from strands_manga_memory.stores.encoding.codec import dump, load, trusted

if TYPE_CHECKING:
    from strands.multiagent.base import MultiAgentBase


def restore(source: MultiAgentBase, conversation: AgentConversation) -> None:
    """Open the conversation, and give the orchestrator its state if there is one; raises what ``Conversation.open`` does."""
    if conversation.open() is not None and ORCHESTRATOR in conversation.local.states:
        with trusted(conversation.place.conversation):
            source.deserialize_state(load(dump(conversation.local.states[ORCHESTRATOR])))


def begin_run(conversation: AgentConversation) -> None:
    """Take note that a run begins: if the conversation was deleted, the record begins anew; raises what ``check`` does."""
    conversation.saver.check()
    conversation.take_over([])


def request_save(source: MultiAgentBase, conversation: AgentConversation, *, is_over: bool = False) -> Future[None]:
    """Save the orchestrator's state on the writer; flush it if the run ends with an interrupt."""
    state = source.serialize_state()
    conversation.set_entry(ORCHESTRATOR, state)
    return conversation.saver.request(flush=is_over and state.get("status") == "interrupted")
