"""Prompt tokens of a model call, from the usage that a provider reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_CACHED_TOKENS_APART = {
    # From the fields of the providers' APIs that Strands copies into ``inputTokens``:
    "strands.models.bedrock.BedrockModel": True,  # Converse: inputTokens
    "strands.models.anthropic.AnthropicModel": True,  # input_tokens
    "strands.models.openai.OpenAIModel": False,  # prompt_tokens; also LiteLLMModel and SageMakerAIModel, its subclasses
    "strands.models.openai_responses.OpenAIResponsesModel": False,  # input_tokens
    "strands.models.gemini.GeminiModel": False,  # prompt_token_count
    "strands.models.llamacpp.LlamaCppModel": False,  # prompt_tokens
    "strands.models.llamaapi.LlamaAPIModel": False,  # num_prompt_tokens; this and the following report no cached tokens
    "strands.models.mistral.MistralModel": False,  # prompt_tokens
    "strands.models.ollama.OllamaModel": False,  # prompt_eval_count
    "strands.models.writer.WriterModel": False,  # prompt_tokens
}
"""Whether the cached tokens of a provider come on top of its ``inputTokens``."""


def prompt_tokens(usage: Mapping[str, Any], model_class: type) -> int:
    """Return the tokens of a whole prompt, cached tokens included, each counted once.

    The class of the model, or the nearest known base class, decides whether ``inputTokens`` already includes the tokens
    read from and written to the prompt cache. For an unknown class the numbers decide: the cached tokens are included if
    ``inputTokens`` and ``outputTokens`` add up to ``totalTokens`` and no more tokens are cached than ``inputTokens`` has.

    Args:
        usage: ``metadata.usage`` of a message; a missing part counts as 0.
        model_class: Class of the model that answered.

    Returns:
        Tokens of the prompt; 0 if the provider reports none.
    """
    tokens = usage.get("inputTokens") or 0
    cached = (usage.get("cacheReadInputTokens") or 0) + (usage.get("cacheWriteInputTokens") or 0)
    return tokens + cached if _are_cached_tokens_apart(usage, tokens, cached, model_class) else tokens


def _are_cached_tokens_apart(usage: Mapping[str, Any], tokens: int, cached: int, model_class: type) -> bool:
    for base in model_class.__mro__:
        known = _CACHED_TOKENS_APART.get(f"{base.__module__}.{base.__qualname__}")
        if known is not None:
            return known
    return cached > tokens or tokens + (usage.get("outputTokens") or 0) != (usage.get("totalTokens") or 0)
