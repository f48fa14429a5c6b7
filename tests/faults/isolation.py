"""Isolation campaign: scopes with ids that are made to collide.

Run it for long with ``python -m tests.faults.isolation --pairs 5000000 --seed 1``. The exit status
is 1 after a collision.
"""

import argparse
import random
import sys
from collections.abc import Iterator, Mapping

from rich.progress import track

from strands_manga_memory import ConversationScope
from strands_manga_memory.memory import Owner
from strands_manga_memory.memory.hot_profile import cache_name
from strands_manga_memory.memory.preference_log import bucket_of
from strands_manga_memory.memory.records import preference_id, storage_key_of
from strands_manga_memory.scope import encoded_id, tenant_of
from strands_manga_memory.session.tiers import ConversationKey, directory_entry, due_key
from strands_manga_memory.state.session_state import SessionState
from strands_manga_memory.stores.table import Key

_BATCH = 1_000
"""Scopes that are compared with one another: 499,500 pairs."""

_PIECES = [*":/%#~!.-_ *?[]{}|\\\0\n", "a", "A", "日", "é", "e\u0301", "%3A", "%2F", "%25"]
_PIECES += ["user", "keys", "ended", "A:default", "#HEAD"]

Names = Mapping[tuple[str, str], object]
"""What is kept where: (store, name) and whose it is."""


def ids(rng: random.Random) -> str:
    """Return an id of characters in names, now and then a long id that is hashed."""
    id_ = "".join(rng.choices(_PIECES, k=rng.randrange(1, 6)))
    if rng.random() < 0.1:
        id_ = (id_ * 300)[: rng.randrange(190, 700)]
    return id_ if id_.strip() else "x"


def related(scope: ConversationScope, rng: random.Random) -> ConversationScope:
    """Return a scope whose ids are those of another one, moved, joined, cut or encoded."""
    user, session, agent, tenant = scope.user_id, scope.session_id, scope.agent_id, scope.tenant
    joined = f"{user}:{session}"
    choices = [
        (session, user, agent, tenant),
        (user, agent, session, tenant),
        (joined[:1000], session, agent, tenant),
        (user, joined[:1000], agent, None),
        (encoded_id(user)[:1000], session, agent, tenant),
        (user, encoded_id(session)[:1000], agent, tenant),
        (user, session, f"{agent}#HEAD"[:1000], tenant),
        (user, session, agent, None if tenant else user),
        (f"{tenant}:{user}"[:1000], session, agent, None),
        (user[:-1] or "y", session, agent, tenant),
        (user.swapcase(), session, agent, tenant),
        (user, session, agent, f"{tenant or ''}:"[:1000]),
    ]
    found = rng.choice(choices)
    user, session, agent = (id_ if id_.strip() else "x" for id_ in found[:3])
    return ConversationScope(
        user, session, agent, tenant=found[3] if found[3] is None or found[3].strip() else "x"
    )


def scopes(rng: random.Random, count: int) -> Iterator[ConversationScope]:
    """Yield scopes, most of which have to do with earlier ones."""
    made = [ConversationScope("u", "s")]
    while len(made) <= count:
        if rng.random() < 0.3:
            scope = ConversationScope(
                ids(rng), ids(rng), ids(rng), tenant=ids(rng) if rng.random() < 0.7 else None
            )
        else:
            scope = related(rng.choice(made), rng)
        made.append(scope)
        yield scope


