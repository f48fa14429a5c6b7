"""doctor: each fault of a real server is found, with its remedy."""

import json
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from strands import Agent

from strands_manga_memory import ConversationScope, MangaMemorySettings, TieredSessionManager
from strands_manga_memory.conversation import token_counter as tokens
from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.ops import Finding, Level, diagnose
from strands_manga_memory.stores import SESSIONS, USER_MEMORY, SQLiteTable, open_table
from strands_manga_memory.testing import FakeClock, ScriptedModel
from tests import servers
from tests.support import run


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A durable tier that is in order."""
    url = f"sqlite:///{tmp_path}/sessions.sqlite3"
    table = open_table(url)
    table.create_if_missing()
    table.close()
    return url


def doctor(capsys: Any, *arguments: str) -> tuple[int, list[Finding]]:
    status = run(["doctor", "--json", *arguments])
    found = json.loads(capsys.readouterr().out)
    findings = [
        Finding(each["check"], Level(each["level"]), each["detail"], each["remedy"])
        for each in found["findings"]
    ]
    assert found["ok"] is (status == 0)
    return status, findings


def the(findings: list[Finding], check: str, level: Level = Level.PROBLEM) -> Finding:
    """Return the one finding of a check, which must be as bad as ``level``, with a remedy."""
    [found] = [f for f in findings if f.check == check and f.level is not Level.OK]
    assert found.level is level
    assert found.remedy
    return found


def sound(findings: list[Finding], tier: str) -> bool:
    return all(not finding.remedy for finding in findings if finding.check.startswith(f"{tier}."))


@pytest.fixture
def replica(valkey_server: servers.Valkey) -> Iterator[servers.Valkey]:
    """A server in good order: with an append-only file and a policy that evicts no index."""
    with servers.valkey(
        "--appendonly", "yes", "--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl"
    ) as server:
        yield server


def test_the_doctor_closes_its_stores(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A PostgreSQL pool would stay open in the process."""
    closed: list[str] = []
    close = SQLiteTable.close
    monkeypatch.setattr(SQLiteTable, "close", lambda t: (closed.append(t.schema.name), close(t)))
    list(diagnose(MangaMemorySettings(durable_url=sqlite_url, users_url="true")))
    assert sorted(closed) == sorted([SESSIONS.name, USER_MEMORY.name])


def test_a_deployment_in_order_passes(
    replica: servers.Valkey, dynamodb_server: servers.DynamoDB, unique: str, capsys: Any
) -> None:
    durable, users = (
        dynamodb_server.table_url(f"{unique}s"),
        dynamodb_server.table_url(f"{unique}u"),
    )
    open_table(durable).create_if_missing()
    open_table(users, USER_MEMORY).create_if_missing()
    status, found = doctor(capsys, "--hot", replica.url, "--durable", durable, "--users", users)
    assert [finding for finding in found if finding.remedy] == []
    assert status == 0
    checks = {finding.check for finding in found}
    assert checks >= {
        *("hot.reach", "hot.version", "hot.eviction", "hot.persistence", "hot.clock",
            "hot.permission", "hot.memory"),
        *("durable.reach", "durable.schema", "durable.ttl", "durable.clock", "durable.permission",
            "durable.sweeper"),
        *("users.index", "users.ttl", "users.permission", "process.vocabulary"),
    }  # fmt: skip
    for key in servers.redis.Redis(port=replica.port).scan_iter():
        assert (
            b"doctor" not in key or servers.redis.Redis(port=replica.port).ttl(key) != -1
        )  # what it tried is gone, or goes
    assert list(open_table(durable).query("returns/all")) == []


# --- The hot tier ---------------------------------------------------------------------------------


def test_an_unreachable_server(sqlite_url: str, capsys: Any) -> None:
    url = f"redis://:secret-pw@127.0.0.1:{servers.free_port()}/0"
    status, found = doctor(capsys, "--hot", url, "--durable", sqlite_url)
    assert status == 1
    assert "host, port" in the(found, "hot.reach").remedy
    assert "secret-pw" not in repr(found)


def test_a_wrong_password(sqlite_url: str, capsys: Any) -> None:
    with servers.valkey() as server:
        with server.client() as client:
            client.config_set("requirepass", "right")
        for login in ("", ":wrong@", "nobody:wrong@"):
            url = f"redis://{login}127.0.0.1:{server.port}/0"
            _, found = doctor(capsys, "--hot", url, "--durable", sqlite_url)
            assert "password" in the(found, "hot.auth").remedy


