"""state: cost of keeping and rendering the state, savings by archives, and the prefix."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any
from unittest import mock

from strands import Agent, tool
from strands.agent.conversation_manager import NullConversationManager
from strands.agent.state import AgentState
from strands.hooks import AfterInvocationEvent, BeforeInvocationEvent, MessageAddedEvent
from strands.middleware import InvokeModelContext

from strands_manga_memory import (
    ConversationScope,
    DialogueSlot,
    ImportanceWeightedConversationManager,
    InMemoryHotStore,
    StateCoordinator,
    TieredSessionManager,
)
from strands_manga_memory.language import SHOP
from strands_manga_memory.messages.injection import CONTEXT_TAG
from strands_manga_memory.messages.texts import estimate_tokens
from strands_manga_memory.session import session_agent
from strands_manga_memory.state import recorder
from strands_manga_memory.stores import HotWrite, WriteStatus
from strands_manga_memory.testing import ScriptedModel
from tests.benchmarks import progress, text
from tests.lines import rows

BUDGETS: dict[str, str | float] = {
    "update_and_injection_of_a_model_call_ms": "< 0.2",
    "archive_of_50_executions_ms": "< 10",
    "archive_smaller_by": ">= 0.9",
    "three_goals_smaller_by": ">= 0.4",
    "three_goals_tokens": "<= 12000",
    "three_goals_findings_lost": "== 0",
    "entity_precision": ">= 0.9",
    "entity_recall": ">= 0.8",
    "prefix_stability": "== 1",
    # With the record's list of the newest turns and its head, which each save of a session writes.
    "bytes_of_a_turn_at_200_messages": "<= 4096",
    "bytes_of_a_turn_with_a_tool_beside_its_messages": "<= 2560",
    "history_bytes_of_injections": "== 0",
}

_TURNS = 300
_SLOTS = (
    DialogueSlot(name="volume", question="Which volume?", entity="volume"),
    DialogueSlot(name="format", question="Paper or digital?", allowed=("paper", "digital")),
)


def run() -> dict[str, float]:
    """Measure."""
    return {
        **_call(),
        **_measure_hooks(),
        **_archive(),
        **_three_goals(),
        **_entities(),
        **_prefix(),
        **_bytes(),
    }


# --- Time -----------------------------------------------------------------------------------------


@contextmanager
def _clocked(owner: type, names: tuple[str, ...], spent: list[float]) -> Iterator[None]:
    """Add the processor milliseconds of methods to the last number of ``spent``."""
    originals = {name: getattr(owner, name) for name in names}

    def clocked(original: Callable[..., Any]) -> Callable[..., Any]:
        def sync(*args: Any, **named: Any) -> Any:
            start = time.thread_time()
            try:
                return original(*args, **named)
            finally:
                spent[-1] += 1000 * (time.thread_time() - start)

        async def waited(*args: Any) -> Any:
            start = time.thread_time()
            try:
                return await original(*args)
            finally:
                spent[-1] += 1000 * (time.thread_time() - start)

        return waited if asyncio.iscoroutinefunction(original) else sync

    for name, original in originals.items():
        setattr(owner, name, clocked(original))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(owner, name, original)


@tool
def get_stock(asin: str) -> str:
    """Say how many are in stock.

    Args:
        asin: The product.
    """
    return f"{asin}: 3 in stock, 1,200 yen"


def _shop(messages: list[dict[str, Any]]) -> Any:
    last = messages[-1]["content"]
    if any("toolResult" in block for block in last):
        return "There are three left, and it ships tomorrow."
    if "stock" not in last[-1]["text"]:  # the state precedes the words of the user
        return (
            "It is the story of two brothers who keep a lighthouse, and of what they find in its"
            " cellar."
        )
    return [
        {
            "toolUse": {
                "toolUseId": f"t{len(messages)}",
                "name": "get_stock",
                "input": {"asin": "B07X1234"},
            }
        }
    ]


_SAID = (
    "Is volume {} of “Harbor Lights” in stock?",
    "What is it about?",
    "Is it still in stock as a paperback?",
    "I would rather have it as a present for my sister, she likes slow stories.",
)
"""User messages, used in rotation.
A request for the stock makes two model calls, the others one.
"""

_STRANDS = ((AgentState, ("set",)), (InvokeModelContext, ("replace",)))
"""Methods of Strands that hooks and injection call.
They copy and check values of the state, and copy the request.
"""

_HOOKS = (
    "_turn_begins",
    "_message_added",
    "_model_answered",
    "_tool_begins",
    "_tool_ended",
    "_turn_ended",
)


def _call() -> dict[str, float]:
    """Hold a conversation, and measure every hook and injection."""
    return {
        "update_and_injection_of_a_model_call_ms": _hold_conversation(
            (recorder.Recorder, _HOOKS), (StateCoordinator, ("_with_state",))
        ),
        "of_that_in_strands_own_code_ms": _hold_conversation(*_STRANDS),
    }


def _hold_conversation(*clocked: tuple[type, tuple[str, ...]]) -> float:
    """Hold the conversation, and return the time of these methods per model call."""
    spent: list[float] = [0.0]
    with ExitStack() as stack:
        for owner, names in clocked:
            stack.enter_context(_clocked(owner, names, spent))
        coordinator = StateCoordinator(
            intents={"reorder": _SLOTS},
            tool_timeout_ms=None,
            hot=InMemoryHotStore(),
            scope=_scope(),
        )
        agent = Agent(
            model=ScriptedModel(_shop),
            tools=[get_stock],
            plugins=[coordinator],
            callback_handler=None,
        )
        coordinator.dialogue.set_intent("reorder")
        coordinator.goals.set("reorder what the user read last")

        async def hold() -> None:
            for number in progress(range(_TURNS), f"{_TURNS} turns with state"):
                del agent.messages[:-8]
                spent.append(0.0)
                await agent.invoke_async(_SAID[number % len(_SAID)].format(number))
                agent.model.requests.clear()  # type: ignore[attr-defined]

        asyncio.run(hold())
    cycle, calls = len(_SAID), sum("stock" in said for said in _SAID) + len(_SAID)
    cycles = [
        sum(spent[at : at + cycle]) / calls
        for at in range(1 + 10 * cycle, len(spent) - cycle + 1, cycle)
    ]
    return median(cycles)


def _measure_hooks() -> dict[str, float]:
    """Measure the hooks of a turn with one model call, without other work."""
    coordinator = StateCoordinator(
        intents={"reorder": _SLOTS}, hot=InMemoryHotStore(), scope=_scope()
    )
    agent = Agent(model=ScriptedModel(), plugins=[coordinator], callback_handler=None)
    coordinator.dialogue.set_intent("reorder")
    coordinator.goals.set("reorder what the user read last")
    hooks, taken = coordinator._recorder, []
    answer = _shop([{"content": [{"text": "What is it about?"}]}])

    async def hold() -> None:
        for number in range(2_000):
            said, told = (
                MessageAddedEvent(
                    agent,
                    {"role": role, "content": [{"text": words}], "tracking_id": f"{role}{number}"},
                )  # type: ignore[arg-type, typeddict-unknown-key]
                for role, words in (
                    ("user", _SAID[number % len(_SAID)].format(number)),
                    ("assistant", answer),
                )
            )
            start = time.thread_time()
            await hooks._turn_begins(BeforeInvocationEvent(agent))
            hooks._message_added(said)
            coordinator.to_agent_context()
            hooks._message_added(told)
            hooks._turn_ended(AfterInvocationEvent(agent))
            taken.append(1000 * (time.thread_time() - start))

    asyncio.run(hold())
    return {"the_same_without_an_agent_around_it_ms": median(taken)}


def _scope() -> ConversationScope:
    return ConversationScope("u1", "s1")


# --- Archives -------------------------------------------------------------------------------------


def _work(coordinator: StateCoordinator, calls: int) -> int:
    """Have a goal call tools; return the characters of the tools' inputs and results."""
    size = 0
    for number in range(calls):
        id_, given, failed = (
            f"t{number}",
            {"asin": f"B07X{number:04}", "country": "JP"},
            number % 9 == 8,
        )
        answer = f"Timeout after {number} ms" if failed else text(300)
        length = len(json.dumps(given)) + len(answer)
        coordinator.task.begin_call(id_, ("get_stock", "search", "price")[number % 3], given)
        coordinator.task.end_call(id_, ok=not failed, text=answer, ms=12.0, size=length)
        size += length
    return size


