"""Adapter that lets a conversation manager work as a Strands context strategy.

Strands' context strategies are experimental. No other module of this package depends on them.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from strands.agent.conversation_manager import ConversationManager
from strands.hooks import AfterInvocationEvent, AgentInitializedEvent, HookOrder, MessageAddedEvent
from strands.types.exceptions import ContextWindowOverflowException

from strands_manga_memory.arguments import checked, with_repr
from strands_manga_memory.conversation.importance import same_objects
from strands_manga_memory.conversation.importance_manager import (
    ImportanceWeightedConversationManager,
    StackedConversationManager,
)

if TYPE_CHECKING:
    from strands import Agent
    from strands.experimental.context_manager import ContextState

    Policy = ImportanceWeightedConversationManager | StackedConversationManager

STATE_KEY = "manga_context"
"""Key of the conversation manager's state in ``agent.state``."""

_BEFORE_THE_POLICY = HookOrder.SDK_LAST - 1
_AS_THE_AGENT_WOULD = HookOrder.SDK_FIRST - 2
_BEFORE_THE_SESSION = HookOrder.SDK_FIRST + 1


@checked
def as_strategy(policy: ConversationManager) -> PolicyStrategy:
    """Wrap a conversation manager as a Strands context strategy.

    Use the result in ``Agent(context_manager={"strategies": [as_strategy(policy), ...]})``. The
    manager (``policy``) works as in ``Agent(conversation_manager=...)``. The result can be combined
    with Strands' own strategies and with Strands' stash (storage for offloaded messages). One
    manager serves one agent. Plugins such as ``HistoryRecall`` are given to the agent as
    ``plugins``.

    Args:
        policy: ``ImportanceWeightedConversationManager``,
            ``VerifiedSummarizingConversationManager`` or ``TieredCompactionConversationManager``.

    Raises:
        ValueError: ``policy`` is none of these.
    """
    if not isinstance(policy, ImportanceWeightedConversationManager | StackedConversationManager):
        raise ValueError(
            f"policy must be a conversation manager of this package, got {policy!r:.80}"
        )
    return PolicyStrategy(policy)


@with_repr("policy")
class PolicyStrategy:
    """Strands context strategy that limits the history with a conversation manager.

    Create it with ``as_strategy``.

    Attributes:
        policy: The conversation manager, for calls of its ``usage``, ``explain`` and ``stats``.
        name: Name of the strategy in Strands' logs.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._trimmer = (
            policy if isinstance(policy, ImportanceWeightedConversationManager) else policy.trimmer
        )
        self.name = f"manga-memory:{type(policy).__name__.removesuffix('ConversationManager')}"

    def init(self, agent: Agent, **kwargs: Any) -> None:
        """Register the hooks that apply, save and restore the conversation manager.

        Strands registers these hooks itself only if the manager is the ``conversation_manager`` of
        the agent. Here, the manager is wrapped in a strategy.
        """
        agent.add_hook(self._restore, AgentInitializedEvent, order=_BEFORE_THE_POLICY)
        agent.add_hook(
            lambda event: self.policy.apply_management(event.agent),
            AfterInvocationEvent,
            order=_AS_THE_AGENT_WOULD,
        )
        self.policy.register_hooks(agent.hooks)
        agent.add_hook(self._save, MessageAddedEvent, order=_BEFORE_THE_SESSION)
        agent.add_hook(self._save, AfterInvocationEvent, order=_BEFORE_THE_SESSION)

    async def apply(self, context: ContextState) -> bool:
        """Keep the history within the limits of the conversation manager.

        After an overflow of the model's context window, the history is reduced even if it is within
        these limits.

        Returns:
            Whether the history changed.
        """
        agent = context.agent
        before = agent.messages[:]
        if context.overflow:
            error = ContextWindowOverflowException("the model's context window is full")
            # If nothing can be freed, the strategies behind this one may still find something.
            with suppress(ContextWindowOverflowException):
                self.policy.reduce_context(agent, error)
        else:
            await self.policy.keep_within_budget(context)
        return not same_objects(before, agent.messages)

    def _save(self, event: MessageAddedEvent[Agent] | AfterInvocationEvent) -> None:
        state = {**self.policy.get_state(), "records": self._trimmer.log_length}
        if event.agent.state.get(STATE_KEY) != state:
            event.agent.state.set(STATE_KEY, state)

    def _restore(self, event: AgentInitializedEvent[Agent]) -> None:
        agent, state = event.agent, event.agent.state.get(STATE_KEY)
        if not isinstance(state, dict) or state.get("__name__") != type(self.policy).__name__:
            return
        state = dict(state)
        # The session has restored also the messages that were evicted before the restart.
        if len(agent.messages) >= state.pop("records", 0):
            del agent.messages[: state.get("removed_message_count", 0)]
        else:
            state |= {"removed_message_count": 0, "layout": None}
        self.policy.restore_from_session(state)
