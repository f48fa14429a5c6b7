"""dashboard: the Grafana dashboard of the package's metrics."""

from __future__ import annotations

import json

from strands_manga_memory import telemetry


def dashboard() -> None:
    """Print the Grafana dashboard for the package's metrics, as JSON to import."""
    print(json.dumps(telemetry.dashboard(), indent=2, ensure_ascii=False))  # noqa: T201
