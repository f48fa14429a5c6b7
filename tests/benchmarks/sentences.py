"""Sentences without meaning, the same on every machine.

They compress like English (zlib leaves 40 % of 10 KB, 37 % of the Python manual), have as many
tokens, and contain as much to remember as messages of users and assistants. Random letters do not.
"""

import random
from collections.abc import Iterator
from functools import cache

_LENGTH = 450_000

_WORDS = {
    "noun": (
        "volume series story artist cover page chapter edition box shelf delivery parcel shop order"
        " price colour paper translation ending character hero battle school island river friend"
        " teacher brother detective robot garden kitchen winter letter question answer train"
        " festival temple mountain village ghost guitar match team captain dream secret promise"
        " journey city window drawing panel pencil museum library reader collection wrapper"
        " discount invoice account password address weekend birthday present corner coffee street"
        " station language accent history science engine"
    ),
    "adjective": (
        "new old quiet strange famous cheap expensive heavy small bright dark gentle funny sad"
        " early late complete missing damaged beautiful simple clever brave lonely curious ordinary"
        " special second third final rare popular recent careful slow sudden honest serious sweet"
        " bitter yellow green hidden narrow foreign modern classic"
    ),
    "verb": (
        "read find send order return exchange compare recommend remember forget finish begin keep"
        " open close carry draw write sell lend borrow choose reserve track cancel describe explain"
        " translate collect wrap repair expect follow change move miss show tell understand notice"
        " avoid enjoy discover replace check count"
    ),
    "adverb": (
        "often never usually slowly suddenly perhaps already still almost again together carefully"
        " really soon later today tomorrow yesterday twice somewhere outside nearly quietly"
        " certainly"
    ),
    "may": "don't can't won't didn't isn't to is has was did can will may",
    "it": "it, one, 2 them, us, up, on, off, by, so, no, ok, yes, me, 7",
    "link": "because although while when after before until unless since so but and which where",
    "who": "I you we they she he someone everybody nobody",
    "near": (
        "in at behind near under beside inside around without with for from about through between"
        " during"
    ),
    "the": "the a this that every another some any his her their our my your",
    "name": (
        "Akira Haruka Kenji Yumi Sora Hiro Naoko Takeshi Mika Ryo Emi Daichi Kyoto Osaka Nara Tokyo"
        " Nagoya Sapporo"
    ),
    "number": "two 3 four 7 9 12 15 18 24 31 42 60 98 120 1,500 2,400 1998 2024",
}

_SENTENCES = (
    "who may adverb verb it the adjective noun near the noun",
    "the noun near name may verb number noun link who verb it it",
    "who may verb it the noun adverb",
    "name may verb it the noun link the noun adverb may verb it near the adjective noun",
    "who may verb it near noun number link name may verb it the noun",
    "it the adjective noun may verb the noun near the noun link who verb it it",
)


def _sentences() -> Iterator[str]:
    chosen = random.Random(1)
    words = {kind: known.split() for kind, known in _WORDS.items()}
    while True:
        kinds = chosen.choice(_SENTENCES).split()
        sentence = " ".join(chosen.choice(words[kind]) for kind in kinds)
        yield sentence[0].upper() + sentence[1:] + chosen.choice("...?!")


@cache
def prose() -> str:
    """Return 450 KB of ASCII."""
    found, length = [], 0
    for sentence in _sentences():
        found.append(sentence)
        length += len(sentence) + 1
        if length > _LENGTH:
            return " ".join(found)
    raise AssertionError("there is always another sentence")
