"""Doctor: looks at a deployment, and says what is wrong with it and what to do.

``diagnose`` connects to each tier, tries everything the package does there on records of its own, which it removes again, and
reads what servers say of themselves.
``strands-manga-memory doctor`` prints what it finds; the runbook says what to do about five incidents.
"""

from __future__ import annotations

from strands_manga_memory.ops.doctor.diagnosis import diagnose
from strands_manga_memory.ops.doctor.finding import Finding, Level

__all__ = ["Finding", "Level", "diagnose"]
