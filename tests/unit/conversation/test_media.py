"""The size of images, read from their headers."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from strands_manga_memory.conversation.token_counter import IMAGE_TOKENS, image_size, image_tokens

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">II", 640, 480)
GIF = b"GIF89a" + struct.pack("<HH", 320, 200)
JPEG = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xff\xc2\x00\x0b\x08" + struct.pack(">HH", 768, 1024) + b"\x03\x01\x11\x00"


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (PNG, (640, 480)),
        (GIF, (320, 200)),
        (JPEG, (1024, 768)),
        (b"", None),
        (b"something else entirely", None),
        (b"\xff\xd8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", None),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", None),
    ],
)
def test_the_header_tells_the_size(data: bytes, size: tuple[int, int] | None) -> None:
    assert image_size(data) == size


@pytest.mark.parametrize("data", [PNG, GIF, JPEG])
def test_a_header_that_is_cut_off_is_no_error(data: bytes) -> None:
    for length in range(len(data)):
        image_size(data[:length])


@pytest.mark.parametrize(
    ("source", "tokens"),
    [
        ({"bytes": PNG}, 410),
        ({"bytes": PNG[:16] + struct.pack(">II", 10_000, 10_000)}, IMAGE_TOKENS),
        ({"bytes": b"?"}, IMAGE_TOKENS),
        ({"location": {"type": "s3", "uri": "s3://bucket/key"}}, IMAGE_TOKENS),
    ],
)
def test_an_image_costs_by_its_area_up_to_a_cap(source: Any, tokens: int) -> None:
    assert image_tokens({"format": "png", "source": source}) == tokens
