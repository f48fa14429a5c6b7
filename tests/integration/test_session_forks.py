"""Forks, rewinds and pages of a session, with other processes, and by commands."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, ToolContext, tool
from strands.agent.conversation_manager import SlidingWindowConversationManager
from strands.types.content import Message

from strands_manga_memory import ConversationScope, MangaMemory, SQLiteTable
from strands_manga_memory.exceptions import ConflictError, StoreUnavailableError
from strands_manga_memory.state import coordinator_of
from strands_manga_memory.stores import Item
from strands_manga_memory.testing import ScriptedModel
from tests.faulty_stores import FaultyHotStore
from tests.support import run
from tests.unit.session.support import SurvivingHotStore, texts

SCOPE = ConversationScope("u1", "s1")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/s.db"


@pytest.fixture
def memory(url: str) -> Iterator[MangaMemory]:
    with MangaMemory.open(durable=url, hot_deadline=20, durable_deadline=20) as opened:
        yield opened


def build(memory: MangaMemory, scope: ConversationScope = SCOPE, **options: Any) -> Agent:
    """Return an agent of a conversation."""
    model = options.pop("model", None) or ScriptedModel(lambda _: "Noted.")
    return memory.agent(model, **vars(scope), **options)


def talk(memory: MangaMemory, *numbers: int, scope: ConversationScope = SCOPE) -> Agent:
    """Say some turns, each of which sets a key of the agent's state."""
    agent = build(memory, scope)
    for number in numbers:
        agent.state.set(f"page {number}", number)
        agent(f"question {number}")
    return agent


def said(*numbers: int) -> list[str]:
    """Return the texts of some turns."""
    return [text for number in numbers for text in (f"question {number}", "Noted.")]


def logged(memory: MangaMemory, scope: ConversationScope = SCOPE) -> list[str]:
    """Return the texts of the log."""
    return texts(list(memory.session(scope).history()))


# Forks


def test_a_fork_counts_the_turns_of_its_history(memory: MangaMemory) -> None:
    agent = build(memory, task_state=True)
    for number in (1, 2, 3):
        agent(f"question {number}")
    memory.session(SCOPE).fork(2, session_id="s2")
    fork = build(memory, ConversationScope("u1", "s2"), task_state=True)
    state = coordinator_of(fork)
    assert state.dialogue.turn_count == 2
    fork("question 4")
    assert state.dialogue.turn_count == 3


def test_fork_is_a_session_with_the_history_and_state_of_its_turn(memory: MangaMemory) -> None:
    """Unsaved turns count, the source continues, and the fork is listed."""
    agent = talk(memory, 1, 2, 3, 4)
    scope = memory.fork(SCOPE, 2, session_id="s2")
    assert scope == ConversationScope("u1", "s2")
    forked = build(memory, scope)
    assert texts(forked.messages) == said(1, 2)
    assert forked.state.get() == {"page 1": 1, "page 2": 2}
    forked("another way")
    agent("question 5")
    assert logged(memory, scope) == [*said(1, 2), "another way", "Noted."]
    assert logged(memory) == said(1, 2, 3, 4, 5)
    assert {line.session_id for line in memory.sessions("u1").sessions} == {"s1", "s2"}


def test_fork_at_the_last_turn_has_the_trimmed_history_and_all_state(memory: MangaMemory) -> None:
    """The window of the fork is that of the agent, and its log is whole."""
    agent = build(memory, max_turns=2)
    for number in range(1, 6):
        agent.state.set("page", number)
        agent(f"question {number}")
    memory.fork(SCOPE, 5, session_id="s2")
    forked = build(memory, ConversationScope("u1", "s2"), max_turns=2)
    assert texts(forked.messages) == texts(agent.messages)
    assert forked.state.get() == {"page": 5}
    assert logged(memory, ConversationScope("u1", "s2")) == said(1, 2, 3, 4, 5)


