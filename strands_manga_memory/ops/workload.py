"""Calculation of a deployment's DynamoDB units, storage, memory and tokens per month."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from strands_manga_memory.arguments import checked

DAYS_A_MONTH = 30.0
_COMPRESSED_FROM = 2_048  # bytes of a turn, as in the record format of sessions
_ITEM_BYTES = 300  # bytes of a turn's item in addition to the turn: keys and readable attributes
_UNIT_BYTES = 1_024  # bytes of a write unit
_WAITING_TURNS = 5  # turns that wait for a flush, or for the save that records the flush
_SECONDS_A_DAY = 86_400.0
_LIMITS = {"cache_hit_rate": (0.0, 0.9), "peak": (1.0, 100.0), "turns_per_session": (1.0, 10_000.0)}


@checked
@dataclass(frozen=True, kw_only=True)
class Workload:
    """Load of a deployment.

    Args:
        messages_per_day: Number of user messages per day. Each user message is a turn with an
            answer.
        users: Number of users with memories.
        turns_per_session: Number of turns per session.
        bytes_per_message: Bytes per message of a user or assistant.
        seconds_per_turn: Seconds between two turns of a session.
        ttl_seconds: Seconds that a conversation stays in the hot tier after its last turn.
        session_hours: Hours that the log of a session is stored after the last turn, until a
            cleanup process deletes it.
        memory_days: Mean number of days that memories of a session are stored.
        earlier_sessions: Number of a user's earlier sessions with stored memories. None: calculated
            from the other values.
        bytes_per_user: Bytes of a user's preferences and profile, including indexes.
        peak: Load of the busiest second, as a multiple of the mean load.
        replicas: Number of replicas of each shard of the hot tier.
        models: Share of messages that each model answers, keyed by model. The sum of the shares is
            1.
        prefix_tokens: Number of constant tokens in a request: system prompt, tools and memories of
            the user.
        history_tokens: Largest size of the history in tokens.
        other_tokens: Number of other tokens in a request: the message, tool results and state.
        output_tokens: Number of tokens in an answer.
        calls_per_message: Number of model calls per user message. More than 1 if the model calls
            tools.
        cache_hit_rate: Share of the constant tokens that is read from the prompt cache, at most
            0.90. Use the share of the worst day, or 0.70 if unknown.
        keeps_agents: Whether a worker keeps a session's agent in memory. Otherwise each message
            restores the agent.

    Raises:
        ValueError: A value is out of range. The message names the argument.
    """

    messages_per_day: float = 1e6
    users: float = 200_000
    turns_per_session: float = 10
    bytes_per_message: float = 500
    seconds_per_turn: float = 60.0
    ttl_seconds: float = 2_700.0
    session_hours: float = 26.0
    memory_days: float = 90.0
    earlier_sessions: float | None = None
    bytes_per_user: float = 6_000
    peak: float = 3.0
    replicas: int = 1
    models: Mapping[str, float] = field(
        default_factory=lambda: MappingProxyType({"haiku": 0.8, "sonnet": 0.2})
    )
    prefix_tokens: float = 1_300
    history_tokens: float = 4_096
    other_tokens: float = 600
    output_tokens: float = 250
    calls_per_message: float = 1.3
    cache_hit_rate: float = 0.70
    keeps_agents: bool = True

    def __post_init__(self) -> None:
        shares = self.models.values()
        if not shares or min(shares) < 0 or not math.isclose(sum(shares), 1.0):
            raise ValueError(
                f"models must be shares of 0 to 1 with a sum of 1, got {dict(self.models)!r:.80}"
            )
        for name, value in vars(self).items():
            low, high = _LIMITS.get(name, (0.0, 1e13))
            if isinstance(value, int | float) and not low <= value <= high:
                raise ValueError(
                    f"{name} must be a number from {low:g} to {high:g}, got {value!r:.80}"
                )

    @property
    def sessions_per_day(self) -> float:
        """Number of sessions that begin per day."""
        return self.messages_per_day / self.turns_per_session

    @property
    def known_sessions(self) -> float:
        """Mean number of a user's earlier sessions whose memories are still stored."""
        if self.earlier_sessions is not None:
            return self.earlier_sessions
        return self.sessions_per_day * self.memory_days / self.users if self.users else 0.0

    @property
    def live_sessions(self) -> float:
        """Mean number of conversations in the hot store, including idle ones."""
        return (
            self.sessions_per_day
            * (self.turns_per_session * self.seconds_per_turn + self.ttl_seconds)
            / _SECONDS_A_DAY
        )


