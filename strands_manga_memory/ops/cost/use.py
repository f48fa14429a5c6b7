"""Monthly use of a deployment: request units, storage, memory, tokens. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType

DAYS_A_MONTH = 30.0
_COMPRESSED_FROM = 2_048  # bytes of a turn, as in the record format of sessions
_ITEM_BYTES = 300  # bytes of a turn's item in addition to the turn: keys and readable attributes
_UNIT_BYTES = 1_024  # bytes of a write unit
_WAITING_TURNS = 5  # turns that wait for a flush, or for the next save to say that they were flushed
_SECONDS_A_DAY = 86_400.0


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Load of a deployment.

    Args:
        messages_per_day: User messages per day; each is a turn with an answer.
        users: Users with memories.
        turns_per_session: Turns per session.
        bytes_per_message: Bytes per message, for users and assistants alike.
        seconds_per_turn: Seconds between two turns of a session.
        ttl_seconds: Seconds that a conversation stays hot after its last turn.
        session_hours: Hours that the log of a session is stored after its last turn, including the wait for the
            sweeper.
        memory_days: Mean days that memories of a session are stored.
        earlier_sessions: Earlier sessions of a user with stored memories; None: derived from the other numbers.
        bytes_per_user: Bytes of a user's preferences and profile, including indexes.
        peak: Load of the busiest second, as a multiple of the mean.
        replicas: Replicas of each shard of the hot tier.
        models: Share of messages that each model answers; the sum is 1.
        prefix_tokens: Constant tokens of a request: system prompt, tools, memories of the user.
        history_tokens: Most tokens of the history.
        other_tokens: Other tokens of a request: the message, tool results, state.
        output_tokens: Tokens of an answer.
        calls_per_message: Model calls per user message; more than 1 with tools.
        cache_hit_rate: Share of the prefix that is read from the prompt cache, on the worst day; 0.70 if unknown.
        keeps_agents: Whether a worker keeps the agent of a session in memory; otherwise it is restored for each
            message.

    Raises:
        ValueError: A number is out of range. The message names it.
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
    models: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({"haiku": 0.8, "sonnet": 0.2}))
    prefix_tokens: float = 1_300
    history_tokens: float = 4_096
    other_tokens: float = 600
    output_tokens: float = 250
    calls_per_message: float = 1.3
    cache_hit_rate: float = 0.70
    keeps_agents: bool = True

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "models":
                if not value or any(share < 0 for share in value.values()) or not math.isclose(sum(value.values()), 1.0):
                    raise ValueError(f"models must be shares of 0 to 1 with a sum of 1, got {dict(value)!r:.80}")
                continue
            if (each.name == "earlier_sessions" and value is None) or (each.name == "keeps_agents" and isinstance(value, bool)):
                continue
            low, high = {"cache_hit_rate": (0.0, 1.0), "peak": (1.0, 100.0), "turns_per_session": (1.0, 10_000.0)}.get(
                each.name, (0.0, 1e13)
            )
            if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
                raise ValueError(f"{each.name} must be a number from {low:g} to {high:g}, got {value!r:.80}")

    @property
    def sessions_per_day(self) -> float:
        """Sessions that begin per day."""
        return self.messages_per_day / self.turns_per_session

    @property
    def known_sessions(self) -> float:
        """Mean number of a user's earlier sessions with stored memories."""
        if self.earlier_sessions is not None:
            return self.earlier_sessions
        return self.sessions_per_day * self.memory_days / self.users if self.users else 0.0

    @property
    def live_sessions(self) -> float:
        """Mean number of conversations in the hot tier: active ones, and idle ones until their TTL ends."""
        return self.sessions_per_day * (self.turns_per_session * self.seconds_per_turn + self.ttl_seconds) / _SECONDS_A_DAY


