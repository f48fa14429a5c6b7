"""Encryption of values before they are stored, with one set of keys or a set for each tenant.

The ciphers need the ``encryption`` extra.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from strands_manga_memory.arguments import checked, with_repr
from strands_manga_memory.exceptions import KeyMissingError
from strands_manga_memory.scope import checked_id, encoded_id, tenant_of

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE_BYTES = 12


@with_repr("id")
class DataKey(NamedTuple):
    """Encryption key with a name. ``repr`` shows only the name."""

    id: str
    key: bytes


class KeyProvider(Protocol):
    """Source of the encryption keys of each tenant, for ``TenantCipher``.

    ``TenantKeys`` keeps the keys in memory. For keys in a key management service, write your own
    class with these methods. The methods are called from several threads. Their argument ``tenant``
    is the tenant's id in percent-encoding, or an empty string for data without a tenant.
    """

    def current(self, tenant: str) -> DataKey:
        """Return the key that encrypts new values of a tenant, together with the key's name.

        Raises:
            KeyError: The tenant has no key.
        """
        ...

    def get(self, tenant: str, key_id: str) -> bytes:
        """Return the key with the name ``key_id`` from a tenant's encryption keys.

        Raises:
            KeyError: The tenant has no such key.
        """
        ...


class TenantKeys:
    """Encryption keys of tenants, which the application has loaded into memory.

    Args:
        keys: For each tenant, a mapping from key names to keys of 32 bytes. The last key of a
            tenant encrypts new values. Earlier keys only decrypt old values. The tenant None is for
            data without a tenant.

    Raises:
        ValueError: A key does not have 32 bytes, a name is empty or over 255 bytes, or a tenant has
            no key or an invalid id.
    """

    def __init__(self, keys: Mapping[str | None, Mapping[str, bytes]]) -> None:
        for tenant, named in keys.items():
            if not named:
                raise ValueError(f"keys of the tenant {tenant!r:.80} must be one or more, got none")
            for name, key in named.items():
                _check_key(name, key)
        self._keys = {
            "" if tenant is None else encoded_id(checked_id("tenant", tenant)): dict(named)
            for tenant, named in keys.items()
        }

    def __repr__(self) -> str:
        return f"TenantKeys(<{len(self._keys)} tenants>)"

    def current(self, tenant: str) -> DataKey:
        """Return the key that encrypts new values of a tenant, together with the key's name."""
        return DataKey(*next(reversed(self._keys[tenant].items())))

    def get(self, tenant: str, key_id: str) -> bytes:
        """Return the key with the name ``key_id`` from a tenant's encryption keys."""
        return self._keys[tenant][key_id]


class AesGcmCipher:
    """Cipher that encrypts all stored values with AES-256-GCM and one set of keys.

    The cipher binds each value to its storage key, the key under which the store keeps the value. A
    value that is copied to another storage key cannot be decrypted. To change the encryption key,
    add a key to ``keys`` and set ``current`` to its name. Old values stay readable while ``keys``
    contains their encryption key. For separate keys of each tenant, use ``TenantCipher``.

    Args:
        keys: Encryption keys of 32 bytes, keyed by name. A name has 1 to 255 bytes of UTF-8.
        current: Name of the key that encrypts new values.

    Raises:
        ValueError: A key does not have 32 bytes, a name is empty or too long, or ``keys`` lacks the
            name ``current``.
        ImportError: The package ``cryptography`` is not installed.
    """

    @checked
    def __init__(self, keys: Mapping[str, bytes], *, current: str) -> None:
        for name, key in keys.items():
            _check_key(name, key)
        if current not in keys:
            raise ValueError(
                f"current must name one of the keys {sorted(keys)}, got {current!r:.80}"
            )
        self._keys = {name: _aead(key) for name, key in keys.items()}
        self._current = current

    def __repr__(self) -> str:
        return f"AesGcmCipher({sorted(self._keys)}, current={self._current!r})"

    def encrypt(self, data: bytes, storage_key: str) -> bytes:
        """Encrypt a value, and bind it to ``storage_key``, the key under which it is stored.

        Only ``decrypt`` with the same ``storage_key`` can read the result.
        """
        return _sealed(self._current, self._keys[self._current], data, storage_key.encode())

    def decrypt(self, data: bytes, storage_key: str) -> bytes:
        """Decrypt a value that ``encrypt`` returned for the same ``storage_key``.

        Raises:
            ValueError: The value is damaged, or was encrypted for another ``storage_key``.
            KeyMissingError: The cipher does not have the encryption key of the value.
        """
        name, rest = _named(data)
        if name not in self._keys:
            raise KeyMissingError(
                f"record={storage_key!r} cannot be read: its key {name!r} is missing in keys; add"
                " it",
                record=storage_key,
            )
        return _opened(self._keys[name], rest, storage_key.encode())


