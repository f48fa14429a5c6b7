from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest

from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.session.log import SegmentLog
from strands_manga_memory.session.records import Place, Segment
from strands_manga_memory.session.window import Logged, fingerprint
from strands_manga_memory.stores.codec import Codec, dump, load
from tests.unit.session.support import MemoryTable, texts, user


def slot(seq: int, text: str = "", *, revision: int = 0, id_: str = "") -> Logged:
    message: Any = user(text or f"message {seq}", tracking_id=id_ or f"id {seq}")
    record = dump({"message": message, "turn": seq, "at": float(seq), **({"revision": revision} if revision else {})})
    return Logged(message["tracking_id"], fingerprint(message), record, seq, float(seq), seq=seq, revision=revision)


def new(id_: str = "default") -> tuple[SegmentLog, MemoryTable]:
    table = MemoryTable()
    return SegmentLog(table, Place.of("s", "A", id_), Codec()), table


def slots(*seqs: int) -> list[Logged]:
    return [slot(seq) for seq in seqs]


def everything(log: SegmentLog, *runs: tuple[int, int], first: int = 1) -> list[int]:
    return [one.seq for one in log.history(first=first, committed=[Segment(*run) for run in runs])]


def test_messages_come_back() -> None:
    log, _ = new()
    assert log.put(slots(1, 2, 3)) == ([Segment(1, 3)], None)
    found = log.read([Segment(1, 3)])
    assert [found[seq].message for seq in (1, 2, 3)] == [one.message for one in slots(1, 2, 3)]
    assert (found[2].turn, found[2].at, found[2].seq) == (2, 2.0, 2)


def test_a_segment_has_no_gaps() -> None:
    log, table = new()
    assert log.put(slots(1, 2, 5, 6, 9)) == ([Segment(1, 2), Segment(5, 6), Segment(9, 9)], None)
    assert log.put(slots(3, 4)) == ([Segment(3, 4)], None)
    assert everything(log, (1, 6), (9, 9)) == [1, 2, 3, 4, 5, 6, 9]
    assert len(table.rows) == 4


def test_what_an_earlier_try_had_stored_is_found() -> None:
    log, table = new()
    log.put(slots(1, 2))
    assert log.put(slots(1, 2, 3, 4)) == ([Segment(1, 2), Segment(3, 4)], None)
    assert log.put(slots(1, 2, 3, 4)) == ([Segment(1, 2), Segment(3, 4)], None)
    assert len(table.rows) == 2


def test_a_stored_segment_that_goes_on_beyond_ours_is_a_collision() -> None:
    """Its further messages may have got other numbers since: to take it whole would drop as many of what we want to store."""
    log, table = new()
    log.put(slots(1, 2, 3, 4))
    other = SegmentLog(table, Place.of("s", "A", "default"), Codec())
    moved = [*slots(1, 2), slot(10, id_="id 3"), slot(11, id_="id 4")]
    assert other.put(moved) == ([], 1)
    assert everything(log, (1, 4)) == [1, 2, 3, 4]


def test_one_that_goes_on_with_what_other_segments_hold_is_none() -> None:
    """A flush that failed half-way had stored all of it; since then the rest was committed elsewhere under the same numbers."""
    log, table = new()
    log.put(slots(1, 2, 3, 4))
    other = SegmentLog(table, Place.of("s", "A", "default"), Codec())
    assert other.put(slots(3, 4)) == ([Segment(3, 4)], None)
    assert other.put(slots(1, 2), [Segment(3, 4)]) == ([Segment(1, 4)], None)
    assert everything(other, (1, 4)) == [1, 2, 3, 4]
    assert other.put(slots(5), [Segment(1, 4)]) == ([Segment(5, 5)], None)
    assert everything(other, (1, 5)) == [1, 2, 3, 4, 5]


def test_one_that_reaches_into_another_leaves_the_rest_of_that_a_segment_of_its_own() -> None:
    log, table = new()
    log.put(slots(7, 8, 9, 10, 11, 12))
    other = SegmentLog(table, Place.of("s", "A", "default"), Codec())
    other.put(slots(1, 2, 3, 4, 5, 6))
    other.put(slots(10, 11, 12, 13, 14))
    added, collision = other.put(slots(7, 8, 9, 15), [Segment(1, 6), Segment(10, 14)])
    assert (added, collision) == ([Segment(7, 12), Segment(13, 15)], None)
    assert everything(other, (1, 15)) == list(range(1, 16))
    assert other.holding([8, 11, 13], [Segment(1, 15)]) == [Segment(7, 12), Segment(13, 15)]


def test_one_that_goes_on_with_something_else_is_a_collision() -> None:
    log, table = new()
    log.put([*slots(1, 2), slot(3, id_="another"), slot(4)])
    other = SegmentLog(table, Place.of("s", "A", "default"), Codec())
    other.put(slots(3, 4))
    assert other.put(slots(1, 2), [Segment(3, 4)]) == ([], 1)


