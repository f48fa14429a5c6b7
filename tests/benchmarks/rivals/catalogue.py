"""Rivals, and their environments."""

import importlib.metadata
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
_STRANDS = "strands-agents==1.62.0"


@dataclass(frozen=True)
class Rival:
    """Session manager in the comparison.

    Args:
        name: Name in the table.
        adapter: Function or class in ``driver.py``.
        packages: Packages to install, the rival first; none: it is in this environment.
        stores: Stores of the rival: ``redis``, ``dynamodb``, ``files``.
        note: Remark about its setup.
        remembers_window: Whether the rival restores an agent's window; the others store lists and
            leave trimming to the agent.
        expires: Whether the rival has a time to live.
    """

    name: str
    adapter: str
    packages: tuple[str, ...] = ()
    stores: tuple[str, ...] = ("files",)
    note: str = ""
    remembers_window: bool = True
    expires: bool = False


RIVALS = (
    Rival("strands_manga_memory", "ours", stores=("redis", "dynamodb"), expires=True),
    Rival("Strands FileSessionManager", "strands_file"),
    Rival("Strands SnapshotSessionManager", "strands_snapshot", note="with LocalFileStorage"),
    Rival(
        "strands-dynamodb-storage (AWS)",
        "aws_storage",
        ("strands-dynamodb-storage==0.2.0", _STRANDS),
        ("dynamodb",),
        "used by SnapshotSessionManager, without `s3_bucket`, so without values over 380 KB",
        expires=True,
    ),
    Rival(
        "strands-redis-session-manager",
        "redis_session",
        ("strands-redis-session-manager==0.1.0", _STRANDS),
        ("redis",),
        expires=True,
    ),
    Rival(
        "strands-valkey-session-manager",
        "valkey_session",
        ("strands-valkey-session-manager==0.1.0", _STRANDS),
        ("redis",),
        "with GET and SET instead of JSON.GET and JSON.SET, as the server has no RedisJSON",
    ),
    Rival(
        "strands-dynamodb-session-manager",
        "dynamodb_session",
        ("strands-dynamodb-session-manager==0.2.0", _STRANDS),
        ("dynamodb",),
        expires=True,
    ),
    Rival("bedrock-agentcore", "agentcore", ("bedrock-agentcore==1.25.0", _STRANDS), ()),
    Rival(
        "openai-agents RedisSession",
        "openai_session",
        ("openai-agents[redis]==0.24.0",),
        ("redis",),
        "each turn calls get_items once and add_items twice, as its runner does",
        remembers_window=False,
        expires=True,
    ),
    Rival(
        "langgraph-checkpoint-aws",
        "langgraph_aws",
        ("langgraph-checkpoint-aws==1.2.6", "langgraph"),
        ("dynamodb",),
        "`DynamoDBSaver`, called synchronously, without `s3_offload_config`",
        remembers_window=False,
        expires=True,
    ),
    Rival(
        "langgraph-checkpoint-plainredis",
        "langgraph_redis",
        ("langgraph-checkpoint-plainredis==0.1.0", "langgraph"),
        ("redis",),
        (
            "called synchronously, instead of langgraph-checkpoint-redis, which needs RedisJSON and"
            " RediSearch"
        ),
        remembers_window=False,
        expires=True,
    ),
)


def folder_of(rival: Rival) -> Path:
    return ROOT / "build" / "rivals" / rival.packages[0].partition("=")[0].partition("[")[0]


def python_of(rival: Rival) -> Path:
    return folder_of(rival) / "bin" / "python" if rival.packages else Path(sys.executable)


def installed(rival: Rival) -> tuple[str, str]:
    """Install a rival if necessary; return its version, and the reason of a failure."""
    if not rival.packages:
        name = "strands-manga-memory" if rival.adapter == "ours" else "strands-agents"
        return importlib.metadata.version(name), ""
    mark = folder_of(rival) / "installed"
    wanted = " ".join(rival.packages)
    if not mark.exists() or mark.read_text() != wanted:
        here = f"{sys.version_info.major}.{sys.version_info.minor}"
        steps = [
            [
                "uv",
                "venv",
                "--quiet",
                "--clear",
                "--seed",
                "--python",
                sys.executable,
                str(folder_of(rival)),
            ],
            # Not by uv: one of them declares a later Python than it needs.
            [
                str(python_of(rival)),
                "-m",
                "pip",
                "install",
                "--quiet",
                "--ignore-requires-python",
                *rival.packages,
            ],
        ]
        for step in steps:
            done = subprocess.run(step, capture_output=True, text=True, check=False, timeout=300)
            if done.returncode:
                lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
                return "", f"not installed on Python {here}: {lines[-1][:120]}"
        mark.write_text(wanted)
    return rival.packages[0].partition("==")[2], ""
