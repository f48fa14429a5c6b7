"""Plugin that measures how well a provider's prompt cache works, and explains its misses.

A provider caches the beginning (prefix) of a request. The next request of the conversation is
cheaper if it begins in the same way.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypedDict, cast

from strands import Agent
from strands.hooks import AfterModelCallEvent
from strands.middleware import InvokeModelContext, InvokeModelStage
from strands.plugins import Plugin
from strands.types.content import ContentBlock

from strands_manga_memory.arguments import Clock, PositiveSeconds, checked, with_repr
from strands_manga_memory.exceptions import logged_errors
from strands_manga_memory.messages import content_fingerprint, fingerprint
from strands_manga_memory.messages.injection import injected_count
from strands_manga_memory.messages.model_calls import model_setting
from strands_manga_memory.messages.provider_format import prompt_tokens

logger = logging.getLogger(__name__)


class Cause(StrEnum):
    """Reason why the provider's prompt cache could not serve a request.

    Attributes:
        PROMPT: The agent's system prompt changed.
        CONSTRAINTS: The text that plugins add to the system prompt changed.
        TOOLS: The tool specifications changed.
        VARIANT: The model id, or the monitor's argument ``variant``, changed.
        HISTORY: Earlier messages changed or were removed.
        GAP: The time since the previous request exceeds the lifetime of the cache.
        DEPLOY: The conversation is new to this process, as after a deployment.
        UNKNOWN: None of these reasons applies.
    """

    PROMPT = "prompt changed"
    CONSTRAINTS = "constraints changed"
    TOOLS = "tools changed"
    VARIANT = "variant changed"
    HISTORY = "history was rewritten"
    GAP = "gap over the cache's lifetime"
    DEPLOY = "deploy"
    UNKNOWN = "unknown"


OF_PREFIX = frozenset({Cause.PROMPT, Cause.CONSTRAINTS, Cause.TOOLS, Cause.VARIANT})
"""Causes for which the beginning (prefix) of a request differs from the previous request."""


@dataclass(frozen=True)
class CacheMiss:
    """Model call with less than half of its input tokens from the cache, or with a changed prefix.

    The prefix is the system prompt, the tools, the model and the prompt variant.

    Attributes:
        at: Time of the call, in seconds since 1970.
        agent_id: Id of the calling agent.
        causes: All causes that apply.
        tokens: Number of input tokens that were not read from the cache.
    """

    at: float
    agent_id: str
    causes: tuple[Cause, ...]
    tokens: int


class CacheUse(TypedDict):
    """Use of the prompt cache by a group of model calls.

    Attributes:
        calls: Number of calls.
        input_tokens: Number of input tokens, including cached tokens.
        read_tokens: Number of tokens read from the cache.
        write_tokens: Number of tokens written to the cache.
        hit_rate: Share of the input tokens that was read from the cache.
    """

    calls: int
    input_tokens: int
    read_tokens: int
    write_tokens: int
    hit_rate: float


class CacheStats(CacheUse):
    """Statistics of the prompt cache over the recorded model calls.

    The prefix of a request is its system prompt, tools, model and prompt variant. Prefix and
    messages are compared with the previous request of the conversation, if there is one.

    Attributes:
        by_hour: Cache use in the last 31 days, keyed by hour in UTC, such as ``2026-11-03 14:00``.
        worst_day: Day with the lowest hit rate, and its hit rate. None without calls.
        saved_tokens: Cost that the cache saved, in uncached input tokens. Reading a token from the
            cache costs 0.1 of an uncached token, and writing it costs 1.25. Negative if writing
            cost more than reading saved.
        drops: Number of calls that missed the cache or had a changed prefix, for each cause.
        prefix_changes: Number of calls with a changed prefix.
        prefix_stability: Share of calls with an unchanged prefix. 1 without calls.
        whole_prefixes: Share of requests that began with all messages of the previous request. Text
            that plugins add to a single request is ignored. 1 without calls.
    """

    by_hour: dict[str, CacheUse]
    worst_day: tuple[str, float] | None
    saved_tokens: float
    drops: dict[str, int]
    prefix_changes: int
    prefix_stability: float
    whole_prefixes: float


def _fingerprint_messages(context: InvokeModelContext) -> list[int]:
    return [
        content_fingerprint({"role": message["role"], "content": _stored_blocks(context, at)})
        for at, message in enumerate(context.messages)
    ]


def _stored_blocks(context: InvokeModelContext, at: int) -> list[ContentBlock]:
    """Return a message's content blocks, without those that plugins added only to this request."""
    message = context.messages[at]
    added = context.dynamic_trailing_blocks if at == len(context.messages) - 1 else 0
    return message["content"][injected_count(message) : len(message["content"]) - added]