def test_changes_of_a_fork_are_newer_than_its_source(url: str, memory: MangaMemory) -> None:
    """Also for another process that read the fork before the change, and saves after it."""
    talk(memory, 1)
    for number in range(20):
        memory.session(SCOPE).set_metadata(locale=f"{number}")
    scope = memory.fork(SCOPE, 1, session_id="s2")
    with elsewhere(url) as there:
        other = build(there, scope)
        memory.session(scope).set_metadata(locale="ja")
        other("question 2")
    assert memory.session(scope).metadata()["locale"] == "ja"


def test_session_without_a_user_is_forked_by_its_manager(memory: MangaMemory) -> None:
    """Plain session ids name source and target."""
    manager = memory.session("plain")
    agent = Agent(ScriptedModel(lambda _: "Noted."), session_manager=manager)
    agent("question 1")
    agent("question 2")
    manager.fork(1, session_id="other")
    assert texts(list(memory.session("other").history())) == said(1)


def test_fork_copies_one_agent_of_a_session(memory: MangaMemory) -> None:
    """Each agent has turns of its own, so each is forked by itself, into one session."""
    orders = ConversationScope("u1", "s1", "orders")
    talk(memory, 1, 2)
    talk(memory, 7, 8, scope=orders)
    memory.fork(SCOPE, 1, session_id="s2")
    target = memory.fork(orders, 2, session_id="s2")
    assert memory.session(target).agents() == ["default", "orders"]
    assert logged(memory, target) == said(7, 8)


@pytest.mark.parametrize(
    ("at_turn", "session_id", "message"),
    [
        (0, "s2", "at_turn must be a positive whole number, got 0"),
        (4, "s2", "at_turn must be at most 3, the number of turns of the conversation, got 4"),
        ("2", "s2", "at_turn must be a whole number, got '2'"),
        (1, "", "session_id must not be empty, got ''"),
    ],
)
def test_fork_at_a_turn_that_does_not_exist_is_refused(
    memory: MangaMemory, at_turn: Any, session_id: str, message: str
) -> None:
    """The error names the turns that there are."""
    talk(memory, 1, 2, 3)
    with pytest.raises(ValueError, match=f"^{message}$"):
        memory.fork(SCOPE, at_turn, session_id=session_id)
    assert logged(memory) == said(1, 2, 3)


@pytest.mark.parametrize(
    ("at_turn", "message"),
    [
        (-1, "at_turn must be a whole number of 0 or more, got -1"),
        (4, "at_turn must be at most 3, the number of turns of the conversation, got 4"),
        ("2", "at_turn must be a whole number, got '2'"),
    ],
)
def test_rewind_to_no_such_turn_is_refused(memory: MangaMemory, at_turn: Any, message: str) -> None:
    """The error names the turns that there are."""
    talk(memory, 1, 2, 3)
    with pytest.raises(ValueError, match=f"^{message}$"):
        memory.rewind(SCOPE, at_turn)
    assert logged(memory) == said(1, 2, 3)


def test_session_without_a_turn_is_refused(memory: MangaMemory) -> None:
    """The error says that there is nothing, and begins nothing."""
    for change in (lambda: memory.fork(SCOPE, 1, session_id="s2"), lambda: memory.rewind(SCOPE, 1)):
        with pytest.raises(ValueError, match="has no turn; check the ids"):
            change()
    assert memory.sessions("u1").sessions == ()


def test_existing_session_is_not_replaced_by_a_fork(memory: MangaMemory) -> None:
    """The error names the session; after its deletion the id can be used."""
    talk(memory, 1, 2)
    target = ConversationScope("u1", "s2")
    talk(memory, 9, scope=target)
    for session_id in ("s1", "s2"):
        with pytest.raises(
            ConflictError,
            match=f"session_id '{session_id}' has a conversation .* delete that session first",
        ):
            memory.fork(SCOPE, 1, session_id=session_id)
    assert logged(memory, target) == said(9)
    memory.delete_session("u1", "s2")
    memory.fork(SCOPE, 1, session_id="s2")
    assert logged(memory, target) == said(1)


