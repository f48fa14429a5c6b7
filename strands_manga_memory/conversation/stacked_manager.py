"""Base class of conversation managers that wrap an importance-weighted manager."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from strands.agent.conversation_manager import ConversationManager, ProactiveCompressionConfig
from strands.hooks import AfterInvocationEvent, BeforeModelCallEvent, HookOrder, HookRegistry
from strands.types.content import Message

from strands_manga_memory.conversation.copying import Template
from strands_manga_memory.conversation.importance_manager import ImportanceWeightedConversationManager
from strands_manga_memory.conversation.window_layout import check_manager

if TYPE_CHECKING:
    from strands.agent.agent import Agent
    from strands.experimental.context_manager import ContextState


class StackedConversationManager(Template, ConversationManager):
    """Base class of a conversation manager that wraps another conversation manager.

    The wrapped manager stores the state and restores the agent's history.

    Attributes:
        trimmer: The innermost wrapped manager, which is importance-weighted.
    """

    def __init__(
        self,
        below: ImportanceWeightedConversationManager | StackedConversationManager,
        trimmer: ImportanceWeightedConversationManager,
        *,
        proactive_compression: bool | ProactiveCompressionConfig | None = None,
    ) -> None:
        super().__init__(proactive_compression=proactive_compression)
        self._below = below
        self.trimmer = trimmer
        self._is_put_off = False

    @property
    def persist_layout(self) -> bool:
        """Whether the manager's state contains the layout of the history.

        Session managers that store the history themselves set this value to False.
        """
        return self.trimmer.persist_layout

    @persist_layout.setter
    def persist_layout(self, value: bool) -> None:
        self.trimmer.persist_layout = value

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        """Register the hooks of this manager and of the wrapped managers.

        Among hooks of equal order, the hooks of the outer managers run first.
        """
        super().register_hooks(registry, **kwargs)
        self._register(registry)
        # Before the trimmer trims in the same event: what is due for a summary becomes one first.
        registry.add_callback(AfterInvocationEvent, self._after_invocation, order=HookOrder.SDK_FIRST - 1)
        self._below.register_hooks(registry, **kwargs)

    async def keep_within_budget(self, event: BeforeModelCallEvent | ContextState) -> None:
        """Keep the history within the budget before a model call.

        This manager works first, then the wrapped managers. Errors are logged and never raised.
        """
        await self._before_model_call(event)
        await self._below.keep_within_budget(event)

    async def _before_model_call(self, event: BeforeModelCallEvent | ContextState) -> None:
        """Run the steps of this manager before a model call, without the wrapped managers."""

    def _register(self, registry: HookRegistry) -> None:
        """Register the hooks of this manager, without the wrapped managers."""
        registry.add_callback(BeforeModelCallEvent, self._before_model_call, order=HookOrder.SDK_LAST)

    def apply_management(self, agent: Agent, **kwargs: Any) -> None:
        """Keep the history within the budget at the end of an invocation.

        Errors are logged and never raised. Work that would block an event loop for long runs in a thread before the invocation
        ends.
        """
        self._is_put_off = self.trimmer.blocks_loop(agent.messages)
        if not self._is_put_off:
            self._manage(agent)

    async def _after_invocation(self, event: AfterInvocationEvent) -> None:
        if self._is_put_off:
            self._is_put_off = False
            await asyncio.to_thread(self._manage, event.agent)

    def _manage(self, agent: Agent) -> None:
        self._below.apply_management(agent)

    def get_state(self) -> dict[str, Any]:
        """Return the state that a session stores."""
        state: dict[str, Any] = self._below.get_state()
        self.removed_message_count = self.trimmer.removed_message_count
        return {**state, "__name__": type(self).__name__}

    def restore_from_session(self, state: dict[str, Any]) -> list[Message] | None:
        """Restore a state that :meth:`get_state` returned.

        Raises:
            ValueError: The state is that of another conversation manager.
            CorruptRecordError: The state is malformed, or a newer version of this package wrote it.
        """
        check_manager(state, self)
        self._below.restore_from_session({**state, "__name__": type(self._below).__name__})
        self.removed_message_count = self.trimmer.removed_message_count
        return None
