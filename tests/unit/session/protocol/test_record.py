"""Join of two records: properties that hold for any pair, and the cases of the protocol's page."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from strands_manga_memory.session.protocol.record import (
    SEEN_TURNS,
    Record,
    Replacement,
    Slot,
    StateValue,
    Turn,
    TurnKey,
    Version,
    missing_turns,
)
from strands_manga_memory.session.protocol.record_join import insert_slots, join

KEYS = [TurnKey(number, f"t{number}") for number in range(1, 9)]


def turn(key: TurnKey, length: int) -> Turn:
    """Return the first messages of a turn; copies of one turn begin alike."""
    return Turn(
        tuple(f"{key.tag}.{at}".encode() for at in range(length)),
        tuple(float(at) for at in range(length)),
    )


@st.composite
def records(draw: st.DrawFn) -> Record:
    """Return a record of one incarnation with seen, shown and logged turns."""
    seen = draw(st.dictionaries(st.sampled_from(KEYS), st.integers(1, 4), max_size=6))
    shown = [key for key in draw(st.permutations(sorted(seen))) if draw(st.booleans())]
    unlogged = {key for key in seen if draw(st.booleans())}
    states = {n: StateValue(draw(versions), n) for n in draw(st.sets(st.sampled_from("abc")))}
    return Record(
        version=draw(versions),
        incarnation=1,
        window=tuple(Slot(key, at) for key in shown for at in range(seen[key])),
        seen=seen,
        states=states,
        redactions={
            key: {0: Replacement(1, b"redacted")} for key in seen if draw(st.integers(0, 4)) == 0
        },
        turns={key: turn(key, length) for key, length in seen.items()},
        unlogged=unlogged,
        turn_count=len(seen),
        message_count=sum(seen.values()),
    ).normalize()


versions = st.builds(Version, st.integers(1, 20), st.sampled_from(["a", "b"]), st.integers(0, 2))


@given(records(), records())
@settings(max_examples=60, deadline=None)
def test_join_does_not_depend_on_the_order_of_its_arguments(one: Record, other: Record) -> None:
    if one.version == other.version:
        other = replace(other, version=other.version.next_minor())
    assert join(one, other) == join(other, one)


@given(records())
def test_join_of_a_record_with_itself_changes_nothing(one: Record) -> None:
    assert join(one, one) == one


@given(records(), records())
@settings(max_examples=60, deadline=None)
def test_join_shows_every_unseen_turn_whole_and_once(one: Record, other: Record) -> None:
    """The window of the newer record is followed by the turns that its author had not seen."""
    if one.version == other.version:
        other = replace(other, version=other.version.next_minor())
    newer, older = (one, other) if one.version > other.version else (other, one)
    joined = join(one, other)
    places = [slot[:2] for slot in joined.window]
    assert len(places) == len(set(places))
    assert [slot for slot in joined.window if slot in newer.window] == list(newer.window)
    assert older.shown_keys - newer.seen.keys() <= joined.shown_keys
    evicted = {
        key
        for key in newer.seen.keys() - newer.shown_keys
        if newer.seen[key] >= older.seen.get(key, 0)
    }
    assert not evicted & joined.shown_keys
    for key in joined.shown_keys:
        assert [at for of, at in places if of == key] == list(range(joined.seen[key]))


@given(records(), records())
@settings(max_examples=60, deadline=None)
def test_join_keeps_redactions_states_and_unlogged_turns(one: Record, other: Record) -> None:
    """A turn stays unlogged until one of the records knows it as logged."""
    joined = join(one, other)
    for record in (one, other):
        for key in record.redactions:
            assert key in joined.redactions
        for name, entry in record.states.items():
            assert joined.states[name].version >= entry.version
        for key in record.unlogged:
            rest = other if record is one else one
            assert key in joined.unlogged or (rest.logged_length(key) >= joined.seen[key])
    assert all(
        joined.turns[key].messages[0] == b"redacted"
        for key in joined.redactions
        if key in joined.turns
    )


def test_turn_that_grew_stands_behind_its_first_messages() -> None:
    """A turn saved in parts stays together although another turn was stored between its parts."""
    first, second = KEYS[:2]
    slots = insert_slots([Slot(first, 0), Slot(second, 0)], [Slot(first, 1)])
    assert slots == (Slot(first, 0), Slot(first, 1), Slot(second, 0))


def test_deletion_drops_unlogged_turns_and_expiry_carries_them_over() -> None:
    """An expiry continues the turns that no log has; a deletion continues nothing."""
    key = KEYS[0]
    late = Record(
        Version(5, "a"),
        1,
        window=(Slot(key, 0),),
        seen={key: 1},
        turns={key: turn(key, 1)},
        unlogged={key},
    )
    expired = Record(Version(4, "b"), 2)
    deleted = Record(Version(4, "b"), 2, deleted_below=2)
    assert join(expired, late).window == (Slot(key, 0),)
    assert join(expired, late).unlogged == {key}
    assert join(deleted, late).window == ()
    assert not join(deleted, late).turns


def test_seen_list_keeps_the_turns_of_the_window_and_the_newest_others() -> None:
    keys = [TurnKey(number, "t") for number in range(1, 400)]
    record = Record(
        Version(500, "a"),
        1,
        window=(Slot(keys[0], 0),),
        seen=dict.fromkeys(keys, 1),
        turns={key: turn(key, 1) for key in keys},
    ).normalize()
    assert SEEN_TURNS <= len(record.seen) <= 1.5 * SEEN_TURNS
    assert keys[0] in record.seen
    assert record.is_older_than_seen(keys[1])
    assert not record.is_older_than_seen(keys[-1])


def test_table_restored_from_a_backup_lacks_the_turns_behind_its_head() -> None:
    """What a head does not know is stored again, whether or not it was logged before."""
    seen = dict.fromkeys(KEYS[:3], 1)
    record = Record(Version(9, "a"), 1, seen=seen, turns={key: turn(key, 1) for key in seen})
    restored = Record(Version(3, "a"), 1, seen={KEYS[0]: 1})
    assert missing_turns(record, restored) == {KEYS[1], KEYS[2]}
    assert missing_turns(record, Record()) == set(seen)
