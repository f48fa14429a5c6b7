"""Scenario: what happens in one seed of the campaign, drawn from nothing but the seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Literal

from strands_manga_memory import ConversationScope, TtlPolicy

Hot = Literal["none", "memory", "single", "replicated", "cluster"]
Durable = Literal["none", "dynamodb", "sqlite", "postgres"]

USERS = 2
"""Two users talk at once, in sessions of the same name."""

_TALK = (0.7, 1.5)

_EXPIRES_AFTER = 0.2
"""Seconds to live in the hot tier, where it is so few: a conversation that others take up has
nearly always expired there.
"""

_WORKER_FAULTS = ("kill", "kill", "stop")
_SOCKET_FAULTS = ("reset", "delay", "blackhole", "half_open", "drip", "drop_answers")
_HOT_FAULTS = {
    "none": (),
    "memory": (),
    "single": ("hot_pause", "hot_empty", "hot_wiped", "memory_pressure", "all_lost"),
    "replicated": ("hot_pause", "failover", "failover", "hot_wiped", "all_lost"),
    "cluster": ("hot_pause", "reshard", "reshard", "hot_wiped", "all_lost"),
}
_DURABLE_FAULTS = {
    "none": (),
    "dynamodb": ("throttle", "server_error", "durable_timeout", "durable_reset", "durable_delay",
        "durable_drop_answers"),
    "sqlite": ("disk_full", "disk_full"),
    "postgres": ("durable_half_open", "durable_timeout", "durable_reset", "durable_delay",
        "durable_drop_answers"),
}  # fmt: skip


@dataclass(frozen=True)
class Move:
    """Fault of a scenario: start, kind, duration, and worker (None: all)."""

    at: float
    name: str
    seconds: float
    slot: int | None


@dataclass(frozen=True)
class Scenario:
    """One seed.

    Attributes:
        seed: The seed.
        hot: The hot tier.
        durable: The durable tier; ``none`` only with a hot tier that survives.
        workers: How many processes talk at once.
        users_of: The users each worker talks for.
        windows: How each user's conversation manager bounds the history: ``all``, ``sliding`` or
            ``importance``.
        settings: Arguments of the session managers.
        compresses: Whether values are compressed.
        deletes: Whether workers delete sessions.
        lags: Whether reads that need not be consistent are answered from the past.
        waits: Whether nothing goes wrong before every worker has begun to talk.
        seconds: How long the workers talk.
        moves: What goes wrong meanwhile, in order.
    """

    seed: int
    hot: Hot
    durable: Durable
    workers: int
    users_of: tuple[tuple[int, ...], ...]
    windows: tuple[str, ...]
    settings: dict[str, object]
    compresses: bool
    deletes: bool
    lags: bool
    waits: bool
    seconds: float
    moves: tuple[Move, ...] = field(default=())

    @classmethod
    def drawn(
        cls, seed: int, *, hot: Hot | None = None, durable: Durable | None = None
    ) -> Scenario:
        """Return the scenario of a seed, in the tiers asked for."""
        rng = random.Random(seed)
        drawn_hot = rng.choices(
            ["none", "memory", "single", "replicated", "cluster"], [1, 0.4, 4, 3, 3]
        )[0]
        drawn_durable = rng.choices(["none", "dynamodb", "sqlite", "postgres"], [0.5, 3, 2, 2])[0]
        hot = hot or drawn_hot
        durable = durable or drawn_durable
        if durable == "none" and hot in ("none", "memory"):
            durable = "sqlite"
        workers = rng.randint(2, 5)
        shared = rng.random() < 0.7
        users = [
            tuple(range(USERS)) if shared or rng.random() < 0.3 else (slot % USERS,)
            for slot in range(workers)
        ]
        seconds = rng.uniform(*_TALK)
        settings: dict[str, object] = {
            "flush_every": rng.choice([1, 2, 5, 5]),
            "hot_deadline": rng.choice([0.05, 1.0, 5.0]),
            "durable_deadline": rng.choice([0.3, 2.0, 5.0]),
            "refresh": rng.choice(["never", "never", "turn"]),
        }
        if hot != "none" and durable != "none" and random.Random(f"{seed} expires").random() < 0.25:
            settings["ttl"] = TtlPolicy(mode="sliding", seconds=_EXPIRES_AFTER)
        return cls(
            seed=seed,
            hot=hot,
            durable=durable,
            workers=workers,
            users_of=tuple(users),
            windows=tuple(
                rng.choice(["all", "all", "sliding", "importance"]) for _ in range(USERS)
            ),
            settings=settings,
            compresses=rng.random() < 0.25,
            deletes=rng.random() < 0.25,
            lags=rng.random() < 0.5,
            waits=rng.random() < 0.85,
            seconds=seconds,
            moves=_moves(rng, hot, durable, workers, seconds),
        )

    @property
    def together(self) -> bool:
        """Whether several workers talk for one user."""
        return len(set(self.users_of)) < len(self.users_of) or any(
            len(users) > 1 for users in self.users_of
        )

    def scope(self, user: int) -> ConversationScope:
        """Return whose conversation it is; ids that would be one without escaping."""
        user_id, session_id = (("a:b", "c"), ("a", "b:c"))[user]
        return ConversationScope(user_id, f"{session_id}/{self.seed}", agent_id="librarian")

    def canary(self, user: int) -> str:
        """Return what every turn of this user, and nobody else's, holds."""
        return f"canary{self.seed}user{user}"

    @property
    def faults(self) -> list[str]:
        """The names of what goes wrong, each once."""
        return sorted({move.name for move in self.moves})

    def __str__(self) -> str:
        """Name the tiers."""
        tiers = "+".join(name for name in (self.hot, self.durable) if name != "none")
        return f"{tiers} with a short time to live" if "ttl" in self.settings else tiers


def _moves(
    rng: random.Random, hot: Hot, durable: Durable, workers: int, seconds: float
) -> tuple[Move, ...]:
    names = [rng.choice(_WORKER_FAULTS) for _ in range(rng.randint(1, 4))]
    hot_faults = [*_HOT_FAULTS[hot], *(() if hot in ("none", "memory") else _SOCKET_FAULTS)]
    if durable == "none":  # then a hot tier that forgets is a loss nobody can mend
        hot_faults = [n for n in hot_faults if n in ("hot_pause", "reshard", *_SOCKET_FAULTS)]
    for faults in (hot_faults, _DURABLE_FAULTS[durable]):
        if faults and rng.random() < 0.8:
            names += [rng.choice(faults) for _ in range(rng.randint(1, 3))]
    if "all_lost" in names:  # nothing beside it, so that the bound can be told exactly
        names = ["all_lost", *(name for name in names if name in ("kill", "stop"))]
    moves = [
        Move(
            rng.uniform(0.05, seconds),
            name,
            rng.uniform(0.05, 0.5),
            rng.choice([None, *range(workers)]),
        )
        for name in names
    ]
    return tuple(sorted(moves, key=lambda move: move.at))
