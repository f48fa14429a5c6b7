"""Creation of memories from the messages of ended conversations (called finalizing).

A conversation's memories are a summary, the user's preferences, passages of the messages, and
recurring topics. After they are stored, the user's weekly and monthly summaries are updated.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from strands_manga_memory.arguments import Clock
from strands_manga_memory.language.open_questions import is_answer, without_interim_answers
from strands_manga_memory.language.session_summaries import (
    RuleSessionSummarizer,
    SessionSummarizer,
    SessionSummary,
    summarize_session,
)
from strands_manga_memory.memory.extraction import (
    passages_of,
    stated_in,
    without_personal_data,
    without_removed,
)
from strands_manga_memory.memory.memory_reader import (
    MAX_MONTHS_TOKENS,
    MAX_WEEKS_TOKENS,
    PERIODS,
    RECENT_DAYS,
    rollup_id,
)
from strands_manga_memory.memory.older_memories import delete_word_list
from strands_manga_memory.memory.partition import MAX_COVERED, not_erased_since, of_type
from strands_manga_memory.memory.pii_policy import PiiPolicy, mask_encrypted
from strands_manga_memory.memory.records import (
    DAY,
    RETENTION,
    MemoryRecord,
    MemoryType,
    Retention,
    content_id,
    ended_at,
    episode_id,
    episodes_of,
    new_record,
    skip_unreadable,
    summary_id,
)
from strands_manga_memory.memory.statements import PreferenceChange, complete_since, message_digest
from strands_manga_memory.memory.store import UserMemoryStore
from strands_manga_memory.messages.texts import shorten_line, truncate_to_tokens
from strands_manga_memory.messages.transcripts import Transcript
from strands_manga_memory.scope import encoded_id
from strands_manga_memory.stores.codec import Codec
from strands_manga_memory.stores.hot import HotStore
from strands_manga_memory.stores.table import Table

_SUMMARY_TOKENS = 60
"""Most tokens of a session's summary, enough for about two sentences."""

