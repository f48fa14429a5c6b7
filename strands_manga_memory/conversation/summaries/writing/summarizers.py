"""Asking a summarizer: a Strands model, or any function."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

from strands.models import Model
from strands.types.content import Messages

from strands_manga_memory.language.session_summaries import Draft, Prompt, Summarizer
from strands_manga_memory.messages.model_calls import model_setting
from strands_manga_memory.messages.tokens import prompt_tokens

MOST_CHARACTERS = 100_000
"""So much of an answer is read; no summary is so long."""


class ModelSummarizer:
    """Lets a model write summaries, without tools and outside of any agent.

    A low temperature (0.1) is set where the model is built: Strands has no setting of it per call.
    """

    def __init__(self, model: Model) -> None:
        self.model = model

    async def __call__(self, prompt: Prompt) -> Draft:
        """Return what the model answers; its reasoning is left out."""
        messages: Messages = [{"role": "user", "content": [{"text": prompt.source}]}]
        texts: list[str] = []
        read = 0
        usage: Any = {}
        async for event in self.model.stream(messages, None, prompt.instructions):
            if "contentBlockDelta" in event:
                texts.append(event["contentBlockDelta"]["delta"].get("text") or "")
                read += len(texts[-1])
                if read > MOST_CHARACTERS:  # it does not stop by itself, and what it wrote is of no use
                    break
            elif "metadata" in event:
                usage = event["metadata"].get("usage") or {}
        return Draft("".join(texts), prompt_tokens(usage, type(self.model)), usage.get("outputTokens") or 0)


def summarizer_of(model: Model | Summarizer) -> Summarizer:
    """Return who writes the summaries: the function itself, or the model behind one."""
    if isinstance(model, Model):
        return ModelSummarizer(model)
    if callable(model):
        return model
    raise ValueError(f"model must be a strands Model or a function of a Prompt, got {model!r:.80}")


def name_of(summarizer: Summarizer) -> str:
    """Return a name for the records: the id of the model, or the name of the function."""
    if isinstance(summarizer, ModelSummarizer):
        return str(model_setting(summarizer.model, "model_id") or type(summarizer.model).__name__)
    return getattr(summarizer, "__name__", type(summarizer).__name__)


async def asked(summarizer: Summarizer, prompt: Prompt) -> Draft:
    """Ask a summarizer of either kind; of an answer that is far too long only the beginning is returned."""
    answer = summarizer(prompt)
    drafted = await answer if inspect.isawaitable(answer) else answer
    draft = Draft(drafted) if isinstance(drafted, str) else drafted
    if not isinstance(draft, Draft) or not isinstance(draft.text, str):
        raise TypeError(f"a summarizer must return a text or a Draft, got {type(drafted).__name__}")
    return replace(draft, text=draft.text[:MOST_CHARACTERS])
