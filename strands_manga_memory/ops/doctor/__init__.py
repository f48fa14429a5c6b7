"""Doctor: finds problems of a deployment and their remedies.

``diagnose`` connects to each tier, tries every operation of the package on temporary records, and reads the servers'
own status. ``strands-manga-memory doctor`` prints the findings; the runbook covers the usual incidents.
"""

from __future__ import annotations

from strands_manga_memory.ops.doctor.diagnosis import diagnose
from strands_manga_memory.ops.doctor.finding import Finding, Level

__all__ = ["Finding", "Level", "diagnose"]
