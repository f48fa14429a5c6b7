"""Processes on the new core, over any pair of stores."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.session.author.author import Author
from strands_manga_memory.session.core.identity import GRAVE_SECONDS, Name
from strands_manga_memory.session.core.merge import EMPTY, merge
from strands_manga_memory.session.core.records import Message, in_order
from strands_manga_memory.session.replicas.durable import DurableReplica
from strands_manga_memory.session.replicas.hot import HotReplica
from strands_manga_memory.session.sync import ending
from strands_manga_memory.session.sync.agent_copy import AgentCopy
from strands_manga_memory.session.sync.pair import Pair
from strands_manga_memory.session.sync.saving import Saving
from strands_manga_memory.stores import Codec
from strands_manga_memory.testing import FakeClock
from tests.unit.session.support import assistant, texts, user

USER_GRAVE = ("user/u", "GRAVE")


class Process:
    """A process with one agent on the conversation ``session``."""

    def __init__(
        self,
        hot: Any,
        durable: Any,
        session: str,
        *,
        tag: str = "",
        clock: Any = None,
        codec: Codec | None = None,
        entry: bool = True,
        ttl: Callable[[], float] = lambda: 1800.0,
        session_seconds: float = 86_400.0,
        turns_inline: int = 5,
    ) -> None:
        clock = self._clock = clock or FakeClock()
        codec = codec or Codec()
        numbers = itertools.count()
        self.tag = tag or f"p{random.randrange(16**8):08x}"
        expires_at = lambda copy: int(clock()) + 86_400  # noqa: E731
        self.durable = durable and DurableReplica(
            durable,
            session,
            "A:default",
            codec=codec,
            expires_at=expires_at,
            clock=clock,
            watched=[USER_GRAVE],
            entries=(lambda: [{durable.schema.partition: "user/u", durable.schema.sort: session}]) if entry else None,
            has_hot=hot is not None,
        )
        self.hot = hot and HotReplica(
            hot,
            f"{session}/A:default",
            codec=codec,
            durable=self.durable,
            ttl=lambda copy: ttl() if copy.has_begun else GRAVE_SECONDS,
        )
        self.author = Author(tag=lambda: f"{self.tag}x{next(numbers)}")
        self.own = AgentCopy(record=session, ids={}, clock=clock)
        self.own.author = self.author
        self.pair = Pair(hot=self.hot, durable=self.durable, own=self.own, session=session_seconds)
        self.saving = Saving(self.pair, flush_every=turns_inline)
        self.save, self.flush = self.saving.save, self.saving.flush
        self.live: list[Any] = []
        self.said = 0

    def redact(self, name: Name, message: Any) -> bool:
        is_done = self.pair.redact(name, message)
        self.save()
        self.flush()
        return is_done

    def delete(self, grave: str | None = None) -> None:
        ending.delete(self.pair, grave)

    def open(self) -> Process:
        self.live = self.restore() or []
        return self

    def restore(self, *, inspect: bool = False) -> Any:
        """Return the messages of the conversation, as both tiers have it now."""
        self.refresh(touch=not inspect)
        self.pair.complete()
        self.author.is_gone = False
        return self.author.take_over() if self.author.copy.has_begun else None

    def refresh(self, *, touch: bool = True) -> None:
        """Take in what either tier has; if one does not answer the other must have something."""
        self.pair.wake()
        found, errors = EMPTY, list[StoreUnavailableError]()
        for replica in (self.hot, self.durable):
            try:
                found = merge(found, self.pair.look(replica, touch=touch) or EMPTY)
            except StoreUnavailableError as error:
                errors.append(error)
        if errors and found == EMPTY:
            raise errors[0]

    def say(self, message: Any, *, begins: bool = False) -> None:
        self.said += 1
        message["tracking_id"] = f"{self.tag}-{self.said}"
        self.live.append(message)
        self.author.say(message, at=self._clock(), begins=begins)
        self.own.touch()

    def begin(self) -> None:
        taken = self.pair.take_over()
        self.live = self.live if taken is None else taken

    def talk(self, text: str, answer: str = "ok") -> None:
        """Say a turn, and store nothing yet."""
        self.begin()
        self.say(user(text), begins=True)
        self.say(assistant(answer))
        self.author.capture(self.live)

    def turn(self, text: str, answer: str = "ok") -> None:
        self.talk(text, answer)
        self.save()

    def shown(self) -> list[str]:
        self.begin()
        return texts(self.live)

    def log(self) -> list[str]:
        return texts(message.value for message in self.history())

    def history(self) -> list[Message]:
        return in_order(self.pair.last.log(self.pair.copy).messages.values())
