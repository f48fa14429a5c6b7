"""Handoffs: messages from one agent to another agent of the same session."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from xml.sax.saxutils import quoteattr

from strands import ToolContext, tool
from strands.types.tools import AgentTool

from strands_manga_memory.arguments import Text, checked, with_repr
from strands_manga_memory.assembly.facade import MangaMemory
from strands_manga_memory.language.pii import redact_identifiers
from strands_manga_memory.messages.injection import escape_line, escape_tags
from strands_manga_memory.scope import ConversationScope, checked_id

_PREFIX = "handoff:"
_IDS = {"user_id", "session_id", "agent_id", "tenant"}


@checked
@dataclass(frozen=True, kw_only=True)
class Handoff:
    """Message from one agent to another agent of the same session.

    Args:
        from_agent: Id of the sending agent.
        to_agent: Id of the receiving agent.
        summary: Text of the message, a few sentences.

    Raises:
        ValueError: An id is not allowed, both ids are equal, or the summary is empty.
    """

    from_agent: str
    to_agent: str
    summary: Text

    def __post_init__(self) -> None:
        checked_id("from_agent", self.from_agent)
        checked_id("to_agent", self.to_agent)
        if self.from_agent == self.to_agent:
            raise ValueError(
                f"to_agent must be another agent than from_agent, got {self.to_agent!r:.80} twice"
            )

    @property
    def text(self) -> str:
        """Text of the handoff for the receiving model, in the tag ``<handoff>``."""
        summary = redact_identifiers(self.summary)
        shown = summary if len(summary) <= MAX_CHARACTERS else f"{summary[:MAX_CHARACTERS]}…"
        sender = quoteattr(escape_line(self.from_agent))
        return f"{HANDOFF_TAG} from={sender}>{escape_tags(shown.replace('&', '&amp;'))}</handoff>"


MAX_CHARACTERS = 4_000
"""Maximum number of characters of a summary in the receiver's request.
Longer summaries are truncated.
"""

HANDOFF_TAG = "<handoff"
"""Beginning of the text of every handoff."""


@with_repr("_memory")
class Handoffs:
    """Store of messages (handoffs) that agents of a session leave for each other.

    An agent gets only the newest handoff of each sender. Handoffs are stored with the receiver's
    conversation. They survive a restart and are deleted with the conversation.

    Args:
        memory: Memory that stores the sessions.

    Raises:
        ValueError: ``memory`` is not a ``MangaMemory``.
    """

    @checked
    def __init__(self, memory: MangaMemory) -> None:
        self._memory = memory

    def write(
        self, handoff: Handoff, *, user_id: str, session_id: str, tenant: str | None = None
    ) -> None:
        """Store a message to another agent, which gets it with the user's next message.

        Args:
            handoff: Message to store.
            user_id: Id of the user.
            session_id: Id of the session, unique within the user.
            tenant: Tenant of the user; None if the user has no tenant.

        Raises:
            ValueError: An id is not allowed.
            StoreUnavailableError: No store answered in time. The handoff stays in memory and is
                saved later in the background.
        """
        record = {"summary": handoff.summary}
        scope = ConversationScope(user_id, session_id, handoff.to_agent, tenant=tenant)
        self._memory.session(scope).set_metadata(None, **{f"{_PREFIX}{handoff.from_agent}": record})

    def read(self, scope: ConversationScope) -> list[Handoff]:
        """Return the messages from other agents (handoffs) that wait for the agent in ``scope``.

        Raises:
            StoreUnavailableError: The stores cannot be read.
        """
        return [
            Handoff(from_agent=name.removeprefix(_PREFIX), to_agent=scope.agent_id, **record)
            for name, record in self._memory.session(scope).metadata().items()
            if name.startswith(_PREFIX) and record
        ]

    def remove(self, scope: ConversationScope, handoffs: list[Handoff]) -> None:
        """Remove ``handoffs``, which the agent in ``scope`` has received, from the store.

        If a sender has replaced its handoff since the delivery, the new handoff stays.
        """
        manager = self._memory.session(scope)
        delivered = [handoff for handoff in self.read(scope) if handoff in handoffs]
        if delivered:
            manager.set_metadata(
                None, **{f"{_PREFIX}{handoff.from_agent}": None for handoff in delivered}
            )

    def tool(self, agents: Mapping[str, str]) -> AgentTool:
        """Create the tool ``hand_over``, with which a model passes the user to another agent.

        The ids of user and session come from the invocation state that ``SessionStrandsAgent``
        sets, never from the model.

        Args:
            agents: Description of each agent that may receive the user, keyed by agent id.
        """

        async def hand_over(agent_id: str, summary: str, tool_context: ToolContext) -> str:
            """Hand the user over to a colleague, who answers from the user's next message on."""
            if agent_id not in agents:
                return f"There is no {agent_id!r}. Colleagues: {', '.join(agents)}."
            identity = tool_context.invocation_state
            if not identity.keys() >= _IDS:
                raise ValueError(
                    f"hand_over needs {sorted(_IDS)} in the invocation state, as"
                    " SessionStrandsAgent sets them"
                )
            handoff = Handoff(from_agent=identity["agent_id"], to_agent=agent_id, summary=summary)
            ids = {name: identity[name] for name in _IDS - {"agent_id"}}
            await asyncio.to_thread(self.write, handoff, **ids)
            return (
                f"{agent_id} knows about it and answers from the user's next message on. Tell the"
                " user so."
            )

        colleagues = "; ".join(f"{id_}: {purpose}" for id_, purpose in agents.items())
        schema = {
            "type": "object",
            "properties": {
                "agent_id": {
                    "type": "string",
                    "enum": list(agents),
                    "description": f"The colleague. {colleagues}",
                },
                "summary": {
                    "type": "string",
                    "description": "What the colleague needs to know, in a few sentences.",
                },
            },
            "required": ["agent_id", "summary"],
        }
        return tool(context=True, inputSchema={"json": schema})(hand_over)
