"""A summary run belongs to the conversation: it goes on when the agent that began it is gone."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from strands import Agent
from strands.session import FileSessionManager

from strands_manga_memory import (
    MangaMemory,
    TieredCompactionConversationManager,
    VerifiedSummarizingConversationManager,
)
from strands_manga_memory.conversation import SummaryTrigger, VerifiedSummary
from strands_manga_memory.testing import ScriptedModel
from tests.histories import problems

_PROSE = "The user asked about several series, and the assistant answered."
_TURNS = 40


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[MangaMemory]:
    """A memory without user memories: summarizers that wait must not extract preferences."""
    with MangaMemory.open(durable=f"sqlite:///{tmp_path}/s.db") as opened:
        yield opened


class _Summarizer(ScriptedModel):
    """A model that writes the same prose, as soon as ``is_allowed`` is set."""

    def __init__(self) -> None:
        self.is_allowed = threading.Event()
        super().__init__(self._write)

    def _write(self, _: Any) -> str:
        self.is_allowed.wait(30)
        return _PROSE

    def finish(self) -> None:
        """Let the summaries that are being written end, and wait for them."""
        self.is_allowed.set()
        for thread in threading.enumerate():
            if thread.name == "strands-manga-memory-summary":
                thread.join(30)
        self.is_allowed.clear()


def _talk(
    build: Callable[[], Agent], name: str, summarizer: _Summarizer, *, for_each: bool
) -> list[str]:
    """Hold a conversation with one agent, or one per request; return the requests as texts.

    Each summary is finished after the second turn of a pair, so that the number of summaries does
    not depend on the machine.
    """
    requests: list[str] = []
    agent = build()
    for number in range(_TURNS):
        agent = build() if for_each else agent
        agent(
            f"{name} {number}: does my friend Name{number}x like volume {number}? "
            + "Tell me more about it please. " * 10
        )
        model: Any = agent.model
        requests.append(json.dumps(model.requests[-1].messages))
        assert problems(model.requests[-1].messages) == []
        if number % 2:
            summarizer.finish()
    return requests


def _model() -> ScriptedModel:
    model = ScriptedModel(lambda _: "It is in stock. " * 10, usage=lambda _: 0)
    model.update_config(context_window_limit=8_000)
    return model


def _builder(
    kind: str, memory: MangaMemory, folder: Path, name: str, summarizer: Any
) -> Callable[[], Agent]:
    model = _model()

    def build() -> Agent:
        if kind == "memory.agent":
            return memory.agent(
                model,
                user_id="u",
                session_id=name,
                history="summarize",
                max_tokens=1_500,
                aux_model=summarizer,
            )
        manager: Any
        if kind == "files":
            manager = VerifiedSummarizingConversationManager(
                SummaryTrigger(tokens=3_000), model=summarizer
            )
        else:
            manager = TieredCompactionConversationManager(
                [VerifiedSummary(model=summarizer)], window=6_000
            )
        session = FileSessionManager(name, storage_dir=str(folder))
        return Agent(model=model, conversation_manager=manager, session_manager=session)

    return build


@pytest.mark.parametrize(
    "kind",
    [
        "memory.agent",
        *(pytest.param(kind, marks=pytest.mark.long) for kind in ("files", "compaction")),
    ],
)
def test_rebuilt_agent_summarizes_like_a_live_one(
    kind: str, memory: MangaMemory, tmp_path: Path
) -> None:
    """The summarizer is called as often, and the summary is shown."""
    calls, shown = {}, {}
    for for_each in (False, True):
        summarizer = _Summarizer()
        # Or the drafts of one conversation would do for the other.
        name = "Request" if for_each else "Question"
        build = _builder(kind, memory, tmp_path, name, summarizer)
        requests = _talk(build, name, summarizer, for_each=for_each)
        calls[for_each] = len(summarizer.requests)
        shown[for_each] = sum(_PROSE in request for request in requests)
        assert [number for number in range(_TURNS) if f"Name{number}x" not in requests[-1]] == []
    assert 0 < calls[True] <= calls[False]
    assert shown[True] >= shown[False] - 3 > 0


def test_message_redacted_while_it_is_summarized_does_not_return(memory: MangaMemory) -> None:
    """A summary whose messages have changed since an earlier agent began it is not used."""
    is_redacted = threading.Event()

    def summarize(_: Any) -> str:
        is_redacted.wait(30)
        return "The user has a friend called Kenji, who likes horror manga."

    summarizer = ScriptedModel(summarize)
    scope: Any = {"user_id": "u", "session_id": "s"}

    def build() -> Any:
        options: Any = {"history": "summarize", "max_tokens": 1_500, "aux_model": summarizer}
        return memory.agent(_model(), **scope, **options)

    agent = build()
    agent("My friend Kenji likes horror manga. " * 4)
    while not summarizer.requests:
        agent = build()
        agent("Is it in stock? " + "Tell me more about it please. " * 10)
        time.sleep(0.02)
    first = next(agent._session_manager.records())["message"]
    redacted = {**first, "content": [{"text": "[redacted]"}]}
    agent._session_manager.redact_latest_message(redacted, agent)
    is_redacted.set()
    time.sleep(0.5)
    agent = build()
    agent("And now?")
    assert "Kenji" not in json.dumps(agent.messages)


def test_warning_is_given_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The warning before a summary is given once, also where each request has its own agent."""
    trigger = SummaryTrigger(tokens=3_000)
    model = _model()
    for number in range(18):
        manager = VerifiedSummarizingConversationManager(trigger, model=_Summarizer())
        session = FileSessionManager("s", storage_dir=str(tmp_path))
        agent = Agent(model=model, conversation_manager=manager, session_manager=session)
        agent(
            f"Question {number}: is volume {number} in stock? "
            + "Tell me more about it please. " * 10
        )
        if manager.trimmer.history.tokens(agent.messages) >= 2_800:
            break
    assert caplog.text.count("will be summarized soon") == 1


@pytest.mark.parametrize(
    "reply",
    ["I cannot help with that.", pytest.param(ConnectionError("no model"), marks=pytest.mark.long)],
)
def test_failing_summarizer_rests_for_rebuilt_agents(reply: Any, memory: MangaMemory) -> None:
    """After three failed runs the summarizer is not called for a while."""
    calls = {}
    for for_each in (False, True):
        summarizer = ScriptedModel(lambda _: reply)
        name = "Request" if for_each else "Question"
        build = _builder("memory.agent", memory, Path(), name, summarizer)
        agent = build()
        for number in range(70):
            agent = build() if for_each else agent
            agent(
                f"{name} {number}: is volume {number} in stock? "
                + "Tell me more about it please. " * 10
            )
            agent.conversation_manager.finish(agent)
        calls[for_each] = len(summarizer.requests)
    assert calls[True] == calls[False] > 0
