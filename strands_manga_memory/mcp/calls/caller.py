"""User of a tool call, derived from its invocation state."""

from __future__ import annotations

import re
import uuid
import weakref
from collections.abc import Callable, Mapping
from typing import Any

UserOf = Callable[[Mapping[str, Any]], tuple[str, str] | None]
"""Maps the invocation state of a call to (tenant, user), or to None if its results must not be cached."""

_NOBODY = ("", "")
_AGENT = "agent:"
_RANDOM_SESSION = re.compile(r"[0-9a-f]{0,8}")


def user_of_call(invocation_state: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return (tenant, user) of a call: ``tenant`` and ``user_id`` of the invocation state, else those of the agent's session.

    An agent without a session manager counts as a user of its own, as do a session without a user and a call outside
    any agent.
    """
    user = invocation_state.get("user_id")
    if isinstance(user, str):
        tenant = invocation_state.get("tenant")
        return (tenant if isinstance(tenant, str) else "", f"user:{user}")
    agent = invocation_state.get("agent")
    if agent is None:
        return _NOBODY
    session = str(getattr(agent, "session_id", ""))
    if _RANDOM_SESSION.fullmatch(session):  # no session manager, and too short to tell many users apart
        return ("", f"{_AGENT}{_own_ids.setdefault(agent, uuid.uuid4().hex)}")
    user, separator, _ = session.rpartition(":")
    # The storage id of a ConversationScope: tenant, user and session, each escaped.
    return ("", f"scope:{user}") if separator and user.count(":") == 1 else ("", f"session:{session}")


def known_user(user: tuple[str, str] | None) -> tuple[str, str] | None:
    """Return a user of ``user_of_call`` if it identifies a real user, otherwise None."""
    return None if user is None or user == _NOBODY or str(user[1]).startswith(_AGENT) else user


_own_ids: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
