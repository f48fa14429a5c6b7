"""Unreadable records of a user's memory: each costs itself, and no other."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from strands_manga_memory.exceptions import CorruptRecordError, KeyMissingError

logger = logging.getLogger(__name__)


@contextmanager
def going_on() -> Iterator[None]:
    """Leave a record that cannot be read as it is, and go on with the others, unless it only lacks its key."""
    try:
        yield
    except KeyMissingError:
        raise
    except CorruptRecordError as error:
        logger.warning("error=<%s> | a record of a user's memory cannot be read, it is left as it is", type(error).__name__)
