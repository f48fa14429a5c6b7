import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strands_manga_memory import MangaMemory, MangaMemorySettings, StoreUnavailableError, telemetry
from strands_manga_memory.stores import InMemoryHotStore, SQLiteTable
from strands_manga_memory.telemetry import ObservedStore, events, recorder, recording
from strands_manga_memory.telemetry.recording import LogHistogram
from tests.faulty_stores import FaultyTable
from tests.support import background_writer

DASHBOARD = Path(__file__).parents[2] / "strands_manga_memory" / "guide" / "grafana.json"


def test_the_dashboard_shows_every_metric() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    expressions = " ".join(target["expr"] for panel in panels for target in panel["targets"])
    for metric in telemetry.metrics():
        assert metric.name.replace(".", "_") in expressions


def test_the_published_percentiles_and_deadlines_are_bucket_bounds() -> None:
    stores, fast = (
        set(events.STORE_CALL.duration.buckets),
        set(events.BREAKER_CHECK.duration.buckets),
    )
    assert stores >= {
        0.0003,
        0.0008,
        0.003,
        0.008,
        0.05,
    }  # hot p50 and p99, durable p50 and p99, deadline
    assert fast >= {1e-5, 5e-5, 1e-4, 5e-4, 1e-3, 1e-2}


def test_waiting_events_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strands_manga_memory.telemetry.recording._MOST_WAITING", 3)
    one = recording.EventRecorder()
    one._has_thread = True  # nobody takes it
    for _ in range(5):
        one.record(events.TRIM, counts={"messages": 1})
    assert one.stats()["trim"].count == 3


def test_an_error_of_a_store_is_told_and_raised(tmp_path: Path) -> None:
    faulty = FaultyTable(SQLiteTable(tmp_path / "t.sqlite3"))
    table: Any = ObservedStore(faulty, "durable")
    before = recorder.stats().get("durable.get")
    faulty.down = True
    with pytest.raises(StoreUnavailableError):
        table.get("a", "b")
    with pytest.raises(StoreUnavailableError):
        list(table.query("a"))
    assert recorder.stats()["durable.get"].errors - (before.errors if before else 0) == 1
    assert recorder.stats()["durable.query"].errors >= 1


def test_off_means_that_nothing_is_noted_and_nothing_is_wrapped(tmp_path: Path) -> None:
    off = MangaMemorySettings(durable_url=f"sqlite:///{tmp_path}/s.db", telemetry=False)
    memory = MangaMemory.open(defaults=off)
    try:
        recorder.flush()
        memory.codec.seal(b"1", "place")
        assert not recorder._entries
        assert memory._stores["durable"] is memory.durable
        telemetry.record_event(events.TRIM, counts={"messages": 1})
        assert not recorder._entries
        assert memory.stats()["operations"] == {}
    finally:
        memory.close()
        telemetry.set_enabled(enabled=True)


def test_calls_are_recorded_by_operation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[dict[str, Any]] = []
    monkeypatch.setattr(recorder, "record", lambda e, s, about, counts=None: noted.append(about))
    hot: Any = ObservedStore(InMemoryHotStore(), "hot")
    table: Any = ObservedStore(SQLiteTable(tmp_path / "t.sqlite3"), "durable")
    table.create_if_missing()
    assert table.schema.name == "manga_sessions"
    assert not hot.survives_process
    hot.load("c1", ["window"])
    hot.put_value("v", b"1", ttl=1.0)
    table.put({"session_id": "s1", "sk": "a"})
    table.batch_get([("s1", "a")])
    assert [item["sk"] for item in table.query("s1")] == ["a"]
    assert [(each["db.system.name"], each["db.operation.name"]) for each in noted] == [
        ("sqlite", "create_if_missing"),
        ("memory", "load"),
        ("memory", "put_value"),
        ("sqlite", "put"),
        ("sqlite", "batch_get"),
        ("sqlite", "query"),
    ]
    table.close()


def test_a_store_and_what_observes_it_share_a_writer(tmp_path: Path) -> None:
    hot, table = InMemoryHotStore(), SQLiteTable(tmp_path / "t.sqlite3")
    assert background_writer(hot, table) is background_writer(
        ObservedStore(hot, "hot"), ObservedStore(table, "durable")
    )


def test_gauges_say_which_tier_answers_and_how_much_work_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = SQLiteTable(tmp_path / "t.sqlite3")
    writer = background_writer(None, table)
    monkeypatch.setattr(recording, "writers", lambda: [writer])
    assert list(recording.observe_tiers()) == [(1, {"manga_memory.tier": "durable"})]
    writer.durable_health.record_failure(StoreUnavailableError("no answer"))
    assert list(recording.observe_tiers()) == [(0, {"manga_memory.tier": "durable"})]
    assert list(recording.observe_backlog()) == [(0, {})]
    writer.later("key", 60.0, lambda: None)
    assert list(recording.observe_backlog()) == [(1, {})]
    table.close()


@given(st.lists(st.floats(1e-6, 1e7), min_size=1), st.floats(0.01, 1.0))
def test_a_quantile_is_off_by_at_most_the_growth(values: list[float], share: float) -> None:
    histogram = LogHistogram(1.25)
    for value in values:
        histogram.add(value)
    ordered = sorted(values)
    exact = ordered[min(len(ordered) - 1, max(0, -int(-(share * len(ordered)) // 1) - 1))]
    assert exact / 1.0001 <= histogram.quantile(share) <= exact * 1.2501
    assert histogram.total == len(values)


def test_counts_of_two_histograms_are_added() -> None:
    one, other = LogHistogram(), LogHistogram()
    one.add(10.0, 3)
    other.add(10.0)
    other.add(0.0)
    one.counts.update(other.counts)
    assert one.total == 5
    assert one.quantile(0.0001) <= 1.25e-9
    assert LogHistogram().quantile(0.5) == 0.0
