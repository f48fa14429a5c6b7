"""Language packs: files with the patterns and word lists of a language.

The pack of a language is the file ``packs/<code>.toml``. The packs ``entities`` and
``personal_data`` are for English and Japanese. ``README.md`` explains the format.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, TypeVar

_PART = re.compile(r"\{\{([a-z_]+)\.([a-z_]+)\}\}")
_Entry = dict[str, Any]


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
        check: Name of the function that validates a match. Empty if every match is valid. In the
            table ``answers``, whose patterns match questions: name of the pattern in the section
            ``answered`` that an answer must match.
        unless: Name of a pattern in the section ``around`` that must not match the text around a
            match. In the table ``answers``: name of a pattern in the section ``asked_about`` that
            must not match the question.
        others: Maximum number of other words in a matching message of small talk. Each Japanese
            character counts as a word.
    """

    key: str
    pattern: re.Pattern[str]
    role: str = ""
    cues: Sequence[str] = ()
    revokes_instruction: bool = False
    check: str = ""
    unless: str = ""
    others: int = 0


class Section:
    """Section of language packs, such as ``replies``, with its patterns as attributes.

    A pattern is compiled when it is first read. If several packs have a pattern of the same name,
    such as ``declines``, the attribute joins them by ``|``.
    """

    def __init__(self, name: str, files: Sequence[_Entry]) -> None:
        self._parts = [(file, file.get("patterns", {}).get(name, {})) for file in files]

    def __getattr__(self, name: str) -> re.Pattern[str]:
        found = [(file, entries[name]) for file, entries in self._parts if name in entries]
        if not found:
            raise AttributeError(name)
        pattern = compile_entries(found)
        setattr(self, name, pattern)  # __getattr__ is called only for missing attributes
        return pattern


class LanguagePack:
    """Patterns and word lists of English, of Japanese, or of both.

    ``pack.replies.declines`` is the pattern ``declines`` of the section ``replies``.
    ``pack.words("search.stop_words")`` is the word list ``stop_words`` of the section ``search``. A
    pack of several files has the words, groups and rules of all files.

    Args:
        files: Parsed contents of the files ``packs/<code>.toml``.
    """

    def __init__(self, *files: _Entry) -> None:
        self.files = files
        names = {name for file in files for name in file.get("patterns", {})}
        vars(self).update({name: Section(name, files) for name in names})

    def __getattr__(self, name: str) -> Section:
        raise AttributeError(f"no language pack has the section {name!r}")

    def words(self, name: str) -> frozenset[str]:
        """Return a word list, such as ``"search.stop_words"``.

        Raises:
            KeyError: No file has such a list.
        """
        return frozenset(" ".join(self._values("words", name)).split())

    def groups(self, name: str) -> list[list[str]]:
        """Return groups of words with the same meaning, such as ``["comic", "comics"]``.

        Raises:
            KeyError: No file has such groups.
        """
        return [line.split() for lines in self._values("groups", name) for line in lines]

    def canonical_words(self, name: str) -> dict[str, str]:
        """Return a dictionary from each word of groups to the first word of its group.

        For example, the group "allergy allergies" maps ``"allergies"`` to ``"allergy"``.

        Raises:
            KeyError: No file has such groups.
        """
        return {word.lower(): group[0] for group in self.groups(name) for word in group}

    def _values(self, kind: str, name: str) -> list[Any]:
        section, _, key = name.partition(".")
        sections = [file.get(kind, {}).get(section, {}) for file in self.files]
        if not (found := [values[key] for values in sections if key in values]):
            raise KeyError(name)
        return found

    def table(self, name: str) -> list[tuple[_Entry, re.Pattern[str]]]:
        """Return the entries of a table, such as ``"entities"``, each with its compiled pattern.

        The entries are in the order of the files. The result is empty if no file has such a table.
        """
        return [
            (entry, compile_entries([(file, entry)]))
            for file in self.files
            for entry in file.get(name, ())
        ]

    def rules(self, name: str) -> list[Rule]:
        """Return the entries of a table, such as ``"acts"``, as rules in the order of the files."""
        fields = Rule.__dataclass_fields__
        return [
            Rule(pattern=pattern, **{key: entry[key] for key in entry if key in fields})
            for entry, pattern in self.table(name)
        ]


def compile_entries(entries: Sequence[tuple[_Entry, _Entry]]) -> re.Pattern[str]:
    """Compile the patterns of entries to one regular expression, which matches any of them.

    Args:
        entries: Pairs of a parsed language pack and one of its entries. The entry's patterns may
            name fragments (shared parts of patterns) of the pack.

    Raises:
        KeyError: An entry names a fragment that does not exist.
        ValueError: The entries have different flags.
    """
    flags = {(entry.get("flags", ""), entry.get("ignore_case", False)) for _, entry in entries}
    if len(flags) > 1:
        raise ValueError(f"packs must have a pattern with the same flags, got {flags}")
    letters, ignores_case = flags.pop()
    sources = [_expand(each, file["fragments"]) for file, entry in entries for each in entry["any"]]
    options = sum(getattr(re, letter.upper()) for letter in letters)
    return re.compile("|".join(sources), options | (re.IGNORECASE if ignores_case else 0))


def _expand(part: str | list[str], fragments: _Entry) -> str:
    if isinstance(part, list):
        return f"(?:{'|'.join(_expand(each, fragments) for each in part)})"
    return _PART.sub(lambda match: _expand(fragments[match[1]][match[2]], fragments), part)


_NOT_IN_A_WORD = "(?:(?<![A-Za-z0-9])|(?![A-Za-z0-9]))"


def compile_words(words: Iterable[str]) -> re.Pattern[str]:
    """Compile a pattern that finds words in upper or lower case, English words only as whole words.

    Of several words that begin at one position, the longest is found.
    """
    longest_first = sorted(words, key=len, reverse=True)
    alternatives = "|".join(map(re.escape, longest_first))
    return re.compile(f"{_NOT_IN_A_WORD}(?:{alternatives}){_NOT_IN_A_WORD}", re.IGNORECASE)


def load_pack(code: str, **words: Sequence[str]) -> LanguagePack:
    """Read the language pack ``packs/<code>.toml``, with the patterns and word lists of a language.

    Each keyword argument is a word list that patterns may use: the list ``months`` replaces
    ``{{words.months}}``.
    """
    file = resources.files("strands_manga_memory.language") / "packs" / f"{code}.toml"
    data = tomllib.loads(file.read_text(encoding="utf-8"))
    data.setdefault("fragments", {})["words"] = words
    return LanguagePack(data)


def in_context(text: str, start: int, end: int, size: int = 60) -> str:
    """Return ``text[start:end]`` in angle brackets, with the text around: ``before<part>after``.

    ``before`` and ``after`` have at most ``size`` characters each. Patterns such as ``Rule.unless``
    are searched in the result.
    """
    return f"{text[max(0, start - size) : start]}<{text[start:end]}>{text[end : end + size]}"


_Result = TypeVar("_Result")


def cached_if_short(function: Callable[[str], _Result]) -> Callable[[str], _Result]:
    """Decorate a function with a cache of its results for texts of at most 400 characters."""
    cached = functools.lru_cache(8_192)(function)
    return functools.wraps(function)(
        lambda text: cached(text) if len(text) <= 400 else function(text)
    )


EN, JA = load_pack("en"), load_pack("ja")
"""Language packs of English and Japanese."""

ANY = LanguagePack(*EN.files, *JA.files)
"""Patterns of all languages: ``ANY.replies.declines`` matches in English and in Japanese.

Words, groups and rules of English come before those of Japanese."""
