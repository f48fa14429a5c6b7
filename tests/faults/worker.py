"""Worker of the campaign: real agents that talk for users, and a journal.

Every turn has a tag that nothing else has: ``canary<seed>user<user>w<slot>.<life>n<number>``.
"""

import faulthandler
import functools
import logging
import os
import random
import resource
import signal
import threading
import time
import traceback
from collections.abc import AsyncIterable, Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import botocore.session
from strands import Agent
from strands.agent.conversation_manager import (
    ConversationManager,
    NullConversationManager,
    SlidingWindowConversationManager,
)
from strands.hooks import AfterInvocationEvent, BeforeModelCallEvent
from strands.types.exceptions import EventLoopException

from strands_manga_memory import StoreUnavailableError, TieredSessionManager
from strands_manga_memory.conversation import ImportanceWeightedConversationManager
from strands_manga_memory.stores import (
    Codec,
    DynamoDBTable,
    HotStore,
    SQLiteTable,
    Table,
    open_hot_store,
    open_table,
)
from strands_manga_memory.stores.dynamodb_requests import dynamodb_client
from strands_manga_memory.testing import ScriptedModel
from tests.faults import talk
from tests.faults.journal import Journal
from tests.faults.scenario import USERS, Scenario

END_WITHIN = 40.0
"""Seconds in which a worker saves everything once nothing is wrong any more."""

_AGENT = "librarian"
_MOST_AHEAD = 4e4  # seconds by which a worker's clock is wrong at most

# boto3 reads 3 MB of JSON for every session; workers are forked from a process that has read it.
botocore.session.create_loader = functools.cache(botocore.session.create_loader)
dynamodb_client(region="us-east-1", endpoint="http://127.0.0.1:1").close()


@dataclass(frozen=True)
class Orders:
    """What a worker is told when it starts.

    Attributes:
        scenario: The seed.
        slot: Which of the workers it is.
        life: How many lives this slot has had.
        hot: URL of the hot tier, or None.
        durable: URL of the durable tier, or None.
        folder: Where its journal goes.
        is_last: Whether it only talks a little for every user when the others are gone, and ends.
        plants: What it does wrong on purpose, so that the campaign has something to find; names in
            ``PLANTS``.
    """

    scenario: Scenario
    slot: int
    life: int
    hot: str | None
    durable: str | None
    folder: Path
    is_last: bool = False
    plants: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Which worker, in which life."""
        return f"{self.slot}.{self.life}"

    @property
    def journal(self) -> Path:
        """Where its journal is."""
        return self.folder / f"worker-{self.name}.jsonl"


class GuardedModel(ScriptedModel):
    """A model whose guardrail redacts a secret at the end of the stream, as Bedrock's does.

    Attributes:
        refused: Why a provider would have refused a request.
    """

    refused: list[str]

    async def stream(self, messages: Any, *arguments: Any, **named: Any) -> AsyncIterable[Any]:
        """Answer, then redact."""
        self.refused += talk.request_problems(messages)
        async for event in super().stream(messages, *arguments, **named):
            yield event
        said = talk.texts(messages[-1])[
            -1:
        ]  # what was said before, and not answered, may stand in the same message
        if said and "SECRET" in said[0]:
            yield {"redactContent": {"redactUserContentMessage": said[0].partition(" SECRET")[0]}}
        self.requests.clear()


class Talker:
    """One user's agent in this process."""

    def __init__(
        self, manager: TieredSessionManager, agent: Agent, *, fails: Callable[[str], object]
    ) -> None:
        self.manager = manager
        self.agent = agent
        self.text = ""
        self._fails = fails
        self.turn_epoch = 0
        agent.hooks.add_callback(BeforeModelCallEvent, self._note_epoch)
        agent.hooks.add_callback(AfterInvocationEvent, self._note_failure)

    async def _note_epoch(self, _: BeforeModelCallEvent) -> None:
        self.turn_epoch = min(self.turn_epoch, self.epoch)

    async def _note_failure(self, event: AfterInvocationEvent) -> None:
        """Record a turn that ends with an error before the worker may die."""
        if event.result is None:
            self._fails(self.text)

    @property
    def epoch(self) -> int:
        """Number of the incarnation, 0 if unknown; a deletion ends every lower one."""
        incarnation: int = self.manager._conversations["A", _AGENT].local.base.incarnation
        return incarnation

    @property
    def _dropped(self) -> int:
        return self.manager.stats(_AGENT)["dropped_messages"]

    def turn(self, text: str) -> dict[str, Any]:
        """Make a turn and return what is known of it afterwards."""
        self.turn_epoch, self.text, dropped_before = 1 << 62, text, self._dropped
        self.agent(text)
        return {
            "unsaved": self.manager.stats(_AGENT)["unsaved_messages"],
            "epoch": self.turn_epoch or self.epoch,
            "dropped": self._dropped > dropped_before,
        }