def test_what_others_have_stored_there_is_a_collision_and_stays() -> None:
    log, table = new()
    SegmentLog(table, Place.of("s", "A", "default"), Codec()).put([slot(1, "theirs"), slot(2, "theirs too")])
    assert log.put([slot(1, id_="mine"), slot(2)]) == ([], 1)
    assert texts(one.message for one in log.read([Segment(1, 2)]).values()) == ["theirs", "theirs too"]


@pytest.mark.parametrize("is_ours", [True, False])
def test_an_earlier_revision_that_is_stored_there_gives_way_to_a_later_one(is_ours: bool) -> None:
    """Someone flushed it before it was redacted: with a number of its own the redacted one would be there twice."""
    log, table = new()
    first = log if is_ours else SegmentLog(table, Place.of("s", "A", "default"), Codec())
    first.put(slots(1, 2))
    assert log.put([slot(1, "redacted", revision=1), slot(2)]) == ([Segment(1, 2)], None)
    assert texts(one.message for one in log.read([Segment(1, 2)]).values()) == ["redacted", "message 2"]
    assert b"message 1" not in b"".join(row["data"] for row in table.rows.values())
    assert log.put(slots(1, 2, 3)) == ([Segment(1, 2), Segment(3, 3)], None)
    assert texts(one.message for one in log.read([Segment(1, 2)]).values()) == ["redacted", "message 2"]
    log.discard(log.own_revisions([1]))
    assert len(table.rows) == (1 if is_ours else 2)


def test_a_collision_in_the_middle_tells_what_is_stored_so_far() -> None:
    log, table = new()
    SegmentLog(table, Place.of("s", "A", "default"), Codec()).put([slot(3, id_="theirs"), slot(4, id_="theirs too")])
    log.put(slots(1, 2))
    assert log.put(slots(1, 2, 3, 4)) == ([Segment(1, 2)], 3)


def test_only_what_is_committed_is_history() -> None:
    log, _ = new()
    log.put(slots(1, 2))
    log.put(slots(3, 4))
    log.put(slots(7, 8))
    assert everything(log, (1, 2)) == [1, 2]
    assert everything(log, (1, 4)) == [1, 2, 3, 4]
    assert everything(log, (1, 2), (7, 8)) == [1, 2, 7, 8]
    assert everything(log) == []


@pytest.mark.parametrize("first", range(1, 12))
def test_history_from_anywhere(first: int) -> None:
    log, _ = new()
    log.put(slots(1, 2, 3))
    log.put(slots(4, 5, 6, 7))
    log.put(slots(9, 10))
    expected = [seq for seq in (1, 2, 3, 4, 5, 6, 7, 9, 10) if seq >= first]
    assert everything(log, (1, 7), (9, 10), first=first) == expected


def test_history_reads_pages_as_they_are_asked_for() -> None:
    log, table = new()
    for seq in range(1, 60):
        log.put(slots(seq))
    read: list[str] = []
    query = table.query

    def watched(*arguments: Any, **named: Any) -> Any:
        for row in query(*arguments, **named):
            read.append(row["sk"])
            yield row

    table.query = watched
    pages = log.history(first=1, committed=[Segment(1, 59)])
    next(pages)
    assert len(read) <= 4


def test_a_segment_that_is_missing_is_damage() -> None:
    log, table = new()
    log.put(slots(1, 2))
    table.rows.clear()
    with pytest.raises(CorruptRecordError) as error:
        log.read([Segment(1, 2)])
    assert error.value.record == "s/A:default#LOG#000000000001"


def test_a_flipped_bit_is_damage_and_nothing_is_overwritten() -> None:
    log, table = new()
    log.put(slots(1, 2))
    (row,) = table.rows.values()
    row["data"] = row["data"][:-1] + bytes([row["data"][-1] ^ 4])
    before = dict(row)
    with pytest.raises(CorruptRecordError):
        log.read([Segment(1, 2)])
    with pytest.raises(CorruptRecordError):
        list(log.history(first=1, committed=[Segment(1, 2)]))
    with pytest.raises(CorruptRecordError):
        log.put(slots(1, 2, 3))
    assert row == before


def test_a_revision_replaces_a_message_that_others_have_stored_by_a_number_unknown_here() -> None:
    log, _ = new()
    log.put(slots(1, 2))
    log.put([dataclasses.replace(slot(2), seq=7), slot(8)])
    log.rewrite([slot(2, "revised", revision=1)])
    found = log.read([Segment(1, 2), Segment(7, 8)])
    assert texts(found[seq].message for seq in (1, 2, 7, 8)) == ["message 1", "revised", "revised", "message 8"]


def test_a_revision_replaces_a_message_in_its_segment() -> None:
    log, table = new()
    log.put(slots(1, 2, 3))
    log.rewrite([slot(2, "revised", revision=1)])
    found = log.read([Segment(1, 3)])
    assert texts(found[seq].message for seq in (1, 2, 3)) == ["message 1", "revised", "message 3"]
    assert found[2].revision == 1
    log.rewrite([slot(2, "older", revision=1), slot(9, "nowhere", revision=1)])
    assert texts([log.read([Segment(1, 3)])[2].message]) == ["revised"]
    assert b"message 2" not in b"".join(row["data"] for row in table.rows.values())


