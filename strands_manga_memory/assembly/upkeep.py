"""Upkeep: what becomes of conversations that ended, and what is done with all there is of a user."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from strands.models import Model

from strands_manga_memory import session
from strands_manga_memory.arguments import of_kind
from strands_manga_memory.assembly.process import Process
from strands_manga_memory.scope import ConversationScope

if TYPE_CHECKING:
    from strands_manga_memory import language, memory, user_data
    from strands_manga_memory.assembly.finalizer import SessionFinalizer


class Upkeep(Process):
    """What ``MangaMemory`` does beside its agents: it ends conversations, and erases, exports and encrypts what users have."""

    def finalizer(self, model: Model | language.SessionSummarizer | None = None) -> SessionFinalizer:
        """Return what turns sessions that ended into memories; ``model`` summarizes them, by default rules do.

        Raises:
            ValueError: ``memories`` was not opened.
        """
        from strands_manga_memory.assembly.finalizer import SessionFinalizer  # whoever ends no session does not load it

        return SessionFinalizer(
            hot=self._stores["hot"],
            durable=self._stores["durable"],
            memories=self._known(),
            model=model,
            pii=self._pii,
            retention=self.settings.retention(),
            memory_codec=self._memory_codec,
            **self._kept("ttl", "codec", "clock"),
        )

    def sweeper(self, model: Model | language.SessionSummarizer | None = None) -> session.SessionSweeper:
        """Return what finishes expired sessions; with ``memories`` it turns them into memories."""
        finalizer = None if self.memories is None else self.finalizer(model)
        kept = self._kept("ttl", "codec", "clock")
        return session.SessionSweeper(hot=self._stores["hot"], durable=self._stores["durable"], finalizer=finalizer, **kept)

    def finalize(
        self, scope: ConversationScope, *, model: Model | language.SessionSummarizer | None = None
    ) -> memory.MemoryRecord | None:
        """Close a session and store what is kept of it; return its summary, or None if nothing was said.

        Raises:
            ValueError: ``memories`` was not opened, or ``scope`` is no ``ConversationScope``.
            StoreUnavailableError: A store does not answer.
        """
        of_kind("scope", scope, ConversationScope)
        for manager in list(self._managers):
            if manager.scope is not None and manager.scope.storage_session_id == scope.storage_session_id:
                manager.close()
        return self.finalizer(model).run(scope)

    def disconnected(self, scope: ConversationScope) -> bool:
        """Let the grace of a user who has just disconnected begin: as long as the time to live; a return within it resumes.

        Returns:
            Whether the conversation is in the hot tier; ``sweeper()`` finalizes it when the grace is over.

        Raises:
            ValueError: ``memories`` was not opened, or ``scope`` is no ``ConversationScope``.
        """
        return self.finalizer().disconnected(of_kind("scope", scope, ConversationScope))

    def forget_user(
        self, user_id: str, *, tenant: str | None = None, progress: Callable[[str], object] = lambda name: None
    ) -> user_data.ErasureReport:
        """Delete everything there is of a user; see ``erasure.forget_user``."""
        from strands_manga_memory import user_data

        return user_data.forget_user(user_id, tenant=tenant, progress=progress, **self._of_user("ttl", "codec", "clock"))

    def export_user(self, user_id: str, *, tenant: str | None = None) -> dict[str, Any]:
        """Return everything there is of a user; see ``erasure.export_user``."""
        from strands_manga_memory import user_data

        return user_data.export_user(user_id, tenant=tenant, memory_codec=self._memory_codec, **self._of_user("codec", "clock"))

    def _of_user(self, *names: str) -> dict[str, Any]:
        return {**self._stores, **self._kept(*names), **({"memories": False} if self._has_no_memories else {})}

    def _kept(self, *names: str) -> dict[str, Any]:
        return {name: self._settings[name] for name in names if name in self._settings}