@dataclass
class Worker:
    """A worker at work."""

    orders: Orders
    pipe: Connection
    journal: Journal
    hot: HotStore | None
    durable: Table | None
    rng: random.Random
    talkers: dict[int, Talker] = field(default_factory=dict)
    made: int = 0
    ahead: float = 0.0
    threads: int = 0
    refusal: StoreUnavailableError | None = None
    refused: list[str] = field(default_factory=list)
    redacted: list[str] = field(default_factory=list)
    deleted: dict[int, str] = field(default_factory=dict)

    @property
    def scenario(self) -> Scenario:
        """The seed."""
        return self.orders.scenario

    # Talking

    def talk(self) -> None:
        """Do one thing after the other until told to end."""
        while self._may_go_on():
            user = self.rng.choice(self.scenario.users_of[self.orders.slot])
            talker = self._talker(user)
            if talker is None:
                time.sleep(0.02)
                continue
            self._act(user, talker)
            self.threads = max(self.threads, threading.active_count())
            time.sleep(self.rng.choice([0.0, 0.0, 0.005, 0.03]))

    def _act(self, user: int, talker: Talker) -> None:
        deletes = 0.03 if self.scenario.deletes else 0.0
        acts: list[tuple[float, Callable[[], object]]] = [
            (0.75, functools.partial(self.turn, user, talker)),
            (0.05, functools.partial(self._redacted_turn, user, talker)),
            (0.05, functools.partial(self._direct_call, user, talker)),
            (0.06, functools.partial(self.flush, user, talker)),
            (0.03, self._clock_jumps),
            (0.03, functools.partial(self._renewed, user, talker)),
            (deletes, functools.partial(self._delete, user, talker)),
        ]
        self.rng.choices([act for _, act in acts], [weight for weight, _ in acts])[0]()

    def _may_go_on(self) -> bool:
        while self.pipe.poll(0):
            order = self.pipe.recv()
            if order == "end":
                return False
            if order == "hold":
                self._settled()
                self.pipe.send("held")
                self.pipe.recv()  # it is killed here
            if order in ("disk full", "disk free"):
                self._limit_file(pages=1 if order == "disk full" else 1 << 30)
        return True

    def _limit_file(self, *, pages: int) -> None:
        """Let the file of the durable tier grow to so many pages, and not beyond what it has."""
        table = self.durable
        assert isinstance(table, SQLiteTable)
        with table._lock:
            if table._connection is not None:
                table._connection.execute(f"PRAGMA max_page_count = {pages}")

    def _talker(self, user: int) -> Talker | None:
        """Return a user's agent, restored if necessary; None while the stores cannot be read."""
        if user not in self.talkers:
            began = time.monotonic()
            try:
                found = self._opened(user)
            except StoreUnavailableError as error:
                self.refusal = error
                return None
            self.talkers[user] = found
            self.journal.note(
                "restored",
                user=user,
                began=began,
                window=talk.plain(found.agent.messages),
                possible_loss=found.manager.stats(_AGENT)["possible_loss"],
            )
            self.pipe.send("talks")
        return self.talkers[user]

    def _opened(self, user: int) -> Talker:
        settings: dict[str, Any] = dict(self.scenario.settings)
        if self.orders.is_last:
            settings |= {"hot_deadline": 5.0, "durable_deadline": 10.0}
        manager = TieredSessionManager(
            self.scenario.scope(user),
            hot=self.hot,
            durable=self.durable,
            codec=codec(self.scenario),
            clock=lambda: time.time() + self.ahead,
            **settings,
        )
        model = GuardedModel(talk.reply, delay=self.rng.choice([0.0, 0.002, 0.01]))
        model.refused = self.refused
        agent = Agent(
            model=model,
            tools=[talk.lookup],
            agent_id=_AGENT,
            session_manager=manager,
            conversation_manager=window(self.scenario.windows[user]),
            callback_handler=None,
            record_direct_tool_call=True,
        )
        return Talker(
            manager,
            agent,
            fails=lambda text: self.journal.note("fails", user=user, tag=text.split()[0]),
        )

    def turn(
        self,
        user: int,
        talker: Talker,
        *,
        kind: str | None = None,
        more: str = "",
        tag: str | None = None,
    ) -> str | None:
        """Take a turn; return its tag if it was acknowledged (``ack`` in the journal)."""
        if tag is None:
            self.made += 1
            tag = f"{self.scenario.canary(user)}w{self.orders.name}n{self.made}"
        kind = kind or self.rng.choice(talk.KINDS)
        began = time.monotonic()
        self.journal.note("begin", user=user, tag=tag, kind=kind)
        try:
            outcome = talker.turn(f"{tag} {kind}{more}")
        except (StoreUnavailableError, EventLoopException) as error:
            # Strands wraps what a hook raises while the model answers.
            if not isinstance(getattr(error, "original_exception", error), StoreUnavailableError):
                raise
            self.journal.note("refused", user=user, tag=tag, kind=kind, began=began)
            return None
        self.journal.note("ack", user=user, tag=tag, kind=kind, began=began, **outcome)
        return tag

    def _redacted_turn(self, user: int, talker: Talker) -> None:
        secret = f"{self.rng.getrandbits(64):x}"
        self.journal.note("redacting", user=user, secret=secret)
        made = self.turn(user, talker, kind="text", more=f" SECRET {secret}")
        if made is not None:
            self.journal.note("redacted", user=user, secret=secret)
            self.redacted.append(secret)

    def _direct_call(self, user: int, talker: Talker) -> None:
        talker.agent.tool.lookup(query=f"{self.scenario.canary(user)} direct")

    def flush(self, user: int, talker: Talker) -> bool:
        """Flush; return whether the stores took it."""
        began = time.monotonic()
        try:
            talker.manager.flush()
        except StoreUnavailableError:
            return False
        self.journal.note("flushed", user=user, began=began)
        return True

    def _clock_jumps(self) -> None:
        self.ahead = self.rng.choice(
            [0.0, *(self.rng.uniform(-most, most) for most in (5.0, 3600.0, _MOST_AHEAD))]
        )

    def _renewed(self, user: int, talker: Talker) -> None:
        """End in good order, and restore in the same process."""
        if self._closed(user, talker):
            del self.talkers[user]

    def _delete(self, user: int, talker: Talker) -> None:
        last = self.turn(user, talker, kind="text")
        if last is None:
            return
        self.journal.note(
            "deleting", user=user, epoch=talker.epoch, most=self._highest_tombstone(talker)
        )
        try:
            talker.manager.delete_session()
        except StoreUnavailableError:
            return
        self.journal.note("deleted", user=user, buried=talker.epoch - 1)
        self.deleted[user] = last

    def _highest_tombstone(self, talker: Talker) -> int:
        """Return the highest number that a deletion may give to the next incarnation."""
        return max(talker.epoch + 8, int(time.time() + _MOST_AHEAD + 60))

    # Ending

    def end(self) -> None:
        """Save everything, tell what the histories are, and what this process has grown to."""
        until = time.monotonic() + END_WITHIN
        for user in (
            self.scenario.users_of[self.orders.slot] if not self.orders.is_last else range(USERS)
        ):
            while (talker := self._talker(user)) is None or not self._closed(user, talker):
                if time.monotonic() > until:
                    raise TimeoutError(
                        f"user {user} could not be saved: {talker and talker.manager.stats(_AGENT)}"
                    )
                time.sleep(0.05)
        self._settled()
        writers = {
            id(talker.manager._tiers.writer): talker.manager._tiers.writer
            for talker in self.talkers.values()
        }
        self.journal.note("requests", invalid=self.refused[:20])
        self.journal.note(
            "measured",
            threads=max(self.threads, threading.active_count()),
            backlog=sum(writer.backlog for writer in writers.values()),
            unsaved=sum(
                talker.manager.stats(_AGENT)["unsaved_messages"] for talker in self.talkers.values()
            ),
            peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            descriptors=len(os.listdir("/proc/self/fd")),
        )

    def _closed(self, user: int, talker: Talker) -> bool:
        try:
            talker.manager.close()
        except StoreUnavailableError:
            return False
        self.journal.note("closed", user=user, window=talk.plain(talker.agent.messages))
        return True

    def _settled(self) -> None:
        """Wait until the writers have nothing to do now; what waits for its time is let be."""
        until = time.monotonic() + END_WITHIN
        for talker in self.talkers.values():
            writer = talker.manager._tiers.writer
            while (writer._active or writer._queues) and time.monotonic() < until:
                time.sleep(0.002)


