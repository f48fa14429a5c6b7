"""Hostile records, as written by somebody with access to a store."""

import copy
import json
import os
import random
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from strands_manga_memory import Codec
from strands_manga_memory.stores.codec import dump, load

NUMBERS = [
    b"", b"x", b"-1", b"9" * 400, b"1e400", b"nan", b"\xff", b"1-999999999999", b"1", b" " * 1000,
]  # fmt: skip
"""What may stand where a number or a name is expected that is kept in the clear."""

DEEP = b"[" * 100_000
BOMB = 512 * 1024 * 1024
"""Bytes that a bomb unpacks to."""

LEAVES: list[Callable[[], Any]] = [
    lambda: None,
    lambda: True,
    lambda: -1,
    lambda: 0,
    lambda: 10**12,
    lambda: 10**30,
    lambda: 1e308,
    lambda: float("nan"),
    lambda: float("inf"),
    lambda: "",
    lambda: "x" * 200,
    lambda: "\ud800",
    lambda: "1-999999999999",
    lambda: "x5,1-3",
    lambda: "9" * 5000,
    lambda: "a=1 b=x",
    list,
    dict,
    lambda: [[]],
    lambda: {"a": {"b": [1, "2"]}},
    lambda: b"\x00\xff",
    lambda: nested(300),
    lambda: nested(900),
]


def nested(levels: int) -> Any:
    """Return a list in a list in a list ..."""
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


def payloads(rng: random.Random) -> Iterator[bytes]:
    """Yield what may stand where a dumped value is expected."""
    yield from (
        b"", b"{}", b"[]", b"null", b"5", b'"x"', b"NaN", b"1e999", b"9" * 100_000, b"\xff\xfe",
        b"B", b'B{"\\u0000bytes":5}',
    )  # fmt: skip
    yield from (
        DEEP,
        b'{"a":' * 50_000,
        b"[" * 200_000 + b"]" * 200_000,
        b'[["x",-5]]\n',
        b'[["head",99999999999]]\nabc',
    )
    yield from (rng.randbytes(rng.randrange(1, 300)) for _ in range(5))


def deflated(chunk: bytes, size: int) -> bytes:
    """Return compressed data of repeated chunks.

    A full flush ends each chunk, so that one is compressed for all.
    """
    packer = zlib.compressobj(9, wbits=-15)
    packed = packer.compress(chunk) + packer.flush(zlib.Z_FULL_FLUSH)
    return packed * (size // len(chunk)) + packer.flush()


def bomb(place: str, size: int = BOMB) -> bytes:
    """Return a sealed value that unpacks to ``size`` bytes of spaces from a thousandth of that."""
    return forged(deflated(b" " * 1024 * 1024, size), place, flags=1)


def forged(payload: bytes, place: str, *, flags: int = 0) -> bytes:
    """Return a value with a valid header and checksum around any payload: neither is a secret."""
    sealed = Codec(compress_from=1 << 60).seal(payload, place)
    if not flags:
        return sealed
    head = bytes((sealed[0], sealed[1], flags))
    seed = zlib.crc32(place.encode(), zlib.crc32(head[1:]))
    return head + zlib.crc32(payload, seed).to_bytes(4, "big") + payload


def raw(rng: random.Random) -> Iterator[Any]:
    """Yield what may stand where a sealed value is expected."""
    yield from (
        b"",
        b"\xb7",
        b"\xb7\x01",
        "text",
        b"\xb7\x01\x00\x00\x00\x00\x00",
        os.urandom(7),
        b"{}",
    )
    yield from (rng.randbytes(rng.randrange(1, 200)) for _ in range(3))


def mutated(value: Any, rng: random.Random) -> Any:
    """Return a copy of a JSON value with something in it replaced, removed, added or doubled."""
    value = copy.deepcopy(value)
    found = list(places(value))
    if not found:
        return rng.choice(LEAVES)()
    holder, key = rng.choice(found)
    action = rng.randrange(5)
    if action == 0:
        del holder[key]
    elif action == 1 and isinstance(holder, dict):
        holder[rng.choice(["", "x" * 50, "\0bytes", "schema", "v", "message"])] = rng.choice(
            LEAVES
        )()
    elif action == 1:
        holder.insert(key, copy.deepcopy(holder[key]))
    else:
        holder[key] = rng.choice(LEAVES)()
    return value


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place of a JSON value, as what holds it and where: a key or an index."""
    if isinstance(value, dict | list):
        for key, item in list(value.items() if isinstance(value, dict) else enumerate(value)):
            yield value, key
            yield from places(item)


def mutated_dump(data: bytes, rng: random.Random) -> bytes:
    """Return a changed output of ``dump``, or now and then something else."""
    if rng.random() < 0.15:
        return rng.choice(list(payloads(rng)))
    try:
        return dump(mutated(load(data), rng))
    except (ValueError, RecursionError):
        return json.dumps(str(data[:20])).encode()
