"""Packing: values made smaller, with a dictionary of what most of them say. Pure."""

from __future__ import annotations

import zlib

MOST_UNPACKED = 64 * 1024 * 1024
"""Bytes up to which a value is packed. What unpacks to more was made to fill the memory of whoever reads it."""

_SMALL = 4096
"""Bytes up to which a value gets a small window: to make a large one ready takes 15 times as long as to fill a small one."""

_LEVEL = 3

_DICTIONARY = (
    "ありがとうございます。お願いします。ください。でしょうか。ですか？ました。ません。します。から、ので、です。ます。"
    " could would because please thanks about which there their have been want need like what when where your they this that"
    ' with from will just not are was for you the and of to in is it {"cachePoint":{"type":"default"}}"image":{"format":"png",'
    '"source":{"bytes":"document":{"name":"reasoningContent":{"reasoningText":{"text":"","signature":""guardContent":{"text":'
    '{"citationsContent":{"citations":["json":{"title":"","status":"error","content":[{"text":""}}]}{"toolResult":{"toolUseId":'
    '"tooluse_","status":"success","content":[{"json":{"text":"{"toolUse":{"toolUseId":"tooluse_","name":"","input":{"query":"'
    '[2,[],["s","state","#window","state.manager",["s","#facts",["b",["r",["w",["v",},"custom":{"pinned":true}}'
    '"cacheReadInputTokens":0,"cacheWriteInputTokens":0,"latencyMs":"timeToFirstByteMs":"}],"metadata":{"usage":{"inputTokens":'
    ',"outputTokens":,"totalTokens":},"metrics":{"latencyMs":}},"tracking_id":"[2,[],["m","'
    '{"role":"assistant","content":[{"text":"{"role":"user","content":[{"text":"'
).encode()
"""What is likely to be in a value, the likeliest last. Stored values are read with it: another one would need another flag."""


def packed(payload: bytes) -> bytes | None:
    """Return a value packed; None if that does not make it smaller, or it is too large to be unpacked again."""
    if len(payload) > MOST_UNPACKED:
        return None
    window, memory = (13, 6) if len(payload) <= _SMALL else (15, 8)
    packing = zlib.compressobj(_LEVEL, zlib.DEFLATED, window, memory, zdict=_DICTIONARY)
    data = packing.compress(payload) + packing.flush()
    return data if len(data) < len(payload) else None


def unpacked(payload: bytes) -> bytes:
    """Return what was packed.

    Raises:
        ValueError: It is cut, or unpacks to over 64 MiB.
        zlib.error: It is damaged, or was packed with another dictionary.
    """
    unpacking = zlib.decompressobj(zdict=_DICTIONARY)
    data = unpacking.decompress(payload, MOST_UNPACKED + 1)
    if not unpacking.eof or unpacking.unused_data or len(data) > MOST_UNPACKED:
        raise ValueError(f"it is cut, or unpacks to over {MOST_UNPACKED:,} bytes")
    return data
