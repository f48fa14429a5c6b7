"""Shared by session tests: stores, scripted agents, and a view of all stored data."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, tool
from strands.agent.conversation_manager import ConversationManager

from strands_manga_memory import ConversationScope, TieredSessionManager
from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.stores import (
    SESSIONS,
    Codec,
    Condition,
    DynamoDBTable,
    HotStore,
    InMemoryHotStore,
    RedisHotStore,
    SQLiteTable,
    Table,
    open_hot_store,
)
from strands_manga_memory.stores.codec import dump, load
from strands_manga_memory.testing import ScriptedModel
from tests import servers

KINDS = ("valkey+dynamodb", "valkey+sqlite", "valkey", "dynamodb", "sqlite")
"""Pairs of tiers, by the names of their servers; one name alone is the only tier."""

SHAPES = (
    "valkey+sqlite",
    "valkey",
    "sqlite",
    pytest.param("valkey+dynamodb", marks=pytest.mark.long),
)
"""Both tiers, a hot one and a durable one: enough where it matters which tiers there are, and not
which stores they are in.
"""

PATIENT = {"hot_deadline": 10.0, "durable_deadline": 10.0}
"""Deadlines that a busy machine does not miss."""


NASTY = (
    "a", "a*", "a?", "[a]", "a:b", "a#b", "a#HEAD", "a/b", "a%2Fb", "a~b", "a~001", "a b", "a\nb",
    "a\x00b", "{x}", "{x}:y", "日本", "日本語", "A", "aa", ".", "-", "a!b", "x" * 512, "x" * 511,
    "日" * 512, "日" * 511 + "本", "y" * 300 + "1", "y" * 300 + "2",
)  # fmt: skip
"""Ids that could be taken for parts of keys."""


@dataclass
class Stores:
    """The tiers of one test, and what is made of them."""

    hot: HotStore | None
    durable: Table | None
    session: str
    client: Any = None
    settings: dict[str, Any] = field(default_factory=dict)

    def manager(
        self, session: str | ConversationScope | None = None, **settings: Any
    ) -> TieredSessionManager:
        """Return a session manager that knows nothing yet, as a new process would make it."""
        tiers: dict[str, Any] = {"hot": self.hot, "durable": self.durable}
        return TieredSessionManager(
            session or self.session, **{**tiers, **PATIENT, **self.settings, **settings}
        )

    def agent(
        self, model: ScriptedModel | None = None, *, session: Any = None, **arguments: Any
    ) -> Agent:
        """Return an agent of this session, in a session manager of its own."""
        settings = {name: arguments.pop(name) for name in list(arguments) if name in _SETTINGS}
        return agent(self.manager(session, **settings), model, **arguments)

    def lose_hot(self) -> None:
        """Delete every key of the hot tier, as an eviction or a restart would."""
        if self.client is not None:
            for key in self.client.scan_iter(match="smm:*"):
                self.client.delete(key)

    def elsewhere(self) -> Stores:
        """The same servers with new clients and a new writer, like another process."""
        hot = RedisHotStore(self.hot.client) if isinstance(self.hot, RedisHotStore) else self.hot
        durable = self.durable
        if isinstance(durable, SQLiteTable):
            durable = SQLiteTable(durable.path)
        elif isinstance(durable, DynamoDBTable):
            durable = DynamoDBTable(durable.client, SESSIONS, name=durable.name, deadline=10.0)
        return Stores(hot, durable, self.session, client=self.client, settings=self.settings)

    def only_durable(self) -> Stores:
        """The same, as a process sees it that has no hot tier."""
        return Stores(None, self.durable, self.session, settings=self.settings)


_SETTINGS = {
    "flush_every", "ttl", "refresh", "codec", "clock", "hot_deadline", "durable_deadline",
    "max_unsaved",
}  # fmt: skip


def open_stores(kind: str, request: pytest.FixtureRequest) -> Stores:
    """Return the stores of ``kind`` for the test of ``request``, with a session id of its own."""
    unique = request.getfixturevalue("unique")
    hot: HotStore | None = None
    durable: Table | None = None
    client = None
    for name in kind.split("+"):
        if name == "valkey":
            server = request.getfixturevalue("valkey_server")
            hot, client = open_hot_store(server.url), server.client()
            request.addfinalizer(client.close)
        elif name == "memory":
            hot = InMemoryHotStore()
        elif name == "dynamodb":
            durable = dynamodb_table(request.getfixturevalue("dynamodb_server"))
        else:
            durable = SQLiteTable(Path(request.getfixturevalue("tmp_path")) / "sessions.sqlite3")
            durable.create_if_missing()
        for store in (hot, durable):
            if isinstance(store, RedisHotStore | SQLiteTable):
                request.addfinalizer(store.close)
    return Stores(hot, durable, f"s-{unique}", client=client)


@cache
def dynamodb_table(server: servers.DynamoDB) -> DynamoDBTable:
    """Return the one table of sessions that all tests of this worker share."""
    table = DynamoDBTable(server.client(), SESSIONS, name="session_tests", deadline=10.0)
    table.create_if_missing()
    return table


def agent(
    manager: TieredSessionManager | None, model: ScriptedModel | None = None, **arguments: Any
) -> Agent:
    """Return an agent that answers from a script, by default with "ok", and prints nothing."""
    arguments.setdefault("retry_strategy", None)
    return Agent(
        model=model or ScriptedModel(), session_manager=manager, callback_handler=None, **arguments
    )


def quiet(live: Agent) -> None:
    """Wait until all background work of the agent's session manager is done."""
    servers.wait_until(
        lambda: live._session_manager._tiers.writer.backlog == 0, "the end of background work"
    )