@dataclass(frozen=True)
class SessionUse:
    """Resources that one session and its memories use until the log of the session is deleted.

    Attributes:
        write_units: Number of DynamoDB write units, including indexes.
        index_write_units: Part of ``write_units`` that the two indexes of the memory table use.
        read_units: Number of DynamoDB read units.
        session_bytes: Bytes of the session in the sessions table.
        memory_bytes: Bytes of the session's memories in the memory table, including both indexes.
        hot_bytes: Bytes of the session in the hot tier after the last turn. The user's memories are
            included unless workers keep agents in memory.
    """

    write_units: float
    index_write_units: float
    read_units: float
    session_bytes: float
    memory_bytes: float
    hot_bytes: float


# Measured resources of sessions. ``python -m tests.benchmarks cost`` repeats the measurement, the
# last time on 2026-11-30.
#
# The measured sessions had 4 to 25 turns with messages of 120 to 1,500 bytes of synthetic English.
# They were flushed every 5 turns, and a sweeper turned the ended sessions into memories. The users
# had up to 20 earlier sessions, one every two days. Earlier sessions add to the cost, because the
# start and end of a session read the user's memories. The end of a session also rewrites behavioral
# patterns (topics of several sessions), and roll-ups (summaries of a week or month).
#
# Three amounts are the amount per session, per turn and per KB.

# The third amount is per KB of text. The units to store the turns themselves are not included.
_WRITE_UNITS = 40.4, 1.5, 2.75
_INDEX_WRITE_UNITS = 9.6, 0.0, 1.4  # those of the indexes; the third per KB of text
_READ_UNITS = 58.0, 0.07, 2.11  # the third per KB of stored turns
_SESSION_BYTES = 1_560.6, 199.4, 964.6  # in the sessions table; the third per KB of stored turns
_MEMORY_BYTES = 5_101.0, 10.1, 1_011.5  # in the memory table; the third per KB of text
_HOT_BYTES = 1_541.7  # of a session in the hot tier without its turns
_BYTES_IN_A_TURN = 423.3  # of a stored turn in addition to the text, before compression
# Share of the memory bytes that a query of the user's memories reads. The rest are indexes.
_KNOWN_SHARE = 0.345
# Number of earlier sessions from which patterns and weekly roll-ups have their full cost. With
# fewer sessions, they have a proportional share of the cost.
_FULL_FROM = 4.0
# Numbers of earlier sessions up to which monthly roll-ups cost nothing, and from which they have
# their full cost.
_MONTHS_FROM = 12.0, 20.0
# Maximum units of patterns and weekly roll-ups, units of the same per KB of text, and units of
# monthly roll-ups.
_WRITES_BY_KNOWN = 40.0, 6.5, 70.0
# Index write units per turn and earlier session. Of the sessions, at most 20 count: no more were
# measured.
_INDEX_BY_KNOWN, _MOST_KNOWN = 0.26, 20.0
_READS_BY_KNOWN = 1.48, 0.85  # factor and exponent of the KB of the user's earlier memories
# Bytes per KB of the session's text that all earlier sessions add, at full cost.
_MEMORY_BY_KNOWN = 203.3
_BYTES_PER_TOKEN = 3.98
_TOKENS_PER_MESSAGE = 8.1  # in addition to the text
_COMPRESSED_TO = 0.50  # share of a turn's size
_READS_BY_RESTORE = 4.8  # read units to restore an agent for a message
# of the bytes that a query of a user's memories reads, which their copy in the hot tier takes
_COPY_SHARE = 0.6


def session_use(workload: Workload) -> SessionUse:
    """Return the resources that one session of a workload uses, from measurements."""
    turns = workload.turns_per_session
    kilobytes = 2 * turns * workload.bytes_per_message / 1000
    stored = turns * _turn_bytes(workload) / 1000

    def sized(numbers: tuple[float, float, float], kilobytes: float) -> float:
        fixed, a_turn, a_kilobyte = numbers
        return fixed + a_turn * turns + a_kilobyte * kilobytes

    known = workload.known_sessions
    grown = min(1.0, known / _FULL_FROM)
    since, until = _MONTHS_FROM
    months = min(1.0, max(0.0, (known - since) / (until - since)))
    most, by_kilobyte, by_months = _WRITES_BY_KNOWN
    factor, power = _READS_BY_KNOWN
    memory_bytes = sized(_MEMORY_BYTES, kilobytes)
    read = known * _KNOWN_SHARE * memory_bytes
    restored = 0.0 if workload.keeps_agents else turns - 1.0
    rewritten = grown * min(most, by_kilobyte * kilobytes) + months * by_months
    return SessionUse(
        write_units=sized(_WRITE_UNITS, kilobytes)
        + turns * math.ceil((_turn_bytes(workload) + _ITEM_BYTES) / _UNIT_BYTES)
        + rewritten,
        index_write_units=sized(_INDEX_WRITE_UNITS, kilobytes)
        + _INDEX_BY_KNOWN * turns * min(known, _MOST_KNOWN),
        read_units=sized(_READ_UNITS, stored)
        + factor * (read / 1000) ** power
        + restored * _READS_BY_RESTORE,
        session_bytes=sized(_SESSION_BYTES, stored),
        memory_bytes=memory_bytes + grown * _MEMORY_BY_KNOWN * kilobytes,
        hot_bytes=_hot_bytes(workload) + (0.0 if workload.keeps_agents else _COPY_SHARE * read),
    )


