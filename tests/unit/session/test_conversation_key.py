"""Storage keys of conversations do not overlap, whatever the ids are."""

from itertools import product
from typing import Any

from strands_manga_memory.scope import encoded_id
from strands_manga_memory.session.tiers import ConversationKey
from tests.unit.session.support import NASTY


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
