"""Orchestrator: the state of a Graph or Swarm, kept as a conversation without messages."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING

from strands_manga_memory.session.basis.facts import ORCHESTRATOR
from strands_manga_memory.session.sync.conversation import Conversation
from strands_manga_memory.stores.encoding.codec import dump, load, trusted

if TYPE_CHECKING:
    from strands.multiagent.base import MultiAgentBase


def restore(source: MultiAgentBase, conversation: Conversation) -> None:
    """Open the conversation, and give the orchestrator its state if there is one; raises what ``Conversation.open`` does."""
    if conversation.open() is not None and ORCHESTRATOR in conversation.own.fields:
        with trusted(conversation.place.conversation):
            source.deserialize_state(load(conversation.own.fields[ORCHESTRATOR]))


def begin_run(conversation: Conversation) -> None:
    """Take note that a run begins: if the conversation was deleted, the record begins anew; raises what ``check`` does."""
    conversation.commits.check()
    conversation.take_over([])


def request_save(source: MultiAgentBase, conversation: Conversation, *, is_over: bool = False) -> Future[None]:
    """Save the orchestrator's state on the writer; flush it if the run ends with an interrupt."""
    state = source.serialize_state()
    with conversation.lock:
        if not conversation.own.author.is_gone:  # else the run began before its end, nothing of it may come back
            conversation.own.capture([], {ORCHESTRATOR: dump(state)}, in_turn=False)
            if is_over:
                conversation.own.count(turns=1)
    return conversation.commits.request(flush=is_over and state.get("status") == "interrupted")
