"""A world of processes that hold one conversation while they die and the tiers fail, and what must hold of it in the end."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from unittest import mock

from strands_manga_memory.conversation.stubs import stub_of
from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.session import contention
from strands_manga_memory.session.conversation import Conversation
from strands_manga_memory.session.records import Place
from strands_manga_memory.session.sweeper import SessionSweeper
from strands_manga_memory.session.tiers import Tiers
from strands_manga_memory.stores.codec import Codec, dump, load
from strands_manga_memory.stores.hot import DELETED, message_field
from strands_manga_memory.testing import FakeClock, FaultyHotStore, FaultyTable
from tests.unit.session.support import InlineWriter, MemoryTable, SurvivingHotStore, same

PLACE = Place.of("s", "A", "default")
MOST_PROCESSES = 3
MOST_TRIES = 100
"""Tries again within one step. More of them, while nobody else does anything, would never end."""
_A_WHILE = 3_000.0
"""Seconds after which a conversation has expired in the hot tier, but is still there."""
_LONG = 100_000.0
"""Seconds after which a session has ended, and its log may be deleted."""

_Option = TypeVar("_Option")
Choose = Callable[[Sequence[Any]], Any]
"""Chooses one of several."""


@dataclasses.dataclass(frozen=True)
class Step:
    """One thing that happens: a method of ``World``, the process it happens to (counted from the first), and how."""

    name: str
    process: int | None = None
    how: tuple[Any, ...] = ()

    def __str__(self) -> str:
        """Return it as the call that repeats it."""
        return repr((self.name, self.process, self.how))


@contextmanager
def without_pauses() -> Iterator[None]:
    """Wait for nothing between two tries, and fail if they do not end."""
    pauses = 0

    def pause(_: float) -> None:
        nonlocal pauses
        pauses += 1
        if pauses > MOST_TRIES:
            raise contention.ContendedError("it goes round in circles")

    with mock.patch.object(contention, "time", mock.Mock(monotonic=time.monotonic, sleep=pause)):
        yield
    assert pauses <= MOST_TRIES, "it goes round in circles"


class Process:
    """A process with one agent: what the session manager does for it, step by step, without the agent."""

    def __init__(self, number: int, conversation: Conversation, live: list[Any]) -> None:
        self.number = number
        self.name = f"p{number}"
        self.conversation = conversation
        self.live = live
        self.in_turn = False
        self.calls: list[str] = []
        self.turns = 0
        self.said_since: list[str] = []
        self.redacted: set[str] = set()

    def __repr__(self) -> str:
        """Return its name."""
        return self.name

    def capture(self, *, in_turn: bool) -> None:
        """Give the model the agent's history and state."""
        with self.conversation.lock:
            if not self.conversation.model.deleted:
                state = {"state.agent": dump({self.name: self.turns})}
                if not self.conversation.model.stale:
                    before = load(self.conversation.model.fields.get("state.agent", b"{}"))
                    state = {"state.agent": dump({**before, self.name: self.turns})}
                self.conversation.model.capture(self.live, state, in_turn=in_turn)

    def take_over(self) -> None:
        """Give the agent what others have saved."""
        if self.conversation.model.deleted:
            self.said_since.clear()
        messages = self.conversation.take_over(self.live)
        self.live = self.live if messages is None else messages