@pytest.mark.parametrize(
    ("acl", "named"),
    [
        ("~smm:* +@all -evalsha -eval", "ACL SETUSER"),
        ("~other:* +@all", "~smm:*"),
        ("~smm:* +@all -set", "put_value"),
    ],
)
def test_a_user_without_permission(sqlite_url: str, capsys: Any, acl: str, named: str) -> None:
    with servers.valkey() as server:
        with server.client() as client:
            client.execute_command("ACL", "SETUSER", "app", "on", ">pw", *acl.split())
        _, found = doctor(
            capsys, "--hot", f"redis://app:pw@127.0.0.1:{server.port}/0", "--durable", sqlite_url
        )
        refused = [
            finding
            for finding in found
            if finding.check in ("hot.permission", "hot.reach") and finding.remedy
        ]
        assert any(named in finding.detail + finding.remedy for finding in refused)
        assert refused[0].level is Level.PROBLEM


def test_wrong_eviction_policy(replica: servers.Valkey, sqlite_url: str, capsys: Any) -> None:
    with replica.client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
    _, found = doctor(capsys, "--hot", replica.url, "--durable", sqlite_url)
    assert "volatile-ttl" in the(found, "hot.eviction").remedy


def test_a_server_without_persistence(sqlite_url: str, capsys: Any) -> None:
    with servers.valkey() as server:
        status, found = doctor(capsys, "--hot", server.url, "--durable", sqlite_url)
        assert "appendonly" in the(found, "hot.persistence", Level.WARNING).remedy
        assert status == 0
        assert doctor(capsys, "--hot", server.url, "--durable", sqlite_url)[0] == 0


def test_a_server_is_nearly_full(replica: servers.Valkey, sqlite_url: str, capsys: Any) -> None:
    with replica.client() as client:
        for number in range(2_000):
            client.set(f"ballast{number}", b"x" * 2_000)
        client.config_set("maxmemory", int(client.info("memory")["used_memory"] * 1.03))
    _, found = doctor(capsys, "--hot", replica.url, "--durable", sqlite_url)
    assert "shards" in the(found, "hot.memory", Level.WARNING).remedy


class Rewriting(servers.FaultyProxy):
    """A proxy that replaces bytes of the answers by others of the same length."""

    def __init__(self, server: servers.Server, before: bytes, after: bytes) -> None:
        assert len(before) == len(after)
        self._change = (before, after)
        super().__init__(server.host, server.port)

    def _read(self, side: socket.socket) -> Iterator[bytes]:
        for data in super()._read(side):
            yield data.replace(*self._change)


def test_a_version_that_is_too_old(replica: servers.Valkey, sqlite_url: str, capsys: Any) -> None:
    with replica.client() as client:
        info = client.info("server")
    before = f"valkey_version:{info['valkey_version']}".encode()
    with Rewriting(
        replica,
        before,
        b"valkey_version:" + b"4.0.14"[: len(before) - 15].ljust(len(before) - 15, b"0"),
    ) as old:
        _, found = doctor(
            capsys, "--hot", f"redis://127.0.0.1:{old.port}/0", "--durable", sqlite_url
        )
    assert "upgrade" in the(found, "hot.version").remedy


@pytest.mark.xdist_group("cluster")
def test_a_cluster_behind_the_wrong_url_and_one_that_lacks_slots(
    valkey_cluster: servers.ValkeyCluster, sqlite_url: str, capsys: Any
) -> None:
    node = valkey_cluster.nodes[0]
    _, found = doctor(capsys, "--hot", node.url, "--durable", sqlite_url)
    assert any("redis+cluster://" in f.remedy for f in found if f.check == "hot.cluster")
    with node.client() as client:
        client.execute_command("CLUSTER", "DELSLOTS", 7)
        try:
            settings = MangaMemorySettings(hot_url=valkey_cluster.url, durable_url=sqlite_url)

            def missing() -> bool:
                found = list(diagnose(settings))
                return any(
                    "slots are not served" in finding.detail and "--cluster fix" in finding.remedy
                    for finding in found
                )

            servers.wait_until(missing, "finding the slot that is not served")
        finally:
            client.execute_command("CLUSTER", "ADDSLOTS", 7)
    with valkey_cluster.client() as everyone:
        servers.wait_until(
            lambda: (
                everyone.cluster_info(target_nodes=everyone.get_random_node())["cluster_state"]
                == "ok"
            ),
            "mending the cluster",
        )