def _archive() -> dict[str, float]:
    taken, kept, raw = [], 0, 0
    for _ in range(20):
        coordinator = StateCoordinator()
        coordinator.goals.set("find out which volumes can be had")
        raw = _work(coordinator, 50)
        start = time.perf_counter()
        archive = coordinator.goals.complete("volumes 1 to 4 are in stock")
        taken.append(1000 * (time.perf_counter() - start))
        kept = len(archive.model_dump_json(exclude_defaults=True))
    return {"archive_of_50_executions_ms": median(taken), "archive_smaller_by": 1 - kept / raw}


def _three_goals() -> dict[str, float]:
    coordinator = StateCoordinator()
    found = {
        50: "volume 4 is sold out",
        75: "the box set is cheaper",
        30: "delivery takes two days",
    }
    raw = 0
    for calls, outcome in found.items():
        coordinator.goals.set(f"a goal of {calls} operations")
        raw += _work(coordinator, calls)
        coordinator.task.add_finding(outcome)
        coordinator.goals.complete()
    told, stored = coordinator.to_agent_context(), coordinator.goals.stored()
    return {
        "three_goals_smaller_by": 1 - len(stored) / raw,
        "three_goals_tokens": float(estimate_tokens(stored)),
        "three_goals_findings_lost": float(sum(outcome not in told for outcome in found.values())),
    }


