"""World of the simulation: processes of one conversation, stores, and a judge."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

from strands_manga_memory import Codec, TtlPolicy
from strands_manga_memory.exceptions import ConflictError, StoreUnavailableError
from strands_manga_memory.session.conversation_transfer import begin_with, content_at
from strands_manga_memory.session.protocol.conversation_storage import ConversationStorage
from strands_manga_memory.session.protocol.durable_tier import DurableTier
from strands_manga_memory.session.protocol.hot_tier import HotTier
from strands_manga_memory.session.protocol.record import Record, Slot, TurnKey, Version
from strands_manga_memory.session.tiers import ConversationKey, Tiers
from strands_manga_memory.stores.codec import dump, load
from strands_manga_memory.stores.writer import Writer
from strands_manga_memory.testing import FakeClock
from tests.faults.protocol.process import load_fully, save
from tests.faults.protocol.stores import DurableSide, HotSide, ProcessStore

MOST_CALLS = 300
"""Store calls of one piece of work. More of them, and it does not end."""

_NEVER = 10**9
_CODEC = Codec(compress_from=1 << 30)
_TTL = TtlPolicy(seconds=1800.0, session=1e12)
_PLACE, _WRITER = ConversationKey("s", "A:a"), Writer()
Op = tuple[Any, ...]


class BrokenPromiseError(AssertionError):
    """A promise of the protocol does not storage."""


class TaskLock:
    """A re-entrant lock between tasks."""

    def __init__(self, world: World) -> None:
        self._world, self._owner, self._depth = world, None, 0

    def __enter__(self) -> None:
        here = getcurrent()
        while self._owner not in (None, here):
            self._world.pause(lambda: self._owner is None)
        self._owner, self._depth = here, self._depth + 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None


@dataclass(eq=False)
class Task:
    """A piece of work of a process, from one store call to the next."""

    label: str
    owner: str
    body: greenlet
    is_ready: Callable[[], bool] = lambda: True


@dataclass(eq=False)
class Said:
    """A turn that was said.

    Args:
        process: Name of the author.
        texts: Texts of its messages.
        known: Keys of the turns that its author had seen.
        incarnation: The incarnation in which it was said.

    Attributes:
        is_unlisted: Whether the log alone had it when the hot tier went back to a copy: a reader of
            both tiers may lack it.
        ended_by: Incarnation of an expiry that both tiers have lost; 0 if there was none when the
            turn was acknowledged or later. If a process has read the expiry and writes it again,
            the turn is over if the log has it.
    """

    key: TurnKey
    process: str
    known: frozenset[TurnKey]
    incarnation: int
    texts: list[str] = field(default_factory=list)
    acked: int = 0
    acked_in: int = 0
    ended_by: int = 0
    stable_at: int = _NEVER
    deleted_at: int = 0
    is_excused: bool = False
    is_evicted: bool = False
    is_first: bool = False
    is_unlisted: bool = False


class Process:
    """A process with one agent that holds the conversation."""

    def __init__(self, world: World, name: str, *, is_short: bool) -> None:
        self.name, self.is_short = name, is_short
        world.add_holder(self)
        self.cut: set[str] = set()
        self.known: set[TurnKey] = set()
        self.mine: list[TurnKey] = []
        self.calls = self.began = 0
        self.is_busy = self.is_troubled = self.is_flushing = self.is_ready = False
        self.state: tuple[int, int] | None = None
        self.flag = 0
        hot, durable = (ProcessStore(world, side, self) for side in (world.hot, world.durable))
        self.storage = ConversationStorage(_PLACE, world.tiers_of(hot, durable), ids={})
        self.has_read_to_save = False
        save_head, read_head = self.storage._save_head, self.storage.read_head

        def read() -> Record:
            found = read_head()
            self.has_read_to_save = self._saves_head
            return found

        def save() -> None:
            self._saves_head = True
            try:
                save_head()
            finally:
                self._saves_head = self.has_read_to_save = False

        self._saves_head = False
        self.storage._save_head, self.storage.read_head = save, read

    def sweep(self) -> None:
        """Store the hot tier's data in the durable tier, and empty the hot tier."""
        self.storage.read_hot(touch=False)
        self.storage.flush(writes_hot=False, closes=True)
        if self.storage.empty_hot():
            _purge_ended(self.storage)

    @property
    def texts(self) -> list[str | None]:
        """Texts of the window; None for a message that cannot be read."""
        found = [self.storage.local.message(slot) for slot in self.storage.local.window]
        return [None if message is None else load(message)["text"] for message in found]


