"""A refusing store: no turn fails, the cause is named once, and a repair is noticed."""

import itertools
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from strands_manga_memory import RedisHotStore
from strands_manga_memory.session import TieredSessionManager
from tests import servers
from tests.faults import talk
from tests.faults.conftest import SESSION, FaultyTiers

pytestmark = pytest.mark.xdist_group("refusals")  # its servers and processes are started once


def admin(*commands: str) -> Callable[[FaultyTiers], None]:
    """Return a fault, or its repair, of an administrator's commands."""

    def execute(tiers: FaultyTiers) -> None:
        for command in commands:
            tiers.admin.execute_command(*command.split())

    return execute


KICK = "CLIENT KILL TYPE normal SKIPME yes"
"""Command that closes the connections of all clients but the administrator's."""


def drop_key(tiers: FaultyTiers) -> str:
    (key,) = tiers.admin.keys("smm:*:c:*")
    tiers.admin.delete(key)
    return str(key.decode())


def take_the_key(tiers: FaultyTiers) -> None:
    tiers.admin.set(drop_key(tiers), "somebody else's")


def deny(error: str) -> Callable[[FaultyTiers], None]:
    return lambda tiers: tiers.hot_proxy.deny(error)


def pass_again(tiers: FaultyTiers) -> None:
    tiers.hot_proxy.passing()


become_replica, become_primary = admin("REPLICAOF 127.0.0.1 1"), admin("REPLICAOF NO ONE")
become_silent_replica = admin("CONFIG SET replica-serve-stale-data no", "REPLICAOF 127.0.0.1 1")
fill_memory = admin("CONFIG SET maxmemory-policy noeviction", "CONFIG SET maxmemory 1")
allow_everything = admin("ACL SETUSER default ~* +@all")

HOT = {
    "password": (
        admin("ACL SETUSER default resetpass >rotated", KICK),
        admin("ACL SETUSER default nopass"),
        "authentication",
    ),
    "commands": (admin("ACL SETUSER default -evalsha -eval"), allow_everything, "permission"),
    "keys": (admin("ACL SETUSER default resetkeys ~other:*"), allow_everything, "permission"),
    "replica": (become_replica, become_primary, "read-only"),
    "silent replica": (become_silent_replica, become_primary, "primary"),
    "memory": (fill_memory, admin("CONFIG SET maxmemory 0"), "memory"),
    "replicas": (
        admin("CONFIG SET min-replicas-to-write 1"),
        admin("CONFIG SET min-replicas-to-write 0"),
        "replicas",
    ),
    "clients": (
        admin("CONFIG SET maxclients 1", KICK),
        admin("CONFIG SET maxclients 1000"),
        "clients",
    ),
    "type": (take_the_key, drop_key, "type"),
    "loading": (deny("LOADING server is loading the dataset in memory"), pass_again, "loading"),
    "moved": (deny("MOVED 3999 127.0.0.1:6381"), pass_again, "cluster"),
    "cluster down": (deny("CLUSTERDOWN Hash slot not served"), pass_again, "cluster"),
    "disk": (deny("MISCONF Errors writing: No space left on device"), pass_again, "disk"),
    "script": (deny("BUSY The server is busy running a script."), pass_again, "script"),
    "old login": (deny("NOAUTH Authentication required."), pass_again, "authentication"),
    "who knows": (deny("ERR proxy quota exceeded for this plan"), pass_again, "request"),
}


RESTORED = ("password", "silent replica", "memory", "loading")
"""Refusals that reach a restore in different places: at the login, at the read, at the write, and
at once.
"""


def said(agent: Any, *numbers: int) -> None:
    for number in numbers:
        assert f"t{number} answer" in str(agent(f"t{number} text"))


def warnings_of(caplog: pytest.LogCaptureFixture, reason: str) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING and f"reason=<{reason}>" in record.getMessage()
    ]


def only_warning(caplog: pytest.LogCaptureFixture, reason: str) -> str:
    """Return the one warning of a reason, which is logged just after the statistics."""
    servers.wait_until(lambda: bool(warnings_of(caplog, reason)), "the warning")
    (warning,) = warnings_of(caplog, reason)
    return warning


