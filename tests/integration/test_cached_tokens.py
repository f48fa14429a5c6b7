"""Prompt tokens are counted once, whichever way a provider reports those it had cached."""

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from strands import Agent
from strands.models import Model, ModelRouter

from strands_manga_memory import (
    ImportanceWeightedConversationManager,
    PromptCacheMonitor,
    TieredCompactionConversationManager,
    VerifiedSummarizingConversationManager,
)
from strands_manga_memory.conversation import SummaryTrigger, VerifiedSummary
from strands_manga_memory.testing import ScriptedModel
from tests.integration.provider_classes import provider_classes

pytestmark = pytest.mark.filterwarnings("ignore:LlamaAPIModel is deprecated:DeprecationWarning")


@dataclass(frozen=True)
class Call:
    """Tokens of a model call: prompt, cache reads, cache writes, and answer."""

    prompt: int
    read: int
    write: int = 0
    output: int = 8

    @property
    def total(self) -> int:
        return self.prompt + self.output


def _openai(call: Call, prompt: str = "prompt", output: str = "completion") -> Any:
    details = SimpleNamespace(cached_tokens=call.read, cache_write_tokens=call.write)
    counts = {f"{prompt}_tokens": call.prompt, f"{output}_tokens": call.output}
    more = {"total_tokens": call.total, f"{prompt}_tokens_details": details}
    return SimpleNamespace(**counts, **more)


def _openai_responses(call: Call) -> Any:
    return _openai(call, "input", "output")


def _gemini(call: Call) -> Any:
    return SimpleNamespace(
        prompt_token_count=call.prompt,
        tool_use_prompt_token_count=0,
        candidates_token_count=call.output - 3,
        thoughts_token_count=3,
        total_token_count=call.total,
        cached_content_token_count=call.read,
    )


def _anthropic(call: Call) -> Any:
    return {
        "input_tokens": call.prompt - call.read - call.write,
        "output_tokens": call.output,
        "cache_read_input_tokens": call.read,
        "cache_creation_input_tokens": call.write,
    }


def _converse(call: Call) -> Any:
    return {
        "inputTokens": call.prompt - call.read - call.write,
        "outputTokens": call.output,
        "totalTokens": call.total,
        "cacheReadInputTokens": call.read,
        "cacheWriteInputTokens": call.write,
    }


def _llama_api(call: Call) -> Any:
    numbers = {
        "num_prompt_tokens": call.prompt,
        "num_completion_tokens": call.output,
        "num_total_tokens": call.total,
    }
    return [SimpleNamespace(metric=metric, value=value) for metric, value in numbers.items()]


def _ollama(call: Call) -> Any:
    return SimpleNamespace(prompt_eval_count=call.prompt, eval_count=call.output, total_duration=1)


def _llama_cpp(call: Call) -> Any:
    return SimpleNamespace(
        prompt_tokens=call.prompt,
        completion_tokens=call.output,
        total_tokens=call.total,
        cached_tokens=call.read,
    )


_API_USAGE = {
    "AnthropicModel": _anthropic, "BedrockModel": _converse, "GeminiModel": _gemini,
    "LiteLLMModel": _openai, "LlamaAPIModel": _llama_api, "LlamaCppModel": _llama_cpp,
    "MistralModel": _openai, "OllamaModel": _ollama, "OpenAIModel": _openai,
    "OpenAIResponsesModel": _openai_responses, "SageMakerAIModel": _openai, "WriterModel": _openai,
}  # fmt: skip
"""Usage as the API of each provider reports it."""

_WITHOUT_CACHE = {"LlamaAPIModel", "MistralModel", "OllamaModel", "WriterModel"}
"""Providers of which Strands reports no cached tokens."""


@pytest.fixture(scope="module")
def classes() -> Iterator[dict[str, type[Model]]]:
    with provider_classes() as found:
        yield found


def usage_of(provider: type[Model], call: Call) -> dict[str, Any]:
    """Return the usage that Strands makes of what the API of a provider reports."""
    reported = _API_USAGE[provider.__name__](call)
    if provider.__name__ == "BedrockModel":  # passed on unchanged
        return reported
    event = {"chunk_type": "metadata", "type": "metadata", "data": reported, "usage": reported}
    formatter = getattr(provider, "format_chunk", None) or provider._format_chunk
    return formatter(object.__new__(provider), event)["metadata"]["usage"]


def model_of(provider: type[Model] | None, *, cached: float, written: float = 0.0) -> Any:
    """Return a scripted model of a provider's class with a cached part of its prompts."""

    class Cached(ScriptedModel, *(() if provider is None else (provider,))):
        async def stream(self, *args: Any, **kwargs: Any) -> Any:
            async for event in ScriptedModel.stream(self, *args, **kwargs):
                if "metadata" in event:
                    tokens = event["metadata"]["usage"]["inputTokens"]
                    call = Call(tokens, int(tokens * cached), int(tokens * written))
                    usage = _converse(call) if provider is None else usage_of(provider, call)
                    event["metadata"]["usage"] = usage
                yield event

    return Cached(lambda _: "It has 12 volumes and is in stock.", usage=_tokens)


def _tokens(messages: Any) -> int:
    return _COUNTER.tokens(messages) + 1