def test_a_hot_tier_in_one_process(sqlite_url: str, capsys: Any) -> None:
    _, found = doctor(capsys, "--hot", "memory://", "--durable", sqlite_url)
    assert "MANGA_MEMORY_HOT_URL" in the(found, "hot.shared", Level.WARNING).remedy


def test_clock_gap(replica: servers.Valkey, dynamodb_server: servers.DynamoDB, unique: str) -> None:
    durable = dynamodb_server.table_url(unique)
    open_table(durable).create_if_missing()
    settings = MangaMemorySettings(hot_url=replica.url, durable_url=durable)
    for skew, level in ((120.0, Level.PROBLEM), (-10.0, Level.WARNING)):
        found = list(diagnose(settings, clock=lambda skew=skew: time.time() + skew))
        for check in ("hot.clock", "durable.clock"):
            assert "NTP" in the(found, check, level).remedy


# --- The durable tier -----------------------------------------------------------------------------


def test_a_table_is_missing(dynamodb_server: servers.DynamoDB, unique: str, capsys: Any) -> None:
    _, found = doctor(capsys, "--durable", dynamodb_server.table_url(unique))
    assert "init-table" in the(found, "durable.table").remedy


def test_an_unreachable_table(capsys: Any) -> None:
    url = f"dynamodb://t12?region=us-east-1&endpoint=http://127.0.0.1:{servers.free_port()}"
    _, found = doctor(capsys, "--durable", url)
    assert "endpoint" in the(found, "durable.reach").remedy


def test_ttl_is_off_or_wrong(dynamodb_server: servers.DynamoDB, unique: str, capsys: Any) -> None:
    url = dynamodb_server.table_url(unique)
    open_table(url).create_if_missing()
    client = dynamodb_server.client()
    off = {"Enabled": False, "AttributeName": SESSIONS.ttl}
    client.update_time_to_live(TableName=unique, TimeToLiveSpecification=off)
    _, found = doctor(capsys, "--durable", url)
    assert "update-time-to-live" in the(found, "durable.ttl").remedy
    client.update_time_to_live(
        TableName=unique, TimeToLiveSpecification={"Enabled": True, "AttributeName": "other"}
    )
    _, found = doctor(capsys, "--durable", url)
    assert "'other'" in the(found, "durable.ttl").detail


def test_missing_index(
    dynamodb_server: servers.DynamoDB, unique: str, sqlite_url: str, capsys: Any
) -> None:
    users = dynamodb_server.table_url(unique)
    open_table(users, USER_MEMORY).create_if_missing()
    name = USER_MEMORY.indexes[1].name
    client = dynamodb_server.client()
    client.update_table(
        TableName=unique, GlobalSecondaryIndexUpdates=[{"Delete": {"IndexName": name}}]
    )
    _, found = doctor(capsys, "--durable", sqlite_url, "--users", users)
    missing = the(found, "users.index")
    assert name in missing.detail
    assert "update-table" in missing.remedy


def test_table_of_another_shape(
    dynamodb_server: servers.DynamoDB, unique: str, capsys: Any
) -> None:
    dynamodb_server.client().create_table(
        TableName=unique,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
    )
    _, found = doctor(capsys, "--durable", dynamodb_server.table_url(unique))
    wrong = the(found, "durable.schema")
    assert "session_id" in wrong.detail
    assert "another table" in wrong.remedy