# --- Entities -------------------------------------------------------------------------------------


def _entities() -> dict[str, float]:
    right = found = wanted = 0
    for line, gold in rows("entities"):
        entities = Counter((entity.type, entity.value) for entity in SHOP.find(line))
        right += sum((entities & Counter(map(tuple, gold))).values())
        found += sum(entities.values())
        wanted += len(gold)
    return {"entity_precision": right / found, "entity_recall": right / wanted}


# --- The prefix, and what is stored ---------------------------------------------------------------


def _prefix() -> dict[str, float]:
    """Change the state in each of 50 turns, and compare the model's requests."""
    coordinator = StateCoordinator(intents={"reorder": _SLOTS})
    model = ScriptedModel(_shop)
    agent = Agent(
        model=model,
        tools=[get_stock],
        system_prompt="You sell books.",
        plugins=[coordinator],
        conversation_manager=NullConversationManager(),
        callback_handler=None,
    )
    for number in range(50):
        coordinator.dialogue.set_intent(f"intent {number}")
        coordinator.goals.set(f"goal {number}")
        agent(f"Is volume {number + 1} in stock?")
    same, before = 0, ""
    for request in model.requests:
        messages = [
            {
                **message,
                "content": [
                    block
                    for block in message["content"]
                    if CONTEXT_TAG not in block.get("text", "")
                ],
            }
            for message in request.messages
        ]
        static = [request.system_prompt, request.system_prompt_content, request.tool_specs]
        now = json.dumps([static, messages])[:-2]  # without what closes the lists
        same += now.startswith(before)
        before = now
    injected = sum("<conversation_state>" in json.dumps(message) for message in agent.messages)
    return {
        "prefix_stability": same / len(model.requests),
        "history_bytes_of_injections": float(injected),
    }


class _WeighingStore(InMemoryHotStore):
    """Hot store that sums the bytes of its writes, and those of new messages."""

    survives_process = True

    def __init__(self) -> None:
        super().__init__()
        self.weighed = self.messages = 0

    def write(self, conversation: str, write: HotWrite) -> WriteStatus:
        sizes = {name: len(name) + len(value) for name, value in write.fields.items()}
        self.weighed += sum(sizes.values())
        self.messages += sum(size for name, size in sizes.items() if re.fullmatch(r"m\d+", name))
        return super().write(conversation, write)


def _bytes() -> dict[str, float]:
    """Measure the bytes of turns at 200 messages beyond texts, and with a tool call."""
    # On a busy machine, turns would also store their questions before they end.
    with mock.patch.object(session_agent, "_PENDING_SECONDS", 60.0):
        spoken, with_tools = _weigh(lambda _: text(200)), _weigh(_shop)
    return {
        "bytes_of_a_turn_at_200_messages": spoken.weighed / 10 - 350,
        "bytes_of_a_turn_with_a_tool_beside_its_messages": (
            (with_tools.weighed - with_tools.messages) / 10
        ),
    }


def _weigh(reply: Callable[[list[dict[str, Any]]], Any]) -> _WeighingStore:
    """Hold 110 turns, and measure the bytes of the last ten."""
    hot = _WeighingStore()
    coordinator = StateCoordinator(intents={"reorder": _SLOTS})
    manager = TieredSessionManager(_scope(), hot=hot)
    agent = Agent(
        model=ScriptedModel(reply),
        tools=[get_stock],
        session_manager=manager,
        conversation_manager=ImportanceWeightedConversationManager(),
        plugins=[coordinator],
        agent_id="default",
        callback_handler=None,
    )
    coordinator.dialogue.set_intent("reorder")
    coordinator.goals.set("reorder")
    _work(coordinator, 20)
    for number in range(110):
        if number == 100:
            hot.weighed = hot.messages = 0
        agent(f"Is volume {number + 1} of “Harbor Lights” in stock? {text(100)}")
    return hot
