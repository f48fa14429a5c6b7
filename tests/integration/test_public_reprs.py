"""``repr`` and HTML of public objects: useful settings, no secret, no message text."""

import importlib
import inspect
import json
import pkgutil
from pathlib import Path
from typing import Any

import pytest
import redis

import strands_manga_memory as package
from strands_manga_memory import ConversationScope, MangaMemory, PiiPolicy, StateCoordinator
from strands_manga_memory.conversation import (
    HistoryRecall,
    ImportanceWeightedConversationManager,
    ImportanceWeights,
    MicroCompaction,
    RuleScorer,
    TieredCompactionConversationManager,
    VerifiedSummarizingConversationManager,
)
from strands_manga_memory.html_tables import ReportDict, ReportList
from strands_manga_memory.prompt import InstructionFiles, PromptCacheMonitor
from strands_manga_memory.stores import AesGcmCipher, Codec, InMemoryHotStore, RedisHotStore
from strands_manga_memory.testing import ScriptedModel

SECRET = "hush-7731"
FOLDERS = [each.name for each in pkgutil.iter_modules(package.__path__) if each.ispkg]


def _names(folder: Any) -> list[str]:
    return getattr(folder, "__all__", [])  # the command line has no classes to import


def test_every_public_class_has_a_repr_of_its_own() -> None:
    folders = [importlib.import_module(f"{package.__name__}.{name}") for name in FOLDERS]
    public = [getattr(each, name) for each in (package, *folders) for name in _names(each)]
    classes = {each for each in public if inspect.isclass(each)}
    assert len(classes) > 120
    default = {each for each in classes if each.__repr__ is object.__repr__}
    assert {each for each in default if not getattr(each, "_is_protocol", False)} == set()


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        (lambda: Codec(), "Codec(encrypts=False, compress_from=1024)"),
        (lambda: HistoryRecall(512), "HistoryRecall(max_tokens=512)"),
        (lambda: ImportanceWeightedConversationManager(1_000, max_turns=20),
            "ImportanceWeightedConversationManager(max_tokens=1000, max_turns=20)"),
        (lambda: InMemoryHotStore(), "InMemoryHotStore(conversations=0)"),
        (lambda: MicroCompaction(200), "MicroCompaction(characters=200)"),
        (lambda: RuleScorer(), f"RuleScorer(weights={ImportanceWeights()!r})"),
        (lambda: InstructionFiles(["docs"]), "InstructionFiles(['docs'])"),
        (lambda: PromptCacheMonitor(lifetime=60.0), "PromptCacheMonitor(lifetime=60.0)"),
        (lambda: StateCoordinator(max_tokens=99, offer_tools=False),
            "StateCoordinator(max_tokens=99, tools=[])"),
        (lambda: TieredCompactionConversationManager([], trigger=0.7),
            "TieredCompactionConversationManager(stages=[], trigger=0.7)"),
        (lambda: VerifiedSummarizingConversationManager(),
            "VerifiedSummarizingConversationManager(trigger_tokens=8000, trigger_turns=20)"),
    ],
)  # fmt: skip
def test_repr_shows_settings(made: Any, shown: str) -> None:
    assert repr(made()) == shown


def test_repr_shows_no_secret_and_no_message(tmp_path: Path) -> None:
    cipher = AesGcmCipher({"k": SECRET.ljust(32).encode()}, current="k")
    client = redis.Redis.from_url(f"redis://me:{SECRET}@127.0.0.1:1/0")
    with MangaMemory.open(
        durable=f"sqlite:///{tmp_path}/s.db", memories=True, codec=Codec(cipher=cipher)
    ) as memory:
        agent = memory.agent(
            ScriptedModel(lambda _: "はい"),
            user_id="u1",
            session_id="s1",
            task_state=True,
            recall=True,
        )
        agent(f"My code is {SECRET}.")
        user = memory.user("u1", tenant="acme")
        user.remember(f"The code is {SECRET}.")
        objects = [
            *(memory, user, cipher, memory.codec, RedisHotStore(client),
                memory.storage(user_id="u1"), PiiPolicy(cipher=cipher)),
            *(agent.conversation_manager, *agent._plugin_registry._plugins.values()),
        ]  # fmt: skip
        assert [each for each in map(repr, objects) if SECRET in each] == []
        session = repr(agent._session_manager)
        assert session.startswith(
            "TieredSessionManager(ConversationScope(user_id='u1', session_id='s1'"
        )
        assert session.endswith("hot=None, durable=SQLiteTable, flush_every=5, refresh='never')")
        assert repr(memory.session("s1")).startswith("TieredSessionManager('s1', hot=None")
        finalizer = "SessionFinalizer(hot=None, durable=SQLiteTable)"
        assert repr(memory.finalizer()) == finalizer
        found = repr(memory.sweeper())
        assert found == f"SessionSweeper(hot=None, durable=SQLiteTable, finalizer={finalizer})"
        assert repr(user) == "UserMemoryStore(user_id='u1', tenant='acme')"
        assert repr(memory.storage(user_id="u1")).startswith(
            "TieredStorage(durable=SQLiteTable, hot=InMemoryHotStore"
        )


def test_reports_are_tables_in_a_notebook(memory: MangaMemory) -> None:
    agent = memory.agent(ScriptedModel(lambda _: "Noted."), user_id="u1", session_id="s1")
    agent("I love horror manga.")
    stats: Any = memory.stats()
    assert "<tr><th>turns</th><td>1</td></tr>" in stats._repr_html_()
    assert json.loads(json.dumps(stats["turns"])) == 1
    sources: Any = memory.explain(agent)
    assert isinstance(sources, ReportList)


def test_html_is_escaped() -> None:
    scope = ConversationScope("<b>", "s1")
    html = ReportDict({"<script>": [scope, "a & b"]})._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "<tr><th>user_id</th><td>&lt;b&gt;</td></tr>" in html
    assert "<td>a &amp; b</td>" in html
