"""Finalizer, which makes users' long-term memories, such as summaries, from ended sessions."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import suppress

from strands.models import Model

from strands_manga_memory.arguments import Clock, PositiveSeconds, checked
from strands_manga_memory.exceptions import ConflictError
from strands_manga_memory.language.session_summaries import SessionSummarizer, resolve_summarizer
from strands_manga_memory.memory.finalizing import MemoryKeeper
from strands_manga_memory.memory.pii_policy import PiiPolicy
from strands_manga_memory.memory.records import RETENTION, MemoryRecord, MemoryType, Retention
from strands_manga_memory.messages.transcripts import Transcript
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.session import TtlPolicy
from strands_manga_memory.session.protocol.hot_tier import read_hot_head
from strands_manga_memory.session.session_sweeper import EndedConversation
from strands_manga_memory.session.tiers import ConversationKey, Tiers
from strands_manga_memory.stores.codec import Codec
from strands_manga_memory.stores.hot import ACTIVE, HotRecord, HotStore
from strands_manga_memory.stores.table import USER_MEMORY, Table
from strands_manga_memory.stores.urls import hot_store_of, table_of
from strands_manga_memory.telemetry import HANDOFF, measured

logger = logging.getLogger(__name__)


_SETTLED_SECONDS, _CLAIM_SECONDS = 5.0, 60.0
_PAUSES = (0.02, 0.1, 0.5)


class SessionFinalizer:
    """Finalizer that makes long-term memories of a user from ended sessions.

    The memories are summaries, topics, preferences and messages. Pass the finalizer to a
    ``SessionSweeper`` for sessions that expire. Call ``run`` for sessions that are closed.

    Each conversation has one summary, even if several processes finalize it. A conversation with
    new messages is finalized again, and its new summary replaces the old one. If the model fails,
    hangs or returns invalid output, the summary is made by rules.

    Args:
        hot: Hot tier of the session managers, a store or its URL; None if there is none. With a
            durable tier, a ``memory://`` store has no conversations.
        durable: Durable tier of the session managers, a table or its URL; None if there is none.
        memories: Memory table of the schema ``USER_MEMORY``, or its URL.
        model: Strands model or summarizer that writes the summaries. None: summaries are made by
            rules.
        clock: Function that returns seconds since 1970.
        ttl: Time-to-live policy of the session managers.
        codec: Codec of the session managers.
        memory_codec: Codec of the memories, the same as that of ``UserMemoryStore``.
        pii: Policy for personal data in memories. Default ``PiiPolicy()``.
        timeout: Seconds to wait for the model. Default 30.
        retention: Storage time and ranking values of each type of memory. Default ``RETENTION``.

    Raises:
        ValueError: There is neither a hot nor a durable tier, or ``timeout`` is not above 0.
    """

    @checked
    def __init__(
        self,
        *,
        hot: HotStore | str | None,
        durable: Table | str | None,
        memories: Table | str,
        model: Model | SessionSummarizer | None = None,
        clock: Clock = time.time,
        ttl: TtlPolicy | None = None,
        codec: Codec | None = None,
        memory_codec: Codec | None = None,
        pii: PiiPolicy | None = None,
        timeout: PositiveSeconds = 30.0,
        retention: Mapping[MemoryType, Retention] = RETENTION,
    ) -> None:
        caches = hot_store_of(hot)
        self._tiers = Tiers.of(caches, table_of(durable), codec=codec, clock=clock, ttl=ttl)
        self._keeper = MemoryKeeper(
            table=table_of(memories, USER_MEMORY, name="memories"),
            summarizer=resolve_summarizer(model),
            pii=pii or PiiPolicy(),
            codec=memory_codec,
            clock=clock,
            timeout=timeout,
            retention=retention,
            hot=caches,
        )

    def __repr__(self) -> str:
        return f"SessionFinalizer({self._tiers.store_names})"

    def __call__(self, conversation: EndedConversation) -> None:
        """Store memories of an expired conversation. A ``SessionSweeper`` calls this method."""
        for transcript in conversation.transcripts():
            self._finalized(transcript)

    def run(self, scope: ConversationScope) -> MemoryRecord | None:
        """Store memories of a closed conversation, such as a summary, and return the summary.

        The result is None if there is nothing to summarize. Close the session manager first,
        otherwise unsaved messages are missed.

        If there is a durable tier, the conversation is removed from the hot tier. A user who
        returns before the session expires continues from the durable tier. After new messages, the
        conversation can be finalized again.

        Raises:
            ConflictError: Another process uses or finalizes the conversation now. A sweeper
                (process that ends expired sessions) finalizes the conversation later.
            StoreUnavailableError: A store does not answer.
        """
        conversation_key = ConversationKey.of(scope.storage_session_id, "A", scope.agent_id)
        self._tiers.writer.drain(_SETTLED_SECONDS)  # pending saves of this process
        lease = _CLAIM_SECONDS
        for pause in _PAUSES:
            with suppress(ConflictError):  # another save is under way, and ends soon
                claimed = self._claim(conversation_key, lease)
                # the next attempt replaces the claim of this one
                lease = _CLAIM_SECONDS if claimed is None else 0.0
                return self._run(conversation_key, claimed)
            time.sleep(pause)
        return self._run(conversation_key, self._claim(conversation_key, lease))

    def _claim(self, conversation_key: ConversationKey, lease: float) -> HotRecord | None:
        """Reserve a conversation in the hot tier, so that no other process finalizes it now.

        The result is None if the hot tier does not have the conversation.

        Raises:
            ConflictError: Another process has reserved the conversation within the last ``lease``
                seconds.
        """
        if self._tiers.hot is None:
            return None
        claimed = self._tiers.hot.claim(conversation_key.name, lease=lease, expired_only=False)
        if claimed is None and read_hot_head(self._tiers.hot, conversation_key.name) is not None:
            raise ConflictError("the conversation is being finalized by someone else")
        return claimed

    def _run(
        self, conversation_key: ConversationKey, claimed: HotRecord | None
    ) -> MemoryRecord | None:
        conversation = EndedConversation(conversation_key, self._tiers)
        is_flushed = claimed is not None and conversation.flush(
            claimed=(claimed.epoch, claimed.version)
        )
        if not is_flushed:
            conversation.read()
        stored = None
        for transcript in conversation.present_transcript():
            stored = self._finalized(transcript)
        if self._tiers.hot is not None and claimed is not None and self._tiers.durable is not None:
            if is_flushed:
                conversation.storage.empty_hot()
            else:  # an empty record, or a tombstone
                self._tiers.hot.drop(conversation_key.name, expect=(claimed.epoch, claimed.version))
        return stored

    def _finalized(self, transcript: Transcript) -> MemoryRecord | None:
        with measured(HANDOFF):
            return self._keeper.finalize(transcript)


def restart_ttl(hot: HotStore | None, scope: ConversationScope) -> bool:
    """Restart the time to live of a conversation, and return whether the hot tier has it."""
    name = ConversationKey.of(scope.storage_session_id, "A", scope.agent_id).name
    if hot is None or read_hot_head(hot, name) is None:
        return False
    record = hot.load(name, [], touch=True)
    return record is not None and record.state == ACTIVE
