"""Packs of the languages that are understood, and patterns of all of them together."""

from __future__ import annotations

import re

from strands_manga_memory.language.pack_format import load_pack

EN, JA = PACKS = load_pack("en"), load_pack("ja")


def any_language(name: str) -> re.Pattern[str]:
    """Return one pattern of the alternatives that all packs have under ``section.name``.

    Raises:
        ValueError: No pack has it, or the packs' flags differ.
    """
    found = [pack.patterns[name] for pack in PACKS if name in pack.patterns]
    if len({pattern.flags for pattern in found}) != 1:
        raise ValueError(f"packs must have {name} with the same flags, got {len(found)} patterns")
    return re.compile("|".join(pattern.pattern for pattern in found), found[0].flags)


def canonical_words(name: str) -> dict[str, str]:
    """Return for each word in the groups ``section.name`` of all packs its canonical word, the first of its group."""
    groups = (group for pack in PACKS for group in pack.groups(name))
    return {word.lower(): group[0] for group in groups for word in group}
