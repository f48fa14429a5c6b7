"""LogRepository: the messages of a session's log, listed and corrected as in Strands' session repositories."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Any

from strands.types.content import Message
from strands.types.session import SessionMessage

from strands_manga_memory.session.basis.tiers import Tiers
from strands_manga_memory.session.live.save_waits import wait_anywhere
from strands_manga_memory.session.live.session_members import SessionMembers


class LogRepository:
    """What others ask of a session manager's ``session_repository``, such as AG-UI for the results of tools in a browser.

    Args:
        session_id: The session.
        members: Its agents.
        tiers: Where it is kept.
    """

    def __init__(self, session_id: str, members: SessionMembers, tiers: Tiers) -> None:
        self._session_id, self._members, self._tiers = session_id, members, tiers

    def list_messages(
        self, session_id: str, agent_id: str, limit: int | None = None, offset: int = 0, **kwargs: Any
    ) -> list[SessionMessage]:
        """Return messages of the log in order; ``message_id`` is the sequence number.

        Raises:
            ValueError: It is another session.
            StoreUnavailableError: What is stored cannot be read.
        """
        self._check(session_id)
        slots = itertools.islice(self._members.log(agent_id), offset, None if limit is None else offset + limit)
        return [
            SessionMessage(message=slot.message, message_id=slot.seq, created_at=_text(slot.at), updated_at=_text(slot.at))
            for slot in slots
        ]

    def update_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any) -> None:
        """Put a message in place of the one that has its ``message_id``, in log and window; it keeps its ``tracking_id``.

        Raises:
            ValueError: It is another session, or there is no such message.
            StoreUnavailableError: What is stored cannot be read.
        """
        self._check(session_id)
        seq = session_message.message_id
        logged = next(self._members.log(agent_id, after=seq - 1), None)
        if logged is None or logged.seq != seq:
            raise ValueError(f"message_id {seq!r:.80} is not in the log of agent_id {agent_id!r:.80}")
        message: Message = {**session_message.to_message()}
        if logged.message.get("tracking_id"):
            message["tracking_id"] = logged.message["tracking_id"]
        self._members.redacted(logged.message)
        wait_anywhere(self._members.known_or_looked_at(agent_id).request_correction(logged, message), self._tiers)

    def _check(self, session_id: str) -> None:
        if session_id != self._session_id:
            raise ValueError(
                f"session_id {session_id!r:.80} is not the session of this session manager, {self._session_id!r:.80}"
            )


def _text(at: float) -> str:
    return datetime.fromtimestamp(at, tz=UTC).isoformat()