def test_async_forms_do_the_same(memory: MangaMemory) -> None:
    """On an event loop they run in a thread."""

    async def go() -> None:
        agent = build(memory)
        for number in (1, 2, 3):
            await agent.invoke_async(f"question {number}")
        target = await memory.fork_async(SCOPE, 2, session_id="s2")
        await memory.rewind_async(SCOPE, 1)
        page = await memory.history_async(target, limit=2)
        assert [record["seq"] for record in page.records] == [3, 4]
        await agent.invoke_async("again")
        assert texts(agent.messages) == [*said(1), "again", "Noted."]

    asyncio.run(go())
    assert logged(memory) == [*said(1), "again", "Noted."]


# Other processes

WRITER = """
import sys
from strands_manga_memory import MangaMemory
from strands_manga_memory.testing import ScriptedModel

with MangaMemory.open(durable=sys.argv[1]) as memory:
    model = ScriptedModel(lambda _: "Noted.")
    agent = memory.agent(model, user_id="u1", session_id="s1", callback_handler=None)
    for number in range(1, 200):
        agent(f"question {number}")
        print(number, flush=True)
        if sys.stdin.readline() == "end\\n":
            break
"""


class Writer:
    """Process that adds a turn to the session for each line that it is sent."""

    def __init__(self, url: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", WRITER, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self.turns = 0
        self.wait()

    def send(self, line: str = "go") -> None:
        """Ask for the next turn, and do not wait for it."""
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def wait(self) -> None:
        """Wait until the turn is saved."""
        self.turns = int(self._process.stdout.readline())

    def end(self) -> None:
        """Let the process close its session, and end."""
        self.send("end")
        self._process.communicate(timeout=60)
        assert self._process.returncode == 0


def test_fork_of_a_session_that_another_process_writes(url: str, memory: MangaMemory) -> None:
    """Each fork is a whole beginning of the session, and the writer loses nothing."""
    writer = Writer(url)
    for _ in range(3):
        writer.send()
        writer.wait()
    forked = []
    for number in range(1, 6):
        writer.send()
        forked.append(memory.fork(SCOPE, number if number < 4 else 3, session_id=f"fork {number}"))
        writer.wait()
    writer.end()
    assert logged(memory) == said(*range(1, writer.turns + 1))
    assert [logged(memory, s) for s in forked] == [said(1), said(1, 2), *[said(1, 2, 3)] * 3]
    assert texts(build(memory, forked[4]).messages) == said(1, 2, 3)


def elsewhere(url: str) -> MangaMemory:
    """Open the stores as another process does: with objects of its own."""
    table = SQLiteTable(url.removeprefix("sqlite:///"))
    return MangaMemory.open(durable=table, hot_deadline=20, durable_deadline=20)


def test_no_session_is_forked_while_another_deletes_it(url: str, memory: MangaMemory) -> None:
    """The log is deleted while it is read, so the fork could have a part of it."""
    talk(memory, 1, 2)
    with elsewhere(url) as there:

        class Deleting(SQLiteTable):
            def query(self, *arguments: Any, **options: Any) -> Iterator[Item]:
                rows = list(super().query(*arguments, **options))
                there.delete_session("u1", "s1")
                return iter(rows)

        table = Deleting(url.removeprefix("sqlite:///"))
        with MangaMemory.open(durable=table) as other:
            with pytest.raises(ConflictError, match="was deleted or rewound, or has expired"):
                other.fork(SCOPE, 2, session_id="copy")
            assert logged(memory, ConversationScope("u1", "copy")) == []


@pytest.mark.parametrize("others", [0, 110])
def test_rewind_while_another_process_is_idle(url: str, memory: MangaMemory, others: int) -> None:
    """Its next turn is added without a read, then it continues with all turns."""
    with elsewhere(url) as there:
        idle = talk(there, 1, 2, 3, 4)
        memory.rewind(SCOPE, 2)
        assert logged(memory) == said(1, 2)
        agent = build(memory, conversation_manager=SlidingWindowConversationManager(4))
        for _ in range(others):
            agent("question 0")
        for number in (5, 6):
            idle(f"question {number}")
    turns = [1, 2, *[0] * others, 5, 6]
    assert logged(memory) == said(*turns)
    assert texts(build(memory).messages) == said(*turns[-4:])


def test_a_turn_removed_elsewhere_in_a_tool_stays_whole(url: str, memory: MangaMemory) -> None:
    """History and log have no tool result without its call."""

    @tool
    def wait() -> str:
        """Wait for the other process."""
        session = agent._session_manager
        session.flush()
        with elsewhere(url) as other:
            other.rewind(SCOPE, 1)
        session.flush()
        return "done"

    call = [{"toolUse": {"name": "wait", "toolUseId": "t1", "input": {}}}]
    model = ScriptedModel(
        lambda messages: (
            call if messages[-1]["content"][0].get("text") == "question 2" else "Noted."
        )
    )
    agent = build(memory, model=model, tools=[wait])
    for number in (1, 2, 3):
        agent(f"question {number}")
    kinds = [next(iter(message["content"][0])) for message in agent.messages]
    assert kinds == ["text", "text", "text", "toolUse", "toolResult", "text", "text", "text"]
    assert list(memory.session(SCOPE).history()) == build(memory).messages == agent.messages


# Live agents


def test_live_agent_has_the_shortened_history_at_its_next_turn(memory: MangaMemory) -> None:
    """Messages and state are those of the turn; nothing that is said afterwards is lost."""
    agent = talk(memory, 1, 2, 3, 4)
    memory.rewind(SCOPE, 2)
    assert logged(memory) == said(1, 2)
    agent("question 9")
    assert texts(agent.messages) == said(1, 2, 9)
    assert agent.state.get() == {"page 1": 1, "page 2": 2}
    agent("question 10")
    assert logged(memory) == said(1, 2, 9, 10)
    assert texts(build(memory).messages) == said(1, 2, 9, 10)


def test_rewind_removes_the_interrupt_for_which_a_live_agent_waits(memory: MangaMemory) -> None:
    """The agent takes a new request, which Strands refuses while an interrupt is active."""

    @tool(context=True)
    def approve(tool_context: ToolContext) -> str:
        """Ask a human."""
        return str(tool_context.interrupt("approval"))

    call = {"toolUse": {"toolUseId": "a", "name": "approve", "input": {}}}
    model = ScriptedModel(["Noted.", [call], "Noted."])
    agent = build(memory, model=model, tools=[approve])
    agent("question 1")
    assert agent("question 2").stop_reason == "interrupt"
    memory.rewind(SCOPE, 1)
    agent("question 3")
    assert texts(agent.messages) == said(1, 3)
    assert logged(memory) == said(1, 3)


def test_rewind_to_no_turn_lets_the_agent_begin_again(memory: MangaMemory) -> None:
    """Messages and state are gone, for the live agent too; other agents of the session stay."""
    orders = ConversationScope("u1", "s1", "orders")
    talk(memory, 7, scope=orders)
    agent = talk(memory, 1, 2)
    memory.rewind(SCOPE, 0)
    assert logged(memory) == []
    agent("question 3")
    assert texts(agent.messages) == said(3)
    assert agent.state.get() == {}
    assert logged(memory) == said(3)
    assert logged(memory, orders) == said(7)


def test_rewind_removes_a_turn_without_an_answer(memory: MangaMemory) -> None:
    """A message between turns leaves history and log, without a placeholder."""
    agent = talk(memory, 1)
    session = agent._session_manager
    assert session is not None
    message: Message = {"role": "user", "content": [{"text": "question 2"}]}
    agent.messages.append(message)
    session.append_message(message, agent)
    session.flush()
    memory.rewind(SCOPE, 1)
    assert logged(memory) == said(1)
    agent("question 3")
    assert texts(agent.messages) == said(1, 3)
    assert logged(memory) == said(1, 3)
    assert texts(build(memory).messages) == said(1, 3)


def test_several_live_agents_of_one_conversation_are_rewound(memory: MangaMemory) -> None:
    """Every agent of the process goes on from the turn."""
    agents = [talk(memory, 1, 2), build(memory)]
    agents[1]("question 3")
    memory.rewind(SCOPE, 1)
    agents[0]("question 4")
    agents[1]("question 5")
    assert logged(memory) == said(1, 4, 5)


def test_session_in_the_middle_of_a_turn_is_not_rewound(memory: MangaMemory) -> None:
    """The error says to wait; afterwards it is possible.

    Earlier turns can be forked at any time.
    """
    refused: list[str] = []

    @tool
    def undo() -> str:
        """Undo the last turn."""
        for change in (
            lambda: memory.rewind(SCOPE, 1),
            lambda: memory.fork(SCOPE, 3, session_id="open"),
        ):
            try:
                change()
            except (ConflictError, ValueError) as error:
                refused.append(str(error))
        memory.fork(SCOPE, 2, session_id="s2")
        return "undone"

    talk(memory, 1, 2)
    calls = [{"toolUse": {"name": "undo", "toolUseId": "t1", "input": {}}}]
    model = ScriptedModel(lambda m: calls if "text" in m[-1]["content"][0] else "Noted.")
    agent = build(memory, model=model, tools=[undo])
    agent("undo it")
    assert len(refused) == 2
    assert "in the middle of a turn; call it again after its end" in refused[0]
    assert "turn 3 is still open: wait until it has ended, or choose an earlier one" in refused[1]
    assert logged(memory, ConversationScope("u1", "s2")) == said(1, 2)
    memory.rewind(SCOPE, 2)
    assert logged(memory) == said(1, 2)


@pytest.mark.parametrize("does", ["rewind", "fork"])
def test_no_turn_is_overlooked_because_a_tier_does_not_answer(url: str, does: str) -> None:
    """The hot tier alone has the turns 2 and 3, and does not answer the first read."""
    hot = FaultyHotStore(SurvivingHotStore())
    with MangaMemory.open(hot, url, hot_deadline=20, durable_deadline=20) as memory:
        talk(memory, 1, 2, 3)
        session = memory.session(SCOPE)

        def change() -> None:
            if does == "rewind":
                session.rewind(1)
            else:
                session.fork(3, session_id="s2")

        hot.fail_next()
        with pytest.raises(StoreUnavailableError):
            change()
        assert logged(memory) == said(1, 2, 3)
        change()
        if does == "rewind":
            assert logged(memory) == texts(build(memory).messages) == said(1)
        else:
            assert logged(memory, ConversationScope("u1", "s2")) == said(1, 2, 3)


def test_rewind_in_an_outage_is_safe(memory: MangaMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is repeated when they answer."""
    talk(memory, 1, 2, 3)
    with monkeypatch.context() as patch:

        def fail(*_: Any, **__: Any) -> Any:
            raise StoreUnavailableError("down")

        for method in ("get", "put", "query", "transact", "batch_write"):
            patch.setattr(memory.durable, method, fail)
        with pytest.raises(StoreUnavailableError):
            memory.rewind(SCOPE, 1)
        with pytest.raises(StoreUnavailableError):
            memory.fork(SCOPE, 1, session_id="s2")
    assert logged(memory) == said(1, 2, 3)
    memory.rewind(SCOPE, 1)
    assert logged(memory) == said(1)


def test_fork_whose_answer_was_lost_can_be_repeated(
    memory: MangaMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second call finds the fork. Another fork does not replace it, nor the session itself."""
    talk(memory, 1, 2, 3)
    put = memory.durable.put

    def put_unanswered(*args: Any, **options: Any) -> bool:
        put(*args, **options)
        raise StoreUnavailableError("the answer is lost")

    with monkeypatch.context() as patch:
        patch.setattr(memory.durable, "put", put_unanswered)
        with pytest.raises(StoreUnavailableError):
            memory.fork(SCOPE, 2, session_id="s2")
    other = memory.fork(SCOPE, 2, session_id="s2")
    assert logged(memory, other) == texts(build(memory, scope=other).messages) == said(1, 2)
    for at_turn, session_id in ((1, "s2"), (3, "s2"), (3, "s1")):
        with pytest.raises(ConflictError, match=f"'{session_id}' has a conversation"):
            memory.fork(SCOPE, at_turn, session_id=session_id)


def test_rewind_to_no_turn_can_be_repeated(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call has deleted the turns in the durable tier only."""
    hot, table = SurvivingHotStore(), SQLiteTable(url.removeprefix("sqlite:///"))

    def turns() -> list[str]:
        rows = table.query(SCOPE.storage_session_id, attributes=[])
        return [row["sk"] for row in rows if "TURN" in row["sk"]]

    with MangaMemory.open(hot, url, hot_deadline=20, durable_deadline=20) as memory:
        talk(memory, 1, 2)._session_manager.flush()
        assert len(turns()) == 2
        with monkeypatch.context() as patch:

            def fail(*_: Any, **__: Any) -> Any:
                raise StoreUnavailableError("down")

            patch.setattr(hot, "write", fail)
            with pytest.raises(StoreUnavailableError):
                memory.rewind(SCOPE, 0)
        memory.rewind(SCOPE, 0)
        memory.rewind(SCOPE, 0)
        assert turns() == []
        assert logged(memory) == texts(build(memory).messages) == []


# Pages


@pytest.mark.parametrize("limit", [1, 3, 4, 10, 100])
def test_pages_have_each_message_once_from_the_end(memory: MangaMemory, limit: int) -> None:
    """Numbers of messages and turns are those of the whole log, also while turns are added."""
    agent = talk(memory, *range(1, 9))
    whole = list(memory.session(SCOPE).records())
    found: list[dict[str, Any]] = []
    after: str | None = None
    while True:
        page = memory.history(SCOPE, limit=limit, after=after)
        assert 0 < len(page.records) <= limit
        found = [*page.records, *found]
        if (after := page.next) is None:
            break
        agent("one more")
    assert found == whole


def test_page_reads_no_more_of_a_long_log_than_it_holds(
    memory: MangaMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An early page costs as much as a late one."""
    talk(memory, *range(1, 60))._session_manager.flush()
    rows: list[int] = []
    query = memory.durable.query

    def counted(*given: Any, **named: Any) -> Iterator[Any]:
        for row in query(*given, **named):
            rows[-1] += "#TURN#" in row["sk"] and bool(named.get("reverse"))
            yield row

    monkeypatch.setattr(memory.durable, "query", counted)
    after: str | None = None
    while True:
        rows.append(0)
        page = memory.history(SCOPE, limit=10, after=after)
        if (after := page.next) is None:
            break
    assert len(rows) == 12
    assert max(rows) <= 12


def test_pages_of_large_turns_are_whole(memory: MangaMemory) -> None:
    """A turn that is split into several items counts as its messages."""
    agent = build(memory)
    for number in range(2):
        agent(f"{number} " + os.urandom(500_000).hex())
    agent._session_manager.flush()
    found: list[int] = []
    after: str | None = None
    while True:
        page = memory.history(SCOPE, limit=2, after=after)
        found = [*(record["seq"] for record in page.records), *found]
        if (after := page.next) is None:
            break
    assert found == [1, 2, 3, 4]


def test_wrong_page_is_refused(memory: MangaMemory) -> None:
    """Errors name the argument."""
    talk(memory, 1, 2)
    after = memory.history(SCOPE, limit=1).next
    with pytest.raises(ValueError, match="limit must be a positive whole number, got 0"):
        memory.history(SCOPE, limit=0)
    with pytest.raises(ValueError, match="after must be the next of an earlier page, got 'x'"):
        memory.history(SCOPE, after="x")
    memory.delete_session("u1", "s1")
    with pytest.raises(ValueError, match="begin again without it"):
        memory.history(SCOPE, after=after)
    assert memory.history(SCOPE).records == ()


# Command line


def test_commands_show_fork_and_rewind_it(url: str, memory: MangaMemory, capsys: Any) -> None:
    """Pages, a fork and a rewind from the command line, as text and as JSON."""
    talk(memory, 1, 2, 3)._session_manager.close()
    whose = ["--user", "u1", "--durable", url]
    assert run(["history", "s1", "--limit", "3", *whose]) == 0
    printed = capsys.readouterr()
    assert [line.split()[4:] for line in printed.out.splitlines()] == [
        ["assistant", "Noted."],
        ["user", "question", "3"],
        ["assistant", "Noted."],
    ]
    after = printed.err.split("--after ")[1].strip()
    assert run(["history", "s1", "--json", "--after", after, *whose]) == 0
    page = json.loads(capsys.readouterr().out)
    assert [record["seq"] for record in page["records"]] == [1, 2, 3]
    assert page["next"] is None
    assert run(["fork", "s1", "2", "--to", "s2", "--json", *whose]) == 0
    assert json.loads(capsys.readouterr().out) == {"session": "s2", "agent": "default", "turns": 2}
    assert run(["rewind", "s1", "1", "--yes", *whose]) == 0
    assert "ends with turn 1 now" in capsys.readouterr().err
    assert logged(memory) == said(1)
    assert logged(memory, ConversationScope("u1", "s2")) == said(1, 2)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["fork", "s1", "9", "--to", "s2"], 1, "at_turn must be at most 2"),
        (["fork", "s1", "1", "--to", "s1"], 1, "choose another session_id"),
        (["fork", "s9", "1", "--to", "s2"], 1, "there is no session 's9' of 'u1'"),
        (["history", "s1", "--agent", "orders"], 1, "its agents are default"),
        (["fork", "s1", "0", "--to", "s2"], 2, "greater than or equal to 1"),
        (["rewind", "s1", "1"], 1, "This cannot be undone"),
    ],
)
def test_refused_command_says_what_to_do(
    arguments: list[str], status: int, message: str, url: str, memory: MangaMemory, capsys: Any
) -> None:
    """Nothing is changed."""
    talk(memory, 1, 2)._session_manager.close()
    assert run([*arguments, "--user", "u1", "--durable", url]) == status
    assert message in " ".join(capsys.readouterr().err.split())
    assert logged(memory) == said(1, 2)


