"""SessionFinalizer: turns sessions that ended into memories of their user."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from strands.models import Model

from strands_manga_memory.exceptions import ConflictError
from strands_manga_memory.language.session_summary import SessionSummarizer
from strands_manga_memory.language.summarizing import summarizer_of
from strands_manga_memory.language.transcript import Transcript
from strands_manga_memory.memory.cache import ProfileCache
from strands_manga_memory.memory.finalizing import MemoryKeeper
from strands_manga_memory.memory.pii import PiiPolicy
from strands_manga_memory.memory.records import MemoryRecord
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.session.conversation import Conversation
from strands_manga_memory.session.ended import earlier_transcript, ended_transcript
from strands_manga_memory.session.records import Place
from strands_manga_memory.session.tiers import Tiers
from strands_manga_memory.session.ttl import TtlPolicy
from strands_manga_memory.stores.codec import Codec
from strands_manga_memory.stores.hot import ACTIVE, DELETED, HotStore
from strands_manga_memory.stores.table import Table
from strands_manga_memory.telemetry import HANDOFF, measured

logger = logging.getLogger(__name__)


class SessionFinalizer:
    """Stores what is kept of a session when it ends: summary, topics, sentiment, preferences, patterns (mission A8).

    Give it to a ``SessionSweeper`` for sessions that expire, and call ``run`` for those that are closed. There is one
    summary for each incarnation of a conversation, whoever finalizes it and however often; if more was said, the next
    version replaces it. If the model fails, hangs or returns nonsense, the summary is made by rules.

    Args:
        hot: The hot tier of the session managers; None, or one that does not survive its process beside a durable tier, is
            not used.
        durable: Their durable tier.
        memories: A table of the schema ``USER_MEMORY``.
        model: A Strands model or a summarizer; None: by rules.
        clock: Seconds since 1970.
        ttl: The policy of the session managers.
        codec: Their codec.
        memory_codec: Seals memories, as of ``UserMemoryStore(codec=...)``.
        pii: What becomes of personal data. Default ``PiiPolicy()``.
        timeout: Seconds to wait for the model. Default 30.
        keep_episodes: Whether what was said is kept for searches across sessions. Default True.

    Raises:
        ValueError: There is neither a hot nor a durable tier, or ``timeout`` is not above 0.
    """

    def __init__(
        self,
        *,
        hot: HotStore | None,
        durable: Table | None,
        memories: Table,
        model: Model | SessionSummarizer | None = None,
        clock: Callable[[], float] = time.time,
        ttl: TtlPolicy | None = None,
        codec: Codec | None = None,
        memory_codec: Codec | None = None,
        pii: PiiPolicy | None = None,
        timeout: float = 30.0,
        keep_episodes: bool = True,
    ) -> None:
        if hot is None and durable is None:
            raise ValueError("hot and durable are both None: there are no sessions to finalize")
        if not timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds, got {timeout!r}")
        self._caches = hot
        self._tiers = Tiers.of(
            hot,
            durable,
            codec=codec,
            clock=clock,
            ttl=ttl,
            on_store_error="raise",
        )
        self._memory_codec = memory_codec
        self._pii = pii or PiiPolicy()
        self._keeper = MemoryKeeper(
            table=memories,
            summarizer=summarizer_of(model),
            pii=self._pii,
            codec=memory_codec,
            clock=clock,
            timeout=timeout,
            keep_episodes=keep_episodes,
        )

    def __call__(self, conversation: Conversation) -> None:
        """Finalize a conversation that a sweeper has claimed and flushed."""
        for transcript in (
            earlier_transcript(conversation.place, self._tiers),
            ended_transcript(conversation.place, self._tiers, ids=conversation.model.as_stored().base),
        ):
            if transcript is not None:
                self._finalized(transcript)

    def run(self, scope: ConversationScope) -> MemoryRecord | None:
        """Finalize a conversation that was closed; return its summary, or None if there is nothing to summarize.

        Close the session manager first, or what it has not saved yet is not seen. The hot copy is dropped; a user who comes
        back within the session's time finds the conversation in the durable tier, and it can be finalized again.

        Raises:
            ConflictError: Someone is using or finalizing it right now; the sweeper will do it.
            StoreUnavailableError: A store does not answer.
        """
        place = Place.of(scope.storage_session_id, "A", scope.agent_id)
        claimed = None
        if self._tiers.hot is not None:
            claimed = self._tiers.hot.claim(place.conversation, expired_only=False)
            there = self._tiers.hot.load(place.conversation, [], touch=False) if claimed is None else None
            if there is not None and there.state != DELETED:
                raise ConflictError("the conversation is being finalized by someone else")
        conversation = Conversation(place, self._tiers, base={})
        if claimed is not None:
            conversation.flush_claimed()
        transcript = ended_transcript(place, self._tiers)
        stored = None if transcript is None else self._finalized(transcript)
        if claimed is not None and self._tiers.hot is not None and self._tiers.durable is not None:
            self._tiers.hot.drop(place.conversation, expect=(claimed.epoch, claimed.version))
        return stored

    def _finalized(self, transcript: Transcript) -> MemoryRecord | None:
        with measured(HANDOFF):
            stored = self._keeper.finalize(transcript)
        if self._caches is not None:  # the next session starts with what was learned in this one
            user = {"user_id": transcript.user_id, "tenant": transcript.tenant}
            ProfileCache(self._caches, **user, codec=self._memory_codec, pii=self._pii).invalidate()  # type: ignore[arg-type]
        return stored

    def disconnected(self, scope: ConversationScope) -> bool:
        """Let the grace of a user who has just disconnected begin: as long as the time to live; a return within it resumes.

        Returns:
            Whether there is a conversation in the hot tier; the sweeper finalizes it when the grace is over.
        """
        if self._tiers.hot is None:
            return False
        record = self._tiers.hot.load(Place.of(scope.storage_session_id, "A", scope.agent_id).conversation, [], touch=True)
        return record is not None and record.state == ACTIVE
