"""Handoffs: what one agent of a squad tells the next one, kept in the session, given to it once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from xml.sax.saxutils import quoteattr

from strands import Agent, ToolContext, tool
from strands.types.tools import AgentTool

from strands_manga_memory.arguments import of_kind
from strands_manga_memory.assembly.facade import MangaMemory
from strands_manga_memory.language.pii import redact_identifiers
from strands_manga_memory.messages.injection import escape_line, escape_tags
from strands_manga_memory.scope import ConversationScope, checked_id

_PREFIX = "handoff:"
_IDS = {"user_id", "session_id", "agent_id", "tenant"}


@dataclass(frozen=True, kw_only=True)
class Handoff:
    """What an agent tells another one of the same session.

    Args:
        from_agent: The agent that hands over.
        to_agent: The agent that takes over.
        summary: What it needs to know, in a few sentences.
        state: Entries of ``agent.state`` that it gets a copy of; JSON values.

    Raises:
        ValueError: An id is not allowed, or there is nothing to tell.
    """

    from_agent: str
    to_agent: str
    summary: str
    state: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checked_id("from_agent", self.from_agent)
        checked_id("to_agent", self.to_agent)
        if self.from_agent == self.to_agent:
            raise ValueError(f"to_agent must be another agent than from_agent, got {self.to_agent!r:.80} twice")
        if not self.summary.strip():
            raise ValueError(f"summary must not be empty, got {self.summary!r:.80}")

    @property
    def text(self) -> str:
        """What the model of the agent that takes over reads, behind the user's message: escaped, and marked as what it is."""
        summary = redact_identifiers(self.summary)
        said = summary if len(summary) <= MOST_CHARACTERS else f"{summary[:MOST_CHARACTERS]}…"
        return f"{MARK} from={quoteattr(escape_line(self.from_agent))}>{escape_tags(said.replace('&', '&amp;'))}</handoff>"


MOST_CHARACTERS = 4_000
"""Characters of a summary that the next agent is told."""

MARK = "<handoff"
"""What the text of a handoff begins with."""


class Handoffs:
    """Leaves handoffs in a session and takes them out: the newest of each agent for each other one.

    They are metadata of the conversation of the agent that takes over, so they survive a restart and are deleted with it.

    Args:
        memory: Where the sessions are.

    Raises:
        ValueError: It is no ``MangaMemory``.
    """

    def __init__(self, memory: MangaMemory) -> None:
        self._memory = of_kind("memory", memory, MangaMemory, "a MangaMemory")

    def leave(self, handoff: Handoff, *, user_id: str, session_id: str, tenant: str | None = None) -> None:
        """Keep a handoff until the next request to ``handoff.to_agent`` has been answered; wait until it is stored.

        Raises:
            ValueError: An id is not allowed, or ``state`` is not JSON.
            StoreUnavailableError: No tier took it in time; it is kept and saved later.
        """
        record = {"summary": handoff.summary, "state": dict(handoff.state)}
        scope = ConversationScope(user_id, session_id, handoff.to_agent, tenant=tenant)
        self._memory.session(scope).set_metadata(None, **{f"{_PREFIX}{handoff.from_agent}": record})

    def waiting(self, scope: ConversationScope) -> list[Handoff]:
        """Return what others have left for the agent of a scope.

        Raises:
            StoreUnavailableError: What is stored cannot be read.
        """
        return [
            Handoff(from_agent=name.removeprefix(_PREFIX), to_agent=scope.agent_id, **record)
            for name, record in self._memory.session(scope).metadata().items()
            if name.startswith(_PREFIX) and record
        ]

    def done(self, scope: ConversationScope, taken: list[Handoff]) -> None:
        """Take handoffs out of the session; one that was replaced by a newer one meanwhile stays."""
        manager = self._memory.session(scope)
        same = [handoff for handoff in self.waiting(scope) if handoff in taken]
        if same:
            manager.set_metadata(None, **{f"{_PREFIX}{handoff.from_agent}": None for handoff in same})

    def tool(self, agents: Mapping[str, str], *, state_keys: tuple[str, ...] = ()) -> AgentTool:
        """Return the tool ``hand_over``, with which a model hands its user over to one of ``agents``.

        Whose session it is comes from the invocation state that ``SessionStrandsAgent`` sets, never from the model.

        Args:
            agents: Ids of the agents that may take over, and what each is for.
            state_keys: Entries of the agent's state that go along.
        """

        async def hand_over(agent_id: str, summary: str, tool_context: ToolContext) -> str:
            """Hand the user over to a colleague, who answers from the user's next message on."""
            if agent_id not in agents:
                return f"There is no {agent_id!r}. Colleagues: {', '.join(agents)}."
            trusted, agent = tool_context.invocation_state, tool_context.agent
            if not trusted.keys() >= _IDS:
                raise ValueError(f"hand_over needs {sorted(_IDS)} in the invocation state, as SessionStrandsAgent sets them")
            state = agent.state.get() if isinstance(agent, Agent) else {}
            handoff = Handoff(
                from_agent=trusted["agent_id"],
                to_agent=agent_id,
                summary=summary,
                state={key: state[key] for key in state_keys if key in state},
            )
            ids = {name: trusted[name] for name in _IDS - {"agent_id"}}
            await asyncio.to_thread(self.leave, handoff, **ids)
            return f"{agent_id} knows about it and answers from the user's next message on. Tell the user so."

        colleagues = "; ".join(f"{id_}: {purpose}" for id_, purpose in agents.items())
        schema = {
            "type": "object",
            "properties": {
                "agent_id": {"type": "string", "enum": list(agents), "description": f"The colleague. {colleagues}"},
                "summary": {"type": "string", "description": "What the colleague needs to know, in a few sentences."},
            },
            "required": ["agent_id", "summary"],
        }
        return tool(context=True, inputSchema={"json": schema})(hand_over)
