"""Token counts of texts and prompts, and shortening of texts to a number of tokens or characters.

Token counts are estimates or come from the usage that a provider reports.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")

_SCRIPTS = re.compile(
    r"(?P<word>[A-Z][a-z]+|[a-z]+|[A-Z]+)|(?P<digits>[0-9]+)|(?P<spaces>[ \t]{2,})|(?P<lines>[\r\n]+)"
    r"|(?P<kana>[\u3040-\u30ff]+)|(?P<kanji>[\u3400-\u9fff\uf900-\ufaff]+)|(?P<wide>[\u3001-\u303f\uff00-\uff60]+)"
    r"|(?P<hangul>[\uac00-\ud7af]+)|(?P<signs>[!-/:-@\[-`{-~]+)|(?P<latin>[\u0080-\u024f]+)|(?P<letters>[\u0370-\u06ff]+)"
    r"|(?P<other>[^ \t])"
)
_PER_CHARACTER = {"kana": 1.0, "kanji": 1.8, "wide": 1.2, "hangul": 1.3, "latin": 1.0, "letters": 0.95}


def estimate_tokens(text: str) -> int:
    """Estimate the number of tokens of a text, by its script.

    An English word counts as 1 token, or as more if it is long or capitalized. Three digits count as 1, a kana as 1, and a
    kanji as 1.8. The estimate is on average 10 to 25 % above tiktoken's cl100k.
    """
    tokens = 0.0
    for match in _SCRIPTS.finditer(text):
        kind, start, end = match.lastgroup, match.start(), match.end()
        length = end - start
        if kind == "word":
            tokens += _word(text[start], text[end - 1], length)
        elif kind == "digits":
            tokens += (length + 2) // 3
        elif kind == "signs":
            tokens += 0.4 + 0.6 * length
        elif kind in _PER_CHARACTER:
            tokens += _PER_CHARACTER[kind] * length
        elif kind == "other":
            tokens += 0.9 * len(match.group().encode("utf-8", "replace"))
        else:
            tokens += 1
    return int(tokens) + (tokens % 1 > 0)


def _word(first: str, last: str, length: int) -> float:
    """Estimate the number of tokens of a word from its length and letter case. Capitalized words have more tokens."""
    tokens = 1.05 if length <= 5 else 1.2 if length <= 8 else 1.5 if length <= 11 else length / 4.5
    if first.isupper():
        tokens += 0.3 if last.islower() else max(0.0, 0.4 * length - 0.4)
    return tokens


def truncate_to_tokens(text: str, most: int) -> str:
    """Return the beginning of a text that fits into ``most`` tokens. A text that fits is returned unchanged.

    If possible, a longer text is cut after a whole sentence. If that would lose more than half of the characters that fit, it
    is cut at the limit and ends with ``…``.
    """
    if estimate_tokens(text) <= most:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if estimate_tokens(f"{text[:middle]}…") <= most else (low, middle - 1)
    kept = text[:low]
    ends = [found.start() for found in _SENTENCE_END.finditer(kept)]
    if ends and ends[-1] >= low // 2:
        return kept[: ends[-1]].rstrip()
    return f"{kept.rstrip()}…" if kept.strip() else ""


def shorten_line(text: str, most: int) -> str:
    """Return a text as one line with at most ``most`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


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
"""Whether the provider reports cached tokens in addition to ``inputTokens``, keyed by model class."""


def prompt_tokens(usage: Mapping[str, Any], model_class: type) -> int:
    """Return the number of tokens of a whole prompt, including cached tokens. 0 if the provider reports none.

    Some providers include cached tokens in ``inputTokens``, and others report them separately. ``model_class`` shows which case
    applies.

    For an unknown class, cached tokens count as included if two conditions hold: ``inputTokens`` and ``outputTokens`` add up to
    ``totalTokens``, and ``inputTokens`` is at least the number of cached tokens.

    Args:
        usage: ``metadata.usage`` of a message. A missing value counts as 0.
        model_class: Class of the model that answered.
    """
    tokens = usage.get("inputTokens") or 0
    cached = (usage.get("cacheReadInputTokens") or 0) + (usage.get("cacheWriteInputTokens") or 0)
    are_apart = cached > tokens or tokens + (usage.get("outputTokens") or 0) != (usage.get("totalTokens") or 0)
    for base in reversed(model_class.__mro__):  # the class itself last, so that it decides
        are_apart = _CACHED_TOKENS_APART.get(f"{base.__module__}.{base.__qualname__}", are_apart)
    return tokens + cached if are_apart else tokens
