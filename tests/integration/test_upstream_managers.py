"""Upstream's conversation managers are restored exactly, from both tiers."""

from collections.abc import Callable
from typing import Any

import pytest
from strands.agent.conversation_manager import (
    ConversationManager,
    NullConversationManager,
    SlidingWindowConversationManager,
    SummarizingConversationManager,
)
from strands.agent.conversation_manager.compression.pin_message import pin_message
from strands.storage import InMemoryStorage
from strands.types.exceptions import ContextWindowOverflowException
from strands.vended_plugins.context_offloader import ContextOffloader

from strands_manga_memory import ImportanceWeightedConversationManager
from strands_manga_memory.testing import ScriptedModel
from tests.support import stub_tool
from tests.unit.session.support import (
    Stores,
    check_restored,
    find,
    open_stores,
    same,
    texts,
    tool_turns,
    tool_use,
)

MANAGERS: dict[str, Callable[[], ConversationManager]] = {
    "ours": lambda: ImportanceWeightedConversationManager(120),
    "sliding every second call": lambda: SlidingWindowConversationManager(
        window_size=5, per_turn=2
    ),
    "sliding ahead of time": lambda: SlidingWindowConversationManager(
        window_size=6, proactive_compression=True
    ),
    "none": NullConversationManager,
    "sliding": lambda: SlidingWindowConversationManager(6),
    "sliding, first pinned": lambda: SlidingWindowConversationManager(6, pin_first=2),
    "sliding in turn": lambda: SlidingWindowConversationManager(5, per_turn=True),
    "sliding, empty": lambda: SlidingWindowConversationManager(0),
    "summarizing": lambda: SummarizingConversationManager(
        summary_ratio=0.5, preserve_recent_messages=2
    ),
    "summarizing, first pinned": lambda: SummarizingConversationManager(
        summary_ratio=0.5, preserve_recent_messages=2, pin_first=1
    ),
}


VARIANTS = {
    "sliding, first pinned",
    "sliding, empty",
    "sliding in turn",
    "summarizing, first pinned",
}
"""Managers that differ in one setting from another of the suite: they are long."""


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        *(
            pytest.param("valkey+sqlite", name, marks=pytest.mark.long if name in VARIANTS else ())
            for name in MANAGERS
        ),
        ("valkey", "ours"),
        ("sqlite", "sliding"),
    ],
)
def test_managers_restore_exactly(request: pytest.FixtureRequest, shape: str, name: str) -> None:
    stores = open_stores(shape, request)
    script = tool_turns()
    if name.startswith("summarizing"):
        script = _overflowing(script, every=7)
    live = stores.agent(script, tools=[find], conversation_manager=MANAGERS[name]())
    for number in range(12):
        live(f"question {number}")
        restored = check_restored(stores, live, build=MANAGERS[name])
        assert restored.conversation_manager.get_state() == live.conversation_manager.get_state()
        if number % 4 == 3:  # go on as a new process
            live = stores.agent(script, tools=[find], conversation_manager=MANAGERS[name]())
    log = texts(live._session_manager.history())
    assert [t for t in log if t.startswith("question")] == [f"question {n}" for n in range(12)]
    assert len(log) == 12 * 2 + 4 * 2


def _overflowing(script: ScriptedModel, *, every: int) -> ScriptedModel:
    calls = 0

    def reply(messages: Any) -> Any:
        nonlocal calls
        if "summarize" in str(messages[-1]).lower():
            return f"summary number {calls}"
        calls += 1
        if calls % every == 0:
            return ContextWindowOverflowException("too long")
        return script._reply(messages)

    return ScriptedModel(reply)


def test_pins_in_the_middle_and_their_flags(both: Stores) -> None:
    live = both.agent(conversation_manager=SlidingWindowConversationManager(4))
    for number in range(6):
        live(f"question {number}")
        if number == 1:
            pin_message(live.messages, 3)
            live._session_manager.flush()
        check_restored(both, live, build=lambda: SlidingWindowConversationManager(4))
    assert "ok" in texts(live.messages)[:1]
    assert live.messages[0]["metadata"]["custom"]["pinned"] is True


catalogue = stub_tool("catalogue", "one volume after another, " * 2000)


@pytest.mark.filterwarnings("ignore:.*experimental.*")
@pytest.mark.filterwarnings("ignore:.*context_manager.*")
@pytest.mark.parametrize(
    ("settings", "again", "is_logged_whole"),
    [
        ({"context_manager": "auto"}, {"context_manager": "auto"}, True),
        ({"plugins": [ContextOffloader(storage=InMemoryStorage())]}, {}, False),
    ],
    ids=["context manager", "offloader"],
)
def test_results_that_strands_puts_aside_are_restored_as_they_are_shown(
    both: Stores, settings: dict[str, Any], again: dict[str, Any], is_logged_whole: bool
) -> None:
    def reply(messages: Any) -> Any:
        is_answered = "toolResult" in messages[-1]["content"][0]
        return "done" if is_answered else [tool_use(f"c{len(messages)}", "catalogue")]

    live = both.agent(ScriptedModel(reply), tools=[catalogue], **settings)
    live("all of them")
    live("again")
    restored = both.agent(tools=[catalogue], **again)
    assert len(str(live.messages)) < 60_000
    assert (len(str(list(live._session_manager.history()))) > 60_000) is is_logged_whole
    assert same(restored.messages, live.messages)