def names(scope: ConversationScope) -> Names:
    """Return every name under which a part of a scope is kept, with its owner's ids."""
    session, user = scope.storage_session_id, (scope.tenant, scope.user_id)
    conversation_key, owner = (
        ConversationKey.of(session, "A", scope.agent_id),
        Owner(scope.user_id, scope.tenant),
    )
    whole, of_session = (*user, scope.session_id, scope.agent_id), (*user, scope.session_id)
    listed = directory_entry(session, {"user": scope.user_id, "tenant": scope.tenant})
    directory = listed["session_id"], listed["sk"]
    return {
        ("table", session): of_session,
        **{("table", "/".join(key)): whole for key in keys_of(conversation_key)},
        ("table", directory[0]): ("directory", *user),
        ("table", "/".join(directory)): ("directory", *of_session),
        ("table", due_key(conversation_key)[0]): ("due", *whole),
        ("table", f"keys/{encoded_id(scope.tenant or '')}"): ("keys", scope.tenant or ""),
        ("hot", conversation_key.name): whole,
        ("hot", cache_name(owner)): ("cache", *user),
        ("hot", f"environment/{session}"): ("environment", *of_session),
        ("hot", ConversationKey.of(session, "M", scope.agent_id).name): ("graph", *whole),
        ("users", owner.partition): user,
        ("users", storage_key_of(owner, preference_id(scope.agent_id))): (
            *user,
            " ".join(scope.agent_id.casefold().split()),
        ),
        ("users", f"{bucket_of(owner)}/{owner.partition}"): ("spool", *user),
        # A session that goes by a plain id, and one of a scope, are never the same.
        ("table", encoded_id(scope.session_id)): ("plain", scope.session_id),
        **{
            ("table", "/".join(key)): ("plain", scope.session_id, scope.agent_id)
            for key in keys_of(
                ConversationKey.of(encoded_id(scope.session_id), "A", scope.agent_id)
            )
        },
    }


def keys_of(conversation_key: ConversationKey) -> list[Key]:
    """Return the keys of a conversation's head and of a turn of its log."""
    return [
        (conversation_key.session, f"{conversation_key.member}{suffix}")
        for suffix in ("#HEAD", f"#TURN#{1:012d}#{1:012d}-{'f' * 10}")
    ]


def collisions(rng: random.Random, count: int) -> Iterator[str]:
    """Yield names that two of ``count`` scopes share, and keys of another tenant."""
    owners: dict[tuple[str, str], object] = {}
    for scope in scopes(rng, count):
        tenant = "" if scope.tenant is None else encoded_id(scope.tenant)
        for name, owner in names(scope).items():
            known = owners.setdefault(name, owner)
            if known != owner:
                yield f"{name} is shared by {known!r} and {owner!r}"
        for conversation_key in sealed_places(scope):
            if tenant_of(conversation_key) != tenant:
                yield (
                    f"{conversation_key!r} of the tenant {scope.tenant!r} would get a key of"
                    f" {tenant_of(conversation_key)!r}"
                )
        yield from outside_range(scope)


def sealed_places(scope: ConversationScope) -> list[str]:
    """Return the places of a scope's encrypted values."""
    session, owner = scope.storage_session_id, Owner(scope.user_id, scope.tenant)
    conversation_key = ConversationKey.of(session, "A", scope.agent_id)
    return [
        *("/".join(key) for key in keys_of(conversation_key)),
        f"{conversation_key.name}#head",
        f"{cache_name(owner)}#state",
        SessionState.name_of(scope),
        storage_key_of(owner, preference_id(scope.agent_id)),
    ]


def outside_range(scope: ConversationScope) -> Iterator[str]:
    """Yield other agents' records in the key range that deleting this scope's log removes."""
    conversation_key = ConversationKey.of(scope.storage_session_id, "A", scope.agent_id)
    first, last = f"{conversation_key.member}#TURN#", f"{conversation_key.member}#TURN#\U0010ffff"
    for suffix in ("", "#", "~", "#HEAD", "#TURN#", ":", " ", "0", "%"):
        other = ConversationKey.of(
            scope.storage_session_id, "A", f"{scope.agent_id}{suffix}"[:1024]
        )
        for key in keys_of(other) if other.member != conversation_key.member else ():
            if first <= key[1] <= last:
                yield f"{key!r} lies within {first!r} to {last!r}"


def pairs(wanted: int, seed: int) -> tuple[int, list[str]]:
    """Compare at least ``wanted`` pairs of scopes; return how many, and what was found."""
    each = _BATCH * (_BATCH - 1) // 2
    batches, found = -(-wanted // each), []
    for batch in track(
        range(batches), description="ids", transient=True, disable=not sys.stderr.isatty()
    ):
        found += [
            f"seed={seed} batch={batch} {what}"
            for what in collisions(random.Random(f"{seed} {batch}"), _BATCH)
        ]
    return batches * each, found


def main() -> int:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.isolation", description=__doc__)
    parser.add_argument("--pairs", type=int, default=5_000_000, help="compared pairs of scopes")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    compared, found = pairs(options.pairs, options.seed)
    print(f"{compared:,} pairs compared, {len(found)} collisions")
    for what in found[:20]:
        print(what)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
