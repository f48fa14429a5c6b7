"""Finds all regular expressions of a package, and texts that may take them long."""

import base64
import gc
import importlib
import itertools
import pkgutil
import random
import re
import time
import types
from collections.abc import Iterator
from re import _constants as sre
from re import _parser as parser
from typing import Any

import strands_manga_memory as package
from strands_manga_memory.language.packs import EN, JA, LanguagePack, compile_entries

_RANDOM = random.Random(3)

UNITS = {
    "letters": "abcdefghij",
    "base64": base64.b64encode(_RANDOM.randbytes(3_000)).decode(),
    "hexadecimal": _RANDOM.randbytes(2_000).hex(),
    "addresses": "a@a.",
    "volumes": "volume 1,",
    "一": "一",
    "。": "。",
    "『": "『",
    "tags": "<b>",
    "digits": "1234567890",
    "thousands": "1,000,",
    "zero width": "\u200b",
    "[": "[",
    '"': '"',
    "'": "'",
    "backslashes": "\\",
    "lines": "\n",
    "spaces": " ",
    "words": "i a my b ",
    "names": "Aa ",
    "dashes": "a-",
    "dashes alone": "-",
    "points": "a. ",
    "kana": "ア",
    "urls": "http://",
    "secrets": "password",
}
"""What a text of one kind is made of."""


def modules() -> Iterator[types.ModuleType]:
    """Yield the modules of the package."""
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


def entries(pack: LanguagePack) -> Iterator[tuple[str, dict[str, Any], re.Pattern[str]]]:
    """Yield the name, the content and the pattern of each entry with patterns in a pack."""
    for file in pack.files:
        named = {
            f"{table}[{number}]": entry
            for table, content in file.items()
            if isinstance(content, list)
            for number, entry in enumerate(content)
        } | {
            f"{section}.{name}": entry
            for section, content in file.get("patterns", {}).items()
            for name, entry in content.items()
        }
        for name, entry in named.items():
            yield f"{file['code']}.{name}", entry, compile_entries([(file, entry)])


def patterns() -> dict[str, re.Pattern[Any]]:
    """Return the patterns of language packs and modules, keyed by place."""
    seen: dict[int, object] = {}
    found: dict[tuple[Any, int], tuple[str, re.Pattern[Any]]] = {}
    for pack in (EN, JA):  # compiled at the first use
        for name, _, pattern in entries(pack):
            found.setdefault((pattern.pattern, pattern.flags), (name, pattern))
    for module in modules():
        for name, value in list(vars(module).items()):
            for pattern in _within(value, seen):
                found.setdefault(
                    (pattern.pattern, pattern.flags), (f"{module.__name__}.{name}", pattern)
                )
    return {f"{where}[{number}]": pattern for number, (where, pattern) in enumerate(found.values())}


def _within(root: object, seen: dict[int, object]) -> Iterator[re.Pattern[Any]]:
    waiting = [root]
    while waiting:
        value = waiting.pop()
        if id(value) in seen or isinstance(value, types.ModuleType):
            continue
        seen[id(value)] = value
        if isinstance(value, re.Pattern):
            yield value
        elif isinstance(value, dict | list | tuple | set | frozenset | types.BuiltinMethodType):
            waiting += gc.get_referents(value)
        elif str(getattr(value, "__module__", "")).startswith(package.__name__):
            hidden = value.__globals__ if isinstance(value, types.FunctionType) else None
            waiting += [each for each in gc.get_referents(value) if each is not hidden]


def adversaries(pattern: re.Pattern[Any]) -> set[tuple[str, str]]:
    """Return pairs of a beginning and a repeated text, made from the pattern's own parts."""
    found: set[tuple[str, str]] = set()
    whole = _sample(parser.parse(pattern.pattern, pattern.flags), found, "")
    found.update({("", whole), ("", f"{whole} "), ("", whole[:-1])})
    return {(begins, unit) for begins, unit in found if unit}


