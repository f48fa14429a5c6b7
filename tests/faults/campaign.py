"""The campaign: scenarios on real servers with real workers, one seed after the other."""

import heapq
import itertools
import json
import multiprocessing
import os
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.faults import talk
from tests.faults.journal import read
from tests.faults.judge import Kept, Loss, Verdict, is_excused, judged
from tests.faults.scenario import USERS, Durable, Hot, Move, Scenario
from tests.faults.stage import Servers, Stage
from tests.faults.worker import END_WITHIN, Orders, window, work

_HELD_WITHIN = 20.0
_SOCKET = {"reset", "delay", "blackhole", "half_open", "drip", "drop_answers"}
_SOCKET |= {f"durable_{n}" for n in ("timeout", "reset", "delay", "drop_answers", "half_open")}

# Workers are forked from a process that has neither threads nor the sockets of proxies, and has
# imported everything.
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.faults.worker", "boto3", "psycopg_pool", "redis"])


@dataclass
class Result:
    """What came of a seed; ``folder`` has its journals if it failed."""

    scenario: Scenario
    verdict: Verdict
    seconds: float
    kills: int
    folder: Path | None = None

    @property
    def passed(self) -> bool:
        """Whether nothing was wrong."""
        return not self.verdict.wrong

    @property
    def line(self) -> str:
        """One line on the seed."""
        scenario, verdict = self.scenario, self.verdict
        counted = Counter(move.name for move in scenario.moves)
        faults = ", ".join(n if c == 1 else f"{n} x{c}" for n, c in sorted(counted.items()))
        risk = (
            f"; {verdict.lost} of {verdict.at_risk} turns at risk were lost"
            if verdict.at_risk
            else ""
        )
        return (
            f"seed {scenario.seed}: {'passed' if self.passed else 'FAILED'} in {self.seconds:.1f}"
            f" s, {scenario}, {scenario.workers} workers, {self.kills} killed,"
            f" {verdict.acknowledged} turns{risk} ({faults})"
        )


@dataclass
class _Worker:
    process: Any
    pipe: Connection
    orders: Orders