def texts(messages: Any) -> list[str]:
    """Return the text of each message, or the kind of its first block."""
    return [m["content"][0].get("text") or next(iter(m["content"][0])) for m in messages]


def same(one: Any, other: Any) -> bool:
    """Tell whether two histories are the same JSON, the order of keys included."""
    return dump(one) == dump(other)


def check_restored(
    stores: Stores,
    live: Agent,
    build: Callable[[], ConversationManager] | None = None,
    **arguments: Any,
) -> Agent:
    """Check that new processes restore a conversation as it is, also from the durable tier alone.

    Return the first agent. Each has the conversation manager that ``build`` makes.
    """

    def restored(of: Stores) -> Agent:
        made = of.agent(agent_id=live.agent_id, conversation_manager=build and build(), **arguments)
        assert same(made.messages, live.messages)
        return made

    first = restored(stores)
    if stores.hot is not None and stores.durable is not None:
        live._session_manager.flush()
        restored(stores.only_durable())
    return first


def tool_use(id_: str, name: str, /, **arguments: Any) -> dict[str, Any]:
    """Return a content block that calls a tool."""
    return {"toolUse": {"toolUseId": id_, "name": name, "input": arguments}}


def interrupt_answers(result: Any, response: str = "yes") -> list[Any]:
    """Return the responses of a user to the interrupts of a run."""
    return [
        {"interruptResponse": {"interruptId": one.id, "response": response}}
        for one in result.interrupts
    ]


def tool_result(
    id_: str, *content: dict[str, Any] | str, status: str = "success"
) -> dict[str, Any]:
    """Return a content block with the result of a tool."""
    blocks = [{"text": each} if isinstance(each, str) else each for each in content]
    return {"toolResult": {"toolUseId": id_, "status": status, "content": blocks}}


def user(*blocks: dict[str, Any] | str, **more: Any) -> Any:
    """Return a user message."""
    return {
        "role": "user",
        "content": [{"text": b} if isinstance(b, str) else b for b in blocks],
        **more,
    }


def assistant(*blocks: dict[str, Any] | str, **more: Any) -> Any:
    """Return an assistant message."""
    return {
        "role": "assistant",
        "content": [{"text": b} if isinstance(b, str) else b for b in blocks],
        **more,
    }


# What is stored, whoever stored it