class TenantCipher:
    """Cipher that encrypts stored values with AES-256-GCM and separate keys of each tenant.

    The tenant is read from the value's storage key, the key under which the store keeps the value.
    The cipher binds each value to its storage key. A value that is copied to another storage key
    cannot be decrypted.

    Args:
        keys: Provider of the encryption keys: ``TenantKeys``, or your own.

    Raises:
        ImportError: The package ``cryptography`` is not installed.
    """

    def __init__(self, keys: KeyProvider) -> None:
        _aead(bytes(32))
        self._keys = keys

    def __repr__(self) -> str:
        return f"TenantCipher({self._keys!r})"

    def encrypt(self, data: bytes, storage_key: str) -> bytes:
        """Encrypt a value, and bind it to ``storage_key``, the key under which it is stored.

        Only ``decrypt`` with the same ``storage_key`` can read the result.

        Raises:
            KeyMissingError: The tenant has no encryption key.
        """
        tenant = tenant_of(storage_key)
        try:
            id_, key = self._keys.current(tenant)
        except KeyError as error:
            raise KeyMissingError(
                f"record={storage_key!r} cannot be stored: the tenant {tenant!r} has no key, or it"
                " is destroyed; to store data again, add a key to the key provider",
                record=storage_key,
            ) from error
        return _sealed(id_, _aead(key), data, _bound(id_, storage_key))

    def decrypt(self, data: bytes, storage_key: str) -> bytes:
        """Decrypt a value that ``encrypt`` returned for the same ``storage_key``.

        Raises:
            ValueError: The value is damaged, or was encrypted for another ``storage_key``.
            KeyMissingError: The provider ``keys`` does not have the encryption key, for example
                because the key was destroyed.
        """
        tenant, (id_, rest) = tenant_of(storage_key), _named(data)
        try:
            key = self._keys.get(tenant, id_)
        except KeyError as error:
            raise KeyMissingError(
                f"record={storage_key!r} cannot be read: the key {id_!r} of the tenant {tenant!r}"
                " was not given, or is destroyed; if it exists, add it to the key provider",
                record=storage_key,
            ) from error
        return _opened(_aead(key), rest, _bound(id_, storage_key))


def _bound(key_id: str, storage_key: str) -> bytes:
    return f"{key_id}\0{storage_key}".encode()


def _check_key(name: str, key: object) -> None:
    if not isinstance(key, bytes) or len(key) != 32:
        got = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
        raise ValueError(f"key {name!r:.80} must have 32 bytes, got {got}")
    if not 1 <= len(name.encode()) <= 255:
        raise ValueError(
            f"key name {name!r:.80} must have 1 to 255 bytes, got {len(name.encode())}"
        )


def _aead(key: bytes) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise ImportError(
            "encryption needs cryptography: pip install 'strands-manga-memory[encryption]'"
        ) from error
    return AESGCM(key)


def _sealed(name: str, aead: AESGCM, data: bytes, bound: bytes) -> bytes:
    nonce, named = os.urandom(_NONCE_BYTES), name.encode()
    return bytes([len(named)]) + named + nonce + aead.encrypt(nonce, data, bound)


def _named(data: bytes) -> tuple[str, bytes]:
    length = data[0] if data else 0
    return data[1 : 1 + length].decode("utf-8", "replace"), data[1 + length :]


def _opened(aead: AESGCM, data: bytes, bound: bytes) -> bytes:
    from cryptography.exceptions import InvalidTag

    try:
        return aead.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], bound)
    except InvalidTag as error:
        raise ValueError(
            "it was changed, encrypted with another key, or copied from another storage key"
        ) from error
