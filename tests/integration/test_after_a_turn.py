"""Requests right after a turn, during its background writes; and a failed profile service."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from strands import Agent

from strands_manga_memory import ConversationScope, MangaMemory
from strands_manga_memory.memory import TableProfileSource
from strands_manga_memory.stores import USER_MEMORY, DynamoDBTable, RedisHotStore, TableSchema
from strands_manga_memory.testing import ScriptedModel
from tests import servers


@pytest.fixture
def memory(
    valkey_server: servers.Valkey, dynamodb_server: servers.DynamoDB, unique: str
) -> Iterator[MangaMemory]:
    with valkey_server.client() as client:
        memory = MangaMemory.open(
            RedisHotStore(client, prefix=unique, deadline=2),
            DynamoDBTable(dynamodb_server.client(), name=unique, deadline=10),
            memories=DynamoDBTable(
                dynamodb_server.client(), USER_MEMORY, name=f"{unique}m", deadline=10
            ),
        )
        yield memory
        memory.close()


def agent(memory: MangaMemory, session: str) -> Agent:
    kwargs = memory.agent_kwargs(user_id="u1", session_id=session)
    return Agent(model=ScriptedModel(), **kwargs)


def test_a_session_is_finalized_right_after_its_turn(memory: MangaMemory) -> None:
    for number in range(4):
        live = agent(memory, f"s{number}")
        for turn in range(5):  # the fifth is flushed in the background
            live(f"Do you have volume {turn} of 『Uzumaki』?")
        if number % 2:  # by a worker that keeps no agents
            memory._managers.clear()
        assert memory.finalize(ConversationScope("u1", f"s{number}")).metadata["turn_count"] == 5
        assert (
            memory.finalize(ConversationScope("u1", f"s{number}")) is not None
        )  # nothing stays claimed


def test_disconnect_needs_no_memories(
    valkey_server: servers.Valkey, unique: str, tmp_path: Path
) -> None:
    with valkey_server.client() as client:
        hot = RedisHotStore(client, prefix=unique, deadline=2)
        memory = MangaMemory.open(hot, f"sqlite:///{tmp_path}/s.db")
        memory.agent(ScriptedModel(), user_id="u1", session_id="s")("hello")
        assert memory.disconnected(ConversationScope("u1", "s"))
        assert not memory.disconnected(ConversationScope("u1", "another"))
        memory.close()


class Down:
    def read(self, user_id: str, *, tenant: str | None = None) -> Any:
        raise ConnectionError("the profile service is down")


def test_failed_profile_service_costs_the_profile(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    memory = MangaMemory.open(
        "memory://", f"sqlite:///{tmp_path}/m.db", memories=True, profile=Down()
    )
    memory.user("u1").prefer("genre", "horror")
    model = ScriptedModel()
    memory.agent(model, user_id="u1", session_id="s")("hello")
    assert "genre: horror" in str(model.requests[0].system_prompt_content)
    assert "failed to read the profile" in caplog.text
    memory.close()


def test_a_profile_table_without_a_sort_key(dynamodb_server: servers.DynamoDB, unique: str) -> None:
    client = dynamodb_server.client()
    client.create_table(
        TableName=f"{unique}p",
        KeySchema=[{"AttributeName": "user_id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "user_id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    bought = {
        "total_orders": {"N": "12"},
        "recent_titles": {"L": [{"S": "Uzumaki"}, {"S": "Gyo"}]},
        "raw": {"M": {}},
    }
    item = {
        "user_id": {"S": "u1"},
        "favorite_genres": {"L": [{"S": "horror"}]},
        "language_pref": {"S": "ja"},
        "purchase_history_summary": {"M": bought},
        "escalation_history": {"L": [{"S": "2026-01-03"}, {"S": "2026-02-04"}]},
    }
    client.put_item(TableName=f"{unique}p", Item=item)
    table = DynamoDBTable(
        client, TableSchema(name="profiles", partition="user_id", sort=""), name=f"{unique}p"
    )
    profile = TableProfileSource(table).read("u1")
    assert profile.preferences == {
        "genre": "horror",
        "language": "ja",
        "purchases": "total orders: 12, recent titles: Uzumaki / Gyo",
        "escalations": "2",
    }
    assert TableProfileSource(table).read("u2") is None
