"""Several processes hold one conversation while they die and the tiers fail: no message is lost, doubled, mixed up or back."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.session.conversation import Conversation
from strands_manga_memory.session.records import Place
from strands_manga_memory.session.tiers import Tiers
from strands_manga_memory.stores.codec import Codec, dump, load
from strands_manga_memory.testing import FakeClock, FaultyHotStore, FaultyTable
from tests.unit.session.support import InlineWriter, MemoryTable, SurvivingHotStore, same

PLACE = Place.of("s", "A", "default")


class Process:
    """A process with one agent: what the session manager does for it, step by step, without the agent."""

    def __init__(self, name: str, conversation: Conversation, live: list[Any]) -> None:
        self.name = name
        self.conversation = conversation
        self.live = live
        self.in_turn = False
        self.calls: list[str] = []
        self.turns = 0
        self.said_since: list[str] = []

    def __repr__(self) -> str:
        return self.name

    def capture(self, *, in_turn: bool) -> None:
        with self.conversation.lock:
            if not self.conversation.model.deleted:
                state = {"state.agent": dump({self.name: self.turns})}
                if not self.conversation.model.stale:
                    before = load(self.conversation.model.fields.get("state.agent", b"{}"))
                    state = {"state.agent": dump({**before, self.name: self.turns})}
                self.conversation.model.capture(self.live, state, in_turn=in_turn)

    def take_over(self) -> None:
        if self.conversation.model.deleted:
            self.said_since.clear()
        messages = self.conversation.take_over(self.live)
        self.live = self.live if messages is None else messages


class SessionMachine(RuleBasedStateMachine):
    """Up to three processes on one conversation."""

    has_hot = has_durable = True

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.store = SurvivingHotStore(clock=self.clock)
        self.table = MemoryTable()
        self.hot, self.durable = FaultyHotStore(self.store), FaultyTable(self.table)
        self.processes: list[Process] = []
        self.number = 0
        self.said: dict[str, tuple[str, int]] = {}
        self.saved: set[str] = set()
        self.may_be_lost: set[str] = set()
        self.gone: set[str] = set()
        self.held: dict[str, Any] = {}
        self.copies: list[dict[str, Any]] = []
        self.lossy = False

    def tiers(self, writer: InlineWriter) -> Tiers:
        return Tiers(
            hot=self.hot if self.has_hot else None,
            durable=self.durable if self.has_durable else None,
            writer=writer,
            codec=Codec(),
            clock=self.clock,
            flush_every=2,
            hot_health=writer.hot_health,
            durable_health=writer.durable_health,
        )

    def opened(self) -> tuple[Conversation, list[Any] | None]:
        conversation = Conversation(PLACE, self.tiers(InlineWriter(self.clock)), base={"session": "s", "member": "default"})
        return conversation, conversation.open()

    @initialize()
    def begin(self) -> None:
        self.start()

    @precondition(lambda self: len(self.processes) < 3)
    @rule()
    def start(self) -> None:
        """A process opens the conversation; it must not take one that it cannot read for an empty one."""
        try:
            conversation, live = self.opened()
        except StoreUnavailableError:
            return
        self.number += 1
        self.processes.append(Process(f"p{self.number}", conversation, live or []))

    def _request(self, process: Process, *, flush: bool = False) -> None:
        conversation = process.conversation
        future = conversation.request_flush() if flush else conversation.request()
        if future.exception() is None:
            self._note_saved(process)
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
            process.conversation.model.append(message, at=self.clock())

    @precondition(lambda self: any(not process.in_turn for process in self.processes))
    @rule(data=st.data())
    def begin_turn(self, data: Any) -> None:
        process = data.draw(st.sampled_from([p for p in self.processes if not p.in_turn]))
        conversation = process.conversation
        if conversation.is_dirty or conversation.model.stale:
            process.capture(in_turn=False)
            if conversation.is_dirty:
                self._request(process)
        process.take_over()
        conversation.model.in_turn = process.in_turn = True
        process.turns += 1
        self._say(process, "user", {"text": f"turn {process.turns} of {process.name}"})

    @precondition(lambda self: any(process.in_turn for process in self.processes))
    @rule(data=st.data(), save=st.booleans())
    def use_a_tool(self, data: Any, save: bool) -> None:
        process = data.draw(st.sampled_from([p for p in self.processes if p.in_turn]))
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

    @precondition(lambda self: any(process.in_turn for process in self.processes))
    @rule(data=st.data(), drop=st.integers(0, 4), edit=st.booleans())
    def end_turn(self, data: Any, drop: int, edit: bool) -> None:
        process = data.draw(st.sampled_from([p for p in self.processes if p.in_turn]))
        self._answer(process)
        starts = [at for at, one in enumerate(process.live) if one["role"] == "user" and "text" in one["content"][0]]
        if len(starts) > drop > 0:
            del process.live[: starts[drop]]
        if edit and len(process.live) > 2:
            process.live[0] = copy.deepcopy(process.live[0])
            process.live[0]["content"].append({"text": "edited"})
        process.capture(in_turn=False)
        self._request(process)

    @precondition(lambda self: self.processes)
    @rule(data=st.data())
    def work_in_the_background(self, data: Any) -> None:
        process = data.draw(st.sampled_from(self.processes))
        process.conversation.tiers.writer.work_off()
        self._note_saved(process)

    @precondition(lambda self: self.processes)
    @rule(data=st.data(), seconds=st.sampled_from([0.05, 30.0]))
    def time_passes(self, data: Any, seconds: float) -> None:
        self.clock.advance(seconds)
        process = data.draw(st.sampled_from(self.processes))
        process.conversation.tiers.writer.time_passes()
        self._note_saved(process)

    @precondition(lambda self: self.processes)
    @rule(data=st.data())
    def flush(self, data: Any) -> None:
        process = data.draw(st.sampled_from(self.processes))
        if not process.in_turn:
            process.capture(in_turn=False)
        self._request(process, flush=True)

    @precondition(lambda self: self.processes)
    @rule(data=st.data(), closing=st.booleans())
    def kill(self, data: Any, closing: bool) -> None:
        process = data.draw(st.sampled_from(self.processes))
        if closing and not process.in_turn:
            process.capture(in_turn=False)
            process.conversation.model.closing = True
            self._request(process, flush=True)
        self.processes.remove(process)
        if self.lossy:
            self._what_nobody_has_may_be_lost()

    @rule(tier=st.sampled_from(["hot", "durable"]))
    def a_tier_goes_down_or_comes_back(self, tier: str) -> None:
        store = getattr(self, tier)
        store.down = not store.down

    @rule(tier=st.sampled_from(["hot", "durable"]), after=st.booleans())
    def a_call_fails(self, tier: str, after: bool) -> None:
        getattr(self, tier).fail_next(after=after)

    @precondition(lambda self: self.has_hot)
    @rule()
    def copy_the_hot_tier(self) -> None:
        self.copies.append(self.store.copy())

    @precondition(lambda self: self.has_hot and self.has_durable)
    @rule(data=st.data())
    def the_hot_tier_loses_something(self, data: Any) -> None:
        """It restarts empty, or a replica takes over that had not heard of the rest."""
        self.store.go_back(data.draw(st.sampled_from([{}, *self.copies])))
        self.lossy = True
        self._what_nobody_has_may_be_lost()

    def _what_nobody_has_may_be_lost(self) -> None:
        self.may_be_lost |= self.said.keys() - self._in_durable() - self._in_hot() - self._known_to_the_living()

    def _in_hot(self) -> set[str]:
        held = self.store._conversations.get(PLACE.conversation)
        fields = held.fields if held else {}
        records = [
            load(Codec().unseal(data, f"{PLACE.conversation}#{name}")) for name, data in fields.items() if name[1:].isdigit()
        ]
        return {record["message"]["tracking_id"] for record in records}

    def _in_durable(self) -> set[str]:
        tiers = dataclasses.replace(self.tiers(InlineWriter(self.clock)), hot=None, durable=self.table)
        conversation = Conversation(PLACE, tiers, base={"session": "s", "member": "default"})
        conversation.open(inspect=True)
        return {slot.tracking_id for slot in conversation.history()}

    def _known_to_the_living(self) -> set[str]:
        return {slot.tracking_id for process in self.processes for slot in process.conversation.model.recent}

    def teardown(self) -> None:
        self.hot.down = self.durable.down = False
        self.hot._before, self.hot._after, self.durable._before, self.durable._after = [], [], [], []
        for process in self.processes:
            if process.in_turn:
                self._answer(process)
        for _ in range(3):
            for process in self.processes:
                self.clock.advance(60)
                process.conversation.tiers.writer.work_off()
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
        self.check()

    def check(self) -> None:
        fresh, live = self.opened()
        log = [(slot.tracking_id, slot.turn) for slot in fresh.history()]
        ids = [id_ for id_, _ in log]
        doubled = [id_ for id_, count in Counter(ids).items() if count > 1]
        assert not doubled, f"doubled: {doubled} in {ids}"
        lost = [id_ for id_ in self.saved if id_ not in ids and id_ not in self.may_be_lost and id_ not in self.gone]
        assert not lost, f"lost: {lost} of {sorted(self.saved)} in {ids}"
        assert not self.gone & set(ids), "what was deleted is back"
        turns: dict[tuple[str, int], list[int]] = {}
        for at, (id_, _) in enumerate(log):
            turns.setdefault(self.said[id_], []).append(at)
        for turn, places in turns.items():
            assert places == list(range(places[0], places[0] + len(places))), f"{turn} is torn: {log}"
            assert len({log[at][1] for at in places}) == 1, f"{turn} has several numbers: {log}"
            said = [id_ for id_ in self.said if self.said[id_] == turn]
            assert [ids[at] for at in places] == [id_ for id_ in said if id_ in ids]
        numbers = [log[places[0]][1] for places in turns.values()]
        assert numbers == sorted(set(numbers)), f"turn numbers: {numbers}"
        for process in self.processes:
            assert same(process.live, live), f"{process.name} has {process.live}, stored is {live}"
        roles = [message["role"] for message in live or []]
        assert all(one != other for one, other in itertools.pairwise(roles)), f"{roles} of {live}"
        assert fresh.model.head.messages >= len(ids)


SessionMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestTwoTiers = SessionMachine.TestCase


class HotOnly(SessionMachine):
    has_durable = False


class DurableOnly(SessionMachine):
    has_hot = False


TestHotOnly = HotOnly.TestCase
TestHotOnly.settings = settings(max_examples=20, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck))
TestDurableOnly = DurableOnly.TestCase
TestDurableOnly.settings = TestHotOnly.settings
