"""PromptCacheMonitor: how much of the prompts came from the provider's cache, and why it did not."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from strands import Agent
from strands.hooks import AfterModelCallEvent
from strands.middleware import InvokeModelContext, InvokeModelStage
from strands.plugins import Plugin

from strands_manga_memory.messages.model_calls import model_setting
from strands_manga_memory.messages.tokens import prompt_tokens
from strands_manga_memory.prompt.cache_stats import OF_PREFIX, CacheStats, CacheUse, Cause, Drop, Prices
from strands_manga_memory.prompt.prefix import Mark, fingerprint, marks, repeated_tokens, shared

logger = logging.getLogger(__name__)

_HOUR, _DAY = 3600, 86_400
_MOST_HOURS = 31 * 24
_MOST_CHANGES = 200


_MOST_CONVERSATIONS = 10_000
_HIT = 0.5
"""A call that read at least this share of its prompt from the cache was no miss."""


@dataclass
class _Seen:
    """What the last call of a conversation looked like."""

    parts: Mapping[Cause, str]
    messages: Sequence[Mark]
    at: float
    model_class: type


class PromptCacheMonitor(Plugin):
    """Watches the prompt cache of any number of agents: ``Agent(plugins=[monitor])``. It changes nothing.

    The prefix of each request is compared part by part with that of the conversation's last one, so a drop of the hit rate has
    a name. The numbers come from the usage the provider reports. One monitor may serve all agents of a process.

    Args:
        lifetime: Seconds a provider keeps a prefix after its last use. Default 300.
        prices: What cached tokens cost.
        variant: Name of the prompt variant in use, or a function that returns it.
        clock: Seconds since 1970.

    Raises:
        ValueError: ``lifetime`` is not above 0.
    """

    name = "strands-manga-memory:prompt-cache"

    def __init__(
        self,
        *,
        lifetime: float = 300.0,
        prices: Prices | None = None,
        variant: str | Callable[[], str] = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        if not lifetime > 0:
            raise ValueError(f"lifetime must be a positive number of seconds, got {lifetime!r:.80}")
        self._lifetime = lifetime
        self._prices = prices or Prices()
        self._variant = variant
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: OrderedDict[tuple[str, str], _Seen] = OrderedDict()
        self._pending: dict[tuple[str, str], tuple[Cause, ...]] = {}
        self._hours: dict[int, list[int]] = {}
        self._drops: deque[Drop] = deque(maxlen=_MOST_CHANGES)
        self._causes: Counter[Cause] = Counter()
        self._compared = self._changed = self._whole = self._uncached = 0

    def init_agent(self, agent: Agent) -> None:
        """Listen to the agent's model calls."""
        # Wrap handlers see the request as all Input handlers have left it, whenever those were registered.
        agent.add_middleware(InvokeModelStage, self._asked)
        agent.add_hook(self._answered, AfterModelCallEvent)

    async def _asked(
        self, context: InvokeModelContext, next_fn: Callable[[Any], AsyncGenerator[Any, None]]
    ) -> AsyncGenerator[Any, None]:
        try:
            self.compare(context)
        except Exception as error:  # who watches a request must not be what it fails by
            logger.warning("error=<%s> | the request could not be compared with the one before", type(error).__name__)
            logger.debug("the request could not be compared with the one before", exc_info=True)
        async for event in next_fn(context):
            yield event

    def compare(self, context: InvokeModelContext) -> tuple[Cause, ...]:
        """Compare a request with the conversation's one before; return why its prefix cannot come from the cache."""
        now = self._clock()
        key = _key(context.agent)
        seen = _Seen(self._parts(context), marks(context), now, type(context.model))
        with self._lock:
            before = self._seen.get(key)
            self._seen[key] = seen
            self._seen.move_to_end(key)
            if len(self._seen) > _MOST_CONVERSATIONS:
                self._pending.pop(self._seen.popitem(last=False)[0], None)
            causes: list[Cause] = []
            if before is None:
                # A conversation that goes on in a process that has not served it: after a deploy, or on another worker.
                causes = [Cause.DEPLOY] if any(message["role"] == "assistant" for message in context.messages) else []
            else:
                causes = [cause for cause, mark in seen.parts.items() if before.parts[cause] != mark]
                self._compared += 1
                self._changed += bool(causes)
                same = shared(before.messages, seen.messages)
                self._uncached += repeated_tokens(context, seen.messages, before.messages, same)
                if same == len(before.messages):
                    self._whole += 1
                else:
                    causes.append(Cause.HISTORY)
                if now - before.at > self._lifetime:
                    causes.append(Cause.GAP)
            self._pending[key] = tuple(causes)
            return tuple(causes)

    def _parts(self, context: InvokeModelContext) -> dict[Cause, str]:
        told = context.system_prompt
        whole = [{"text": told}] if isinstance(told, str) else list(told or ())
        kept = list(cast("Agent", context.agent).system_prompt_content or ())
        added = [block for block in whole if block not in kept]
        variant = self._variant() if callable(self._variant) else self._variant
        return {
            Cause.PROMPT: fingerprint([block for block in whole if block in kept]),
            Cause.CONSTRAINTS: fingerprint(added),
            Cause.TOOLS: fingerprint(context.tool_specs),
            Cause.VARIANT: fingerprint([model_setting(context.model, "model_id"), variant]),
        }

    def _answered(self, event: AfterModelCallEvent) -> None:
        if event.stop_response is not None:
            metadata = event.stop_response.message.get("metadata") or {}
            self.record(event.agent, metadata.get("usage") or {})

    def record(self, agent: Any, usage: Mapping[str, Any]) -> None:
        """Take the usage a provider reported for the agent's last request."""
        read, write = usage.get("cacheReadInputTokens") or 0, usage.get("cacheWriteInputTokens") or 0
        now = self._clock()
        with self._lock:
            known = self._seen.get(_key(agent))
            total = prompt_tokens(usage, type(agent.model) if known is None else known.model_class)
            hour = self._hours.setdefault(int(now // _HOUR), [0, 0, 0, 0])
            for at, amount in enumerate((1, total, read, write)):
                hour[at] += amount
            while len(self._hours) > _MOST_HOURS:
                del self._hours[min(self._hours)]
            causes = self._pending.pop(_key(agent), ())
            if read >= _HIT * total:  # whatever happened in between, the prompt came from the cache
                causes = tuple(cause for cause in causes if cause in OF_PREFIX)
            elif not causes and write and known is not None and len(known.messages) > 1:
                causes = (Cause.UNKNOWN,)
            if causes:
                self._causes.update(causes)
                self._drops.append(Drop(now, getattr(agent, "agent_id", ""), causes, total - read))

    @property
    def drops(self) -> list[Drop]:
        """The last 200 drops, the older first."""
        with self._lock:
            return list(self._drops)

    def stats(self) -> CacheStats:
        """Return what is known."""
        with self._lock:
            hours = {hour: list(counts) for hour, counts in sorted(self._hours.items())}
            causes, compared, changed = dict(self._causes), self._compared, self._changed
            whole, uncached = self._whole, self._uncached
        days: dict[int, list[int]] = {}
        for hour, counts in hours.items():
            day = days.setdefault(hour * _HOUR // _DAY, [0, 0, 0, 0])
            for at, amount in enumerate(counts):
                day[at] += amount
        worst = min(((_use(counts)["hit_rate"], day) for day, counts in days.items() if counts[1]), default=None)
        everything = _use([sum(counts[at] for counts in hours.values()) for at in range(4)])
        saved = everything["read_tokens"] * (1 - self._prices.read) - everything["write_tokens"] * (self._prices.write - 1)
        price = self._prices.per_million
        return CacheStats(
            **everything,
            by_hour={_time(hour * _HOUR, "%Y-%m-%d %H:00"): _use(counts) for hour, counts in hours.items()},
            worst_day=None if worst is None else (_time(worst[1] * _DAY, "%Y-%m-%d"), worst[0]),
            saved_tokens=round(saved, 1),
            saved_dollars=None if price is None else round(saved * price / 1e6, 6),
            drops={cause.value: number for cause, number in causes.items()},
            prefix_changes=changed,
            prefix_stability=1.0 if not compared else round(1 - changed / compared, 6),
            whole_prefixes=1.0 if not compared else round(whole / compared, 6),
            uncached_history_tokens=0.0 if not compared else round(uncached / compared, 1),
        )

    def report(self) -> str:
        """Return it as a few lines."""
        stats = self.stats()
        lines = [
            f"prompt cache: {stats['hit_rate']:.0%} of {stats['input_tokens']:,} input tokens read, in {stats['calls']} calls",
            f"saved: {stats['saved_tokens']:,.0f} tokens"
            + (f", {stats['saved_dollars']:.4f} US dollars" if stats["saved_dollars"] is not None else ""),
            f"prefix: the same in {stats['prefix_stability']:.1%} of the calls",
            f"requests that begin with the whole one before: {stats['whole_prefixes']:.1%}; "
            f"history not in the cache: {stats['uncached_history_tokens']:,.0f} tokens a call",
        ]
        if stats["worst_day"] is not None:
            lines.append(f"worst day: {stats['worst_day'][0]}, {stats['worst_day'][1]:.0%}; plan costs with it")
        lines += [f"{cause}: {number}x" for cause, number in sorted(stats["drops"].items(), key=lambda item: -item[1])]
        lines += [
            f"{hour}  {use['hit_rate']:>4.0%}  {use['calls']} calls" for hour, use in list(stats["by_hour"].items())[-24:]
        ]
        return "\n".join(lines)


def _key(agent: Any) -> tuple[str, str]:
    """Return the conversation an agent holds: one that is built anew for each request goes on with it."""
    return str(getattr(agent, "session_id", "") or id(agent)), str(getattr(agent, "agent_id", ""))


def _use(counts: Sequence[int]) -> CacheUse:
    calls, total, read, write = counts
    return CacheUse(
        calls=calls, input_tokens=total, read_tokens=read, write_tokens=write, hit_rate=round(read / total, 4) if total else 0.0
    )


def _time(at: float, form: str) -> str:
    return datetime.fromtimestamp(at, UTC).strftime(form)
