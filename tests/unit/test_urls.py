"""URLs of stores: what they open, and how they refuse."""

from pathlib import Path
from typing import Any

import pytest
import redis
from botocore.exceptions import EndpointConnectionError

from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.stores import (
    USER_MEMORY,
    DynamoDBTable,
    InMemoryHotStore,
    RedisHotStore,
    SQLiteTable,
    open_hot_store,
    open_table,
)
from tests import servers

# Tables


def test_sqlite_paths_are_relative_with_three_slashes_and_absolute_with_four(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for url, path in {
        "sqlite:///data/manga.db": tmp_path / "data/manga.db",
        f"sqlite:///{tmp_path}/manga.db": tmp_path / "manga.db",
        "sqlite:///a%20b%23c%3F.db": tmp_path / "a b#c?.db",
    }.items():
        table = open_table(url)
        assert isinstance(table, SQLiteTable)
        assert table.path == path
        assert not path.exists()


UNREACHABLE: Any = "dynamodb://turns?region=eu-central-1&endpoint=http://127.0.0.1:1"


def test_dynamodb_clients_are_made_as_published() -> None:
    table = open_table(
        "dynamodb://Manga_Memory.v1?region=eu-central-1&endpoint=http://127.0.0.1:4566"
    )
    assert isinstance(table, DynamoDBTable)
    meta = table.client.meta
    assert (table.name, meta.region_name, meta.endpoint_url) == (
        "Manga_Memory.v1",
        "eu-central-1",
        "http://127.0.0.1:4566",
    )
    config: Any = meta.config
    assert config.retries["total_max_attempts"] == 1
    assert (config.connect_timeout, config.read_timeout, config.max_pool_connections) == (2, 1, 50)
    assert config.tcp_keepalive


def test_user_agent_of_dynamodb_names_this_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SDK_UA_APP_ID", "shop")
    client = open_table(UNREACHABLE).client
    sent: list[dict[str, Any]] = []
    client.meta.events.register_last(
        "before-send.dynamodb", lambda request, **_: sent.append(dict(request.headers))
    )
    with pytest.raises(EndpointConnectionError):
        client.list_tables()
    [headers] = sent
    said = (
        bytes(headers["User-Agent"]).decode().split()
    )  # other packages may say that they are there, too
    assert {"app/shop", "strands-manga-memory"} <= set(said)


def test_dynamodb_requests_have_no_escapes_of_japanese_text() -> None:
    client = open_table(UNREACHABLE).client
    sent: list[bytes] = []
    client.meta.events.register_last(
        "before-send.dynamodb", lambda request, **_: sent.append(request.body)
    )
    for text in ("漫画", "\ud800"):  # half a character of UTF-16 has no UTF-8, and stays an escape
        with pytest.raises(EndpointConnectionError):
            client.get_item(TableName="t", Key={"session_id": {"S": text}})
    assert [b'"\xe6\xbc\xab\xe7\x94\xbb"' in sent[0], b'"\\ud800"' in sent[1]] == [True, True]


@pytest.mark.parametrize("url", ["dynamodb://", "dynamodb:///", "dynamodb://?region=us-west-2"])
def test_dynamodb_tables_are_named_by_their_schema(url: str) -> None:
    assert repr(open_table(url, USER_MEMORY)) == "DynamoDBTable('manga_user_memory')"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("sqlite://manga.db", "three slashes: write sqlite:///manga.db"),
        ("sqlite://", "name a file"),
        ("sqlite:///", "name a file"),
        ("sqlite://:memory:", "a path follows three slashes"),
        ("sqlite:///:memory:", "neither shared nor durable"),
        ("sqlite:///a.db?mode=ro", r"sqlite takes no arguments, got \['mode'\]"),
        ("sqlite:///a#b.db", "must be written %23"),
        ("dynamodb://table?region=a&zone=b&x=1", r"unknown arguments \['x', 'zone'\]"),
        ("dynamodb://table/more", "a table name has no path"),
        ("dynamodb://ta", "3 to 255"),
        ("dynamodb://table name", "3 to 255"),
        ("dynamodb://table?region=a&region=b", r"arguments \['region'\] are given twice"),
        ("dynamodb://table?endpoint=nonsense", "not an http:// or https:// URL"),
        ("dynamodb://table?endpoint=http://", "Invalid endpoint"),
        ("memory://", "names no table"),
        ("mysql://host/db", "its scheme 'mysql' names no table"),
        ("manga.db", "its scheme '' names no table"),
        ("", "its scheme '' names no table"),
        ("sqlite:///a?x", "not a URL"),
    ],
)
def test_a_table_url_that_makes_no_sense_is_refused(url: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        open_table(url)
    assert repr(url) in str(caught.value)
    assert "sqlite:///relative/path" in str(caught.value)


def test_dynamodb_needs_a_region_from_somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    with pytest.raises(ValueError, match="must specify a region"):
        open_table("dynamodb://table")


# Hot stores


def test_memory_is_a_hot_store() -> None:
    assert isinstance(open_hot_store("memory://"), InMemoryHotStore)


def pool_of(store: object) -> Any:
    assert isinstance(store, RedisHotStore)
    return store.client.connection_pool


def test_redis_clients_are_made_as_published() -> None:
    pool = pool_of(open_hot_store("redis://localhost:6380/3"))
    assert pool.max_connections == 50
    settings = pool.connection_kwargs
    assert (settings["host"], settings["port"], settings["db"]) == ("localhost", 6380, 3)
    assert (settings["socket_connect_timeout"], settings["socket_timeout"]) == (2.0, 1.0)
    assert settings["retry"].get_retries() == 0
    assert pool.connection_class is redis.Connection


def test_redis_urls_say_everything_a_connection_needs() -> None:
    store: Any = open_hot_store(
        "rediss://us%40er:p%2Fw@[::1]:6390/2?socket_timeout=0.5&socket_connect_timeout=3&max_connections=7"
        "&client_name=shop&health_check_interval=30&ssl_ca_certs=/ca.pem&ssl_cert_reqs=required&ssl_check_hostname=false"
        "&prefix=shop&deadline=0.2"
    )
    pool = pool_of(store)
    assert pool.connection_class is redis.SSLConnection
    assert pool.max_connections == 7
    expected = {
        "username": "us@er", "password": "p/w", "host": "::1", "port": 6390, "db": 2,
        "socket_timeout": 0.5, "socket_connect_timeout": 3.0, "client_name": "shop",
        "health_check_interval": 30, "ssl_ca_certs": "/ca.pem", "ssl_cert_reqs": "required",
        "ssl_check_hostname": False,
    }  # fmt: skip
    assert {name: pool.connection_kwargs[name] for name in expected} == expected
    assert (store._prefix, store._deadline) == ("shop", 0.2)


@pytest.mark.xdist_group("cluster")
def test_cluster_stores_work(valkey_cluster: servers.ValkeyCluster, unique: str) -> None:
    store = open_hot_store(f"{valkey_cluster.url}?prefix={unique}&max_connections=5")
    assert isinstance(store, RedisHotStore)
    assert isinstance(store.client, redis.RedisCluster)
    assert all(store.get_value(f"c{number}") is None for number in range(20))
    cluster: Any = store.client
    settings = cluster.get_connection_kwargs()
    assert (settings["socket_connect_timeout"], settings["socket_timeout"]) == (2.0, 1.0)
    assert cluster.retry.get_retries() == 0
    assert {n.redis_connection.connection_pool.max_connections for n in cluster.get_nodes()} == {5}
    store.close()


def test_a_cluster_that_does_not_answer_is_unavailable() -> None:
    port = servers.free_port()
    with pytest.raises(StoreUnavailableError, match="no node of the cluster answered") as caught:
        open_hot_store(f"redis+cluster://user:hidden@127.0.0.1:{port}")
    assert "hidden" not in str(caught.value)


WITHOUT_HOST = [
    "redis://a:1,b:2", "redis+cluster://a,b", "redis://host:port", "redis://host:99999", "redis://",
    "redis:///3", "redis://:hidden@:6379", "redis+cluster://",
]  # fmt: skip


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("memory://host", "takes no host"),
        ("memory://?a=b", "takes no host, path or arguments"),
        *((url, "its host is not name:port") for url in WITHOUT_HOST),
        ("redis://host/name", "its path is not a database number"),
        ("redis://host?decode_responses=true", r"unknown arguments \['decode_responses'\]"),
        ("redis://host?ssl_ca_certs=/ca.pem", r"unknown arguments \['ssl_ca_certs'\]"),
        ("redis://host?socket_timeout=fast", "argument socket_timeout is not"),
        *(
            (
                f"redis://host?socket_timeout={seconds}",
                "socket_timeout is not a number of seconds above 0",
            )
            for seconds in (-1, 10_000_000)
        ),
        ("redis://host?deadline=0.0", "argument deadline is not a number of seconds above 0"),
        ("redis://host?max_connections=0", "argument max_connections is not a whole number from 1"),
        (
            "redis://host?health_check_interval=-1",
            "argument health_check_interval is not a whole number from 0",
        ),
        ("redis://host?client_name=", "argument client_name is not a text"),
        (
            "rediss://host?ssl_check_hostname=maybe",
            "argument ssl_check_hostname is not true or false",
        ),
        ("rediss://host?ssl_check_hostname=", "argument ssl_check_hostname is not true or false"),
        (
            "rediss://host?ssl_cert_reqs=off",
            "argument ssl_cert_reqs is not none, optional or required",
        ),
        ("redis+cluster://host/1", "a cluster has only database 0"),
        ("redis+other://host", r"its scheme 'redis\+other' names no hot store"),
        ("sqlite:///a.db", "its scheme 'sqlite' names no hot store"),
        ("redis://host#1", "must be written %23"),
        ("redis://[::1", "it is not a URL"),
        ("redis+sentinel://host/shop", "names no hot store"),
    ],
)
def test_a_hot_store_url_that_makes_no_sense_is_refused(url: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        open_hot_store(url)
    assert "redis+cluster://" in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:hidden@host:port", "redis://:hid/den#?@host", "redis://:hidden@host?x=1",
        "redis://user:hidden@a,b", "redis://:hidden/x@host:1", "redis://user:1/hidden@host:6379/0",
        "dynamodb://user:1/hidden@table", f"sqlite://user:{'x' * 70}hidden@host/db",
        "redis://user:hidden@h?sentinel_password=hidden", "sqlite://user:hidden@host/db",
        "dynamodb://AKIA:hidden@table", "dynamodb://table?endpoint=nonsense://user:hidden@host",
        "redis://user:hidden@[::1",
    ],
)  # fmt: skip
def test_passwords_are_never_shown(url: str) -> None:
    with pytest.raises(ValueError) as caught:
        (open_hot_store if url.startswith("redis") else open_table)(url)
    shown = f"{caught.value!r} {caught.value.__cause__!r}"
    assert "hid" not in shown
    assert "***" in shown
