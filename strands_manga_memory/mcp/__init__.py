"""Guards for tools against failures of the tools and their MCP servers.

Each tool has a circuit breaker. After several failures, the breaker opens and rejects the tool's calls, until a probe (a trial
call) succeeds. Each server has a supervisor that reconnects to it. Failed calls return errors that help the model to continue.
"""

from strands_manga_memory.circuit_breaker import BreakerEvent, CircuitBreaker, Health, Permit, State
from strands_manga_memory.mcp.breakers.breaker_policy import BreakerPolicy
from strands_manga_memory.mcp.breakers.classify import CallOutcome, Outcome, Verdict, classify
from strands_manga_memory.mcp.breakers.tool_health import ToolStatus
from strands_manga_memory.mcp.calls.answers import redact_secrets
from strands_manga_memory.mcp.calls.call import user_of_call
from strands_manga_memory.mcp.calls.supervisor import ServerState, ServerSupervisor
from strands_manga_memory.mcp.guarded_tools import GuardedTool, guard_tool
from strands_manga_memory.mcp.middleware import BreakerMiddleware
from strands_manga_memory.mcp.provider import GuardedMCPTools

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
