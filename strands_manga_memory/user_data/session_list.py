"""Lists of users and of a user's sessions, page by page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from strands_manga_memory.arguments import PositiveInt, checked
from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.language.dialogue_acts import SMALL_TALK_ACTS, dialogue_act
from strands_manga_memory.language.pii import redact_identifiers
from strands_manga_memory.memory.records import Owner
from strands_manga_memory.messages.injection import message_text
from strands_manga_memory.messages.texts import shorten_line
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.session import TieredSessionManager
from strands_manga_memory.session.tiers import ExpiryIndex, stored_heads
from strands_manga_memory.stores.table import Table
from strands_manga_memory.user_data.erasure import sessions_of

_TITLE_CHARACTERS = 80
_ANY_TIME = 10.0**12


@dataclass(frozen=True)
class SessionEntry:
    """Entry in a list of sessions.

    Attributes:
        session_id: Id of the session.
        agents: Ids of the session's agents.
        title: First message of the user, if possible not small talk such as a greeting. At most 80
            characters, with card and account numbers redacted. Empty without messages.
        turns: Number of turns of all agents together.
        last_used: Time of the last activity, in seconds since 1970; None if there was no activity.
        is_damaged: Whether a record of the session cannot be read. The entry then has no title and
            no turns.
    """

    session_id: str
    agents: tuple[str, ...]
    title: str
    turns: int
    last_used: float | None
    is_damaged: bool = False


@dataclass(frozen=True)
class SessionPage:
    """Page in a list of a user's sessions.

    Attributes:
        sessions: Entries of the page, most recently used session first.
        next: Argument ``after`` of ``list_sessions`` for the next page; None on the last page.
    """

    sessions: tuple[SessionEntry, ...]
    next: str | None = None


@dataclass(frozen=True)
class UserEntry:
    """Entry in a list of users.

    Attributes:
        user_id: Id of the user.
        tenant: Tenant of the user, or None.
        sessions: Number of the user's sessions.
    """

    user_id: str
    tenant: str | None
    sessions: int


@dataclass(frozen=True)
class UserPage:
    """Page in a list of users.

    Attributes:
        users: Entries of the page, sorted by the percent-encoded text ``tenant:user`` or, without a
            tenant, ``user``.
        next: Argument ``after`` of ``list_users`` for the next page; None on the last page.
    """

    users: tuple[UserEntry, ...]
    next: str | None = None


@checked
def list_sessions(
    durable: Table,
    owner: Owner,
    open_session: Callable[[ConversationScope], TieredSessionManager],
    *,
    limit: PositiveInt,
    after: str | None,
) -> SessionPage:
    """Return a page in the list of a user's sessions.

    Pages follow the order of session ids. In a page, the most recently used session is first.

    Args:
        durable: Durable store, which has a directory of the sessions.
        owner: User and tenant.
        open_session: Function that returns the session manager of a scope (user and session).
        limit: Largest number of sessions in the page.
        after: Value of ``next`` in the previous page; None for the first page.

    Raises:
        ValueError: ``limit`` is below 1.
        StoreUnavailableError: A store does not answer.
    """
    scopes = sorted(sessions_of(durable, owner), key=lambda scope: scope.session_id)
    left = [scope for scope in scopes if after is None or scope.session_id > after]
    page = [_list_entry(scope, open_session(scope), durable) for scope in left[:limit]]
    page.sort(key=lambda line: -(line.last_used or 0.0))
    return SessionPage(tuple(page), left[limit - 1].session_id if len(left) > limit else None)


def _list_entry(
    scope: ConversationScope, manager: TieredSessionManager, durable: Table
) -> SessionEntry:
    agents = tuple(manager.agents())
    try:
        facts = [manager.metadata(agent) for agent in agents]
        last = max((each["last_activity"] for each in facts), default=0.0)
        # The title is from the oldest conversation with a message of the user.
        oldest = sorted(zip(agents, facts, strict=True), key=lambda pair: pair[1]["created"])
        title = next((found for agent, _ in oldest if (found := _find_title(manager, agent))), "")
        heads = stored_heads(durable, str(manager.session_id))
        is_damaged = not agents and any(head.is_damaged for head in heads)
    except CorruptRecordError:
        facts, last, title, is_damaged = [], 0.0, "", True
    return SessionEntry(
        scope.session_id,
        agents,
        title,
        sum(each["turn_count"] for each in facts),
        last or None,
        is_damaged,
    )


def _find_title(manager: TieredSessionManager, agent_id: str) -> str:
    title = ""
    for message in manager.history(agent_id):
        text = message_text(message).strip() if message["role"] == "user" else ""
        if text and dialogue_act(text, "user") not in SMALL_TALK_ACTS:
            title = text
            break
        title = title or text
    return shorten_line(redact_identifiers(title), _TITLE_CHARACTERS)


@checked
def list_users(durable: Table, *, limit: PositiveInt, after: str | None) -> UserPage:
    """Return a page in the list of users who have sessions. Sessions without a user are ignored.

    Args:
        durable: Durable store.
        limit: Largest number of users in the page.
        after: Value of ``next`` in the previous page; None for the first page.

    Raises:
        ValueError: ``limit`` is below 1.
        StoreUnavailableError: The durable store does not answer.
    """
    owners = set()
    for entry in ExpiryIndex(durable).due(_ANY_TIME):
        if user := entry.ids.get("user"):
            tenant = entry.ids.get("tenant")
            owners.add(Owner(str(user), None if tenant is None else str(tenant)))
    lines: list[UserEntry] = []
    last = None
    for owner in sorted(owners, key=lambda owner: owner.partition):
        if after is not None and owner.partition <= after:
            continue
        # none if they were just deleted, and are still in the index
        sessions = len(list(sessions_of(durable, owner)))
        if sessions and len(lines) == limit:
            return UserPage(tuple(lines), last)
        if sessions:
            lines.append(UserEntry(owner.user_id, owner.tenant, sessions))
            last = owner.partition
    return UserPage(tuple(lines))
