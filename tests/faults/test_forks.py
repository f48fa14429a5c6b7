"""Processes that fork after the first use: parent and child go on as two writers."""

import threading
from typing import Any

import pytest

from strands_manga_memory import DynamoDBTable, open_table
from strands_manga_memory.exceptions import StoreUnavailableError
from tests.faults import talk
from tests.faults.conftest import NewProcess, check_turns
from tests.faults.forks import Child, forked_child, result_of_child
from tests.faults.talk import Stores

TURNS = 10


def test_parent_and_child_both_go_on(new_process: NewProcess, stores: Stores) -> None:
    process = new_process(stores)
    process.agent("t0 tool")

    def work(parent: Child) -> None:
        for number in range(TURNS):
            process.agent(f"c{number} tool")
            parent.say(made=number)
            parent.hear("go")
        process.manager.flush()
        process.agent("end text")  # its history has all turns of the parent in full
        parent.say(done=talk.problems(process.agent.messages))

    child = forked_child(work)
    for number in range(TURNS):
        process.agent(f"p{number} parallel")
        child.hear("made")
        child.say(go=True)
    assert child.hear("done")["done"] == []
    assert child.end() == []
    process.agent("last text")
    told = [
        (f"{who}{number}", kind)
        for who, kind in (("c", "tool"), ("p", "parallel"))
        for number in range(TURNS)
    ]
    process.manager.flush()
    check_turns(new_process, stores, ("t0", "tool"), *told, ("end", "text"), ("last", "text"))


def test_a_fork_while_messages_are_unsaved_leaves_them_to_the_parent(
    new_process: NewProcess, stores: Stores
) -> None:
    process = new_process(stores)
    process.agent("t0 text")
    process.agent.tool.lookup(query="direct")  # saved a second later, or with the next turn

    def work(parent: Child) -> None:
        process.agent.tool.lookup(query="by the child")
        process.agent("c0 text")
        process.manager.flush()
        parent.say(done=talk.problems(process.agent.messages))

    child = forked_child(work)
    assert child.hear("done")["done"] == []
    child.end()
    process.agent("p0 text")
    process.manager.flush()
    log = new_process(stores).log()
    texts = [text for message in log for text in talk.texts(message)]
    assert sum('"query": "direct"' in text for text in texts) == 1
    assert sum('"query": "by the child"' in text for text in texts) == 1
    assert all(count == 1 for count in talk.marks(log).values())
    assert talk.split_pairs(log) == []


def test_a_child_of_a_busy_parent_hangs_on_no_lock(new_process: NewProcess, stores: Stores) -> None:
    """The writer's threads work at the fork, and do not exist in the child."""
    process = new_process(stores)
    process.agent("t0 text")
    for number in range(8):
        process.agent.tool.lookup(query=f"q{number}")
        process.manager._conversations["A", "librarian"].saver.request_flush()

        def work(parent: Child, number: int = number) -> None:
            process.manager.set_metadata("librarian", locale="ja")
            process.agent(f"c{number} text")
            parent.say(history=len(process.log()), stats=process.stats()["unsaved_messages"])

        child = forked_child(work)
        assert child.hear("stats")["stats"] == 0
        child.end()
    process.agent("p0 text")
    process.manager.flush()
    log = new_process(stores).log()
    wanted = [
        mark
        for tag in ("t0", *(f"c{n}" for n in range(8)), "p0")
        for mark in talk.wanted_marks(tag, "text")
    ]
    found = talk.marks(log)
    assert [mark for mark in wanted if found[mark] != 1] == []
    assert sum(count for mark, count in found.items() if mark.startswith("use:")) == 8
    assert talk.split_pairs(log) == []


def test_a_fork_while_a_thread_holds_the_lock_of_the_connections_to_dynamodb(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    table = open_table("dynamodb://table?region=us-east-1&endpoint=http://127.0.0.1:9")
    assert isinstance(table, DynamoDBTable)
    client: Any = table.client
    lock = client._endpoint.http_session._manager.pools.lock
    held, is_over = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            is_over.wait()

    def use() -> str:
        with pytest.raises(StoreUnavailableError):  # nothing listens at the address
            table.get("p", "k")
        return "ended"

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    try:
        assert result_of_child(use) == "ended"
    finally:
        is_over.set()
        holder.join()
        table.close()
