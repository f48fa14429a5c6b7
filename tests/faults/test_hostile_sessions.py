"""Any content of an agent is restored; a damaged record costs only its messages."""

import math
import random
from pathlib import Path
from typing import Any

import pytest

from strands_manga_memory import USER_MEMORY, ConversationScope, MangaMemory, SQLiteTable
from strands_manga_memory.testing import ScriptedModel
from tests import servers
from tests.faults.hostile import draws
from tests.faults.hostile.__main__ import main
from tests.faults.hostile.sessions import Case, drawn, played
from tests.faults.hostile.shapes import lived, shapes
from tests.faults.hostile.stores import embedded, opened
from tests.support import settle
from tests.unit.session.support import assistant, user

pytestmark = pytest.mark.xdist_group("services")


def case(content: Any = (), **changed: Any) -> Case:
    id_, arguments = changed.pop("id_", "t1"), changed.pop("arguments", {})
    messages = [
        user("q"),
        assistant({"toolUse": {"toolUseId": id_, "name": "x", "input": arguments}}),
        user({"toolResult": {"toolUseId": id_, "status": "success", "content": content}}),
        assistant("a"),
    ]
    return {"messages": messages, "state": {}, "memories": [], "damage": False, **changed}


CASES = {
    "a number as text": case([{"text": 42}]),
    "null as text": case([{"text": None}]),
    "a string as content": case("text"),
    "null as content": case(None),
    "strings as content": case(["a", "b"]),
    "a deep result": case([{"json": draws.nested(1, 300)}]),
    "deep arguments": case([], arguments={"a": draws.nested(1, 300)}),
    "a deep state": case([], state={"a": draws.nested(1, 300)}),
    "a deep memory": case([], memories=[draws.nested(1, 300), draws.nested(1, 60)]),
    "a whole number as id": case([], id_=5),
    "a system message": case([], messages=[{"role": "system", "content": [{"text": "s"}]}]),
    "empty contents": case([], messages=[user(), assistant()]),
    "no JSON": case(
        [{"json": {"a": (1, b"x"), 5: {1, 2}, "n": math.nan, "i": 2**80, "s": "\ud800"}}]
    ),
    "a damaged record": case([], damage=True),
}


@pytest.mark.parametrize("name", CASES)
def test_what_an_agent_lives_with_is_restored(name: str, tmp_path: Path) -> None:
    played(CASES[name], embedded(tmp_path / "m.db"))


@pytest.mark.timeout(400)
@pytest.mark.parametrize("step", [150, pytest.param(3, marks=pytest.mark.long)])
def test_an_agent_lives_with_whatever_is_a_message_and_is_not_given_what_is_none(
    step: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    memory = embedded(tmp_path / "m.db")()
    accepted = [lived(at, value, memory, max_tokens=600) for at, value in shapes(step=step)]
    assert len(accepted) > 4_000 / step
    assert 0.1 < sum(accepted) / len(accepted) < 0.9
    assert "could not be trimmed" not in caplog.text
    memory.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"role": "assistant", "content": [{"text": [[]]}]},
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "a", "name": 5, "input": {}}}]},
        {"role": "user", "content": [{"text": "x"}], "tracking_id": 5},
    ],
)
def test_an_agent_is_not_built_with_what_is_no_message(wrong: Any, tmp_path: Path) -> None:
    memory = embedded(tmp_path / "m.db")()
    with pytest.raises(
        ValueError,
        match=r"^messages must have a role and a list of content blocks: .*; got \{'role'",
    ):
        memory.agent(ScriptedModel(), user_id="u", session_id="s", messages=[wrong])
    memory.close()


def test_what_is_drawn_is_restored_from_served_stores(
    valkey_server: servers.Valkey, dynamodb_server: servers.DynamoDB, unique: str
) -> None:
    played(drawn(random.Random(0)), opened(valkey_server, dynamodb_server, prefix=unique))


def test_the_command_plays_the_case_of_a_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "7", "--embedded"]) == 0
    assert "hostile: seeds 7 to 7 hold" in capsys.readouterr().out


@pytest.mark.parametrize(
    "damage", [{"schema": 99}, {"memory_type": "of a later version"}, {"content": None}]
)
def test_a_preference_that_cannot_be_read_keeps_no_other_from_being_learned(
    damage: dict[str, Any], tmp_path: Path
) -> None:
    table = SQLiteTable(tmp_path / "m.db", USER_MEMORY)
    memory = MangaMemory.open("memory://", SQLiteTable(tmp_path / "m.db"), memories=table)

    def talks(session: str, *said: str) -> None:
        agent = memory.agent(ScriptedModel(), user_id="u", session_id=session)
        for text in said:
            agent(text)
        agent._session_manager.close()
        settle(memory)
        memory.finalize(ConversationScope("u", session))

    talks("s1", "I love romance.")
    bad = {**(table.get("u", "preference#genre") or {}), **damage}
    table.put(bad)
    talks(
        "s2",
        "I hate horror manga.",
        "My budget is 20 dollars.",
        "I love comedy.",
        "I live in Osaka.",
    )
    content = {record.content for record in memory.user("u").recall(type="preference", limit=None)}
    assert content >= {"budget: 20 dollars", "dislikes: horror"}
    assert any("Osaka" in each for each in content)
    assert table.get("u", "preference#genre") == bad, "it is not as it was"
    assert not memory.user("u").preference_log.read().signals, "signals wait"
    memory.close()


@pytest.mark.parametrize(
    "damage",
    [
        {"schema": 99},
        {"memory_type": "of a later version"},
        {"content": None},
        {"importance_score": -5},
        {"memory_id": "~ledger#0", "used": [{"a": 1}]},
        {"memory_id": "~ledger#0", "at": "soon"},
    ],
)
def test_a_record_of_a_user_that_cannot_be_read_does_not_take_the_others_with_it(
    damage: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "m.db"
    table = SQLiteTable(path, USER_MEMORY)
    memory = MangaMemory.open("memory://", SQLiteTable(path), memories=table)
    user = memory.user("u", tenant="t")
    user.remember("likes horror")
    kept = user.remember("likes tea")
    partition = user.partition
    row = next(
        row for row in table.query(user.owner.partition) if row.get("content") == "likes horror"
    )
    bad = {**row, **damage}
    table.put(bad)
    loaded = partition.load()
    assert kept is not None
    assert "likes tea" in [record.content for record in loaded.records.values()]
    damaged = [] if bad["memory_id"].startswith("~") else [bad["memory_id"]]
    assert loaded.unreadable == damaged
    partition.count_accesses()
    assert memory.export_user("u", tenant="t")["memories"]
    assert table.get(user.owner.partition, bad["memory_id"]) == bad, "it is not as it was"
    memory.close()
