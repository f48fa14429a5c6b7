"""Encryption keys of tenants."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from strands_manga_memory.scope import checked_id, encoded_id

KEY_BYTES = 32
"""Bytes of a key for AES-256."""


class DataKey(NamedTuple):
    """Key with its name. ``repr`` does not show the key."""

    id: str
    key: bytes

    def __repr__(self) -> str:
        """Return the name only."""
        return f"DataKey(id={self.id!r})"


class KeyProvider(Protocol):
    """Provider of the tenants' keys; thread-safe. Tenants are encoded as in ``ConversationScope``; ``""`` means no tenant."""

    def current(self, tenant: str) -> DataKey:
        """Return the key for encryption; raise ``KeyError`` if the tenant has none."""
        ...

    def get(self, tenant: str, key_id: str) -> bytes:
        """Return a key by its name; raise ``KeyError`` if it is unknown or destroyed."""
        ...


class TenantKeys:
    """Keys held by the application, for example from a secret store.

    Args:
        keys: Keys of 32 bytes by name, for each tenant (None: data without a tenant); the last key encrypts.

    Raises:
        ValueError: A key has another size, a name is empty or over 255 bytes, or a tenant has no key.
    """

    def __init__(self, keys: Mapping[str | None, Mapping[str, bytes]]) -> None:
        self._lock = threading.Lock()
        self._keys: dict[str, dict[str, bytes]] = {}
        for tenant, named in keys.items():
            if not named:
                raise ValueError(f"keys of the tenant {tenant!r:.80} must be one or more, got none")
            for id_, key in named.items():
                self.rotate(tenant, id_, key)

    def __repr__(self) -> str:
        """Return the number of tenants, without keys."""
        return f"TenantKeys(<{len(self._keys)} tenants>)"

    def rotate(self, tenant: str | None, key_id: str, key: bytes) -> None:
        """Encrypt with this key from now on; values of earlier keys stay readable.

        Raises:
            ValueError: The key does not have 32 bytes, or its name is empty or over 255 bytes.
        """
        if not isinstance(key, bytes) or len(key) != KEY_BYTES:
            raise ValueError(f"key {key_id!r:.80} must be {KEY_BYTES} bytes, got {len(key)} of {type(key).__name__}")
        if not 1 <= len(key_id.encode()) <= 255:
            raise ValueError(f"key_id must have 1 to 255 bytes, got {key_id!r:.80}")
        with self._lock:
            named = self._keys.setdefault(escaped_tenant(tenant), {})
            named.pop(key_id, None)
            named[key_id] = key

    def destroy(self, tenant: str | None) -> None:
        """Delete every key of a tenant. Its stored values become unreadable, and no new ones can be stored."""
        with self._lock:
            self._keys.pop(escaped_tenant(tenant), None)

    def current(self, tenant: str) -> DataKey:
        """See ``KeyProvider.current``."""
        with self._lock:
            return DataKey(*next(reversed(self._keys[tenant].items())))

    def get(self, tenant: str, key_id: str) -> bytes:
        """See ``KeyProvider.get``."""
        with self._lock:
            return self._keys[tenant][key_id]


def escaped_tenant(tenant: str | None) -> str:
    """Return the encoded form of a tenant; raise ``ValueError`` if the id is invalid."""
    return "" if tenant is None else encoded_id(checked_id("tenant", tenant))
