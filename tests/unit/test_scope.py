"""Storage ids: escaped, and never the same for two scopes."""

import re
from itertools import product
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strands_manga_memory.scope import MAX_ENCODED_BYTES, ConversationScope, encoded_id
from strands_manga_memory.session.tiers import ConversationKey
from tests.unit.session.support import NASTY

IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=1024).filter(str.strip)
AWKWARD = st.text(":%!/.~#*?[]{}a日", min_size=1, max_size=4)
SCOPES = st.builds(
    ConversationScope, IDS | AWKWARD, IDS | AWKWARD, IDS | AWKWARD, tenant=st.none() | IDS | AWKWARD
)


def place(scope: ConversationScope) -> tuple[str | None, str, str]:
    return scope.tenant, scope.user_id, scope.session_id


@given(SCOPES, SCOPES)
@example(ConversationScope("a:b", "c"), ConversationScope("a", "b:c"))
@example(ConversationScope("b", "c", tenant="a"), ConversationScope("a:b", "c"))
@example(ConversationScope("%3A", "c"), ConversationScope(":", "c"))
@example(ConversationScope("a" * 201, "s"), ConversationScope("a" * 202, "s"))
def test_no_scopes_share_a_storage_id(one: ConversationScope, other: ConversationScope) -> None:
    assert (one.storage_session_id == other.storage_session_id) == (place(one) == place(other))
    assert (one.storage_user_id == other.storage_user_id) == (place(one)[:2] == place(other)[:2])


@given(SCOPES)
def test_storage_ids_are_safe_in_every_store(scope: ConversationScope) -> None:
    for storage_id in (scope.storage_session_id, scope.storage_user_id):
        assert re.fullmatch(r"[A-Za-z0-9_.~%!:-]+", storage_id)
        assert len(storage_id) <= 3 * MAX_ENCODED_BYTES + 2


def test_a_long_id_is_never_the_encoding_of_a_short_one() -> None:
    long = encoded_id("a" * 500)

    assert long.startswith("a" * 96 + "!")
    assert len(long) <= MAX_ENCODED_BYTES
    assert encoded_id(long) != long
    assert encoded_id("!") == "%21"


@pytest.mark.parametrize("name", ["user_id", "session_id", "agent_id", "tenant"])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "must not be empty, got ''"),
        (" \n", "must not be empty, got ' "),
        ("a" * 1025, "must have at most 1024 characters, got 1025"),
        (7, "must be a text( or None)?, got 7"),
        (b"a", "must be a text( or None)?, got b'a'"),
        ("\ud83d", "must be valid Unicode"),
    ],
)
def test_a_bad_id_fails_at_construction(name: str, value: object, message: str) -> None:
    ids = {"user_id": "u", "session_id": "s", "agent_id": "a", "tenant": "t", name: value}

    with pytest.raises(ValueError, match=f"^{name} {message}"):
        ConversationScope(**ids)


def test_no_tenant_is_a_tenant_of_its_own() -> None:
    assert ConversationScope("u", "s").storage_session_id == ":u:s"
    assert ConversationScope("u", "s", tenant="t").storage_session_id == "t:u:s"


@pytest.mark.parametrize("value", [" " * 10**6, "a" * 10**6, ["a"] * 10**6])
def test_an_id_of_a_million_letters_makes_a_short_error(value: Any) -> None:
    with pytest.raises(ValueError, match="user_id") as refused:
        ConversationScope(value, "s")
    assert len(str(refused.value)) < 300


def turn_key(conversation_key: Any) -> str:
    return f"{conversation_key.member}#TURN#{10**12 - 1:012d}#{10**12 - 1:012d}-{'f' * 10}"


def log_range(conversation_key: Any) -> tuple[str, str]:
    return f"{conversation_key.member}#TURN#", f"{conversation_key.member}#TURN#\U0010ffff"


def test_places_are_injective() -> None:
    ids = [*NASTY, "a:A", "M:a", "A:a", "~", "a#LOG#000000000001"]
    places: dict[Any, Any] = {}
    for session, kind, id_ in product(ids, ("A", "M"), ids):
        conversation_key = ConversationKey.of(encoded_id(session), kind, id_)
        assert places.setdefault(conversation_key.name, (session, kind, id_)) == (
            session,
            kind,
            id_,
        )
        assert ConversationKey.parse(conversation_key.name) == conversation_key
        first, last = log_range(conversation_key)
        assert first <= turn_key(conversation_key) < f"{turn_key(conversation_key)}~001.x" <= last
        assert not first <= f"{conversation_key.member}#HEAD" <= last
    one = ConversationKey.of("s", "A", "a")
    for id_ in ids:
        if id_ != "a":
            other = ConversationKey.of("s", "A", id_)
            first, last = log_range(one)
            assert not first <= f"{other.member}#HEAD" <= last
            assert not first <= turn_key(other) <= last
