"""The codec: bytes that come back unharmed, or an error that names the record."""

import json
import math
import os
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strands_manga_memory import Codec
from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.stores.codec import MAX_LEVELS, VERSION, dump, is_json, json_bytes, load

PLACE = "u:s/agent/head"
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


class Reversing:
    """A cipher good enough to see whether the codec uses it."""

    def encrypt(self, data: bytes, place: str) -> bytes:
        return place.encode() + data[::-1]

    def decrypt(self, data: bytes, place: str) -> bytes:
        if not data.startswith(place.encode()):
            raise ValueError("wrong place")
        return data[len(place.encode()) :][::-1]


@given(JSON)
def test_values_come_back(value: Any) -> None:
    for codec in (Codec(), Codec(compress_from=0), Codec(cipher=Reversing())):
        assert codec.decode(codec.encode(value, PLACE), PLACE) == value


@pytest.mark.parametrize(
    "value",
    [
        b"",
        {"\0bytes": "not bytes"},
        {"\0bytes": b"bytes", "\0\0x": b"", "plain": {"\0": [b"\0"]}},
        {"image": {"source": {"bytes": bytes(range(256))}}, "text": "日本\ud83d"},
        [{"$bytes": b"x"}, "\ud83d"],
        [True, 1, 1.0, None, "1"],
    ],
)
def test_odd_values_come_back_with_their_types(value: Any) -> None:
    back = load(dump(value))
    assert back == value
    assert json.dumps(back, default=repr) == json.dumps(value, default=repr)


@pytest.mark.parametrize("beside", [None, b"bytes", "half \ud83d"])
@pytest.mark.parametrize(
    "number",
    [
        2**63 - 1, -(2**63), 2**63, 2**64, -(10**400), 0.1, -0.0, 5e-324, 1.7976931348623157e308,
        1e16, math.inf, -math.inf, math.nan,
    ],
)  # fmt: skip
def test_every_number_comes_back_as_it_was(number: float, beside: Any) -> None:
    back = load(dump({"number": [number], "beside": beside}))
    assert repr(back["number"]) == repr([number])
    assert back["beside"] == beside


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ({"source": {"bytes": b"\xff\xd8"}}, b'{"source":{"bytes":{"$bytes":"/9g="}}}'),
        ({"$bytes": "/9g="}, b'{"$$bytes":"/9g="}'),
        ({"$$other": [2**64]}, b'{"$$$other":[{"$int":"10000000000000000"}]}'),
        ({"$bytes": "/9g=", "size": 2}, b'{"$bytes":"/9g=","size":2}'),
    ],
)
def test_bytes_are_stored_as_an_object_and_an_object_of_that_form_is_escaped(
    value: Any, stored: bytes
) -> None:
    assert dump(value) == stored
    assert load(stored) == value


@pytest.mark.parametrize(
    ("value", "back"),
    [
        ((1, {"b", "a"}, frozenset({2})), [1, ["a", "b"], [2]]),
        ({5: 1, None: 2, (1, 2): 3}, {"5": 1, "None": 2, "(1, 2)": 3}),
        (
            [date(2026, 1, 2), datetime(2026, 1, 2, 3, 4), Decimal("1.10")],
            ["2026-01-02", "2026-01-02 03:04:00", "1.10"],
        ),
        (Path("/a"), "/a"),
    ],
)
def test_values_that_json_lacks_are_converted(value: Any, back: Any) -> None:
    assert load(dump(value)) == back
    assert load(dump({"in": [value], "beside": b""})) == {"in": [back], "beside": b""}


@pytest.mark.parametrize(
    "broken", [b'{"$bytes":5}', b'{"$int":null}', b'{"$float":"x"}', b'{"$other":""}']
)
def test_an_object_of_an_unknown_form_is_damaged(broken: bytes) -> None:
    with pytest.raises(CorruptRecordError, match="record='x' is damaged"):
        Codec().decode(Codec().seal(broken, "x"), "x")


