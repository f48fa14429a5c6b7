"""Garbage and memory of live agents, of which a server may hold thousands."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.integration import footprint_child
from tests.support import printed_by

pytestmark = pytest.mark.xdist_group("footprint")  # its servers and processes are started once


@pytest.fixture(scope="module")
def told(valkey_server: servers.Valkey, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder, program = tmp_path_factory.mktemp("told"), footprint_child.__file__
    root = Path(__file__).parents[2]
    return dict(json.loads(printed_by("-W", "error", program, folder, valkey_server.url, cwd=root)))


def test_a_turn_leaves_nothing_to_the_garbage_collector(told: dict[str, Any]) -> None:
    """Also a failed save: an error's frames must not hold the error."""
    assert told["garbage"].pop("let go") == {}, "a dropped agent is freed"
    assert told["garbage"] == {"texts": {}, "tools": {}, "everything": {}, "a tier is down": {}}


def test_a_live_agent_of_sixty_messages_is_small(told: dict[str, Any]) -> None:
    assert len(told["size"]["tables"]) <= 1
    assert 30 < told["size"]["kb"] <= 160, told["size"][
        "most"
    ]  # the records of its messages would be 35 KB more
    assert 100 < told["size"]["objects"] <= 420, "what the garbage collector would have to look at"