def whole(manager: TieredSessionManager, turns: int) -> None:
    wanted = [mark for number in range(turns) for mark in talk.wanted_marks(f"t{number}", "text")]
    assert sorted(talk.marks(manager.history("librarian")).elements()) == sorted(wanted)


def named(
    manager: TieredSessionManager, agent: Any, numbers: Iterator[int], tier: str, reason: str
) -> None:
    """Go on until the refusal is named: a machine that is busy may give no answer at first."""

    def is_named() -> bool:
        said(agent, next(numbers))
        stats = manager.stats("librarian")
        return stats[tier] == "down" and stats[f"{tier}_error"].startswith(f"{reason}: ")

    servers.wait_until(is_named, f"the name of the {tier} tier's refusal")


def up(manager: TieredSessionManager, agent: Any, numbers: Iterator[int], tier: str) -> int:
    """Go on until the tier is up; return the number of turns so far."""

    def is_up() -> bool:
        stats = manager.stats("librarian")
        return (stats[tier], stats[f"{tier}_error"], stats["unsaved_messages"]) == ("up", "", 0)

    last = next(numbers)
    said(agent, last)
    servers.wait_until(is_up, f"the {tier} tier's return")
    return last + 1


ALIKE = ("moved", "cluster down", "disk", "script", "old login", "keys", "replicas", "replica")
"""Refusals that the suite tries in one form of each kind: by the proxy in place of the server, by
permissions, and by replication.
"""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] if name in ALIKE else []) for name in HOT]
)
def test_a_hot_tier_that_refuses_fails_no_turn_and_heals(
    tiers: FaultyTiers, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    refuse, mend, reason = HOT[name]
    manager = tiers.manager()
    agent, numbers = talk.new_agent(manager), itertools.count()
    said(agent, next(numbers), next(numbers))
    refuse(tiers)
    said(agent, *itertools.islice(numbers, 4))
    named(manager, agent, numbers, "hot", reason)
    manager.flush()
    assert manager.stats("librarian")["durable"] == "up"
    assert "tier=<hot>" in only_warning(caplog, reason)

    restored = TieredSessionManager(SESSION, durable=tiers.direct())
    whole(restored, turns := next(numbers))
    said(agent, turns)
    mend(tiers)
    turns = up(manager, agent, numbers, "hot")
    manager.close()
    other = tiers.manager()
    assert talk.plain(talk.new_agent(other).messages) == talk.plain(agent.messages)
    whole(other, turns)
    whole(
        TieredSessionManager(
            SESSION, hot=RedisHotStore(tiers.valkey.client()), durable=tiers.direct()
        ),
        turns,
    )


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in RESTORED else pytest.mark.long) for name in HOT]
)
def test_an_agent_is_restored_from_the_durable_tier_while_the_hot_one_refuses(
    tiers: FaultyTiers, name: str
) -> None:
    refuse, mend, _ = HOT[name]
    first = tiers.manager()
    agent, numbers = talk.new_agent(first), itertools.count()
    said(agent, next(numbers), next(numbers))
    first.close()
    refuse(tiers)
    second = tiers.manager()
    restored = talk.new_agent(second)
    assert talk.plain(restored.messages) == talk.plain(agent.messages)
    said(restored, *itertools.islice(numbers, 2))
    mend(tiers)
    turns = up(second, restored, numbers, "hot")
    second.close()
    whole(tiers.manager(), turns)


DURABLE = {
    "ExpiredTokenException": "authentication",
    "UnrecognizedClientException": "authentication",
    "AccessDeniedException": "permission",
    "ResourceNotFoundException": "table",
    "SomethingNewException": "SomethingNewException",
}


