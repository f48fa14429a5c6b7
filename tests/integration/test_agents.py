"""``MangaMemory`` builds agents: checked settings, merged arguments, and closing."""

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from strands import Agent
from strands.agent.conversation_manager import NullConversationManager
from strands.hooks import BeforeModelCallEvent
from strands.plugins import Plugin
from strands.session import FileSessionManager

from strands_manga_memory import (
    ConversationScope,
    HistoryRecall,
    ImportanceWeightedConversationManager,
    InstructionFiles,
    MangaMemory,
    MangaMemorySettings,
    PromptCacheMonitor,
    StoreUnavailableError,
    TieredSessionManager,
    VerifiedSummarizingConversationManager,
)
from strands_manga_memory.messages import is_turn_start
from strands_manga_memory.prompt import StableTexts
from strands_manga_memory.state import coordinator_of
from strands_manga_memory.testing import ScriptedModel
from tests.support import stub_tool


class Mine(Plugin):
    """A plugin of the user's own."""

    name = "mine"


def test_a_session_that_cannot_be_saved_does_not_keep_close_from_the_others(
    memory: MangaMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    managers = [memory.session(ConversationScope("u1", session)) for session in ("s1", "s2", "s3")]
    asked: list[TieredSessionManager] = []

    def refuse(manager: TieredSessionManager) -> None:
        asked.append(manager)
        raise StoreUnavailableError("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(TieredSessionManager, "close", refuse)
        with pytest.raises(StoreUnavailableError, match="no answer"):
            memory.close()
    assert set(asked) == set(managers)


def test_known_options_are_those_that_constructors_take() -> None:
    from strands_manga_memory.assembly import agent_parts as known

    manager = inspect.signature(TieredSessionManager).parameters
    assert set(known.SessionSettings.__annotations__) == set(manager) - {
        "session_id",
        "hot",
        "durable",
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"flush_evry": 3}, r"Unknown setting 'flush_evry'\. Did you mean 'flush_every'\?$"),
        ({"flush_every": 0}, "flush_every must be a positive whole number, got 0"),
        ({"refresh": "tun"}, "refresh must be one of 'never', 'turn', got 'tun'"),
        ({"max_tokens": 3}, r"'max_tokens'. It belongs to memory.agent\(model, ..., max_tokens="),
        ({"system_prompt": ""}, r"It belongs to memory.agent\(model, ..., system_prompt=...\)$"),
        ({"max_token": 3}, r"Unknown setting 'max_token'\. Did you mean 'max_tokens'\?$"),
        ({"memorys": True}, r"Unknown setting 'memorys'\. Did you mean 'memories'\?$"),
        (
            {"create_table": True},
            r"Unknown setting 'create_table'\. Did you mean 'create_tables'\?$",
        ),
        ({"memories": True, "sink": 5}, "sink must be memory.PreferenceSink or None, got 5"),
        ({"environment": 5}, "environment must be a function that takes a scope, got 5"),
        ({"defaults": 5}, "defaults must be MangaMemorySettings or None, got 5"),
    ],
)
def test_settings_are_checked_before_opening(
    tmp_path: Path, given: dict[str, Any], message: str
) -> None:
    path = tmp_path / "s.db"
    with pytest.raises(ValueError, match=message):
        MangaMemory.open(durable=f"sqlite:///{path}", **given)
    assert not path.exists()


def test_agent_is_built_for_a_scope_or_for_its_ids(memory: MangaMemory) -> None:
    """Both name the same conversation; the ids of two calls must not be mixed."""
    scope = ConversationScope("u", "s", "orders", tenant="t")
    agent = memory.agent(ScriptedModel(["Noted."]), scope=scope)
    agent("hello")
    again = memory.agent(
        ScriptedModel(), user_id="u", session_id="s", agent_id="orders", tenant="t"
    )
    assert agent.agent_id == again.agent_id == "orders"
    assert len(again.messages) == 2
    assert memory.agent(ScriptedModel(), scope=ConversationScope("u", "s")).agent_id == "default"
    wrong: Any = "u/s"
    for given, message in (
        (
            {"scope": scope, "user_id": "u", "tenant": "t"},
            "scope has every id already: leave out user_id, tenant, or scope",
        ),
        (
            {"session_id": "s"},
            r"user_id must be given, or scope=ConversationScope\(user_id, session_id\)",
        ),
        ({}, "user_id and session_id must be given"),
        ({"scope": wrong}, r"scope must be (a )?ConversationScope.*, got 'u/s'"),
    ):
        with pytest.raises(ValueError, match=message):
            memory.agent(ScriptedModel(), **given)


