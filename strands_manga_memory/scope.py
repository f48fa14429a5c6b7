"""Conversation scope: the ids of a conversation and the storage ids derived from them."""

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
"""Form of a storage id without a tenant. It also recognizes ids that lost their type, for example in JSON."""


class StorageId(str):
    """Storage id, derived from the ids of a scope. It is rejected as a user, session or agent id."""

    __slots__ = ()


def checked_id(name: str, value: object) -> str:
    """Return ``value`` if it is a valid id.

    Args:
        name: Name of the id in the error message.
        value: A non-empty string of at most 1,024 characters, not only white space, without lone surrogates, and not a
            ``StorageId``.

    Raises:
        ValueError: The value is invalid. The message names the id, the value and the rule.
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
    """Return ``value`` if it is a valid id of a session without a user; see ``checked_id``."""
    session_id = checked_id("session_id", value)
    if _OF_NO_TENANT.fullmatch(session_id):
        raise ValueError(f"session_id {_IS_STORAGE_ID}, got {session_id!r:.80}")
    return session_id


def encoded_id(value: str) -> str:
    """Return ``value`` percent-encoded: only letters, digits and ``_.-~%``.

    An encoding of more than 200 bytes is replaced by its first 96 bytes, ``!`` and the SHA-256 of the value. Other
    encodings contain no ``!``, so only a SHA-256 collision gives two ids one encoding. Readers detect it by comparing
    the original ids.
    """
    encoded = quote(value, safe="")
    if len(encoded) <= MAX_ENCODED_BYTES:
        return encoded
    return f"{encoded[:_PREFIX_BYTES]}!{hashlib.sha256(value.encode()).hexdigest()}"


def encoded_user(user_id: str, tenant: str | None) -> str:
    """Return the encoded user id, after ``tenant:`` if there is a tenant. Encoded ids contain no colon, so it is unique."""
    user = encoded_id(user_id)
    return user if tenant is None else f"{encoded_id(tenant)}:{user}"


def tenant_of(place: str) -> str:
    """Return the encoded tenant of the data stored at ``place``; ``""`` for the tenant None.

    Places are storage keys: ``tenant:user:session/...`` (sessions) and ``tenant:user/...`` (memories), either with the
    prefix ``environment/`` or ``profile/`` or without. Sessions without a user have no tenant.
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
        ValueError: An id is empty, longer than 1,024 characters, or not a string.
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
        """Storage id of this session: encoded, and unique per (tenant, user, session)."""
        tenant = "" if self.tenant is None else encoded_id(self.tenant)
        return StorageId(f"{tenant}:{encoded_id(self.user_id)}:{encoded_id(self.session_id)}")

    @property
    def storage_user_id(self) -> str:
        """Storage id of this user's memories: encoded, and unique per (tenant, user)."""
        return StorageId(encoded_user(self.user_id, self.tenant))