@dataclass(frozen=True)
class SessionUse:
    """Use of one session, from its first turn to the deletion of its log, including its memories.

    Attributes:
        write_units: Write request units, including indexes.
        read_units: Read request units.
        session_bytes: Bytes of log and head in the sessions table.
        memory_bytes: Bytes of its memories in the memory table, including both indexes.
        hot_bytes: Bytes of its hot record at the end, plus the user's memories if agents are not kept.
    """

    write_units: float
    read_units: float
    session_bytes: float
    memory_bytes: float
    hot_bytes: float


@dataclass(frozen=True)
class MeasuredUse:
    """Measured use of sessions. Triples hold the use per session, per turn and per KB of text.

    Measured with sessions of 4 to 25 turns, messages of 120 to 1,500 bytes of synthetic English, a flush every 5 turns,
    finalized and swept (``python -m tests.benchmarks cost``). The hot record holds the history and
    the turns that wait for a flush. For users with earlier sessions, finalizing rewrites patterns and roll-ups, and
    memories are read at the start and the end; measured with up to 20 earlier sessions, one every two days.

    Attributes:
        date: Date of the measurement.
        known_share: Share of ``memory_bytes`` that a query of the user's memories reads (without indexes).
        full_from: Number of earlier sessions from which patterns and weekly roll-ups have their full cost; below, the
            cost is proportional.
        months_from: Range of earlier sessions in which monthly roll-ups begin.
        writes_by_known: Write units of patterns and weekly roll-ups: the most, and per KB of the session's text; then
            of months.
        reads_by_known: Factor and exponent of the read units per KB of the user's memories.
        memory_by_known: Bytes that earlier sessions add per KB of the session's text.
        bytes_per_token: Bytes of text per token.
        tokens_per_message: Tokens of a message in addition to its text.
        hot_bytes: Bytes of a hot record without turns.
        bytes_in_a_turn: Bytes of a stored turn in addition to its text, uncompressed.
        compressed_to: Size of compressed text, as a share of the original.
        reads_by_restore: Read units of a restore per message; the memories are hot by then.
        copy_share: Bytes of a user's memories in the hot tier, as a share of the bytes a query reads.
    """

    date: str
    write_units: tuple[float, float, float]
    read_units: tuple[float, float, float]
    session_bytes: tuple[float, float, float]
    memory_bytes: tuple[float, float, float]
    hot_bytes: float
    bytes_in_a_turn: float
    known_share: float
    full_from: float
    months_from: tuple[float, float]
    writes_by_known: tuple[float, float, float]
    reads_by_known: tuple[float, float]
    memory_by_known: float
    bytes_per_token: float
    tokens_per_message: float
    compressed_to: float
    reads_by_restore: float
    copy_share: float


MEASURED = MeasuredUse(
    date="2026-11-27",
    write_units=(40.4, 1.55, 2.64),
    read_units=(56.0, 0.07, 2.11),
    session_bytes=(1_560.6, 199.4, 964.6),
    memory_bytes=(5_101.0, 10.1, 1_011.5),
    hot_bytes=1_541.7,
    bytes_in_a_turn=423.3,
    known_share=0.345,
    full_from=4.0,
    months_from=(12.0, 20.0),
    writes_by_known=(40.0, 6.5, 70.0),
    reads_by_known=(1.48, 0.85),
    memory_by_known=203.3,
    bytes_per_token=3.98,
    tokens_per_message=8.1,
    compressed_to=0.50,
    reads_by_restore=4.0,
    copy_share=0.6,
)
"""Measurements of this version."""


