"""Surroundings: an agent's environment, loaded when its session starts and whenever word comes that it changed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future

from strands_manga_memory import telemetry
from strands_manga_memory.exceptions import MangaMemoryError
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.state.changes import EnvironmentChanges
from strands_manga_memory.state.layers.environment import Environment, EnvironmentSource
from strands_manga_memory.stores.writer import shared_writer
from strands_manga_memory.telemetry import STATE_DRIFT

logger = logging.getLogger(__name__)

_PASSING = ("time_of_day", "promotions")
"""What changes by itself, so that nobody announces it."""


class Surroundings:
    """The environment of one agent.

    A source, if there is one, says what is so, and a publication is a hint to read it anew; it is asked again after
    ``recheck_after`` seconds although no word came. Without a source, the environment is what was published. What cannot be
    read leaves what was known. A model call waits at most ``deadline`` seconds for news and for what follows from it.
    ``drifts`` are fields that were found to be otherwise than was known, without word of it.
    """

    def __init__(
        self,
        source: EnvironmentSource | None,
        scope: ConversationScope | None,
        changes: EnvironmentChanges | None,
        *,
        deadline: float,
        environment: Environment | None = None,
        recheck_after: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._scope = scope
        self._changes = changes
        self._deadline = deadline
        self._loaded = environment is not None
        self.environment = environment or Environment()
        self._writer = shared_writer(None, None)
        self._late: Future[None] | None = None
        self.reloads = self.drifts = 0
        self._recheck_after = recheck_after
        self._clock = clock
        self._read_at = clock()
        self._rechecking: Future[None] | None = None

    def load(self) -> None:
        """Load the environment as the session starts."""
        news = self._changes is not None and self._changes.news()
        if news or (self._source is not None and not self._loaded):
            self._read()
        self._loaded = True

    async def refresh(self) -> None:
        """Follow what was published since, off the event loop, within the deadline."""
        self._recheck_if_due()
        if self._changes is None:
            return
        if self._changes.is_local and self._source is None:
            self._look()  # memory of this process: quicker than any thread
            return
        work = self._look
        if self._changes.is_local:
            if not self._changes.news():
                return
            work = self._read
        if not await self._done():  # a read that was late before goes first, and news is looked for behind it
            if self._changes.is_local:
                self._changes.forget()
            return
        self._late = self._writer.submit(self, work)
        await self._done()

    def _recheck_if_due(self) -> None:
        """Ask the source again, in the background, when it was not asked for long; nobody waits for it."""
        if self._source is None or self._recheck_after is None or self._clock() - self._read_at < self._recheck_after:
            return
        if self._rechecking is None or self._rechecking.done():
            self._read_at = self._clock()
            self._rechecking = self._writer.submit(self, self._recheck)

    def _recheck(self) -> None:
        if self._changes is not None and self._changes.news():
            self._read()  # word of it came
            return
        before = self.environment
        self._read()
        changed = [name for name in Environment.model_fields if getattr(before, name) != getattr(self.environment, name)]
        for name in changed:
            if name not in _PASSING:
                self.drifts += 1
                telemetry.note(STATE_DRIFT, attributes={"field": name}, counts={"fields": 1})
                logger.warning("field=<%s> | the environment changed without word of it; publish what changes", name)

    async def _done(self) -> bool:
        if self._late is None or self._late.done():
            return True
        done, _ = await asyncio.wait([asyncio.wrap_future(self._late)], timeout=self._deadline)
        if not done:
            telemetry.missed("environment")
        return bool(done)

    def _look(self) -> None:
        if self._changes is not None and self._changes.news():
            self._read()

    def _read(self) -> None:
        try:
            if self._source is not None and self._scope is not None:
                self.environment = self._source.load(self._scope) or Environment()
            elif self._changes is not None:
                self.environment = self._changes.published()
            self.reloads += 1
            self._read_at = self._clock()
        except Exception as error:  # noqa: BLE001 - a source is others' code: the agent goes on with what it knew
            if self._changes is not None:
                self._changes.forget()
            level = logging.DEBUG if isinstance(error, MangaMemoryError) else logging.WARNING
            logger.log(level, "error=<%s> | the environment could not be read", type(error).__name__)