def _sample(tree: Any, found: set[tuple[str, str]], before: str) -> str:
    """Return a text that a part of a pattern matches, more or less."""
    text = ""
    for operation, argument in tree:
        text += _one(operation, argument, found, before + text)
    return text


def _one(operation: Any, argument: Any, found: set[tuple[str, str]], before: str) -> str:
    if operation is sre.LITERAL:
        return chr(argument)
    if operation is sre.IN:
        return _member(argument)
    if operation in (sre.ANY, sre.NOT_LITERAL):
        return "b" if argument == ord("a") else "a"
    if operation in (sre.SUBPATTERN, sre.ATOMIC_GROUP):
        return _sample(argument[3] if operation is sre.SUBPATTERN else argument, found, before)
    if operation in (sre.ASSERT, sre.ASSERT_NOT):
        _sample(argument[1], found, before)
        return ""
    if operation is sre.BRANCH:
        ways = [_sample(way, found, before) for way in argument[1]]
        found.update(("", way) for way in ways)
        return ways[0]
    if operation in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        least, most, body = argument
        text = _sample(body, found, before)
        if most >= 20:
            found.update({(before, text), ("", before + text), ("", before + 5 * text + "\n")})
        return text * max(least, 1)
    return ""


def _member(items: Any) -> str:
    """Return a character of a set."""
    inside = re.compile("[" + "".join(_written(*item) for item in items) + "]")
    written = (
        chr(value if kind is sre.LITERAL else value[0])
        for kind, value in items
        if kind in (sre.LITERAL, sre.RANGE)
    )
    candidates = itertools.chain("a1A _-.@あア一", map(chr, range(32, 0x3000)), written)
    return next(sign for sign in candidates if inside.match(sign))


def _written(kind: Any, value: Any) -> str:
    if kind is sre.NEGATE:
        return "^"
    if kind is sre.LITERAL:
        return re.escape(chr(value))
    if kind is sre.RANGE:
        return f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
    sign = str(value).rsplit("_", 1)[-1][0].lower()
    return "\\" + (sign.upper() if "_NOT_" in str(value) else sign)


def seconds(pattern: re.Pattern[Any], begins: str, unit: str, length: int) -> float:
    """Return the processor time of searching a text of ``length`` characters."""
    text: Any = (begins + unit * (length // len(unit) + 1))[:length] + "\1"
    if isinstance(pattern.pattern, bytes):
        text = text.encode("utf-8", "replace")
    start = time.thread_time()
    for _ in pattern.finditer(text):
        pass
    return time.thread_time() - start


_TOLD_APART = 0.00125


def is_linear(
    pattern: re.Pattern[Any], begins: str, unit: str, lengths: tuple[int, ...] = (1_024, 8_192)
) -> bool:
    """Tell whether the time grows at most linearly; times below 1.25 ms do not count.

    The longest text is not tried if the shortest is read so fast that even a quadratic pattern
    would read the longest in less, or if a text of twice the length takes less than 2.2 times as
    long: a quadratic part that shows in the longest text makes it take 2.3 times as long.
    """
    before = seconds(pattern, begins, unit, lengths[0])
    if before * (lengths[-1] // lengths[0]) ** 2 < _TOLD_APART:
        return True
    if (
        lengths[1] > 2 * lengths[0]
        and seconds(pattern, begins, unit, 2 * lengths[0]) < 2.2 * before
    ):
        return True
    for shorter, longer in itertools.pairwise(lengths):
        now = seconds(pattern, begins, unit, longer)
        for _ in range(3):  # another reading, on a machine with other work
            if now < _TOLD_APART or now < 2 * (longer // shorter) * max(before, 1e-5):
                break
            before = max(before, seconds(pattern, begins, unit, shorter))
            now = min(now, seconds(pattern, begins, unit, longer))
        else:
            return False
        before = now
    return True