def everything_stored(stores: Stores) -> bytes:
    """Return all bytes of a session in both tiers, raw and decoded."""
    return b"\n".join([*_all_hot(stores), *_all_durable(stores)])


def _all_hot(stores: Stores) -> Iterator[bytes]:
    if stores.client is None:
        if stores.hot is not None:
            yield repr(vars(stores.hot)).encode()
        return
    for key in stores.client.scan_iter(match="smm:*"):
        name = key.decode().split(":c:")[-1]
        if stores.session not in name:
            continue
        for field_name, value in stores.client.hgetall(key).items():
            yield from (field_name, value)
            yield from _opened(value, f"{name}#{field_name.decode().removeprefix('f:')}")


def _all_durable(stores: Stores) -> Iterator[bytes]:
    if stores.durable is None:
        return
    if isinstance(stores.durable, SQLiteTable):
        for path in stores.durable.path.parent.glob(f"{stores.durable.path.name}*"):
            yield from _readable(path.read_bytes())
    for item in stores.durable.query(stores.session):
        yield repr(item).encode()
        data = item.get("data")
        if isinstance(data, bytes):
            yield data
            yield from _opened(data, f"{item['session_id']}/{item['sk']}")


def _readable(file: bytes) -> Iterator[bytes]:
    """Yield what a file holds, as whoever copies it can read it: what is encoded in it decoded."""
    yield file
    for found in re.findall(rb"[A-Za-z0-9+/]{40,}", file):
        yield base64.b64decode(found[: len(found) // 4 * 4])


def _opened(value: bytes, place: str) -> Iterator[bytes]:
    try:
        yield Codec().unseal(value, place)
    except CorruptRecordError:
        return


def durable_units(item: Any) -> int:
    """Return the write units DynamoDB takes for an item: one for each KB of names and values."""
    return -(-_size(item) // 1024)


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return sum(len(name.encode()) + _size(item) for name, item in value.items())
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, bool) or value is None:
        return 1
    if isinstance(value, int | float):
        return 1 + (len(str(value)) + 1) // 2
    return 3 + sum(map(_size, value))


BLOCKS: dict[str, dict[str, Any]] = {
    "text": {"text": "日本語 and English, 🎴, \u0000, \ud800"},
    "image": {"image": {"format": "png", "source": {"bytes": bytes(range(256))}}},
    "document": {
        "document": {
            "format": "pdf",
            "name": "invoice",
            "source": {"bytes": b"%PDF-\xff\xfe"},
            "context": "c",
        }
    },
    "video": {"video": {"format": "mp4", "source": {"bytes": b"\x00\x01\x02"}}},
    "location": {
        "image": {"format": "png", "source": {"location": {"type": "s3", "uri": "s3://b/k"}}}
    },
    "reasoning": {"reasoningContent": {"reasoningText": {"text": "thinking", "signature": "sig"}}},
    "redacted": {"reasoningContent": {"redactedContent": b"\x80\x81"}},
    "guard": {"guardContent": {"text": {"text": "guarded", "qualifiers": ["query"]}}},
    "citations": {
        "citationsContent": {
            "citations": [
                {
                    "location": {"documentChar": {"documentIndex": 0, "start": 1, "end": 2}},
                    "title": "t",
                }
            ],
            "content": [{"text": "cited"}],
        }
    },
    "cache point": {"cachePoint": {"type": "default"}},
    "tool use": {
        "toolUse": {
            "toolUseId": "t1",
            "name": "find",
            "input": {"a": [1, 2.5, None, True, {"b": "ん"}]},
        }
    },
    "tool result": {
        "toolResult": {
            "toolUseId": "t1",
            "status": "success",
            "content": [
                {"text": "found"},
                {"json": {"n": 1, "nested": [{"x": 1e300}]}},
                {"image": {"format": "jpeg", "source": {"bytes": b"\xff\xd8\xff"}}},
                {"document": {"format": "txt", "name": "d", "source": {"bytes": b"text"}}},
            ],
        }
    },
    "looks like ours": {"text": json.dumps({"\0bytes": base64.b64encode(b"x").decode()})},
}
"""One content block of each kind there is."""


def loaded(data: bytes) -> Any:
    """Return what ``dump`` was given."""
    return load(data)


class MemoryTable:
    """A Table in memory, for tests of millions of steps."""

    schema = SESSIONS

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], dict[str, Any]] = {}

    def create_if_missing(self) -> None:
        """Do nothing: the table is there."""

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def transact(self, writes: Any) -> bool:
        """Refuse transactions, which sessions do not use."""
        raise NotImplementedError

    def get(self, partition: str, sort: str) -> dict[str, Any] | None:
        """Return a copy of a record."""
        row = self.rows.get((partition, sort))
        return None if row is None else dict(row)

    def batch_get(self, keys: Any) -> dict[tuple[str, str], dict[str, Any]]:
        """Return copies of those records that exist."""
        return {key: dict(self.rows[key]) for key in keys if key in self.rows}

    def put(
        self, item: dict[str, Any], *, when: Condition | None = None, scrub: bool = True
    ) -> bool:
        """Put a record if the condition is met."""
        key = (item["session_id"], item["sk"])
        if when is not None and not when.met_by(self.rows.get(key)):
            return False
        self.rows[key] = dict(item)
        return True

    def delete(self, partition: str, sort: str, *, when: Condition | None = None) -> bool:
        """Delete a record if the condition is met."""
        row = self.rows.get((partition, sort))
        if row is not None and when is not None and not when.met_by(row):
            return False
        self.rows.pop((partition, sort), None)
        return True

    def batch_write(self, *, puts: Any = (), deletes: Any = ()) -> None:
        """Put and delete."""
        for item in puts:
            self.put(item)
        for key in deletes:
            self.rows.pop(tuple(key), None)

    def query(
        self,
        partition: str,
        *,
        first: Any = None,
        last: Any = None,
        reverse: bool = False,
        limit: int | None = None,
        index: str | None = None,
        attributes: Any = None,
    ) -> Iterator[dict[str, Any]]:
        """Yield the records of a partition in order."""
        keys = sorted(
            (
                key
                for key in self.rows
                if key[0] == partition and (first or "") <= key[1] <= (last or "\U0010ffff")
            ),
            reverse=reverse,
        )
        for key in keys[:limit]:
            row = dict(self.rows[key])
            wanted = row if attributes is None else {"session_id", "sk", *attributes}
            yield {name: value for name, value in row.items() if name in wanted}


