"""World: processes on one conversation, and everything that may happen to them."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.testing import FakeClock
from tests.faults.simulation import requests
from tests.faults.simulation.core import HOT_SECONDS, SESSION_SECONDS, Core, Machine
from tests.faults.simulation.engine import Engine
from tests.faults.simulation.schedule import MOST_PAUSES, Schedule
from tests.faults.simulation.stores import SteppedStore
from tests.faults.simulation.writer import TaskWriter
from tests.unit.session.support import MemoryTable, SurvivingHotStore

_DAYS = {"a day": 26 * 3600.0, "three days": 80 * 3600.0}
"""How long a process may stay idle: longer than a session, its tombstones and its copies live."""


@dataclass(frozen=True)
class Happens:
    """What may happen in a world, beside processes that come, take turns, die and find stores failing.

    Args:
        hot: There is a hot tier.
        durable: There is a durable tier.
        options: Names of ``OPTIONS``.
        most_processes: So many at a time.
    """

    hot: bool = True
    durable: bool = True
    options: frozenset[str] = frozenset()
    most_processes: int = 3


OPTIONS = {
    "refresh": "processes look what others have saved, and inspect it",
    "delete": "processes, and others that never opened it, delete the conversation",
    "sweep": "conversations expire in the hot tier, and sweepers run and die",
    "redact": "what was asked is redacted",
    "end": "sessions end while no process has them",
    "idle": "sessions end, and tombstones expire, while processes have them",
    "skew": "the processes' clocks differ by up to 45 s",
    "rollback": "the durable tier goes back to what it was",
    "slow": "answers take seconds",
    "split": "an item of the durable tier holds less than a head",
    "requests": "agents are built for one request each, one after the other or several at once",
}
"""What else may happen, by name."""


@dataclass(eq=False)
class Process:
    """A process with one agent: what a session manager does for it, without the agent."""

    name: str
    core: Core
    writer: TaskWriter
    live: list[Any]
    in_turn: bool = False
    is_busy: bool = False
    calls: list[str] = field(default_factory=list)
    turns: int = 0
    said: list[str] = field(default_factory=list)
    redacted: set[str] = field(default_factory=set)

    def capture(self, *, in_turn: bool) -> None:
        if not self.core.is_deleted:
            before = {} if self.core.is_stale else self.core.state()
            self.core.capture(self.live, {**before, self.name: self.turns}, in_turn=in_turn)

    def take_over(self) -> None:
        if self.core.is_deleted:
            self.said.clear()
        messages = self.core.take_over(self.live)
        self.live = self.live if messages is None else messages


class OverError(Exception):
    """A process has nothing more to do."""


class World:
    """Processes, their stores, and what was said, saved and deleted.

    Attributes:
        said: The process and turn of every message there ever was, by its id.
        saved: Messages that a tier has confirmed.
        may_be_lost: Messages that nobody promised to keep.
        gone: Messages that were deleted, and must not come back.
        secrets: Texts that were redacted everywhere, and must not come back.
        whole: Turns that were finished.
        torn: Turns that somebody went on beside as if they had been cut.
        dropped: Messages that a conversation manager dropped.
        orphaned: Turns of a flush whose process died after it had put them into the log, and before it put a head.
    """

    def __init__(self, engine: Engine, happens: Happens) -> None:
        self.engine, self.happens = engine, happens
        self.clock = FakeClock()
        self.schedule = Schedule(self.clock)
        self.store, self.table = SurvivingHotStore(clock=self.clock), MemoryTable()
        self.hot, self.durable = SteppedStore(self.store, self.schedule), SteppedStore(self.table, self.schedule)
        self.processes: list[Process] = []
        self.cores: dict[str, Core] = {}
        self.opening: set[str] = set()
        self.serving: set[str] = set()
        self.started = self.numbers = 0
        self._skews = itertools.cycle([0.0, 45.0, -45.0, 3.0] if "skew" in happens.options else [0.0])
        self.said: dict[str, tuple[str, int]] = {}
        self.saved: set[str] = set()
        self.may_be_lost: set[str] = set()
        self.gone: set[str] = set()
        self.secrets: set[str] = set()
        self.whole: set[tuple[str, int]] = set()
        self.torn: set[tuple[str, int]] = set()
        self.dropped: set[str] = set()
        self.orphaned: set[tuple[str, int]] = set()
        self.buried, self._changes = 0, (-1, -1)
        self.deleting: set[str] = set()
        self.unfinished: list[Callable[[], Future[Any]]] = []
        self.is_troubled = self.is_lossy = False
        self.troubles = 0
        self.hot_copies: list[Any] = []
        self.durable_copies: list[Any] = []
        self.problem: BaseException | None = None

    # How it goes on

    def machine(self, owner: str, *, skew: float = 0.0) -> Machine:
        clock = self.clock if not skew else lambda: self.clock() + skew
        return Machine(
            hot=self.hot if self.happens.hot else None,
            durable=self.durable if self.happens.durable else None,
            writer=TaskWriter(self.schedule, owner, clock),
            clock=clock,
        )

    def spawn(self, owner: str, work: Callable[[], object], *, label: str = "agent") -> None:
        """Let a process do something; what goes wrong there, other than a store, is the world's problem."""

        def body() -> None:
            try:
                work()
            except StoreUnavailableError:
                pass
            except Exception as error:  # the task has no caller
                self.problem = self.problem or error

        self.schedule.spawn(f"{owner} {label}", owner, body)

    def go_on(self, label: str) -> None:
        """A task goes on until its next call of a store."""
        task = self.schedule.labelled(label)
        if task is not None:
            self.schedule.go_on(task)

    def goes_on(self, owner: str, calls: int) -> None:
        """A process goes on for so many calls of stores, or until it has nothing to do; raise ``OverError`` for the latter."""
        for _ in range(calls):
            tasks = [task for task in self.schedule.ready if task.owner == owner and not task.is_timer]
            if tasks:
                self.schedule.go_on(tasks[0])
        if all(task.is_timer for task in self.schedule.tasks if task.owner == owner):
            raise OverError(owner)

    def others_end(self, owner: str) -> None:
        """Everybody else goes on until nobody has anything to do, or all wait for this process."""
        while tasks := [task for task in self.schedule.tasks if task.owner != owner and not task.is_timer and task.is_ready()]:
            self.schedule.go_on(tasks[0])
            self.look()

    def look(self) -> None:
        """Take note of what has happened with a step, and raise what went wrong."""
        self._look_for_graves()
        if self.deleting:
            self.may_be_lost |= self.said.keys()
        if self.problem is not None:
            raise self.problem

    def _look_for_graves(self) -> None:
        """Count the graves, if anything was written since they were counted."""
        changes = (self.hot.changes, self.durable.changes)
        if changes != self._changes:
            self._changes = changes
            self.buried = max(self.buried, self.engine.buried(self.store, self.table))

    def _busily(self, process: Process, work: Callable[[], object]) -> None:
        """Let the agent's own thread of a process do something."""
        process.is_busy = True

        def body() -> None:
            try:
                work()
            finally:
                process.is_busy = False

        self.spawn(process.name, body)

    def wait_for(self, process: Process, future: Future[Any]) -> bool:
        """Wait for a save; tell whether it succeeded."""
        error = future.exception()
        self._note_saved(process)
        if error is not None and not isinstance(error, StoreUnavailableError):
            raise error
        return error is None

    def _note_saved(self, process: Process) -> None:
        if process in self.processes and not process.core.is_deleted:
            self.saved |= set(process.said) - process.core.unsaved

    # Processes

    def start(self) -> None:
        """A process opens the conversation; it must not take one that it cannot read for an empty one."""
        self.started += 1
        name, skew = f"p{self.started}", next(self._skews)
        machine = self.machine(name, skew=skew)
        self.opening.add(name)

        def work() -> None:
            core = self.cores[name] = self.engine.core(machine)
            try:
                live = core.open()
            finally:
                self.opening.discard(name)
            self.takes_over(live or [])
            self.processes.append(Process(name, core, machine.writer, live or []))

        self.spawn(name, work)

    def begin_turn(self, process: Process) -> None:
        """A user asks something."""
        process.in_turn = True

        def work() -> None:
            core = process.core
            if core.is_dirty or core.is_stale:
                process.capture(in_turn=False)
                if core.is_dirty:
                    self.wait_for(process, core.save())
            process.take_over()
            self.takes_over(process.live)
            self.ask(process)

        self._busily(process, work)

    def ask(self, process: Process) -> None:
        """A turn begins with what a user asks."""
        process.core.begin_turn()
        process.turns += 1
        self._say(process, "user", {"text": f"turn {process.turns} of {process.name}: {secret(f'm{self.numbers + 1}')}"})

    def call_or_answer(self, process: Process) -> None:
        """The agent calls a tool, or the tool that it called answers."""
        if process.calls:
            self._say(process, "user", _result(process.calls.pop(), "found"))
        else:
            process.calls.append(f"call{self.numbers}")
            self._say(process, "assistant", {"toolUse": {"toolUseId": process.calls[0], "name": "find", "input": {}}})

    def use_a_tool(self, process: Process, save: bool, form: str = "plain") -> None:
        """The agent calls a tool, or has its answer. Before, its conversation manager may evict questions."""

        def saved() -> None:
            if save:
                process.capture(in_turn=True)
                self.wait_for(process, process.core.save())

        def work() -> None:
            if form == "sparse":
                self._manages(process, without_questions(process.live))
                saved()
            self.call_or_answer(process)
            saved()

        self._busily(process, work)

    def end_turn(self, process: Process, drop: int, form: str, wait: bool) -> None:
        """The agent answers; its conversation manager drops turns, edits the first message, or leaves some out."""

        def work() -> None:
            self.finish_turn(process, drop, form)
            future = process.core.save()
            if wait:
                self.wait_for(process, future)

        self._busily(process, work)

    def finish_turn(self, process: Process, drop: int, form: str) -> None:
        """The agent answers, and its conversation manager makes another history: ``edited``, ``sparse`` or ``answers``."""
        self._answer(process)
        starts = [at for at, one in enumerate(process.live) if _is_question(one)]
        if len(starts) > drop > 0:
            self._manages(process, process.live[starts[drop] :])
        if form == "edited" and len(process.live) > 2:
            process.live[0] = copy.deepcopy(process.live[0])
            process.live[0]["content"].append({"text": "edited"})
            self._manages(process, process.live)
        if form == "sparse":
            self._manages(process, without_answers(process.live))
        if form == "answers":
            self._manages(process, without_questions(process.live))
        process.capture(in_turn=False)

    def _manages(self, process: Process, live: list[Any]) -> None:
        """A conversation manager makes another history."""
        self.dropped |= {one["tracking_id"] for one in process.live} - {one["tracking_id"] for one in live}
        process.live = live

    def takes_over(self, live: list[Any]) -> None:
        """Somebody goes on with a history; turns that it shows as cut may go without their rest."""
        before = ""
        for one in live:
            if one["tracking_id"].startswith("cut-") and before in self.said:
                self.torn.add(self.said[before])
            else:
                before = one["tracking_id"]

    def _answer(self, process: Process) -> None:
        if process.calls:
            self._say(process, "user", _result(process.calls.pop(), "late"))
        self._say(process, "assistant", {"text": "answer"})
        self.whole.add((process.name, process.turns))
        process.in_turn = False

    def _say(self, process: Process, role: str, block: dict[str, Any]) -> None:
        self.numbers += 1
        self.clock.advance(0.001)
        id_ = f"m{self.numbers}"
        message = {"role": role, "content": [block], "tracking_id": id_}
        process.live.append(message)
        self.said[id_] = (process.name, process.turns)
        if process.core.is_deleted:
            return
        process.said.append(id_)
        if process.core.epoch <= self.buried:  # a tombstone that the process does not know of takes it along
            self.may_be_lost.add(id_)
        process.core.append(message, at=self.clock())

    # Requests

    def request(self, tools: int, drop: int, form: str, ends: str) -> None:
        """A request is served by an agent that is built for it."""
        requests.begin(self, tools, drop, form, ends)

    def many_requests(self, count: int, drop: int, ends: str) -> None:
        """Many requests are served, one after the other, by workers that then exit, while everybody else stands."""
        for number in range(count):
            name = requests.begin(self, 0, drop if number % 5 == 0 else 0, "plain", ends, looks=True)
            requests.go_by(self, name)
            self._dies(name)

    def enter(self, name: str, core: Core, writer: TaskWriter, live: list[Any]) -> Process:
        """Let a process serve a request."""
        process = Process(name, core, writer, live, is_busy=True, in_turn=True)
        self.processes.append(process)
        return process

    def leave(self, process: Process) -> None:
        """Let a process be done with its request; what it does in the background goes on."""
        self.processes.remove(process)
        self._let_go()

    @property
    def is_calm(self) -> bool:
        """Whether both tiers answer everything."""
        return not any(store.is_down or store.failures or store.partial for store in (self.hot, self.durable))

    @property
    def dropped_turns(self) -> set[tuple[str, int]]:
        """Turns of which a conversation manager dropped something, or that somebody went on beside."""
        return {self.said[id_] for id_ in self.dropped if id_ in self.said} | self.torn | self.orphaned

    def ids_of(self, live: list[Any]) -> set[str]:
        """Return the ids of the messages of a history."""
        return {message["tracking_id"] for message in live}

    def flush(self, process: Process) -> None:
        """The durable tier is to have everything."""

        def work() -> None:
            if not process.in_turn:
                process.capture(in_turn=False)
            if self.wait_for(process, process.core.flush()) and not self.is_troubled:
                self.secrets |= process.redacted

        self._busily(process, work)

    def set_metadata(self, process: Process) -> None:
        """The application keeps something beside the conversation."""

        def work() -> None:
            process.core.set_metadata(process.name, process.turns)
            self.wait_for(process, process.core.save())

        self._busily(process, work)

    def refresh(self, process: Process) -> None:
        """A process reads what others have saved."""
        self._busily(process, lambda: process.core.refresh().result())

    def redact(self, process: Process) -> None:
        """What the user asked is redacted."""

        def work() -> None:
            asked = next((id_ for id_ in process.said if self.said[id_] == (process.name, process.turns)), None)
            for at, message in enumerate(process.live):
                if process.in_turn and message["tracking_id"] == asked:
                    redacted = process.live[at] = {**message, "content": [{"text": "redacted"}]}
                    if process.core.revise(redacted):
                        process.redacted.add(secret(asked))
                        if self.wait_for(process, process.core.flush()) and not self.is_troubled:
                            self.secrets |= process.redacted

        self._busily(process, work)

    def inspect(self) -> None:
        """Somebody looks at the conversation, and reads its log."""
        self.started += 1

        def work() -> None:
            core = self.engine.core(self.machine(f"i{self.started}"))
            core.open(inspect=True)
            list(core.history())

        self.spawn(f"i{self.started}", work)

    def close(self, process: Process) -> None:
        """A process ends in good order."""

        def work() -> None:
            process.capture(in_turn=False)
            self.wait_for(process, process.core.close())
            self.kill(process)

        self._busily(process, work)

    def kill(self, process: Process) -> None:
        """A process dies, wherever it is."""
        self._dies(process.name)
        self.deleting.discard(process.name)
        if process in self.processes:
            self.processes.remove(process)
        self._let_go()

    def _dies(self, name: str) -> None:
        """A flush that dies between log and head leaves turns that no head includes, also if the hot tier loses them."""
        if name in self.cores:
            self.orphaned |= {self.said[id_] for id_ in self.cores[name].being_flushed}
        self.schedule.kill(name)

    # Deletion

    def delete(self, process: Process) -> None:
        """A process deletes the conversation."""
        self._busily(process, lambda: self._delete(process.name, process.core, process))

    def delete_unopened(self) -> None:
        """The conversation is deleted by one that never opened it."""
        self.started += 1
        name = f"d{self.started}"
        core = self.engine.core(self.machine(name))
        self.spawn(name, lambda: self._delete(name, core, None))

    def delete_listed(self) -> None:
        """The session is deleted with all that is listed of it; nobody may have listed this conversation yet."""
        self.started += 1
        name = f"d{self.started}"
        core = self.engine.core(self.machine(name))
        self.spawn(name, lambda: self._delete(name, core, None, core.delete_listed))

    def forget_user(self) -> None:
        """The user is forgotten, by one that never opened the conversation; nobody may have listed it yet."""
        self.started += 1
        name = f"f{self.started}"
        core = self.engine.core(self.machine(name))
        self.spawn(name, lambda: self._delete(name, core, None, core.forget_user))

    def _delete(self, name: str, core: Core, process: Process | None, work: Callable[[], Future[Any]] | None = None) -> None:
        """What was said before is gone if no tier failed; what is said meanwhile, and to what was deleted, may be."""
        before = set(self.said)
        self.deleting.add(name)
        error = (work or core.delete)().exception()
        self.deleting.discard(name)
        if error is not None:
            again = self.engine.core(self.machine(f"{name} again"))
            self.unfinished += [again.delete] if work is None else [again.forget_user, again.delete_listed]
        self.may_be_lost |= self.said.keys()
        self._look_for_graves()
        if error is not None:
            raise error
        self.gone |= before
        if process is not None:
            process.said.clear()

    # Stores and time

    def goes_down_or_comes_back(self, tier: str) -> None:
        """A tier does not answer until this happens again."""
        self._be_troubled()
        store = self._stepped(tier)
        store.is_down = not store.is_down

    def call_fails(self, tier: str, how: str) -> None:
        """The next call fails, or only its answer does, or a batch is written by half."""
        self._be_troubled()
        if how == "partial":
            self._stepped(tier).partial = True
        else:
            self._stepped(tier).failures.append(how)

    def is_slow_or_not(self, tier: str, seconds: float) -> None:
        """A tier's answers take some time from now on."""
        self._stepped(tier).latency = seconds

    def _stepped(self, tier: str) -> SteppedStore:
        return self.hot if tier == "hot" else self.durable

    def _be_troubled(self) -> None:
        """A tier that failed may have what was redacted until that process saves again, if it ever does."""
        self.is_troubled = True
        self.troubles += 1
        self.secrets.clear()

    def copy_the_hot_tier(self) -> None:
        """A replica of the hot tier gets to know what it has."""
        self.hot_copies.append(self.store.copy())

    def the_hot_tier_goes_back(self, copy_number: int) -> None:
        """It restarts empty (-1), or a replica takes over that had not heard of the rest."""
        if copy_number >= len(self.hot_copies):
            return
        self._be_troubled()
        self.store.go_back({} if copy_number < 0 else self.hot_copies[copy_number])
        self.is_lossy = True
        self._let_go()

    def copy_the_durable_tier(self) -> None:
        """Somebody backs up the table."""
        self.durable_copies.append({key: dict(row) for key, row in self.table.rows.items()})

    def the_durable_tier_goes_back(self, copy_number: int) -> None:
        """Somebody restores a backup, or an empty table (-1)."""
        if copy_number >= len(self.durable_copies):
            return
        self._be_troubled()
        self.table.rows = {} if copy_number < 0 else {key: dict(row) for key, row in self.durable_copies[copy_number].items()}
        self.may_be_lost |= self.said.keys()
        self.gone.clear()  # as far as it is in the backup, a restore brings it back

    def _let_go(self) -> None:
        """What no tier has, and nobody who said it, is lost with the hot tier."""
        if self.is_lossy:
            held = {id_ for process in self.processes for id_ in process.core.held if self.said[id_][0] == process.name}
            self.may_be_lost |= self.said.keys() - self.engine.ids_in_hot(self.store) - self.ids_in_durable() - held

    def ids_in_durable(self) -> set[str]:
        schedule = Schedule(self.clock)
        machine = Machine(hot=None, durable=self.table, writer=TaskWriter(schedule, "look", self.clock), clock=self.clock)
        with self.engine.running(schedule):
            core = self.engine.core(machine)
            core.open(inspect=True)
            return {id_ for id_, _ in core.history()}

    def time_passes(self, seconds: float) -> None:
        """Nothing happens for some seconds."""
        self.clock.advance(seconds)

    def nobody_uses_it_for_a_while(self) -> None:
        """The conversation expires in the hot tier, and its session ends if there is no other; if it had before, it goes."""
        if not self.happens.durable:
            self.may_be_lost |= self.said.keys()
        self.troubles += 1
        had = self.engine.ids_in_hot(self.store)
        self.clock.advance(HOT_SECONDS + 1200)
        if had and not self.engine.ids_in_hot(self.store):
            self.is_lossy = True
        self._let_go()

    def the_session_ends(self, how_long: str) -> None:
        """Nobody uses it for so long that its log may be deleted, and tombstones expire; no request is under way for days."""
        if not self.schedule.only_timers:
            return
        self.clock.advance(_DAYS[how_long])
        self.may_be_lost |= self.said.keys()

    def the_table_deletes_what_has_expired(self) -> None:
        """A table deletes items some time after they expired."""
        now = self.clock()
        for key, row in list(self.table.rows.items()):
            if row.get("expires_at") and row["expires_at"] < now:
                del self.table.rows[key]
                self.may_be_lost |= self.said.keys()

    def sweep(self) -> None:
        """A sweeper flushes what has expired and takes it from the hot tier."""
        self.spawn("sweeper", lambda: self.engine.sweep(self.machine("sweeper")))

    def the_sweeper_dies(self) -> None:
        """A sweeper dies, wherever it is."""
        self.schedule.kill("sweeper")

    # The end

    def settle(self) -> None:
        """Let everyone go on until nobody has anything to do."""
        steps = 0
        while self.schedule.tasks:
            self.schedule.go_on(self.schedule.ready[0])
            self.look()
            steps += 1
            assert steps < MOST_PAUSES, f"it goes round in circles: {[task.label for task in self.schedule.tasks]}"
        self.look()

    def finish(self) -> None:
        """Mend the tiers, and let everyone finish what it does, flush, and look what the others have said."""
        self.hot.be_well()
        self.durable.be_well()
        self.settle()
        for again in self.unfinished:  # whoever was told that a deletion failed asks for it again
            again()
            self.settle()
            self.may_be_lost |= self.said.keys()
        for process in self.processes:
            if process.in_turn:
                self._answer(process)
        for _ in range(3):
            for process in self.processes:
                self.clock.advance(60)
                process.turns += 1  # whoever has nothing to save looks into the hot tier alone, which may be behind
                self._flushed(process)
                process.take_over()
                self._flushed(process)
        for process in self.processes:
            assert self._flushed(process) is None, f"{process.name} could not flush though every tier is well"
            assert not process.core.is_dirty, f"{process.name} could not save though every tier is well"
            process.core.refresh().result()
            self.settle()
            process.take_over()
        self.secrets |= {text for process in self.processes for text in process.redacted}

    def _flushed(self, process: Process) -> BaseException | None:
        process.capture(in_turn=False)
        flush = process.core.flush()
        self.wait_for(process, flush)
        self.settle()
        return flush.exception()


