from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.session.records import (
    MOST_WRITERS,
    SCHEMA,
    Head,
    Place,
    Save,
    Segment,
    Stored,
    digest,
    forgotten_by,
    needed_segments,
    pack,
    parse_writers,
    segments_text,
    unpack,
    with_save,
    writers_text,
)
from strands_manga_memory.session.window import Body, Logged

FULL = {
    "created": 1.5,
    "active": 2.5,
    "turns": 3,
    "messages": 7,
    "next": 8,
    "first": 2,
    "since": 2,
    "bodies": 1,
    "flushed_turns": 2,
    "pending": "6-7",
    "segments": "2-5",
    "garbage": "9",
    "open": {"w": "6-7"},
}


def test_a_head_comes_back() -> None:
    head = Head(**FULL)
    assert Head.from_dict(head.to_dict(), record="r") == head
    assert Head.from_dict(Head(created=0, active=0).to_dict(), record="r") == Head(created=0, active=0)


def test_fields_of_a_later_version_are_kept_and_written_back() -> None:
    stored = Head(**FULL).to_dict() | {"later": {"deep": [1]}, "digest": 5}
    head = Head.from_dict(stored, record="r")
    assert head.unknown == {"later": {"deep": [1]}}
    assert head.to_dict()["later"] == {"deep": [1]}
    assert "digest" not in head.to_dict()


@pytest.mark.parametrize("data", [None, [], "head", 7, {}, {"schema": "1"}, {"schema": 1}, {"schema": 1, "created": 1}])
def test_what_is_no_head_is_refused(data: Any) -> None:
    with pytest.raises(CorruptRecordError, match="damaged") as error:
        Head.from_dict(data, record="the head")
    assert error.value.record == "the head"


def test_a_newer_schema_is_refused_and_says_what_to_do() -> None:
    with pytest.raises(CorruptRecordError, match=f"schema {SCHEMA + 1}, this package reads up to {SCHEMA}; upgrade"):
        Head.from_dict({**Head(**FULL).to_dict(), "schema": SCHEMA + 1}, record="r")


def test_the_latest_writers_are_remembered() -> None:
    writers: dict[str, int] = {}
    for number in range(20):
        writers = with_save(writers, f"w{number}", number)
    assert list(writers) == [f"w{number}" for number in range(20 - MOST_WRITERS, 20)]
    writers = with_save(writers, "w15", 99)
    assert list(writers)[-1] == "w15"
    assert writers["w15"] == 99
    assert len(writers) == MOST_WRITERS


@given(st.dictionaries(st.from_regex(r"[a-z0-9]{1,12}", fullmatch=True), st.integers(0, 10**9), max_size=8))
def test_writers_as_text_come_back(writers: dict[str, int]) -> None:
    assert parse_writers(writers_text(writers), record="r") == writers
    assert list(parse_writers(writers_text(writers), record="r")) == list(writers)


@pytest.mark.parametrize("text", ["a", "a=", "a=b", "a=1=2", "a=1,b=2"])
def test_damaged_writers_are_refused(text: str) -> None:
    with pytest.raises(CorruptRecordError):
        parse_writers(text, record="r")


@given(st.dictionaries(st.text(max_size=8), st.binary(max_size=40), max_size=6))
def test_parts_come_back(parts: dict[str, bytes]) -> None:
    assert unpack(pack(parts), record="r") == parts


@given(st.dictionaries(st.sampled_from("abc"), st.binary(min_size=1, max_size=20), min_size=1), st.data())
def test_parts_that_were_cut_are_refused(parts: dict[str, bytes], data: Any) -> None:
    packed = pack(parts)
    cut = packed[: data.draw(st.integers(0, len(packed) - 1))]
    with pytest.raises(CorruptRecordError):
        unpack(cut, record="r")
    with pytest.raises(CorruptRecordError):
        unpack(packed + b"x", record="r")


@given(st.lists(st.integers(1, 99), max_size=8))
def test_segments_as_text_come_back(firsts: list[int]) -> None:
    segments = [Segment(first, first + 3) for first in firsts]
    assert Segment.parse(segments_text(segments), record="r") == segments


@pytest.mark.parametrize("text", ["1", "1-2-3", "a-b", "1-", "-"])
def test_damaged_segments_are_refused(text: str) -> None:
    with pytest.raises(CorruptRecordError):
        Segment.parse(text, record="r")


def logged(seq: int) -> Logged:
    return Logged("", 0, b"", 1, 0.0, seq=seq)


