"""Protection of agents against failing tools and MCP servers.

A tool that is guarded has a circuit breaker. After several failures in a row, the breaker opens and
rejects calls of the tool, until a trial call (probe) succeeds. Each MCP server has a supervisor
that restores a lost connection. The result of a failed call tells the model how to continue.
"""

from strands_manga_memory.circuit_breaker import BreakerEvent, CircuitBreaker, Health, Permit, State
from strands_manga_memory.mcp.answers import redact_secrets
from strands_manga_memory.mcp.call import user_of_call
from strands_manga_memory.mcp.classify import CallOutcome, Outcome, Verdict, classify
from strands_manga_memory.mcp.guard import BreakerPolicy, ToolStatus
from strands_manga_memory.mcp.guarded_tools import GuardedTool, guard_tool
from strands_manga_memory.mcp.middleware import BreakerMiddleware
from strands_manga_memory.mcp.provider import GuardedMCPTools
from strands_manga_memory.mcp.supervisor import ServerState, ServerSupervisor

__all__ = [
    "BreakerEvent",
    "BreakerMiddleware",
    "BreakerPolicy",
    "CallOutcome",
    "CircuitBreaker",
    "GuardedMCPTools",
    "GuardedTool",
    "Health",
    "Outcome",
    "Permit",
    "ServerState",
    "ServerSupervisor",
    "State",
    "ToolStatus",
    "Verdict",
    "classify",
    "guard_tool",
    "redact_secrets",
    "user_of_call",
]
