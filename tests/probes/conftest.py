"""A deployment: stores of one kind, and the processes that use them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from strands import Agent

from strands_manga_memory import MangaMemory, RedisHotStore
from strands_manga_memory.session.ttl import stored_gaps
from strands_manga_memory.stores import USER_MEMORY, DynamoDBTable
from strands_manga_memory.telemetry.recording import LogHistogram
from strands_manga_memory.testing import ScriptedModel
from tests import servers


class Deployment:
    """Opens the same stores for each process."""

    def __init__(self, opened: Callable[..., MangaMemory]) -> None:
        self._opened = opened
        self.processes: list[MangaMemory] = []

    def process(self, **settings: Any) -> MangaMemory:
        self.processes.append(self._opened(**settings))
        return self.processes[-1]

    def agent(
        self,
        memory: MangaMemory,
        session: str = "s1",
        *,
        user: str = "u1",
        reply: Any = "ok",
        tools: Any = (),
        **asked: Any,
    ) -> tuple[Agent, ScriptedModel]:
        model = ScriptedModel(reply if not isinstance(reply, str) else lambda _: reply)
        kwargs = memory.agent_kwargs(user_id=user, session_id=session, **asked)
        return Agent(model=model, tools=list(tools), **kwargs), model

    def recorded_gaps(self, memory: MangaMemory) -> LogHistogram:
        """Return the gaps after which users returned, as the command ``ttl-advice`` reads them."""
        return stored_gaps(memory.durable)


@pytest.fixture(params=["sqlite", pytest.param("valkey+dynamodb", marks=pytest.mark.long)])
def deployment(request: pytest.FixtureRequest, tmp_path: Path, unique: str) -> Iterator[Deployment]:
    if request.param == "sqlite":
        yield from _closed(
            Deployment(
                lambda **settings: MangaMemory.open(
                    "memory://", f"sqlite:///{tmp_path}/m.db", memories=True, **settings
                )
            )
        )
        return
    valkey: servers.Valkey = request.getfixturevalue("valkey_server")
    dynamodb: servers.DynamoDB = request.getfixturevalue("dynamodb_server")
    tables = dynamodb.client()
    with valkey.client() as client:

        def opened(**settings: Any) -> MangaMemory:
            return MangaMemory.open(
                RedisHotStore(client, prefix=unique, deadline=2),
                DynamoDBTable(tables, name=unique, deadline=10),
                memories=DynamoDBTable(tables, USER_MEMORY, name=f"{unique}m", deadline=10),
                **settings,
            )

        yield from _closed(Deployment(opened))


def _closed(deployment: Deployment) -> Iterator[Deployment]:
    yield deployment
    for memory in deployment.processes:
        memory.close()
