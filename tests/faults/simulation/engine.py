"""What is simulated: ``Conversation``, which does for a session manager whatever concerns the stores, and the sweeper."""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from strands_manga_memory.session.author import author as author_module
from strands_manga_memory.session.author.author import Author
from strands_manga_memory.session.basis.facts import AGENT, MANAGER
from strands_manga_memory.session.basis.place import Place, dig, directory_key, grave_key, members
from strands_manga_memory.session.basis.tiers import Tiers
from strands_manga_memory.session.core.identity import new_grave
from strands_manga_memory.session.replicas import split as split_module
from strands_manga_memory.session.replicas.durable import DurableReplica
from strands_manga_memory.session.replicas.hot import HotReplica
from strands_manga_memory.session.sync import opening as opening_module
from strands_manga_memory.session.sync import pair as pair_module
from strands_manga_memory.session.sync import saving as saving_module
from strands_manga_memory.session.sync.conversation import Conversation
from strands_manga_memory.session.upkeep import sweeper as sweeper_module
from strands_manga_memory.session.upkeep.sweeper import SessionSweeper
from strands_manga_memory.stores.encoding.codec import Codec, dump, load
from strands_manga_memory.stores.encoding.derived import DERIVED
from tests.faults.simulation.core import FLUSH_EVERY, SESSION_SECONDS, Core, Machine
from tests.faults.simulation.schedule import Schedule
from tests.faults.simulation.writer import TaskLock

_PLACE = Place.of("s", "A", "default")
_IDS = {"session": "s", "user": "u", "member": "default"}
_DIRECTORY = directory_key(_PLACE.session, _IDS) or ("", "")
_CODEC = Codec(compress_from=1 << 30)


class ConversationCore:
    """``Core`` of the package: what a live agent asks of a conversation."""

    def __init__(self, machine: Machine, graves: set[str]) -> None:
        self._conversation = Conversation(_PLACE, _tiers(machine), base=_IDS)
        self._graves = graves

    is_dirty = property(lambda self: self._conversation.is_dirty)
    is_stale = property(lambda self: self._conversation.has_news)
    is_deleted = property(lambda self: self._author.is_gone and self._author.skips)

    @property
    def _author(self) -> Author:
        return self._conversation.own.author

    @property
    def epoch(self) -> int:
        return 1 + len(self._graves & self._author.copy.graves)

    @property
    def unsaved(self) -> set[str]:
        author, outbox = self._author, self._author.outbox
        return {_id(one.record) for one in [*outbox.unstored_of(author.copy), *outbox.drafts]}

    @property
    def held(self) -> set[str]:
        return self.unsaved | {_id(one.record) for one in self._author.copy.messages.values()}

    @property
    def being_flushed(self) -> set[str]:
        messages = self._author.copy.messages
        return {_id(messages[name].record) for name in self._conversation.pair.put if name in messages}

    def open(self, *, inspect: bool = False) -> list[Any] | None:
        return self._conversation.open(inspect=inspect)

    def begin_turn(self) -> None:
        self._conversation.own.begin_turn()

    def append(self, message: Any, *, at: float) -> None:
        self._conversation.own.say(message, at=at)

    def state(self) -> dict[str, Any]:
        return dict(load(self._conversation.own.fields.get(AGENT, b"{}")))

    def capture(self, messages: Sequence[Any], state: Mapping[str, Any], *, in_turn: bool) -> None:
        with self._conversation.lock:
            fields = {AGENT: dump(dict(state)), MANAGER: dump({"dropped": len(state), DERIVED: len(messages)})}
            self._conversation.own.capture(messages, fields, in_turn=in_turn)

    def revise(self, message: Any) -> bool:
        return self._conversation.own.revise(message, every=True)

    def set_metadata(self, name: str, value: Any) -> None:
        self._conversation.own.set_meta({name: value})

    def take_over(self, live: Sequence[Any]) -> list[Any] | None:
        return self._conversation.take_over(live)

    def save(self) -> Future[Any]:
        return self._conversation.commits.request()

    def flush(self) -> Future[Any]:
        return self._conversation.commits.request_flush()

    def refresh(self) -> Future[Any]:
        return self._conversation.commits.request_refresh()

    def delete(self) -> Future[Any]:
        table, grave = self._conversation.tiers.durable, new_grave()

        def work() -> None:
            self._conversation.bury(grave)
            self._dug(table, _PLACE.session, grave)

        return self._conversation.tiers.writer.submit(_PLACE, self._conversation.bury if table is None else work)

    def delete_listed(self) -> Future[Any]:
        table, grave = self._conversation.tiers.durable, new_grave()

        def bury() -> None:
            for place in members(table, _PLACE.session):
                if place == _PLACE:
                    self._conversation.bury(grave)

        def work() -> None:
            bury()
            self._dug(table, _PLACE.session, grave)
            bury()

        return self._conversation.tiers.writer.submit(_PLACE, work)

    def forget_user(self) -> Future[Any]:
        table = self._conversation.tiers.durable

        def work() -> None:
            grave = self._dug(table, _DIRECTORY[0])
            if table.get(*_DIRECTORY) is not None:
                self._conversation.bury(grave)
                table.delete(*_DIRECTORY)

        return self._conversation.tiers.writer.submit(_PLACE, work)

    def _dug(self, table: Any, partition: str, grave: str | None = None) -> str:
        return dig(table, partition, until=self._conversation.tiers.clock() + SESSION_SECONDS + 3600, grave=grave)

    def close(self) -> Future[Any]:
        self._conversation.own.closing = True
        return self._conversation.commits.request_flush()

    def history(self) -> Iterator[tuple[str, int]]:
        for logged in self._conversation.history():
            yield str(logged.message["tracking_id"]), logged.turn


