"""Language packs: files with the patterns and word lists of a language.

The pack of a language is the file ``packs/<code>.toml``. The packs ``entities`` and
``personal_data`` are for English and Japanese. ``README.md`` explains the format.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any, TypeVar

_PART = re.compile(r"\{\{([a-z_]+)\.([a-z_]+)\}\}")
TABLES = ("acts", "set_phrases", "personal_facts", "answers", "personal_data", "entities")
"""Names of the tables of a pack that contain rules."""

_FLAGS = {"a": re.ASCII, "s": re.DOTALL, "m": re.MULTILINE}


@dataclass(frozen=True)
class Rule:
    """One rule of a language pack (file with patterns of a language), with the pattern to match.

    Attributes:
        key: Meaning of the pattern, such as a ``DialogueAct`` or the key of a preference.
        pattern: Regular expression. Patterns of dialogue acts are searched in lower-case text.
        role: Role of the authors whose messages are searched. Empty for both roles.
        cues: Words of which the message must contain at least one. An English word must occur as a
            whole word.
        revokes_instruction: Whether a matching message ends a standing instruction.
        check: Name of the function that validates a match; empty if every match is valid. In the
            table ``answers``, whose patterns match questions: name of a pattern in the section
            ``answered`` that the answer to the question must match.
        unless: Name of a pattern in the section ``around``. If it matches the text around a match,
            the match is invalid. In the table ``answers``: name of a pattern in the section
            ``asked_about``. If it matches the question, the rule is not applied.
    """

    key: str
    pattern: re.Pattern[str]
    role: str = ""
    cues: frozenset[str] = frozenset()
    revokes_instruction: bool = False
    check: str = ""
    unless: str = ""


_OPTIONS = ("role", "revokes_instruction", "check", "unless")


class Section:
    """Object that has the regular expressions of one section of language packs as attributes.

    A language pack is a file with patterns of a language. Each expression is compiled when it is
    first read. If several packs have an expression of the same name, the attribute is a regular
    expression that matches any of them.
    """

    def __init__(self, *packs: tuple[LanguagePack, dict[str, dict[str, Any]]]) -> None:
        self._packs = packs

    def __getattr__(self, name: str) -> re.Pattern[str]:
        if name.startswith("_"):
            raise AttributeError(name)
        found = [(pack, entries[name]) for pack, entries in self._packs if name in entries]
        flags = {_flags(entry) for _, entry in found}
        if not found:
            raise AttributeError(name)
        if len(flags) > 1:
            raise ValueError(f"packs must have {name} with the same flags, got {flags}")
        source = "|".join(pack.source(entry) for pack, entry in found)
        pattern = re.compile(source, flags.pop())
        setattr(self, name, pattern)  # __getattr__ is called only for missing attributes
        return pattern


class PatternSections:
    """Regular expressions of language packs (files with patterns of a language), as attributes.

    For example, ``replies.declines`` is the pattern ``declines`` of the section ``replies``.
    """

    def __init__(self, *packs: LanguagePack) -> None:
        sections: dict[str, list[tuple[LanguagePack, dict[str, Any]]]] = {}
        for pack in packs:
            for name, entries in pack.patterns.items():
                sections.setdefault(name, []).append((pack, entries))
        for name, found in sections.items():
            setattr(self, name, Section(*found))

    if TYPE_CHECKING:

        def __getattr__(self, section: str) -> Section: ...


class LanguagePack(PatternSections):
    """Patterns and word lists of English, of Japanese, or of one subject in both.

    Patterns are attributes. For example, ``pack.replies.declines`` is the pattern ``declines`` of
    the section ``replies`` in the pack's file. Word lists and groups of words have names of the
    same form, such as ``"search.stop_words"``.

    Args:
        data: Parsed content of the pack's file.
    """

    def __init__(self, data: dict[str, Any]) -> None:
        self.code: str = data["code"]
        self.counterexamples: dict[str, list[str]] = data.get("counterexamples", {})
        self.patterns: dict[str, dict[str, Any]] = data.get("patterns", {})
        self._data = data
        super().__init__(self)

    def words(self, name: str) -> frozenset[str]:
        """Return a word list of the language pack, such as ``"search.stop_words"``.

        Args:
            name: Section and name of the list, separated by a dot.

        Raises:
            KeyError: The pack has no such list.
        """
        section, _, list_name = name.partition(".")
        return frozenset(self._data["words"][section][list_name].split())

    def groups(self, name: str) -> tuple[tuple[str, ...], ...]:
        """Return groups of words with the same meaning, such as ``("comic", "comics")``.

        Args:
            name: Section and name of the groups in the language pack, separated by a dot.

        Raises:
            KeyError: The pack has no such groups.
        """
        section, _, list_name = name.partition(".")
        return tuple(tuple(line.split()) for line in self._data["groups"][section][list_name])

    def rules(self, table: str) -> tuple[Rule, ...]:
        """Return the rules of a table in the language pack, such as ``"acts"``, in file order.

        The result is empty if the pack has no such table.
        """
        return tuple(map(self._rule, self._data.get(table, ())))

    def compile(self, entry: dict[str, Any]) -> re.Pattern[str]:
        """Compile the alternative patterns in an entry of the pack's file to one expression.

        Raises:
            KeyError: The entry names a fragment (a shared part of patterns) that does not exist.
        """
        return re.compile(self.source(entry), _flags(entry))

    def source(self, entry: dict[str, Any]) -> str:
        """Join the alternative patterns in an entry of the pack's file to one pattern.

        Names of fragments (shared parts of patterns) are replaced by the fragments.
        """
        return "|".join(map(self._expand, entry["any"]))

    def entries(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the name and the content of each entry with patterns in the pack's file.

        A name is, for example, ``en.acts[0]``. An entry is a table with a list of alternative
        patterns.
        """
        for table in TABLES:
            for number, entry in enumerate(self._data.get(table, ())):
                yield f"{self.code}.{table}[{number}]", entry
        for section, entries in self.patterns.items():
            for name, entry in entries.items():
                yield f"{self.code}.{section}.{name}", entry

    def _expand(self, template: str) -> str:
        return _PART.sub(lambda match: self._part(match[1], match[2]), template)

    def _part(self, section: str, name: str) -> str:
        part = self._data["fragments"][section][name]
        return (
            self._expand(part)
            if isinstance(part, str)
            else f"(?:{'|'.join(map(self._expand, part))})"
        )

    def _rule(self, entry: dict[str, Any]) -> Rule:
        return Rule(
            key=entry.get("key") or entry["act"],
            pattern=self.compile(entry),
            cues=frozenset(entry.get("cues", ())),
            **{name: entry[name] for name in _OPTIONS if name in entry},
        )


