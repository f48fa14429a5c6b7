"""Sweeper: a background job that finishes expired conversations.

It writes the last turns of a conversation to the durable tier, calls a finalizer such as a
summarizer, and removes the conversation from the hot tier.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Protocol

from strands_manga_memory.arguments import Count, PositiveSeconds, checked, with_repr
from strands_manga_memory.messages.injection import message_text
from strands_manga_memory.messages.message_parts import custom_metadata
from strands_manga_memory.messages.transcripts import Transcript, Utterance
from strands_manga_memory.session.agent_snapshot import UNREADABLE_TEXT
from strands_manga_memory.session.protocol.conversation_storage import ConversationStorage
from strands_manga_memory.session.protocol.durable_tier import DurableTier
from strands_manga_memory.session.protocol.hot_tier import read_hot_head
from strands_manga_memory.session.protocol.record import Record, Turn, TurnKey
from strands_manga_memory.session.session_log import log_entries
from strands_manga_memory.session.tiers import (
    BUCKETS,
    TOMBSTONE,
    ConversationKey,
    ExpiryEntry,
    ExpiryIndex,
    Tiers,
    directory_entry,
    finalized_key,
)
from strands_manga_memory.session.ttl import TtlPolicy
from strands_manga_memory.stores.codec import Codec
from strands_manga_memory.stores.hot import CLOSING, HotStore
from strands_manga_memory.stores.table import Table
from strands_manga_memory.stores.urls import hot_store_of, table_of
from strands_manga_memory.stores.writer import cause_of

logger = logging.getLogger(__name__)


@with_repr("key")
class EndedConversation:
    """Conversation that has expired or was closed, as a finalizer gets it.

    A finalizer is a function that processes ended conversations, such as a summarizer.

    Args:
        conversation_key: Storage key of the conversation.
        tiers: The stores of the conversation.
        ids: Unescaped ids of session, user, tenant and member (agent or orchestrator), from the
            index of expiring conversations. Used if no tier has the ids.

    Attributes:
        storage: Access to the conversation in the two stores, with this process's copy of it.
        durable: Access to the conversation in the durable tier (such as DynamoDB); None without
            one.
    """

    def __init__(
        self,
        conversation_key: ConversationKey,
        tiers: Tiers,
        *,
        ids: Mapping[str, str | None] | None = None,
    ) -> None:
        self.key = conversation_key
        self.storage = ConversationStorage(conversation_key, tiers, ids=ids or {})
        self.durable = self.storage.durable

    @property
    def record(self) -> Record:
        """Stored state of the conversation, as last read from a tier."""
        return self.storage.local.base

    @property
    def ids(self) -> Mapping[str, str]:
        """Known ids of the conversation's session, user, tenant and member, unescaped.

        The member is the agent, Graph or Swarm.
        """
        return self.record.ids or self.storage.local.ids

    def flush(self, *, claimed: tuple[int, int]) -> bool:
        """Copy to the durable tier those turns that only the hot tier has.

        Args:
            claimed: Epoch and version of the hot tier's copy when the sweeper claimed (reserved)
                the conversation.

        Returns:
            Whether the conversation can be finished. False if another process has written to the
            hot tier since the claim, or if that tier has no content. Nothing is copied then.

        Raises:
            StoreUnavailableError: A tier does not answer.
            CorruptRecordError: The record in a tier cannot be read.
        """
        found, hot = self.storage.read_hot(touch=False), self.storage.hot
        stored = None if hot is None else hot.stored
        if found.is_empty or stored is None or stored.expect != claimed:
            return False
        if self.durable is not None:
            self.storage.flush(writes_hot=False, closes=True)
        return True

    def read(self) -> None:
        """Read the conversation from the durable tier or, without one, from the hot tier.

        The time to live does not restart.

        Raises:
            StoreUnavailableError: The tier does not answer.
            CorruptRecordError: The record cannot be read.
        """
        if self.durable is not None:
            self.storage.read_head()
            self.storage.read_unlisted_turns()
        else:
            self.storage.read_hot(touch=False)

    @property
    def ended_incarnations(self) -> list[int]:
        """Numbers of the conversation's expired incarnations (runs) that still have a log.

        An incarnation ends when the conversation expires, and the next begins when the user
        returns. Each has its own log (list of its turns), which a sweeper deletes later.
        """
        first, present = max(1, self.record.logs_from), self.record.incarnation
        numbers = [] if self.durable is None else self.durable.incarnations()
        return [one for one in numbers if one >= first and (one < present or not present)]

    def transcripts(self) -> Iterator[Transcript]:
        """Yield a transcript of each incarnation (run) of the conversation that has stored turns.

        An incarnation ends when the conversation expires. The next begins when the user returns.
        The present incarnation is the last one.
        """
        if self.durable is not None:
            for number in self.ended_incarnations:
                yield from self._transcript(self.durable.read_log(number))
        yield from self.present_transcript()

    def present_transcript(self) -> Iterator[Transcript]:
        """Yield the conversation's messages since its last expiry or deletion, as one transcript.

        If there are no such messages, or if the user or session is not known, nothing is yielded.
        """
        if not self.record.is_empty:
            yield from self._transcript(dict(self.storage.history()))

    def _transcript(self, log: Mapping[TurnKey, Turn]) -> Iterator[Transcript]:
        ids, entries = self.ids, log_entries(log, {})
        if not entries or not ids.get("user") or not ids.get("session"):
            return
        texts = ((entry, message_text(entry.message).strip()) for entry in entries)
        yield Transcript(
            user_id=ids["user"],
            tenant=ids.get("tenant"),
            session_id=ids["session"],
            agent_id=ids.get("member") or "default",
            mark=f"{round(entries[0].at * 1000):x}",
            utterances=tuple(
                Utterance(
                    entry.message["role"],
                    text,
                    entry.turn,
                    entry.at,
                    entry.message.get("tracking_id") or "",
                    custom_metadata(entry.message).get("learn") != "nothing",
                )
                for entry, text in texts
                if text not in ("", UNREADABLE_TEXT)
            ),
            turns=entries[-1].turn,
            covered=len(entries),
            revisions=sum(entry.revision for entry in entries),
            ended_at=entries[-1].at,
        )


class Finalizer(Protocol):
    """Function that processes an ended conversation. For example, it writes a summary."""

    def __call__(self, conversation: EndedConversation) -> None:
        """Process an ended conversation. After an error or a crash, the call is repeated."""


class SessionSweeper:
    """Background job that finishes expired conversations, and deletes the logs of ended sessions.

    A conversation has expired when nobody used it during its time to live. Its last turns are
    written to the durable tier, the finalizer is called, and the conversation is removed from the
    hot tier. Its session ends ``ttl.session`` seconds after the last use. The log (all stored
    messages) is deleted ``ttl.grace`` seconds later. A sweep never restarts a time to live.

    Any number of sweepers may run at the same time, because each conversation is first claimed
    (reserved) by one of them. If a turn begins meanwhile, the conversation is not finished.

    Args:
        hot: The hot tier or its URL, or None. With a durable tier, an in-memory hot tier is
            ignored.
        durable: The durable tier or its URL. None: expired conversations are dropped after the call
            of the finalizer.
        finalizer: Function that is called when the last turns are in the durable tier, such as a
            ``SessionFinalizer``. If it raises an error, the conversation is tried again after
            ``lease`` seconds.
        ttl: The ``TtlPolicy`` that the session managers use.
        codec: The ``Codec`` that the session managers use.
        clock: Returns the time in seconds since 1970.
        lease: Seconds after which another sweeper may claim a claimed conversation. Default 60. A
            finalizer must take less time.

    Raises:
        ValueError: There is neither a hot nor a durable tier, or ``lease`` is not above 0.
    """

    @checked
    def __init__(
        self,
        *,
        hot: HotStore | str | None,
        durable: Table | str | None,
        finalizer: Finalizer | None = None,
        ttl: TtlPolicy | None = None,
        codec: Codec | None = None,
        clock: Callable[[], float] = time.time,
        lease: PositiveSeconds = 60.0,
    ) -> None:
        self._finalizer, self._lease = finalizer, lease
        self._tiers = Tiers.of(
            hot_store_of(hot), table_of(durable), codec=codec, clock=clock, ttl=ttl
        )
        self._index = None if durable is None else ExpiryIndex(self._table)

    def __repr__(self) -> str:
        return f"SessionSweeper({self._tiers.store_names}, finalizer={self._finalizer!r})"

    @checked
    def run_once(self, *, limit: Count = 100) -> int:
        """Finish expired conversations, at most ``limit`` from each of the two tiers.

        Returns:
            Number of conversations removed from the hot tier, plus the number of conversations that
            were finalized from the durable tier.

        Raises:
            StoreUnavailableError: The hot tier or, without one, the durable tier does not answer.
                Other failures are logged.
        """
        if (hot := self._tiers.hot) is None:
            return self._sweep_durable(limit)
        finished = sum(self._sweep(hot, name) for name in list(hot.expired(limit=limit)))
        return finished + _run_logged(partial(self._sweep_durable, limit))

    # The hot tier

    def _sweep(self, hot: HotStore, name: str) -> bool:
        claimed = hot.claim(name, lease=self._lease)
        if claimed is None:
            return False
        expect = claimed.epoch, claimed.version
        return bool(_run_logged(partial(self._finish, hot, name, expect)))

    def _finish(self, hot: HotStore, name: str, expect: tuple[int, int]) -> bool:
        conversation = EndedConversation(ConversationKey.parse(name), self._tiers)
        is_cache = name.count("/") > 1  # not a conversation
        if is_cache or not conversation.flush(claimed=expect):
            hot.drop(name, expect=expect)  # cached data, a tombstone or an empty record
            return False
        if conversation.durable is not None:
            self._finalize_if_changed(conversation, conversation.durable)
            return conversation.storage.empty_hot()
        if self._finalizer is not None:
            self._finalizer(conversation)
        return hot.drop(name, expect=expect)

    # The durable tier

    def _sweep_durable(self, limit: int) -> int:
        if self._index is None:
            return 0
        index, now = self._index, self._tiers.clock()
        due = index.due(now, start=secrets.randbelow(BUCKETS))
        claimed = (entry for entry in due if index.claim(entry, now=now, lease=self._lease))
        return sum(
            _run_logged(partial(self._check_entry, entry, index))
            for entry in islice(claimed, limit)
        )

    def _check_entry(self, entry: ExpiryEntry, index: ExpiryIndex) -> bool:
        due, is_finalized = self._check_conversation(entry)
        if due is None:
            index.remove(entry.key)
        else:
            index.postpone(entry, due=due)
        return is_finalized

    def _check_conversation(self, entry: ExpiryEntry) -> tuple[float | None, bool]:
        """Check a conversation in the durable tier, and do the work that is due.

        - While the hot tier has a copy of the conversation, nothing is due.
        - After the conversation's time to live, the finalizer is called.
        - ``ttl.grace`` seconds after the end of its session, a deletion marker (tombstone) replaces
          the conversation, and the log is deleted.
        - If the conversation was deleted already, the rest of its log is deleted.
        - After the expiry of the marker, the marker is deleted.

        Returns:
            Time of the next check in seconds since 1970 (None: no further check), and whether the
            finalizer was called.
        """
        now, ttl, hot = self._tiers.clock(), self._tiers.ttl, self._tiers.hot
        if hot is not None and (copy := read_hot_head(hot, entry.key.name)) is not None:
            wait = 0.0 if copy.state == CLOSING else max(0.0, copy.expires_in)
            return now + wait + self._lease, False
        conversation = EndedConversation(entry.key, self._tiers, ids=entry.ids)
        conversation.read()
        durable, record, storage = conversation.durable, conversation.record, conversation.storage
        assert durable is not None  # noqa: S101 - for the type checker
        due = record.last_used + ttl.ttl(record.turn_count)
        if not record.is_empty and now < due:
            return due, False
        has_turns = bool(record.message_count or conversation.ended_incarnations)
        is_finalized = has_turns and self._finalize_if_changed(conversation, durable)
        if not record.is_empty:
            durable.purge(record.incarnation)
            over_at, away = record.last_used + ttl.session + ttl.grace, now - record.last_used
            if over_at > now:
                # A user may return within the session. The longer the absence, the rarer the
                # checks.
                return min(over_at, now + 2 * max(self._lease, away)), is_finalized
            is_over = storage.expire(unused_since=now - ttl.session)
        elif logs := durable.incarnations():
            # If the table's own TTL has deleted the head, there is no tombstone yet.
            is_over = max(logs) < record.incarnation or storage.begin_incarnation(
                storage.local.expired_record(max(logs))
            )
        else:
            return self._remove_head(entry, durable), False
        # A log may be deleted only after a tombstone was put. A writer that continues the
        # conversation finds the tombstone, and moves its unsaved turns to the next incarnation.
        if is_over:
            durable.purge(conversation.record.incarnation)
        return now + ttl.grace + self._lease, is_finalized

    def _finalize_if_changed(self, conversation: EndedConversation, durable: DurableTier) -> bool:
        if self._finalizer is None:
            return False
        partition, sort = finalized_key(conversation.key)
        version = durable.head_item.get("v")
        if version and version == (self._table.get(partition, sort) or {}).get("v"):
            return False
        self._finalizer(conversation)
        if version is None:  # the head is missing
            return True
        until = int(self._tiers.clock() + 2 * self._tiers.ttl.session)
        mark = {"session_id": partition, "sk": sort, "v": version, self._table.schema.ttl: until}
        self._table.put(mark)
        return True

    def _remove_head(self, entry: ExpiryEntry, durable: DurableTier) -> float | None:
        """Remove an expired tombstone (deletion marker). Return the next check's time, if any."""
        now = self._tiers.clock()
        expires_at = int(durable.head_item.get(self._table.schema.ttl) or 0)
        if expires_at > now:
            return expires_at
        if not durable.remove_head():
            return now + self._lease
        listed = directory_entry(entry.key.session, entry.ids)
        rows = self._table.query(entry.key.session, attributes=[])
        if listed and all(row["sk"] == TOMBSTONE for row in rows):
            self._table.delete(listed["session_id"], listed["sk"])
        return None

    @property
    def _table(self) -> Table:
        assert self._tiers.durable is not None  # noqa: S101 - for the type checker
        return self._tiers.durable


def _run_logged(work: Callable[[], int]) -> int:
    try:
        return work()
    except Exception as error:
        cause = cause_of(error)
        logger.warning("error=<%s> | the sweep continues at the next call", cause)
        logger.debug("error=<%s> | why", type(error).__name__, exc_info=True)
        return 0