@dataclass
class Run:
    """One seed while it runs."""

    scenario: Scenario
    stage: Stage
    folder: Path
    plants: tuple[str, ...]
    workers: dict[int, _Worker] = field(default_factory=dict)
    lives: Counter[int] = field(default_factory=Counter)
    losses: list[Loss] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    journals: list[Path] = field(default_factory=list)
    kills: int = 0

    def start(self, slot: int, **more: Any) -> None:
        """Start a worker."""
        here, there = _processes.Pipe()
        stage = self.stage
        orders = Orders(
            self.scenario,
            slot,
            self.lives[slot],
            stage.hot_url[slot],
            stage.durable_url[slot],
            self.folder,
            **more,
        )
        self.lives[slot] += 1
        orders.journal.touch()
        self.journals.append(orders.journal)
        process = _processes.Process(target=work, args=(orders, there), daemon=True)
        process.start()
        there.close()
        self.workers[slot] = _Worker(process, here, orders)

    def kill(self, slot: int, durable: dict[int, frozenset[str]] | None = None) -> None:
        """Kill a worker."""
        worker = self.workers.pop(slot)
        found = self.stage.tags() if durable is None else durable
        worker.process.kill()
        worker.process.join()
        worker.pipe.close()
        self.losses.append(Loss(time.monotonic(), worker.orders.name, found))
        self.kills += 1

    def tell(self, slot: int, order: str) -> None:
        """Tell a worker something, if it is there to hear it."""
        try:
            self.workers[slot].pipe.send(order)
        except OSError:
            self.wrong.append(f"worker {self.workers[slot].orders.name} ended before its order")

    # What goes wrong

    def play(self) -> None:
        """Let the workers talk while things go wrong."""
        for slot in range(self.scenario.workers):
            self.start(slot)
        if self.scenario.waits:
            for worker in self.workers.values():
                worker.pipe.poll(_HELD_WITHIN)
        began, order = time.monotonic(), itertools.count()
        agenda: list[tuple[float, int, Any]] = [
            (move.at, next(order), self._happens(move)) for move in self.scenario.moves
        ]
        heapq.heapify(agenda)
        while agenda:
            at, _, happening = heapq.heappop(agenda)
            _sleep_until(began + at)
            lasts = next(happening, None)
            if lasts is not None:
                heapq.heappush(agenda, (at + lasts, next(order), happening))
        _sleep_until(began + self.scenario.seconds)

    def _happens(self, move: Move) -> Iterator[float]:
        """Let a move happen; what is yielded is how long until it ends."""
        stage, slot = self.stage, move.slot
        one = slot if slot is not None else 0
        if move.name == "kill":
            self.kill(one)
            self.start(one)
        elif move.name == "stop":
            pid = self.workers[one].process.pid
            os.kill(pid, signal.SIGSTOP)
            yield move.seconds
            with _gone_is_fine():
                os.kill(pid, signal.SIGCONT)
        elif move.name in _SOCKET:
            stage.socket_fault(move.name, slot)
            yield move.seconds
            stage.heal("durable" if move.name.startswith("durable_") else "hot")
        elif move.name in ("throttle", "server_error"):
            stage.refuse(move.name, slot)
            yield move.seconds
            stage.heal("durable")
        elif move.name == "disk_full":
            for each in self.workers if slot is None else [slot]:
                self.tell(each, "disk full")
            yield move.seconds
            for each in self.workers:
                self.tell(each, "disk free")
        elif move.name == "hot_pause":
            with stage.paused():
                time.sleep(move.seconds)
        elif move.name == "reshard":
            stage.reshard(move.seconds)
        elif move.name == "all_lost":
            self._lose_all()
        else:
            found = stage.tags()
            if move.name == "memory_pressure":
                self.losses.append(Loss(float("inf"), None, found))
                stage.squeeze()
                yield move.seconds
                stage.relieve()
                return
            if move.name == "failover":
                stage.fail_over(move.seconds)
            elif move.name == "hot_empty":
                stage.empty_restart()
            else:
                stage.wipe()
            self.losses.append(Loss(time.monotonic(), None, found))

    def _lose_all(self) -> None:
        """Lose all workers and the hot tier at rest: only turns not due for a flush may go."""
        for worker in self.workers.values():
            os.kill(worker.process.pid, signal.SIGCONT)
        for slot in self.workers:
            self.tell(slot, "hold")
        for worker in self.workers.values():
            if not _heard(worker.pipe, "held"):
                self.wrong.append(f"worker {worker.orders.name} does not come to rest")
        durable = self.stage.tags()
        events = read(self.journals)
        most = int(str(self.scenario.settings["flush_every"])) - 1
        for user in range(USERS):
            begun = self.stage.begun(
                user
            )  # a turn that was under way at the last flush is one of those since then
            turns = [event for event in events if event["what"] == "ack" and event["user"] == user]
            behind = [
                turn["tag"]
                for turn in turns
                if turn["tag"] not in begun and not is_excused(turn, events, self.losses)
            ]
            if len(behind) > most and not self.scenario.deletes:
                self.wrong.append(
                    f"user {user}: {len(behind)} turns are not flushed, at most {most} may be:"
                    f" {behind}"
                )
        slots = list(self.workers)
        for slot in slots:
            self.kill(slot, durable)
        self.stage.wipe()
        self.losses.append(Loss(time.monotonic(), None, durable))
        for slot in slots:
            self.start(slot)

    # The end

    def finish(self) -> None:
        """Mend everything, let everyone save and end, and let one more worker continue."""
        self.stage.heal()
        for slot in range(self.scenario.workers):
            if self.scenario.durable == "sqlite":
                self.tell(slot, "disk free")
            self.tell(slot, "end")
        self._wait()
        self.start(self.scenario.workers, is_last=True, plants=self.plants)
        self._wait()

    def _wait(self) -> None:
        until = time.monotonic() + END_WITHIN + 20
        for worker in self.workers.values():
            worker.process.join(max(0.1, until - time.monotonic()))
            if worker.process.is_alive():
                os.kill(worker.process.pid, signal.SIGUSR1)
                worker.process.join(1)
                self.wrong.append(
                    f"worker {worker.orders.name} hangs; see stacks-{worker.orders.name}.txt"
                )
                worker.process.kill()
                worker.process.join()
            elif worker.process.exitcode:
                self.wrong.append(
                    f"worker {worker.orders.name} ended with {worker.process.exitcode}"
                )
            worker.pipe.close()
        self.workers.clear()

    def kept(self) -> dict[int, Kept]:
        """Return what is stored of each user."""
        found = {}
        for user in range(USERS):
            stores = {
                "the tiers": {},
                **({} if self.stage.durable is None else {"the durable tier": {"hot": None}}),
            }
            windows = {name: self._restored(user, **only) for name, only in stores.items()}
            found[user] = Kept(list(self.stage.manager(user).history("librarian")), windows)
        for owner, values in self.stage.values().items():
            if owner is None:
                values = {key: value for key, value in values.items() if b"canary" in value}
                self.wrong += [
                    f"{key} is nobody's, and holds {value[:80]!r}" for key, value in values.items()
                ]
            else:
                found[owner].values = values
        return found

    def _restored(self, user: int, **stores: Any) -> list[dict[str, Any]]:
        agent = talk.new_agent(
            self.stage.manager(user, **stores),
            conversation_manager=window(self.scenario.windows[user]),
        )
        return talk.plain(agent.messages)

    def stop(self) -> None:
        """Leave no process behind."""
        for worker in self.workers.values():
            worker.process.kill()
            worker.process.join()