def _flags(entry: dict[str, Any]) -> re.RegexFlag:
    flags = re.IGNORECASE if entry.get("ignore_case") else re.NOFLAG
    for letter in entry.get("flags", ""):
        flags |= _FLAGS[letter]
    return flags


def load_pack(code: str, **words: Sequence[str]) -> LanguagePack:
    """Read a language pack, which is a file with the patterns and word lists of a language.

    The file is ``packs/<code>.toml``. Each keyword argument is a list of words that patterns refer
    to: the list ``months`` replaces ``{{words.months}}`` in a pattern.
    """
    text = (
        resources.files("strands_manga_memory.language")
        .joinpath("packs", f"{code}.toml")
        .read_text(encoding="utf-8")
    )
    data = tomllib.loads(text)
    data.setdefault("fragments", {})["words"] = words
    return LanguagePack(data)


_Result = TypeVar("_Result")


def cached_if_short(function: Callable[[str], _Result]) -> Callable[[str], _Result]:
    """Decorate a function of a text with a cache for short texts.

    Results for texts of at most 400 characters are cached. For longer texts, the function is called
    each time.
    """
    cached = functools.lru_cache(8_192)(function)
    return functools.wraps(function)(
        lambda text: cached(text) if len(text) <= 400 else function(text)
    )


# --- All languages --------------------------------------------------------------------------------


EN, JA = load_pack("en"), load_pack("ja")
"""Language packs of English and Japanese."""

ANY = PatternSections(EN, JA)
"""Patterns of all languages: ``ANY.replies.declines`` matches in English and in Japanese."""


def groups_of_all(name: str) -> tuple[tuple[str, ...], ...]:
    """Return the groups of synonyms in the packs of all languages: English first, then Japanese.

    For example, the groups ``questions.same`` are ``(("order", "parcel", ...), ("荷物", ...))``.

    Args:
        name: Section and name of the groups in all packs, separated by a dot.
    """
    return (*EN.groups(name), *JA.groups(name))


def canonical_words(name: str) -> dict[str, str]:
    """Return the standard word for each word with synonyms, such as "allergy" for "allergies".

    Synonyms form a group in a language pack, and the first word of a group is its standard word.

    Args:
        name: Section and name of the groups in all packs, separated by a dot.
    """
    return {word.lower(): group[0] for group in groups_of_all(name) for word in group}
