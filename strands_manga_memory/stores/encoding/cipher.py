"""Client-side encryption of stored values. Needs the ``encryption`` extra."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from strands_manga_memory.exceptions import KeyMissingError
from strands_manga_memory.scope import tenant_of
from strands_manga_memory.stores.encoding.keys import KeyProvider

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE_BYTES = 12
_KEY_BYTES = (16, 24, 32)


class AesGcmCipher:
    """AES-GCM with a random nonce per value and the value's place as associated data.

    One set of keys for all tenants; ``TenantCipher`` has keys per tenant. Values contain the name of their key, so keys
    can be rotated: new values use ``current``, old ones are readable as long as their key is given.

    Args:
        keys: Keys of 16, 24 or 32 bytes by name (1 to 255 bytes of UTF-8).
        current: Name of the key that encrypts.

    Raises:
        ValueError: A key has another size, or there is none named ``current``.
        ImportError: ``cryptography`` is not installed.
    """

    def __init__(self, keys: Mapping[str, bytes], *, current: str) -> None:
        for name, key in keys.items():
            if len(key) not in _KEY_BYTES:
                raise ValueError(f"key {name!r:.80} must have 16, 24 or 32 bytes, got {len(key)}")
            if not 1 <= len(name.encode()) <= 255:
                raise ValueError(f"key name {name!r:.80} must have 1 to 255 bytes")
        if current not in keys:
            raise ValueError(f"current must name one of the keys {sorted(keys)}, got {current!r:.80}")
        self._keys = {name: _aead(key) for name, key in keys.items()}
        self._current = current

    def __repr__(self) -> str:
        """Return the names of the keys, without the keys."""
        return f"AesGcmCipher({sorted(self._keys)}, current={self._current!r})"

    def encrypt(self, data: bytes, place: str) -> bytes:
        """Return ``data`` encrypted for ``place``."""
        return _sealed(self._current, self._keys[self._current], data, place.encode())

    def decrypt(self, data: bytes, place: str) -> bytes:
        """Return the plain text of an encrypted value.

        Raises:
            ValueError: The value is damaged, or belongs to another place.
            KeyMissingError: Its key was not given.
        """
        name, rest = _named(data)
        if name not in self._keys:
            raise KeyMissingError(f"record={place!r} cannot be read: its key {name!r} was not given", record=place)
        return _opened(self._keys[name], rest, place.encode())


class TenantCipher:
    """AES-256-GCM with keys of the tenant whose data is at the value's place.

    ``context``, the name of the key and the place are authenticated with a value: table, record key, tenant, user,
    session and agent. A value that was copied elsewhere is rejected.

    Args:
        keys: Provider of the keys: ``TenantKeys``, or your own.
        context: Name of the deployment, such as ``"prod"``. Values of another deployment are rejected even with the
            same keys. Default: none, so that a table can be restored under another name.

    Raises:
        ImportError: ``cryptography`` is not installed.
    """

    def __init__(self, keys: KeyProvider, *, context: str = "") -> None:
        _aead(bytes(32))
        self._keys = keys
        self._context = context

    def __repr__(self) -> str:
        """Return the provider's representation, without keys."""
        return f"TenantCipher({self._keys!r}, context={self._context!r})"

    def encrypt(self, data: bytes, place: str) -> bytes:
        """Return ``data`` encrypted for ``place``.

        Raises:
            KeyMissingError: The tenant has no key.
        """
        tenant = tenant_of(place)
        try:
            id_, key = self._keys.current(tenant)
        except KeyError as error:
            raise KeyMissingError(
                f"record={place!r} cannot be stored: the tenant {tenant!r} has no key, or it is destroyed", record=place
            ) from error
        return _sealed(id_, _aead(key), data, self._bound(id_, place))

    def decrypt(self, data: bytes, place: str) -> bytes:
        """Return the plain text of an encrypted value.

        Raises:
            ValueError: The value is damaged, or belongs to another place.
            KeyMissingError: Its key was not given, or is destroyed.
        """
        tenant, (id_, rest) = tenant_of(place), _named(data)
        try:
            key = self._keys.get(tenant, id_)
        except KeyError as error:
            raise KeyMissingError(
                f"record={place!r} cannot be read: the key {id_!r} of the tenant {tenant!r} was not given, or is destroyed",
                record=place,
            ) from error
        return _opened(_aead(key), rest, self._bound(id_, place))

    def _bound(self, key_id: str, place: str) -> bytes:
        return "\0".join((self._context, key_id, place)).encode()


def _aead(key: bytes) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise ImportError("encryption needs cryptography: pip install 'strands-manga-memory[encryption]'") from error
    return AESGCM(key)


def _sealed(name: str, aead: AESGCM, data: bytes, bound: bytes) -> bytes:
    nonce, named = os.urandom(_NONCE_BYTES), name.encode()
    return bytes([len(named)]) + named + nonce + aead.encrypt(nonce, data, bound)


def _named(data: bytes) -> tuple[str, bytes]:
    """Return the name of a value's key, and the rest of the value."""
    length = data[0] if data else 0
    return data[1 : 1 + length].decode("utf-8", "replace"), data[1 + length :]


def _opened(aead: AESGCM, data: bytes, bound: bytes) -> bytes:
    from cryptography.exceptions import InvalidTag

    try:
        return aead.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], bound)
    except InvalidTag as error:
        raise ValueError("it was encrypted with another key or for another place") from error