def test_methods_with_io_have_an_asynchronous_form(memory: MangaMemory) -> None:
    """They do the same off the event loop, with the same arguments."""
    methods = {
        name
        for name, value in vars(MangaMemory).items()
        if inspect.isfunction(value) and not name.startswith("_")
    }
    without_io = {"changes", "finalizer", "guard", "session", "stats", "storage", "sweeper", "user"}
    blocking = {
        name
        for name in methods - without_io
        if not inspect.iscoroutinefunction(getattr(MangaMemory, name))
    }
    assert {f"{n}_async" for n in blocking} == {n for n in methods if n.endswith("_async")}

    async def go() -> None:
        scope = ConversationScope("u", "s")
        model = ScriptedModel(lambda _: "Noted.")
        agent = await memory.agent_async(model, scope=scope)
        await agent.invoke_async("My favorite genre is horror.")
        assert (await memory.export_user_async("u"))["user_id"] == "u"
        assert await memory.finalize_async(scope) is not None
        for source in await memory.explain_async(agent):
            await memory.retract_async(source)
        assert (await memory.forget_user_async("u")).complete
        await memory.close_async()

    asyncio.run(go())


def test_a_setting_of_one_agent_is_checked_too(memory: MangaMemory) -> None:
    wrong: dict[str, Any] = {"flush_evry": 3}
    for session in (True, False):
        with pytest.raises(ValueError, match="Did you mean 'flush_every'"):
            memory.agent_kwargs(user_id="u", session_id="s", session=session, **wrong)
    with pytest.raises(ValueError, match="Did you mean 'flush_every'"):
        memory.session("s", **wrong)
    with pytest.raises(
        ValueError, match=r"Unknown setting 'systm_prompt'\. Did you mean 'system_prompt'\?"
    ):
        memory.agent(ScriptedModel(), user_id="u", session_id="s", systm_prompt="")
    for build in (memory.agent_kwargs, memory.agent):
        with pytest.raises(
            ValueError, match=r"Unknown setting 'max_turn'\. Did you mean 'max_turns'\?"
        ):
            build(user_id="u", session_id="s", max_turn=3)
        with pytest.raises(
            ValueError, match=r"Unknown setting 'tennant'\. Did you mean 'tenant'\?"
        ):
            build(user_id="u", session_id="s", tennant="t")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"history": "all"},
            "history must be one of 'importance', 'summarize', 'compact' or None, got 'all'",
        ),
        ({"history": "summarize", "summary_schedule": "inline"}, "summary_schedule"),
        ({"max_turns": 0}, "max_turns must be 1 to 10,000 turns, got '0'"),
        ({"instructions": "AGENT.md"}, "instructions must be True, False or InstructionFiles"),
        ({"cache_monitor": True}, "cache_monitor must be a PromptCacheMonitor or None, got True"),
        ({"task_state": "on"}, "task_state must be True or False or a mapping or None, got 'on'"),
    ],
)
def test_a_wrong_part_is_refused(memory: MangaMemory, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        memory.agent_kwargs(user_id="u", session_id="s", **given)


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("recall", lambda memory,
            text: memory.agent_kwargs(user_id="u", session_id="s", recall=text)),
        ("session", lambda memory,
            text: memory.agent_kwargs(user_id="u", session_id="s", session=text)),
        ("task_state", lambda memory,
            text: memory.agent_kwargs(user_id="u", session_id="s", task_state=text)),
    ],
)  # fmt: skip
def test_text_for_a_boolean_is_refused(
    memory: MangaMemory, name: str, build: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in ("no", "false", "yes"):
        with pytest.raises(ValueError, match=rf"^{name} must be (?i:true)( or|, ).*, got '{text}'"):
            build(memory, text)
    monkeypatch.setenv("MANGA_MEMORY_RECALL", "YES")
    assert MangaMemorySettings.from_env().recall is True


def test_what_reads_or_ends_a_session_takes_its_scope(memory: MangaMemory) -> None:
    calls: list[Callable[[Any], object]] = [
        memory.finalize,
        memory.disconnected,
        memory.history,
        lambda scope: memory.fork(scope, 1, session_id="t"),
        lambda scope: memory.rewind(scope, 1),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"scope must be (a )?ConversationScope.*, got 's'"):
            call("s")


@pytest.mark.parametrize("history", ["importance", "summarize", "compact"])
def test_a_history_keeps_so_many_turns_at_most(memory: MangaMemory, history: Any) -> None:
    model = ScriptedModel(lambda _: "Noted.")
    agent = memory.agent(model, user_id="u", session_id=history, history=history, max_turns=4)
    for number in range(12):
        agent(f"Note number {number} of my list.")
    assert all(sum(map(is_turn_start, request.messages)) <= 5 for request in model.requests)
    assert "number 11" in str(model.requests[-1].messages)


def test_an_agent_has_instruction_files_and_a_monitor(memory: MangaMemory, tmp_path: Path) -> None:
    (tmp_path / "AGENT.md").write_text("Answer in haiku.")
    files, monitor = InstructionFiles([tmp_path], allow=[tmp_path]), PromptCacheMonitor()
    for session, state in (("s", False), ("t", True)):
        model = ScriptedModel()
        agent = memory.agent(
            model,
            user_id="u",
            session_id=session,
            task_state=state,
            instructions=files,
            cache_monitor=monitor,
        )
        agent("hello")
        (tmp_path / "AGENT.md").write_text("Answer in prose.")
        agent("again")  # it was read once
        sent = [str(request.system_prompt_content) for request in model.requests]
        assert sent[0] == sent[1]
        assert sent[0].count("Answer in haiku.") == (session == "s")
    assert monitor.stats()["calls"] == 4
    assert monitor.stats()["prefix_stability"] == 1.0


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("conversation_manager", ImportanceWeightedConversationManager),
        ("conversation_manager", VerifiedSummarizingConversationManager),
        ("plugins", lambda: [HistoryRecall()]),
        ("plugins", lambda: [StableTexts(InstructionFiles())]),
    ],
    ids=["importance", "summaries", "recall", "instructions"],
)
def test_a_part_serves_one_agent(name: str, part: Callable[[], Any]) -> None:
    given = {name: part()}
    Agent(model=ScriptedModel(), **given)
    with pytest.raises(ValueError, match=r"give each agent its own|already serves an agent"):
        Agent(model=ScriptedModel(), **given)