_ROLLUP_TOKENS = {MemoryType.WEEK: MAX_WEEKS_TOKENS // 5, MemoryType.MONTH: MAX_MONTHS_TOKENS // 4}
"""Most tokens of a weekly and of a monthly summary.
A text about the user has space for 5 weekly and 4 monthly summaries.
"""

_MAX_TOPICS = 5

_PATTERN_SESSIONS, _PATTERN_DAYS = 3, 30
"""A topic of at least 3 sessions of the last 30 days is a behavioral pattern."""

_PART_PASSAGES = 150
"""Most passages in a record with messages, so that the record has less than 400 KB."""
_OPEN_CHARACTERS = 120

_LONG_SESSION = 3 * 3600.0
"""Seconds since the first message after which a session counts as long.
After a long session, the user's word list (an index of memories) is deleted, because it may lack
memories of the session.
"""


@dataclass(frozen=True, kw_only=True)
class MemoryKeeper:
    """Creator of memories from ended conversations, for all users of a memory table.

    Args:
        table: Table of the schema ``USER_MEMORY``.
        summarizer: Summarizer of sessions, weeks and months. By default, rules write the summaries.
        retention: Retention of each type of memory.
        pii: Policy for personal data.
        codec: Codec of the content and metadata of memories.
        clock: Function that returns seconds since 1970.
        timeout: Most seconds to wait for the summarizer. Default 30.
        hot: Hot tier (a fast shared store, such as Redis) that caches the memories of active users,
            or None.
    """

    table: Table
    summarizer: SessionSummarizer = field(default_factory=RuleSessionSummarizer)
    retention: Mapping[MemoryType, Retention] = field(default_factory=lambda: RETENTION)
    pii: PiiPolicy
    codec: Codec | None = None
    clock: Clock = time.time
    timeout: float = 30.0
    hot: HotStore | None = None

    def finalize(self, transcript: Transcript) -> MemoryRecord | None:
        """Store summary, preferences and messages of an ended conversation as memories of the user.

        A failed call can be repeated. If messages were added or redacted since the last call, the
        new summary replaces the last one. A conversation that is created again after its deletion
        or expiry gets a separate summary.

        Returns:
            The stored summary. None if there is no message to summarize, or if all data of the user
            were deleted.
        """
        return _EndedConversation(self, transcript).finalize()


class _EndedConversation:
    """Creator of the memories of one ended conversation.

    If all data of the user are deleted during this work, no memory is stored after the deletion.
    """

    def __init__(self, keeper: MemoryKeeper, transcript: Transcript) -> None:
        store = UserMemoryStore(
            keeper.table,
            user_id=transcript.user_id,
            tenant=transcript.tenant,
            clock=keeper.clock,
            retention=keeper.retention,
            pii=keeper.pii,
            codec=keeper.codec,
            hot=keeper.hot,
        )
        self._keeper, self._pii = keeper, store.pii
        self._partition, self._log = store.partition, store.preference_log
        item, erased = self._log.read_items()
        logged = self._log.logged(item, erased)
        self._partition.guard = not_erased_since(store.owner.partition, erased)
        self._deletions = logged.forgotten
        # The ids sort by creation of the conversation.
        self._summary_id = summary_id(
            f"{encoded_id(transcript.session_id)}#{encoded_id(transcript.agent_id)}",
            int(transcript.mark, 16) / 1000,
        )
        deleted_at = self._deleted_at(self._summary_id)
        after = max(deleted_at, logged.erased_at, complete_since(logged.removals))
        remaining = without_removed(transcript, logged.removals, after=after)
        self._transcript = without_personal_data(remaining, self._pii)
        self._records: dict[str, MemoryRecord] = {}

    def finalize(self) -> MemoryRecord | None:
        partition, summary = self._partition, self._partition.get(self._summary_id)
        if not self._transcript.utterances:
            return summary
        is_new = summary is None or not self._is_covered(summary)
        if is_new:
            summary = self._store_summary(summary)
        if summary is None:
            return None
        self._store_episodes(summary)
        is_by_rules = summary.metadata.get("by_rules")
        by_model = {} if is_by_rules else dict(summary.metadata.get("preferences") or {})
        if stated := stated_in(self._transcript, by_model):
            self._log.apply(PreferenceChange(statements=stated))
        loaded = partition.load_context({type_: days * DAY for type_, days, _ in PERIODS})
        # A session that is finalized late may be older than the sessions that were read.
        self._records = {self._summary_id: summary, **loaded.records}
        self._close_questions()
        self._store_patterns()
        partition.count_accesses()
        # Expired records would use up the limits of the reads at session start.
        partition.delete_many(loaded.expired)
        self._roll_up()
        # the next session starts with the memories of this one
        self._log.notify_agents(drops_context=True)
        is_long = self._transcript.utterances[0].at < self._keeper.clock() - _LONG_SESSION
        if is_new and (summary.version > 1 or is_long):
            delete_word_list(partition)
        return self._records[self._summary_id]

    def _store(
        self,
        id_: str,
        is_current: Callable[[MemoryRecord], bool],
        ended_at: float,
        **fields: Any,
    ) -> MemoryRecord | None:
        """Create or update a memory, and return it.

        A memory for which ``is_current`` is true is kept. The retention begins at ``ended_at``, the
        end of the last session in the memory, so repeated calls do not extend it. The result is
        None if the stored record is unreadable, or all data of the user were deleted.
        """
        now, rule = self._keeper.clock(), self._keeper.retention[MemoryType(id_.partition("#")[0])]

        def changed(known: MemoryRecord | None) -> MemoryRecord:
            if known is not None and is_current(known):
                return known
            first = known or new_record(id_, rule.importance, now)
            expires_at = rule.expires_at(ended_at)
            return replace(first, **{"updated_at": now, "expires_at": expires_at, **fields})

        return self._update(id_, changed)

    def _update(
        self, id_: str, change: Callable[[MemoryRecord | None], MemoryRecord | None]
    ) -> MemoryRecord | None:
        with skip_unreadable():
            if (stored := self._partition.update(id_, change)) is not None:
                self._records[id_] = stored
            return stored
        return None

    def _deleted_at(self, memory_id: str) -> float:
        """Return the time of a memory's deletion in seconds since 1970; 0 if it was not deleted."""
        return self._deletions.get(message_digest(memory_id), 0.0)

    def _is_covered(self, record: MemoryRecord) -> bool:
        covered, revisions = record.metadata.get("covered", 0), record.metadata.get("revisions", 0)
        return bool((covered, revisions) >= (self._transcript.covered, self._transcript.revisions))

    def _summaries(self) -> list[MemoryRecord]:
        records = self._records.values()
        return sorted((one for one in records if one.type == MemoryType.SUMMARY), key=ended_at)

    def _store_summary(self, known: MemoryRecord | None) -> MemoryRecord | None:
        """Summarize the session, store summary and unanswered questions, and return the summary.

        ``known`` is the summary that is stored already, if any.
        """
        transcript = self._transcript
        # A summarizer would shorten encrypted data, which can then not be decrypted.
        lines = [(role, mask_encrypted(text)) for role, text in transcript.lines]
        made = summarize_session(
            self._keeper.summarizer,
            lines,
            max_tokens=_SUMMARY_TOKENS,
            timeout=self._keeper.timeout,
        )
        summary = SessionSummary.model_validate(self._pii.applied_to(made.model_dump()))
        open_questions = [shorten_line(each, _OPEN_CHARACTERS) for each in summary.open_questions]
        metadata = {
            "session_id": transcript.session_id,
            "agent_id": transcript.agent_id,
            "turn_count": transcript.turns,
            "topics": list(summary.topics),
            "sentiment": summary.sentiment,
            "open_questions": open_questions,
            "preferences": dict(summary.preferences),
            "ended_at": transcript.ended_at,
            "covered": transcript.covered,
            "revisions": transcript.revisions,
            "by_rules": summary.by_rules,
        }
        if known is not None and (answered := known.listed("answered_questions")):
            metadata = _with_answered(metadata, answered)
        stored = self._store(
            self._summary_id,
            self._is_covered,
            transcript.ended_at,
            content=summary.text,
            metadata=metadata,
        )
        if stored is not None:
            self._partition.store_questions(stored, self._keeper.retention[MemoryType.QUESTION])
        return stored

    def _store_episodes(self, summary: MemoryRecord) -> None:
        transcript, id_ = self._transcript, self._summary_id
        after = self._deleted_at(episode_id(id_, 0))
        passages = passages_of([each for each in transcript.utterances if each.at > after])
        starts = range(0, len(passages), _PART_PASSAGES)
        at = transcript.ended_at
        shared = {
            "session_id": transcript.session_id,
            "topics": summary.metadata["topics"],
            "ended_at": at,
            "covered": transcript.covered,
            "revisions": transcript.revisions,
        }
        for number, start in enumerate(starts):
            part = passages[start : start + _PART_PASSAGES]
            self._store(
                episode_id(id_, number),
                self._is_covered,
                at,
                created_at=at,
                updated_at=at,
                metadata={**shared, "passages": part},
            )
        self._partition.delete_many(self._partition.ids(episodes_of(id_))[len(starts) :])

    def _close_questions(self) -> None:
        """Mark open questions of the last 7 days as answered if a later session answered them."""
        oldest = self._keeper.clock() - RECENT_DAYS * DAY
        for record in self._summaries():
            own = self._records[self._summary_id]
            if record.memory_id == own.memory_id:
                continue
            asked, later = (record, own) if ended_at(record) <= ended_at(own) else (own, record)
            if asked.listed("open_questions") and ended_at(asked) > oldest:
                is_own = later is own
                lines = self._transcript.lines if is_own else self._stored_lines(later.memory_id)
                self._close_answered(asked, without_interim_answers(lines))

    def _close_answered(self, record: MemoryRecord, lines: Sequence[tuple[str, str]]) -> None:
        turns = itertools.pairwise(lines)
        answers = [(text, asked) for (_, asked), (role, text) in turns if role == "assistant"]
        answered = [
            each
            for each in map(str, record.listed("open_questions"))
            if any(is_answer(text, each, asked) for text, asked in answers)
        ]

        def closed(known: MemoryRecord | None) -> MemoryRecord | None:
            return known and replace(known, metadata=_with_answered(known.metadata, answered))

        if answered and (stored := self._update(record.memory_id, closed)) is not None:
            self._partition.store_questions(stored, self._keeper.retention[MemoryType.QUESTION])

    def _stored_lines(self, summary_id: str) -> list[tuple[str, str]]:
        passages: list[Any] = []
        with skip_unreadable():
            loaded = self._partition.load([of_type(episodes_of(summary_id))])
            for record in loaded.records.values():
                passages += record.listed("passages")
        parts = [line.partition(": ") for passage in passages for line in str(passage).split("\n")]
        return [(role.lower(), text) for role, _, text in parts]

    def _store_patterns(self) -> None:
        oldest = self._keeper.clock() - _PATTERN_DAYS * DAY
        sessions, names = defaultdict[str, dict[str, float]](dict), dict[str, str]()
        for record in self._summaries():
            for topic in map(str, record.listed("topics")):
                if (at := ended_at(record)) >= oldest:
                    names[topic.casefold()] = topic
                    sessions[topic.casefold()][str(record.metadata.get("session_id"))] = at
        for name, ends in sessions.items():
            topic = names[name]
            id_ = content_id(MemoryType.PATTERN, topic)
            deleted_at = self._deleted_at(id_)
            # A deleted pattern is stored again only after as many new sessions.
            if sum(at > deleted_at for at in ends.values()) < _PATTERN_SESSIONS:
                continue
            metadata = {"topic": topic, "sessions": sorted(ends)}
            self._store(
                id_,
                lambda known, new=metadata: known.metadata == new,  # type: ignore[misc]
                max(ends.values()),
                content=f"Asked about {topic} in {len(ends)} sessions of {_PATTERN_DAYS} days.",
                metadata=metadata,
            )

    def _roll_up(self) -> None:
        """Update the user's weekly and monthly summaries.

        They cover sessions that ended at least 7 (weekly) or 30 days (monthly) ago.
        """
        now, summaries = self._keeper.clock(), self._summaries()
        for type_, days, name in PERIODS:
            periods: dict[str, list[MemoryRecord]] = defaultdict(list)
            for record in summaries:
                at, id_ = ended_at(record), rollup_id(type_, name, ended_at(record))
                if now - at >= days * DAY and at > self._deleted_at(id_):
                    periods[id_].append(record)
            for id_, sessions in sorted(periods.items()):
                expires_at = self._keeper.retention[type_].expires_at(ended_at(sessions[-1]))
                if expires_at is None or expires_at > now:
                    self._roll_up_period(type_, id_, sessions)

    def _roll_up_period(
        self, type_: MemoryType, id_: str, sessions: Sequence[MemoryRecord]
    ) -> None:
        versions = {record.memory_id: record.version for record in sessions}

        def is_current(rollup: MemoryRecord) -> bool:
            return versions.items() <= rollup.covers.items()

        stored = self._records.get(id_)
        if stored is not None and is_current(stored):
            return
        # The summaries of some sessions of the period may have expired.
        covers = {**(stored.covers if stored else {}), **versions}
        counts = Counter(str(topic) for record in sessions for topic in record.listed("topics"))
        topics = [topic for topic, _ in counts.most_common(_MAX_TOPICS)]
        text = self._rollup_text(sessions, _ROLLUP_TOKENS[type_])
        if not text:
            number = f"{len(covers)} session{'' if len(covers) == 1 else 's'}"
            about = f" about {', '.join(topics[:3])}" if topics else ""
            text = f"{number}{about}; last: {shorten_line(sessions[-1].content, 120)}"
        at = ended_at(sessions[-1])
        self._store(
            id_,
            is_current,
            at,
            content=truncate_to_tokens(self._pii.applied(text), _ROLLUP_TOKENS[type_]),
            metadata={
                "period": id_.partition("#")[2],
                "sessions": len(covers),
                "topics": topics,
                "ended_at": at,
            },
            covers=dict(list(covers.items())[-MAX_COVERED:]),
        )

    def _rollup_text(self, sessions: Sequence[MemoryRecord], max_tokens: int) -> str:
        """Return a model's summary of the sessions of a week or month; "" if no model wrote it."""
        summarizer = self._keeper.summarizer
        if isinstance(summarizer, RuleSessionSummarizer):
            return ""
        lines = [("user", record.content) for record in sessions]
        timeout = self._keeper.timeout
        summary = summarize_session(summarizer, lines, max_tokens=max_tokens, timeout=timeout)
        return "" if summary.by_rules else summary.text


def _with_answered(metadata: Mapping[str, Any], answered: Sequence[str]) -> dict[str, Any]:
    earlier = metadata.get("answered_questions")
    known = list(dict.fromkeys([*answered, *(earlier if isinstance(earlier, list) else ())]))
    still_open = [each for each in metadata.get("open_questions", ()) if each not in known]
    # Later versions of the summary must not list the questions as open again.
    return {**metadata, "open_questions": still_open, "answered_questions": known}
