"""The command line, run as its users run it: arguments in, text or JSON out, an exit status."""

import asyncio
import importlib
import io
import json
import os
import shlex
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.cells import cell_len
from strands import Agent, tool

from strands_manga_memory import ConversationScope, MangaMemory, TieredSessionManager, __version__
from strands_manga_memory.cli import main
from strands_manga_memory.mcp import BreakerPolicy, guard_tool
from strands_manga_memory.ops import inspect, places
from strands_manga_memory.stores import USER_MEMORY, AesGcmCipher, Codec, open_table
from strands_manga_memory.testing import FakeClock, ScriptedModel
from tests import servers
from tests.support import run, stub_tool
from tests.unit.session.support import tool_use

COMMANDS = """demo doctor users sessions inspect history fork rewind delete-session sweep
init-table permissions export import forget-user cost ttl-advice bench settings"""
codec = Codec(cipher=AesGcmCipher({"k": b"0" * 32}, current="k"))


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/s.db"


def held(url: str, user: str = "u1", session: str = "s1", turns: int = 3, **settings: Any) -> None:
    """Hold a conversation with tools and a title in it."""
    memory = MangaMemory.open(durable=url, memories=True, **settings)
    agent = memory.agent(
        ScriptedModel(lambda messages: f"ご注文 ORD-48502 は明日届きます。{len(messages)}"),
        user_id=user,
        session_id=session,
    )
    for number in range(turns):
        agent(f"My favourite genre is horror, and where is my order ORD-48502? {number}")
    memory.user(user).remember("likes hardcover editions")
    memory.close()


def told(capsys: Any, *arguments: str) -> Any:
    """Run a command with ``--json`` and return what it says; it must succeed."""
    status = run([*arguments, "--json"])
    printed = capsys.readouterr()
    assert status == 0, printed.err
    return json.loads(printed.out)


