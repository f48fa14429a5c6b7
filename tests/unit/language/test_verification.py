"""Verification: what a draft must hold, and what it must not."""

from typing import Any

import pytest

from strands_manga_memory.language import Fact, FactKind
from strands_manga_memory.language.verification import SearchableText, verify_draft
from tests.lines import rows

SOURCE = (
    "User: my order ORD-55120 over 6,800円, volume 3 by March 3rd at 15:45.\nUser: call me Keiko"
)


def checked(draft: str, **more: Any) -> Any:
    settings = {
        "source": SearchableText(SOURCE),
        "source_tokens": 1_000,
        "required": [],
        "max_tokens": 100,
        "count": lambda text: len(text.split()),
    }
    return verify_draft(draft, **{**settings, **more})


@pytest.mark.parametrize(("fact", "draft"), rows("facts_in_other_forms"))
def test_a_fact_is_found_in_other_forms(fact: str, draft: str) -> None:
    assert SearchableText(draft).mentions(fact)


@pytest.mark.parametrize(("fact", "draft"), rows("missing_facts"))
def test_a_fact_that_is_not_there_is_missed(fact: str, draft: str) -> None:
    slot = Fact(FactKind.STATEMENT, fact)
    verdict = checked(draft, required=[slot], source=SearchableText(f"{SOURCE}\n{draft}"))
    assert verdict.is_usable
    assert verdict.missing == (slot,)


@pytest.mark.parametrize(("draft", "problem"), rows("bad_drafts"))
def test_a_draft_that_cannot_be_used(draft: str, problem: str) -> None:
    verdict = checked(draft)
    assert not verdict.is_usable
    assert problem in verdict.problems


def test_a_draft_that_is_far_too_long_is_not_read() -> None:
    def counted(_: str) -> int:
        raise AssertionError

    assert "far too long" in checked("word " * 1_000, count=counted).problems[0]


def test_a_draft_must_be_shorter_than_its_source() -> None:
    assert checked("one two three", source_tokens=3).problems == (
        "it is not shorter than the conversation",
    )
    assert checked("one two three", source_tokens=4).is_usable


def test_values_of_the_source_in_other_forms_are_not_invented() -> None:
    assert checked("Keiko's ORD-55120 costs ¥6800; 第3巻 comes on 3月3日, 3:45 pm.").is_usable
