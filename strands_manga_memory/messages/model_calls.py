"""Functions that ask a model for structured answers, read its settings, and classify its errors."""

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
    """Return a setting from the configuration of a model, such as ``"model_id"``.

    None if the setting is missing or cannot be read.
    """
    try:
        config = model.get_config()
        return config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)
    except Exception as error:  # noqa: BLE001 - a foreign get_config
        logger.debug(
            "error=<%s>, setting=<%s> | failed to read a setting of the model",
            type(error).__name__,
            name,
        )
        return None


async def ask_structured(model: Model, kind: type[_T], source: str, instructions: str) -> _T:
    """Ask a model about the text ``source``, and return the answer as an object of type ``kind``.

    ``instructions`` is the system prompt with the question.

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


_logged: set[tuple[str, str]] = set()
"""Failures that were logged as a warning in this process: class name of the model, error type."""


def error_level(model: Any, error: Exception) -> int:
    """Return the log level for an error of a model: ``WARNING`` the first time, then ``DEBUG``.

    Errors of one type from one class of models count as the same error.
    """
    failed = type(model).__qualname__, type(error).__name__
    level = logging.DEBUG if failed in _logged else logging.WARNING
    _logged.add(failed)
    return level
