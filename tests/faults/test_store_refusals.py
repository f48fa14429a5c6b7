"""A store that answers and refuses: no turn fails, the cause is counted and named once, and it heals when it is mended."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
import redis

from strands_manga_memory import RedisHotStore
from strands_manga_memory.session import TieredSessionManager
from strands_manga_memory.stores import open_hot_store, open_table
from tests import servers
from tests.faults import talk

pytestmark = pytest.mark.xdist_group("refusals")  # its servers and processes are started once

_ids = itertools.count(1)
_SESSION = "refused"


@dataclass
class Shop:
    """A Valkey and a table of one's own, each behind a proxy; ``admin`` may always do everything."""

    valkey: servers.Valkey
    hot_proxy: servers.FaultyProxy
    durable_proxy: servers.FaultyProxy
    dynamodb: servers.DynamoDB
    table: str
    stack: ExitStack
    login: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        with self.valkey.client() as client:
            client.execute_command("ACL", "SETUSER", "admin", "on", ">admin", "~*", "&*", "+@all")
        self.admin = self.stack.enter_context(self.valkey.client(username="admin", password="admin"))
        self.admin.ping()

    def manager(self, **settings: Any) -> TieredSessionManager:
        settings.setdefault("hot", open_hot_store(f"redis://127.0.0.1:{self.hot_proxy.port}/0?socket_timeout=0.4"))
        settings.setdefault("durable", self.durable())
        return TieredSessionManager(_SESSION, **settings)

    def durable(self) -> Any:
        endpoint = f"http://127.0.0.1:{self.durable_proxy.port}"
        table = open_table(f"dynamodb://{self.table}?region=us-east-1&endpoint={endpoint}")
        self.stack.callback(table.close)
        return table

    def direct(self) -> Any:
        table = open_table(self.dynamodb.table_url(self.table))
        self.stack.callback(table.close)
        return table

    def kick(self) -> None:
        """Cut every client but the administrator off, so that each has to log in again."""
        self.admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    def drop_key(self) -> str:
        (key,) = self.admin.keys("smm:*:c:*")
        self.admin.delete(key)
        return key.decode()


@pytest.fixture
def shop(dynamodb_server: servers.DynamoDB) -> Iterator[Shop]:
    with ExitStack() as stack:
        valkey = stack.enter_context(servers.valkey())
        hot_proxy = stack.enter_context(servers.FaultyProxy(valkey.host, valkey.port))
        durable_proxy = stack.enter_context(servers.FaultyProxy(dynamodb_server.host, dynamodb_server.port))
        made = Shop(valkey, hot_proxy, durable_proxy, dynamodb_server, f"refusals_{next(_ids)}", stack)
        made.direct().create_if_missing()
        yield made


def rotate_password(shop: Shop) -> None:
    shop.admin.execute_command("ACL", "SETUSER", "default", "resetpass", ">rotated")
    shop.kick()


def restore_password(shop: Shop) -> None:
    shop.admin.execute_command("ACL", "SETUSER", "default", "nopass")


def forbid_scripts(shop: Shop) -> None:
    shop.admin.execute_command("ACL", "SETUSER", "default", "-evalsha", "-eval")


def forbid_keys(shop: Shop) -> None:
    shop.admin.execute_command("ACL", "SETUSER", "default", "resetkeys", "~other:*")


def allow_everything(shop: Shop) -> None:
    shop.admin.execute_command("ACL", "SETUSER", "default", "~*", "+@all")


def become_replica(shop: Shop) -> None:
    shop.admin.execute_command("REPLICAOF", "127.0.0.1", "1")


def become_silent_replica(shop: Shop) -> None:
    shop.admin.config_set("replica-serve-stale-data", "no")
    become_replica(shop)


def become_primary(shop: Shop) -> None:
    shop.admin.execute_command("REPLICAOF", "NO", "ONE")


def fill_memory(shop: Shop) -> None:
    shop.admin.config_set("maxmemory-policy", "noeviction")
    shop.admin.config_set("maxmemory", 1)


def free_memory(shop: Shop) -> None:
    shop.admin.config_set("maxmemory", 0)


def want_replicas(shop: Shop) -> None:
    shop.admin.config_set("min-replicas-to-write", 1)


def want_no_replicas(shop: Shop) -> None:
    shop.admin.config_set("min-replicas-to-write", 0)


def limit_clients(shop: Shop) -> None:
    shop.admin.config_set("maxclients", 1)
    shop.kick()


def allow_clients(shop: Shop) -> None:
    shop.admin.config_set("maxclients", 1000)


def take_the_key(shop: Shop) -> None:
    shop.admin.set(shop.drop_key(), "somebody else's")


