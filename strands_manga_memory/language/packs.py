"""Language packs: patterns, words and examples of one language, read from ``packs/<code>.toml``.

The modules of this folder hold the logic, the packs hold the language. ``README.md`` explains the format.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

_PART = re.compile(r"\{\{([a-z_]+)\.([a-z_]+)\}\}")
TABLES = ("acts", "set_phrases", "personal_facts", "wishes", "personal_data")
"""Tables of rules in a pack, each a list of entries of one form."""

_FLAGS = {"a": re.ASCII, "s": re.DOTALL, "m": re.MULTILINE}


@dataclass(frozen=True)
class Rule:
    """One entry of a table of a pack, such as ``acts`` or ``wishes``.

    Attributes:
        key: Meaning of the pattern: value of a ``DialogueAct``, or slot of a preference.
        pattern: Compiled alternatives; those of acts are searched in the text in lower case.
        role: ``"user"`` or ``"assistant"``: only messages of this role are searched. Empty: messages of both.
        cues: The pattern is searched only in a text with at least one of them: a word in English, any part of a Japanese text.
        also: If given, an English text must have one of these words too; ``0`` matches any digit.
        revokes_instruction: Whether the text ends a standing instruction.
        check: Name of the function that validates a match; empty: every match is valid.
        unless: Name of the pattern ``around.<name>``; a match with such text around it is something else.
    """

    key: str
    pattern: re.Pattern[str]
    role: str = ""
    cues: frozenset[str] = frozenset()
    also: frozenset[str] = frozenset()
    revokes_instruction: bool = False
    check: str = ""
    unless: str = ""


if TYPE_CHECKING:

    class _Section:
        def __getattr__(self, name: str) -> re.Pattern[str]: ...


class LanguagePack:
    """Patterns and words of one language, compiled. ``pack.replies.declines`` is the pattern ``replies.declines``.

    Args:
        data: The parsed file.

    Raises:
        KeyError: A pattern refers to a part that the pack does not define.
    """

    def __init__(self, data: dict[str, Any]) -> None:
        self.code: str = data["code"]
        self.counterexamples: dict[str, list[str]] = data.get("counterexamples", {})
        self._data = data
        self._rules = {table: tuple(map(self._rule, data.get(table, ()))) for table in TABLES}
        self.patterns = {
            f"{section}.{name}": self.compile(entry)
            for section, entries in data.get("patterns", {}).items()
            for name, entry in entries.items()
        }
        for section, entries in data.get("patterns", {}).items():
            setattr(self, section, SimpleNamespace(**{name: self.patterns[f"{section}.{name}"] for name in entries}))

    if TYPE_CHECKING:

        def __getattr__(self, section: str) -> _Section: ...

    def words(self, name: str) -> frozenset[str]:
        """Return the word list ``section.name``.

        Raises:
            KeyError: The pack has no such list.
        """
        section, _, list_name = name.partition(".")
        return frozenset(self._data["words"][section][list_name].split())

    def groups(self, name: str) -> tuple[tuple[str, ...], ...]:
        """Return the groups ``section.name`` of words that mean the same, such as all words for "manga".

        Raises:
            KeyError: The pack has no such groups.
        """
        section, _, list_name = name.partition(".")
        return tuple(tuple(line.split()) for line in self._data["groups"][section][list_name])

    def rules(self, table: str) -> tuple[Rule, ...]:
        """Return the rules of a table, in their order; empty if the pack has no such table.

        Raises:
            KeyError: No pack has such tables.
        """
        return self._rules[table]

    def compile(self, entry: dict[str, Any]) -> re.Pattern[str]:
        """Return the regular expression of an entry: its alternatives with all parts filled in."""
        flags = re.IGNORECASE if entry.get("ignore_case") else re.NOFLAG
        for letter in entry.get("flags", ""):
            flags |= _FLAGS[letter]
        return re.compile("|".join(map(self._expand, entry["any"])), flags)

    def entries(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield every entry that has patterns, with a name for error messages."""
        for table in TABLES:
            for number, entry in enumerate(self._data.get(table, ())):
                yield f"{self.code}.{table}[{number}]", entry
        for section, entries in self._data.get("patterns", {}).items():
            for name, entry in entries.items():
                yield f"{self.code}.{section}.{name}", entry

    def _expand(self, template: str) -> str:
        return _PART.sub(lambda match: self._part(match[1], match[2]), template)

    def _part(self, section: str, name: str) -> str:
        part = self._data["fragments"][section][name]
        return self._expand(part) if isinstance(part, str) else f"(?:{'|'.join(map(self._expand, part))})"

    def _rule(self, entry: dict[str, Any]) -> Rule:
        return Rule(
            key=entry.get("key") or entry["act"],
            pattern=self.compile(entry),
            role=entry.get("role", ""),
            cues=frozenset(entry.get("cues", ())),
            also=frozenset(entry.get("also", ())),
            revokes_instruction=entry.get("revokes_instruction", False),
            check=entry.get("check", ""),
            unless=entry.get("unless", ""),
        )


def load_pack(code: str) -> LanguagePack:
    """Read the pack of a language, such as ``"en"``."""
    text = resources.files("strands_manga_memory.language").joinpath("packs", f"{code}.toml").read_text(encoding="utf-8")
    return LanguagePack(tomllib.loads(text))


# --- All languages ------------------------------------------------------------------------------------------------------------

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