def codec(scenario: Scenario) -> Codec:
    """Return the codec of a seed."""
    return Codec() if scenario.compresses else Codec(compress_from=1 << 30)


def window(kind: str) -> ConversationManager:
    """Return a conversation manager."""
    if kind == "sliding":
        return SlidingWindowConversationManager(12, should_truncate_results=False)
    return (
        ImportanceWeightedConversationManager(max_tokens=900)
        if kind == "importance"
        else NullConversationManager()
    )


class LaggingClient:
    """A DynamoDB client that answers reads which need not be consistent as it did the last time."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._before: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if name not in ("get_item", "query", "batch_get_item"):
            return method

        def read(**request: Any) -> Any:
            if request.get("ConsistentRead") or "'ConsistentRead': True" in str(
                request.get("RequestItems")
            ):
                return method(**request)
            before, self._before[str(request)] = self._before.get(str(request)), method(**request)
            return before or self._before[str(request)]

        return read


def work(orders: Orders, pipe: Connection) -> None:
    """Be a worker, from its start to its end."""
    logging.disable(logging.CRITICAL)
    stacks = (orders.folder / f"stacks-{orders.name}.txt").open("w")
    faulthandler.register(signal.SIGUSR1, file=stacks)
    journal = Journal(orders.journal, worker=orders.name)
    try:
        hot = None
        while hot is None and orders.hot:
            try:
                hot = open_hot_store(orders.hot)
            except StoreUnavailableError:  # a cluster of which no node answers just now
                time.sleep(0.05)
        durable = open_table(orders.durable) if orders.durable else None
        if isinstance(durable, DynamoDBTable) and orders.scenario.lags:
            durable.client = LaggingClient(durable.client)
        rng = random.Random(f"{orders.scenario.seed} {orders.name}")
        worker = Worker(orders, pipe, journal, hot, durable, rng)
        if orders.is_last:
            _last_words(worker)
        else:
            worker.talk()
        worker.end()
    except BaseException as error:
        journal.note(
            "error", error=f"{type(error).__name__}: {error}", trace=traceback.format_exc()
        )


def _last_words(worker: Worker) -> None:
    """Talk a little for every user; and do what is wrong, if that is wanted."""
    for user in range(USERS):
        talker = worker._talker(user)
        if talker is None:
            raise StoreUnavailableError(
                "everything is healthy, but a session cannot be restored"
            ) from worker.refusal
        for kind in ("tool", "text"):
            worker.turn(user, talker, kind=kind)
        for plant in worker.orders.plants if user == 0 else ():
            PLANTS[plant](worker, talker)


def _plant_duplicate(worker: Worker, talker: Talker) -> None:
    for _ in range(2):
        talker.turn(f"{worker.scenario.canary(0)}twice text")


def _plant_loss(worker: Worker, _: Talker) -> None:
    now = time.monotonic()
    tag = f"{worker.scenario.canary(0)}w{worker.orders.name}n99"
    worker.journal.note(
        "ack", user=0, tag=tag, kind="text", began=now, unsaved=0, epoch=1 << 61, dropped=False
    )


def _plant_disorder(worker: Worker, talker: Talker) -> None:
    for number in (98, 97):
        worker.turn(0, talker, tag=f"{worker.scenario.canary(0)}w{worker.orders.name}n{number}")


def _plant_foreign(worker: Worker, talker: Talker) -> None:
    talker.turn(f"{worker.scenario.canary(1)}stray text")


def _plant_secret(worker: Worker, talker: Talker) -> None:
    worker._redacted_turn(0, talker)
    worker.flush(0, talker)
    talker.turn(f"{worker.scenario.canary(0)}again text {worker.redacted[-1]}")


def _plant_deleted(worker: Worker, talker: Talker) -> None:
    worker._delete(0, talker)
    talker.turn(f"{worker.deleted[0]} text")


def _plant_threads(worker: Worker, _: Talker) -> None:
    for _number in range(100):
        threading.Thread(target=threading.Event().wait, daemon=True).start()


PLANTS: dict[str, Callable[[Worker, Talker], object]] = {
    "duplicate": _plant_duplicate,
    "loss": _plant_loss,
    "disorder": _plant_disorder,
    "foreign": _plant_foreign,
    "secret": _plant_secret,
    "deleted": _plant_deleted,
    "threads": _plant_threads,
}
"""What the last worker can do wrong on purpose, by name."""
