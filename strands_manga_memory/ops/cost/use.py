"""What a deployment uses in a month: request units, storage, memory, tokens. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType

DAYS_A_MONTH = 30.0
_COMPRESSED_FROM = 1_024  # bytes of a value, as in the codec
_MAX_FIELD = 2_048  # bytes of a turn that are stored as one value
_EVICTED_BUDGETS, _MAX_EVICTED_TOKENS = 3, 32_768  # evicted messages that the hot copy holds, in budgets of the history
_SECONDS_A_DAY = 86_400.0


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What is asked of a deployment.

    Args:
        messages_per_day: User messages a day; each is a turn, with an answer.
        users: Users who have memories.
        turns_per_session: Turns of a session.
        bytes_per_message: Bytes of a message, the user's and the assistant's alike.
        seconds_per_turn: Seconds between two turns of a session.
        ttl_seconds: Seconds that a conversation stays hot after its last turn.
        session_hours: Hours that a session's log stays after that, and until it is swept.
        memory_days: Days that what is made of a session is kept, on average.
        earlier_sessions: Sessions of the same user of which memories are kept when a session begins; None: as many as follow
            from the other numbers.
        bytes_per_user: Bytes of a user's preferences and profile, with their indexes.
        peak: The busiest second over the mean one.
        replicas: Replicas of each shard of the hot tier.
        models: Share of the messages that each model answers; together 1.
        prefix_tokens: Tokens of a request that are always the same: system prompt, tools, what is known of the user.
        history_tokens: Most tokens of the history.
        other_tokens: Tokens of a request beside those: the message, tool results, state.
        output_tokens: Tokens of an answer.
        calls_per_message: Model calls for each user message; more than 1 with tools.
        cache_hit_rate: Share of the prefix that is read from the prompt cache, on the worst day there was; 0.70 if unknown.
        keeps_agents: Whether a worker keeps the agent of a session; else it is restored for each message.

    Raises:
        ValueError: A number is out of its range. The message names it.
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
                    raise ValueError(f"models must be shares of 0 to 1 that are 1 together, got {dict(value)!r:.80}")
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
        """Sessions that begin in a day."""
        return self.messages_per_day / self.turns_per_session

    @property
    def known_sessions(self) -> float:
        """Sessions of a user of which memories are kept when another one begins, on average."""
        if self.earlier_sessions is not None:
            return self.earlier_sessions
        return self.sessions_per_day * self.memory_days / self.users if self.users else 0.0

    @property
    def live_sessions(self) -> float:
        """Conversations in the hot tier at a time, on average: those being held, and those whose time is not over."""
        return self.sessions_per_day * (self.turns_per_session * self.seconds_per_turn + self.ttl_seconds) / _SECONDS_A_DAY


@dataclass(frozen=True)
class SessionUse:
    """What one session takes, from its first turn until its log is deleted, with what is made of it.

    Attributes:
        write_units: Write request units, those of the indexes included.
        read_units: Read request units.
        session_bytes: Bytes of its log and head in the sessions table.
        memory_bytes: Bytes of what is made of it in the memory table, with both indexes.
        hot_bytes: Bytes of its copy in the hot tier at the end, and of its user's memories there where agents are not kept.
    """

    write_units: float
    read_units: float
    session_bytes: float
    memory_bytes: float
    hot_bytes: float


@dataclass(frozen=True)
class Measured:
    """What was measured: of each number of ``SessionUse`` what a session takes, what a turn adds, and what a KB of text adds.

    Sessions of 4 to 25 turns with messages of 120 to 1,500 bytes of made-up English, flushed every 5 turns, finalized at their
    end and swept; ``python -m tests.benchmarks cost`` measures them anew. The hot copy holds the history,
    and evicted messages that a selection may bring back.
    For a user who has had sessions before, patterns and roll-ups are written anew, and what is known is read at the start and
    when the session is finalized. That was measured with up to 20 earlier sessions, one every two days.

    Attributes:
        date: When.
        known_share: Share of ``memory_bytes`` that a query of the user's memories reads: without indexes.
        full_from: Earlier sessions from which on patterns and weeks take what they take; with fewer, in proportion.
        months_from: Earlier sessions between which roll-ups of months set in.
        writes_by_known: Write units that patterns and weeks add, at most and for each KB of the session's text, and months.
        reads_by_known: Read units that are added for each KB of what is known, and the power to which that counts: what is
            written anew is read again, what only is known is not.
        memory_by_known: Bytes that earlier sessions add for each KB of the session's text.
        bytes_per_token: Of the text.
        tokens_per_message: That a message has beside its text.
        hot_bytes: Bytes of a hot copy without messages, and the bytes beside the text of a user's message and of an answer.
        compressed_to: Size of compressed text, as a share of its own.
        reads_by_restore: Read units of a message whose agent is restored: the memories are in the hot tier by then.
        copy_share: Bytes of a user's memories in the hot tier, as a share of what a query of them reads.
    """

    date: str
    write_units: tuple[float, float, float]
    read_units: tuple[float, float, float]
    session_bytes: tuple[float, float, float]
    memory_bytes: tuple[float, float, float]
    hot_bytes: tuple[float, float, float]
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


MEASURED = Measured(
    date="2026-11-26",
    write_units=(36.9, 1.47, 2.70),
    read_units=(54.7, 0.34, 1.03),
    session_bytes=(2_210.0, 217.5, 374.7),
    memory_bytes=(4_893.0, 10.8, 1_016.0),
    hot_bytes=(1_276.0, 118.0, 388.0),
    known_share=0.345,
    full_from=4.0,
    months_from=(12.0, 20.0),
    writes_by_known=(134.6, 20.5, 208.4),
    reads_by_known=(2.16, 0.976),
    memory_by_known=283.0,
    bytes_per_token=3.98,
    tokens_per_message=8.1,
    compressed_to=0.602,
    reads_by_restore=4.0,
    copy_share=0.6,
)
"""What sessions of this version were measured to take."""


def session_use(workload: Workload, measured: Measured = MEASURED) -> SessionUse:
    """Return what one session takes."""
    turns, kilobytes = workload.turns_per_session, 2 * workload.turns_per_session * workload.bytes_per_message / 1000

    def sized(numbers: tuple[float, float, float]) -> float:
        fixed, a_turn, a_kilobyte = numbers
        return fixed + a_turn * turns + a_kilobyte * kilobytes

    known = workload.known_sessions
    grown = min(1.0, known / measured.full_from)
    since, until = measured.months_from
    months = min(1.0, max(0.0, (known - since) / (until - since)))
    most, by_kilobyte, by_months = measured.writes_by_known
    factor, power = measured.reads_by_known
    memory_bytes = sized(measured.memory_bytes)
    read = known * measured.known_share * memory_bytes
    restored = 0.0 if workload.keeps_agents else turns - 1.0
    return SessionUse(
        write_units=sized(measured.write_units) + grown * min(most, by_kilobyte * kilobytes) + months * by_months,
        read_units=sized(measured.read_units) + factor * (read / 1000) ** power + restored * measured.reads_by_restore,
        session_bytes=sized(measured.session_bytes),
        memory_bytes=memory_bytes + grown * measured.memory_by_known * kilobytes,
        hot_bytes=_hot_bytes(workload, measured) + (0.0 if workload.keeps_agents else measured.copy_share * read),
    )


def _hot_bytes(workload: Workload, measured: Measured) -> float:
    """Return the bytes of a session's hot copy: its history, and the messages that a selection may bring back."""
    fixed, in_user_message, in_answer = measured.hot_bytes
    question, answer = workload.bytes_per_message + in_user_message, workload.bytes_per_message + in_answer
    fields = [question + answer] if question + answer < _MAX_FIELD else [question, answer]
    a_turn = sum(size if size < _COMPRESSED_FROM else size * measured.compressed_to for size in fields)
    tokens = 2 * (workload.bytes_per_message / measured.bytes_per_token + measured.tokens_per_message)
    evicted = min(_EVICTED_BUDGETS * workload.history_tokens, _MAX_EVICTED_TOKENS)
    return fixed + a_turn * min(workload.turns_per_session, max(1.0, (workload.history_tokens + evicted) / tokens))


@dataclass(frozen=True, kw_only=True)
class MonthlyUse:
    """What a deployment uses in a month of 30 days.

    Attributes:
        messages: User messages.
        write_units: Write request units of the tables.
        index_write_units: Those of the indexes, as far as they are told apart.
        read_units: Read request units.
        stored_gb: GB (1e9 bytes) stored in the tables, on average.
        index_gb: GB in the indexes, as far as they are told apart.
        live_sessions: Conversations in the hot tier at a time.
        hot_gb: GB of the hot tier, without replicas.
        tokens: Of each model the tokens: ``input``, ``cache_read``, ``cache_write`` and ``output``.
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


def measured_use(workload: Workload, measured: Measured = MEASURED) -> MonthlyUse:
    """Return what a workload uses, by what sessions were measured to take."""
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


def tokens_used(workload: Workload, measured: Measured = MEASURED) -> dict[str, dict[str, float]]:
    """Return the tokens of each model in a month; the history is what a session has said so far, up to its budget."""
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
