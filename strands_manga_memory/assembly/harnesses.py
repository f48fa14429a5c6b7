"""Agents of ``strands-harness``, which take our parts in another form than ``strands.Agent``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from inspect import signature
from typing import TYPE_CHECKING, Any, Unpack, cast

from strands import Agent
from strands.agent.conversation_manager import ConversationManager
from strands.models import Model
from strands.plugins import Plugin

from strands_manga_memory import conversation
from strands_manga_memory.assembly.agent_options import (
    AgentOptions,
    HarnessKwargs,
    HarnessOptions,
    PartsAsked,
    merged,
    split_options,
)
from strands_manga_memory.assembly.assembly import DEFAULT_AGENT, Assembly

if TYPE_CHECKING:
    from strands.experimental.context_manager import ContextManager

_GIVEN_OTHERWISE = {"model", "session", "agent_kwargs"}


class HarnessAssembly(Assembly):
    """What ``MangaMemory`` does for agents of ``strands-harness``."""

    def harness(
        self,
        model: Model | str | None = None,
        *,
        user_id: str,
        session_id: str,
        agent_id: str = DEFAULT_AGENT,
        tenant: str | None = None,
        session: bool = True,
        **options: Unpack[HarnessOptions],
    ) -> Agent:
        """Build an agent of ``strands-harness``: ``create_harness`` with what ``harness_kwargs`` returns.

        Args:
            model: A model, or its name, as ``create_harness`` takes it; of a name no context window is known here.
            user_id: The user.
            session_id: The session, unique within the user.
            agent_id: The agent, unique within the session.
            tenant: The tenant; None is a tenant of its own.
            session: False: neither our session manager nor one of the harness.
            options: The other arguments of ``harness_kwargs``, and those of ``create_harness``. ``instructions``: a text is for
                the harness. ``memory`` takes the place of our memory manager.

        Raises:
            ImportError: ``strands-harness`` is not installed.
            ValueError: An id or a setting is not allowed.
        """
        create = _maker()
        asked, own = _split(options, create)
        scope: dict[str, Any] = {"user_id": user_id, "session_id": session_id, "agent_id": agent_id, "tenant": tenant}
        window = model if isinstance(model, Model) else None
        parts: dict[str, Any] = {**self.harness_kwargs(session=session, model=window, **scope, **asked)}
        if own.get("memory") is not None:
            parts.pop("memory_manager", None)
        return create(model=model, **({} if session else {"session": False}), **parts, **own)

    def harness_kwargs(self, **asked: Unpack[PartsAsked]) -> HarnessKwargs:
        """Return keyword arguments for ``strands_harness.create_harness``, or for ``Agent(context_manager=...)``.

        They are those of ``agent_kwargs``; our policies and plugins are strategies of a ``ContextManager``, whose stash is its
        agent's own: sub-agents of a harness get the harness's own context manager.

        Args:
            asked: The arguments of ``agent_kwargs``. ``plugins`` of yours stay plugins, and the ``strategies`` of a
                ``context_manager``, which is a mapping here, come after ours.

        Raises:
            ValueError: An id or a setting is not allowed.
        """
        given: dict[str, Any] = {**asked}
        plugins, theirs = given.pop("plugins", None), given.pop("context_manager", None)
        parts: dict[str, Any] = {**self.agent_kwargs(**given)}
        policies = [*parts.pop("plugins", ()), parts.pop("conversation_manager")]
        parts["context_manager"] = _together(policies, theirs)
        return cast("HarnessKwargs", merged(parts, {"plugins": plugins}))


def _maker() -> Callable[..., Agent]:
    """Return ``create_harness``.

    Raises:
        ImportError: ``strands-harness`` is not installed.
    """
    try:
        from strands_harness import create_harness
    except ImportError as error:
        raise ImportError("memory.harness needs strands-harness: pip install strands-harness") from error
    return create_harness


def _split(options: Mapping[str, Any], create: Callable[..., Agent]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what is for ``harness_kwargs``, and what only a harness takes.

    Args:
        options: All of it.
        create: What builds the harness, which is asked for its arguments.

    Raises:
        ValueError: One is for neither; the message names it, and what is closest.
    """
    theirs = signature(create).parameters.keys() - _GIVEN_OTHERWISE - AgentOptions.__annotations__.keys()
    if isinstance(options.get("instructions"), str | None):
        theirs |= {"instructions"}
    else:  # instruction files, which are ours
        theirs -= {"instructions"}
    split_options(options, more=theirs)
    own = {name: value for name, value in options.items() if name in theirs}
    return {name: value for name, value in options.items() if name not in theirs}, own


def _together(policies: Iterable[ConversationManager | Plugin], theirs: Any) -> ContextManager:
    """Return a context manager of our policies, and of the strategies that were given behind them.

    Raises:
        ValueError: What was given is no mapping, or a policy is not one of this package.
    """
    from strands.experimental.context_manager import ContextManager

    config = {} if theirs in (None, False) else theirs
    if not isinstance(config, Mapping):
        raise ValueError(f"context_manager must be a mapping here, such as {{'strategies': [...]}}, got {theirs!r:.80}")
    ours = [conversation.as_strategy(policy) for policy in policies]
    return ContextManager(**{**config, "strategies": [*ours, *config.get("strategies", ())]})