@pytest.mark.parametrize("in_one_call", [True, False])
def test_an_agent_takes_what_its_user_brings(memory: MangaMemory, in_one_call: bool) -> None:
    look = stub_tool("look", "seen")
    seen: list[str] = []

    def hook(event: BeforeModelCallEvent) -> None:
        seen.append("asked")

    asked: dict[str, Any] = {
        "user_id": "u",
        "session_id": "s",
        "agent_id": "librarian",
        "recall": True,
        "task_state": True,
        "flush_every": 1,
        "system_prompt": "Be kind.",
        "plugins": [Mine()],
        "hooks": [hook],
        "tools": [look],
        "state": {"basket": 1},
    }
    model = ScriptedModel(["はい"])
    agent = (
        memory.agent(model, **asked)
        if in_one_call
        else Agent(model=model, **memory.agent_kwargs(**asked))
    )
    agent("こんにちは")
    assert seen == ["asked"]
    assert agent.agent_id == "librarian"
    assert agent.system_prompt == "Be kind."
    assert agent.state.get("basket") == 1
    assert "look" in agent.tool_names
    assert coordinator_of(agent) is not None
    assert "mine" in agent._plugin_registry._plugins
    assert isinstance(agent.conversation_manager, ImportanceWeightedConversationManager)
    memory.close()
    again = memory.agent(ScriptedModel(), user_id="u", session_id="s", agent_id="librarian")
    assert again.messages == agent.messages


def test_what_is_given_takes_the_place_of_ours(memory: MangaMemory, tmp_path: Path) -> None:
    theirs = FileSessionManager("s", storage_dir=str(tmp_path))
    null = NullConversationManager()
    agent = memory.agent(
        ScriptedModel(),
        user_id="u",
        session_id="s",
        session_manager=theirs,
        conversation_manager=null,
    )
    assert agent._session_manager is theirs
    assert agent.conversation_manager is null
    # No warning.
    auto = memory.agent(ScriptedModel(), user_id="u", session_id="t", context_manager="auto")
    assert auto.context_manager is not None


def test_it_closes_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with MangaMemory.open(durable="sqlite:///a.sqlite3") as memory:
        agent = memory.agent(ScriptedModel(), user_id="u", session_id="s")
        agent("hello")
        assert repr(memory) == "MangaMemory(hot=memory://, durable=sqlite:///a.sqlite3)"
    with MangaMemory.open(durable="sqlite:///a.sqlite3") as memory:
        assert memory.agent(ScriptedModel(), user_id="u", session_id="s").messages == agent.messages


async def test_it_closes_itself_on_an_event_loop(tmp_path: Path) -> None:
    async with MangaMemory.open(durable=f"sqlite:///{tmp_path}/a.sqlite3") as memory:
        agent = memory.agent(ScriptedModel(), user_id="u", session_id="s")
        await agent.invoke_async("hello")
    async with memory:
        assert memory.agent(ScriptedModel(), user_id="u", session_id="s").messages == agent.messages


def test_urls_stand_for_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def built() -> Agent:
        manager = TieredSessionManager("s1", hot="memory://", durable="sqlite:///x.sqlite3")
        return Agent(model=ScriptedModel(), session_manager=manager)

    agent = built()
    agent("hello")
    assert (tmp_path / "x.sqlite3").exists()
    assert built().messages == agent.messages
    one, other = (TieredSessionManager(name, durable="sqlite:///x.sqlite3") for name in ("a", "b"))
    assert one._tiers.durable is other._tiers.durable
    assert one._tiers.writer is other._tiers.writer
    with pytest.raises(ValueError, match="names no table"):
        TieredSessionManager("s", durable="file:///x")


def test_a_summary_is_due_well_below_the_models_window(memory: MangaMemory) -> None:
    small = ScriptedModel()
    small.update_config(context_window_limit=8_000)
    for asked, trigger in (
        ({}, 3_906),
        ({"max_tokens": 4_096}, 4_096),
        ({"max_tokens": 3_000}, 4_000),
    ):
        agent = memory.agent(small, user_id="u", session_id="s", history="summarize", **asked)
        manager: Any = agent.conversation_manager
        assert manager.trigger_tokens == trigger
        assert manager.hard_tokens < 8_000
