"""The end of the interpreter: what is pending is saved, unless the process is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.faults import talk
from tests.faults.conftest import NewProcess
from tests.faults.kill import Stores

PROGRAM = """
import sys
from strands.hooks import BeforeModelCallEvent
from tests.faults import talk
from tests.faults.kill import Stores

sessions = Stores({hot!r}, {durable!r}).manager({session!r}, flush_every=5)
agent = talk.new_agent(sessions)
agent("t0 tool")
{end}
"""

NORMAL = "agent.tool.lookup(query='direct')"
IN_A_TURN = """
def leave(event):
    sys.exit(3)

agent.hooks.add_callback(BeforeModelCallEvent, leave)
agent("t1 text")
"""
FORGOTTEN = """
agent.tool.lookup(query='direct')
del agent, sessions
"""


@pytest.mark.parametrize(
    ("end", "code", "pending"),
    [
        (NORMAL, 0, "direct"),
        (IN_A_TURN, 3, "t1 text"),
        (FORGOTTEN, 0, "direct"),
    ],
    ids=["normal", "sys_exit in a turn", "forgotten"],
)
def test_what_is_pending_is_saved_at_exit(
    new_process: NewProcess, sqlite: Stores, unique: str, end: str, code: int, pending: str
) -> None:
    program = PROGRAM.format(hot=sqlite.hot, durable=sqlite.durable, session=unique, end=end)
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=os.getcwd())
    assert found.returncode == code, found.stderr
    restored = new_process(sqlite)
    log = restored.log()
    assert sum(pending in str(message["content"]) for message in log) >= 1
    assert len({message["tracking_id"] for message in log}) == len(log) in (5, 8)
    # A turn that ends with an error is not cut: it comes back as the agent had it, and Strands takes the next message after it.
    assert talk.problems(restored.agent.messages) == (
        ["the last message is user:[{'text': 't1 text'}]"] if end == IN_A_TURN else []
    )
    restored.agent("t2 tool")
    assert talk.marks(restored.agent.messages) >= Counter(talk.wanted_marks("t2", "tool"))
