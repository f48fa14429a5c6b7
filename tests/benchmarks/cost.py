"""cost: measured request units, storage and memory of sessions, and those of the cost model.

A session is held, finalized into memories, and swept after its end. Units are counted from the
requests as DynamoDB bills them. A write costs a unit for each begun KB of the larger item before
and after, again for each index that lists the item, and twice in a transaction. A strongly
consistent read costs a unit for each begun 4 KB, a read of an index half of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from strands import Agent

from strands_manga_memory import USER_MEMORY, ConversationScope, DynamoDBTable, MangaMemory
from strands_manga_memory.ops import Workload, session_use
from strands_manga_memory.stores.writer import shared_writer
from strands_manga_memory.testing import ScriptedModel
from tests.benchmarks import progress, reset_texts, text
from tests.benchmarks.wire import Request, Stage, Units, requests, staged

SHAPES = (
    *((4, 500, 0), (10, 500, 0), (25, 300, 0), (10, 1500, 0), (12, 120, 0), (6, 800, 0)),
    *((6, 800, 2), (10, 500, 4), (15, 250, 8), (8, 400, 10), (10, 500, 20)),
)
"""Shapes of the held sessions: turns, bytes of each message, and earlier sessions of the same
user.
"""

NAMES = (
    "write_units", "index_write_units", "read_units", "session_bytes", "memory_bytes", "hot_bytes",
)  # fmt: skip

BUDGETS: dict[str, str | float] = {
    **{f"{name}_in_all_off_by": "<= 0.10" for name in NAMES},
    **{f"{name}_of_new_users_off_by": "<= 0.10" for name in NAMES},
    **{f"{name}_of_returning_users_off_by": "<= 0.10" for name in NAMES},
    # What one session of a returning user adds depends on which of the topics happen to come up
    # again.
    **{f"{name}_of_one_returning_user_off_by": "<= 0.25" for name in NAMES},
}

# where weeks and months begin decides how many of their roll-ups are written anew
_TODAY = 1_790_000_000.0
_COUNTED, _COUNTED_OF_NEW_USERS = (
    3,
    9,
)  # sessions; what one takes depends on what happens to be said, and on when it ends


@dataclass(frozen=True)
class SessionUsage:
    """Resources that one session of a shape used."""

    write_units: float
    index_write_units: float
    read_units: float
    session_bytes: float
    memory_bytes: float
    hot_bytes: float


def measure_sessions(
    stage: Stage, user: str, turns: int, size: int, earlier: int = 0, *, keeps_agents: bool = True
) -> SessionUsage:
    """Hold, finalize and sweep sessions. Return the mean resources of the last ones.

    Args:
        stage: The servers.
        user: Prefix of the users' ids.
        turns: Turns of each session; of a new user's on average.
        size: Bytes of each message.
        earlier: Sessions that the same user had before the middle one of the measured sessions, one
            every two days; 0: each session is the first of its user.
        keeps_agents: Whether one agent answers a whole session; otherwise each message has an agent
            of its own.
    """
    memories = DynamoDBTable(stage.durable.client, USER_MEMORY, deadline=5.0)
    memories.create_if_missing()
    now, ahead = _TODAY, 0.0
    memory = MangaMemory(
        hot=stage.hot,
        durable=stage.durable,
        memories=memories,
        create_tables=False,
        hot_deadline=5.0,
        clock=lambda: now + ahead,
    )
    stage.settle()
    stage.clear()
    units, found = Units(), []
    counted = _COUNTED if earlier else _COUNTED_OF_NEW_USERS
    for number in range(max(0, earlier - 1) + counted):
        scope = ConversationScope(user if earlier else f"{user}{number}", f"s{number}")
        before = (
            units.writes,
            units.index_writes,
            units.reads,
            units.stored(stage.durable.name),
            units.stored(USER_MEMORY.name),
        )
        agent = None
        for _ in range(turns if earlier else turns_of_session(turns, number)):
            if agent is None or not keeps_agents:
                agent = Agent(
                    model=ScriptedModel(lambda _: text(size)),
                    callback_handler=None,
                    **memory.agent_kwargs(user_id=scope.user_id, session_id=scope.session_id),
                )
            agent(text(size))
            shared_writer(stage.hot, stage.durable).drain(30.0)
        hot = int(stage.direct.memory_usage(stage.key_of(scope), samples=0) or 0)
        memory.finalize(scope)
        _finish_writes(stage, memories)
        units.take(requests(stage.durable_wire.log))
        stored = (units.stored(stage.durable.name), units.stored(USER_MEMORY.name))
        for days in (1.5, 0.4, 0.1):
            ahead += days * 86_400
            stage.durable_wire.log.clear()
            memory.sweeper().run_once(limit=1000)
            _finish_writes(stage, memories)
            units.take(r for r in requests(stage.durable_wire.log) if not _is_search_for_due(r))
        stage.clear()
        took = zip((units.writes, units.index_writes, units.reads, *stored), before, strict=True)
        found.append(SessionUsage(*(now - then for now, then in took), hot))
    return SessionUsage(*(mean(getattr(one, name) for one in found[-counted:]) for name in NAMES))


def turns_of_session(turns: int, number: int) -> int:
    """Return the number of turns of a new user's session, ``turns`` on average.

    A conversation is flushed every five turns, so the size of its copy depends on the number of
    turns since the last flush.
    """
    middle = _COUNTED_OF_NEW_USERS // 2
    return turns + round(min(middle, turns - 1) * (number - middle) / middle)


def _is_search_for_due(request: Request) -> bool:
    """Return whether a request is a sweeper's search for due sessions."""
    return request.operation == "Query" and request.body["ExpressionAttributeValues"][":p"][
        "S"
    ].startswith("expiry/")


