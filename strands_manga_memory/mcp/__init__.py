"""Guards for tools against failures of the tools and their MCP servers.

Each tool has a circuit breaker. After several failures, the breaker opens and rejects the tool's
calls, until a probe (a trial call) succeeds. Each server has a supervisor that reconnects to it.
Failed calls return errors that help the model to continue.
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
