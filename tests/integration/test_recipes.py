"""The recipes run as printed."""

import gc
import json
import os
import runpy
import shlex
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from starlette.testclient import TestClient

from strands_manga_memory import MangaMemorySettings
from tests import servers
from tests.integration.test_guarded_tool_kinds import calling_agent
from tests.support import printed_by, tool_results

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "examples/recipes"


def test_each_is_tested() -> None:
    tested = {
        "a2a_server", "agentcore", "aws_lambda", "graph", "harness", "squad",
        "strands_agents_tools", "web_streaming",
    }  # fmt: skip
    assert {path.stem for path in RECIPES.glob("*.py")} == tested
    assert [path.name for path in RECIPES.glob("*/*.yaml")] == ["compose.yaml"]


def run(name: str) -> dict[str, Any]:
    return runpy.run_path(str(RECIPES / f"{name}.py"))


def test_lambda_goes_on_after_its_process_was_thrown_away(tmp_path: Path) -> None:
    """Each call's process ends at once, without background work."""
    code = (
        "import os, runpy; handler = runpy.run_path({path!r})['handler'];print(handler({{'user':"
        " 'u', 'session': 's', 'text': 'hello'}}, None)['messages'], flush=True); os._exit(0)"
    ).format(path=str(RECIPES / "aws_lambda.py"))
    env = {**os.environ, "DURABLE_URL": f"sqlite:///{tmp_path}/s.db"}
    assert [printed_by("-c", code, env=env).strip() for _ in range(2)] == ["2", "4"]


def test_the_graph_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(RECIPES / "graph.py"), run_name="__main__")
    assert "completed ['finder', 'writer']" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_chat_streams_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for answers in (["1通目です。", "3通目です。"], ["5通目です。"]):
        app = run("web_streaming")["app"]
        with TestClient(app) as client:
            for expected in answers:
                found = client.post("/chat/s1", content="hello", headers={"x-user": "hanako"}).text
                assert found == expected


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_agentcore_goes_on_with_sessions_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DURABLE_URL", f"sqlite:///{tmp_path}/s.db")
    session = {"X-Amzn-Bedrock-AgentCore-Runtime-Session-Id": "s" * 33}
    for expected in ("1", "3"):
        with TestClient(run("agentcore")["app"]) as client:
            answer = client.post(
                "/invocations", json={"user": "hanako", "prompt": "hello"}, headers=session
            )
            assert answer.json() == {"answer": f"{expected}通目です。"}
            other = client.post(
                "/invocations", json={"user": "taro", "prompt": "hello"}, headers=session
            )
            assert other.json() == {"answer": f"{expected}通目です。"}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a2a_goes_on_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def asked(recipe: dict[str, Any], context: str) -> str:
        message = {
            "messageId": "m1",
            "contextId": context,
            "role": "user",
            "parts": [{"kind": "text", "text": "hello"}],
            "kind": "message",
        }
        request = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "message/send",
            "params": {"message": message},
        }
        with TestClient(recipe["app"]) as client:
            assert client.get("/.well-known/agent-card.json").json()["name"] == "librarian"
            return json.dumps(client.post("/", json=request).json(), ensure_ascii=False)

    for expected in ("1通目です。", "3通目です。"):
        recipe = run("a2a_server")
        assert expected in asked(recipe, "c1")
        recipe["memory"].close()
    assert "1通目です。" in asked(run("a2a_server"), "c2")


