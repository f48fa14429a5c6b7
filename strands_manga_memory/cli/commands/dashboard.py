"""dashboard: the Grafana dashboard of the package's metrics."""

from __future__ import annotations

import json

from strands_manga_memory.ops.dashboard import dashboard as metrics_dashboard


def dashboard() -> None:
    """Print the Grafana dashboard for the package's metrics, as JSON to import."""
    print(json.dumps(metrics_dashboard(), indent=2, ensure_ascii=False))  # noqa: T201