def test_what_is_no_value_is_stored_as_its_text(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING"):
        assert load(dump({"a": [Path("/secret")], "b": b"x"})) == {"a": ["/secret"], "b": b"x"}
    assert "type=<PosixPath>" in caplog.text
    assert "secret" not in caplog.text


def test_a_value_under_1_kb_can_be_read_in_the_store() -> None:
    message = {
        "role": "user",
        "content": [{"text": "届け先を変更したいのですが、まだ間に合いますか。" * 10}],
    }
    assert json_bytes(message) in Codec().encode(message, PLACE)


def test_long_values_are_compressed_unless_that_is_of_no_use() -> None:
    assert (
        len(Codec().encode("a" * 10_000, PLACE)) < 700
    )  # padded: it would pass for a decompression bomb
    assert len(Codec().seal(b"a" * 1_023, PLACE)) == 1_023 + 7
    assert len(Codec().seal(b"a" * 2_048, PLACE)) < 200
    noise = os.urandom(3_000)
    assert len(Codec().seal(noise, PLACE)) == 3_000 + 7


@pytest.mark.parametrize("value", ["short", "long " * 200, b"\0" * 40])
@pytest.mark.parametrize("cipher", [None, Reversing()])
def test_every_flipped_bit_is_noticed(value: Any, cipher: Reversing | None) -> None:
    codec = Codec(cipher=cipher)
    sealed = codec.encode(value, PLACE)
    for position in range(len(sealed) * 8):
        flipped = bytearray(sealed)
        flipped[position // 8] ^= 1 << position % 8
        with pytest.raises(CorruptRecordError) as caught:
            codec.decode(bytes(flipped), PLACE)
        assert caught.value.record == PLACE
        assert PLACE in str(caught.value)


def test_every_cut_is_noticed() -> None:
    sealed = Codec().encode("a value", PLACE)
    for length in range(len(sealed)):
        with pytest.raises(CorruptRecordError):
            Codec().decode(sealed[:length], PLACE)


@pytest.mark.parametrize("data", [None, "text", b"", b"{}", 7])
def test_what_was_never_sealed_is_corrupt_not_empty(data: object) -> None:
    with pytest.raises(CorruptRecordError, match="no valid header"):
        Codec().decode(data, PLACE)


def test_a_value_moved_elsewhere_is_refused() -> None:
    sealed = Codec().encode("a value", PLACE)
    with pytest.raises(CorruptRecordError, match="other") as caught:
        Codec().decode(sealed, "other")
    assert caught.value.record == "other"


@pytest.mark.parametrize(
    ("version", "advice"), [(VERSION + 1, "; upgrade the package$"), (VERSION - 1, "$")]
)
def test_another_version_is_refused_and_says_so(version: int, advice: str) -> None:
    sealed = bytearray(Codec().encode("a value", PLACE))
    sealed[1] = version
    with pytest.raises(
        CorruptRecordError, match=f"version {version}, this package reads {VERSION}{advice}"
    ):
        Codec().decode(bytes(sealed), PLACE)


def test_an_encrypted_value_needs_its_cipher() -> None:
    sealed = Codec(cipher=Reversing()).encode("a value", PLACE)
    assert b"a value" not in sealed
    with pytest.raises(CorruptRecordError, match="no cipher was given"):
        Codec().decode(sealed, PLACE)


def test_sealed_bytes_that_are_no_value_are_corrupt() -> None:
    sealed = Codec().seal(b"{broken", PLACE)
    with pytest.raises(CorruptRecordError, match="is damaged"):
        Codec().decode(sealed, PLACE)
    assert Codec().unseal(sealed, PLACE) == b"{broken"


@pytest.mark.parametrize("beside", [[], [[]] * 200, b"bytes"])
def test_values_are_stored_up_to_100_levels_and_deeper_ones_as_text(beside: Any) -> None:
    """Strands fails in every turn over a message of 900 levels, which orjson reads."""
    for levels in range(MAX_LEVELS - 3, MAX_LEVELS + 4):
        value: Any = beside
        for _ in range(levels):
            value = [value]
        back = load(dump(value))
        assert dump(back) == dump(value)
        assert (back == value) == (levels < MAX_LEVELS - (beside == [[]] * 200)), levels
        if not is_json(value) and isinstance(beside, list) and beside:
            with pytest.raises(ValueError, match=f"has over {MAX_LEVELS} levels"):
                load(json_bytes(value))


@pytest.mark.parametrize("levels", [1_000, 100_000])
def test_a_value_of_any_depth_can_be_stored(levels: int) -> None:
    value: Any = {"at": 1}
    for _ in range(levels):
        value = [value]
    assert dump(load(dump(value))) == dump(value)
    while isinstance(value, list):  # otherwise freed by the C stack
        value = value.pop()


def test_a_container_in_itself_is_stored_as_its_text() -> None:
    again: list[Any] = [b""]
    again += [again, again]
    assert load(dump(again)) == [b"", "[b'', [...], [...]]", "[b'', [...], [...]]"]


def test_a_value_that_holds_itself_twice_is_judged_in_bounded_time() -> None:
    again: list[Any] = []
    again += [again, again]
    shared: list[Any] = []
    for _ in range(90):
        shared = [shared, shared]
    assert not is_json(again)
    assert is_json(shared)