@pytest.mark.parametrize(
    ("seqs", "needed"),
    [
        ([], []),
        ([1], [(1, 4)]),
        ([4], [(1, 4)]),
        ([5, 6], [(5, 9)]),
        ([1, 2, 3], [(1, 4)]),
        ([12, 1], [(1, 4), (12, 12)]),
        ([10, 11], []),
        ([9, 12, 20], [(5, 9), (12, 12), (20, 30)]),
    ],
)
def test_only_segments_of_the_window_are_needed(seqs: list[int], needed: list[tuple[int, int]]) -> None:
    segments = [Segment(20, 30), Segment(1, 4), Segment(12, 12), Segment(5, 9)]
    slots = [*(logged(seq) for seq in seqs), Body("", 0, b"", number=7)]
    assert needed_segments(slots, segments) == [Segment(*one) for one in needed]


def test_a_copy_is_part_of_what_has_seen_all_its_saves() -> None:
    stored = Stored(epoch=1, version=5, writers={"a": 3, "b": 1}, head=Head(created=0, active=0))
    assert stored.is_part_of({"a": 3, "b": 1})
    assert stored.is_part_of({"a": 4, "b": 9, "c": 1})
    assert not stored.is_part_of({"a": 2, "b": 1})
    assert not stored.is_part_of({"a": 3})
    assert Stored(epoch=1, version=0, head=Head(created=0, active=0)).is_part_of({})


def test_a_copy_that_has_let_go_of_something_does_not_include_one_that_has_it() -> None:
    """It was made on top of the other one's save, and gave up what neither it nor a tier that answered had of a third."""

    def copy(version: int, **writers: int) -> Stored:
        return Stored(epoch=1, version=version, writers=writers, head=Head(created=0, active=0))

    hot, durable = copy(4, gone=3, here=3), copy(8, gone=2, here=7)
    assert durable.includes(hot.made_by)
    assert not durable.includes_all(hot)
    assert copy(8, gone=3, here=7).includes_all(hot)
    assert not copy(8, here=7).includes_all(hot)
    many = {f"w{number}": 1 for number in range(MOST_WRITERS - 1)}
    assert copy(30, **many, here=7).includes_all(hot), "writers that are not among the last are included since long"


@given(st.lists(st.sampled_from([f"w{number}" for number in range(14)]), min_size=1, max_size=60))
def test_a_copy_includes_the_saves_it_has_forgotten_and_no_others(saved_by: list[str]) -> None:
    writers: dict[str, int] = {}
    head = Head(created=0, active=0)
    saves: list[Save] = []
    for version, writer in enumerate(saved_by, 1):
        before, writers = writers, with_save(writers, writer, version)
        head.forgotten = max(head.forgotten, forgotten_by(version, before=before, after=writers))
        saves.append(Save(writer, version, version))
    copy = Stored(epoch=1, version=len(saves), writers=writers, head=head)
    assert all(copy.includes(save) for save in saves)
    assert not any(copy.includes(Save("stranger", 1, version)) for version in range(head.forgotten + 1, 100))
    assert head.forgotten <= max(0, len(saves) - MOST_WRITERS)


def test_a_copy_that_was_joined_remembers_nothing_of_what_it_forgot_at_once() -> None:
    before = {f"w{number}": 1 for number in range(12)}
    assert forgotten_by(20, before=before, after=with_save(before, "w12", 1)) == 19


def test_the_digest_sees_everything_that_is_in_the_clear() -> None:
    clear = (1, 2, "a=1", "1-5")
    changed = [(2, *clear[1:]), (1, 3, *clear[2:]), (1, 2, "a=2", "1-5"), (1, 2, "a=1", "1-6")]
    assert digest(*clear) == digest(*clear)
    assert len({digest(*each) for each in (clear, *changed)}) == 5


def test_places() -> None:
    place = Place.of("t:u:s", "A", "日本/~#")
    assert place.conversation == "t:u:s/A:%E6%97%A5%E6%9C%AC%2F~%23"
    assert Place.named(place.conversation) == place
    assert place.head_key == ("t:u:s", "A:%E6%97%A5%E6%9C%AC%2F~%23#HEAD")
    assert place.log_key(7) == ("t:u:s", "A:%E6%97%A5%E6%9C%AC%2F~%23#LOG#000000000007")
    assert place.log_key(9) < place.log_key(10) < place.log_key(10**11)
