"""Small stored values that would unpack to a huge size are unreadable, with a clear error."""

import itertools
import json
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strands_manga_memory import Codec, ConversationScope, CorruptRecordError, MangaMemory
from strands_manga_memory.session import agent_conversation
from strands_manga_memory.testing import ScriptedModel
from tests import servers
from tests.faults.forks import result_of_child
from tests.faults.hostile import planted

pytestmark = pytest.mark.xdist_group("services")

SCOPE = ConversationScope("u1", "s1")
_MIB = 1024 * 1024


BOMBS = {
    "spaces": lambda: planted.deflated(b" " * _MIB, 512 * _MIB),
    "lists": lambda: planted.deflated(b"[],[[]],{}," * 100_000, 60 * _MIB),
    "numbers": lambda: planted.deflated(b"0.5," * 250_000, 60 * _MIB),
    "within the bounds": (
        lambda: planted.deflated(b"[" + b"[]," * 100_000, 1_200_000).ljust(500_000, b"\0")
    ),
}


def _restore(urls: list[str]) -> str:
    """Restore the conversation; return messages, memory growth in MB, and processor seconds."""
    agent_conversation._HOT_SECONDS = 60.0  # the machine may have other work
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    memory = MangaMemory.open(
        hot=urls[0], durable=urls[1], hot_deadline=60.0, durable_deadline=60.0
    )
    try:
        found: object = len(memory.agent(ScriptedModel(), user_id="u1", session_id="s1").messages)
    except CorruptRecordError as error:
        found = type(error).__name__
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    return f"{found} {growth} {time.process_time() - started}"


@pytest.fixture
def stored(
    valkey_server: servers.Valkey, unique: str, tmp_path: Path
) -> Iterator[tuple[Any, bytes, str, list[str]]]:
    """A conversation in both tiers: client, key of its hash, name, and URLs of the tiers."""
    urls = [f"{valkey_server.url}?prefix={unique}", f"sqlite:///{tmp_path / 'm.sqlite3'}"]
    with MangaMemory.open(hot=urls[0], durable=urls[1]) as memory:
        agent = memory.agent(ScriptedModel(), user_id="u1", session_id="s1")
        agent("one")
        agent("two")
    name = f"{SCOPE.storage_session_id}/A:default"
    with valkey_server.client() as client:
        (key,) = (
            key for key in client.scan_iter(f"{unique}:*:c:*") if key.decode().endswith("A:default")
        )
        yield client, key, name, urls


@pytest.mark.parametrize(
    ("where", "kind"),
    [
        pytest.param(where, kind, marks=pytest.mark.long if kind in ("lists", "numbers") else ())
        for where, kind in itertools.product(("head", "cells"), BOMBS)
    ],
)
def test_a_planted_value_costs_a_restore_little(
    stored: tuple[Any, bytes, str, list[str]], kind: str, where: str
) -> None:
    """Memory of a restore is proportional to stored bytes; values stay unchanged."""
    client, key, conversation, urls = stored
    payload = BOMBS[kind]()
    names = (
        ["head"]
        if where == "head"
        else [f"turn.{number}.ab.2" for number in range(999, 1000 + 2_400_000 // len(payload))]
    )
    values = {f"f:{n}": planted.forged(payload, f"{conversation}#{n}", flags=1) for n in names}
    client.hset(key, mapping=values)
    found, megabytes, seconds = result_of_child(lambda: _restore(urls)).split()
    assert found == ("CorruptRecordError" if where == "head" else "4")
    assert int(megabytes) < 200
    assert float(seconds) < 15.0
    assert client.hmget(key, list(values)) == list(values.values())


@pytest.mark.parametrize(
    "value",
    [
        *("x" * 5_000_000, [{"a": 1, "b": "x"}] * 50_000, "[" * 1_000_000),
        *(
            pytest.param(value, marks=pytest.mark.long)
            for value in ([0] * 500_000, [[]] * 100_000, {"k": ["日本"] * 100_000})
        ),
    ],
    ids=["one letter", "dicts", "brackets", "zeros", "lists", "texts"],
)
def test_values_that_pack_very_well_come_back(value: Any, tmp_path: Path) -> None:
    sealed = Codec().encode(value, "place")
    assert len(sealed) < len(json.dumps(value)) / 1.9
    assert Codec().decode(sealed, "place") == value
    with MangaMemory.open(durable=f"sqlite:///{tmp_path / 'm.sqlite3'}") as memory:
        agent = memory.agent(ScriptedModel(), user_id="u1", session_id="s1")
        agent.state.set("value", value)
        agent("keep it")
    with MangaMemory.open(durable=f"sqlite:///{tmp_path / 'm.sqlite3'}") as memory:
        again = memory.agent(ScriptedModel(), user_id="u1", session_id="s1")
        assert again.state.get("value") == value