@contextmanager
def refusing(server: servers.DynamoDB, code: str, *operations: str) -> Iterator[str]:
    """Run a front of a DynamoDB server that answers ``operations`` with an error; yield its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            operation = self.headers["X-Amz-Target"].rpartition(".")[2]
            if operation in operations:
                message = f"User is not authorized to perform: dynamodb:{operation}"
                status, answer = (
                    400,
                    json.dumps(
                        {"__type": f"com.amazon.coral.service#{code}", "message": message}
                    ).encode(),
                )
            else:
                there = HTTPConnection(server.host, server.port, timeout=10)
                there.request("POST", self.path, body, dict(self.headers))
                response = there.getresponse()
                status, answer = response.status, response.read()
                there.close()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.0")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    front = ThreadingHTTPServer((servers.HOST, 0), Handler)
    front.daemon_threads = True
    thread = threading.Thread(target=front.serve_forever)
    thread.start()
    try:
        yield f"http://{servers.HOST}:{front.server_address[1]}"
    finally:
        front.shutdown()
        thread.join()
        front.server_close()


@pytest.mark.parametrize(
    "operation", ["PutItem", "Query", "TransactWriteItems", "BatchWriteItem", "DescribeTable"]
)
def test_no_permission(
    dynamodb_server: servers.DynamoDB, unique: str, capsys: Any, operation: str
) -> None:
    open_table(dynamodb_server.table_url(unique)).create_if_missing()
    with refusing(dynamodb_server, "AccessDeniedException", operation) as endpoint:
        _, found = doctor(
            capsys, "--durable", f"dynamodb://{unique}?region=us-east-1&endpoint={endpoint}"
        )
    denied = the(found, "durable.permission")
    assert operation in denied.detail
    assert "strands-manga-memory permissions" in denied.remedy


def test_credentials_refused(dynamodb_server: servers.DynamoDB, unique: str, capsys: Any) -> None:
    with refusing(dynamodb_server, "UnrecognizedClientException", "DescribeTable") as endpoint:
        _, found = doctor(
            capsys, "--durable", f"dynamodb://{unique}?region=us-east-1&endpoint={endpoint}"
        )
    assert "renew" in the(found, "durable.auth").remedy


def test_a_file_that_is_none_or_newer(tmp_path: Path, sqlite_url: str, capsys: Any) -> None:
    _, found = doctor(capsys, "--durable", f"sqlite:///{tmp_path}/none.sqlite3")
    assert "init-table" in the(found, "durable.table").remedy
    (tmp_path / "text.sqlite3").write_text("this is no database, " * 100)
    _, found = doctor(capsys, "--durable", f"sqlite:///{tmp_path}/text.sqlite3")
    the(found, "durable.reach")
    with sqlite3.connect(f"{tmp_path}/sessions.sqlite3") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    _, found = doctor(capsys, "--durable", sqlite_url)
    assert "upgrade" in the(found, "durable.schema").remedy


def test_nobody_sweeps(tmp_path: Path, sqlite_url: str, capsys: Any) -> None:
    table = open_table(sqlite_url)
    scope = ConversationScope("u1", "s1")
    manager = TieredSessionManager(scope, durable=table, clock=FakeClock(time.time() - 9_000))
    Agent(model=ScriptedModel(), session_manager=manager)("hello")
    manager.close()
    for row in list(table.query(scope.storage_session_id)):
        table.delete(scope.storage_session_id, row["sk"])
    table.close()
    _, found = doctor(capsys, "--durable", sqlite_url)
    assert "sweep --loop" in the(found, "durable.sweeper", Level.WARNING).remedy
    assert TieredSessionManager(scope, durable=open_table(sqlite_url)).exists() is False


# --- The process ----------------------------------------------------------------------------------


def test_a_table_that_stops_answering_is_not_called_damaged(
    sqlite_url: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(open_table(sqlite_url)) as table:
        manager = TieredSessionManager(ConversationScope("u", "s"), durable=table)
        Agent(model=ScriptedModel(), session_manager=manager)("hello")
        manager.close()

    batch_get = SQLiteTable.batch_get

    def fail(table: SQLiteTable, keys: list[tuple[str, str]]) -> Any:
        if any(sort.endswith("#HEAD") for _, sort in keys):
            raise StoreUnavailableError("timeout")
        return batch_get(table, keys)

    monkeypatch.setattr(SQLiteTable, "batch_get", fail)
    _, found = doctor(capsys, "--durable", sqlite_url)
    assert "try again" in the(found, "durable.records").remedy


def test_a_deleted_conversation_shows_no_reading_codec(sqlite_url: str, capsys: Any) -> None:
    with closing(open_table(sqlite_url)) as table:
        manager = TieredSessionManager(ConversationScope("u", "s"), durable=table)
        Agent(model=ScriptedModel(), session_manager=manager)("hello")
        manager.delete_session()
        manager.close()
    _, found = doctor(capsys, "--durable", sqlite_url)
    assert next(each for each in found if each.check == "durable.records").detail.startswith(
        "there is no conversation"
    )


def test_no_vocabulary(sqlite_url: str, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_offline_encoding", lambda: None)
    default = getattr(tokens.default_counter, "cache_clear", None)
    if default is not None:
        default()
    _, found = doctor(capsys, "--durable", sqlite_url)
    if default is not None:
        default()
    assert "[offline]" in the(found, "process.vocabulary", Level.WARNING).remedy


def test_what_is_printed_for_people(sqlite_url: str, capsys: Any) -> None:
    assert run(["doctor", "--hot", "memory://", "--durable", f"{sqlite_url}.none"]) == 1
    printed = capsys.readouterr().out
    assert "PROBLEM durable.table" in printed
    assert "`strands-manga-memory init-table` makes it" in printed
    assert "1 problems" in printed
