"""Rules that a seed must keep, by acknowledgements, losses and stored data."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.faults import talk
from tests.faults.journal import Event
from tests.faults.scenario import USERS, Scenario
from tests.support import CUT_TEXT

MOST_THREADS = 60
MOST_MEGABYTES = 400
MOST_DESCRIPTORS = 150
_DIRECT = (  # Strands names calls that no model made, without regard to who makes them
    ":tooluse_lookup_"
)
_NUMBER = re.compile(r"w(\d+\.\d+)n(\d+)")


@dataclass(frozen=True)
class Loss:
    """A worker was killed, or the hot tier forgot something.

    Attributes:
        at: When it was over, in monotonic seconds.
        worker: Who was killed; None for the hot tier.
        durable: The tags of the turns that the durable tier had just before, by user.
    """

    at: float
    worker: str | None
    durable: Mapping[int, frozenset[str]]


@dataclass
class Kept:
    """What is stored of a user's session in the end.

    Attributes:
        log: The raw log.
        windows: What agents restored from the tiers get, by the name of the tiers.
        values: Everything the stores hold under keys of this session, decoded, by key.
    """

    log: list[Any]
    windows: dict[str, list[dict[str, Any]]]
    values: dict[str, bytes] = field(default_factory=dict)


@dataclass
class Verdict:
    """What was found.

    Attributes:
        wrong: What must not be; empty if the seed is clean.
        acknowledged: Turns that were acknowledged.
        at_risk: How many of them the bound allows to be lost: their worker, and all that a tier had
            of them, was lost.
        lost: How many of those are gone.
    """

    wrong: list[str] = field(default_factory=list)
    acknowledged: int = 0
    at_risk: int = 0
    lost: int = 0


def judged(
    scenario: Scenario, events: Sequence[Event], losses: Sequence[Loss], kept: Mapping[int, Kept]
) -> Verdict:
    """Return what is wrong, and how much was lost that may be."""
    verdict = Verdict()
    verdict.wrong += [
        f"worker {event['worker']}: {event['error']}\n{event['trace']}"
        for event in _of(events, "error")
    ]
    verdict.wrong += [problem for event in _of(events, "measured") for problem in _unbounded(event)]
    verdict.wrong += [
        f"invalid: a request of worker {event['worker']}, {problem}"
        for event in _of(events, "requests")
        for problem in event["invalid"]
    ]
    for user in range(USERS):
        own = [event for event in events if event.get("user") == user]
        _judge_user(verdict, scenario, user, own, losses, kept[user])
    return verdict


def _judge_user(
    verdict: Verdict,
    scenario: Scenario,
    user: int,
    events: Sequence[Event],
    losses: Sequence[Loss],
    kept: Kept,
) -> None:
    def wrong(what: str) -> None:
        verdict.wrong.append(f"user {user}: {what}")

    turns = [event for event in events if event["what"] == "ack"]
    buried, gone = _deleted(events)
    at_risk = {turn["tag"] for turn in turns if _may_be_lost(turn, events, losses)}
    waived = {turn["tag"] for turn in turns if turn["dropped"] or turn["epoch"] <= buried}
    counted = talk.marks(kept.log)
    for turn in turns:
        missing = [m for m in talk.wanted_marks(turn["tag"], turn["kind"]) if m not in counted]
        if missing and turn["tag"] not in at_risk | waived:
            wrong(f"lost: {turn['tag']} was acknowledged, and {missing} not in the log")
        verdict.lost += bool(missing) and turn["tag"] in at_risk - waived
    verdict.acknowledged += len(turns)
    verdict.at_risk += len(at_risk - waived)

    for name, messages in (("log", kept.log), *kept.windows.items()):
        for mark, count in talk.marks(messages).items():
            if count > 1:
                wrong(f"doubled: {mark} {count} times in the {name}")
            if scenario.canary(user) not in mark and _DIRECT not in mark:
                wrong(f"foreign: {mark} in the {name}")
    whole = {turn["tag"] for turn in turns} - at_risk - waived
    for pair in talk.split_pairs(kept.log):
        if any(f"'{tag}-" in pair for tag in whole):
            wrong(f"torn: in the log {pair}")
    for problem in _out_of_order(kept.log):
        wrong(problem)

    for name, messages in kept.windows.items():
        for problem in talk.request_problems(talk.next_request(messages)):
            wrong(f"invalid: restored from {name}, {problem}")
    for name, messages in (("log", kept.log), *kept.windows.items()):
        if any(CUT_TEXT in str(message) for message in messages):
            wrong(f"synthesized: a closing message is in the {name}")
    for event in _of(events, "restored"):
        for problem in talk.request_problems(talk.next_request(event["window"])):
            wrong(f"invalid: worker {event['worker']} restored, {problem}")
        if any(count > 1 for count in talk.marks(event["window"]).values()):
            wrong(f"doubled: in what worker {event['worker']} restored")
        if any(scenario.canary(o) in str(event["window"]) for o in range(USERS) if o != user):
            wrong(f"foreign: in what worker {event['worker']} restored")
    last = [event for event in events if event["what"] == "closed"][-1:]
    for name, messages in kept.windows.items():
        if not last or messages != last[0]["window"]:
            wrong(
                f"inexact: restored from {name} is not what the last agent had:"
                f" {_difference(messages, last)}"
            )

    secrets = gone | _redacted(events)
    foreign = {scenario.canary(other) for other in range(USERS) if other != user}
    for key, value in kept.values.items():
        for what, words in (("is back", secrets), ("is foreign", foreign)):
            for word in words:
                if re.search(re.escape(word.encode()) + rb"(?![0-9])", value):
                    wrong(f"{word} {what}: in {key}")


def _may_be_lost(turn: Event, events: Sequence[Event], losses: Sequence[Loss]) -> bool:
    """Tell whether the bound allows an acknowledged turn to be gone.

    It does if its worker was killed before the durable tier had it, and the hot tier has not
    confirmed it, or forgot it.
    """
    user, tag, worker = turn["user"], turn["tag"], turn["worker"]
    death = next((loss for loss in losses if loss.worker == worker), None)
    if death is None or tag in death.durable.get(user, ()):
        return False
    lapses = [loss for loss in losses if loss.worker is None]
    confirmed = [
        event["began"]
        for event in events
        if event["worker"] == worker
        and event.get("began", -1.0) >= turn["began"]
        and (event["what"] == "flushed" or (event["what"] == "ack" and not event["unsaved"]))
    ]
    # What a save confirms is everything its worker had, and so what the hot tier forgot before.
    before = [lapse for lapse in lapses if turn["began"] <= lapse.at <= death.at]
    is_confirmed = any(b > max((lapse.at for lapse in before), default=-1.0) for b in confirmed)
    later = [lapse for lapse in lapses if lapse.at > death.at]
    return not is_confirmed or any(tag not in lapse.durable.get(user, ()) for lapse in later)


def is_excused(turn: Event, events: Sequence[Event], losses: Sequence[Loss]) -> bool:
    """Tell whether an acknowledged turn need not be flushed although everyone is at rest.

    Its worker was killed before he had done it: then the turn may be lost already, or it waits for
    whoever saves next.
    """
    death = next((loss for loss in losses if loss.worker == turn["worker"]), None)
    if death is None:
        return False
    acks = (event for event in events if event["what"] == "ack" and event["user"] == turn["user"])
    is_waiting = not any(ack["began"] > death.at and not ack["unsaved"] for ack in acks)
    return is_waiting or _may_be_lost(turn, events, losses)


def _deleted(events: Sequence[Event]) -> tuple[int, frozenset[str]]:
    """Return the last incarnation that may have been deleted, and the tags that must be gone.

    A deletion that did not end well may have left its tombstone in one of the tiers, with any
    number up to the highest one that it may have drawn. A turn whose incarnation was not known when
    it was acknowledged may be younger than the deletion.
    """
    buried, gone = -1, set()
    for event in events:
        if event["what"] == "deleting":
            own = [
                other
                for other in events
                if other["what"] in ("deleting", "deleted") and _same_worker(event, other)
            ]
            following = next((other for other in own if other["at"] > event["at"]), None)
            if following is None or following["what"] == "deleting":
                buried = max(buried, event["most"])
                continue
            buried = max(buried, following["buried"])
            ended = [o for o in events if o["what"] == "ack" and o["at"] < event["at"]]
            gone |= {other["tag"] for other in ended if 0 < other["epoch"] <= following["buried"]}
    return buried, frozenset(gone)


def _same_worker(one: Event, other: Event) -> bool:
    return bool(one["worker"] == other["worker"])


def _redacted(events: Sequence[Event]) -> set[str]:
    """Return the secrets that no tier may have: redacted, and saved afterwards."""
    redacted = [event for event in events if event["what"] == "redacted"]
    saved = [event for event in events if event["what"] in ("flushed", "closed")]
    return {
        event["secret"]
        for event in redacted
        if any(
            _same_worker(event, other) and other.get("began", other["at"]) > event["at"]
            for other in saved
        )
    }


def _out_of_order(log: Sequence[Any]) -> list[str]:
    """Return the turns that come before an earlier one of their worker, or are not in one piece."""
    found: list[str] = []
    numbers: dict[str, int] = {}
    ended: set[str] = set()
    current = ""
    for message in log:
        for mark in talk.marks([message]):
            tag = mark.split(":", 1)[1].split()[0]
            tag = re.sub(r"-\d+$", "", tag)
            if tag == current:
                continue
            if tag in ended:
                found.append(f"torn: {tag} comes again after {current}")
            ended.add(current)
            current = tag
            if name := _NUMBER.search(tag):
                if int(name[2]) < numbers.get(name[1], 0):
                    found.append(f"out of order: {tag} comes after number {numbers[name[1]]}")
                numbers[name[1]] = int(name[2])
    return found


def _unbounded(event: Event) -> list[str]:
    limits = {
        "threads": MOST_THREADS,
        "peak_mb": MOST_MEGABYTES,
        "descriptors": MOST_DESCRIPTORS,
        "unsaved": 0,
        "backlog": USERS * 2,  # what waits for its time
    }
    return [
        f"unbounded: worker {event['worker']} ended with {name}={event[name]}, at most {limit} are"
        " to be expected"
        for name, limit in limits.items()
        if event[name] > limit
    ]


def _difference(messages: Sequence[Any], last: Sequence[Event]) -> str:
    if not last:
        return "nobody closed it"
    live = last[0]["window"]
    pairs = enumerate(zip(messages, live, strict=False))
    at = next((n for n, (one, other) in pairs if one != other), min(len(messages), len(live)))
    return (
        f"{len(messages)} messages, not {len(live)}; from {at} on {messages[at : at + 1]}, not"
        f" {live[at : at + 1]}"
    )


def _of(events: Iterable[Event], what: str) -> list[Event]:
    return [event for event in events if event["what"] == what]