@pytest.mark.parametrize("code", DURABLE)
@pytest.mark.parametrize("has_hot", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_durable_tier_that_refuses_fails_no_turn_and_heals(
    tiers: FaultyTiers, code: str, has_hot: bool, caplog: pytest.LogCaptureFixture
) -> None:
    manager = tiers.manager(flush_every=1, **({} if has_hot else {"hot": None}))
    agent, numbers = talk.new_agent(manager), itertools.count()
    said(agent, next(numbers), next(numbers))
    manager.flush()
    tiers.durable_proxy.refuse(code)
    said(agent, *itertools.islice(numbers, 9))

    named(manager, agent, numbers, "durable", DURABLE[code])
    assert "tier=<durable>" in only_warning(caplog, DURABLE[code])

    tiers.durable_proxy.passing()
    turns = up(manager, agent, numbers, "durable")
    manager.close()
    whole(TieredSessionManager(SESSION, durable=tiers.direct()), turns)


def test_a_refusal_is_named_once_though_some_answers_are_lost(
    tiers: FaultyTiers, caplog: pytest.LogCaptureFixture
) -> None:
    manager = tiers.manager()
    agent, numbers = talk.new_agent(manager), itertools.count()
    said(agent, next(numbers))
    tiers.hot_proxy.reset()
    said(agent, next(numbers), next(numbers))
    error = manager.stats("librarian")["hot_error"]
    assert "onnection" in error or error == "no answer"
    for _ in range(2):
        become_replica(tiers)
        tiers.hot_proxy.passing()
        named(manager, agent, numbers, "hot", "read-only")
        tiers.hot_proxy.reset()
        refused = manager.stats("librarian")["hot_error"]
        while manager.stats("librarian")["hot_error"] == refused:
            said(agent, next(numbers))
    assert len(warnings_of(caplog, "read-only")) == 1
    become_primary(tiers)
    tiers.hot_proxy.passing()
    up(manager, agent, numbers, "hot")
    manager.close()


def test_a_table_that_is_deleted_and_made_again_gets_what_the_agent_has(tiers: FaultyTiers) -> None:
    manager = tiers.manager(hot=None)
    agent, numbers = talk.new_agent(manager), itertools.count()
    said(agent, next(numbers), next(numbers))
    tiers.dynamodb.client().delete_table(TableName=tiers.table)
    said(agent, *itertools.islice(numbers, 3))
    named(manager, agent, numbers, "durable", "table")
    tiers.direct().create_if_missing()
    turns = up(manager, agent, numbers, "durable")
    manager.close()
    whole(TieredSessionManager(SESSION, durable=tiers.direct()), turns)


def test_one_record_that_is_refused_takes_no_other_session_with_it(tiers: FaultyTiers) -> None:
    manager = tiers.manager()
    agent = talk.new_agent(manager)
    said(agent, 0)
    take_the_key(tiers)
    said(agent, 1)
    hot, durable = manager._tiers.hot, manager._tiers.durable
    other = TieredSessionManager("another", hot=hot, durable=durable)
    up(other, talk.new_agent(other), itertools.count(), "hot")
    assert manager.stats("librarian")["hot"] == "down"


class Rotating(redis.CredentialProvider):
    """Gives the password that is right now; raises what it likes while there is none."""

    def __init__(self, password: str | None) -> None:
        self.password = password

    def get_credentials(self) -> tuple[str, str]:
        if self.password is None:
            raise LookupError("the token service is away")
        return "app", self.password


def test_credentials_that_cannot_be_had_for_a_while_fail_no_turn(tiers: FaultyTiers) -> None:
    tiers.admin.execute_command("ACL", "SETUSER", "app", "on", ">first", "~*", "&*", "+@all")
    credentials = Rotating("first")
    client = redis.Redis(
        port=tiers.hot_proxy.port,
        credential_provider=credentials,
        socket_timeout=10.0,
        retry=Retry(NoBackoff(), 0),
    )
    manager = tiers.manager(hot=RedisHotStore(client))
    agent, numbers = talk.new_agent(manager), itertools.count()
    said(agent, next(numbers))
    tiers.admin.execute_command("ACL", "SETUSER", "app", "resetpass", ">second")
    credentials.password = None
    admin(KICK)(tiers)
    said(agent, *itertools.islice(numbers, 3))
    named(manager, agent, numbers, "hot", "client")
    credentials.password = "second"
    turns = up(manager, agent, numbers, "hot")
    manager.close()
    whole(tiers.manager(), turns)


def test_a_server_whose_memory_is_full_is_read_all_the_same(tiers: FaultyTiers) -> None:
    manager = tiers.manager(durable=None)
    agent = talk.new_agent(manager)
    said(agent, 0, 1)
    fill_memory(tiers)
    assert talk.plain(talk.new_agent(tiers.manager(durable=None)).messages) == talk.plain(
        agent.messages
    )