def test_command_deletes_one_session_of_a_user(url: str, memory: MangaMemory, capsys: Any) -> None:
    """Another session stays. A second deletion says that nothing is there."""
    for session_id in ("s1", "s2"):
        scope = ConversationScope("u1", session_id)
        talk(memory, 1, scope=scope)._session_manager.close()
    arguments = ["delete-session", "s1", "--user", "u1", "--durable", url]
    assert run(arguments) == 1
    assert "This cannot be undone" in capsys.readouterr().err
    assert logged(memory) == said(1)
    assert run([*arguments, "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"session": "s1", "agents": ["default"]}
    assert logged(memory) == []
    assert logged(memory, ConversationScope("u1", "s2")) == said(1)
    assert run([*arguments, "--yes"]) == 0
    assert "no agent had a conversation in 's1'" in capsys.readouterr().err


def test_command_asks_for_one_of_several_agents(url: str, memory: MangaMemory, capsys: Any) -> None:
    """The error lists them."""
    for agent_id in ("default", "orders"):
        talk(memory, 1, scope=ConversationScope("u1", "s1", agent_id))._session_manager.close()
    assert run(["history", "s1", "--user", "u1", "--durable", url]) == 2
    assert "choose one with --agent: default, orders" in " ".join(
        capsys.readouterr().err.replace("│", "").split()
    )
    assert run(["history", "s1", "--agent", "orders", "--user", "u1", "--durable", url]) == 0
