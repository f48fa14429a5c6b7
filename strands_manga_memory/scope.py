"""ConversationScope: who talks to which agent, and the storage ids that follow from it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from urllib.parse import quote

MAX_ID_CHARACTERS = 1024
"""Longest id that is accepted, in characters."""

MAX_ENCODED_BYTES = 200
"""An encoded id longer than this becomes a readable prefix and a SHA-256."""

_PREFIX_BYTES = 96
_IS_STORAGE_ID = "is the id under which stores keep it; pass the ConversationScope itself"
_OF_NO_TENANT = re.compile(r":[\w.~%!-]+:[\w.~%!-]+", re.ASCII)
"""A storage id of a session without a tenant, by which it is known after it was stored as text, too."""


class StorageId(str):
    """An id under which stores keep something. It is made from the ids of a scope, and stands for none of them."""

    __slots__ = ()


def checked_id(name: str, value: object) -> str:
    """Return ``value`` if it can be an id.

    Args:
        name: What the id is called in the error message.
        value: A non-empty string of at most 1,024 characters, not only white space, without lone surrogates, that is not
            the id under which stores keep a scope's session or user.

    Raises:
        ValueError: It is anything else. The message names the id, its value and what is allowed.
    """
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a string, got {type(value).__name__}: {value!r:.80}")
    if isinstance(value, StorageId):
        raise ValueError(f"{name} {_IS_STORAGE_ID}, got {str(value)[:80]!r}")
    if not value.strip():
        raise ValueError(f"{name} must not be empty, got {value[:40]!r}")
    if len(value) > MAX_ID_CHARACTERS:
        raise ValueError(f"{name} must have at most {MAX_ID_CHARACTERS} characters, got {len(value)}: {value[:40]!r}...")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} must be valid Unicode, got {value!r:.80}") from error
    return value


def checked_session_id(value: object) -> str:
    """Return ``value`` if it can be the id of a session without a user; see ``checked_id``."""
    session_id = checked_id("session_id", value)
    if _OF_NO_TENANT.fullmatch(session_id):
        raise ValueError(f"session_id {_IS_STORAGE_ID}, got {session_id!r:.80}")
    return session_id


def encoded_id(value: str) -> str:
    """Return ``value`` percent-encoded, so that it holds only letters, digits and ``_.-~%``.

    An encoding over 200 bytes becomes its first 96 bytes, ``!`` and the SHA-256 of the original. ``!`` appears in no other
    encoding, so two ids never share an encoding short of a SHA-256 collision, which readers detect by comparing the original.
    """
    encoded = quote(value, safe="")
    if len(encoded) <= MAX_ENCODED_BYTES:
        return encoded
    return f"{encoded[:_PREFIX_BYTES]}!{hashlib.sha256(value.encode()).hexdigest()}"


def encoded_user(user_id: str, tenant: str | None) -> str:
    """Return the escaped user id, behind ``tenant:`` if there is one; no escaped id holds a colon, so no two users share it."""
    user = encoded_id(user_id)
    return user if tenant is None else f"{encoded_id(tenant)}:{user}"


def tenant_of(place: str) -> str:
    """Return the escaped tenant whose data is kept at ``place``; ``""`` for the tenant None.

    Places are names of stored values: ``tenant:user:session/...`` (a session), ``tenant:user/...`` (a user's memories), and
    both behind ``environment/`` or ``profile/``. What is kept without a user (a plain session id) has no tenant.
    """
    parts = place.split("/")
    ids = parts[1 if len(parts) == 3 and parts[0] in _SHARED else 0].split(":")
    return ids[0] if len(ids) > 1 else ""


_SHARED = ("environment", "profile")


@dataclass(frozen=True)
class ConversationScope:
    """One user's conversation with one agent.

    Args:
        user_id: The user, unique within the tenant.
        session_id: The session, unique within the user.
        agent_id: The agent, unique within the session. Defaults to Strands' own ``"default"``.
        tenant: The tenant; None is a tenant of its own.

    Raises:
        ValueError: An id is empty, longer than 1,024 characters, or no string.
    """

    user_id: str
    session_id: str
    agent_id: str = "default"
    tenant: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        checked_id("user_id", self.user_id)
        checked_id("session_id", self.session_id)
        checked_id("agent_id", self.agent_id)
        if self.tenant is not None:
            checked_id("tenant", self.tenant)

    @property
    def storage_session_id(self) -> str:
        """The id under which every store keeps this session: escaped, and different for every (tenant, user, session)."""
        tenant = "" if self.tenant is None else encoded_id(self.tenant)
        return StorageId(f"{tenant}:{encoded_id(self.user_id)}:{encoded_id(self.session_id)}")

    @property
    def storage_user_id(self) -> str:
        """The id under which memories of this user are kept: escaped, and different for every (tenant, user)."""
        return StorageId(encoded_user(self.user_id, self.tenant))
