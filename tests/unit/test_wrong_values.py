"""Settings that are out of range or exclude one another are refused by name.

``test_arguments.py`` has values of wrong types.
"""

import math
from typing import Any

import boto3
import pytest
import redis
from agent_squad.agents import AgentOptions

from strands_manga_memory import MangaMemory, PiiPolicy, TieredSessionManager, TtlPolicy
from strands_manga_memory import PromptCacheMonitor as CacheMonitor
from strands_manga_memory import conversation as c
from strands_manga_memory.language import EntityTypes, ModelSessionSummarizer, named
from strands_manga_memory.language.pii import DEFAULT_RULES
from strands_manga_memory.mcp import BreakerMiddleware, BreakerPolicy
from strands_manga_memory.memory import (
    KinesisPreferenceSink,
    PiiRule,
    ProfileReader,
    Retention,
    TableProfileSource,
)
from strands_manga_memory.ops import Workload, ttl_advice
from strands_manga_memory.squad import ConversationTurns, Handoff, SessionStrandsAgent
from strands_manga_memory.state import DialogueSlot, StateCoordinator, StateLimits
from strands_manga_memory.stores import (
    AesGcmCipher,
    DynamoDBTable,
    InMemoryHotStore,
    RedisHotStore,
    SQLiteTable,
)
from strands_manga_memory.stores.writer import Writer

Importance, Compaction = (
    c.ImportanceWeightedConversationManager,
    c.TieredCompactionConversationManager,
)
Verified = c.VerifiedSummarizingConversationManager


def sessions(**settings: Any) -> object:
    return TieredSessionManager("s", **{"hot": InMemoryHotStore(), **settings})


def dynamodb(**settings: Any) -> object:
    return DynamoDBTable(
        boto3.Session("a", "b").client("dynamodb", region_name="us-east-1"), **settings
    )


def redis_store(**settings: Any) -> object:
    return RedisHotStore(redis.Redis(port=1), **settings)


def profiles(**settings: Any) -> object:
    return ProfileReader(TableProfileSource(SQLiteTable("x")), **settings)


def cipher(**keys: bytes) -> object:
    return AesGcmCipher(keys, current="k")


def squad_agent(**settings: Any) -> object:
    return SessionStrandsAgent(
        AgentOptions(name="A", description=""), lambda scope: None, **settings
    )


