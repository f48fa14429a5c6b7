"""StackedConversationManager: what managers that stand on a trimmer have in common."""

from __future__ import annotations

from typing import Any

from strands.agent.conversation_manager import ConversationManager, ProactiveCompressionConfig
from strands.hooks import HookRegistry
from strands.types.content import Message

from strands_manga_memory.conversation.importance import ImportanceWeightedConversationManager
from strands_manga_memory.conversation.layout import check_manager


class StackedConversationManager(ConversationManager):
    """Leaves it to the manager below what a session keeps and how the window is restored.

    Args:
        below: The manager below: the trimmer, or another manager that stands on it.
        trimmer: The trimmer at the bottom.
        proactive_compression: As in Strands' own managers.
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

    @property
    def persist_layout(self) -> bool:
        """Whether the window is restored from the manager's own state; see ``ImportanceWeightedConversationManager``."""
        return self.trimmer.persist_layout

    @persist_layout.setter
    def persist_layout(self, value: bool) -> None:
        self.trimmer.persist_layout = value

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        """Register the hooks of this manager, then of those below: of one order, the hooks of those above run first."""
        super().register_hooks(registry, **kwargs)
        self._register(registry)
        self._below.register_hooks(registry, **kwargs)

    def _register(self, registry: HookRegistry) -> None:
        """Register the hooks of this manager alone."""

    def get_state(self) -> dict[str, Any]:
        """Return what a session keeps."""
        state: dict[str, Any] = self._below.get_state()
        self.removed_message_count = self.trimmer.removed_message_count
        return {**state, "__name__": type(self).__name__}

    def restore_from_session(self, state: dict[str, Any]) -> list[Message] | None:
        """Take back what :meth:`get_state` returned.

        Raises:
            ValueError: The state is that of another conversation manager.
            CorruptRecordError: The state is malformed, or a newer version of this package wrote it.
        """
        check_manager(state, self)
        self._below.restore_from_session({**state, "__name__": type(self._below).__name__})
        self.removed_message_count = self.trimmer.removed_message_count
        return None