_HOUR, _DAY = 3600, 86_400
_MAX_HOURS = 31 * 24
_MAX_DROPS = 200
_READ_PRICE, _WRITE_PRICE = 0.1, 1.25
"""Prices of tokens read from and written to the cache, as multiples of the price of an uncached
token.
"""
_MAX_CONVERSATIONS = 10_000
_HIT = 0.5
"""Share of the prompt that a call must read from the cache to count as a hit."""


@dataclass
class _Request:
    """Hashes of the parts of a request, to compare it with the next request of the conversation."""

    parts: Mapping[Cause, int]
    messages: Sequence[int]
    at: float
    model_class: type


@with_repr("_lifetime")
class PromptCacheMonitor(Plugin):
    """Plugin that measures the prompt cache of one or more agents without changing their requests.

    The monitor compares the beginning of each request with the previous request of the
    conversation. A changed part is reported as a cause of cache misses. Token counts come from the
    usage that the provider reports.

    Example::

        monitor = PromptCacheMonitor()  # one for all agents of the process
        agent = Agent(plugins=[monitor])
        agent("Hello")
        print(monitor.report())

    Args:
        lifetime: Seconds for which a provider caches a prefix after its last use. Default 300.
        variant: Name of the prompt variant in use, or a function that returns the name.
        clock: Function that returns the time in seconds since 1970.

    Raises:
        ValueError: ``lifetime`` is not above 0.
    """

    name = "strands-manga-memory:prompt-cache"

    @checked
    def __init__(
        self,
        *,
        lifetime: PositiveSeconds = 300.0,
        variant: str | Callable[[], str] = "",
        clock: Clock = time.time,
    ) -> None:
        super().__init__()
        self._lifetime = lifetime
        self._variant = variant
        self._clock = clock
        self._lock = threading.Lock()
        self._last_requests: OrderedDict[tuple[str, str], _Request] = OrderedDict()
        self._pending: dict[tuple[str, str], tuple[Cause, ...]] = {}
        self._hours: dict[int, Counter[str]] = {}
        self._drops: deque[CacheMiss] = deque(maxlen=_MAX_DROPS)
        self._causes: Counter[Cause] = Counter()
        self._compared = self._changed = self._whole = 0

    def init_agent(self, agent: Agent) -> None:
        """Register middleware and a hook that observe the agent's model calls."""
        # Wrap handlers run after all Input handlers, so they see the request with everything that
        # those added.
        agent.add_middleware(InvokeModelStage, self._compare_request)
        agent.add_hook(self._record_response, AfterModelCallEvent)

    async def _compare_request(
        self, context: InvokeModelContext, next_fn: Callable[[Any], AsyncGenerator[Any, None]]
    ) -> AsyncGenerator[Any, None]:
        with logged_errors(
            logger, "comparing the request with the previous one failed"
        ):  # which fails no request
            self.compare(context)
        async for event in next_fn(context):
            yield event

    def compare(self, context: InvokeModelContext) -> tuple[Cause, ...]:
        """Compare a request with the previous request of its conversation.

        Returns:
            Reasons why the prompt cache may not serve the beginning of the request; empty if there
            is none.
        """
        now = self._clock()
        key = _key(context.agent)
        request = _Request(
            self._fingerprint_parts(context),
            _fingerprint_messages(context),
            now,
            type(context.model),
        )
        with self._lock:
            previous = self._last_requests.get(key)
            self._last_requests[key] = request
            self._last_requests.move_to_end(key)
            if len(self._last_requests) > _MAX_CONVERSATIONS:
                self._pending.pop(self._last_requests.popitem(last=False)[0], None)
            causes: list[Cause] = []
            if previous is None:
                # An old conversation that is new to this process: after a deployment, or on another
                # worker.
                causes = (
                    [Cause.DEPLOY]
                    if any(message["role"] == "assistant" for message in context.messages)
                    else []
                )
            else:
                causes = [
                    cause for cause, part in request.parts.items() if previous.parts[cause] != part
                ]
                self._compared += 1
                self._changed += bool(causes)
                if request.messages[: len(previous.messages)] == previous.messages:
                    self._whole += 1
                else:
                    causes.append(Cause.HISTORY)
                if now - previous.at > self._lifetime:
                    causes.append(Cause.GAP)
            self._pending[key] = tuple(causes)
            return tuple(causes)

    def _fingerprint_parts(self, context: InvokeModelContext) -> dict[Cause, int]:
        prompt = context.system_prompt
        blocks = [{"text": prompt}] if isinstance(prompt, str) else list(prompt or ())
        own = list(cast("Agent", context.agent).system_prompt_content or ())
        added = [block for block in blocks if block not in own]
        variant = self._variant() if callable(self._variant) else self._variant
        return {
            Cause.PROMPT: fingerprint([block for block in blocks if block in own]),
            Cause.CONSTRAINTS: fingerprint(added),
            Cause.TOOLS: fingerprint(context.tool_specs),
            Cause.VARIANT: fingerprint([model_setting(context.model, "model_id"), variant]),
        }

    def _record_response(self, event: AfterModelCallEvent) -> None:
        if event.stop_response is not None:
            metadata = event.stop_response.message.get("metadata") or {}
            self.record(event.agent, metadata.get("usage") or {})

    def record(self, agent: Any, usage: Mapping[str, Any]) -> None:
        """Record the tokens that a provider reported for the agent's last request.

        Args:
            agent: Agent that sent the request.
            usage: Token counts in the format of Strands, such as ``inputTokens`` and
                ``cacheReadInputTokens``.
        """
        read, write = (
            usage.get("cacheReadInputTokens") or 0,
            usage.get("cacheWriteInputTokens") or 0,
        )
        now = self._clock()
        with self._lock:
            request = self._last_requests.get(_key(agent))
            total = prompt_tokens(
                usage, type(agent.model) if request is None else request.model_class
            )
            hour = self._hours.setdefault(int(now // _HOUR), Counter())
            hour.update(calls=1, input_tokens=total, read_tokens=read, write_tokens=write)
            while len(self._hours) > _MAX_HOURS:
                del self._hours[min(self._hours)]
            causes = self._pending.pop(_key(agent), ())
            if read >= _HIT * total:  # a hit: changes of the history or a gap did no harm
                causes = tuple(cause for cause in causes if cause in OF_PREFIX)
            elif not causes and write and request is not None and len(request.messages) > 1:
                causes = (Cause.UNKNOWN,)
            if causes:
                self._causes.update(causes)
                self._drops.append(
                    CacheMiss(now, getattr(agent, "agent_id", ""), causes, total - read)
                )

    @property
    def drops(self) -> list[CacheMiss]:
        """Last 200 model calls with a cache miss or a changed prefix, the oldest first."""
        with self._lock:
            return list(self._drops)

    def stats(self) -> CacheStats:
        """Return the statistics of the prompt cache over all recorded model calls."""
        with self._lock:
            hours = {hour: Counter(counts) for hour, counts in sorted(self._hours.items())}
            causes, compared, changed, whole = (
                dict(self._causes),
                self._compared,
                self._changed,
                self._whole,
            )
        days: defaultdict[int, Counter[str]] = defaultdict(Counter)
        for hour, counts in hours.items():
            days[hour * _HOUR // _DAY].update(counts)
        worst = min(
            (
                (_use(counts)["hit_rate"], day)
                for day, counts in days.items()
                if counts["input_tokens"]
            ),
            default=None,
        )
        everything = _use(sum(days.values(), Counter()))
        saved = everything["read_tokens"] * (1 - _READ_PRICE) - everything["write_tokens"] * (
            _WRITE_PRICE - 1
        )
        return CacheStats(
            **everything,
            by_hour={
                _time(hour * _HOUR, "%Y-%m-%d %H:00"): _use(counts)
                for hour, counts in hours.items()
            },
            worst_day=None if worst is None else (_time(worst[1] * _DAY, "%Y-%m-%d"), worst[0]),
            saved_tokens=round(saved, 1),
            drops={cause.value: number for cause, number in causes.items()},
            prefix_changes=changed,
            prefix_stability=round(1 - changed / max(1, compared), 6),
            whole_prefixes=round(whole / compared, 6) if compared else 1.0,
        )

    def report(self) -> str:
        """Return the statistics of the prompt cache as a few lines of text."""
        stats = self.stats()
        lines = [
            (
                f"prompt cache: {stats['hit_rate']:.0%} of {stats['input_tokens']:,} input tokens"
                f" read, in {stats['calls']} calls"
            ),
            f"saved: {stats['saved_tokens']:,.0f} tokens",
            f"prefix: unchanged in {stats['prefix_stability']:.1%} of the calls",
            f"requests that begin with the whole previous one: {stats['whole_prefixes']:.1%}",
        ]
        if stats["worst_day"] is not None:
            lines.append(
                f"worst day: {stats['worst_day'][0]}, {stats['worst_day'][1]:.0%}; plan costs"
                " with it"
            )
        lines += [
            f"{cause}: {number}x"
            for cause, number in sorted(stats["drops"].items(), key=lambda item: -item[1])
        ]
        lines += [
            f"{hour}  {use['hit_rate']:>4.0%}  {use['calls']} calls"
            for hour, use in list(stats["by_hour"].items())[-24:]
        ]
        return "\n".join(lines)


def _key(agent: Any) -> tuple[str, str]:
    return str(getattr(agent, "session_id", "") or id(agent)), str(getattr(agent, "agent_id", ""))


def _use(counts: Counter[str]) -> CacheUse:
    names = ("calls", "input_tokens", "read_tokens", "write_tokens")
    hit_rate = round(counts["read_tokens"] / (counts["input_tokens"] or 1), 4)
    return cast("CacheUse", {**{name: counts[name] for name in names}, "hit_rate": hit_rate})


def _time(at: float, form: str) -> str:
    return datetime.fromtimestamp(at, UTC).strftime(form)
