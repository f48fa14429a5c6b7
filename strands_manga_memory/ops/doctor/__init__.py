"""Finds problems of a deployment and suggests remedies.

``diagnose`` connects to each store, tries every operation of the package on temporary records, and reads the status that
the servers report. The command ``strands-manga-memory doctor`` prints the findings. The runbook covers the usual incidents.
"""

from __future__ import annotations

from strands_manga_memory.ops.doctor.diagnosis import diagnose
from strands_manga_memory.ops.doctor.finding import Finding, Level

__all__ = ["Finding", "Level", "diagnose"]
