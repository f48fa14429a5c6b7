"""Texts that are read stretch by stretch give what they give when they are read at once."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from strands_manga_memory.language import SHOP
from strands_manga_memory.language.pii import DEFAULT_RULES
from strands_manga_memory.messages.texts import find_matches, head_and_tail, map_parts

PATTERNS = [*(type_.pattern for type_ in SHOP), *(rule.pattern for rule in DEFAULT_RULES)]
PARTS = st.sampled_from(
    [
        *(
            "Call 090-1234-5678 or mail a.b@example.com. ",
            "ISBN 978-4-06-319233-5, volume 12. ",
            "ORD-12345 ",
            "『寄生獣』の第3巻",
            "(415) 555-2671",
        ),
        *(
            "4111 1111 1111 1111 ",
            "〒150-0001 東京都渋谷区神宮前1-2-3 ",
            "nothing of the kind, ",
            "\n",
            "x" * 300 + ",",  # a run of over 500 is beyond what is promised
            " ",
            "192.168.1.20 ",
        ),
    ]
)


@settings(max_examples=25)
@given(st.lists(PARTS, min_size=40, max_size=300))
def test_matches_are_those_of_the_whole_text(parts: list[str]) -> None:
    text = "".join(parts)
    for pattern in PATTERNS:
        assert [match.span() for match in find_matches(pattern, text)] == [
            match.span() for match in pattern.finditer(text)
        ]


def test_a_match_longer_than_a_stretch_is_one() -> None:
    text = " ".join(["word", "b" * 20_000, "word"])
    assert [match[0] for match in find_matches(re.compile(r"\w+"), text)] == text.split()


@given(st.text(max_size=50), st.integers(1, 400))
def test_a_text_that_is_changed_stretch_by_stretch_is_changed_whole(text: str, times: int) -> None:
    assert (
        map_parts(str.swapcase, "ab" * times * 20 + text.replace("ß", ""))
        == ("ab" * times * 20 + text.replace("ß", "")).swapcase()
    )


@given(st.text(max_size=60), st.integers(0, 50), st.sampled_from(["", "\n", " [...] "]))
def test_an_excerpt_is_no_longer_than_allowed(text: str, most: int, gap: str) -> None:
    excerpt = head_and_tail(text, most, gap)
    assert len(excerpt) <= max(most, len(gap))
    assert excerpt == text or gap in excerpt
