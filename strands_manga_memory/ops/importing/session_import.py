"""import_sessions: what other session managers keep, stored so that an agent of the same ids goes on with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from strands_manga_memory.assembly.facade import MangaMemory
from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.ops.importing.source import Content, Found, SessionSource, damaged
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.session.transfer import TransferredConversation

Outcome = Literal["imported", "new", "exists", "ended", "empty", "skipped", "failed"]


@dataclass(frozen=True, kw_only=True)
class ImportedConversation:
    """What became of one conversation.

    Attributes:
        session_id: The session, as the source calls it.
        id: The agent, or the Graph or Swarm.
        kind: ``agent`` or ``orchestrator``.
        outcome: ``imported``; ``new``: a dry run would have imported it; ``exists``: there is one already, which was left as it
            is; ``ended``: there was one, which was deleted or is over; ``empty``: no messages, no state; ``skipped``: it is
            nobody's who was asked for; ``failed``: it was not stored, and the last note says why.
        messages: Messages of the log.
        window: Messages of the history that an agent is restored with.
        notes: What was not taken over, and why.
    """

    session_id: str
    id: str
    kind: str
    outcome: Outcome
    messages: int = 0
    window: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SessionsReport:
    """What became of the conversations of a source."""

    conversations: list[ImportedConversation] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        """How many there are of each outcome, and ``messages`` of those that were imported."""
        counts: Counter[str] = Counter(one.outcome for one in self.conversations)
        counts["messages"] = sum(one.messages for one in self.conversations if one.outcome in ("imported", "new"))
        return dict(counts)

    @property
    def complete(self) -> bool:
        """Whether nothing failed."""
        return not any(one.outcome == "failed" for one in self.conversations)


def import_sessions(
    source: SessionSource,
    memory: MangaMemory,
    *,
    scope_of: Callable[[str], str | ConversationScope | None] = str,
    dry_run: bool = False,
    progress: Callable[[ImportedConversation], object] = lambda one: None,
) -> SessionsReport:
    """Store the conversations of a source, each with its whole log, its history, its agent's state and its manager's state.

    An agent that is then built with the same ids has the messages that it would have had with the source's session manager;
    only a tool call that never got a result is closed. What is there already is never changed, so it can be called again, also
    after it was cut off. A damaged conversation is reported and left out, as a whole.

    Args:
        source: Where they are; ``open_source`` opens one.
        memory: The stores.
        scope_of: Which session here a session of the source becomes: a ``ConversationScope`` (its ``agent_id`` is not looked
            at), or an id for ``TieredSessionManager``. None: leave it out. Default: its own id.
        dry_run: Read everything, and store nothing.
        progress: Called with what became of each conversation.

    Raises:
        StoreUnavailableError: The source or a store does not answer; it can be called again.
    """
    report = SessionsReport()
    seen: set[tuple[str, str, str]] = set()
    for found in source.conversations():
        key = (found.session_id, found.kind, found.id)
        one = _imported(found, memory, scope_of, dry_run=dry_run, is_second=key in seen)
        seen.add(key)
        report.conversations.append(one)
        progress(one)
    return report


def _imported(
    found: Found,
    memory: MangaMemory,
    scope_of: Callable[[str], str | ConversationScope | None],
    *,
    dry_run: bool,
    is_second: bool,
) -> ImportedConversation:
    content = Content(None)
    outcome: Outcome = "empty"
    notes: tuple[str, ...] = ()
    try:
        if is_second:
            raise damaged(found.session_id, "these ids are in the source twice; import each part of it by itself")
        scope = scope_of(found.session_id)
        if scope is None:
            outcome = "skipped"
        else:
            content = found.read()
            notes = content.notes
            if content.transferred is not None:
                standing = memory.session(scope).transfer(content.transferred, found.id, dry_run=dry_run)
                outcome = standing if standing != "new" or dry_run else "imported"
    except (CorruptRecordError, ValueError) as error:
        outcome, notes = "failed", (*notes, str(error))
    log, window = 0, 0
    if isinstance(content.transferred, TransferredConversation):
        log = len(content.transferred.log)
        window = log if content.transferred.window is None else len(content.transferred.window)
    return ImportedConversation(
        session_id=found.session_id, id=found.id, kind=found.kind, outcome=outcome, messages=log, window=window, notes=notes
    )
