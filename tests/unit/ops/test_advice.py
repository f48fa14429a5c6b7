import json
import math
import random
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from strands_manga_memory import MangaMemory, SQLiteTable
from strands_manga_memory.ops import ttl_advice
from strands_manga_memory.session.ttl import PARTITION, ReturnGaps, stored_gaps
from strands_manga_memory.stores.writer import Writer
from strands_manga_memory.telemetry.recording import LogHistogram
from strands_manga_memory.testing import FakeClock, ScriptedModel
from tests.support import run

DAY = 86_400.0


def gaps(*values: float) -> LogHistogram:
    histogram = LogHistogram()
    for value in values:
        histogram.add(value)
    return histogram


def test_the_curve_is_the_share_of_returns_within_a_time() -> None:
    chance = random.Random(7)
    values = [math.exp(chance.gauss(5, 1)) for _ in range(5_000)]
    advice = ttl_advice(gaps(*values))
    assert advice.has_enough_gaps
    assert advice.curve[-1][1] == 1.0
    for seconds in (60, 120, 300, 600, 1800, 3600, 86_400):
        exact = sum(value <= seconds for value in values) / len(values)
        assert advice.share_within(seconds) == pytest.approx(exact, abs=0.05)


def test_the_knee_is_where_talks_end_and_absences_begin() -> None:
    values = [60.0] * 700 + [600.0] * 200 + [40_000.0] * 100  # a talk, an interruption, another day
    advice = ttl_advice(gaps(*values))
    assert 600 / 1.25 <= advice.knee <= 600 * 1.25
    assert advice.share_within(advice.knee) == pytest.approx(0.9)


def test_few_gaps_are_not_enough_and_none_are_refused() -> None:
    assert not ttl_advice(gaps(1.0, 2.0)).has_enough_gaps
    with pytest.raises(ValueError, match="at least one gap"):
        ttl_advice(LogHistogram())


def test_gaps_are_stored_once_in_five_minutes_and_added_up(tmp_path: Path) -> None:
    table, writer = SQLiteTable(tmp_path / "t.sqlite3"), Writer()
    table.create_if_missing()
    processes = [ReturnGaps(table) for _ in range(2)]
    for one in processes:
        for second in range(299):
            one.add(60.0, 1e9 + second, writer)
    assert list(table.query(PARTITION)) == []
    for one in processes:
        one.add(60.0, 1e9 + 300, writer)
    assert writer.drain(5)
    assert len(list(table.query(PARTITION))) == 2
    assert stored_gaps(table).total == 600
    processes[0].add(
        60.0, 1e9 + 2 * DAY, writer
    )  # stored with the old day; from then on there is a record of the new one
    assert writer.drain(5)
    processes[0].add(60.0, 1e9 + 2 * DAY, writer)
    processes[0].save(1e9 + 2 * DAY)
    assert stored_gaps(table).total == 602
    assert stored_gaps(table, since=1e9 + DAY).total == 1
    table.close()


def test_recorded_gaps_of_a_conversation_are_found(tmp_path: Path, capsys: Any) -> None:
    url, clock = f"sqlite:///{tmp_path}/s.db", FakeClock(1_700_000_000.0)
    MangaMemory.open(durable=url).close()
    assert run(["ttl-advice", "--durable", url, "--days", "90"]) == 1  # no gaps
    error = capsys.readouterr().err.replace("\n", " ")
    assert url in error.replace(" ", "")
    assert "90 days" in error
    memory = MangaMemory.open(durable=url, clock=clock)
    agent = memory.agent(ScriptedModel(), user_id="u", session_id="s")
    for away in (0.0, 30.0, 30.0, 600.0):
        clock.advance(away)
        agent("hello")
    memory.close()
    memory = MangaMemory.open(durable=url, clock=clock)
    clock.advance(3_000.0)  # another process, after the conversation had cooled down
    agent = memory.agent(ScriptedModel(), user_id="u", session_id="s")
    agent("hello again")
    memory.close()
    found = stored_gaps(SQLiteTable(tmp_path / "s.db"))
    assert found.total == 4
    assert [count for _, count in found.buckets()] == [2, 1, 1]


def test_the_command_shows_the_recorded_gaps(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    url, now = f"sqlite:///{tmp_path}/s.db", time.time()
    with closing(SQLiteTable(tmp_path / "s.db")) as table:
        table.create_if_missing()
        writer = Writer()
        recorded = ReturnGaps(table)
        for value in [60.0] * 1_700 + [900.0] * 200 + [40_000.0] * 100:
            recorded.add(value, now, writer)
        recorded.save(now)
        assert writer.drain(5)
    assert run(["ttl-advice", "--durable", url, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["gaps"] == 2000
    assert found["resumed_at_knee"] == pytest.approx(0.95, abs=0.01)
    assert run(["ttl-advice", "--durable", url, "--ttl-seconds", "86400"]) == 0
    printed = capsys.readouterr().out
    assert "knee:" in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_the_model_has_the_limits_of_the_hot_copy() -> None:
    from strands_manga_memory.ops.workload import _COMPRESSED_FROM
    from strands_manga_memory.session.protocol.record_format import PLAIN_BYTES

    assert PLAIN_BYTES == _COMPRESSED_FROM
