"""Requests for structured output to a model, reading of its settings, and the log level of its failures."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pydantic import BaseModel
    from strands.models import Model
    from strands.types.content import Messages


logger = logging.getLogger(__name__)

_T = TypeVar("_T", bound="BaseModel")


def model_setting(model: Any, name: str) -> Any:
    """Return a setting of a model, such as ``"model_id"``. None if the setting is unknown.

    The result is also None if ``get_config`` fails, or if the model, such as a wrapper, has no ``get_config``.
    """
    try:
        config = model.get_config()
        return config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)
    except Exception as error:  # noqa: BLE001 - a foreign get_config
        logger.debug("error=<%s>, setting=<%s> | failed to read a setting of the model", type(error).__name__, name)
        return None


async def ask_structured(model: Model, kind: type[_T], source: str, instructions: str) -> _T:
    """Ask a model about a text and return its structured answer.

    Args:
        model: Model to ask.
        kind: Type of the answer.
        source: Text that the question is about.
        instructions: System prompt with the question.

    Raises:
        ValueError: The answer is not an object of type ``kind``.
    """
    prompt: Messages = [{"role": "user", "content": [{"text": source}]}]
    answer: Any = None
    async for event in model.structured_output(kind, prompt, instructions):
        answer = event.get("output", answer)
    if not isinstance(answer, kind):
        raise ValueError("the model gave no structured answer")
    return answer


class ModelErrorLog:
    """Record of the failures of models, which gives the log level of each failure.

    The first failure of each type (such as missing support for structured output) is a warning. Repetitions are debug messages
    until the model succeeds.

    All agents of a process share one instance, because an agent may be built for each request.
    """

    def __init__(self) -> None:
        self._failing: set[tuple[str, str, str]] = set()

    def level(self, model: Any, error: Exception) -> int:
        """Record a failure of a model, and return the log level for it.

        The level is ``WARNING`` for the first failure of this type since the model's last success, and ``DEBUG`` for
        repetitions.
        """
        failed = (*_name_of(model), type(error).__name__)
        level = logging.DEBUG if failed in self._failing else logging.WARNING
        self._failing.add(failed)
        return level

    def answered(self, model: Any) -> None:
        """Record a success of a model. Its next failure of any type is a warning again."""
        self._failing = {failed for failed in self._failing if failed[:2] != _name_of(model)}


def _name_of(model: Any) -> tuple[str, str]:
    """Return the name of a model's class, and its id."""
    return type(model).__qualname__, str(model_setting(model, "model_id"))
