"""Caller: whose a tool call is, as far as its invocation state tells."""

from __future__ import annotations

import re
import uuid
import weakref
from collections.abc import Callable, Mapping
from typing import Any

UserOf = Callable[[Mapping[str, Any]], tuple[str, str] | None]
"""From the invocation state of a call to (tenant, user), or None if its results must not be kept."""

_NOBODY = ("", "")
_AGENT = "agent:"
_RANDOM_SESSION = re.compile(r"[0-9a-f]{0,8}")


def user_of_call(invocation_state: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return (tenant, user) of a call: ``tenant`` and ``user_id`` of the invocation state, else those of the agent's session.

    An agent without a session manager is a user of its own, and so is a session that belongs to no user, and a call made
    outside any agent.
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
    """Return a user of ``user_of_call`` that can be told from others; None for whoever is nobody's known user."""
    return None if user is None or user == _NOBODY or str(user[1]).startswith(_AGENT) else user


_own_ids: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
