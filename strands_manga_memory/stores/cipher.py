"""AesGcmCipher: encrypts stored values on the client. Needs the ``encryption`` extra."""

from __future__ import annotations

import os
from collections.abc import Mapping

_NONCE_BYTES = 12
_KEY_BYTES = (16, 24, 32)


class AesGcmCipher:
    """AES-GCM with a fresh nonce for every value and the value's place as associated data.

    Values name their key, so keys can be rotated: new values use ``current``, old ones are read as long as their key is given.

    Args:
        keys: Keys of 16, 24 or 32 bytes by name (1 to 255 bytes of UTF-8).
        current: The name of the key that encrypts.

    Raises:
        ValueError: A key has another size, or there is none named ``current``.
        ImportError: ``cryptography`` is not installed.
    """

    def __init__(self, keys: Mapping[str, bytes], *, current: str) -> None:
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError as error:
            raise ImportError("AesGcmCipher needs cryptography: pip install 'strands-manga-memory[encryption]'") from error
        for name, key in keys.items():
            if len(key) not in _KEY_BYTES:
                raise ValueError(f"key {name!r} must have 16, 24 or 32 bytes, got {len(key)}")
            if not 1 <= len(name.encode()) <= 255:
                raise ValueError(f"key name {name!r} must have 1 to 255 bytes")
        if current not in keys:
            raise ValueError(f"current must name one of the keys {sorted(keys)}, got {current!r}")
        self._refused = InvalidTag
        self._keys = {name.encode(): AESGCM(key) for name, key in keys.items()}
        self._current = current.encode()

    def encrypt(self, data: bytes, place: str) -> bytes:
        """Return ``data`` encrypted for ``place``."""
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._keys[self._current].encrypt(nonce, data, place.encode())
        return bytes([len(self._current)]) + self._current + nonce + sealed

    def decrypt(self, data: bytes, place: str) -> bytes:
        """Return what ``encrypt`` was given.

        Raises:
            ValueError: The value is damaged, comes from another place, or its key was not given.
        """
        length = data[0] if data else 0
        name, rest = data[1 : 1 + length], data[1 + length :]
        if name not in self._keys:
            raise ValueError(f"its key {name.decode(errors='replace')!r} was not given")
        try:
            return self._keys[name].decrypt(rest[:_NONCE_BYTES], rest[_NONCE_BYTES:], place.encode())
        except self._refused as error:
            raise ValueError("it was encrypted with another key or for another place") from error