def _finish_writes(stage: Stage, memories: DynamoDBTable) -> None:
    for pair in ((stage.hot, stage.durable), (None, memories), (stage.hot, None)):
        shared_writer(*pair).drain(30.0)


def run(shapes: Sequence[tuple[int, int, int]] = SHAPES) -> dict[str, float]:
    """Hold sessions of several shapes, and compare each with the cost model."""
    reset_texts()  # the same texts each time: what comes up again decides what is made of it
    values: dict[str, float] = {}
    pairs: dict[str, list[tuple[float, float, int]]] = {name: [] for name in NAMES}
    with staged() as stage:
        for turns, size, earlier in progress(shapes, "sessions of several shapes"):
            found = measure_sessions(stage, f"t{turns}b{size}e{earlier}", turns, size, earlier)
            said = session_use(
                Workload(turns_per_session=turns, bytes_per_message=size, earlier_sessions=earlier)
            )
            for name in NAMES:
                measured, modelled = getattr(found, name), getattr(said, name)
                shape = f"{turns}_turns_of_{size}_bytes_after_{earlier}"
                values[f"{name}_of_{shape}"], values[f"{name}_of_{shape}_modelled"] = (
                    measured,
                    modelled,
                )
                pairs[name].append((modelled, measured, earlier))
    for name, of in pairs.items():
        new = [(said, seen) for said, seen, earlier in of if not earlier]
        returning = [(said, seen) for said, seen, earlier in of if earlier]
        values[f"{name}_in_all_off_by"] = _relative_difference([*new, *returning])
        values[f"{name}_of_new_users_off_by"] = max(
            (_relative_difference([one]) for one in new), default=0.0
        )
        values[f"{name}_of_returning_users_off_by"] = _relative_difference(returning)
        values[f"{name}_of_one_returning_user_off_by"] = max(
            (_relative_difference([one]) for one in returning), default=0.0
        )
    return values


def _relative_difference(pairs: Sequence[tuple[float, float]]) -> float:
    """Return the relative difference between the sums of the predicted and the measured values."""
    return abs(sum(s for s, _ in pairs) / sum(seen for _, seen in pairs) - 1) if pairs else 0.0
