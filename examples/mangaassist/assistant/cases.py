"""Cases: conversations that a human takes over, each a Markdown file."""

from __future__ import annotations

import uuid
from pathlib import Path

from strands import Agent, ToolContext, tool
from strands.types.tools import AgentTool

from strands_manga_memory.state import Phase, coordinator_of, export_for_human


class Cases:
    """Folder of cases, with a tool that opens them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def tool(self) -> AgentTool:
        """Return the tool ``open_case``."""

        @tool(context=True)
        def open_case(reason: str, tool_context: ToolContext) -> str:
            """Open a case: a human colleague reads the conversation and writes to the customer.

            Args:
                reason: Why a human is needed, in a sentence.
            """
            agent = tool_context.agent
            coordinator = coordinator_of(agent) if isinstance(agent, Agent) else None
            if coordinator is None or not isinstance(agent, Agent):
                raise ValueError("open_case needs an agent with a StateCoordinator")
            coordinator.dialogue.set_phase(Phase.HANDOFF)
            number = f"C-{uuid.uuid4().hex[:8]}"
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / f"{number}.md").write_text(
                export_for_human(agent, reason=reason).to_markdown(), encoding="utf-8"
            )
            return f"Case {number} is open."

        return open_case
