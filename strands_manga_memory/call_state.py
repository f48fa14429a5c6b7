"""CallState: the invocation state of one tool call, whose agent stays its agent when the call goes on in another task."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from strands.middleware import ExecuteToolContext
from strands.types.agent import LocalAgent

_OF_THE_CALL = ("agent", "model", "messages", "system_prompt", "tool_config")
"""What Strands writes into the invocation state just before each tool call."""

_Context = TypeVar("_Context", bound=ExecuteToolContext)

if TYPE_CHECKING:
    _Dict = dict[str, Any]
else:

    class _Dict(MutableMapping, dict):
        """A dict all of whose methods go through ``__getitem__`` and its like."""

        def __or__(self, other):
            return dict(self) | other

        def __ior__(self, other):
            self.update(other)
            return self


class CallState(_Dict):
    """A view of an invocation state in which the agent of a call, and what belongs to it, cannot be replaced from outside.

    The nodes of a Graph that run at the same time share one invocation state, and Strands writes the agent into it just before
    each tool call. A tool that starts after any pause would find the agent of another node. All other keys are those of the
    shared state, read and written.

    Args:
        shared: The state all share.
        agent: Whose call it is. None: the agent the state has now, if any.
    """

    def __init__(self, shared: MutableMapping[str, Any], agent: LocalAgent | None = None) -> None:
        if agent is None or shared.get("agent") is agent:
            own = {name: shared[name] for name in _OF_THE_CALL if name in shared}
        else:
            own = _of(agent)
        dict.__init__(self, own)  # not empty, or the json module would think that there is nothing in it
        self._shared, self._own = shared, own

    def __getitem__(self, name: str) -> Any:
        return self._own[name] if name in self._own else self._shared[name]

    def __setitem__(self, name: str, value: Any) -> None:
        (self._own if name in self._own else self._shared)[name] = value

    def __delitem__(self, name: str) -> None:
        del (self._own if name in self._own else self._shared)[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from (name for name in list(self._shared) if name not in self._own)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(dict(self))

    def copy(self) -> dict[str, Any]:
        """Return a dict with what it holds now."""
        return dict(self)

    __copy__ = copy


def with_own_state(context: _Context) -> _Context:
    """Return the context of a tool call with an invocation state in which its agent stays."""
    return replace(context, invocation_state=CallState(context.invocation_state, context.agent))


def _of(agent: LocalAgent) -> dict[str, Any]:
    specs = agent.tool_registry.get_all_tool_specs()
    return {
        "agent": agent,
        "model": agent.model,
        "messages": agent.messages,
        "system_prompt": agent.system_prompt,
        "tool_config": {"tools": [{"toolSpec": spec} for spec in specs], "toolChoice": {"auto": {}}},
    }
