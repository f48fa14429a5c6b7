"""Cost of a deployment per month, its capacity, and their sensitivity to inputs.

``CostModel.paper()`` reproduces a published design from its own inputs. ``CostModel.measured(workload)`` uses
measurements of this package and current prices. Prices are dated data in ``prices.json``, or in a file of the same
format. ``differences()`` compares the two. ``strands-manga-memory cost`` prints all results.
"""

from __future__ import annotations

from strands_manga_memory.ops.cost.capacity import CapacityPlan, capacity_plan
from strands_manga_memory.ops.cost.cost_model import (
    Cost,
    CostModel,
    Difference,
    NodePrice,
    Prices,
    TokenPrice,
    differences,
    prices,
    sensitivity,
)
from strands_manga_memory.ops.cost.use import MEASURED, MonthlyUse, SessionUse, Workload, session_use

__all__ = [
    "MEASURED",
    "CapacityPlan",
    "Cost",
    "CostModel",
    "Difference",
    "MonthlyUse",
    "NodePrice",
    "Prices",
    "SessionUse",
    "TokenPrice",
    "Workload",
    "capacity_plan",
    "differences",
    "prices",
    "sensitivity",
    "session_use",
]
