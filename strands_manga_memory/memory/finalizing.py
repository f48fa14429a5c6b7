"""Creation of memories from the messages of ended conversations (called finalizing).

The memories of a conversation are a summary, preferences, passages of its messages, and recurring
topics. Then the sessions of past weeks and months are summarized.
"""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from strands_manga_memory.language.open_questions import is_answer, without_interim_answers
from strands_manga_memory.language.session_summaries import (
    RuleSessionSummarizer,
    SessionSummarizer,
    SessionSummary,
    summarize_session,
)
from strands_manga_memory.memory.hot_profile import HotProfile
from strands_manga_memory.memory.memory_reader import (
    MAX_MONTHS_TOKENS,
    MAX_WEEKS_TOKENS,
    PERIODS,
    RECENT_DAYS,
)
from strands_manga_memory.memory.older_memories import delete_word_list
from strands_manga_memory.memory.partition import (
    MAX_COVERED,
    PartitionContent,
    UserPartition,
    not_erased_since,
)
from strands_manga_memory.memory.pii_policy import PiiPolicy, mask_encrypted
from strands_manga_memory.memory.preference_log import PreferenceLog
from strands_manga_memory.memory.records import (
    DAY,
    RETENTION,
    MemoryRecord,
    MemoryType,
    Owner,
    Retention,
    content_id,
    ended_at,
    episode_id,
    new_record,
    skip_unreadable,
    summary_id,
)
from strands_manga_memory.memory.statements import (
    LoggedChanges,
    PreferenceChange,
    complete_since,
    message_digest,
)
from strands_manga_memory.memory.transcript_contents import (
    passages_of,
    stated_in,
    without_personal_data,
    without_removed,
)
from strands_manga_memory.messages.texts import shorten_line, truncate_to_tokens
from strands_manga_memory.messages.transcripts import Transcript
from strands_manga_memory.scope import encoded_id
from strands_manga_memory.stores.codec import Codec
from strands_manga_memory.stores.hot import HotStore
from strands_manga_memory.stores.table import Table

logger = logging.getLogger(__name__)

WEEK_TOKENS, MONTH_TOKENS = MAX_WEEKS_TOKENS // 5, MAX_MONTHS_TOKENS // 4
"""Most tokens of the summary of a week and of a month, of which 5 and 4 fit into a context."""

_MAX_TOPICS = 5


def _by_rules(sessions: Sequence[MemoryRecord], topics: Sequence[str], number: int) -> str:
    count = f"{number} session{'' if number == 1 else 's'}"
    about = f" about {', '.join(topics[:3])}" if topics else ""
    return f"{count}{about}; last: {shorten_line(sessions[-1].content, 120)}"


SUMMARY_TOKENS = 60
"""Most tokens of a session's summary, enough for about two sentences."""

PATTERN_SESSIONS, PATTERN_DAYS = 3, 30
"""Number of sessions within this many days that make their common topic a behavioral pattern."""

_EPISODE_BYTES = 200_000
_OPEN_CHARACTERS = 120

