"""Model with a fixed answer, for agents that must not call a model provider."""

from __future__ import annotations

from collections.abc import AsyncIterable
from typing import Any

from strands.models import Model
from strands.types.streaming import StreamEvent


class StandInModel(Model):
    """Model that answers every request with the text ``text``, without calling a provider."""

    def __init__(self, text: str = "") -> None:
        self._text = text

    def update_config(self, **model_config: Any) -> None:
        """Ignore the configuration, because the model has none."""

    def get_config(self) -> dict[str, Any]:
        """Return the configuration of the model, which has only a name."""
        return {"model_id": "stand-in"}

    def structured_output(self, *arguments: Any, **keywords: Any) -> Any:
        """Raise an error, because the model answers with a text only."""
        raise NotImplementedError

    async def stream(self, *arguments: Any, **keywords: Any) -> AsyncIterable[StreamEvent]:
        """Stream the model's fixed answer."""
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"text": self._text}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}
