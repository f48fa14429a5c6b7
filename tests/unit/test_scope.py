"""Storage ids: escaped, and never the same for two scopes."""

import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strands_manga_memory.scope import MAX_ENCODED_BYTES, ConversationScope, encoded_id

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
        (7, "must be a string, got int: 7"),
        (b"a", "must be a string, got bytes"),
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
