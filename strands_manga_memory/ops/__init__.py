"""Tools for the operators of a deployment. A running agent imports none of these tools.

``diagnose`` checks a deployment. ``CostModel`` and ``ttl_advice`` help to plan it. ``iam_policy``
and ``cloudformation_yaml`` help to set it up. ``import_user`` and ``import_sessions`` import data.
``inspect`` shows a stored conversation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strands_manga_memory.lazy_imports import lazy_names

if TYPE_CHECKING:
    from strands_manga_memory.ops.advice import ttl_advice
    from strands_manga_memory.ops.cost_model import CostModel, differences, prices
    from strands_manga_memory.ops.doctor import diagnose
    from strands_manga_memory.ops.importing import SessionsReport, import_sessions, import_user
    from strands_manga_memory.ops.inspection import inspect, places
    from strands_manga_memory.ops.provisioning import cloudformation_yaml, iam_policy
    from strands_manga_memory.ops.store_checks import Finding, Level
    from strands_manga_memory.ops.workload import Workload, session_use

_NAMES = {
    "advice": "ttl_advice",
    "cost_model": "CostModel differences prices",
    "doctor": "diagnose",
    "importing": "SessionsReport import_sessions import_user",
    "inspection": "inspect places",
    "provisioning": "cloudformation_yaml iam_policy",
    "store_checks": "Finding Level",
    "workload": "Workload session_use",
}
"""Public names of each module. A module is imported at the first use of one of its names."""

__all__ = [
    "CostModel",
    "Finding",
    "Level",
    "SessionsReport",
    "Workload",
    "cloudformation_yaml",
    "diagnose",
    "differences",
    "iam_policy",
    "import_sessions",
    "import_user",
    "inspect",
    "places",
    "prices",
    "session_use",
    "ttl_advice",
]

__getattr__, __dir__ = lazy_names(__name__, _NAMES, __all__)
