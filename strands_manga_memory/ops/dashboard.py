"""dashboard: a Grafana dashboard of all metrics, made from their definitions. Pure."""

from __future__ import annotations

from typing import Any

from strands_manga_memory.telemetry.events import TIER_UP, Metric, metrics

_PERCENTILES = (0.5, 0.95, 0.99)
_BY = {
    "db.client.operation.duration": ("manga_memory_tier", "db_operation_name"),
    "manga_memory.breaker.transitions": ("tool", "to"),
    "manga_memory.summary.runs": ("outcome",),
    "manga_memory.collisions": ("manga_memory_tier",),
    "manga_memory.deadlines.missed": ("manga_memory_tier",),
    "manga_memory.state.drift": ("field",),
    "manga_memory.tier.up": ("manga_memory_tier",),
    "manga_memory.tool.loops": ("tool",),
    "manga_memory.wait.stuck": ("reason",),
    "manga_memory.serialization.duration": ("operation",),
}
_DEADLINES = {"db.client.operation.duration": 0.05, "manga_memory.layer.duration": 0.111}
"""Seconds at which a panel turns red: the hard deadlines."""


def prometheus_name(metric: Metric) -> str:
    """Return the name a metric has in Prometheus, where OpenTelemetry's exporters put it."""
    name = metric.name.replace(".", "_")
    if metric.unit == "s":
        name += "_seconds"
    return name if metric.buckets or metric.is_gauge else f"{name}_total"


def dashboard() -> dict[str, Any]:
    """Return a Grafana dashboard, as JSON values, with a panel for each metric; its data source is a Prometheus variable."""
    panels = [_panel(number, metric) for number, metric in enumerate(metrics())]
    return {
        "title": "strands_manga_memory",
        "uid": "strands-manga-memory",
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "tags": ["strands", "memory"],
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}]},
        "panels": panels,
    }


def _panel(number: int, metric: Metric) -> dict[str, Any]:
    name, by = prometheus_name(metric), ", ".join(_BY.get(metric.name, ()))
    if metric.buckets:
        grouping = f"le, {by}" if by else "le"
        targets = [
            (
                f"histogram_quantile({share}, sum by ({grouping}) (rate({name}_bucket[$__rate_interval])))",
                f"p{share * 100:g} {_legend(metric)}",
            )
            for share in _PERCENTILES
        ]
    elif metric.is_gauge:
        worst = "min" if metric is TIER_UP else "sum"
        targets = [(f"{worst} by ({by}) ({name})" if by else f"{worst}({name})", _legend(metric))]
    else:
        rate = f"(rate({name}[$__rate_interval]))"
        targets = [(f"sum by ({by}) {rate}" if by else f"sum{rate}", _legend(metric))]
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if metric.name in _DEADLINES:
        steps.append({"color": "red", "value": _DEADLINES[metric.name]})
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": metric.name,
        "description": metric.description,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"h": 8, "w": 12, "x": 12 * (number % 2), "y": 8 * (number // 2)},
        "fieldConfig": {
            "defaults": {
                "unit": "s" if metric.unit == "s" else "short",
                "thresholds": {"mode": "absolute", "steps": steps},
            }
        },
        "targets": [
            {"refId": chr(ord("A") + place), "expr": expression, "legendFormat": legend}
            for place, (expression, legend) in enumerate(targets)
        ],
    }


def _legend(metric: Metric) -> str:
    return " ".join(f"{{{{{label}}}}}" for label in _BY.get(metric.name, ())).strip()
