"""Load benchmark in small: every message is answered, stored and counted."""

from pathlib import Path

import pytest

from strands_manga_memory import open_table
from tests import servers
from tests.benchmarks import scale
from tests.benchmarks.load import exchanges


@pytest.mark.long
@pytest.mark.parametrize("stateless", [False, True])
def test_a_second_of_load(valkey_server: servers.Valkey, tmp_path: Path, stateless: bool) -> None:
    durable = f"sqlite:///{tmp_path / 'load.sqlite3'}"
    open_table(durable).create_if_missing()
    worker = scale.Worker(valkey_server.url, durable)
    assert worker.call("begin", 5)["kb_per_session"] >= 0
    found = worker.call("run", 20, 1, stateless=stateless)
    assert len(found["turns"]["layer"]) + found["turned_away"] == 21
    assert len(found["turns"]["layer"]) > 5
    assert min(*found["turns"]["layer"], *found["turns"]["breaker_check"]) > 0
    assert found["hot.write"]
    assert bool(found.get("hot.load")) == stateless
    assert found["backlog_at_end"] == found["unsaved_at_end"] == 0
    if not stateless:
        found = worker.call("run", 20, 2.5, stateless=False, churn=True)
        kept = len(found["turns"]["layer"])
        assert kept < 20 < sum(point["messages"] for point in found["timeline"]) + kept, (
            "a soak keeps no messages"
        )
    assert worker.call("lost", 5) == 0
    worker.end()


def test_the_clients_of_the_servers_by_themselves(
    valkey_server: servers.Valkey,
    dynamodb_server: servers.DynamoDB,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    found = exchanges(valkey_server.url, dynamodb_server.endpoint, 50, 0.2)
    assert [len(found[tier]) for tier in ("hot", "durable")] == [10, 10]
    assert min(found["hot"] + found["durable"]) > 0