_LONG_SESSION = 3 * 3600.0
"""Seconds of a long session, whose memories a list of words may lack if made meanwhile."""


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
        hot: Hot tier that caches the memories of active users, or None.
    """

    table: Table
    summarizer: SessionSummarizer = field(default_factory=RuleSessionSummarizer)
    retention: Mapping[MemoryType, Retention] = field(default_factory=lambda: RETENTION)
    pii: PiiPolicy
    codec: Codec | None = None
    clock: Callable[[], float] = time.time
    timeout: float = 30.0
    hot: HotStore | None = None

    def finalize(self, transcript: Transcript) -> MemoryRecord | None:
        """Store summary, preferences and messages of an ended conversation as memories of the user.

        A failed call can be repeated. A later call replaces the summary if messages were added or
        redacted. A conversation that is created again after its deletion or expiry gets a summary
        of its own.

        Returns:
            The stored summary. None if the conversation has no summary, because it has no message
            to summarize or because all data of the user were deleted.
        """
        user = self._user(Owner(transcript.user_id, transcript.tenant))
        id_ = _summary_id(transcript)
        partition, logged = user.partition, user.logged
        after = max(user.deleted_at(id_), logged.erased_at, complete_since(logged.removals))
        transcript = without_removed(transcript, logged.removals, after=after)
        if not transcript.utterances:
            return partition.get(id_) if logged.erased_at == -math.inf else None
        transcript = without_personal_data(transcript, user.pii)
        stored = partition.get(id_)
        is_new = stored is None or not _covers(stored, transcript)
        if is_new:
            stored = self._keep_summary(user, id_, transcript)
        if stored is None:
            return None
        self._keep_episodes(user, id_, transcript, stored)
        is_by_rules = stored.metadata.get("by_rules")
        by_model = {} if is_by_rules else dict(stored.metadata.get("preferences") or {})
        if stated := stated_in(transcript, by_model):
            user.log.apply(PreferenceChange(statements=stated))
        loaded = partition.load_context({type_: days * DAY for type_, days, _ in PERIODS})
        # A session that is finalized late may be older than the sessions that were read.
        loaded.records.setdefault(id_, stored)
        self._close_questions(user, id_, transcript, loaded)
        self._keep_patterns(user, loaded)
        partition.count_accesses()
        # Expired records would use up the limits of the reads at session start.
        partition.delete_many(loaded.expired)
        self._roll_up(user, loaded.records)
        user.log.notify_agents(
            drops_context=True
        )  # the next session starts with the memories of this one
        is_long = transcript.utterances[0].at < self.clock() - _LONG_SESSION
        if is_new and (stored.version > 1 or is_long):
            delete_word_list(partition)
        return loaded.records.get(id_, stored)

    def _user(self, owner: Owner) -> _UserMemories:
        partition = UserPartition(self.table, owner, codec=self.codec, clock=self.clock)
        log = PreferenceLog(
            partition,
            hot=None if self.hot is None else HotProfile(self.hot, owner, codec=self.codec),
            importance=self.retention[MemoryType.PREFERENCE].importance,
        )
        logged, _, erased = log.read()
        partition.guard = not_erased_since(owner.partition, erased)
        return _UserMemories(partition, log, self.pii.of_user(owner.partition), logged)

    def _changed(self, known: MemoryRecord | None, id_: str, **fields: Any) -> MemoryRecord:
        now, type_ = self.clock(), MemoryType(id_.partition("#")[0])
        first = known or new_record(id_, self.retention[type_].importance, now)
        return first.changed(**{"updated_at": now, **fields})

    def _roll_up(self, user: _UserMemories, records: Mapping[str, MemoryRecord]) -> None:
        """Create and update a user's weekly and monthly summaries.

        A weekly summary covers sessions that ended at least 7 days ago. A monthly summary covers
        sessions that ended at least 30 days ago. If a weekly or monthly summary was deleted, a new
        one covers only sessions that ended after the deletion.
        """
        sessions = sorted(
            (record for record in records.values() if record.type == MemoryType.SUMMARY),
            key=ended_at,
        )
        now = self.clock()
        for type_, days, name_of in PERIODS:
            periods: dict[str, list[MemoryRecord]] = defaultdict(list)
            for record in sessions:
                at, id_ = ended_at(record), f"{type_}#{name_of(ended_at(record))}"
                if now - at >= days * DAY and at > user.deleted_at(id_):
                    periods[id_].append(record)
            for id_, covered in sorted(periods.items()):
                expires_at = self.retention[type_].expires_at(ended_at(covered[-1]))
                if expires_at is None or expires_at > now:
                    self._roll_up_period(user, id_, covered, records.get(id_), expires_at)

    def _roll_up_period(
        self,
        user: _UserMemories,
        id_: str,
        sessions: Sequence[MemoryRecord],
        stored: MemoryRecord | None,
        expires_at: int | None,
    ) -> None:
        versions = {record.memory_id: record.version for record in sessions}

        def is_up_to_date(rollup: MemoryRecord | None) -> bool:
            return rollup is not None and all(
                rollup.covers.get(id_) == version for id_, version in versions.items()
            )

        if is_up_to_date(stored):
            return
        type_, _, period = id_.partition("#")
        max_tokens = WEEK_TOKENS if type_ == MemoryType.WEEK else MONTH_TOKENS
        number = len({*versions, *(stored.covers if stored else ())})
        content, topics = self._rollup_text(user.pii, sessions, max_tokens, number)

        def made(known: MemoryRecord | None) -> MemoryRecord | None:
            if is_up_to_date(known):
                return known
            covers = {**(known.covers if known else {}), **versions}
            metadata = {
                "period": period,
                "sessions": len(covers),
                "topics": topics,
                "ended_at": ended_at(sessions[-1]),
            }
            covers = dict(list(covers.items())[-MAX_COVERED:])
            return self._changed(
                known, id_, content=content, metadata=metadata, covers=covers, expires_at=expires_at
            )

        user.store(id_, made)

    def _rollup_text(
        self, pii: PiiPolicy, sessions: Sequence[MemoryRecord], max_tokens: int, number: int
    ) -> tuple[str, list[str]]:
        """Write the summary of a week or month, and return its text and its most frequent topics.

        ``number`` is the number of all sessions in that period. ``sessions`` may have fewer,
        because the summaries of some sessions may have expired.
        """
        counts = Counter(str(topic) for record in sessions for topic in record.listed("topics"))
        topics = [topic for topic, _ in counts.most_common(_MAX_TOPICS)]
        text = ""
        if not isinstance(self.summarizer, RuleSessionSummarizer):
            lines = [("user", record.content) for record in sessions]
            summary = summarize_session(
                self.summarizer, lines, max_tokens=max_tokens, timeout=self.timeout
            )
            text = "" if summary.by_rules else summary.text
        text = pii.applied(text or _by_rules(sessions, topics, number))
        return truncate_to_tokens(text, max_tokens), topics

    def _keep_summary(
        self, user: _UserMemories, id_: str, transcript: Transcript
    ) -> MemoryRecord | None:
        """Summarize a session, store its summary and open questions, and return the summary.

        An earlier summary is replaced if messages were added or redacted after it was made. If all
        data of the user are deleted in the meantime, nothing is stored and the result is None.
        """
        # A summarizer would shorten encrypted data, which can then not be decrypted.
        lines = [(role, mask_encrypted(text)) for role, text in transcript.lines]
        summary = summarize_session(
            self.summarizer, lines, max_tokens=SUMMARY_TOKENS, timeout=self.timeout
        )
        cleaned = user.pii.applied_to(summary.model_dump())
        summary = SessionSummary.model_validate(cleaned)
        metadata = {
            "session_id": transcript.session_id,
            "agent_id": transcript.agent_id,
            "turn_count": transcript.turns,
            "topics": list(summary.topics),
            "sentiment": summary.sentiment,
            "open_questions": [
                shorten_line(question, _OPEN_CHARACTERS) for question in summary.open_questions
            ],
            "preferences": dict(summary.preferences),
            "ended_at": transcript.ended_at,
            "covered": transcript.covered,
            "revisions": transcript.revisions,
            "by_rules": summary.by_rules,
        }
        # Counted from the end of the session, so that a late or repeated summary is not kept
        # longer.
        expires_at = self.retention[MemoryType.SUMMARY].expires_at(transcript.ended_at)

        def made(known: MemoryRecord | None) -> MemoryRecord:
            if known is not None and _covers(known, transcript):
                return known
            made = self._changed(
                known, id_, content=summary.text, metadata=metadata, expires_at=expires_at
            )
            answered = () if known is None else known.listed("answered_questions")
            return _with_answered(made, answered) if answered else made

        stored = user.partition.update(id_, made)
        if stored is not None:
            user.partition.store_questions(stored, self.retention[MemoryType.QUESTION])
        return stored

    def _close_questions(
        self, user: _UserMemories, id_: str, transcript: Transcript, loaded: PartitionContent
    ) -> None:
        """Mark open questions of the last 7 days as answered if a later session answered them.

        The session being finalized may answer questions of earlier sessions. Its own questions,
        which its summary ``id_`` lists, may be answered in later sessions that were finalized
        before it.
        """
        oldest = self.clock() - RECENT_DAYS * DAY
        summaries = [
            each
            for each in loaded.records.values()
            if each.type == MemoryType.SUMMARY and each.memory_id != id_
        ]
        for record in sorted(summaries, key=ended_at):
            if oldest < ended_at(record) <= transcript.ended_at:
                self._close_answered(user, record, transcript.lines, loaded)
            own = loaded.records.get(id_)
            is_later = ended_at(record) > transcript.ended_at > oldest
            if is_later and own and own.listed("open_questions"):
                self._close_answered(user, own, self._stored_lines(user, record.memory_id), loaded)

    def _close_answered(
        self,
        user: _UserMemories,
        record: MemoryRecord,
        lines: Sequence[tuple[str, str]],
        loaded: PartitionContent,
    ) -> None:
        """Mark open questions in a session summary as answered if a later session answered them.

        ``lines`` are the roles and texts of the later session's messages. The changed summary is
        stored, and replaces the old one in ``loaded``, the memories that were read.
        """
        turns = [
            (question, answer)
            for (_, question), (role, answer) in itertools.pairwise(without_interim_answers(lines))
            if role == "assistant"
        ]
        answered = [
            each
            for each in map(str, record.listed("open_questions"))
            if any(is_answer(answer, each, question) for question, answer in turns)
        ]

        def closed(known: MemoryRecord | None) -> MemoryRecord | None:
            return known and _with_answered(known.changed(), answered)

        if answered and (stored := user.store(record.memory_id, closed)) is not None:
            loaded.records[record.memory_id] = stored
            user.partition.store_questions(stored, self.retention[MemoryType.QUESTION])

    def _stored_lines(self, user: _UserMemories, summary_id: str) -> list[tuple[str, str]]:
        """Read role and text of each stored message of the session with a summary ``summary_id``.

        Unreadable records are skipped.
        """
        passages: list[Any] = []
        for id_ in user.partition.episode_ids(summary_id):
            with skip_unreadable():
                record = user.partition.get(id_)
                passages += [] if record is None else record.listed("passages")
        parts = [line.partition(": ") for passage in passages for line in str(passage).split("\n")]
        return [(role.lower(), text) for role, _, text in parts]

    def _keep_episodes(
        self, user: _UserMemories, id_: str, transcript: Transcript, summary: MemoryRecord
    ) -> None:
        at = transcript.ended_at
        after = user.deleted_at(episode_id(id_, 0))
        passages = passages_of([each for each in transcript.utterances if each.at > after])
        parts, size = list[list[str]](), 0
        for passage in passages:
            length = len(passage.encode("utf-8", "replace")) + 8
            if not parts or size + length > _EPISODE_BYTES:
                parts.append([])
                size = 0
            parts[-1].append(passage)
            size += length
        for number, part in enumerate(parts):
            metadata = {
                "passages": part,
                "session_id": transcript.session_id,
                "topics": summary.metadata["topics"],
                "ended_at": at,
                "covered": transcript.covered,
                "revisions": transcript.revisions,
            }
            expires_at = self.retention[MemoryType.EPISODE].expires_at(at)
            new = self._changed(
                None,
                episode_id(id_, number),
                created_at=at,
                updated_at=at,
                metadata=metadata,
                expires_at=expires_at,
            )

            def later(known: MemoryRecord | None, new: MemoryRecord = new) -> MemoryRecord:
                return known if known and _covers(known, transcript) else new

            user.store(new.memory_id, later)
        user.partition.delete_many(user.partition.episode_ids(id_)[len(parts) :])

    def _keep_patterns(self, user: _UserMemories, loaded: PartitionContent) -> None:
        for topic, sessions in patterns_of(loaded.records.values(), now=self.clock()).items():
            id_ = content_id(MemoryType.PATTERN, topic)
            if sum(ended > user.deleted_at(id_) for ended in sessions.values()) < PATTERN_SESSIONS:
                continue  # it was deleted, and too few sessions followed
            new = {
                "content": (
                    f"Asked about {topic} in {len(sessions)} sessions of {PATTERN_DAYS} days."
                ),
                "expires_at": self.retention[MemoryType.PATTERN].expires_at(max(sessions.values())),
                "metadata": {"topic": topic, "sessions": sorted(sessions)},
            }

            def seen(
                known: MemoryRecord | None, id_: str = id_, new: Mapping[str, Any] = new
            ) -> MemoryRecord:
                if known is not None and known.listed("sessions") == new["metadata"]["sessions"]:
                    return known
                return self._changed(known, id_, **new)

            if (stored := user.store(id_, seen)) is not None:
                loaded.records[id_] = stored


@dataclass(frozen=True)
class _UserMemories:
    """Memories of one user, to which the memories of an ended conversation are added.

    If all data of the user are deleted meanwhile, the method ``store`` writes nothing.
    """

    partition: UserPartition
    log: PreferenceLog
    pii: PiiPolicy
    logged: LoggedChanges

    def store(
        self, id_: str, change: Callable[[MemoryRecord | None], MemoryRecord | None]
    ) -> MemoryRecord | None:
        """Create or change a memory of the user, and return the stored memory.

        ``change`` gets the stored memory (None if it is missing), and returns the memory to store,
        or None to write nothing. The result is None if there is no memory, if the record is
        unreadable, or if all data of the user are deleted in the meantime.
        """
        with skip_unreadable():
            return self.partition.update(id_, change)
        return None

    def deleted_at(self, memory_id: str) -> float:
        """Return the time of a memory's deletion in seconds since 1970; 0 if it was not deleted."""
        return self.logged.forgotten.get(message_digest(memory_id), 0.0)