def session_use(workload: Workload, measured: MeasuredUse = MEASURED) -> SessionUse:
    """Return the use of one session."""
    turns, kilobytes = workload.turns_per_session, 2 * workload.turns_per_session * workload.bytes_per_message / 1000

    stored = turns * _turn_bytes(workload, measured) / 1000

    def sized(numbers: tuple[float, float, float], kilobytes: float) -> float:
        fixed, a_turn, a_kilobyte = numbers
        return fixed + a_turn * turns + a_kilobyte * kilobytes

    known = workload.known_sessions
    grown = min(1.0, known / measured.full_from)
    since, until = measured.months_from
    months = min(1.0, max(0.0, (known - since) / (until - since)))
    most, by_kilobyte, by_months = measured.writes_by_known
    factor, power = measured.reads_by_known
    memory_bytes = sized(measured.memory_bytes, kilobytes)
    read = known * measured.known_share * memory_bytes
    restored = 0.0 if workload.keeps_agents else turns - 1.0
    return SessionUse(
        write_units=sized(measured.write_units, kilobytes)
        + turns * math.ceil((_turn_bytes(workload, measured) + _ITEM_BYTES) / _UNIT_BYTES)
        + grown * min(most, by_kilobyte * kilobytes)
        + months * by_months,
        read_units=sized(measured.read_units, stored) + factor * (read / 1000) ** power + restored * measured.reads_by_restore,
        session_bytes=sized(measured.session_bytes, stored),
        memory_bytes=memory_bytes + grown * measured.memory_by_known * kilobytes,
        hot_bytes=_hot_bytes(workload, measured) + (0.0 if workload.keeps_agents else measured.copy_share * read),
    )


def _turn_bytes(workload: Workload, measured: MeasuredUse) -> float:
    """Return the bytes of a stored turn."""
    size = 2 * workload.bytes_per_message + measured.bytes_in_a_turn
    return size if size < _COMPRESSED_FROM else size * measured.compressed_to


def _hot_bytes(workload: Workload, measured: MeasuredUse) -> float:
    """Return the bytes of a session's hot copy: the turns of its history, and those that wait for a flush."""
    tokens = 2 * (workload.bytes_per_message / measured.bytes_per_token + measured.tokens_per_message)
    shown = max(1.0, workload.history_tokens / tokens)
    turns = min(workload.turns_per_session, shown + _WAITING_TURNS)
    return measured.hot_bytes + turns * _turn_bytes(workload, measured)


@dataclass(frozen=True, kw_only=True)
class MonthlyUse:
    """Use of a deployment in a month of 30 days.

    Attributes:
        messages: User messages.
        write_units: Write request units of the tables.
        index_write_units: Write request units of the indexes, if counted separately.
        read_units: Read request units.
        stored_gb: Mean GB (1e9 bytes) stored in the tables.
        index_gb: GB in the indexes, if counted separately.
        live_sessions: Mean number of conversations in the hot tier.
        hot_gb: GB of the hot tier, without replicas.
        tokens: Tokens by model and kind: ``input``, ``cache_read``, ``cache_write`` and ``output``.
    """

    messages: float
    write_units: float
    index_write_units: float = 0.0
    read_units: float
    stored_gb: float
    index_gb: float = 0.0
    live_sessions: float
    hot_gb: float
    tokens: Mapping[str, Mapping[str, float]]


def measured_use(workload: Workload, measured: MeasuredUse = MEASURED) -> MonthlyUse:
    """Return the monthly use of a workload, from the measured use of sessions."""
    one, sessions = session_use(workload, measured), workload.sessions_per_day
    stored = (
        sessions * one.session_bytes * workload.session_hours / 24
        + sessions * one.memory_bytes * workload.memory_days
        + workload.users * workload.bytes_per_user
    )
    return MonthlyUse(
        messages=workload.messages_per_day * DAYS_A_MONTH,
        write_units=sessions * one.write_units * DAYS_A_MONTH,
        read_units=sessions * one.read_units * DAYS_A_MONTH,
        stored_gb=stored / 1e9,
        live_sessions=workload.live_sessions,
        hot_gb=workload.live_sessions * one.hot_bytes / 1e9,
        tokens=tokens_used(workload, measured),
    )


def tokens_used(workload: Workload, measured: MeasuredUse = MEASURED) -> dict[str, dict[str, float]]:
    """Return the monthly tokens of each model. The history grows with the session, up to its budget."""
    a_turn = 2 * (workload.bytes_per_message / measured.bytes_per_token + measured.tokens_per_message)
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
