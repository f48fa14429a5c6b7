"""Draws: messages, states and metadata of any shape that Strands lets an agent live with."""

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

LEAVES: list[Any] = [
    None,
    True,
    -1,
    2**70,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "\ud800",
    "\0bytes",
    "第1巻",
    "x" * 3_000,
    b"\x00\xff",
    datetime(2026, 1, 2, tzinfo=UTC),
    date(2026, 1, 2),
    Decimal("1.10"),
    (1, ("a", b"b")),
    {1, "a"},
    frozenset({2}),
]
STATE_LEAVES = [
    leaf for leaf in LEAVES if leaf is None or isinstance(leaf, bool | int | float | str)
]
CONTENTS: list[Any] = [
    [{"text": 42}],
    [{"text": None}],
    "text",
    None,
    [],
    ["a", "b"],
    [{"text": "fine"}],
    [{"unknown": {"x": 1}}],
]


def nested(value: Any, levels: int) -> Any:
    """Return a value in so many lists and objects."""
    for level in range(levels):
        value = [value] if level % 2 else {"in": value}
    return value


def value(rng: random.Random, leaves: list[Any], *, levels: int = 300) -> Any:
    """Return a value: a leaf, nested deeply now and then, or an object or list of others."""
    kind = rng.randrange(6)
    if kind == 0:
        return nested(rng.choice(leaves), rng.randrange(levels))
    if kind == 1:
        return {
            rng.choice(["a", "", "\0b", 5, True]): value(rng, leaves, levels=20)
            for _ in range(rng.randrange(4))
        }
    if kind == 2:
        return [value(rng, leaves, levels=20) for _ in range(rng.randrange(4))]
    return rng.choice(leaves)


def content(rng: random.Random) -> Any:
    """Return the content of a tool result."""
    if rng.random() < 0.5:
        return rng.choice(CONTENTS)
    return [{"json": value(rng, LEAVES)} for _ in range(rng.randrange(1, 3))]


def turn(rng: random.Random) -> list[dict[str, Any]]:
    """Return the messages of a turn, as an earlier program may have left them."""
    id_: Any = rng.choice(["t1", 5, f"t{rng.randrange(1000)}"])
    used = {"toolUseId": id_, "name": "look_up", "input": value(rng, LEAVES)}
    messages: list[dict[str, Any]] = [
        {
            "role": "user",
            "content": rng.choice([[{"text": "q"}], [{"text": "q"}] * rng.choice([2, 2_000])]),
        },
        {"role": "assistant", "content": [{"toolUse": used}]},
        {
            "role": "user",
            "content": [
                {"toolResult": {"toolUseId": id_, "status": "success", "content": content(rng)}}
            ],
        },
        {"role": "assistant", "content": [{"text": "a"}]},
    ]
    if rng.random() < 0.2:
        messages.insert(0, {"role": "system", "content": [{"text": "s"}]})
    return messages
