"""No choice of ids lets one conversation reach another by any operation."""

from typing import Any

import pytest

from strands_manga_memory import ConversationScope, CorruptRecordError
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
