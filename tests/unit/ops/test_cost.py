import json
from pathlib import Path
from typing import Any

import pytest

import strands_manga_memory
from strands_manga_memory.ops import CostModel, Workload, differences, prices, session_use
from tests.support import run


def told(capsys: Any, *arguments: str) -> Any:
    assert run(["cost", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_paper_preset_gives_the_published_figures(capsys: Any) -> None:
    found = told(capsys, "--preset", "paper")
    assert found["redis_usd_month"] == pytest.approx(188, rel=0.05)
    assert found["dynamodb_usd_month"] == pytest.approx(80, rel=0.05)
    assert found["redis_usd_month"] + found["dynamodb_usd_month"] == pytest.approx(268, rel=0.05)
    use = found["use"]
    assert (use["write_units"], use["read_units"]) == (12e6, 30e6)
    assert (use["stored_gb"], use["index_gb"], use["live_sessions"]) == (50, 60, 10_000)


def test_the_paper_preset_names_the_published_node() -> None:
    """One node without a replica, 2 KB a session; more load needs more of the same."""
    model = CostModel.paper()
    cost = model.cost()
    assert (cost.node, cost.nodes) == ("cache.r6g.large", 1)
    assert cost.use.hot_gb * 1e9 / cost.use.live_sessions == pytest.approx(2_000)
    many = CostModel.paper(Workload(messages_per_day=1e9, users=2e8)).cost()
    assert (many.node, many.nodes) == ("cache.r6g.large", 2)
    assert many.redis_usd_month == pytest.approx(2 * cost.redis_usd_month)
    assert CostModel.paper(at=prices()).cost().node == "cache.r6g.large"


def test_the_json_adds_up(capsys: Any) -> None:
    found = told(capsys, "--messages-per-day", "1e6", "--users", "2e5")
    parts = sum(found["parts"].values())
    assert found["total_usd_month"] == pytest.approx(parts)
    assert found["redis_usd_month"] + found["dynamodb_usd_month"] + found[
        "model_usd_month"
    ] == pytest.approx(parts)
    assert found["usd_per_message"] == pytest.approx(parts / 30e6)
    assert {each["what"] for each in found["differences"]} >= {
        "write units per month",
        "GB stored",
        "live sessions",
    }


def test_what_is_asked_scales_what_is_paid() -> None:
    one, ten = (
        CostModel.measured(Workload(messages_per_day=load, users=load / 5)).cost()
        for load in (1e6, 1e7)
    )
    assert ten.dynamodb_usd_month == pytest.approx(10 * one.dynamodb_usd_month)
    assert ten.model_usd_month == pytest.approx(10 * one.model_usd_month)
    assert ten.usd_per_message == pytest.approx(one.usd_per_message, rel=0.01)
    paper = CostModel.paper(Workload(messages_per_day=2e6, users=4e5)).cost()
    assert paper.dynamodb_usd_month == pytest.approx(160)
    nothing = CostModel.measured(Workload(messages_per_day=0, users=0)).cost()
    assert (nothing.dynamodb_usd_month, nothing.model_usd_month, nothing.usd_per_message) == (
        0,
        0,
        0,
    )


def test_model_cost_goes_by_the_worst_hit_rate() -> None:
    assert Workload().cache_hit_rate == 0.70
    worse, better = (
        CostModel.measured(Workload(cache_hit_rate=rate)).cost().model_usd_month
        for rate in (0.5, 0.9)
    )
    assert better < CostModel.measured().cost().model_usd_month < worse
    only = Workload(
        models={"sonnet": 1.0},
        calls_per_message=1,
        history_tokens=0,
        other_tokens=0,
        output_tokens=1000,
    )
    million = only.messages_per_day * 30 / 1e6
    expected = million * (1300 * (0.7 * 0.3 + 0.3 * 3.75) + 1000 * 15)
    assert CostModel.measured(only).cost().model_usd_month == pytest.approx(expected)


def test_indexes_have_their_own_cost() -> None:
    cost = CostModel.measured().cost()
    use, ask = cost.use, prices()
    assert 0 < use.index_write_units < use.write_units
    assert cost.parts["dynamodb index writes"] == pytest.approx(
        use.index_write_units * ask.write_units_per_million / 1e6
    )
    # The two indexes of the memory table repeat its items, and the log has no index.
    assert use.stored_gb / 3 < use.index_gb < 2 * use.stored_gb
    assert cost.parts["dynamodb index storage"] == pytest.approx(
        use.index_gb * ask.storage_gb_month
    )
    both = session_use(Workload()).write_units * Workload().sessions_per_day * 30
    assert use.write_units + use.index_write_units == pytest.approx(both)


def test_nodes_hold_the_peak() -> None:
    cost = CostModel.measured(Workload(messages_per_day=1e8, users=2e7)).cost()
    held = cost.nodes / 2 * prices().nodes[cost.node].memory_gib * 2**30 * 0.75
    assert held >= 3 * cost.use.hot_gb * 1e9


def test_prices_are_data_with_a_date() -> None:
    assert prices("2024-11-15").date == "2024-10-31"
    assert prices().date > "2026"
    with pytest.raises(ValueError, match="date must be 2024-10-31 or later"):
        prices("2020-01-01")


def test_unknown_models_are_named(capsys: Any) -> None:
    assert run(["cost", "--model", "gpt=1.0"]) == 2
    assert "'gpt'" in capsys.readouterr().err
    assert run(["cost", "--model", "haiku"]) == 2
    assert run(["cost", "--preset", "guess"]) == 2


def test_the_differences_have_reasons() -> None:
    assert all(each.why and each.paper != each.measured for each in differences())
    assert (
        session_use(Workload(earlier_sessions=0)).write_units
        < session_use(Workload(earlier_sessions=9)).write_units
    )


def test_the_page_shows_the_costs_that_the_command_prints(capsys: Any) -> None:
    page = Path(strands_manga_memory.__file__).parent / "guide" / "operations.md"
    shown = [line for line in page.read_text("utf-8").splitlines() if line.startswith("│ ")]
    assert len(shown) >= 6
    run(["cost"])
    printed = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert [line for line in shown if " ".join(line.split()) not in printed] == []
