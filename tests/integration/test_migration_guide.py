"""The diffs of the migration guide run on both sides."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws
from strands import Agent
from strands.session import SnapshotSessionManager

from strands_manga_memory.testing import ScriptedModel
from tests import servers
from tests.unit.session.support import same

GUIDE = (Path(__file__).parents[2] / "strands_manga_memory/guide/migration.md").read_text(
    encoding="utf-8"
)
DIFFS = re.findall(r"```diff\n(.*?)```", GUIDE, re.DOTALL)
NAMES = ["sliding", "summarizing", "files", "s3", "snapshots", "auto"]


@pytest.fixture
def aws(dynamodb_server: servers.DynamoDB, monkeypatch: pytest.MonkeyPatch) -> None:
    """DynamoDB of the diffs, on a server of this machine."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", dynamodb_server.endpoint)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """S3 with the bucket of the diffs, in this process."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        boto3.client("s3").create_bucket(Bucket="sessions")
        yield


def side(diff: str, sign: str) -> str:
    return "\n".join(line[2:] for line in diff.splitlines() if line.startswith(sign))


def test_each_diff_is_short() -> None:
    assert len(DIFFS) == len(NAMES)
    assert max(len(diff.splitlines()) for diff in DIFFS) <= 4


@pytest.mark.filterwarnings("ignore:.*experimental.*")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("sign", ["-", "+"])
def test_both_sides_of_each_diff_run(
    name: str,
    sign: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    if name == "s3":
        request.getfixturevalue("bucket" if sign == "-" else "aws")
    monkeypatch.chdir(tmp_path)
    given: dict[str, Any] = {"Agent": Agent, "SnapshotSessionManager": SnapshotSessionManager}
    given["model"] = ScriptedModel(["はい"])
    exec(side(DIFFS[NAMES.index(name)], sign), given)
    agent = given["agent"]
    agent("こんにちは")
    assert len(agent.messages) == 2
    if name not in ("sliding", "summarizing", "auto"):
        exec(side(DIFFS[NAMES.index(name)], sign), given)
        assert same(given["agent"].messages, agent.messages)