def _id(record: bytes) -> str:
    return str(load(record)["tracking_id"])


class Engine:
    """Makes cores, and knows how to look into what they store.

    Args:
        most_writers: Writers that a vector describes in full: few, so that others are counted together.
        most_known: Writers that a vector names before the longest silent ones leave it.
    """

    def __init__(self, *, most_writers: int = 4, most_known: int = 16) -> None:
        self._numbers = random.Random(0)
        self._graves: set[str] = set()
        self._most_writers, self._most_known = most_writers, most_known

    def core(self, machine: Machine) -> Core:
        """Return a process's hold on the conversation, not opened yet."""
        return ConversationCore(machine, self._graves)

    def sweep(self, machine: Machine) -> None:
        """Sweep once."""
        if machine.hot is None and machine.durable is None:
            return
        sweeper = SessionSweeper(hot=machine.hot, durable=machine.durable, clock=machine.clock)
        sweeper._tiers = _tiers(machine, on_store_error="raise")
        sweeper.run_once()

    @contextmanager
    def running(self, schedule: Schedule, *, most_bytes: int = split_module.MOST_BYTES) -> Iterator[None]:
        """Let locks, waits, sleeps and random numbers be those of the simulation; a record of the table holds so many bytes."""
        replaced = [
            mock.patch.object(secrets, "token_hex", lambda size: f"{self._numbers.getrandbits(8 * size):0{2 * size}x}"),
            mock.patch.object(secrets, "randbits", self._numbers.getrandbits),
            mock.patch.object(pair_module, "threading", mock.Mock(RLock=lambda: TaskLock(schedule))),
            mock.patch.object(saving_module, "threading", mock.Mock(RLock=lambda: TaskLock(schedule))),
            mock.patch.object(pair_module, "pause", side_effect=lambda tried: schedule.pause(seconds=0.001)),
            mock.patch.object(opening_module, "wait", side_effect=lambda futures, timeout: schedule.pause()),
            mock.patch.object(author_module, "MOST_WRITERS", self._most_writers),
            mock.patch.object(author_module, "MOST_KNOWN", self._most_known),
            mock.patch.object(split_module, "MOST_BYTES", most_bytes),
            mock.patch.object(sweeper_module, "_random", random.Random(0)),
        ]
        with ExitStack() as stack:
            for patch in replaced:
                stack.enter_context(patch)
            yield

    def ids_in_hot(self, store: Any) -> set[str]:
        """Return the ids of the messages that the hot tier has."""
        hot = HotReplica(store, _PLACE.conversation, codec=_CODEC)
        copy = hot.log(hot.load(touch=False))
        return {_id(message.record) for message in copy.messages.values()}

    def buried(self, store: Any, table: Any) -> int:
        """Return how many graves there have been in the two tiers."""
        hot = HotReplica(store, _PLACE.conversation, codec=_CODEC)
        watched = [grave_key(_PLACE.session), grave_key(_DIRECTORY[0])]
        durable = DurableReplica(table, _PLACE.session, _PLACE.member, codec=_CODEC, watched=watched, clock=lambda: 0.0)
        self._graves |= hot.load(touch=False).graves | durable.load().graves
        return len(self._graves)


def _tiers(machine: Machine, **rules: Any) -> Tiers:
    writer: Any = machine.writer
    return Tiers(
        hot=machine.hot,
        durable=machine.durable,
        writer=writer,
        codec=_CODEC,
        clock=machine.clock,
        flush_every=FLUSH_EVERY,
        hot_health=machine.writer.hot_health,
        durable_health=machine.writer.durable_health,
        **rules,
    )