def secret(id_: str) -> str:
    """Return what a question says that nothing else does."""
    return f"secret of {id_}."


def _result(id_: str, text: str) -> dict[str, Any]:
    return {"toolResult": {"toolUseId": id_, "status": "success", "content": [{"text": text}]}}


def _is_question(message: Any) -> bool:
    return message["role"] == "user" and "text" in message["content"][0]


def without_questions(messages: Sequence[Any]) -> list[Any]:
    """Return messages without the questions but for the first and the last one."""
    questions = [at for at, one in enumerate(messages) if _is_question(one)]
    evicted = set(questions[1:-1])
    return [one for at, one in enumerate(messages) if at not in evicted]


def without_answers(messages: Sequence[Any]) -> list[Any]:
    """Return messages with nothing but the question of every ended turn but the last."""
    starts = [at for at, one in enumerate(messages) if _is_question(one)]
    result = list(messages[: starts[0]]) if starts else list(messages)
    for start, end in itertools.pairwise([*starts, len(messages)]):
        turn = messages[start:end]
        is_last, is_ended = end == len(messages), turn[-1]["role"] == "assistant" and "text" in turn[-1]["content"][0]
        result += turn if is_last or not is_ended else turn[:1]
    return result


assert HOT_SECONDS < SESSION_SECONDS < min(_DAYS.values())
