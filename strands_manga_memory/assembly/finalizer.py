"""SessionFinalizer: turns sessions that ended into memories of their user."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from strands.models import Model

from strands_manga_memory.exceptions import ConflictError
from strands_manga_memory.language.session_summaries import SessionSummarizer, Transcript, resolve_summarizer
from strands_manga_memory.memory.finalizing import MemoryKeeper
from strands_manga_memory.memory.pii_policy import PiiPolicy
from strands_manga_memory.memory.preferences.hot_profile import HotProfile
from strands_manga_memory.memory.preferences.preference_log import CommittedChange
from strands_manga_memory.memory.records import RETENTION, MemoryRecord, MemoryType, Owner, Retention
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.session import TtlPolicy
from strands_manga_memory.session.places import Place
from strands_manga_memory.session.protocol.hot_tier import hot_copy_of
from strands_manga_memory.session.session_sweeper import EndedConversation
from strands_manga_memory.session.tiers import Tiers
from strands_manga_memory.stores.encoding.codec import Codec
from strands_manga_memory.stores.hot import ACTIVE, HotStore
from strands_manga_memory.stores.opened import hot_store_of, table_of
from strands_manga_memory.stores.table import USER_MEMORY, Table
from strands_manga_memory.telemetry import HANDOFF, measured

logger = logging.getLogger(__name__)


_SETTLED_SECONDS, _CLAIM_SECONDS = 5.0, 60.0
_PAUSES = (0.02, 0.1, 0.5)


@dataclass
class _Claim:
    """Whether this run has claimed the conversation."""

    is_ours: bool = False


class SessionFinalizer:
    """Stores the memories of an ended session: summary, topics, sentiment, preferences, patterns.

    Give it to a ``SessionSweeper`` for sessions that expire, and call ``run`` for those that are closed. There is one
    summary for each incarnation of a conversation, by any number of finalizers; after more messages, the next
    version replaces it. If the model fails, hangs or returns nonsense, the summary is made by rules.

    Args:
        hot: The hot tier of the session managers, or its URL, like the other stores; None, or one that does not survive its
            process if there is a durable tier, is not used.
        durable: Their durable tier.
        memories: A table of the schema ``USER_MEMORY``.
        model: A Strands model or a summarizer; None: by rules.
        clock: Seconds since 1970.
        ttl: The policy of the session managers.
        codec: Their codec.
        memory_codec: Seals memories, as of ``UserMemoryStore(codec=...)``.
        pii: Treatment of personal data. Default ``PiiPolicy()``.
        timeout: Seconds to wait for the model. Default 30.
        keep_episodes: Whether the messages are stored for searches across sessions. Default True.
        retention: How long each type of memory is kept. Default ``RETENTION``.

    Raises:
        ValueError: There is neither a hot nor a durable tier, or ``timeout`` is not above 0.
    """

    def __init__(
        self,
        *,
        hot: HotStore | str | None,
        durable: Table | str | None,
        memories: Table | str,
        model: Model | SessionSummarizer | None = None,
        clock: Callable[[], float] = time.time,
        ttl: TtlPolicy | None = None,
        codec: Codec | None = None,
        memory_codec: Codec | None = None,
        pii: PiiPolicy | None = None,
        timeout: float = 30.0,
        keep_episodes: bool = True,
        retention: Mapping[MemoryType, Retention] = RETENTION,
    ) -> None:
        if hot is None and durable is None:
            raise ValueError("hot and durable are both None: there are no sessions to finalize")
        if not timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds, got {timeout!r:.80}")
        self._caches = hot_store_of(hot)
        self._tiers = Tiers.of(
            self._caches,
            table_of(durable),
            codec=codec,
            clock=clock,
            ttl=ttl,
            on_store_error="raise",
        )
        self._memory_codec = memory_codec
        self._pii = pii or PiiPolicy()
        self._keeper = MemoryKeeper(
            table=table_of(memories, USER_MEMORY, name="memories"),
            summarizer=resolve_summarizer(model),
            pii=self._pii,
            codec=memory_codec,
            clock=clock,
            timeout=timeout,
            keep_episodes=keep_episodes,
            retention=retention,
        )

    def __repr__(self) -> str:
        return f"SessionFinalizer({self._tiers.store_names})"

    def __call__(self, conversation: EndedConversation) -> None:
        """Finalize a conversation that a sweeper has claimed and flushed."""
        for transcript in conversation.transcripts():
            self._finalized(transcript)

    def run(self, scope: ConversationScope) -> MemoryRecord | None:
        """Finalize a conversation that was closed; return its summary, or None if there is nothing to summarize.

        Close the session manager first, or its unsaved messages are missed. The hot copy is dropped; a user who comes
        back within the session's time finds the conversation in the durable tier, and it can be finalized again.

        Raises:
            ConflictError: Someone is using or finalizing it right now; the sweeper will do it.
            StoreUnavailableError: A store does not answer.
        """
        place = Place.of(scope.storage_session_id, "A", scope.agent_id)
        self._tiers.writer.drain(_SETTLED_SECONDS)  # what this process has still to save of it
        claim = _Claim()
        for pause in _PAUSES:
            try:
                return self._run(place, claim)
            except ConflictError:  # somebody else's save was under way; it is over in a moment
                time.sleep(pause)
        return self._run(place, claim)

    def _run(self, place: Place, claim: _Claim) -> MemoryRecord | None:
        claimed = None
        if self._tiers.hot is not None:
            # A claim of an earlier try is this one's to take again; anybody else's is left alone until it is old.
            lease = 0.0 if claim.is_ours else _CLAIM_SECONDS
            claimed = self._tiers.hot.claim(place.conversation, lease=lease, expired_only=False)
            claim.is_ours = claim.is_ours or claimed is not None
            if claimed is None and hot_copy_of(self._tiers.hot, place.conversation) is not None:
                raise ConflictError("the conversation is being finalized by someone else")
        conversation = EndedConversation(place, self._tiers)
        is_flushed = claimed is not None and conversation.flush(claimed=(claimed.epoch, claimed.version))
        if not is_flushed:
            conversation.read()
        stored = None
        for transcript in conversation.present_transcript():
            stored = self._finalized(transcript)
        if self._tiers.hot is not None and claimed is not None and self._tiers.durable is not None:
            if is_flushed:
                conversation.hold.empty_hot()
            else:  # an empty record, or a tombstone
                self._tiers.hot.drop(place.conversation, expect=(claimed.epoch, claimed.version))
        return stored

    def _finalized(self, transcript: Transcript) -> MemoryRecord | None:
        with measured(HANDOFF):
            stored = self._keeper.finalize(transcript)
        if self._caches is not None:  # the next session starts with the memories of this one
            owner = Owner(transcript.user_id, transcript.tenant)
            profile = HotProfile(self._caches, owner, codec=self._memory_codec)
            profile.publish(CommittedChange(revision=self._keeper.revision(owner)), drops_context=True)
        return stored

    def disconnected(self, scope: ConversationScope) -> bool:
        """Start the grace period of a user who has just disconnected; it has the length of the time to live.

        Returns:
            Whether there is a conversation in the hot tier; the sweeper finalizes it when the grace is over.
        """
        if self._tiers.hot is None:
            return False
        name = Place.of(scope.storage_session_id, "A", scope.agent_id).conversation
        if hot_copy_of(self._tiers.hot, name) is None:
            return False
        record = self._tiers.hot.load(name, [], touch=True)
        return record is not None and record.state == ACTIVE
