"""Transcripts: the texts of the messages of a conversation, with authors and times."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Utterance:
    """Text of a message in a transcript, with the role of its author.

    Attributes:
        turn: Number of the turn (user request) that the message belongs to.
        at: Time of the message, in seconds since 1970.
        message_id: ``tracking_id`` of the message.
        is_learned: Whether preferences may be extracted from the message. False for an agent with
            ``learn="nothing"``.
    """

    role: str
    text: str
    turn: int
    at: float
    message_id: str = ""
    is_learned: bool = True


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """Texts of the messages of a conversation, from its first message until its end.

    If a conversation is deleted and created again with the same ids, it has a new transcript.

    Attributes:
        mark: Text that distinguishes the conversation from a deleted one with the same ids.
        utterances: Texts of the messages, in order.
        turns: Number of turns (user requests).
        covered: Number of messages of the conversation, including messages without text, which
            ``utterances`` lacks.
        revisions: Number of times that a message was replaced, for example by a redaction.
        ended_at: Time of the last message, in seconds since 1970.
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
    def lines(self) -> list[tuple[str, str]]:
        """Role and text of each message in the transcript, in order."""
        return [(utterance.role, utterance.text) for utterance in self.utterances]
