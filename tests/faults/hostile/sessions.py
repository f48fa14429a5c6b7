"""Sessions: an agent gets drawn values, its process dies, another one must find all."""

import copy
import json
import random
import uuid
from collections.abc import Callable
from typing import Any

from strands import Agent
from strands.agent.conversation_manager import NullConversationManager

from strands_manga_memory import ConversationScope, MangaMemory
from strands_manga_memory.stores.codec import dump
from strands_manga_memory.testing import ScriptedModel
from tests.faults.hostile import draws
from tests.support import UNREADABLE_TEXT

Open = Callable[[], MangaMemory]
"""Opens the stores as another process would."""

Case = dict[str, Any]
"""What is done to a session: ``messages``, ``state``, ``metadata``, ``memories`` and whether to
``damage`` a message.
"""


def drawn(rng: random.Random) -> Case:
    """Return a case."""
    return {
        "messages": [message for _ in range(rng.randrange(1, 3)) for message in draws.turn(rng)],
        "state": {f"k{n}": draws.value(rng, draws.STATE_LEAVES) for n in range(rng.randrange(3))},
        "memories": [draws.value(rng, draws.LEAVES, levels=150) for _ in range(rng.randrange(2))],
        "damage": rng.random() < 0.3,
    }


def played(case: Case, open_: Open) -> None:
    """Play a case; raise ``AssertionError``, or an escaping error, if a part is missing."""
    user = f"u{uuid.uuid4().hex[:10]}"
    scope, other = (ConversationScope(user, session, tenant="t") for session in ("s", "other"))
    memory = open_()
    _agent(memory, other)("the user's other session")
    agent = _agent(memory, scope, copy.deepcopy(case["messages"]))
    for key, value in case["state"].items():
        agent.state.set(key, value)
    agent("and now?")
    for value in case["memories"]:
        _remember(memory, user, value)
    accepted, state = list(map(dump, agent.messages)), dump(agent.state.get())
    memory.close()
    if case["damage"]:
        _damage(open_(), scope)
    restored = _agent(memory := open_(), scope)
    if case["damage"]:
        marks = [m for m in restored.messages if m["content"] == [{"text": UNREADABLE_TEXT}]]
        assert marks, "what was damaged is not marked"
    else:
        assert list(map(dump, restored.messages)) == accepted, "messages are restored differently"
    assert dump(restored.state.get()) == state, "the state is restored differently"
    _uses(memory, scope, user)
    assert len(_agent(memory, other).messages) == 2, "another session is not as it was"
    memory.close()


def _agent(
    memory: MangaMemory, scope: ConversationScope, messages: list[Any] | None = None
) -> Agent:
    arguments = memory.agent_kwargs(
        user_id=scope.user_id, session_id=scope.session_id, tenant=scope.tenant
    )
    arguments["conversation_manager"] = NullConversationManager()
    return Agent(
        model=ScriptedModel(usage=lambda messages: 1),
        messages=messages,
        callback_handler=None,
        **arguments,
    )


def _remember(memory: MangaMemory, user: str, value: Any) -> None:
    try:
        memory.user(user, tenant="t").remember("likes horror", metadata={"value": value})
    except ValueError as refused:
        if "metadata must be" not in str(refused):
            raise


def _damage(memory: MangaMemory, scope: ConversationScope) -> None:
    """Damage a turn of the log, where the hot tier has gone."""
    table: Any = memory.durable
    rows = [
        row
        for row in table.query(scope.storage_session_id)
        if "#TURN#" in str(row["sk"]) and "~" not in str(row["sk"])
    ]
    if not rows:
        return  # so few turns that the head holds them
    row = rows[0]
    name = "data" if "data" in row else "turn"
    table.put({**row, name: row[name][:-1]})
    hot: Any = memory.hot
    name = f"{scope.storage_session_id}/A:{scope.agent_id}"
    record = hot.load(name, [], touch=False)
    if record is not None:
        hot.claim(name, expired_only=False)
        claimed = hot.load(name, [], touch=False)
        hot.drop(name, expect=(claimed.epoch, claimed.version))


def _uses(memory: MangaMemory, scope: ConversationScope, user: str) -> None:
    session = memory.session(scope)
    assert list(session.history()), "the log is empty"
    assert session.exists(), "the session is not there"
    assert session.stats()["turns"] >= 1
    exported = memory.export_user(user, tenant="t")
    assert len(exported["sessions"]) == 2, "a session is missing from the export"
    json.dumps(exported)
    assert memory.user(user, tenant="t").recall() is not None
    memory.user(user, tenant="t").build_agent_context()
    memory.finalize(scope)


def shrunk(case: Case, fails: Callable[[Case], bool]) -> Case:
    """Return a smaller case that fails too: less of everything, one thing at a time."""
    smaller = True
    while smaller:
        smaller = False
        for less in _smaller(case):
            if fails(less):
                case, smaller = less, True
                break
    return case


def _smaller(case: Case) -> list[Case]:
    found = [
        {**case, name: case[name][:at] + case[name][at + 1 :]}
        for name in ("messages", "memories")
        for at in range(len(case[name]))
    ]
    found += [
        {**case, "state": {k: v for k, v in case["state"].items() if k != key}}
        for key in case["state"]
    ]
    return [*found, {**case, "damage": False}] if case["damage"] else found