def test_the_harness_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        run("harness")["main"]()
    assert capsys.readouterr().out.split() == ["2", "4"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # of a prompt for consent
def test_guarded_tools_without_server_and_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BYPASS_TOOL_CONSENT", raising=False)
    prompt, file, good, failed, stale, denied, asked = run("strands_agents_tools")["run"]()
    gc.collect()  # while the warnings are ignored
    assert prompt == "AGENT.md is in the prompt: True"
    assert file == "file_read (success): Content of shelf.txt:\nParasyte 1-7"
    assert good == "http_request (success): Status Code: 200\nBody: in stock: 3"
    assert failed.startswith("http_request (error): ")
    assert stale.startswith("http_request (success): Note: http_request is unavailable")
    assert stale.endswith(good.partition(": ")[2])
    assert denied.startswith("use_aws (error): Operation canceled by user.")
    assert asked.startswith("handoff_to_user (success): ")


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_denied_calls_leave_the_breaker_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also calls of unknown users, each of which counts against a tool."""
    monkeypatch.delenv("BYPASS_TOOL_CONSENT", raising=False)
    recipe = run("strands_agents_tools")
    _, aws, _ = recipe["shop_tools"]()
    agent = calling_agent([aws], *[("use_aws", recipe["DELETION"])] * 6)
    agent("Delete the orders.")
    gc.collect()
    assert ["canceled by user" in str(r) for r in tool_results(agent.messages)] == [True] * 6
    assert aws.status()["state"] == "closed"


async def test_the_squad_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        await run("squad")["main"]()
    told = [f"{agent} {at}通目です。" for at in (1, 3) for agent in ("products", "orders")]
    assert capsys.readouterr().out.splitlines() == told


COMPOSE = (RECIPES / "compose/compose.yaml").read_text(encoding="utf-8")

OF_SERVICES = {
    "image", "working_dir", "volumes", "command", "ports", "environment", "depends_on",
    "healthcheck", "profiles",
}  # fmt: skip


def test_compose_names_services_that_are_there_and_starts_the_recipe() -> None:
    """Docker itself is not at hand: what its file says is read as Compose reads it."""
    services = yaml.safe_load(COMPOSE)["services"]
    chat = services["chat"]
    for name, condition in chat["depends_on"].items():
        assert condition == {"condition": "service_healthy"}
        assert set(services[name]["healthcheck"]) == {"test", "interval", "retries"}
    for service in services.values():
        assert set(service) <= OF_SERVICES
        assert all(isinstance(value, str) for value in service.get("environment", {}).values())
    host, inside, mode = chat["volumes"][0].split(":")
    assert (RECIPES / "compose" / host).resolve() == ROOT
    assert (inside, mode) == ("/clone", "ro")
    shell, option, script = shlex.split(chat["command"])
    assert (shell, option) == ("sh", "-c")
    installs, starts = (shlex.split(part) for part in script.split("&&"))
    assert installs == ["pip", "install", "-q", "/clone[postgres]", "fastapi", "uvicorn"]
    assert starts == ["uvicorn", "web_streaming:app", "--host", "0.0.0.0"]
    assert chat["working_dir"] == f"/clone/{RECIPES.relative_to(ROOT)}"


@pytest.fixture(
    params=[pytest.param("postgresql", marks=pytest.mark.xdist_group("postgres")), "dynamodb"]
)
def durable(request: pytest.FixtureRequest, unique: str) -> str:
    """The URL of a durable tier as Compose has it, save for host, port and name."""
    if request.param == "postgresql":
        server = request.getfixturevalue("postgres_server")
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{unique}"')
        printed = yaml.safe_load(COMPOSE)["services"]["chat"]["environment"][
            "MANGA_MEMORY_DURABLE_URL"
        ]
        assert printed == "postgresql://manga:manga@postgres:5432/manga"
        return str(server.url.replace("/postgres", f"/{unique}"))
    server = request.getfixturevalue("dynamodb_server")
    printed = COMPOSE.partition("# MANGA_MEMORY_DURABLE_URL: ")[2].splitlines()[0]
    assert "http://dynamodb:8000" in printed
    return str(
        printed.replace("http://dynamodb:8000", server.endpoint).replace("manga_memory", unique)
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_compose_sets_runs_on_the_servers_it_names(
    durable: str, monkeypatch: pytest.MonkeyPatch, valkey_server: servers.Valkey, unique: str
) -> None:
    set_by = yaml.safe_load(COMPOSE)["services"]["chat"]["environment"]
    assert MangaMemorySettings(
        durable_url=set_by["MANGA_MEMORY_DURABLE_URL"]
    ).durable_url.startswith("postgresql://")
    hot = set_by["MANGA_MEMORY_HOT_URL"].replace(
        "valkey:6379", f"{valkey_server.host}:{valkey_server.port}"
    )
    monkeypatch.setenv("MANGA_MEMORY_HOT_URL", f"{hot}?prefix={unique}")
    monkeypatch.setenv("MANGA_MEMORY_DURABLE_URL", durable)
    for expected in ("1通目です。", "3通目です。"):
        with TestClient(run("web_streaming")["app"]) as client:
            found = client.post("/chat/s1", content="hello", headers={"x-user": "hanako"}).text
            assert found == expected