def run(
    seed: int,
    running: Servers,
    *,
    hot: Hot | None = None,
    durable: Durable | None = None,
    plants: tuple[str, ...] = (),
) -> Result:
    """Run a seed and return what came of it.

    Args:
        seed: The seed; everything is drawn from it, but processes and servers keep their own time.
        running: The servers.
        hot: The hot tier, instead of the seed's.
        durable: The durable tier, instead of the seed's.
        plants: What the last worker does wrong on purpose; names in ``tests.faults.worker.PLANTS``.
    """
    scenario = Scenario.drawn(seed, hot=hot, durable=durable)
    folder = Path(tempfile.mkdtemp(prefix=f"faults-{seed}-"))
    began = time.monotonic()
    verdict, events, game = Verdict(), [], None
    with ExitStack() as stack:
        try:
            stage = Stage(scenario, running, folder, stack)
            stack.callback(stage.end)
            game = Run(scenario, stage, folder, plants)
            stack.callback(game.stop)
            game.play()
            game.finish()
            events = read(game.journals)
            kept = game.kept()
            (folder / "kept.json").write_text(
                json.dumps(kept, default=_shown, ensure_ascii=False, indent=1)
            )
            verdict = judged(scenario, events, game.losses, kept)
        except Exception:
            verdict.wrong.append(traceback.format_exc())
            running.end()  # whatever state they are in, the next seed begins with new ones
        if game is not None:
            verdict.wrong[:0] = game.wrong
    if verdict.wrong:
        return Result(
            scenario, verdict, time.monotonic() - began, game.kills if game else 0, folder
        )
    shutil.rmtree(folder)
    return Result(scenario, verdict, time.monotonic() - began, game.kills if game else 0)


def _sleep_until(when: float) -> None:
    time.sleep(max(0.0, when - time.monotonic()))


def _shown(value: Any) -> Any:
    return vars(value) if isinstance(value, Kept) else repr(value)[:400]


def _heard(pipe: Connection, what: str) -> bool:
    while pipe.poll(_HELD_WITHIN):
        if pipe.recv() == what:
            return True
    return False


@contextmanager
def _gone_is_fine() -> Iterator[None]:
    try:
        yield
    except ProcessLookupError:
        return