# In a message "..." stands for the name of the last setting and "must be".
REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (Importance, {"max_tokens": 0}, "... a positive whole number or None, got 0"),
    (Importance, {"max_tokens": 4_096.0}, "... a positive whole number or None, got 4096.0"),
    (Importance, {"max_turns": 0}, "... a positive whole number or None, got 0"),
    (
        Importance,
        {"proactive_compression": {"compression_threshold": 2}},
        "compression_threshold must be between 0",
    ),
    *((Importance, {"trim_every": value}, "trim_every must be") for value in (-1, 1.5, True)),
    (Compaction, {"stages": [3]}, "stages[0] must be Stage, got 3"),
    (
        Compaction,
        {"stages": [c.VerifiedSummary(), c.VerifiedSummary()]},
        "stages must hold at most one VerifiedSummary, got 2",
    ),
    (Compaction, {"trigger": 0}, "... over 0 to 1, got 0"),
    (Compaction, {"trigger": 1.2}, "... over 0 to 1, got 1.2"),
    (Compaction, {"untouched": -1}, "... a whole number of 0 or more, got -1"),
    (Compaction, {"window": 0}, "... a positive whole number or None, got 0"),
    (Compaction, {"trimmer": Importance()}, "trimmer and a VerifiedSummary exclude each other"),
    (c.ToolResultCap, {"characters": 10}, "... a whole number of 200 or more, got 10"),
    (c.MicroCompaction, {"characters": 10}, "... a whole number of 200 or more, got 10"),
    (c.SummaryTrigger, {"tokens": 0}, "... a positive whole number or None, got 0"),
    (c.SummaryTrigger, {"turns": 1.5}, "... a positive whole number, got 1.5"),
    (c.SummaryTrigger, {"keep_recent_turns": True}, "... a positive whole number, got True"),
    (Verified, {"summary_tokens": -1}, "... a positive whole number, got -1"),
    (
        c.SummarySchedule,
        {"strategy": "later"},
        "... one of 'background', 'async', 'inline', got 'later'",
    ),
    (c.SummarySchedule, {"wait_seconds": math.nan}, "... 0 or more seconds, got nan"),
    (c.SummarySchedule, {"wait_seconds": "30"}, "... 0 or more seconds, got '30'"),
    (c.SummarySchedule, {"warn_share": "half"}, "... over 0 to 1, got 'half'"),
    (c.budget_plan, {"window": "8000"}, "... a whole number or None, got '8000'"),
    (c.thresholds, {"window": 8_000, "trigger": "80%"}, "... over 0 to 1, got '80%'"),
    (BreakerMiddleware, {"policy": 5}, "... BreakerPolicy or None, got 5"),
    (BreakerMiddleware, {"overrides": {"t": 5}}, "overrides['t'] must be BreakerPolicy, got 5"),
    (EntityTypes, {"types": [5]}, "types[0] must be EntityType, got 5"),
    (named, {"name": "cabin", "values": ["economy"]}, "... Mapping"),
    (Handoff, {"from_agent": "a", "to_agent": "b", "summary": 5}, "... a text"),
    (squad_agent, {"lease": "2"}, "... a positive number of seconds, got '2'"),
    (ttl_advice, {"gaps": [1.0]}, "... LogHistogram, got [1.0]"),
    *((Verified, {name: {"tokens": 10}}, "... Summary") for name in ("trigger", "schedule")),
    (c.HistoryRecall, {"max_tokens": 0}, "... a positive whole number or None, got 0"),
    (c.HistoryRecall, {"embed": 3}, "embed must be "),
    (c.ImportanceWeights, {"greeting": 2}, "... from 0 to 1, got 2"),
    (c.BackgroundScorer, {"judge": 3}, "... a function of lines, got 3"),
    (c.ModelScorer, {"model": "gpt"}, "... a Strands model, got 'gpt'"),
    (c.EmbeddingScorer, {"embed": 3}, "... a function from texts to vectors, got 3"),
    (
        c.EmbeddingScorer,
        {"embed": len, "examples": {}},
        "... sentences by dialogue act, got the acts []",
    ),
    (c.EmbeddingScorer, {"embed": len, "examples": {"shout": ["Hey!"]}}, "got the acts ['shout']"),
    (sessions, {"refresh": "always"}, "... one of 'never', 'turn', got 'always'"),
    (sessions, {"flush_every": 0}, "... a positive whole number, got 0"),
    (sessions, {"flush_every": 1.5}, "... a whole number, got 1.5"),
    (sessions, {"max_unsaved": 0}, "max_unsaved must be"),
    (sessions, {"hot_deadline": 0}, "... a positive number of seconds, got 0"),
    (sessions, {"durable_deadline": -1}, "durable_deadline must be"),
    (sessions, {"hot": None, "durable": None}, "hot and durable are both None"),
    (MangaMemory.open, {"hot": ""}, "url '' cannot be opened"),
    (MangaMemory.open, {"durable": ""}, "url '' cannot be opened"),
    (
        TtlPolicy,
        {"mode": "rolling"},
        "... one of 'fixed', 'sliding', 'activity', 'hybrid', got 'rolling'",
    ),
    (TtlPolicy, {"seconds": 0}, "... a positive number of seconds or None, got 0"),
    (TtlPolicy, {"session": 0}, "... a finite positive number of seconds, got 0"),
    (TtlPolicy, {"session": math.nan}, "session must be"),
    (TtlPolicy, {"session": 10**400}, "... a finite positive number of seconds, got 1000"),
    (MangaMemory.open, {"hot_deadline": 10**400}, "hot_deadline must be"),
    (MangaMemory.open, {"codec": b"key"}, "... Codec, got a value of type bytes"),
    (MangaMemory.open, {"ttl": 0}, "... TtlPolicy, got 0"),
    (MangaMemory.open, {"clock": 5}, "... a function that returns seconds, got 5"),
    (TtlPolicy, {"grace": 3599}, "... at least 3600 seconds, got 3599"),
    (BreakerPolicy, {"failures": 0}, "... a positive whole number, got 0"),
    (BreakerPolicy, {"failures": 2.5}, "failures must be"),
    (BreakerPolicy, {"users": 0}, "... a positive whole number"),
    (BreakerPolicy, {"reset_after": 0}, "... a finite positive number of seconds, got 0"),
    *(
        (BreakerPolicy, {"timeout": value}, "timeout must be")
        for value in (-1, None, math.nan, math.inf)
    ),
    (BreakerPolicy, {"tool_errors": "maybe"}, "... one of 'failure', 'ignore', got 'maybe'"),
    (
        StateCoordinator,
        {"intents": {"order": [DialogueSlot(name="volume", entity="volum")]}},
        "intents['order']: entity must be one of email,",
    ),
    (StateCoordinator, {"max_tokens": 0}, "... a positive whole number"),
    (StateCoordinator, {"time_budget_ms": -1}, "... a positive number, got -1"),
    (StateCoordinator, {"deadline": 0}, "... a positive number of seconds, got 0"),
    (StateCoordinator, {"hot": InMemoryHotStore()}, "scope must be a ConversationScope"),
    (StateLimits, {"executions_kept": 0}, "... a positive whole number, got 0"),
    (CacheMonitor, {"lifetime": 0}, "... a positive number"),
    *(
        (profiles, {"deadline": value}, "... a positive number of seconds")
        for value in (0, -1, True, math.nan)
    ),
    (ProfileReader, {"source": {"language": "ja"}}, "... ProfileSource, got"),
    (PiiPolicy, {"actions": {"nothing": "redact"}}, "must name rules"),
    (PiiPolicy, {"actions": {"card": "encrypt"}}, "cipher must be given"),
    (PiiPolicy, {"actions": {"card": "drop"}}, "actions['card'] must be one of"),
    (PiiRule, {"name": "card", "pattern": 5}, "... a compiled pattern, got 5"),
    (KinesisPreferenceSink, {"stream_name": "s", "client": None}, "... a client of Kinesis, got"),
    (ModelSessionSummarizer, {"model": "x"}, "... a Strands model, got 'x'"),
    (c.SummaryCache, {"store": 5}, "... HotStore, got 5"),
    (c.SummaryCache, {"store": InMemoryHotStore(), "seconds": 0}, "seconds must be a positive"),
    (PiiRule, {"name": "My Rule", "pattern": DEFAULT_RULES[0].pattern}, "name must be"),
    (Retention, {"importance": 0.5, "seconds": 0}, "must be"),
    (Retention, {"importance": 0.5, "seconds": 1, "half_life": -1}, "must be"),
    (Retention, {"importance": 1.1, "seconds": 1}, "must be"),
    (cipher, {"k": b"short"}, "32 bytes, got 5"),
    (cipher, {"other": b"o" * 32}, "one of the keys"),
    (cipher, {"": b"o" * 32}, "1 to 255 bytes"),
    (Writer, {"threads": 0}, "... a positive whole number, got 0"),
    (InMemoryHotStore, {"grace": -1}, "... 0 or more seconds, got -1"),
    (redis_store, {"prefix": ""}, "... a non-empty string"),
    (redis_store, {"prefix": "a{b}"}, "without braces, got 'a{b}'"),
    (redis_store, {"deadline": -1}, "... 0 or more seconds, got -1"),
    (redis_store, {"grace": -1}, "... 0 or more seconds, got -1"),
    (SQLiteTable, {"path": ":memory:"}, "path must name a file, got ':memory:'"),
    (SQLiteTable, {"path": ""}, "path must name a file, got ''"),
    (SQLiteTable, {"path": "x", "deadline": 0}, "... a positive number of seconds, got 0"),
    (dynamodb, {"deadline": -1}, "... 0 or more seconds, got -1"),
    (squad_agent, {"wait": -1.0}, "wait must be"),
    (squad_agent, {"grace": -0.1}, "grace must be"),
    (squad_agent, {"tenant": ""}, "tenant must"),
    *((ConversationTurns, {"lease": value}, "lease must be") for value in (0, -1.0, math.nan)),
    (Workload, {"users": -1}, "users must be"),
    (Workload, {"users": True}, "users must be"),
    (Workload, {"cache_hit_rate": 0.91}, "... a number from 0 to 0.9"),
    (Workload, {"peak": 0.5}, "peak must be"),
    (Workload, {"turns_per_session": 0}, "turns_per_session must be"),
    (Workload, {"models": {"haiku": 0.5}}, "models"),
    (Workload, {"keeps_agents": "no"}, "keeps_agents must be"),
]


@pytest.mark.parametrize(("make", "settings", "message"), REFUSED)
def test_wrong_value_is_refused(make: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as refused:
        make(**settings)
    assert message.replace("...", f"{[*settings][-1]} must be") in str(refused.value)