class World:
    """Up to three processes on one conversation.

    Args:
        hot: Whether there is a hot tier.
        durable: Whether there is a durable tier.
        refreshes: Whether processes look what others saved, between their turns and within them.
        deletes: Whether processes delete the conversation.
        sweeps: Whether the conversation leaves the hot tier when nobody has used it for a while.
        redacts: Whether processes redact what was asked.
        ends: Whether the session ends when no process has it any more.
    """

    def __init__(
        self,
        *,
        hot: bool = True,
        durable: bool = True,
        refreshes: bool = False,
        deletes: bool = False,
        sweeps: bool = False,
        redacts: bool = False,
        ends: bool = False,
    ) -> None:
        self.has_hot, self.has_durable, self.refreshes, self.deletes, self.sweeps = hot, durable, refreshes, deletes, sweeps
        self.redacts, self.ends = redacts, ends
        self.clock = FakeClock()
        self.store = SurvivingHotStore(clock=self.clock)
        self.table = MemoryTable()
        self.hot, self.durable = FaultyHotStore(self.store), FaultyTable(self.table)
        self.processes: list[Process] = []
        self.started = 0
        self.number = 0
        self.said: dict[str, tuple[str, int]] = {}
        self.saved: set[str] = set()
        self.may_be_lost: set[str] = set()
        self.gone: set[str] = set()
        self.secrets: set[str] = set()
        self.troubled = False
        self.buried = 0
        self.copies: list[dict[str, Any]] = []
        self.lossy = False

    # Steps

    def drawn(self, choose: Choose) -> Step:
        """Return one of the steps that are possible now; likely ones are offered more than once."""
        someone = [process.number for process in self.processes]
        busy = [process.number for process in self.processes if process.in_turn]
        idle = [number for number in someone if number not in busy]
        both = [True, False]
        offered: list[tuple[int, bool, str, Sequence[int] | None, tuple[Sequence[Any], ...]]] = [
            (2, len(self.processes) < MOST_PROCESSES, "start", None, ()),
            (4, True, "begin_turn", idle, ()),
            (3, True, "use_a_tool", busy, (both,)),
            (4, True, "end_turn", busy, (range(5), [True, False, False], [True, False, False])),
            (2, True, "work_in_the_background", someone, ()),
            (1, True, "time_passes", someone, ([0.05, 0.05, 0.05, 30.0],)),
            (2, True, "flush", someone, ()),
            (1, True, "kill", someone, (both,)),
            (1, True, "a_tier_goes_down_or_comes_back", None, (["hot", "durable"],)),
            (1, True, "a_call_fails", None, (["hot", "durable"], both)),
            (1, self.has_hot, "copy_the_hot_tier", None, ()),
            (1, self.has_hot and self.has_durable, "the_hot_tier_loses_something", None, (range(-1, len(self.copies)),)),
            (1, self.refreshes, "refresh", someone, ()),
            (1, self.sweeps and self.has_durable, "nobody_uses_it_for_a_while", None, ()),
            (9, self.ends and self.has_durable and not self.processes, "the_session_ends", None, ()),
            (2, self.sweeps and self.has_durable, "sweep", None, ()),
            (1, self.redacts, "redact", busy, ()),
            (1, self.deletes and choose([True, False, False]), "delete", someone, ()),
        ]
        possible = [
            (name, who, how)
            for weight, may, name, who, how in offered
            for _ in range(weight)
            if may and (who is None or len(who) > 0)
        ]
        name, who, how = choose(possible)
        return Step(name, None if who is None else choose(who), tuple(choose(options) for options in how))

    @without_pauses()
    def take(self, step: Step) -> None:
        """Let a step happen, if it can."""
        if step.process is None:
            getattr(self, step.name)(*step.how)
        else:
            for process in self.processes:
                if process.number == step.process:
                    getattr(self, step.name)(process, *step.how)
                    return

    def tiers(self, writer: InlineWriter) -> Tiers:
        """Return the tiers as a process sees them."""
        return Tiers(
            hot=self.hot if self.has_hot else None,
            durable=self.durable if self.has_durable else None,
            writer=writer,
            codec=Codec(compress_from=1 << 30),
            clock=self.clock,
            flush_every=2,
            hot_health=writer.hot_health,
            durable_health=writer.durable_health,
        )

    def opened(self) -> tuple[Conversation, list[Any] | None]:
        """Return the conversation as a new process finds it."""
        conversation = Conversation(PLACE, self.tiers(InlineWriter(self.clock)), base={"session": "s", "member": "default"})
        return conversation, conversation.open()

    def start(self) -> None:
        """A process opens the conversation; it must not take one that it cannot read for an empty one."""
        if len(self.processes) == MOST_PROCESSES:
            return
        self.started += 1
        try:
            conversation, live = self.opened()
        except StoreUnavailableError:
            return
        self.processes.append(Process(self.started, conversation, live or []))

    def _request(self, process: Process, *, flush: bool = False) -> None:
        conversation = process.conversation
        future = conversation.request_flush() if flush else conversation.request()
        if future.exception() is None:
            self._note_saved(process)
            if flush and not self.troubled:
                self.secrets |= process.redacted
        elif not isinstance(future.exception(), StoreUnavailableError):
            raise future.exception()

    def _note_saved(self, process: Process) -> None:
        """What a tier has confirmed may not get lost any more."""
        conversation = process.conversation
        unsaved = {slot.tracking_id for slot in conversation.model.unsaved_slots()}
        if not conversation.model.deleted:
            self.saved |= {id_ for id_ in process.said_since if id_ not in unsaved}

    def _say(self, process: Process, role: str, block: dict[str, Any]) -> None:
        self.number += 1
        self.clock.advance(0.001)
        id_ = f"m{self.number}"
        message: Any = {"role": role, "content": [block], "tracking_id": id_}
        process.live.append(message)
        self.said[id_] = (process.name, process.turns)
        with process.conversation.lock:
            if process.conversation.model.deleted:
                return
            process.said_since.append(id_)
            if process.conversation.model.epoch <= self.buried:  # a tombstone that the process does not know of takes it along
                self.may_be_lost.add(id_)
            process.conversation.model.append(message, at=self.clock())

    def begin_turn(self, process: Process) -> None:
        """A user asks something."""
        if process.in_turn:
            return
        conversation = process.conversation
        if conversation.is_dirty or conversation.model.stale:
            process.capture(in_turn=False)
            if conversation.is_dirty:
                self._request(process)
        process.take_over()
        process.in_turn = True
        conversation.model.begin_turn()
        process.turns += 1
        self._say(process, "user", {"text": f"turn {process.turns} of {process.name}: {_secret(f'm{self.number + 1}')}"})

    def redact(self, process: Process) -> None:
        """What the user asked is redacted."""
        asked = [id_ for id_ in process.said_since if self.said[id_] == (process.name, process.turns)][:1]
        for at, message in enumerate(process.live):
            if process.in_turn and message["tracking_id"] in asked:
                redacted = process.live[at] = {**message, "content": [{"text": "redacted"}]}
                with process.conversation.lock:
                    revised = process.conversation.model.revise(redacted, at=self.clock(), every=True)
                if revised is not None:
                    process.redacted.add(_secret(asked[0]))
                    self._request(process, flush=True)

    def use_a_tool(self, process: Process, save: bool) -> None:
        """The agent calls a tool, or has its answer."""
        if not process.in_turn:
            return
        if process.calls:
            id_ = process.calls.pop()
            self._say(process, "user", {"toolResult": {"toolUseId": id_, "status": "success", "content": [{"text": "found"}]}})
        else:
            process.calls.append(f"call{self.number}")
            self._say(process, "assistant", {"toolUse": {"toolUseId": process.calls[0], "name": "find", "input": {}}})
        if save:
            process.capture(in_turn=True)
            self._request(process)

    def _answer(self, process: Process) -> None:
        if process.calls:
            id_ = process.calls.pop()
            self._say(process, "user", {"toolResult": {"toolUseId": id_, "status": "success", "content": [{"text": "late"}]}})
        self._say(process, "assistant", {"text": "answer"})
        process.in_turn = False

    def end_turn(self, process: Process, drop: int, edit: bool, mark: bool = False) -> None:
        """The agent answers; its conversation manager drops turns, edits the first message, or leaves marks for answers."""
        if not process.in_turn:
            return
        self._answer(process)
        starts = [at for at, one in enumerate(process.live) if one["role"] == "user" and "text" in one["content"][0]]
        if len(starts) > drop > 0:
            del process.live[: starts[drop]]
        if edit and len(process.live) > 2:
            process.live[0] = copy.deepcopy(process.live[0])
            process.live[0]["content"].append({"text": "edited"})
        if mark:
            process.live = marked(process.live)
        process.capture(in_turn=False)
        self._request(process)

    def work_in_the_background(self, process: Process) -> None:
        """The writer does what waits."""
        process.conversation.tiers.writer.work_off()
        self._note_saved(process)

    def time_passes(self, process: Process, seconds: float) -> None:
        """The writer does what waited for its time."""
        self.clock.advance(seconds)
        process.conversation.tiers.writer.time_passes()
        self._note_saved(process)

    def flush(self, process: Process) -> None:
        """The durable tier is to have everything."""
        if not process.in_turn:
            process.capture(in_turn=False)
        self._request(process, flush=True)

    def kill(self, process: Process, closing: bool) -> None:
        """A process ends, in good order if ``closing``."""
        if closing and not process.in_turn:
            process.capture(in_turn=False)
            process.conversation.model.closing = True
            self._request(process, flush=True)
        self.processes.remove(process)
        if self.lossy:
            self._what_nobody_has_may_be_lost()

    def refresh(self, process: Process) -> None:
        """A process reads what others have saved."""
        future = process.conversation.request_refresh()
        if future.exception() is not None and not isinstance(future.exception(), StoreUnavailableError):
            raise future.exception()

    def nobody_uses_it_for_a_while(self) -> None:
        """The conversation expires in the hot tier; if it had before, and nobody swept, it goes."""
        self.clock.advance(_A_WHILE)
        if self._held() is None:
            self.lossy = True
            self._what_nobody_has_may_be_lost()

    def the_session_ends(self) -> None:
        """Nobody uses it for so long that its log may be deleted."""
        self.clock.advance(_LONG)
        self.may_be_lost |= self.said.keys()

    def sweep(self) -> None:
        """A sweeper flushes what has expired and takes it from the hot tier."""
        sweeper = SessionSweeper(
            hot=self.hot if self.has_hot else None, durable=self.durable if self.has_durable else None, clock=self.clock
        )
        sweeper._tiers = self.tiers(InlineWriter(self.clock))
        with suppress(StoreUnavailableError):
            sweeper.run_once()

    def delete(self, process: Process) -> None:
        """A process deletes the conversation: what was said until then may be gone, and must be if no tier failed.

        If one did, the tombstone is in the other one, and what is still said to the deleted conversation may go with it.
        """
        conversation = process.conversation
        error = conversation.tiers.writer.submit(PLACE, conversation.bury).exception()
        if error is not None and not isinstance(error, StoreUnavailableError):
            raise error
        self.may_be_lost |= self.said.keys()
        self._look_for_a_tombstone()
        if error is None:
            self.gone |= self.said.keys()
            process.said_since.clear()

    def _look_for_a_tombstone(self) -> None:
        held, item = self._held(), self.table.get(*PLACE.head_key)
        if held is not None and held.state == DELETED:
            self.buried = max(self.buried, held.epoch)
        if item is not None and item["state"] == DELETED:
            self.buried = max(self.buried, item["epoch"])

    def a_tier_goes_down_or_comes_back(self, tier: str) -> None:
        """A tier does not answer until this happens again."""
        self._be_troubled()
        store = getattr(self, tier)
        store.down = not store.down

    def a_call_fails(self, tier: str, after: bool) -> None:
        """The next call fails, perhaps after it was done."""
        self._be_troubled()
        getattr(self, tier).fail_next(after=after)

    def _be_troubled(self) -> None:
        """A tier that was down, or goes back, may have what was redacted until that process saves again, if it ever does."""
        self.troubled = True
        self.secrets.clear()

    def copy_the_hot_tier(self) -> None:
        """A replica gets to know what the hot tier has."""
        self.copies.append(self.store.copy())

    def the_hot_tier_loses_something(self, replica: int) -> None:
        """It restarts empty (-1), or a replica takes over that had not heard of the rest."""
        if replica >= len(self.copies):
            return
        self._be_troubled()
        self.store.go_back({} if replica < 0 else self.copies[replica])
        self.lossy = True
        self._what_nobody_has_may_be_lost()

    def _what_nobody_has_may_be_lost(self) -> None:
        self.may_be_lost |= self.said.keys() - self._in_durable() - self._in_hot() - self._known_to_the_living()

    def _held(self) -> Any:
        """Return what the hot tier has, unless it has expired for so long that it is gone."""
        return self.store._alive(self.store._conversations, PLACE.conversation, self.clock())

    def _in_hot(self) -> set[str]:
        held = self._held()
        fields = held.fields if held else {}
        records = [
            load(Codec().unseal(data, f"{PLACE.conversation}#{name}"))
            for name, data in fields.items()
            if name[1:].isdigit() and name == message_field(int(name[1:]))  # a body is no message of the log
        ]
        return {record["message"]["tracking_id"] for record in records}

    def _in_durable(self) -> set[str]:
        tiers = dataclasses.replace(self.tiers(InlineWriter(self.clock)), hot=None, durable=self.table)
        conversation = Conversation(PLACE, tiers, base={"session": "s", "member": "default"})
        conversation.open(inspect=True)
        return {slot.tracking_id for slot in conversation.history()}

    def _known_to_the_living(self) -> set[str]:
        """Return what those who said it have yet; that others happen to have read it is nothing to rely on."""
        return {
            slot.tracking_id
            for process in self.processes
            for slot in process.conversation.model.recent
            if self.said[slot.tracking_id][0] == process.name
        }

    # The end

    @without_pauses()
    def end(self) -> None:
        """Mend the tiers, let everyone finish, and look at what is stored."""
        self.hot.down = self.durable.down = False
        self.hot._before, self.hot._after, self.durable._before, self.durable._after = [], [], [], []
        for process in self.processes:
            if process.in_turn:
                self._answer(process)
        for _ in range(3):
            for process in self.processes:
                self.clock.advance(60)
                process.conversation.tiers.writer.work_off()
                process.turns += 1  # whoever has nothing to save looks into the hot tier alone, which may be behind
                process.capture(in_turn=False)
                self._request(process, flush=True)
                process.conversation.tiers.writer.time_passes()
                process.take_over()
                process.capture(in_turn=False)
                self._request(process, flush=True)
        for process in self.processes:
            conversation = process.conversation
            conversation.tiers.writer.submit(PLACE, conversation.refresh).result()
            process.take_over()
        self.secrets |= {secret for process in self.processes for secret in process.redacted}
        self.check()

    def check(self) -> None:
        """Compare what is stored with what was said."""
        fresh, live = self.opened()
        log = [(slot.tracking_id, slot.turn) for slot in fresh.history()]
        ids = [id_ for id_, _ in log]
        doubled = [id_ for id_, count in Counter(ids).items() if count > 1]
        assert not doubled, f"doubled: {doubled} in {ids}"
        lost = [id_ for id_ in self.saved if id_ not in ids and id_ not in self.may_be_lost and id_ not in self.gone]
        assert not lost, f"lost: {lost} of {sorted(self.saved)} in {ids}"
        assert not self.gone & set(ids), f"what was deleted is back: {self.gone & set(ids)}"
        turns: dict[tuple[str, int], list[int]] = {}
        for at, (id_, _) in enumerate(log):
            turns.setdefault(self.said[id_], []).append(at)
        for turn, places in turns.items():
            assert places == list(range(places[0], places[0] + len(places))), f"{turn} is torn: {log}"
            assert len({log[at][1] for at in places}) == 1, f"{turn} has several numbers: {log}"
            said = [id_ for id_ in self.said if self.said[id_] == turn]
            assert [ids[at] for at in places] == [id_ for id_ in said if id_ in ids], f"{turn} is out of order: {log}"
        numbers = [log[places[0]][1] for places in turns.values()]
        assert numbers == sorted(set(numbers)), f"turn numbers: {numbers}"
        for process in self.processes:
            assert same(process.live, live or []), f"{process.name} has {process.live}, stored is {live}"
        roles = [message["role"] for message in live or []]
        assert all(one != other for one, other in itertools.pairwise(roles)), f"roles: {roles} of {live}"
        stored = str([self.store._conversations, self.table.rows])
        back = [secret for secret in self.secrets if secret in stored]
        assert not back, f"what was redacted is back: {back}"
        assert fresh.model.head.messages >= len(ids), f"head counts {fresh.model.head.messages} of {ids}"


def _secret(id_: str) -> str:
    return f"secret of {id_}."


def marked(messages: Sequence[Any]) -> list[Any]:
    """Return messages with a mark for the answer of every turn but the last, and nothing between it and the question."""
    starts = [at for at, one in enumerate(messages) if one["role"] == "user" and "text" in one["content"][0]]
    result = list(messages[: starts[0]]) if starts else list(messages)
    for start, end in itertools.pairwise([*starts, len(messages)]):
        turn = messages[start:end]
        is_last, is_ended = end == len(messages), turn[-1]["role"] == "assistant" and "text" in turn[-1]["content"][0]
        result += turn if is_last or not is_ended else [turn[0], stub_of(turn[-1])]
    return result