class SurvivingHotStore(InMemoryHotStore):
    """A hot store in memory that counts as one that survives the process."""

    survives_process = True

    def copy(self) -> dict[str, Any]:
        """Return what it holds, to go back to."""
        return dict(self._conversations)

    def go_back(self, held: dict[str, Any]) -> None:
        """Hold what it held then, as a replica does that had not heard of the rest."""
        self._conversations = dict(held)


@tool
def find(title: str) -> str:
    """Find a volume."""
    return f"found {title}"


def one_tool_turn() -> ScriptedModel:
    """A model that calls a tool once in each turn."""
    return ScriptedModel(
        lambda messages: (
            "done"
            if "toolResult" in messages[-1]["content"][0]
            else [tool_use(f"t{len(messages)}", "find", title="x")]
        )
    )


def tool_turns() -> ScriptedModel:
    """A model that makes every third turn call a tool, every sixth two tools at once."""

    def reply(messages: Any) -> Any:
        last = messages[-1]["content"]
        if "toolResult" in last[0]:
            return "found it"
        number = int(last[0]["text"].split()[-1])
        if number % 6 == 5:
            calls = [tool_use(f"u{number}{name}", "find", title=name) for name in ("One", "ん")]
            return [{"text": "looking"}, *calls]
        return (
            [tool_use(f"u{number}", "find", title="Naruto")]
            if number % 3 == 2
            else f"answer {number}"
        )

    return ScriptedModel(reply)
