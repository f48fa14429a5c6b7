"""The list of segments in a head, and the keys of segments."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.session.core.identity import Segment
from strands_manga_memory.session.replicas.segments import log_range, pack_listed, segment_key, unpack_listed

NUMBERS = st.integers(0, 10**15)


@given(st.frozensets(st.builds(Segment, st.sampled_from("lm"), NUMBERS, st.sampled_from("ab"), NUMBERS)))
def test_segments_come_back_from_their_list(segments: frozenset[Segment]) -> None:
    assert unpack_listed(json.loads(json.dumps(pack_listed(segments)))) == segments


def test_the_list_says_life_and_writer_once_and_hardly_grows_with_age() -> None:
    def size(age: int) -> int:
        return len(json.dumps(pack_listed(Segment("f" * 12, age + 5 * at, "e" * 12, 2 * age + 10 * at) for at in range(60))))

    assert size(1_000_000) <= size(1) + 12 < 500


@pytest.mark.parametrize(
    "damaged",
    [
        5,
        None,
        {"l": 1},
        ["l"],
        [["l"]],
        [["l", "a", 1]],
        [["l", "a", 1, 2, 3]],
        [["l", "a", None, 2]],
        [["l", "a", [1], 2]],
        [["l", "a", "x", 2]],
        [["l", "a", *[1] * 200_002]],
    ],
)
def test_what_is_no_list_of_segments_is_refused(damaged: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        unpack_listed(damaged)


@pytest.mark.parametrize("name", ["\ud800", "第", "9" * 5_000])
def test_what_names_no_segment_is_no_key(name: str) -> None:
    for key in (
        lambda: log_range("A:a", name),
        lambda: segment_key("s", "A:a", Segment(name, 1, "w", 1)),
        lambda: segment_key("s", "A:a", Segment("l", 1, name, 1)),
    ):
        with pytest.raises(CorruptRecordError, match="names a life or writer") as caught:
            key()
        assert caught.value.record == "A:a"