_COUNTER = ImportanceWeightedConversationManager().history
_QUESTION = (
    "Question {}: is the volume in stock that came after the one I bought? "
    + "I read it on the train. " * 60
)


_KINDS = ("AnthropicModel", "BedrockModel", "GeminiModel", "LlamaCppModel", "OpenAIModel")
"""One provider of each way of reporting cached tokens."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in _KINDS else pytest.mark.long)
        for name in sorted(_API_USAGE)
    ],
)
def test_history_budget_ignores_cached_prompts(name: str, classes: dict[str, type[Model]]) -> None:
    """A history of 8,000 tokens is kept whole with and without cached prompts."""
    kept = {}
    for cached in (0.0, 0.9):
        manager = ImportanceWeightedConversationManager(8_000)
        agent = Agent(model=model_of(classes[name], cached=cached), conversation_manager=manager)
        for number in range(26):
            agent(_QUESTION.format(number))
        kept[cached] = _COUNTER.tokens(agent.messages)
    assert kept[0.0] > 7_000
    assert kept[0.9] == kept[0.0]


@pytest.mark.parametrize("name", sorted(_API_USAGE))
def test_cache_monitor_reports_the_hit_rate(name: str, classes: dict[str, type[Model]]) -> None:
    """A call that reads 90 % of its prompt from the cache and writes 5 % has a hit rate of 0.9."""
    monitor = PromptCacheMonitor()
    model = model_of(
        classes[name], cached=0.9, written=0.0 if name in ("GeminiModel", "LlamaCppModel") else 0.05
    )
    agent = Agent(model=model, plugins=[monitor])
    agent(_QUESTION)
    stats = monitor.stats()
    assert stats["input_tokens"] == _tokens(model.requests[0].messages)
    assert stats["hit_rate"] == pytest.approx(0.0 if name in _WITHOUT_CACHE else 0.9, abs=0.01)


@pytest.mark.parametrize("name", ["BedrockModel", "OpenAIModel"])
@pytest.mark.parametrize("kind", ["summarize", "compact"])
def test_summary_and_compaction_start_at_the_same_size_with_cached_prompts(
    name: str, kind: str, classes: dict[str, type[Model]]
) -> None:
    """The first message leaves at the same turn with and without a cache."""
    turns = {}
    for cached in (0.0, 0.9):
        model = model_of(classes[name], cached=cached)
        model.update_config(context_window_limit=8_000)
        manager: Any = TieredCompactionConversationManager()
        if kind == "summarize":
            manager = VerifiedSummarizingConversationManager(
                SummaryTrigger(tokens=4_000, turns=99), model=ScriptedModel()
            )
        stages = [] if kind == "summarize" else manager.stages
        summarizing = next((s.manager for s in stages if isinstance(s, VerifiedSummary)), manager)
        agent = Agent(model=model, conversation_manager=manager)
        turns[cached] = 0
        while len(agent.messages) == 2 * turns[cached] < 80:
            agent(_QUESTION.format(turns[cached]))
            assert summarizing.finish(
                agent
            )  # else the turn in which a summary is there depends on the machine
            turns[cached] += 1
    assert 4 < turns[0.0] < 30
    assert turns[0.9] == turns[0.0]


def test_the_model_that_a_router_selects_decides(classes: dict[str, type[Model]]) -> None:
    """The class of the answering model decides, not the router's default."""
    anthropic, openai = (
        model_of(classes[name], cached=0.9) for name in ("AnthropicModel", "OpenAIModel")
    )

    class Second:
        async def select(self, context: Any) -> Any:
            return context.candidates[1]

    for first, second in ((anthropic, openai), (openai, anthropic)):
        monitor = PromptCacheMonitor()
        manager = ImportanceWeightedConversationManager(8_000)
        router = ModelRouter([first, second], strategy=Second())
        agent = Agent(model=router, conversation_manager=manager, plugins=[monitor])
        for number in range(12):
            agent(_QUESTION.format(number))
        assert monitor.stats()["hit_rate"] == pytest.approx(0.9, abs=0.01)
        found = manager.history.tokens(agent.messages)
        assert found == pytest.approx(_COUNTER.tokens(agent.messages), rel=0.01)


def test_totals_decide_for_a_model_of_another_package() -> None:
    """An unknown class, such as a wrapper, is judged by its totals."""
    monitor = PromptCacheMonitor()
    Agent(model=model_of(None, cached=0.9), plugins=[monitor])(_QUESTION)
    assert monitor.stats()["hit_rate"] == pytest.approx(0.9, abs=0.01)

    class Wrapper(ScriptedModel):
        async def stream(self, *args: Any, **kwargs: Any) -> Any:
            async for event in super().stream(*args, **kwargs):
                if "metadata" in event:
                    usage = event["metadata"]["usage"]
                    usage["cacheReadInputTokens"] = usage["inputTokens"] * 9 // 10
                yield event

    monitor = PromptCacheMonitor()
    Agent(model=Wrapper(), plugins=[monitor])(_QUESTION)
    assert monitor.stats()["hit_rate"] == pytest.approx(0.9, abs=0.01)


def test_every_model_class_of_strands_is_tested(classes: dict[str, type[Model]]) -> None:
    """Decide for a new provider whether ``inputTokens`` include cached tokens."""
    assert classes.keys() == _API_USAGE.keys()
