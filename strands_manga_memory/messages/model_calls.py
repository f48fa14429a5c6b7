"""Structured answers of a model, settings of its configuration, and a log of failing models."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pydantic import BaseModel
    from strands.models import Model
    from strands.types.content import Messages


logger = logging.getLogger(__name__)

_T = TypeVar("_T", bound="BaseModel")


def model_setting(model: Any, name: str) -> Any:
    """Return a setting of a model, such as ``"model_id"`` or ``"context_window_limit"``; None if it is unknown.

    Wrappers and test doubles may have no ``get_config``, or one that raises or returns another type.
    """
    try:
        config = model.get_config()
        return config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)
    except Exception as error:  # noqa: BLE001 - a foreign get_config
        logger.debug("error=<%s>, setting=<%s> | failed to read a setting of the model", type(error).__name__, name)
        return None


async def ask_structured(model: Model, kind: type[_T], source: str, instructions: str) -> _T:
    """Return a model's structured answer about a text.

    Raises:
        ValueError: The answer has another form.
    """
    prompt: Messages = [{"role": "user", "content": [{"text": source}]}]
    answer: Any = None
    async for event in model.structured_output(kind, prompt, instructions):
        answer = event.get("output", answer)
    if not isinstance(answer, kind):
        raise ValueError("the model gave no structured answer")
    return answer


class ModelErrorLog:
    """Log of models that fail at a task, shared by all agents of the process, because agents may be built per request.

    A repeated failure, such as missing support for structured output, is logged as a warning once, and again after a
    success.
    """

    def __init__(self) -> None:
        self._failing: weakref.WeakKeyDictionary[type, set[tuple[str, str]]] = weakref.WeakKeyDictionary()

    def level(self, model: Any, error: Exception) -> int:
        """Record a failure and return its log level: warning for the first one since the last success, else debug."""
        failed = (str(model_setting(model, "model_id")), type(error).__name__)
        known = self._failing.setdefault(type(model), set())
        level = logging.DEBUG if failed in known else logging.WARNING
        known.add(failed)
        return level

    def answered(self, model: Any) -> None:
        """Record a success of a model."""
        id_ = str(model_setting(model, "model_id"))
        self._failing[type(model)] = {failed for failed in self._failing.get(type(model), ()) if failed[0] != id_}
