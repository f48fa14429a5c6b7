"""Transcript: what was said in a conversation that ended, without tool calls and their results. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from strands_manga_memory.language.summaries.session_summary import Line


@dataclass(frozen=True, slots=True)
class Utterance:
    """The text of a message: whose it is, in which turn and when it was said (seconds since 1970), and its ``tracking_id``."""

    role: str
    text: str
    turn: int
    at: float
    message_id: str = ""


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """One incarnation of a conversation: from its first message until it ended.

    Attributes:
        user_id: The user.
        tenant: The tenant, or None.
        session_id: The session.
        agent_id: The agent.
        mark: Tells this incarnation from others of the same ids.
        utterances: What was said, in order.
        turns: User requests.
        covered: Grows with every message; the same, if nothing was said since.
        revisions: Grows with every message that was redacted or continued.
        ended_at: When the last message was said.
    """

    user_id: str
    tenant: str | None
    session_id: str
    agent_id: str
    mark: str
    utterances: tuple[Utterance, ...]
    turns: int
    covered: int
    revisions: int
    ended_at: float

    @property
    def lines(self) -> list[Line]:
        """Roles and texts."""
        return [(utterance.role, utterance.text) for utterance in self.utterances]
