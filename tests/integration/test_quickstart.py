"""The quick start: its parts, and whole runs as a newcomer starts them."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.session.support import tool_result, tool_use

EXAMPLES = Path(__file__).parents[2] / "examples"
QUICKSTART = EXAMPLES / "quickstart.py"

pytestmark = pytest.mark.xdist_group(
    "quickstart"
)  # whole runs start many processes: one run at a time


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The modules of the example."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from mangaassist import checks, survival

    return SimpleNamespace(checks=checks, survival=survival)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"text": text}], "tracking_id": f"u-{text}"}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"text": text}], "tracking_id": f"a-{text}"}


def calls(*ids: str) -> dict[str, Any]:
    uses = [tool_use(name, "get_stock") for name in ids]
    return {"role": "assistant", "content": uses, "tracking_id": f"calls-{ids}"}


def results(*ids: str) -> dict[str, Any]:
    blocks = [tool_result(name, "{}") for name in ids]
    return {"role": "user", "content": blocks, "tracking_id": f"results-{ids}"}


# --- what the quick start checks by itself --------------------------------------------------------


def test_exact_restore(shop: SimpleNamespace) -> None:
    exactly = shop.checks.restored_exactly
    before = [user("1"), assistant("1"), user("2"), assistant("2")]
    cut = [*before, user("3"), calls("t1"), results("t1")]
    assert exactly(before, before)
    assert not exactly(before[:3], before)
    assert not exactly([*before, user("3")], before)  # nothing was in flight
    assert exactly(before, before, cut)
    assert exactly(cut, before, cut)
    assert exactly(
        [*before, user("3"), calls("t1"), results("t1"), assistant("interrupted")], before, cut
    )
    assert exactly([*before, user("3"), calls("t1")], before, cut)  # the request answers the call
    assert not exactly([*before, user("3"), results("t1")], before, cut)  # the call is missing
    assert not exactly([*before[2:], user("3")], before, cut)
    trimmed = [
        *before[2:],
        *cut[4:],
    ]  # the cut turn had dropped messages: saved before that, or after it
    assert exactly(cut, before, trimmed)
    assert exactly(trimmed, before, trimmed)
    assert not exactly([*before, user("other"), calls("t1"), results("t1")], before, cut)
    assert not exactly([*before, user("3"), assistant("4"), user("5"), assistant("6")], before, cut)


@pytest.mark.parametrize(
    "flaw",
    [
        {"tokens": [4097]},
        {"lost": [user("1")]},
        {"duplicates": 1},
        {"invalid_requests": ["request 1: ..."]},
        {"restarts": []},
        {"restarts": ["not exact"]},
    ],
    ids=str,
)
def test_a_run_fails_for_any_broken_promise(shop: SimpleNamespace, flaw: dict[str, Any]) -> None:
    restart = shop.survival.Restart("killed", exact=True, messages=4, seconds=1.0)
    good: dict[str, Any] = {"turns": 1, "tokens": [4096], "restarts": [restart]}
    assert shop.survival.Evidence(**good).passed
    if flaw.get("restarts"):
        flaw = {
            "restarts": [
                restart,
                shop.survival.Restart("killed", exact=False, messages=4, seconds=1.0),
            ]
        }
    assert not shop.survival.Evidence(**(good | flaw)).passed


# --- whole runs -----------------------------------------------------------------------------------


def start(folder: Path, *arguments: str, **options: Any) -> "subprocess.Popen[str]":
    """Start the script with ``folder`` for its temporary files and those of its children."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = {**os.environ, "TMPDIR": str(folder), "NO_COLOR": "1", "COLUMNS": "160"}
    command = [sys.executable, str(QUICKSTART), *arguments]
    return subprocess.Popen(
        command, text=True, encoding="utf-8", env=environment, **pipes, **options
    )


def processes_in(folder: Path) -> list[str]:
    """Return the command lines of all processes whose working directory is inside ``folder``."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "cwd").startswith(f"{folder}/"):
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue  # gone, or not ours
    return found


@pytest.mark.long
@pytest.mark.parametrize("backend", ["embedded", "services"])
def test_quickstart(backend: str, tmp_path: Path) -> None:
    script = start(tmp_path, "--backend", backend, "--turns", "12", "--json")
    out, err = script.communicate(timeout=115)
    assert script.returncode == 0, out + err
    result = json.loads(out.splitlines()[-1])
    assert result["turns"] == 12
    assert result["budget"] == 4096
    assert 0 < result["max_tokens_seen"] <= 4096
    assert result["token_unit"] == "tokens (cl100k)"
    assert result["log_tokens"] > 4096  # so that something had to go
    assert result["kept_tokens"] < result["log_tokens"]
    assert result["restored_exactly"] is True
    assert [restart["exact"] for restart in result["restarts"]] == [True, True, True]
    assert [restart["how"].split(",")[0] for restart in result["restarts"]] == [
        "killed in the middle of a turn",
        "killed between two turns",
        "closed in good order",
    ]
    assert result["messages_lost"] == result["messages_doubled"] == 0
    assert result["invalid_requests"] == []
    assert result["tool_calls"]["list_volumes"] >= 1
    if backend == "embedded":
        assert result["round_trips_per_turn"] == result["durable_requests_per_turn"] == 0
    else:
        assert 1 <= result["round_trips_per_turn"] <= 2
        assert result["durable_requests_per_turn"] > 0
        assert "from DynamoDB alone" in result["restarts"][2]["how"]
    assert result["facts_known"] == result["facts_stated"] == 6
    assert result["strands"]["messages_lost"] == 0
    assert result["strands"]["max_tokens_seen"] > 4096
    assert len(result["strands"]["restarts"]) == 3
    assert "SIGKILL to worker" in err
    assert "Strands' sliding window" in err
    assert out.count("\n") == 1  # progress and table are on stderr
    assert processes_in(tmp_path) == []
    assert list(tmp_path.glob("mangaassist-*")) == []


@pytest.mark.long
def test_store_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    script = start(tmp_path, "--durable", "mysql://host/db", "--json")
    out, err = script.communicate(timeout=60)
    assert script.returncode == 1
    assert "mysql://host/db" in err
    assert "accepted are sqlite://" in json.loads(out.splitlines()[-1])["error"]
    assert processes_in(tmp_path) == []


@pytest.mark.long
def test_interactive_conversation_survives_a_kill(tmp_path: Path) -> None:
    script = start(tmp_path, "--interactive")
    out, err = script.communicate("猫\n/kill\nlighthouse\n/quit\n", timeout=100)
    assert script.returncode == 0, out + err
    assert "猫と踏切番" in out
    assert "restored 4 messages exactly" in out
    assert "The Lighthouse Star Post" in out
    assert processes_in(tmp_path) == []


@pytest.mark.long
def test_interrupted_run_leaves_no_process_behind(tmp_path: Path) -> None:
    script = start(tmp_path, "--backend", "services", "--json", start_new_session=True)
    assert script.stderr is not None
    for line in script.stderr:
        if "SIGKILL" in line:  # the moment when one worker goes and the next one comes
            break
    assert len(processes_in(tmp_path)) >= 2  # Valkey, the emulator, and soon a worker
    os.killpg(script.pid, signal.SIGINT)
    out, err = script.communicate(timeout=60)
    assert script.returncode == 130, out + err
    assert "interrupted" in err
    assert processes_in(tmp_path) == []
    assert list(tmp_path.glob("mangaassist-*")) == []