def _with_answered(summary: MemoryRecord, answered: Sequence[str]) -> MemoryRecord:
    """Return a session summary with some open questions marked as answered.

    The questions move to ``answered_questions``, so that later versions of the summary do not list
    them as open again.
    """
    earlier = summary.listed("answered_questions")
    known = [*answered, *(each for each in earlier if each not in answered)]
    still_open = [each for each in summary.listed("open_questions") if each not in known]
    questions = {"open_questions": still_open, "answered_questions": known}
    return replace(summary, metadata={**summary.metadata, **questions})


def _summary_id(transcript: Transcript) -> str:
    """Return the id of a conversation's summary. The ids sort by creation of the conversation."""
    return summary_id(
        f"{encoded_id(transcript.session_id)}#{encoded_id(transcript.agent_id)}",
        int(transcript.mark, 16) / 1000,
    )


def patterns_of(records: Iterable[MemoryRecord], *, now: float) -> dict[str, dict[str, float]]:
    """Find the patterns of a user: topics that occur in 3 or more sessions of the last 30 days.

    Returns:
        For each topic, the end times of its sessions in seconds since 1970, keyed by session id.
    """
    sessions: dict[str, dict[str, float]] = {}
    names: Counter[str] = Counter()
    for record in records:
        ended = ended_at(record)
        if record.type != MemoryType.SUMMARY or now - ended > PATTERN_DAYS * DAY:
            continue
        for topic in record.listed("topics"):
            names[str(topic)] += 1
            sessions.setdefault(str(topic).casefold(), {})[
                str(record.metadata.get("session_id"))
            ] = ended
    found = {topic: ended for topic, ended in sessions.items() if len(ended) >= PATTERN_SESSIONS}
    shown = {name.casefold(): name for name, _ in reversed(names.most_common())}
    return {shown[topic]: ended for topic, ended in found.items()}


def _covers(record: MemoryRecord, transcript: Transcript) -> bool:
    covered, revisions = record.metadata.get("covered", 0), record.metadata.get("revisions", 0)
    return bool((covered, revisions) >= (transcript.covered, transcript.revisions))
