"""What a model's configuration says. Pure."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

logger = logging.getLogger(__name__)


def setting_of(model: Any, name: str) -> Any:
    """Return a setting of a model, such as ``"model_id"`` or ``"context_window_limit"``; None where it does not say.

    An agent calls whatever streams: a wrapper or a double may have no ``get_config``, or one that raises, or that returns what
    is no configuration.
    """
    try:
        config = model.get_config()
        return config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)
    except Exception as error:  # noqa: BLE001 - anybody's get_config
        logger.debug("error=<%s>, setting=<%s> | the model does not say", type(error).__name__, name)
        return None
