"""Two processes on one session: every message once, every turn whole."""

from __future__ import annotations

import os
import traceback
from collections import Counter

import pytest

from tests.faults import kill, talk

TURNS = 25


def _talk(stores: kill.Stores, name: str, go: int, done: int) -> None:
    manager = stores.manager("shared")
    agent = talk.new_agent(manager)
    os.write(done, b"r")
    os.read(go, 1)
    for number in range(TURNS):
        agent(f"{name}{number} {'tool' if number % 5 == 0 else 'text'}")
    manager.close()
    os.write(done, b"d")


@pytest.mark.parametrize("backend", ["services", "sqlite"])
def test_twenty_five_turns_each_interleaved(backend: kill.Backend) -> None:
    with kill.running(backend) as stores:
        go, done = os.pipe(), os.pipe()
        children = []
        for name in ("a", "b"):
            pid = os.fork()
            if pid == 0:
                try:
                    _talk(stores, name, go[0], done[1])
                except BaseException:
                    os.write(done[1], b"e")
                    traceback.print_exc()
                finally:
                    os._exit(0)
            children.append(pid)
        assert [os.read(done[0], 1) for _ in children] == [b"r", b"r"]
        os.write(go[1], b"gg")
        assert [os.read(done[0], 1) for _ in children] == [b"d", b"d"]
        for pid in children:
            os.waitpid(pid, 0)

        manager = stores.manager("shared")
        log = list(manager.history("librarian"))
        wanted = [
            mark
            for name in ("a", "b")
            for number in range(TURNS)
            for mark in talk.wanted_marks(f"{name}{number}", "tool" if number % 5 == 0 else "text")
        ]
        found = talk.marks(log)
        assert found - Counter(wanted) == Counter()
        assert Counter(wanted) - found == Counter()
        assert len(log) == 2 * (TURNS * 2 + TURNS // 5 * 2)
        assert talk.split_pairs(log) == []
        order = [int(text.split()[0][1:]) for message in log for text in talk.texts(message) if text.startswith("a")]
        assert order == sorted(order)

        agent = talk.new_agent(manager)
        assert talk.problems(agent.messages) == []
        agent("c0 tool")
        assert talk.problems(agent.messages) == []
        manager.close()
