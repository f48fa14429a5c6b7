"""Holds a conversation whose worker is killed, and collects evidence of what survived."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from mangaassist import interrupts
from mangaassist.checks import (
    Message,
    TokenCounter,
    count_duplicates,
    digest,
    missing,
    problems,
    restored_exactly,
)
from mangaassist.dialogue import FACTS, SUMMARY_TURN, TURNS
from mangaassist.services import Backend
from mangaassist.worker_process import Event, WorkerError, WorkerProcess, WorkerSettings

BUDGET = 4096

StatusCallback = Callable[[str], None]
UtteranceCallback = Callable[[str, str], None]  # speaker and words
Outcome = dict[str, Any]  # of a message, as the conversation manager explains it


@dataclass(frozen=True)
class Restart:
    """Replacement of one lost worker.

    Attributes:
        how: How the worker ended.
        exact: Whether the next worker has exactly the messages of the last one.
        messages: Number of messages.
        seconds: Time of the restore, without the start of Python and of the tools.
    """

    how: str
    exact: bool
    messages: int
    seconds: float


@dataclass
class Evidence:
    """Observations from outside the worker.

    Attributes:
        facts: Whether the request of the turn that asks for all facts has each fact that was stated
            before.
    """

    turns: int = 0
    tokens: list[int] = field(default_factory=list)
    invalid_requests: list[str] = field(default_factory=list)
    tools: dict[str, int] = field(default_factory=dict)
    restarts: list[Restart] = field(default_factory=list)
    lost: list[Message] = field(default_factory=list)
    duplicates: int = 0
    log_messages: int = 0
    log_tokens: int = 0
    kept_messages: int = 0
    kept_tokens: int = 0
    hot_trips_before_answer: list[int] | None = None
    hot_trips: int = 0
    durable_requests: int = 0
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    facts: dict[str, bool] = field(default_factory=dict)

    @property
    def restored_exactly(self) -> bool:
        """Whether every restart restored exactly the earlier messages."""
        return bool(self.restarts) and all(restart.exact for restart in self.restarts)

    @property
    def passed(self) -> bool:
        """Whether all promises of the quick start were observed."""
        clean = not self.lost and not self.duplicates and not self.invalid_requests
        return clean and self.restored_exactly and max(self.tokens, default=0) <= BUDGET

    def kept_by_kind(self) -> dict[str, tuple[int, int]]:
        """Return the numbers of visible and of all messages, keyed by kind, such as preference."""
        counts: dict[str, tuple[int, int]] = {}
        for outcome in sorted(self.outcomes.values(), key=lambda outcome: -outcome["score"]):
            kept, of = counts.get(outcome["act"], (0, 0))
            counts[outcome["act"]] = kept + (outcome["outcome"] != "dropped"), of + 1
        return counts

    def round_trips_per_turn(self) -> float | None:
        """Return the median of hot-tier round trips per turn; None if not counted."""
        if self.hot_trips_before_answer is None:
            return None
        return median(self.hot_trips_before_answer or [0])


class Conversation:
    """One conversation across all of its workers."""

    def __init__(
        self,
        settings: WorkerSettings,
        backend: Backend,
        counter: TokenCounter,
        on_status: StatusCallback,
    ) -> None:
        self.evidence = Evidence(
            hot_trips_before_answer=None if backend.networked and not backend.valkey else []
        )
        self._settings = settings
        self._backend = backend
        self._counter = counter
        self._on_status = on_status
        self._acknowledged: list[Message] = []  # every message of every acknowledged turn
        self._live: list[Message] = []  # agent.messages after the last acknowledged turn
        self._in_flight: list[Message] | None = None
        self._request: Sequence[Message] = ()
        self._last_durable_requests = self._last_hot_commands = 0
        self._worker: WorkerProcess | None = None

    def start(self) -> int:
        """Start the first worker, and return the number of restored messages."""
        self._live = self._start_worker()["messages"]
        return len(self._live)

    def ask(self, text: str) -> str:
        """Hold one turn and return the answer. The turn then counts as acknowledged."""
        before = self._hot_commands()
        done = self._turn(text, hold_before_call=0)
        if done["digest"] != digest(done["messages"]):
            raise WorkerError("the messages were changed on their way through the pipe")
        self._acknowledge(done)
        if self.evidence.hot_trips_before_answer is not None:
            self.evidence.hot_trips_before_answer.append(self._hot_commands() - before)
        return str(done["text"])

    def cut(self, text: str, *, before_call: int) -> bool:
        """Begin a turn and kill the worker before model call ``before_call``.

        Return False if the turn ended earlier.

        A turn that ended earlier is complete and counts as acknowledged.
        """
        self._settle()
        event = self._turn(text, hold_before_call=before_call)
        if event["event"] == "done":
            self._acknowledge(event)
            return False
        self._in_flight = event["messages"]
        self._kill(
            "in the middle of a turn, after a tool call"
            if before_call > 1
            else "in the middle of a turn"
        )
        return True

    def kill(self) -> None:
        """Kill the worker between two turns and start another one."""
        self._settle()
        self._kill("between two turns")

    def reopen(self) -> None:
        """Close the worker regularly, empty a hot-tier server, and start another worker."""
        self._settle()
        self._note_durable(self._running.close())
        self._note_hot()
        how = "closed in good order"
        if self._backend.valkey:
            self._backend.valkey.empty()
            how += ", hot tier emptied: restored from DynamoDB alone"
        self._on_status(f"worker {how}")
        self._restart(how)

    def check_log(self) -> None:
        """Compare the log of the current worker with all acknowledged messages."""
        self._settle()
        self._running.send("history")
        event = self._running.wait_for("history")
        log, evidence = event["messages"], self.evidence
        evidence.lost = missing(self._acknowledged, log)
        evidence.duplicates = count_duplicates(log)
        evidence.log_messages, evidence.log_tokens = len(log), self._counter.count(log)
        evidence.kept_messages, evidence.kept_tokens = (
            len(self._live),
            self._counter.count(self._live),
        )

    def note_facts(self, turn: int) -> None:
        """Record for each fact that was stated up to a turn whether the latest request has it."""
        sent = str(self._request)
        self.evidence.facts = {fact: fact in sent for stated, fact in FACTS if stated <= turn}

    def close(self) -> None:
        """Close the current worker regularly."""
        self._note_durable(self._running.close())

    def abort(self) -> None:
        """End all processes, in any state."""
        if self._worker:
            self._worker.kill()

    def _kill(self, how: str) -> None:
        self._running.kill()
        self._note_hot()
        self._on_status(f"SIGKILL to worker {self._running.pid} {how}")
        self._restart(f"killed {how}")

    def _turn(self, text: str, hold_before_call: int) -> Event:
        self._running.send("turn", text=text, hold_before_call=hold_before_call)
        for event in self._running.events():
            if event["event"] == "request":
                self._check_request(event["messages"])
            elif event["event"] == "tool":
                self.evidence.tools[event["name"]] = self.evidence.tools.get(event["name"], 0) + 1
            else:
                return event
        raise WorkerError("the worker stopped in the middle of a turn")

    def _acknowledge(self, done: Event) -> None:
        self._live = done["messages"]
        self._acknowledged += done["added"]
        self.evidence.turns += 1
        self._note_durable(done)

    def _settle(self) -> None:
        """Wait until every acknowledged message is saved, because a kill may lose the others.

        Also ask for the outcomes of messages, which a killed worker cannot report.
        """
        self._running.send("settle")
        settled = self._running.wait_for("settled")
        self.evidence.outcomes.update(
            {outcome["tracking_id"]: outcome for outcome in settled["outcomes"]}
        )
        if not settled["saved"]:
            raise WorkerError("the stores did not take everything within 10 seconds")

    def _check_request(self, messages: Sequence[Message]) -> None:
        self._request = messages
        self.evidence.tokens.append(self._counter.count(messages))
        number = len(self.evidence.tokens)
        self.evidence.invalid_requests += [
            f"request {number}: {problem}" for problem in problems(messages)
        ]

    def _restart(self, how: str) -> None:
        ready = self._start_worker()
        restored, seconds = ready["messages"], ready["restore_seconds"]
        exact = restored_exactly(restored, self._live, self._in_flight)
        self.evidence.restarts.append(Restart(how, exact, len(restored), round(seconds, 3)))
        self._live, self._in_flight = restored, None
        word = "exactly" if exact else "NOT exactly"
        self._on_status(
            f"worker {self._running.pid} restored {len(restored)} messages {word}, in"
            f" {1000 * seconds:.0f} ms"
        )

    @property
    def _running(self) -> WorkerProcess:
        if self._worker is None:
            raise WorkerError("the conversation has not been started")
        return self._worker

    def _start_worker(self) -> Event:
        with interrupts.delay():
            self._worker = WorkerProcess(self._settings)
        ready = self._worker.wait_for("ready")
        self._last_durable_requests = ready["durable_requests"]  # a restore is not a turn
        self._last_hot_commands = self._hot_commands()
        return ready

    def _note_durable(self, event: Event) -> None:
        self.evidence.durable_requests += event["durable_requests"] - self._last_durable_requests
        self._last_durable_requests = event["durable_requests"]

    def _hot_commands(self) -> int:
        return self._backend.valkey.commands() if self._backend.valkey else 0

    def _note_hot(self) -> None:
        self.evidence.hot_trips += self._hot_commands() - self._last_hot_commands


def kill_points(turns: int) -> tuple[int, int]:
    """Return the turn to cut (the first with a tool from a third on) and the turn to kill after."""
    cut = next(
        (n for n in range(max(1, turns // 3), turns + 1) if TURNS[n - 1].steps), max(1, turns // 3)
    )
    return cut, max(cut, 2 * turns // 3)


def hold(
    conversation: Conversation,
    turns: int,
    *,
    cut_before_call: int,
    on_turn: Callable[[int], None],
    on_utterance: UtteranceCallback,
) -> Evidence:
    """Hold the scripted conversation with two kills of the worker, and return the evidence.

    One kill is inside a turn, and one between two turns.

    Args:
        conversation: The conversation.
        turns: Number of turns.
        cut_before_call: Model call of a turn before which the worker is killed.
        on_turn: Callback that gets the number of each completed turn.
        on_utterance: Callback that gets the speaker and the words of the turns around the first
            kill.
    """
    cut_at, kill_after = kill_points(turns)
    cut = False
    for number, text in enumerate((turn.user for turn in TURNS[:turns]), 1):
        is_shown = cut_at - 2 <= number <= cut_at + 1
        if is_shown:
            on_utterance("Aoi", text)
        is_answered = False
        if number >= cut_at and not cut:
            cut = conversation.cut(text, before_call=cut_before_call)
            is_answered = not cut
            if cut and is_shown:
                on_utterance("Aoi", text)  # the customer got no answer, and asks again
        if not is_answered:
            answer = conversation.ask(text)
            if is_shown:
                on_utterance("MangaAssist", answer)
        on_turn(number)
        if number == min(SUMMARY_TURN, turns):
            conversation.note_facts(number)
        if number == kill_after:
            conversation.kill()
    conversation.reopen()
    conversation.check_log()
    conversation.close()
    return conversation.evidence
