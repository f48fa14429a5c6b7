"""Model with a fixed answer, for agents that must not call a model provider."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable
from typing import Any, TypeVar

from pydantic import BaseModel
from strands.models import Model
from strands.types.content import Messages
from strands.types.streaming import StreamEvent

_Output = TypeVar("_Output", bound=BaseModel)


class StandInModel(Model):
    """Model that answers every request with the text ``text``, without calling a provider."""

    def __init__(self, text: str = "") -> None:
        self._text = text

    def update_config(self, **model_config: Any) -> None:
        """Ignore the configuration, because the model has none."""

    def get_config(self) -> dict[str, Any]:
        """Return the configuration of the model, which has only a name."""
        return {"model_id": "stand-in"}

    async def structured_output(
        self,
        output_model: type[_Output],
        prompt: Messages,
        system_prompt: str | None = None,
        **kwargs: Any,
    ) -> AsyncGenerator[dict[str, _Output | Any], None]:
        """Parse the fixed answer as JSON, and yield the result as an object of ``output_model``."""
        yield {"output": output_model.model_validate_json(self._text)}

    async def stream(
        self, messages: Messages, *arguments: Any, **keywords: Any
    ) -> AsyncIterable[StreamEvent]:
        """Stream the model's fixed answer."""
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"text": self._text}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}
