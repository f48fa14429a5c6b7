"""Turns: any texts while the stores refuse; no turn raises or blocks, and nothing is lost."""

import asyncio
import os
import random
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from strands_manga_memory import (
    SESSIONS,
    ConversationScope,
    DynamoDBTable,
    MangaMemory,
    RedisHotStore,
)
from strands_manga_memory.stores import open_hot_store, open_table
from strands_manga_memory.stores.codec import dump
from tests import servers
from tests.faults.test_hostile_text import MOST, TEXTS, agent_of, stalled, text_of

HOT = (
    *("", "", "", "LOADING server is loading",
        "READONLY You can't write against a read only replica.", "MISCONF disk is full"),
    *("NOAUTH Authentication required.", "WRONGPASS invalid password", "OOM command not allowed",
        "MOVED 3999 127.0.0.1:1"),
    *("CLUSTERDOWN Hash slot not served", "BUSY running a script", "MASTERDOWN link is down",
        "ERR quota exceeded"),
)  # fmt: skip
DURABLE = (
    *("", "", "", "ExpiredTokenException", "UnrecognizedClientException", "AccessDeniedException",
        "ResourceNotFoundException"),
    *("ThrottlingException", "ProvisionedThroughputExceededException", "InternalServerError",
        "SomethingNewException"),
)  # fmt: skip
"""What a tier answers to each request; nothing: as it should."""


class Turn(NamedTuple):
    """What a user says while the tiers answer so."""

    hot: str
    durable: str
    kind: str
    size: int


def drawn(rng: random.Random) -> list[Turn]:
    """Return some turns."""
    kinds = sorted(TEXTS)
    sizes = (1, 40, 2_000, 20_000, 200_000)
    return [
        Turn(rng.choice(HOT), rng.choice(DURABLE), rng.choice(kinds), rng.choice(sizes))
        for _ in range(rng.randrange(2, 7))
    ]


class Shop:
    """A Valkey and a table behind proxies that can refuse."""

    def __init__(self, stack: ExitStack) -> None:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            os.environ.setdefault(name, "test")
        valkey, dynamodb = (stack.enter_context(s()) for s in (servers.valkey, servers.dynamodb))
        self.hot, self.durable = (
            stack.enter_context(servers.FaultyProxy(server.host, server.port))
            for server in (valkey, dynamodb)
        )
        table = DynamoDBTable(dynamodb.client(), SESSIONS, name="turns", deadline=10)
        table.create_if_missing()
        self._valkey, self._table = valkey, table

    def open(self) -> MangaMemory:
        """Open the stores through the proxies."""
        hot = open_hot_store(f"redis://127.0.0.1:{self.hot.port}/0")
        durable = open_table(
            f"dynamodb://turns?region=us-east-1&endpoint=http://127.0.0.1:{self.durable.port}"
        )
        return MangaMemory.open(hot, durable, create_tables=False)

    def direct(self) -> MangaMemory:
        """Open the stores as another process would, when all is well."""
        return MangaMemory.open(
            RedisHotStore(self._valkey.client()),
            self._table,
            create_tables=False,
            hot_deadline=10.0,
        )

    def answer(self, hot: str = "", durable: str = "") -> None:
        """Have the tiers answer with errors from now on; nothing: as they should."""
        for proxy, refuse, error in (
            (self.hot, self.hot.deny, hot),
            (self.durable, self.durable.refuse, durable),
        ):
            refuse(error) if error else proxy.passing()


@contextmanager
def shop() -> Iterator[Shop]:
    """Start the servers."""
    with ExitStack() as stack:
        yield Shop(stack)


def _stalls_again(memory: MangaMemory, text: str) -> Iterator[float]:
    """Yield the longest pause of the loop in a turn of other agents, until one is short."""
    for _ in range(6):
        taken = asyncio.run(
            stalled(agent_of(memory, "importance", uuid.uuid4().hex, "short"), text)
        )
        yield taken
        if taken < MOST:
            return


def played(turns: list[Turn], shop: Shop) -> None:
    """Hold all turns; raise ``AssertionError`` if one fails, blocks or loses a message."""
    scope = ConversationScope("u", uuid.uuid4().hex)
    shop.answer()
    memory = shop.open()
    agent: Any = agent_of(memory, "importance", scope.session_id, "short")
    for turn in turns:
        shop.answer(turn.hot, turn.durable)
        text = text_of(turn.kind, turn.size)
        taken = asyncio.run(stalled(agent, text))
        if taken >= MOST:
            shop.answer()
            again = min(
                _stalls_again(memory, text)
            )  # a pause that the text causes comes again in each of them
            assert again < MOST, f"the loop stood still for {again:.3f} s"
    shop.answer()
    accepted = dump(agent.messages)
    session = agent._session_manager
    servers.wait_until(lambda: _is_saved(session), "saving what was said while the stores refused")
    memory.close()
    other = shop.direct()
    restored: Any = agent_of(other, "importance", scope.session_id, "short")
    assert dump(restored.messages) == accepted, "messages are restored differently"
    said = [message for message in other.session(scope).history() if message["role"] == "user"]
    assert len(said) >= len(turns), "something that was said is not in the log"
    other.close()


def _is_saved(session: Any) -> bool:
    session.flush()
    stats = session.stats()
    return bool(stats["hot"] == stats["durable"] == "up" and stats["unsaved_messages"] == 0)
