"""Invocation state (the dict that Strands passes to a tool) of a single tool call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from strands.middleware import ExecuteToolContext
from strands.types.agent import LocalAgent

_OF_THE_CALL = ("agent", "model", "messages", "system_prompt", "tool_config")
"""Keys that Strands writes to the invocation state just before each tool call."""

_Context = TypeVar("_Context", bound=ExecuteToolContext)

if TYPE_CHECKING:
    _Dict = dict[str, Any]
else:

    class _Dict(MutableMapping, dict):
        """Base class of a dict in which ``get``, ``items`` and other methods call ``__getitem__``.

        The methods of a plain dict would ignore the ``__getitem__`` of a subclass.
        """

        def __or__(self, other):
            return dict(self) | other

        def __ior__(self, other):
            self.update(other)
            return self


class CallState(_Dict):
    """Invocation state of one tool call, with the agent that made this call.

    A ``CallState`` keeps agent, model, messages, system prompt and tool configuration of its own
    call. All other keys are read and written in ``shared``, the dict that Strands passes to tools.
    Parallel nodes of a Graph share one such dict, so each call replaces the agent in it.

    Args:
        shared: Shared invocation state.
        agent: Agent of the call. Default: the agent in ``shared``, if any.
    """

    def __init__(self, shared: MutableMapping[str, Any], agent: LocalAgent | None = None) -> None:
        if agent is None or shared.get("agent") is agent:
            own = {name: shared[name] for name in _OF_THE_CALL if name in shared}
        else:
            own = _of(agent)
        dict.__init__(self, own)  # the json module renders a dict without items of its own as empty
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
        """Return the current items of the invocation state as a plain dict."""
        return dict(self)

    __copy__ = copy


def with_own_state(context: _Context) -> _Context:
    """Return a copy of a tool call's context, with a ``CallState`` as invocation state.

    Parallel calls then do not overwrite each other's agent.
    """
    return replace(context, invocation_state=CallState(context.invocation_state, context.agent))


def _of(agent: LocalAgent) -> dict[str, Any]:
    specs = agent.tool_registry.get_all_tool_specs()
    return {
        "agent": agent,
        "model": agent.model,
        "messages": agent.messages,
        "system_prompt": agent.system_prompt,
        "tool_config": {
            "tools": [{"toolSpec": spec} for spec in specs],
            "toolChoice": {"auto": {}},
        },
    }


def declares_read_only(spec: Mapping[str, Any]) -> bool:
    """Return whether the specification of a tool declares that the tool only reads.

    The annotation ``readOnlyHint`` must be True, and ``destructiveHint`` must not be True.
    """
    hints = spec.get("annotations")
    return (
        isinstance(hints, Mapping)
        and hints.get("readOnlyHint") is True
        and hints.get("destructiveHint") is not True
    )
