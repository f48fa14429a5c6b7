"""Sessions are listed, and no choice of ids lets one conversation reach another."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strands_manga_memory import ConversationScope, CorruptRecordError, MangaMemory
from strands_manga_memory.testing import FakeClock, ScriptedModel
from tests.support import finish_writes
from tests.unit.session.support import NASTY, Stores, agent, texts


def test_sessions_do_not_cross(both: Stores) -> None:
    for number, id_ in enumerate(NASTY):
        live = both.agent(session=f"{both.session}{id_}")
        live(f"in session {number}")
        live._session_manager.set_metadata(number=number)
        live._session_manager.flush()
    for number, id_ in enumerate(NASTY):
        manager = both.manager(f"{both.session}{id_}")
        assert manager.exists()
        assert texts(manager.history()) == [f"in session {number}", "ok"]
        assert manager.metadata()["number"] == number
        assert texts(agent(manager).messages) == [f"in session {number}", "ok"]
    for gone, id_ in enumerate(NASTY):
        both.manager(f"{both.session}{id_}").delete_session()
        for number in range(gone, len(NASTY), 7):
            assert both.manager(f"{both.session}{NASTY[number]}").exists() == (number > gone)
    assert not any(both.manager(f"{both.session}{id_}").exists() for id_ in NASTY)


def test_agents_do_not_cross(both: Stores) -> None:
    ids = [id_ for id_ in NASTY if "/" not in id_ and "\x00" not in id_]
    manager = both.manager(flush_every=1)
    live = [agent(manager, agent_id=id_) for id_ in ids]
    for turn in range(2):
        for number, each in enumerate(live):
            each(f"turn {turn} of agent {number}")
    manager.flush()
    manager = both.manager()
    for number, id_ in enumerate(ids):
        expected = [f"turn 0 of agent {number}", "ok", f"turn 1 of agent {number}", "ok"]
        assert texts(manager.history(id_)) == expected
        assert texts(agent(manager, agent_id=id_).messages) == expected
        assert manager.stats(id_)["turns"] == 2


def test_scopes_do_not_cross(both: Stores) -> None:
    name = both.session
    scopes = [
        ConversationScope(name, "s"),
        ConversationScope(name, "s", tenant="t"),
        ConversationScope(name, "s", tenant="T"),
        ConversationScope(f"t:{name}", "s"),
        ConversationScope(f"{name}:s", "s"),
        ConversationScope(name, "s:s"),
        ConversationScope(name, "s", "librarian"),
        ConversationScope("s", name),
        ConversationScope(name, "s", tenant="t:t"),
        ConversationScope(name, "s", tenant="日本"),
    ]
    for number, scope in enumerate(scopes):
        live = both.agent(session=scope, agent_id=scope.agent_id)
        live(f"in scope {number}")
        live._session_manager.flush()
    plain = both.agent(session=f"{name}:s")
    plain("plain")
    for number, scope in enumerate(scopes):
        manager = both.manager(scope)
        assert texts(manager.history()) == [f"in scope {number}", "ok"]
        assert texts(agent(manager, agent_id=scope.agent_id).messages) == [
            f"in scope {number}",
            "ok",
        ]
    both.manager(scopes[1]).delete_session()
    left = [number for number, scope in enumerate(scopes) if both.manager(scope).exists()]
    assert left == [number for number in range(len(scopes)) if number != 1]
    assert both.manager(f"{name}:s").exists()


def test_a_record_of_other_ids_is_refused(both: Stores) -> None:
    """After a SHA-256 collision the second id is refused without a write."""
    first = both.agent(session="z" * 300 + both.session)
    first("mine")
    first._session_manager.flush()
    manager = both.manager("z" * 300 + both.session + "x")
    manager._storage_id = first._session_manager._storage_id
    with pytest.raises(CorruptRecordError, match="belongs to other ids"):
        agent(manager)
    with pytest.raises(CorruptRecordError, match="belongs to other ids"):
        manager.exists()
    assert texts(first._session_manager.history()) == ["mine", "ok"]


@pytest.mark.parametrize("id_", ["", "  ", "x" * 1025, 7, None, b"a", "\ud800"])
def test_bad_agent_ids_are_refused(both: Stores, id_: Any) -> None:
    manager = both.manager()
    if id_ is None:
        assert not manager.exists(None)
        return
    for look in (
        manager.exists,
        manager.stats,
        manager.metadata,
        lambda agent_id: list(manager.history(agent_id)),
    ):
        with pytest.raises(ValueError, match="agent_id must"):
            look(id_)


CLOCK = FakeClock(1_790_000_000.0)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[MangaMemory]:
    opened = MangaMemory.open(durable=f"sqlite:///{tmp_path}/shop.sqlite3", clock=CLOCK)
    yield opened
    opened.close()


def talk(memory: MangaMemory, user: str, session: str, *texts: str, **settings: Any) -> None:
    agent = memory.agent(ScriptedModel(), user_id=user, session_id=session, **settings)
    for text in texts:
        agent(text)
        CLOCK.advance(60)
    agent._session_manager.close()
    finish_writes(None, memory.durable)


def test_sessions_are_listed_with_title_turns_and_last_use(memory: MangaMemory) -> None:
    talk(
        memory,
        "u1",
        "a",
        "hello",
        "Where is my order 17? My card is 4111 1111 1111 1111.",
        "thanks",
    )
    talk(memory, "u1", "b", "Do you have Uzumaki?")
    talk(memory, "u2", "c", "hi")
    page = memory.sessions("u1")
    assert [(each.session_id, each.turns) for each in page.sessions] == [("b", 1), ("a", 3)]
    assert page.sessions[0].title == "Do you have Uzumaki?"
    assert page.sessions[1].title.startswith("Where is my order 17?")
    assert "4111" not in page.sessions[1].title
    assert page.sessions[0].last_used > page.sessions[1].last_used
    assert page.next is None
    assert memory.sessions("nobody").sessions == ()


def test_pages_hold_every_session_and_every_user_once(memory: MangaMemory) -> None:
    for number in range(5):
        talk(memory, "u1", f"s{number}", "hello")
        talk(memory, f"user {number}", "s", "hello", tenant="acme" if number % 2 else None)
    found: list[str] = []
    after: str | None = None
    while True:
        page = memory.sessions("u1", limit=2, after=after)
        found += [each.session_id for each in page.sessions]
        if (after := page.next) is None:
            break
    assert sorted(found) == ["s0", "s1", "s2", "s3", "s4"]
    users: list[tuple[str, str | None, int]] = []
    while True:
        listed = memory.users(limit=2, after=after)
        users += [(each.user_id, each.tenant, each.sessions) for each in listed.users]
        if (after := listed.next) is None:
            break
    assert len(users) == 6
    assert ("u1", None, 5) in users
    assert ("user 1", "acme", 1) in users
    with pytest.raises(ValueError, match="limit must be"):
        memory.sessions("u1", limit=0)


def test_deleted_session_leaves_the_list_and_takes_its_state_along(memory: MangaMemory) -> None:
    talk(memory, "u1", "a", "Where is order 503-1234567-1234567?", task_state=True)
    talk(memory, "u1", "b", "hello")
    memory.changes(user_id="u1", session_id="a").publish()
    memory.delete_session("u1", "a")
    assert [each.session_id for each in memory.sessions("u1").sessions] == ["b"]
    assert [each.sessions for each in memory.users().users] == [1]
    model = ScriptedModel()
    agent = memory.agent(model, user_id="u1", session_id="a", task_state=True)
    agent("Can you cancel it?")
    assert len(model.requests[-1].messages) == 1
    assert "503" not in str(model.requests[-1].messages)


@pytest.mark.parametrize("lost", [("state", "member"), ("data",)])
def test_damaged_session_is_listed_as_damaged(tmp_path: Path, lost: tuple[str, ...]) -> None:
    with MangaMemory.open(durable=f"sqlite:///{tmp_path}/m.db") as memory:
        talk(memory, "u1", "a", "Do you have Uzumaki?")
        talk(memory, "u1", "b", "Do you have Berserk?")
    with MangaMemory.open(durable=f"sqlite:///{tmp_path}/m.db") as memory:
        (head,) = (
            row
            for row in memory.durable.query(ConversationScope("u1", "b").storage_session_id)
            if row["sk"].endswith("#HEAD")
        )
        memory.durable.put({name: value for name, value in head.items() if name not in lost})
        listed = {each.session_id: each for each in memory.sessions("u1").sessions}
        assert (listed["a"].title, listed["a"].is_damaged) == ("Do you have Uzumaki?", False)
        assert (listed["b"].turns, listed["b"].is_damaged) == (0, True)
        memory.delete_session("u1", "b")
        assert [each.session_id for each in memory.sessions("u1").sessions] == ["a"]


def test_lists_and_deletion_work_off_the_event_loop(memory: MangaMemory) -> None:
    talk(memory, "u1", "a", "hello")

    async def work() -> tuple[int, int, int]:
        before, users = await memory.sessions_async("u1"), await memory.users_async()
        await memory.delete_session_async("u1", "a")
        return (
            len(before.sessions),
            len(users.users),
            len((await memory.sessions_async("u1")).sessions),
        )

    assert asyncio.run(work()) == (1, 1, 0)