def test_inspect_shows_the_conversation(
    url: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    held(url, turns=40)
    [found] = told(capsys, "inspect", "s1", "--user", "u1", "--durable", url)
    assert found["turns"] == 40
    assert found["durable"]["state"] == "active"
    assert found["hot"] is None
    assert found["entities"]["order_id"] == "ORD-48502"
    assert len(found["messages"]) == 80
    assert {message["outcome"] for message in found["messages"]} <= {"kept", "left", "shortened"}
    [again] = told(
        capsys, "inspect", ConversationScope("u1", "s1").storage_session_id, "--durable", url
    )
    assert again == found
    assert run(["inspect", "s1", "--user", "u1", "--durable", url, "--last", "5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 100 for line in lines)
    assert any("my order ORD" in line or "My favourite genre" in line for line in lines)
    assert run(["inspect", "s9", "--user", "u1", "--durable", url]) == 1
    assert "there is no session 's9' of 'u1'" in capsys.readouterr().err.replace("\n", " ")


def test_inspect_shows_the_breakers_of_the_worker_after_the_last_calls(
    url: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    is_down = True

    @tool
    def price() -> str:
        """Say what it costs."""
        if is_down:
            raise RuntimeError("down")
        return "12 dollars"

    stock = stub_tool("stock", "3")
    clock = FakeClock()
    policy = BreakerPolicy(failures=2, reset_after=500.0)
    guarded = guard_tool(price, policy, clock=clock)

    def call(*names: str) -> dict[str, Any]:
        uses = [[tool_use(f"t{number}", name)] for number, name in enumerate(names)]
        with MangaMemory.open(durable=url) as memory:
            kwargs = memory.agent_kwargs(user_id="u1", session_id="s1")
            model = ScriptedModel([*uses, "ok"])
            Agent(model=model, tools=[guarded, stock], **kwargs)("Price?")
        [found] = told(capsys, "inspect", "s1", "--user", "u1", "--durable", url)
        tools: dict[str, Any] = found["tools"]
        return tools

    begin = time.time()
    tools = call("price", "stock", "price", "price")
    known = tools["price"]
    assert (known["calls"], known["errors"], known["state"], known["failures"]) == (3, 3, "open", 2)
    assert 300 < known["retry_after"] <= 500
    assert begin <= known["rejected_at"] <= time.time()
    assert (tools["stock"]["calls"], tools["stock"]["state"]) == (1, None)
    assert run(["inspect", "s1", "--user", "u1", "--durable", url]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "price: 3 calls, 3 errors, breaker open, 2 failures in a row, retry in " in printed
    assert "stock: 1 calls, 0 errors" in printed
    with MangaMemory.open(durable=url) as memory:
        [place] = places("s1", user="u1", durable=memory.durable)
        later = inspect(place, hot=None, durable=memory.durable, clock=lambda: time.time() + 500)
    assert (later.tools["price"]["state"], later.tools["price"]["retry_after"]) == ("half_open", 0)
    is_down = False
    clock.advance(500)
    known = call("price")["price"]
    assert known["calls"] == 4
    assert known["errors"] == 3
    assert known["state"] == "closed"
    assert known["failures"] == 0


def test_inspect_reads_what_is_encrypted_with_the_applications_codec(url: str, capsys: Any) -> None:
    held(url, codec=codec)
    assert run(["inspect", "s1", "--user", "u1", "--durable", url]) == 1
    assert "is encrypted and no cipher was given" in capsys.readouterr().err
    [found] = told(
        capsys, "inspect", "s1", "--user", "u1", "--durable", url, "--codec", f"{__name__}:codec"
    )
    assert found["turns"] == 3
    for name in ("nowhere:codec", "json:loads", "json", "json:dumps.nothing", "os:getcwd"):
        capsys.readouterr()
        assert run(["inspect", "s1", "--durable", url, "--codec", name]) == 2
        assert f"--codec '{name}'" in capsys.readouterr().err


def test_export_and_import_bring_a_user_elsewhere(url: str, tmp_path: Path, capsys: Any) -> None:
    held(url)
    held(url, session="s2", turns=1)
    file, other = tmp_path / "u1.json", f"sqlite:///{tmp_path}/other.sqlite3"
    assert run(["export", "u1", "--durable", url, "--users", "true", "--out", str(file)]) == 0
    assert file.stat().st_mode & 0o777 == 0o600
    assert told(capsys, "init-table", "--durable", other, "--users", "true")["tables"]
    there = ["--durable", other, "--users", "true", "--yes"]
    report = told(capsys, "import", str(file), *there)
    assert (report["conversations"], report["messages"], report["skipped"]) == (2, 8, [])
    assert report["memories"] >= 1
    again = told(capsys, "import", str(file), *there)
    assert again["conversations"] == 0
    assert len(again["skipped"]) == 2
    assert again["memories"] == 0
    assert again["left_out"] == 0

    def log(url: str) -> list[Any]:
        manager = TieredSessionManager(ConversationScope("u1", "s1"), durable=open_table(url))
        return [(message["role"], message["content"]) for message in manager.history()]

    assert log(other) == log(url)
    memory = MangaMemory.open(durable=other, memories=True)
    agent = memory.agent(ScriptedModel(), user_id="u1", session_id="s1")
    agent("again")
    assert len(agent.messages) == 8
    assert any("hardcover" in record.content for record in memory.user("u1").recall())
    memory.close()
    (tmp_path / "bad.json").write_text('{"user_id": "u1"}')
    assert run(["import", str(tmp_path / "bad.json"), *there]) == 2
    (tmp_path / "bad.json").write_text("[" * 100_000 + "]" * 100_000)
    assert run(["import", str(tmp_path / "bad.json"), *there]) == 2
    assert "must be a JSON file from export" in capsys.readouterr().err


def test_stored_values_are_exported_and_imported(url: str, tmp_path: Path, capsys: Any) -> None:
    values = {"a/b": b"small", "large": bytes(range(256)) * 4_000}
    with MangaMemory.open(durable=url) as memory:
        for key, value in values.items():
            asyncio.run(memory.storage(user_id="u1").write(key, value))
    file, other = tmp_path / "u1.json", f"sqlite:///{tmp_path}/other.sqlite3"
    assert run(["export", "u1", "--durable", url, "--out", str(file)]) == 0
    there = ["--durable", other, "--yes"]
    assert told(capsys, "import", str(file), *there)["values"] == 2
    with MangaMemory.open(durable=other) as memory:
        storage = memory.storage(user_id="u1")
        assert {key: storage.value(key) for key in storage.keys()} == values  # noqa: SIM118
        asyncio.run(storage.write("a/b", b"newer"))
    again = told(capsys, "import", str(file), *there)
    assert (again["values"], again["skipped"]) == (0, ["storage/a/b", "storage/large"])
    assert MangaMemory.open(durable=other).storage(user_id="u1").value("a/b") == b"newer"
    assert run(["forget-user", "u1", *there]) == 0
    capsys.readouterr()
    refused = told(capsys, "import", str(file), *there)
    assert (refused["values"], refused["ended"]) == (0, ["storage/a/b", "storage/large"])


@pytest.mark.parametrize("command", ["permissions", "doctor --json", "settings --json"])
def test_a_command_without_standard_output_succeeds(command: str, url: str) -> None:
    line = f"{sys.executable} -m strands_manga_memory.cli {command} >&-"
    run(["init-table", "--durable", url])
    variables = {**os.environ, "MANGA_MEMORY_DURABLE_URL": url}
    done = subprocess.run(line, shell=True, env=variables, capture_output=True, check=False)
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)


def test_sessions_that_need_a_codec_are_not_called_damaged(url: str, capsys: Any) -> None:
    held(url, codec=codec)
    assert run(["sessions", "u1", "--durable", url]) == 0
    shown = capsys.readouterr().out
    assert "unreadable" in shown
    assert "damaged" not in shown
    assert run(["history", "s1", "--user", "u1", "--durable", url]) == 1
    assert "name the codec with --codec" in capsys.readouterr().err


def test_the_doctor_names_why_a_sqlite_file_cannot_be_opened(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "folder.sqlite3").mkdir()
    assert run(["doctor", "--json", "--durable", f"sqlite:///{tmp_path}/folder.sqlite3"]) == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    [found] = [each for each in findings if each["check"] == "durable.reach"]
    assert "the permissions of its folder and the free disk space" in found["remedy"]


def test_an_import_says_what_is_not_stored_and_why(url: str, tmp_path: Path, capsys: Any) -> None:
    held(url)
    file, there = tmp_path / "u1.json", ["--durable", url, "--users", "true", "--yes"]
    assert run(["export", "u1", "--durable", url, "--out", str(file)]) == 0
    elsewhere = f"sqlite:///{tmp_path}/other.sqlite3"
    assert (
        run(["import", str(file), "--durable", elsewhere, "--yes"]) == 1
    )  # an export finds the memories by itself
    assert "memories not stored, no memory table is set (--users true)" in capsys.readouterr().err
    assert run(["forget-user", "u1", *there]) == 0
    capsys.readouterr()
    assert run(["import", str(file), *there]) == 0
    told_so = capsys.readouterr().err
    assert "deleted or expired in this deployment, not stored: s1/default" in told_so
    assert "memories not stored, the user was deleted in this deployment" in told_so
    assert told(capsys, "export", "u1", *there[:4])["memories"] == []


def test_forget_user_asks_for_consent(
    url: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    held(url)
    arguments = ["forget-user", "u1", "--durable", url, "--users", "true"]
    monkeypatch.setattr("sys.stdin", io.StringIO())  # nobody to ask
    assert run(arguments) == 1
    assert len(told(capsys, "export", "u1", "--durable", url, "--users", "true")["memories"]) >= 1
    report = told(capsys, *arguments, "--yes")
    assert report["complete"]
    assert report["counts"]["sessions"] == 1
    assert told(capsys, "export", "u1", "--durable", url, "--users", "true")["memories"] == []


def _stored(url: str, word: str) -> bool:
    """Tell whether a word is readable anywhere in the files of a SQLite store."""
    path = Path(url.removeprefix("sqlite:///"))
    return any(word.encode() in file.read_bytes() for file in path.parent.glob(f"{path.name}*"))


def test_an_export_with_half_a_character_is_whole(url: str, tmp_path: Path) -> None:
    memory = MangaMemory.open(durable=url, memories=True)
    kwargs = memory.agent_kwargs(user_id="u1", session_id="s1")
    Agent(model=ScriptedModel(), **kwargs)("half an emoji \ud83d here")
    memory.close()
    file = tmp_path / "u1.json"
    assert run(["export", "u1", "--durable", url, "--users", "true", "--out", str(file)]) == 0
    assert "half an emoji" in str(json.loads(file.read_bytes())["sessions"])


def test_forget_user_and_export_find_memories_of_an_unnamed_table(url: str, capsys: Any) -> None:
    """They are where ``MangaMemory.open(memories=True)`` puts them."""
    held(url)
    assert _stored(url, "hardcover")
    found = told(capsys, "export", "u1", "--durable", url)
    assert [record["content"] for record in found["memories"] if "hardcover" in record["content"]]
    assert found["not_looked_at"] == []
    report = told(capsys, "forget-user", "u1", "--durable", url, "--yes")
    assert report["complete"]
    assert report["counts"]["memories"] >= 1
    assert not _stored(url, "hardcover")
    assert not _stored(url, "horror")
    assert told(capsys, "export", "u1", "--durable", url, "--users", "true")["memories"] == []


def test_where_there_are_no_memories_nothing_is_missing(url: str, capsys: Any) -> None:
    MangaMemory.open(durable=url).close()
    assert told(capsys, "forget-user", "u1", "--durable", url, "--yes")["complete"]
    assert told(capsys, "export", "u1", "--durable", url)["memories"] == []


def test_forget_user_and_export_never_succeed_where_they_did_not_look(
    dynamodb_server: servers.DynamoDB, unique: str, capsys: Any
) -> None:
    """Tables that have names of their own, as the tables of a deployment do."""
    client = dynamodb_server.client()
    if USER_MEMORY.name in client.list_tables()["TableNames"]:  # made by another test
        client.delete_table(TableName=USER_MEMORY.name)
    durable, users = (
        dynamodb_server.table_url(f"{unique}s"),
        dynamodb_server.table_url(f"{unique}u"),
    )
    memory = MangaMemory.open(durable=durable, memories=users)
    memory.user("u1").remember("likes hardcover editions")
    for arguments in (["forget-user", "u1", "--yes"], ["export", "u1"]):
        assert run([*arguments, "--durable", durable, "--json"]) == 1
        printed = capsys.readouterr()
        told_of = json.loads(printed.out)["not_looked_at"]
        assert [place.partition(":")[0] for place in told_of] == ["memories", "hot tier"]
        assert "not checked: memories" in printed.err
        assert run([*arguments, "--durable", durable, "--users", users, "--json"]) == 1
        told_of = json.loads(capsys.readouterr().out)["not_looked_at"]
        assert [place.partition(":")[0] for place in told_of] == ["hot tier"]
    named = ["--durable", durable, "--hot", "memory://"]
    assert told(capsys, "export", "u1", *named, "--users", "none")["not_looked_at"] == []
    assert told(capsys, "forget-user", "u1", *named, "--users", "none", "--yes")["complete"]
    assert told(capsys, "forget-user", "u1", *named, "--users", users, "--yes")["complete"]
    assert memory.user("u1").recall() == []
    memory.close()


def test_init_table_makes_or_prints_tables(
    dynamodb_server: servers.DynamoDB, unique: str, capsys: Any
) -> None:
    durable, users = (
        dynamodb_server.table_url(f"{unique}s"),
        dynamodb_server.table_url(f"{unique}u"),
    )
    assert run(["init-table", "--print", "--durable", durable, "--users", users]) == 0
    template = yaml.safe_load(capsys.readouterr().out)
    names = [table["Properties"]["TableName"] for table in template["Resources"].values()]
    assert names == [f"{unique}s", f"{unique}u"]
    client = dynamodb_server.client()
    assert not {*names} & {*client.list_tables()["TableNames"]}
    found = told(capsys, "init-table", "--durable", durable, "--users", users)["tables"][1]["table"]
    assert found == f"{unique}u"
    made = client.describe_table(TableName=f"{unique}u")["Table"]
    shown = {index["IndexName"] for index in made["GlobalSecondaryIndexes"]}
    assert shown == {index.name for index in USER_MEMORY.indexes}
    seen = client.describe_time_to_live(TableName=f"{unique}s")["TimeToLiveDescription"][
        "TimeToLiveStatus"
    ]
    assert seen == "ENABLED"


def test_template_and_policy_need_no_region(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    assert run(["init-table", "--print", "--durable", "dynamodb://mine", "--users", "true"]) == 0
    tables = yaml.safe_load(capsys.readouterr().out)["Resources"].values()
    assert [table["Properties"]["TableName"] for table in tables] == ["mine", "manga_user_memory"]
    assert run(["permissions", "--durable", "dynamodb://mine"]) == 0
    assert "table/mine" in capsys.readouterr().out


@pytest.mark.parametrize(
    "wrong", ["dynamodb://a name", "dynamodb://mine/table", "dynamodb://mine?regio=us-east-1"]
)
def test_a_template_and_a_policy_refuse_a_wrong_url(wrong: str, capsys: Any) -> None:
    for command in ("init-table", "permissions"):
        assert (
            run([command, *(["--print"] if command == "init-table" else []), "--durable", wrong])
            == 2
        )
        printed = capsys.readouterr()
        assert "cannot be opened" in printed.err
        assert not printed.out


def test_sweep_once_finalizes_sessions(
    url: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    held(url, clock=lambda: now - 7200)
    assert told(capsys, "sweep", "--once", "--durable", url, "--users", "true")["finished"] == 1
    assert told(capsys, "sweep", "--durable", url, "--users", "true")["finished"] == 0
    memory = MangaMemory.open(durable=url, memories=True)
    assert memory.user("u1").recall(type="interaction_summary")
    memory.close()


def test_sweep_with_a_model_needs_a_memory_table(url: str, capsys: Any) -> None:
    held(url)
    model = "strands_manga_memory.ops.stand_in:StandInModel"
    assert run(["sweep", "--durable", url, "--model", model]) == 1
    assert "--users true" in capsys.readouterr().err


def test_sweep_loop_ends_in_good_order(url: str) -> None:
    held(url, clock=lambda: time.time() - 7200)
    command = [
        sys.executable, "-m", "strands_manga_memory.cli", "sweep", "--loop", "--json", "--durable",
        url, "--users", "true",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert json.loads(child.stdout.readline())["finished"] == 1
        child.terminate()
        assert child.wait(20) == 0


def test_bench_measures_and_leaves_nothing(url: str, capsys: Any) -> None:
    found = told(
        capsys, "bench", "--turns", "12", "--sessions", "2", "--rate", "1000", "--durable", url
    )
    assert found["operations"]["turn"]["count"] >= 6
    assert found["operations"]["flush"]["count"] >= 1
    assert run(["bench", "--turns", "6", "--sessions", "1", "--durable", url]) == 0
    assert (
        "flush" not in capsys.readouterr().out
    )  # it would be the age of messages, not a time of work
    partitions = {item["session_id"] for item in _everything(url)}
    assert not [name for name in partitions if "bench" in name and not _is_tombstone(url, name)]


def _everything(url: str) -> list[Any]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        rows = connection.execute("SELECT partition, sort FROM manga_sessions").fetchall()
    return [{"session_id": partition, "sk": sort} for partition, sort in rows]


def _is_tombstone(url: str, partition: str) -> bool:
    return all(item.get("state") == "deleted" for item in open_table(url).query(partition))


def test_settings_shows_no_passwords(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANGA_MEMORY_HOT_URL", "redis://u:geheim@h/0")
    monkeypatch.setenv("COLUMNS", "200")
    assert told(capsys, "settings")["hot_url"] == "redis://***@h/0"
    assert run(["settings"]) == 0
    printed = capsys.readouterr().out
    assert "MANGA_MEMORY_FLUSH_EVERY" in printed
    assert "geheim" not in printed
    monkeypatch.setenv("MANGA_MEMORY_HOT_URL", "http://u:geheim@h/0")
    assert run(["settings"]) == 1
    problem = capsys.readouterr().err
    assert "MANGA_MEMORY_HOT_URL must be" in problem
    assert "geheim" not in problem


def test_exit_status_tells_what_went_wrong(url: str, capsys: Any) -> None:
    assert run(["nonsense"]) == 2
    assert run(["cost", "--users", "-1"]) == 2
    assert run(["inspect", "s1", "--durable", url]) == 1  # no table
    assert "init-table" in capsys.readouterr().err
    hot = f"redis://127.0.0.1:{servers.free_port()}"
    assert run(["sweep", "--durable", url, "--hot", hot]) == 3
    assert "doctor" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["nowhere://x", "sqlite:///s.db?colour=red"])
@pytest.mark.parametrize(
    "command",
    [
        ["users"],
        ["sessions", "u1"],
        ["history", "s1"],
        ["sweep"],
        ["init-table"],
        ["ttl-advice"],
        ["export", "u1"],
        ["bench"],
    ],
)
def test_a_wrong_url_is_a_wrong_command_line(command: list[str], wrong: str, capsys: Any) -> None:
    assert run([*command, "--durable", wrong]) == 2
    assert wrong in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        "sessions ''",
        "inspect ''",
        "inspect s1 --user ''",
        "history s1 --user u1 --agent ''",
        "fork s1 1 --to '' --user u1",
        "rewind '' 1 -y",
        "delete-session '' -y",
        "export ''",
        "export u1 --tenant ''",
        "forget-user '' -y",
        "cost --messages-per-day inf",
        "cost --model haiku=2",
        "cost --model unknown=1",
    ],
)
def test_a_wrong_id_or_load_is_a_wrong_command_line(command: str, capsys: Any) -> None:
    assert run(shlex.split(command)) == 2
    assert "Usage: " in capsys.readouterr().err


def test_a_damaged_session_is_not_called_missing(url: str, capsys: Any) -> None:
    held(url)
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as file:
        file.execute("UPDATE manga_sessions SET item = substr(item, 1, length(item) - 20)")
    for command in (["history", "s1"], ["fork", "s1", "1", "--to", "s2"], ["rewind", "s1", "1"]):
        assert run([*command, "--user", "u1", "--durable", url]) == 1
        assert "is damaged" in capsys.readouterr().err


def test_deleting_an_unknown_session_of_a_user_suggests_the_tenant(url: str, capsys: Any) -> None:
    held(url)
    assert run(["delete-session", "s9", "--user", "u1", "--yes", "--durable", url]) == 0
    printed = capsys.readouterr().err
    assert "--tenant" in printed
    assert "--user" not in printed


def test_a_command_loads_its_own_file_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    load = importlib.import_module
    monkeypatch.setattr(importlib, "import_module", lambda name: loaded.append(name) or load(name))
    assert run(["cost", "--help"]) == 0
    found = [name for name in loaded if "cli.commands" in name]
    assert found == ["strands_manga_memory.cli.commands.planning"]


def test_users_and_sessions_are_listed(
    url: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    held(url, user="u1", session="s1", turns=2)
    held(url, user="u1", session="s2", turns=1)
    held(url, user="日本", session="s1", turns=1)
    assert told(capsys, "users", "--durable", url) == [
        {"tenant": None, "user_id": "u1", "sessions": 2},
        {"tenant": None, "user_id": "日本", "sessions": 1},
    ]
    found = told(capsys, "sessions", "u1", "--durable", url)
    listed = [(each["session_id"], each["agents"], each["turns"]) for each in found]
    assert listed == [("s2", ["default"], 1), ("s1", ["default"], 2)]
    assert found[0]["title"].startswith("My favourite genre is horror")
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["sessions", "u1", "--durable", url]) == 0
    assert run(["users", "--durable", url]) == 0
    printed = capsys.readouterr().out
    assert "s2" in printed
    assert max(map(len, printed.splitlines())) <= 80
    assert run(["sessions", "nobody", "--durable", url]) == 0
    assert "no sessions" in capsys.readouterr().err


LONG_USER = "somebody-with-a-rather-long-identifier@some-company.example.com"
LONG_SESSION = "session-2026-11-25T16:00:00Z-7f2b0c1e-aaaa-bbbb-cccc-1234567890ab"


@pytest.mark.parametrize(
    "arguments",
    [
        *([name, "--help"] for name in COMMANDS.split()),
        ["users"],
        ["sessions", LONG_USER],
        ["inspect", LONG_SESSION, "--user", LONG_USER],
        ["doctor"],
        ["settings"],
        ["sweep"],
        ["cost"],
        ["cost", "--preset", "paper", "--messages-per-day", "3e8"],
        ["ttl-advice"],
        ["bench", "--turns", "5"],
        ["forget-user", LONG_USER, "--yes"],
    ],
    ids=" ".join,
)
def test_no_line_is_wider_than_a_terminal_of_80_columns(
    arguments: list[str], url: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("MANGA_MEMORY_DURABLE_URL", url)
    monkeypatch.setenv("MANGA_MEMORY_USERS_URL", "true")
    if "--help" not in arguments:
        held(url, LONG_USER, LONG_SESSION, turns=2)
        held(url, "漫画が大好きな利用者の太郎さん" * 4, turns=2)
    assert run(arguments) == 0
    printed = capsys.readouterr()
    assert printed.out or printed.err
    assert [line for line in (printed.out + printed.err).splitlines() if cell_len(line) > 80] == []


@pytest.mark.parametrize(
    "command",
    [
        ["inspect", "s1"],
        ["history", "s1"],
        ["rewind", "s1", "0", "-y"],
        ["delete-session", "s1", "-y"],
    ],
)
def test_a_tenant_without_a_user_is_refused(command: list[str], url: str, capsys: Any) -> None:
    with MangaMemory.open(durable=url) as memory:
        agent = Agent(model=ScriptedModel(), session_manager=memory.session("s1"))
        agent("hello")
    assert run([*command, "--tenant", "t1", "--durable", url]) == 2
    assert "--tenant needs --user" in capsys.readouterr().err
    with MangaMemory.open(durable=url) as memory:
        assert len(list(memory.session("s1").history("default"))) == 2


def test_rewind_deletes_the_preferences_of_the_deleted_turns(url: str) -> None:
    with MangaMemory.open(durable=url, memories=True) as memory:
        agent = memory.agent(ScriptedModel(), user_id="u1", session_id="s1", agent_id="a")
        agent("My favorite genre is horror.")
        agent("I prefer paperbacks.")
    command = ["rewind", "s1", "1", "--user", "u1", "--durable", url, "--users", "true", "--yes"]
    assert run(command) == 0
    with MangaMemory.open(durable=url, memories=True) as memory:
        stored = memory.user("u1").recall(type="preference")
        assert [each.content for each in stored] == ["genre: horror"]


def test_ids_are_printed_literally(url: str, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    held(url, user="[b]key", session="key", turns=1)
    assert run(["inspect", "t:key:s", "--durable", url]) == 1
    assert "'t:key:s'" in capsys.readouterr().err
    assert run(["inspect", "key", "--user", "[b]key", "--durable", url]) == 0
    assert run(["users", "--durable", url]) == 0
    printed = capsys.readouterr().out
    assert "%5Bb%5Dkey:key/A:default" in printed
    assert "[b]key" in printed
    held(url, user="[/b]", turns=1)
    found = told(capsys, "export", "[/b]", "--durable", url, "--hot", "memory://", "--users", url)[
        "user_id"
    ]
    assert found == "[/b]"


def test_stored_text_cannot_control_the_terminal(tmp_path: Path, capsys: Any) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    with MangaMemory.open(durable=url) as memory:
        memory.agent(ScriptedModel(["\x9b2J"]), user_id="u", session_id="s")("\x1b]0;x\x07 Hi")
    capsys.readouterr()
    for command in ("history", "inspect"):
        assert run([command, "s", "--user", "u", "--durable", url]) == 0
        printed = capsys.readouterr().out
        assert "\\x1b]0;x\\x07" in printed
        assert not {"\x1b", "\x07", "\x9b"} & set(printed)


def test_characters_that_a_terminal_lacks_are_escaped(tmp_path: Path) -> None:
    """A terminal in Shift JIS shows no emoji, and JSON stays valid there."""
    url = f"sqlite:///{tmp_path}/s.db"
    held(url, user="\U0001f600", turns=1)
    for options in (["users"], ["users", "--json"]):
        command = [sys.executable, "-m", "strands_manga_memory.cli", *options, "--durable", url]
        environment = {**os.environ, "PYTHONIOENCODING": "cp932"}
        done = subprocess.run(command, capture_output=True, env=environment, check=True)
        shown = done.stdout.decode("cp932")
        if "--json" in options:
            assert json.loads(shown)[0]["user_id"] == "\U0001f600"
        else:
            assert "U0001f600" in shown


@pytest.mark.parametrize(
    "arguments",
    [["users"], ["sessions", "u1"], ["inspect", "s1"], ["doctor"], ["sweep"], ["export", "u1"]],
)
def test_a_command_in_the_wrong_folder_leaves_nothing_behind(
    arguments: list[str], tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 1
    printed = capsys.readouterr()
    assert "init-table" in printed.out + printed.err
    assert list(tmp_path.iterdir()) == []


def test_missing_extra_is_named(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setattr(sys, "argv", ["strands-manga-memory", "--version"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"strands-manga-memory {__version__}: ")
    assert "pip install 'strands-manga-memory[cli]'" in printed


def test_the_command_line_needs_its_extra_and_no_strands() -> None:
    """Help, version and wrong commands import neither Strands nor a driver."""
    code = (
        "import sys\nfrom strands_manga_memory.cli.app import run\nfor argument in ('--version',"
        " '--help', 'no-such-command'):\n    run([argument])\nassert not {'strands', 'boto3',"
        " 'redis'} & sys.modules.keys()\nfor name in [name for name in sys.modules if"
        " 'strands_manga_memory' in name]:\n    del sys.modules[name]\nsys.modules['typer'] ="
        " None\nimport strands_manga_memory.cli as cli\ncli.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "pip install 'strands-manga-memory[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_few_gaps_make_no_advice(url: str, capsys: Any) -> None:
    held(url, turns=4)
    assert run(["ttl-advice", "--durable", url]) == 0
    printed = capsys.readouterr().out
    assert "a recommendation needs 100" in printed
    assert len(printed.splitlines()) == 1, "no table and no knee"


def test_the_list_of_commands_is_not_cut(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["--help"]) == 0
    printed = capsys.readouterr().out
    listed = printed.partition("Commands:")[2]
    assert "..." not in listed
    assert "sessions" in listed
    assert "Usage: strands-manga-memory" in printed
    assert "--install-completion" in printed
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"strands-manga-memory {__version__}\n"
