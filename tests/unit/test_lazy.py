"""Regular expressions are compiled when they are first used, and are patterns from then on."""

from __future__ import annotations

import copy
import pickle
import re

import pytest

from strands_manga_memory.lazy import expression


@pytest.mark.parametrize(("pattern", "flags", "text"), [(r"(?P<word>B\w+)", re.IGNORECASE, "a bee"), (rb"\d+", 0, b"a 12")])
def test_an_expression_is_used_as_its_pattern_is(pattern: str, flags: int, text: str) -> None:
    late, early = expression(pattern, flags), re.compile(pattern, flags)
    assert late.search(text).span() == early.search(text).span()
    assert [match.re for match in late.finditer(text)] == [early]
    assert late.sub(text, text) == early.sub(text, text)
    assert (late.pattern, late.flags, late.groups, late.groupindex) == (pattern, early.flags, early.groups, early.groupindex)


def test_an_expression_is_compiled_at_its_first_use_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, compile_ = [], re.compile
    monkeypatch.setattr(re, "compile", lambda *given: compiled.append(given) or compile_(*given))
    late = expression("a(b)", re.ASCII)
    assert (late.pattern, repr(late), compiled) == ("a(b)", "expression('a(b)')", [])
    assert (late.fullmatch("ab")[1], late.search("cab").start(), late.match("b")) == ("b", 1, None)
    assert compiled == [("a(b)", re.ASCII)]


def test_an_expression_is_copied_and_pickled_used_or_not() -> None:
    for use in (lambda late: None, lambda late: late.search("a")):
        late = expression("a")
        use(late)
        for other in (copy.copy(late), copy.deepcopy(late), pickle.loads(pickle.dumps(late))):
            assert other.search("ba").span() == (1, 2)


def test_an_expression_has_nothing_that_a_pattern_has_not() -> None:
    with pytest.raises(AttributeError):
        expression("a").find  # noqa: B018
