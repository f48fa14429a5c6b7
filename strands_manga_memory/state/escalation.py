"""Export of a conversation for a human who takes it over."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict
from strands import Agent
from strands.types.content import Message

from strands_manga_memory.arguments import Count, checked
from strands_manga_memory.language.open_questions import Line
from strands_manga_memory.language.pii import redact_identifiers
from strands_manga_memory.language.session_summaries import (
    RuleSessionSummarizer,
    SessionSummary,
)
from strands_manga_memory.messages.injection import message_text
from strands_manga_memory.messages.texts import shorten_line
from strands_manga_memory.state.active_entities import ActiveEntity
from strands_manga_memory.state.coordinator import StateCoordinator, coordinator_of
from strands_manga_memory.state.environment import Environment

_SUMMARY_TOKENS = 200
_MAX_CHARACTERS = 1_000
_CERTAINTY = {False: "inferred", True: "confirmed"}


class Escalation(BaseModel):
    """Conversation exported for a human who takes it over.

    Attributes:
        at: Time of the export, in seconds since 1970.
        session_id: Id of the session; None if the agent has no session.
        agent_id: Id of the agent.
        reason: Reason for the escalation.
        summary: Summary of the conversation, with topics, open questions and the user's sentiment.
        to_ask: Questions that the agent still has to ask the user.
        entities: Active entities: orders, titles and other things that recent turns named.
        state: Lines about the dialogue, the goals and the last request, as the model sees them.
        environment: Data from the shop's systems, such as the user's cart and locale.
        turns: Texts of the user and the assistant in the last turns, oldest first, at most 1,000
            characters each.
    """

    model_config = ConfigDict(frozen=True)

    at: float
    session_id: str | None
    agent_id: str
    reason: str
    summary: SessionSummary
    to_ask: tuple[str, ...] = ()
    entities: tuple[ActiveEntity, ...] = ()
    state: tuple[str, ...] = ()
    environment: Environment = Environment()
    turns: tuple[tuple[str, str], ...] = ()

    def to_markdown(self) -> str:
        """Return the exported conversation as a Markdown document."""
        summary = self.summary
        spoken = [
            f"{each.type}: {each.value} ({_CERTAINTY[each.is_confirmed]}, turn {each.turn})"
            for each in self.entities
        ]
        parts = [
            f"# Conversation {_escaped(self.session_id or self.agent_id)}",
            f"Exported {datetime.fromtimestamp(self.at, UTC):%Y-%m-%d %H:%M} UTC"
            + (f". Reason: {_escaped(self.reason)}" if self.reason else ""),
            f"## Summary\n\n{_escaped(summary.text) or 'Nothing was said yet.'}\n\nSentiment:"
            f" {summary.sentiment}"
            + (f". Topics: {_escaped(', '.join(summary.topics))}" if summary.topics else ""),
            _list("Open questions of the user", summary.open_questions),
            _list("To ask the user", self.to_ask),
            _list("Where it stands", self.state),
            _list("Spoken of", spoken),
            _list("The user", self.environment.lines(self.at)),
        ]
        if self.turns:
            transcript = "\n\n".join(
                f"**User:** {_escaped(user)}"
                + (f"\n\n**Assistant:** {_escaped(assistant)}" if assistant else "")
                for user, assistant in self.turns
            )
            parts.append(f"## Last turns\n\n{transcript}")
        return "\n\n".join(part for part in parts if part) + "\n"


@checked
def export_for_human(
    agent: Agent,
    *,
    reason: str = "",
    turns: Count = 5,
    history: Iterable[Message] | None = None,
) -> Escalation:
    """Export an agent's conversation and its state for a human who takes it over.

    Args:
        agent: The agent. Its state comes from its ``StateCoordinator``, if any.
        reason: Reason for the escalation.
        turns: Number of last turns to include. Default 5.
        history: All messages of the conversation, as ``manager.history()`` returns them. Default:
            ``agent.messages``, which may contain only the end of the conversation.

    Raises:
        ValueError: ``turns`` is negative.
    """
    lines: list[Line] = [
        (message["role"], redact_identifiers(text))
        for message in (agent.messages if history is None else history)
        if (text := message_text(message).strip())
    ]
    summary = SessionSummary(text="")
    if lines:
        summary = RuleSessionSummarizer()(lines, max_tokens=_SUMMARY_TOKENS)
    spoken = _turns(lines)
    coordinator = coordinator_of(agent)
    return Escalation(
        at=time.time(),
        session_id=getattr(agent, "session_id", None),
        agent_id=agent.agent_id,
        reason=reason,
        summary=summary,
        turns=tuple(spoken[-turns:] if turns else ()),
        **({} if coordinator is None else _state_of(coordinator)),
    )


def _state_of(coordinator: StateCoordinator) -> dict[str, Any]:
    dialogue = coordinator.dialogue
    spoken = (line for line in dialogue.lines() if line != dialogue.next_request)
    return {
        "to_ask": [each.question for each in dialogue.to_ask],
        "entities": coordinator.entities.active(),
        "state": [*spoken, *coordinator.goals.lines(), *coordinator.task.lines()],
        "environment": coordinator.environment,
    }


def _turns(lines: Iterable[Line]) -> list[tuple[str, str]]:
    found: list[list[str]] = []
    for role, text in lines:
        if role == "user":
            found.append([text, ""])
        elif found:
            found[-1][1] += f"\n{text}"
    return [
        (shorten_line(user, _MAX_CHARACTERS), shorten_line(answer, _MAX_CHARACTERS))
        for user, answer in found
    ]


def _list(title: str, lines: Iterable[str]) -> str:
    items = [f"- {_escaped(line)}" for line in lines]
    return f"## {title}\n\n" + "\n".join(items) if items else ""


_MARKUP = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_[]<>#|"})


def _escaped(text: str) -> str:
    return " ".join(text.split()).translate(_MARKUP)