def give_the_key_back(shop: Shop) -> None:
    shop.drop_key()


def deny(error: str) -> Callable[[Shop], None]:
    return lambda shop: shop.hot_proxy.deny(error)


def pass_again(shop: Shop) -> None:
    shop.hot_proxy.passing()


HOT = {
    "password": (rotate_password, restore_password, "authentication"),
    "commands": (forbid_scripts, allow_everything, "permission"),
    "keys": (forbid_keys, allow_everything, "permission"),
    "replica": (become_replica, become_primary, "read-only"),
    "silent replica": (become_silent_replica, become_primary, "primary"),
    "memory": (fill_memory, free_memory, "memory"),
    "replicas": (want_replicas, want_no_replicas, "replicas"),
    "clients": (limit_clients, allow_clients, "clients"),
    "type": (take_the_key, give_the_key_back, "type"),
    "loading": (deny("LOADING server is loading the dataset in memory"), pass_again, "loading"),
    "moved": (deny("MOVED 3999 127.0.0.1:6381"), pass_again, "cluster"),
    "cluster down": (deny("CLUSTERDOWN Hash slot not served"), pass_again, "cluster"),
    "disk": (deny("MISCONF Errors writing to the AOF file: No space left on device"), pass_again, "disk"),
    "script": (deny("BUSY The server is busy running a script."), pass_again, "script"),
    "old login": (deny("NOAUTH Authentication required."), pass_again, "authentication"),
    "who knows": (deny("ERR proxy quota exceeded for this plan"), pass_again, "request"),
}


RESTORED = ("password", "silent replica", "memory", "loading")
"""Refusals that reach a restore in different places: at the login, at the read, at the write, and at once."""


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
    """Return the one warning of a reason, which is logged a moment after the statistics name the reason."""
    servers.wait_until(lambda: bool(warnings_of(caplog, reason)), "the warning")
    (warning,) = warnings_of(caplog, reason)
    return warning


def whole(manager: TieredSessionManager, turns: int) -> None:
    wanted = [mark for number in range(turns) for mark in talk.wanted_marks(f"t{number}", "text")]
    assert sorted(talk.marks(manager.history("librarian")).elements()) == sorted(wanted)


def named(manager: TieredSessionManager, agent: Any, numbers: Iterator[int], tier: str, reason: str) -> None:
    """Go on until the refusal is named: a machine that is busy may give no answer at first."""

    def is_named() -> bool:
        said(agent, next(numbers))
        stats = manager.stats("librarian")
        return stats[tier] == "down" and stats[f"{tier}_error"].startswith(f"{reason}: ")  # type: ignore[literal-required]

    servers.wait_until(is_named, f"the name of the {tier} tier's refusal", within=20)


def up(manager: TieredSessionManager, agent: Any, numbers: Iterator[int], tier: str) -> int:
    """Go on until the tier is up; return the number of turns so far."""

    def is_up() -> bool:
        stats = manager.stats("librarian")
        error = stats[f"{tier}_error"]  # type: ignore[literal-required]
        return (stats[tier], error, stats["unsaved_messages"]) == ("up", "", 0)  # type: ignore[literal-required]

    last = next(numbers)
    said(agent, last)
    servers.wait_until(is_up, f"the {tier} tier's return", within=20)
    return last + 1


@pytest.mark.parametrize("name", HOT)
def test_a_hot_tier_that_refuses_fails_no_turn_and_heals(shop: Shop, name: str, caplog: pytest.LogCaptureFixture) -> None:
    refuse, mend, reason = HOT[name]
    manager = shop.manager()
    agent, numbers = talk.new_agent(manager), itertools.count()
    said(agent, next(numbers), next(numbers))
    refuse(shop)
    said(agent, *itertools.islice(numbers, 4))
    named(manager, agent, numbers, "hot", reason)
    manager.flush()
    assert manager.stats("librarian")["durable"] == "up"
    warning = only_warning(caplog, reason)
    assert "tier=<hot>" in warning
    assert manager.stats("librarian")["hot_failures"] >= 1

    restored = TieredSessionManager(_SESSION, durable=shop.direct())
    whole(restored, turns := next(numbers))
    said(agent, turns)
    mend(shop)
    turns = up(manager, agent, numbers, "hot")
    manager.close()
    other = shop.manager()
    assert talk.plain(talk.new_agent(other).messages) == talk.plain(agent.messages)
    whole(other, turns)
    whole(TieredSessionManager(_SESSION, hot=RedisHotStore(shop.valkey.client()), durable=shop.direct()), turns)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in RESTORED else pytest.mark.long) for name in HOT])
