"""AesGcmCipher: what it writes can be read with its key, at its place, and in no other way."""

import pytest

from strands_manga_memory import AesGcmCipher, Codec
from strands_manga_memory.exceptions import CorruptRecordError

OLD, NEW = b"o" * 32, b"n" * 16


def test_values_come_back_and_their_text_is_not_in_the_bytes() -> None:
    codec = Codec(cipher=AesGcmCipher({"k": OLD}, current="k"))
    data = codec.encode({"message": "寄生獣 volume 3", "image": b"\x00\xff"}, "s/A:a#m1")
    assert codec.decode(data, "s/A:a#m1") == {"message": "寄生獣 volume 3", "image": b"\x00\xff"}
    assert "寄生獣".encode() not in data
    assert data != codec.encode({"message": "寄生獣 volume 3", "image": b"\x00\xff"}, "s/A:a#m1")


def test_a_rotated_key_still_reads_and_a_missing_one_says_so() -> None:
    data = Codec(cipher=AesGcmCipher({"old": OLD}, current="old")).encode("x", "p")
    assert (
        Codec(cipher=AesGcmCipher({"old": OLD, "new": NEW}, current="new")).decode(data, "p") == "x"
    )
    with pytest.raises(CorruptRecordError, match="its key 'old' is missing in keys; add it"):
        Codec(cipher=AesGcmCipher({"new": NEW}, current="new")).decode(data, "p")
    with pytest.raises(CorruptRecordError, match="encrypted and no cipher was given"):
        Codec().decode(data, "p")


def test_a_value_moved_to_another_place_or_read_with_another_key_is_refused() -> None:
    cipher = AesGcmCipher({"k": OLD}, current="k")
    sealed = cipher.encrypt(b"secret", "a")
    assert cipher.decrypt(sealed, "a") == b"secret"
    for other, place in ((cipher, "b"), (AesGcmCipher({"k": b"p" * 32}, current="k"), "a")):
        with pytest.raises(ValueError, match="changed, encrypted with another key, or copied"):
            other.decrypt(sealed, place)
