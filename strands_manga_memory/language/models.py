"""What a model's configuration says. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def setting_of(model: Any, name: str) -> Any:
    """Return a setting of a model, such as ``"model_id"`` or ``"context_window_limit"``; None where it does not say.

    An agent calls whatever streams: a wrapper or a double may have no ``get_config``, or return what is no configuration.
    """
    get_config = getattr(model, "get_config", None)
    config = get_config() if callable(get_config) else None
    return config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)