class World:
    """Processes, stores and the judge.

    Args:
        seed: Seed of the random numbers of the protocol.
        options: Names of what may happen, see ``runs.OPTIONS``.
        most: Processes at a time.
    """

    def __init__(self, seed: int, options: frozenset[str], most: int) -> None:
        self.seed, self.options, self.most = seed, options, most
        self.tiers = (
            "hot" if "hot-only" in options else "durable" if "durable-only" in options else "both"
        )
        self.clock = FakeClock()
        self.hot, self.durable = HotSide(self.clock), DurableSide()
        self._main = getcurrent()
        self.tasks: list[Task] = []
        self._dead: list[Task] = []
        self.faults: dict[str, str] = {}
        self.late: list[Callable[[], Any]] = []
        self.down: set[str] = set()
        self.processes: list[Process] = []
        self.started = self.numbers = self.tick = self.deleting = 0
        self.said: dict[TurnKey, Said] = {}
        self.of_text: dict[str, TurnKey] = {}
        self.secrets: dict[str, set[str]] = {"hot": set(), "durable": set()}
        self.half_redacted: set[str] = set()
        self.hot_copies: list[Any] = []
        self.durable_copies: list[Any] = []
        self.is_rolled_back = self.is_lossy = False
        self.gone_back: set[TurnKey] = set()
        self._holders: dict[str, Process] = {}
        self.losses = self.restores = self.head_incarnation = self.deleted_below = 0
        self.rewinds: dict[str, Record] = {}
        self.expiries: set[int] = set()
        self.calls: Counter[str] = Counter()
        self.problem: BaseException | None = None

    # Tasks

    def pause(self, until: Callable[[], bool] = lambda: True) -> None:
        """Let other tasks run, until something holds."""
        here = getcurrent()
        if here is self._main:
            self.drain(until)
            return
        task = next((task for task in self.tasks if task.body is here), None)
        if task is None:
            raise GreenletExit
        task.is_ready = until
        self._main.switch()
        task.is_ready = lambda: True

    @property
    def ready(self) -> list[Task]:
        """Tasks that can run."""
        ready = [task for task in self.tasks if task.is_ready()]
        if self.tasks and not ready:
            raise BrokenPromiseError(f"tasks wait for one another: {[t.label for t in self.tasks]}")
        return ready

    def spawn(self, label: str, owner: str, work: Callable[[], object]) -> None:
        """Add a task."""

        def body() -> None:
            try:
                work()
            except StoreUnavailableError:
                pass
            except GreenletExit:
                raise
            except BaseException as error:
                self.problem = self.problem or error

        self.tasks.append(Task(label, owner, greenlet(body, self._main)))

    def run(self, task: Task) -> None:
        """Let a task run to its next store call."""
        self.tick += 1
        task.body.switch()
        if task.body.dead and task in self.tasks:
            self.tasks.remove(task)
        if self.problem is not None:
            raise self.problem

    def drain(self, until: Callable[[], bool] = lambda: False) -> None:
        """Let all tasks run."""
        for _ in range(20_000):
            if not self.tasks or until():
                return
            self.run(self.ready[0])
        raise BrokenPromiseError("it does not end")

    def count_call(self, process: Process, side: str) -> None:
        """Count a store call."""
        process.calls += 1
        self.calls[side] += 1
        if process.calls > MOST_CALLS:
            raise BrokenPromiseError(f"{process.name} makes an unbounded number of calls")

    # The judge

    def note_head(self) -> None:
        """Note the incarnation of the head, and the lowest one whose turns continue."""
        head = self._read_hot() if self.tiers == "hot" else self._read_head()
        incarnation = head.incarnation
        content = (
            None if incarnation <= self.head_incarnation else self.rewinds.get(head.version.tag)
        )
        if content is not None:
            for said in (
                self.said.values()
            ):  # the turns that the rewind had seen are kept or removed, the others are kept
                if content.seen.get(said.key, 0) and said.key not in content.turns:
                    said.is_excused = True
                elif said.incarnation < incarnation:
                    said.incarnation = incarnation
        if incarnation > self.head_incarnation:
            self._note_returned_expiry(incarnation)
        if (
            head.is_empty
            and incarnation > self.head_incarnation
            and head.deleted_below < incarnation
        ):
            self.expiries.add(incarnation)
            for said in (
                self.said.values()
            ):  # an expiry: the turns that it has seen are over, the others are carried over
                if said.incarnation >= incarnation:
                    continue
                if head.seen.get(said.key, 0) or head.is_older_than_seen(said.key):
                    said.is_evicted = True
                else:
                    said.incarnation = incarnation
        self.head_incarnation = incarnation
        self.deleted_below = max(self.deleted_below, head.deleted_below)

    def _note_returned_expiry(self, incarnation: int) -> None:
        """Note the turns that end with an expiry that both tiers had lost: those that the log has.

        Others continue.
        """
        over = [
            said
            for said in self.said.values()
            if said.acked_in < incarnation and 0 < said.ended_by <= incarnation
        ]
        logged = self.durable.logged_texts() if over else set()
        for said in over:
            said.is_evicted = said.is_evicted or {*said.texts[: said.acked]} <= logged

    def note_written(self, side: str, texts: set[str]) -> None:
        """Check that no redacted text is written."""
        back = texts & self.secrets[side]
        if back:
            raise BrokenPromiseError(f"redacted text is back in {side}: {sorted(back)}")

    @property
    def held_texts(self) -> set[str]:
        """Texts of the messages that a store has, in their original form or redacted."""
        return (
            self.hot.texts() | self.hot.redacted() | self.durable.texts() | self.durable.redacted()
        )

    def forgive_losses(self) -> None:
        """Excuse the turns that no store and no process has any more."""
        have = self.held_texts
        alive = {process.name: process for process in self.processes}
        for said in self.said.values():
            acked = said.texts[: said.acked]
            author = alive.get(said.process)
            if all(text in have for text in acked):
                continue
            if author is None or (
                self.is_rolled_back and said.key not in author.storage.local.base.turns
            ):
                said.is_excused = True
        self._note_unlisted()

    def add_holder(self, process: Process) -> None:
        """Take note of a process, a reader or a sweeper that may hold a record."""
        self._holders[process.name] = process

    def _note_unlisted(self) -> None:
        """Note logged turns of a cut flush that the hot tier lost by returning to a copy.

        The head of the flush would list them. Only a load that finds the hot tier empty looks for
        such turns.
        """
        busy = {task.owner for task in self.tasks}
        alive = [
            one.storage.local.base
            for one in self._holders.values()
            if one in self.processes or one.name in busy
        ]
        logged = self.durable.texts() | self.durable.redacted()
        for key in list(self.gone_back):
            said = self.said.get(key)
            if said is None or self._is_listed(key):
                self.gone_back.discard(key)
            if said is not None:
                is_logged = bool(said.texts) and said.texts[0] in logged
                is_gone = key in self.gone_back and not any(key in record.seen for record in alive)
                said.is_unlisted = is_logged and is_gone

    def _is_listed(self, key: TurnKey) -> bool:
        records = (self._read_hot(), self._read_head())
        return any(key in record.seen or record.is_older_than_seen(key) for record in records)

    def _read_hot(self) -> Record:
        return HotTier(_PLACE, self.tiers_of(self.hot.store, self.durable.store)).read(touch=False)

    def _read_head(self) -> Record:
        return DurableTier(_PLACE, self.tiers_of(self.hot.store, self.durable.store), {}).read()

    def tiers_of(self, hot: Any, durable: Any) -> Tiers:
        """Return the stores of a process."""
        hot, durable = (
            (None if self.tiers == "durable" else hot),
            (None if self.tiers == "hot" else durable),
        )
        return Tiers(
            hot=hot, durable=durable, writer=_WRITER, codec=_CODEC, clock=self.clock, ttl=_TTL
        )

    def check_window(self, process: Process, how: str, tiers: set[str]) -> None:
        """Check the window of a process that has just read some tiers."""
        slots = [slot[:2] for slot in process.storage.local.window if slot.key]
        if len(slots) != len(set(slots)):
            raise BrokenPromiseError(f"{process.name} {how}: a message stands twice in the window")
        order = [key for at, (key, _) in enumerate(slots) if at == 0 or slots[at - 1][0] != key]
        if len(order) != len(set(order)):
            raise BrokenPromiseError(f"{process.name} {how}: turns interleave")
        for key in order:
            indexes = [index for of, index in slots if of == key]
            if indexes != list(range(len(indexes))):
                raise BrokenPromiseError(f"{process.name} {how}: turn {key} is torn: {indexes}")
        process.known |= set(order)
        both = tiers == ({"hot", "durable"} if self.tiers == "both" else {self.tiers})
        for key in order:
            said = self.said[key]
            if (
                said.deleted_at
                and said.deleted_at < process.began
                and (both or (tiers and not self.is_lossy))
            ):
                raise BrokenPromiseError(f"{process.name} {how}: deleted turn {key} is back")
        if not both:
            return
        have = self.held_texts
        incarnation = process.storage.local.base.incarnation
        shown = Counter(key for key, _ in slots)
        for said in self.said.values():
            if (
                not said.acked
                or said.is_excused
                or said.deleted_at
                or said.is_evicted
                or said.incarnation != incarnation
            ):
                continue
            if said.is_unlisted:
                continue
            if self.deleting or said.stable_at >= process.began or said.texts[0] not in have:
                continue
            if shown[said.key] < min(said.acked, 1):
                raise BrokenPromiseError(f"{process.name} {how}: turn {said.key} is missing")

    # Processes

    def start(self, *, is_short: bool) -> None:
        """A process opens the conversation."""
        self.started += 1
        process = Process(self, f"p{self.started}", is_short=is_short)

        def work() -> None:
            process.began, process.calls = self.tick, 0
            load_fully(process.storage)
            self.processes.append(process)
            process.is_ready = True
            self.check_window(process, "load", self._read_tiers(process))

        self.spawn(f"{process.name}:open", process.name, work)

    def _read_tiers(self, process: Process) -> set[str]:
        if process.is_troubled or process.cut or self.down:
            return set()
        known = {"hot": process.storage.hot, "durable": process.storage.durable}
        return {name for name, tier in known.items() if tier is not None and tier.is_known}

    def act(self, process: Process, label: str, work: Callable[[], object]) -> None:
        """Let a process work on its main thread."""
        process.is_busy = True

        def body() -> None:
            process.calls, process.is_troubled, process.began = 0, False, self.tick
            try:
                work()
            finally:
                process.is_busy = False

        self.spawn(f"{process.name}:{label}", process.name, body)

    def turn(self, process: Process, how: Op) -> None:
        """A user asks, and the agent answers; its manager may evict, edit and summarize."""
        refreshes, drop, edits, notes, parts, flushes = how

        def work() -> None:
            storage = process.storage
            if refreshes:
                storage.refresh()
            storage.complete()
            storage.local.adopt_window()
            if refreshes:
                self.check_window(process, "refresh", self._read_tiers(process) & {"hot"})
            storage.local.begin_turn()
            said: Said | None = None
            for part in range(parts):
                for _ in range(2):
                    said = self._say(process, said)
                if part + 1 < parts:
                    self.save(process)
                    if self.said[process.mine[-1]].is_excused:
                        break
            storage.local.end_turn()
            self._manage(process, drop, edits=edits, notes=notes)
            self.numbers += 1
            process.flag = self.numbers % 2
            storage.local.set_states(
                {
                    "shared": self.numbers,
                    process.name: self.numbers,
                    f"{process.name}.flag": process.flag,
                }
            )
            process.state = self.numbers, storage.local.base.incarnation
            self.save(process)
            if flushes or storage.is_flush_due:
                self.flush(process)

        self.act(process, "turn", work)

    def _say(self, process: Process, said: Said | None) -> Said | None:
        storage = process.storage
        self.numbers += 1
        before = set(storage.local.own_turns)
        index = 0 if said is None else len(said.texts)
        text = f"m{self.numbers}.{index}"
        storage.local.append(
            dump({"role": "user" if index % 2 == 0 else "assistant", "text": f"<{text}>"})
        )
        new = set(storage.local.own_turns) - before
        if said is None:
            if not new:
                raise BrokenPromiseError(f"{process.name}: a turn began without a key")
            key = new.pop()
            if key in self.said:
                raise BrokenPromiseError(f"{key} is used twice")
            said = self.said[key] = Said(
                key, process.name, frozenset(process.known), storage.local.base.incarnation or 1
            )
            said.is_first = not storage.local.base.incarnation
            process.known.add(key)
            process.mine.append(key)
        if said.key in storage.local.own_turns:
            said.texts.append(text)
            self.of_text[text] = said.key
        return said

    def _manage(self, process: Process, drop: int, *, edits: bool, notes: bool) -> None:
        """Do what a conversation manager does: evict turns, edit a message, synthesize a note."""
        storage = process.storage
        own = set(storage.local.own_turns)
        keys = [
            key
            for key in dict.fromkeys(slot.key for slot in storage.local.view if slot.key)
            if key not in own
        ]
        evicted = set(keys[:drop]) if len(keys) > drop > 0 else set()
        view = [slot for slot in storage.local.view if slot.key not in evicted]
        if edits:
            at = next((at for at, s in enumerate(view) if s.key and s.key not in own), None)
            if at is not None and (message := storage.local.message(view[at])) is not None:
                self.numbers += 1
                edited = {"role": "user", "text": f"edited {self.numbers} {load(message)['text']}"}
                view[at] = Slot(view[at].key, view[at].number, dump(edited))
        if notes:
            self.numbers += 1
            view = [
                Slot(None, 0, dump({"role": "user", "text": f"note {self.numbers}"})),
                *(s for s in view if s.key),
            ]
        storage.local.set_view(view)
        if not storage.local.has_conflict:
            for key in evicted:
                self.said[key].is_evicted = True

    def save(self, process: Process) -> None:
        """Save, and note what was acknowledged."""
        storage = process.storage
        save(storage)
        self._check_states(process, storage)
        for key in process.mine:
            said = self.said[key]
            length = storage.local.base.seen.get(key, 0)
            if key in storage.local.own_turns or length:
                acked = min(length, len(said.texts))
                if acked > said.acked:
                    said.acked, said.acked_in = acked, storage.local.base.incarnation
                    said.ended_by = said.ended_by or self._lost_expiry()
                    has_text = said.texts[acked - 1] in self.held_texts
                    said.stable_at = self.tick if has_text else _NEVER
                    if storage.local.base.incarnation > said.incarnation and not said.is_first:
                        said.is_excused = said.is_excused or self.deleted_since(said)
                    # The deletion has not reached the hot tier yet, which has acknowledged a turn
                    # of the deleted incarnation.
                    said.is_excused = (
                        said.is_excused or storage.local.base.incarnation < self.deleted_below
                    )
                    said.incarnation = max(said.incarnation, storage.local.base.incarnation)
        self.forgive_losses()
        hot = storage.hot.record if storage.hot is not None and storage.hot.is_known else None
        is_current = hot is not None and hot.version == storage.local.base.version
        self.check_window(
            process, "save", self._read_tiers(process) & {"hot"} if is_current else set()
        )

    def _lost_expiry(self) -> int:
        """Return the incarnation of an expiry that both tiers have lost, or 0."""
        if not (self.expiries and self.is_lossy and self.is_rolled_back):
            return 0
        stored = max(self._read_hot().incarnation, self._read_head().incarnation)
        return min((number for number in self.expiries if number > stored), default=0)

    def deleted_since(self, said: Said) -> bool:
        """Tell whether the conversation may have been deleted since a turn was said."""
        return bool(self.deleting) or any(other.deleted_at for other in self.said.values())

    def flush(self, process: Process) -> None:
        """Flush beside the agent's other work."""
        if process.is_flushing:
            return
        process.is_flushing = True

        def work() -> None:
            try:
                process.calls = 0
                process.storage.flush()
            finally:
                process.is_flushing = False

        self.spawn(f"{process.name}:flush", process.name, work)

    def redact(self, process: Process, which: int) -> None:
        """A message of the window is redacted."""

        def work() -> None:
            storage = process.storage
            shown = [(s, storage.local.message(s)) for s in storage.local.window if s.key]
            texts = [(slot, load(m)["text"]) for slot, m in shown if m is not None]
            found = [(slot, text.strip("<>")) for slot, text in texts if text.startswith("<m")]
            if not found:
                return
            slot, secret = found[which % len(found)]
            assert slot.key is not None
            losses, incarnation = self.losses, storage.local.base.incarnation
            self.half_redacted.add(secret)
            redacted = dump({"role": "user", "text": f"redacted {secret}"})
            storage.local.redact(slot.key, slot.number, redacted)
            with suppress(StoreUnavailableError):
                save(storage)
            storage.flush()
            if process.is_troubled or losses != self.losses or process.cut or self.down:
                return
            if storage.local.base.incarnation != incarnation:
                return
            if slot.number not in storage.local.base.redactions.get(slot.key, {}):
                raise BrokenPromiseError(f"{process.name}: the redaction of {secret} is forgotten")
            self.half_redacted.discard(secret)
            for side, tier in ((self.hot, storage.hot), (self.durable, storage.durable)):
                record = None if tier is None or not tier.is_known else tier.record
                if record is not None and slot.number in record.redactions.get(slot.key, {}):
                    self.secrets[side.name].add(secret)
                    if secret in side.kept_texts():
                        raise BrokenPromiseError(f"redacted text {secret} is in {side.name}")

        self.act(process, "redact", work)

    def delete(self, process: Process) -> None:
        """A process deletes the conversation."""
        before, restores = list(self.said.values()), self.restores
        self.deleting += 1
        for said in before:
            said.is_excused = True

        def work() -> None:
            done = False
            try:
                process.storage.delete()
                done = True
            finally:
                self.deleting -= 1
                for said in self.said.values():
                    said.is_excused = True
                if done:
                    ended = process.storage.local.base.incarnation
                    for said in before:
                        survives = said.is_first and not (said.acked and said.acked_in < ended)
                        may_be_back = survives or restores != self.restores
                        said.deleted_at = 0 if may_be_back else self.tick
                    process.known -= {said.key for said in before}

        self.act(process, "delete", work)

    def rewind(self, which: int) -> None:
        """Somebody removes the last turns. Turns that were stored since the log was read stay."""
        self.started += 1
        process = Process(self, f"rewinder{self.started}", is_short=True)
        storage = process.storage
        next_version = storage.local.next_version

        def work() -> None:
            if error := storage.load(touch=False):
                raise error
            log = dict(storage.history())
            with suppress(ConflictError, ValueError):  # a turn is open, or there is none
                content = content_at(storage, max(1, len(log) - which))

                def begin(*others: Record) -> Version:
                    version = next_version(*others)
                    self.rewinds[version.tag] = content
                    return version

                storage.local.next_version = begin
                removed = {
                    key
                    for key, turn in log.items()
                    if key not in content.turns and not turn.is_open
                }
                if begin_with(storage, content, replaces=True):
                    for key in removed:
                        self.said[key].deleted_at = self.tick

        self.spawn(process.name, process.name, work)

    def sweep(self) -> None:
        """A sweeper empties the hot tier."""
        self.started += 1
        process = Process(self, f"sweeper{self.started}", is_short=True)
        self.spawn(process.name, process.name, process.sweep)

    def expire(self) -> None:
        """Somebody reads the conversation, and ends the incarnation by age."""
        self.started += 1
        process = Process(self, f"end{self.started}", is_short=True)

        def work() -> None:
            process.storage.load(touch=False)
            process.storage.expire(unused_since=self.clock() - 50)

        self.spawn(process.name, process.name, work)

    def kill(self, process: Process) -> None:
        """A process dies."""
        for task in [task for task in self.tasks if task.owner == process.name]:
            self.tasks.remove(task)
            self._dead.append(task)
            if task.label.endswith(":delete"):
                self.deleting -= 1
                for said in self.said.values():
                    said.is_excused = True
        if process in self.processes:
            self.processes.remove(process)
        self.forgive_losses()

    def leave(self, process: Process) -> None:
        """A process ends in good order."""

        def work() -> None:
            if self.tiers == "both" and len(process.storage.local.base.unlogged) >= 5:
                process.storage.flush()
            self.kill(process)

        self.act(process, "leave", work)

    # Stores

    def lose_hot(self, number: int) -> None:
        """The hot tier goes back to a copy, or loses everything."""
        self.hot.go_back(
            self.hot_copies[number % len(self.hot_copies)]
            if number >= 0 and self.hot_copies
            else None
        )
        self.is_lossy = True
        is_older = self._read_hot() != Record()
        self.gone_back = {key for key in self.said if is_older and not self._is_listed(key)}
        for said in self.said.values():
            said.is_unlisted = False
        self._note_loss("hot")

    def restore_durable(self, number: int) -> None:
        """The durable tier goes back to a copy, or to an empty table."""
        if any(
            task.label.split(":")[-1] in ("flush", "leave", "redact") or ":" not in task.label
            for task in self.tasks
        ):
            return  # not between the writes of a flush
        if any(process.has_read_to_save for process in self._holders.values()):
            return  # nor between those of a save that moves turns into the log
        copies = self.durable_copies
        self.durable.go_back(copies[number % len(copies)] if number >= 0 and copies else None)
        self.is_rolled_back = True
        self.restores += 1
        for said in self.said.values():
            said.deleted_at = 0
        self._note_loss("durable")

    def _deliver(self, which: int) -> None:
        """Let a call have its late effect. A failed deletion may delete acknowledged turns then."""
        before = self.deleted_below
        self.late.pop(which)()
        for said in self.said.values() if self.deleted_below > before else ():
            said.is_excused = said.is_excused or 0 < said.acked_in < self.deleted_below

    def _note_loss(self, side: str) -> None:
        self.secrets[side].clear()
        self.losses += 1
        for process in self.processes:
            process.is_troubled = True
        self.forgive_losses()
        lost_expiry = self._lost_expiry()
        for said in self.said.values():
            said.stable_at = _NEVER
            said.ended_by = said.ended_by or lost_expiry

    # Steps

    def choices(self, numbers: random.Random) -> Iterator[tuple[float, Op]]:
        """Yield what may happen next, with weights."""
        options = self.options
        opening = sum(task.label.endswith(":open") for task in self.tasks)
        if len(self.processes) + opening < self.most:
            yield 3, ("start", "short" in options or numbers.random() < 0.5)
        sides = {"both": ["hot", "durable"], "hot": ["hot"], "durable": ["durable"]}[self.tiers]
        for process in self.processes:
            if not process.is_busy and process.is_ready:
                yield from self._choices_of(process, numbers)
            if "kills" in options:
                yield 0.4, ("kill", process.name)
            if "split" in options:
                yield 0.5, ("cut", process.name, numbers.choice(sides))
        if "faults" in options:
            yield 1, ("fault", numbers.choice(sides), numbers.choice(["fails", "lost"]))
        if "late" in options:
            yield 1, ("fault", numbers.choice(sides), "late")
        if self.late:
            yield 1, ("deliver", numbers.randrange(99))
        if "split" in options:
            yield 0.5, ("down", numbers.choice(sides))
        if "lossy" in options:
            yield 0.7, ("copy_hot",)
            yield 0.5, ("lose_hot", numbers.choice([-1, numbers.randrange(99)]))
        if "restored" in options:
            yield 0.7, ("copy_durable",)
            yield (
                0.3,
                (
                    "restore_durable",
                    numbers.choice([-1, numbers.randrange(99), numbers.randrange(99)]),
                ),
            )
        if "sweeps" in options and self.tiers == "both":
            yield 1, ("sweep",)
        if "ends" in options:
            yield 1, ("expire",)
        if "rewinds" in options:
            yield 1, ("rewind", numbers.randrange(4))
        yield 1, ("later", numbers.choice([1, 1, 60 if "ends" in options else 1]))

    def _choices_of(self, process: Process, numbers: random.Random) -> Iterator[tuple[float, Op]]:
        parts = (
            numbers.choice([1, 1, 1, 2, 3])
            if "parts" in self.options
            else numbers.choice([1, 1, 2])
        )
        how = (
            process.is_short or numbers.random() < 0.7,
            numbers.choice([0, 0, 0, 1, 2, 4]),
            numbers.random() < 0.1,
            numbers.random() < 0.1,
            parts,
            numbers.random() < 0.1,
        )
        done = process.is_short and bool(process.mine)
        if not done:
            yield 4, ("turn", process.name, how)
        if process.is_short:
            yield (6 if done else 1), ("leave", process.name)
        yield 0.5, ("flush", process.name)
        if "redacts" in self.options:
            yield 0.5, ("redact", process.name, numbers.randrange(9))
        if "deletes" in self.options:
            yield 0.3, ("delete", process.name)

    def draw(self, numbers: random.Random) -> Op:
        """Return the next step."""
        ready = self.ready
        if ready and numbers.random() < 0.85:
            return ("run", numbers.choice(ready).label)
        weighted = list(self.choices(numbers))
        return numbers.choices([op for _, op in weighted], [weight for weight, _ in weighted])[0]

    def apply(self, op: Op) -> None:
        """Let a step happen, if it can."""
        name, *rest = op
        self.tick += 1
        process = next((one for one in self.processes if rest and one.name == rest[0]), None)
        if name == "run":
            task = next((task for task in self.ready if task.label == rest[0]), None)
            if task is not None:
                self.run(task)
        elif name in ("turn", "redact", "delete", "leave"):
            if process is not None and not process.is_busy:
                getattr(self, name)(process, *rest[1:])
        elif name in ("flush", "kill"):
            if process is not None:
                getattr(self, name)(process)
        else:
            self._apply_to_stores(name, rest, process)
        if self.problem is not None:
            raise self.problem

    def _apply_to_stores(self, name: str, rest: Sequence[Any], process: Process | None) -> None:
        if name == "start":
            self.start(is_short=rest[0])
        elif name == "cut" and process is not None:
            process.cut ^= {rest[1]}
            process.is_troubled = True
        elif name == "down":
            self.down ^= {rest[0]}
            for one in self.processes:
                one.is_troubled = True
        elif name == "fault":
            self.faults[rest[0]] = rest[1]
        elif name == "deliver" and self.late:
            self._deliver(rest[0] % len(self.late))
            self.forgive_losses()
        elif name == "copy_hot":
            self.hot_copies.append(self.hot.copy())
        elif name == "copy_durable":
            self.durable_copies.append(self.durable.copy())
        elif name == "later":
            self.clock.advance(rest[0])
        elif name in ("lose_hot", "restore_durable", "rewind"):
            getattr(self, name)(*rest)
        elif name in ("sweep", "expire"):
            getattr(self, name)()

    # The end

    def _do(self, work: Callable[[], object]) -> None:
        self.spawn("end", "end", work)
        self.drain()

    def finish(self) -> None:
        """Mend everything, let every process save and flush, and check new restores."""
        self.down.clear()
        self.faults.clear()
        for process in self.processes:
            process.cut.clear()
        self.drain()
        while self.late:
            self._deliver(0)
        self.forgive_losses()
        for _ in range(3):
            for process in [one for one in self.processes if one.is_ready]:

                def work(process: Process = process) -> None:
                    process.calls, process.is_troubled, process.began = 0, False, self.tick
                    process.storage.refresh()
                    process.storage.local.adopt_window()
                    self.save(process)
                    process.storage.flush()

                self._do(work)
        if "sweeps" in self.options and self.tiers == "both" and self.seed % 2:
            self.sweep()
            self.drain()
        last = self._reader("last", set())
        self._check_last(last)
        for process in self.processes:
            self._check_states(process, last.storage)
        if any(said.acked for said in self.said.values()):
            self._check_restores(last)

    def _reader(self, name: str, cut: set[str]) -> Process:
        process = Process(self, name, is_short=False)
        process.cut, process.began = cut, self.tick
        self._do(lambda: load_fully(process.storage))
        if self.problem is not None:
            raise self.problem
        return process

    def _check_last(self, last: Process) -> None:
        self.check_window(last, "last load", self._read_tiers(last))
        shown = Counter(slot.key for slot in last.storage.local.window if slot.key)
        for said in self.said.values():
            is_due = not (said.is_excused or said.deleted_at or said.is_evicted or said.is_unlisted)
            if said.acked and is_due and shown[said.key] < said.acked:
                raise BrokenPromiseError(
                    f"acknowledged turn {said.key} of {said.process} is not in the last window"
                )

    def _check_states(self, process: Process, storage: ConversationStorage) -> None:
        """States that only one process sets have the values that it has set last."""
        states = storage.local.states
        if process.state is None or process.state[1] != storage.local.base.incarnation:
            return
        wanted = {process.name: process.state[0], f"{process.name}.flag": process.flag}
        found = {name: states.get(name) for name in wanted}
        if found != wanted:
            raise BrokenPromiseError(f"{process.name} set {wanted}, the record has {found}")

    def _check_restores(self, last: Process) -> None:
        """Let one more process take a turn and flush; each tier must restore the same."""
        self.processes.append(last)
        last.is_ready = True
        self.turn(last, (True, 1, True, True, 1, True))
        self.drain()
        wanted, states = last.texts, last.storage.local.states
        log: list[tuple[TurnKey, Any]] = []
        self._do(lambda: log.extend(last.storage.history()))
        self._check_log(log, last.storage.local.base)
        if not self.options & {
            "lossy",
            "restored",
            "ends",
        } and last.storage.local.record.turn_count != len(log):
            counted = last.storage.local.record.turn_count
            raise BrokenPromiseError(f"the log has {len(log)} turns, and {counted} are counted")
        if states.get("shared") != self.numbers or states.get("last") != self.numbers:
            raise BrokenPromiseError("a state is not the last one")
        cuts = [set(), {"hot"}, {"durable"}] if self.tiers == "both" else [set()]
        for cut in cuts:
            reader = self._reader(f"reader without {sorted(cut)}", cut)
            if self._blur(reader.texts) != self._blur(wanted):
                raise BrokenPromiseError(
                    f"restored without {sorted(cut)}: {reader.texts} instead of {wanted}"
                )
            if reader.storage.local.states != states:
                raise BrokenPromiseError(f"restored without {sorted(cut)}: other states")
        self._check_redactions(wanted)
        if self.tiers == "both":
            self.sweep()
            self.drain()
        self._do(lambda: _purge_ended(last.storage))
        left = self.hot.texts() | self.durable.texts()
        for said in self.said.values():
            if said.deleted_at and said.deleted_at and any(text in left for text in said.texts):
                raise BrokenPromiseError(f"text of deleted turn {said.key} is left")

    def _blur(self, texts: list[str | None]) -> list[str | None]:
        """Return texts without the differences that tiers may have."""
        unlisted = {f"<{t}>" for said in self.said.values() if said.is_unlisted for t in said.texts}
        texts = [text for text in texts if text not in unlisted]
        return [
            "half" if text and any(secret in text for secret in self.half_redacted) else text
            for text in texts
        ]

    def _check_log(self, log: list[tuple[TurnKey, Any]], base: Record) -> None:
        keys = [key for key, _ in log]
        at = {key: position for position, key in enumerate(keys)}
        if len(at) != len(keys):
            raise BrokenPromiseError("a turn stands twice in the log")
        for key, turn in log:
            said = self.said[key]
            if said.deleted_at:
                raise BrokenPromiseError(f"deleted turn {key} is in the log")
            texts = [load(message)["text"].strip("<>") for message in turn.messages]
            wanted = said.texts[: len(texts)]
            if [text.removeprefix("redacted ") for text in texts] != wanted:
                raise BrokenPromiseError(f"turn {key} has {texts} instead of {wanted}")
            if len(texts) < said.acked and not said.is_excused:
                raise BrokenPromiseError(f"turn {key} is not whole: {len(texts)} of {said.acked}")
            late = [before for before in said.known if before in at and at[before] > at[key]]
            if late:
                raise BrokenPromiseError(f"{late[0]} stands behind {key}, whose author had seen it")
        for said in self.said.values():
            if said.key in at or not said.acked or said.is_excused or said.deleted_at:
                continue
            # An evicted turn that a restored table lacks is in no holder's record any more.
            may_be_gone = said.is_evicted and (self.is_rolled_back or "ends" in self.options)
            if said.incarnation == base.incarnation and not may_be_gone:
                raise BrokenPromiseError(
                    f"acknowledged turn {said.key} of {said.process} is not in the log"
                )

    def _check_redactions(self, wanted: list[str | None]) -> None:
        for secret in self.secrets["durable"] | self.secrets["hot"]:
            if (
                secret in self.secrets["durable"]
                and secret in self.durable.kept_texts()
                and not self.is_rolled_back
            ):
                raise BrokenPromiseError(f"redacted text {secret} is in the durable tier")
            if any(text and f"<{secret}>" in text for text in wanted) and not (
                self.is_rolled_back or self.is_lossy
            ):
                raise BrokenPromiseError(f"redacted text {secret} is shown in the end")


def _purge_ended(storage: ConversationStorage) -> None:
    """Delete the logs of earlier incarnations."""
    if storage.durable is not None:
        storage.durable.purge(storage.local.base.incarnation)