def test_an_agent_is_restored_from_the_durable_tier_while_the_hot_one_refuses(shop: Shop, name: str) -> None:
    refuse, mend, _ = HOT[name]
    first = shop.manager()
    agent, numbers = talk.new_agent(first), itertools.count()
    said(agent, next(numbers), next(numbers))
    first.close()
    refuse(shop)
    second = shop.manager()
    restored = talk.new_agent(second)
    assert talk.plain(restored.messages) == talk.plain(agent.messages)
    said(restored, *itertools.islice(numbers, 2))
    mend(shop)
    turns = up(second, restored, numbers, "hot")
    second.close()
    whole(shop.manager(), turns)


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
    shop: Shop, code: str, has_hot: bool, caplog: pytest.LogCaptureFixture
) -> None:
    manager = shop.manager(flush_every=1, **({} if has_hot else {"hot": None}))
    agent, numbers = talk.new_agent(manager), itertools.count()
    said(agent, next(numbers), next(numbers))
    manager.flush()
    shop.durable_proxy.refuse(code)
    said(agent, *itertools.islice(numbers, 9))

    named(manager, agent, numbers, "durable", DURABLE[code])
    assert manager.stats("librarian")["durable_failures"] >= 1
    warning = only_warning(caplog, DURABLE[code])
    assert "tier=<durable>" in warning

    shop.durable_proxy.passing()
    turns = up(manager, agent, numbers, "durable")
    manager.close()
    whole(TieredSessionManager(_SESSION, durable=shop.direct()), turns)


def test_a_refusal_is_named_once_though_some_answers_are_lost(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    manager = shop.manager()
    agent, numbers = talk.new_agent(manager), itertools.count()
    said(agent, next(numbers))
    shop.hot_proxy.reset()
    said(agent, next(numbers), next(numbers))
    error = manager.stats("librarian")["hot_error"]
    assert "onnection" in error or error == "no answer"
    for _ in range(2):
        become_replica(shop)
        shop.hot_proxy.passing()
        named(manager, agent, numbers, "hot", "read-only")
        shop.hot_proxy.reset()
        failures = manager.stats("librarian")["hot_failures"]
        while manager.stats("librarian")["hot_failures"] == failures:
            said(agent, next(numbers))
    assert len(warnings_of(caplog, "read-only")) == 1
    become_primary(shop)
    shop.hot_proxy.passing()
    up(manager, agent, numbers, "hot")
    manager.close()


def test_a_table_that_is_deleted_and_made_again_gets_what_the_agent_has(shop: Shop) -> None:
    manager = shop.manager(hot=None)
    agent, numbers = talk.new_agent(manager), itertools.count()
    said(agent, next(numbers), next(numbers))
    shop.dynamodb.client().delete_table(TableName=shop.table)
    said(agent, *itertools.islice(numbers, 3))
    named(manager, agent, numbers, "durable", "table")
    shop.direct().create_if_missing()
    turns = up(manager, agent, numbers, "durable")
    manager.close()
    whole(TieredSessionManager(_SESSION, durable=shop.direct()), turns)


def test_one_record_that_is_refused_takes_no_other_session_with_it(shop: Shop) -> None:
    manager = shop.manager()
    agent = talk.new_agent(manager)
    said(agent, 0)
    take_the_key(shop)
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


def test_credentials_that_cannot_be_had_for_a_while_fail_no_turn(shop: Shop) -> None:
    from strands_manga_memory.stores.redis_hot_store import redis_client

    shop.admin.execute_command("ACL", "SETUSER", "app", "on", ">first", "~*", "&*", "+@all")
    credentials = Rotating("first")
    client = redis_client([("127.0.0.1", shop.hot_proxy.port)], credential_provider=credentials)
    manager = shop.manager(hot=RedisHotStore(client))
    agent, numbers = talk.new_agent(manager), itertools.count()
    said(agent, next(numbers))
    shop.admin.execute_command("ACL", "SETUSER", "app", "resetpass", ">second")
    credentials.password = None
    shop.kick()
    said(agent, *itertools.islice(numbers, 3))
    named(manager, agent, numbers, "hot", "client")
    credentials.password = "second"
    turns = up(manager, agent, numbers, "hot")
    manager.close()
    whole(shop.manager(), turns)


def test_a_server_whose_memory_is_full_is_read_all_the_same(shop: Shop) -> None:
    manager = shop.manager(durable=None)
    agent = talk.new_agent(manager)
    said(agent, 0, 1)
    fill_memory(shop)
    assert talk.plain(talk.new_agent(shop.manager(durable=None)).messages) == talk.plain(agent.messages)
