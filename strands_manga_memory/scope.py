"""Ids of a conversation, and the encoded ids under which stores keep its data."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from urllib.parse import quote

from strands_manga_memory.arguments import checked

MAX_ID_CHARACTERS = 1024
"""Longest id that is accepted, in characters."""

MAX_ENCODED_BYTES = 200
"""Maximum bytes of an encoded id. A longer id becomes a readable prefix and a SHA-256."""

_PREFIX_BYTES = 96
_IS_STORAGE_ID = "is the id under which stores keep it; pass the ConversationScope itself"
_OF_NO_TENANT = re.compile(r":[\w.~%!-]+:[\w.~%!-]+", re.ASCII)
"""Pattern of a storage id without a tenant, such as ``:user:session``.
It also matches a ``StorageId`` that became a plain string, for example in JSON.
"""


class StorageId(str):
    """Encoded id under which stores keep the data of a ``ConversationScope``.

    ``checked_id`` rejects an encoded id that is passed as a user, session or agent id by mistake.
    """

    __slots__ = ()


def checked_id(name: str, value: object) -> str:
    """Check that a value is a valid id of a user, session, agent or tenant, and return the id.

    A valid id is a string of 1 to 1,024 characters, not blank, valid Unicode, and no ``StorageId``.
    ``name`` is the name of the id in the error message.

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
        raise ValueError(
            f"{name} must have at most {MAX_ID_CHARACTERS} characters, got {len(value)}:"
            f" {value[:40]!r}..."
        )
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} must be valid Unicode, got {value!r:.80}") from error
    return value


def checked_session_id(value: object) -> str:
    """Check the id of a session that belongs to no user, and return the id.

    The rules are those of ``checked_id``. Ids of the form ``:user:session`` are rejected, too,
    because they look like the id under which a user's session is stored.

    Raises:
        ValueError: The id is invalid.
    """
    session_id = checked_id("session_id", value)
    if _OF_NO_TENANT.fullmatch(session_id):
        raise ValueError(f"session_id {_IS_STORAGE_ID}, got {session_id!r:.80}")
    return session_id


def encoded_id(value: str) -> str:
    """Return an id in percent-encoding, for keys of stores: only letters, digits and ``_.-~%!``.

    An encoding of more than 200 bytes is shortened to its first 96 bytes, ``!`` and the SHA-256 of
    the id.
    """
    encoded = quote(value, safe="")
    if len(encoded) <= MAX_ENCODED_BYTES:
        return encoded
    return f"{encoded[:_PREFIX_BYTES]}!{hashlib.sha256(value.encode()).hexdigest()}"


def encoded_user(user_id: str, tenant: str | None) -> str:
    """Return the encoded id of a user for keys of stores, such as ``tenant:user`` or ``user``.

    The id is unique for each user and tenant, because encoded ids contain no colon.
    """
    user = encoded_id(user_id)
    return user if tenant is None else f"{encoded_id(tenant)}:{user}"


def tenant_of(key: str) -> str:
    """Return the percent-encoded tenant in a key of a store; an empty text without a tenant.

    Example: ``acme`` for ``acme:u1:s1/...`` (session), ``acme:u1/...`` (memories),
    ``state/acme:u1:s1/...`` (shared state) and ``profile/acme:u1/...`` (cached memories).
    """
    parts = key.split("/")
    ids = parts[1 if len(parts) == 3 and parts[0] in _SHARED else 0].split(":")
    return ids[0] if len(ids) > 1 else ""


_SHARED = ("state", "profile")


@checked
@dataclass(frozen=True)
class ConversationScope:
    """Ids of one user's conversation with one agent.

    Args:
        user_id: Id of the user, unique within the tenant.
        session_id: Id of the session, unique within the user.
        agent_id: Id of the agent, unique within the session. Defaults to Strands' own
            ``"default"``.
        tenant: The tenant. Users without a tenant (None) are separate from the users of every
            tenant.

    Raises:
        ValueError: An id is blank, longer than 1,024 characters, not a string, not valid Unicode,
            or a ``StorageId``.
    """

    user_id: str
    session_id: str
    agent_id: str = "default"
    tenant: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name != "tenant" or value is not None:
                checked_id(name, value)

    @property
    def storage_session_id(self) -> str:
        """Encoded id under which this session is stored, unique for tenant, user and session."""
        tenant = "" if self.tenant is None else encoded_id(self.tenant)
        return StorageId(f"{tenant}:{encoded_id(self.user_id)}:{encoded_id(self.session_id)}")

    @property
    def storage_user_id(self) -> str:
        """Encoded id under which this user's memories are stored, unique for tenant and user."""
        return StorageId(encoded_user(self.user_id, self.tenant))
