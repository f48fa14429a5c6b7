"""Every regular expression of the package reads any text in time linear in its length."""

import ast
import inspect
import itertools
import re
from functools import cache
from pathlib import Path

import pytest

from tests.unit.patterns import UNITS, adversaries, entries, is_linear, modules, patterns

pytestmark = pytest.mark.xdist_group("patterns")  # one worker reads the patterns of the package
PARTS = 4
found_patterns = cache(patterns)
READ_TEXTS = ("conversation", "importing", "language", "mcp", "memory", "squad", "state")


def test_the_patterns_of_a_package_are_found_wherever_they_are_kept() -> None:
    found = {pattern.pattern for pattern in found_patterns().values()}
    from strands_manga_memory.language import SHOP
    from strands_manga_memory.language.packs import EN, JA  # in objects, in a tuple
    from strands_manga_memory.mcp.answers import _RULES  # in a tuple of tuples

    packs = EN, JA
    assert {
        packs[0].rules("acts")[3].pattern.pattern,
        SHOP["email"].pattern.pattern,
        _RULES[0][0].pattern,
    } <= found
    assert {pattern.pattern for pack in packs for _, _, pattern in entries(pack)} <= found
    assert len(found) > 200


@pytest.mark.parametrize(
    "slow", [r"[\w-]*secret", r"(?:a|b|ab)+c", r"\s+\Z", r".*x", r"[一二]+巻", r"^\s*:"]
)
def test_a_pattern_that_is_not_linear_is_told(slow: str) -> None:
    pattern = re.compile(slow, re.MULTILINE)
    tried = {*adversaries(pattern), *(("", unit) for unit in UNITS.values())}
    lengths = (28, 36) if "ab" in slow else (512, 4_096)
    assert not all(is_linear(pattern, begins, unit, lengths) for begins, unit in tried)


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_every_pattern_reads_what_is_made_of_its_own_parts_in_linear_time(part: int) -> None:
    slow = []
    for name, pattern in list(found_patterns().items())[part::PARTS]:
        tried = sorted(adversaries(pattern))
        slow += [(name, b[:40], unit[:40]) for b, unit in tried if not is_linear(pattern, b, unit)]
    assert slow == []


@pytest.mark.long
def test_every_pattern_reads_every_kind_of_text_in_linear_time() -> None:
    tried = itertools.product(found_patterns().items(), UNITS.items())
    assert [(name, kind) for (name, p), (kind, unit) in tried if not is_linear(p, "", unit)] == []


def test_no_pattern_is_written_where_it_cannot_be_found() -> None:
    """A pattern within a function is in no module; one that is built of what is given is."""
    hidden = []
    for module in modules():
        if module.__name__.split(".")[1] not in READ_TEXTS:
            continue
        tree = ast.parse(Path(inspect.getfile(module)).read_text(encoding="utf-8"))
        for function in (
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ):
            hidden += [
                f"{module.__name__}:{node.lineno}"
                for node in ast.walk(function)
                if isinstance(node, ast.Call)
                and ast.unparse(node.func).startswith(("re.", "expression"))
                and ast.unparse(node.func) != "re.escape"
                and node.args
                and isinstance(node.args[0], ast.Constant)
            ]
    assert hidden == []