def test_a_segment_that_nobody_committed_hides_none() -> None:
    """It begins later than the one that holds a message, and ends before: what others stored under numbers that are taken."""
    log, table = new()
    log.put(slots(1, 2, 3, 4, 5, 6, 7))
    log.put([slot(seq, id_=f"theirs {seq}") for seq in (2, 3, 4)])
    assert everything(log, (1, 7), first=6) == [6, 7]
    assert log.holding([6], [Segment(1, 7)]) == [Segment(1, 7)]
    log.rewrite([slot(6, "revised", revision=1)])
    assert texts([log.read([Segment(1, 7)])[6].message]) == ["revised"]
    assert b"message 6" not in b"".join(row["data"] for row in table.rows.values())


def test_a_revision_that_meets_another_one_tries_again() -> None:
    log, table = new()
    log.put(slots(1, 2, 3))
    put = table.put
    meanwhile = [lambda: SegmentLog(table, Place.of("s", "A", "default"), Codec()).rewrite([slot(1, "other", revision=1)])]

    def slow(item: Any, **named: Any) -> bool:
        if meanwhile:
            table.put = put
            meanwhile.pop()()
        return put(item, **named)

    table.put = slow
    log.rewrite([slot(3, "mine", revision=1)])
    found = log.read([Segment(1, 3)])
    assert texts(found[seq].message for seq in (1, 2, 3)) == ["other", "message 2", "mine"]


def test_large_segments_are_split_and_discarded_whole() -> None:
    log, table = new()
    noise = random.Random(1).randbytes(500_000).hex()
    log.put([slot(1, noise), slot(2, "small")])
    assert len(table.rows) > 1
    assert texts(one.message for one in log.history(first=1, committed=[Segment(1, 2)])) == [noise, "small"]
    log.rewrite([slot(1, "short", revision=1)])
    assert len(table.rows) == 1
    log.put([slot(5, noise)])
    log.discard(log.revisions([5, 99]))
    assert len(table.rows) == 1


def test_a_segment_that_someone_else_stored_too_is_not_discarded() -> None:
    """Whoever stored it first may have given it up while the other one commits it."""
    log, table = new()
    other = SegmentLog(table, Place.of("s", "A", "default"), Codec())
    log.put(slots(1, 2))
    other.put(slots(1, 2))
    log.discard(log.own_revisions([1]))
    other.discard(other.own_revisions([1]))
    assert everything(log, (1, 2)) == [1, 2]


def test_what_its_author_stores_again_is_not_discarded_by_whoever_took_it_for_garbage() -> None:
    """The author commits it after all, and the other one comes to discarding it only then."""
    log, table = new()
    other = SegmentLog(table, Place.of("s", "A", "default"), Codec())
    log.put(slots(1, 2))
    garbage = other.revisions([1])
    assert log.put(slots(1, 2)) == ([Segment(1, 2)], None)
    other.discard(garbage)
    assert everything(log, (1, 2)) == [1, 2]
    log.discard(log.own_revisions([1]))
    assert not table.rows


def test_a_shared_segment_of_a_conversation_that_was_deleted_goes() -> None:
    log, table = new()
    other = SegmentLog(table, Place.of("s", "A", "default"), Codec())
    log.put(slots(1, 2))
    other.put(slots(1, 2))
    other.discard(other.revisions([1]))
    assert not table.rows


def test_numbers_beyond_everything_there_is() -> None:
    log, _ = new()
    assert log.beyond(5) == [5]
    log.put(slots(1, 2))
    log.put(slots(3, 4, 5))
    assert log.beyond(1) == [1, 3, 6]
    assert log.beyond(3) == [3, 6]
    assert log.beyond(4) == [4]


@pytest.mark.parametrize("id_", ["x~y", "~", "a~001.tag", "#", "日本~"])
def test_ids_that_look_like_parts(id_: str) -> None:
    log, _ = new(id_)
    log.put(slots(1, 2))
    log.put([slot(3, random.Random(1).randbytes(500_000).hex())])
    assert everything(log, (1, 3)) == [1, 2, 3]
    assert log.beyond(1) == [1, 3, 4]
    log.rewrite([slot(2, "revised", revision=1)])
    assert texts([log.read([Segment(1, 2)])[2].message]) == ["revised"]


def test_records_keep_fields_they_do_not_know() -> None:
    log, _ = new()
    one = slot(1)
    one.record = dump({**load(one.record), "later": [1]})
    log.put([one])
    log.rewrite([slot(9)])
    assert load(log.read([Segment(1, 1)])[1].record)["later"] == [1]


def test_one_that_cannot_be_had_without_what_follows_is_a_collision_itself() -> None:
    """Nobody committed it, and it reaches into a committed one, behind whose first messages someone else's are stored."""
    log, _ = new()
    others = [SegmentLog(log._table, Place.of("s", "A", "default"), Codec()) for _ in range(3)]
    others[0].put(slots(1, 2, 3, 4))
    others[1].put(slots(2, 3, 4, 5, 6))
    others[2].put([slot(5, id_="theirs")])
    assert log.put(slots(1), [Segment(2, 6)])[1] == 1
