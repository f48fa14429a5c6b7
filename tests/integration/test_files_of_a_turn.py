"""The way of one turn through the package enters few files, so that a newcomer can follow it."""

import json
from pathlib import Path

import pytest

from tests.support import printed_by

pytestmark = pytest.mark.xdist_group("files of a turn")  # its process is started once

CHILD = """
import json, sys, threading, time
from pathlib import Path

import strands_manga_memory
from strands import Agent
from strands.agent.conversation_manager import SlidingWindowConversationManager
from strands_manga_memory import TieredSessionManager
from strands_manga_memory.testing import ScriptedModel

ROOT = Path(strands_manga_memory.__file__).parent
entered = set()


def note(frame, event, argument):
    path = Path(frame.f_code.co_filename)
    if event == "call" and path.is_relative_to(ROOT) and path.name != "testing.py":
        entered.add(str(path.relative_to(ROOT)))


def agent():
    return Agent(
        model=ScriptedModel(["Yes, we have it."] * 9),
        session_manager=TieredSessionManager("s", durable=f"sqlite:///{sys.argv[1]}/b.sqlite3"),
        conversation_manager=SlidingWindowConversationManager(40),
        callback_handler=None,
    )


def files_of(work):
    entered.clear()
    work()
    known = -1
    while known != len(entered):  # work in the background belongs to the turn
        known = len(entered)
        time.sleep(0.5)
    return sorted(entered)


threading.setprofile(note)
sys.setprofile(note)
first = agent()
first("Is volume 1 in stock?")
found = {"saved turn": files_of(lambda: first("And volume 2?")), "restored agent": files_of(agent)}
sys.setprofile(None)
print(json.dumps(found))
"""


@pytest.mark.parametrize("way", ["saved turn", "restored agent"])
def test_a_turn_enters_at_most_25_files(ways: dict[str, list[str]], way: str) -> None:
    assert {
        "session/tiered_manager.py",
        "session/protocol/durable_tier.py",
        "stores/sqlite.py",
    } <= set(ways[way])
    assert len(ways[way]) <= 25, ways[way]


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Files of the package that are entered, by part of a conversation."""
    folder: Path = tmp_path_factory.mktemp("ways")
    found: dict[str, list[str]] = json.loads(printed_by("-c", CHILD, folder).splitlines()[-1])
    return found