def _turn_tokens(workload: Workload) -> float:
    return 2 * (workload.bytes_per_message / _BYTES_PER_TOKEN + _TOKENS_PER_MESSAGE)


def _turn_bytes(workload: Workload) -> float:
    size = 2 * workload.bytes_per_message + _BYTES_IN_A_TURN
    return size if size < _COMPRESSED_FROM else size * _COMPRESSED_TO


def _hot_bytes(workload: Workload) -> float:
    shown = max(1.0, workload.history_tokens / _turn_tokens(workload))
    # the turns of the history, and those that are not in the table yet
    turns = min(workload.turns_per_session, shown + _WAITING_TURNS)
    return _HOT_BYTES + turns * _turn_bytes(workload)


@dataclass(frozen=True, kw_only=True)
class MonthlyUse:
    """Resources that a deployment uses in a month of 30 days.

    Attributes:
        messages: Number of user messages.
        write_units: Number of DynamoDB write units for the tables.
        index_write_units: Number of DynamoDB write units for the indexes.
        read_units: Number of DynamoDB read units.
        stored_gb: Mean size of the tables in GB of 1e9 bytes.
        index_gb: Mean size of the indexes in GB.
        live_sessions: Mean number of conversations in the hot tier.
        hot_gb: Size of the hot tier in GB, without replicas.
        tokens: Number of tokens, keyed by model and then by ``input``, ``cache_read``,
            ``cache_write`` or ``output``.
    """

    messages: float
    write_units: float
    index_write_units: float
    read_units: float
    stored_gb: float
    index_gb: float
    live_sessions: float
    hot_gb: float
    tokens: Mapping[str, Mapping[str, float]]


def measured_use(workload: Workload) -> MonthlyUse:
    """Return the resources that a workload uses per month, from measurements of single sessions."""
    one, sessions = session_use(workload), workload.sessions_per_day
    memories = (
        sessions * one.memory_bytes * workload.memory_days
        + workload.users * workload.bytes_per_user
    )
    logs = sessions * one.session_bytes * workload.session_hours / 24
    index_writes = sessions * one.index_write_units * DAYS_A_MONTH
    return MonthlyUse(
        messages=workload.messages_per_day * DAYS_A_MONTH,
        write_units=sessions * one.write_units * DAYS_A_MONTH - index_writes,
        index_write_units=index_writes,
        read_units=sessions * one.read_units * DAYS_A_MONTH,
        stored_gb=(logs + _KNOWN_SHARE * memories) / 1e9,
        index_gb=(1 - _KNOWN_SHARE) * memories / 1e9,
        live_sessions=workload.live_sessions,
        hot_gb=workload.live_sessions * one.hot_bytes / 1e9,
        tokens=tokens_used(workload),
    )


def tokens_used(workload: Workload) -> dict[str, dict[str, float]]:
    """Return the number of tokens per month, keyed by model and then by kind, such as ``input``."""
    a_turn = _turn_tokens(workload)
    turns = max(1, round(workload.turns_per_session))
    history = sum(min(workload.history_tokens, turn * a_turn) for turn in range(turns)) / turns
    used = {}
    for name, share in workload.models.items():
        calls = workload.messages_per_day * DAYS_A_MONTH * share * workload.calls_per_message
        used[name] = {
            "cache_read": calls * workload.prefix_tokens * workload.cache_hit_rate,
            "cache_write": calls * workload.prefix_tokens * (1 - workload.cache_hit_rate),
            "input": calls * (history + workload.other_tokens),
            "output": calls * workload.output_tokens,
        }
    return used
