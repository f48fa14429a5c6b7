"""A shop with Agent Squad: three agents that share one history and one memory of the user.

    uv run examples/squad.py                      # a SQLite file, no server
    uv run examples/squad.py --backend services   # a real Valkey server and a DynamoDB emulator

The classifier and the models are scripted, so nothing leaves this machine. Between the two visits
everything is closed and opened again, like a restart.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from agent_squad.agents import AgentOptions
from agent_squad.classifiers import Classifier, ClassifierResult
from agent_squad.orchestrator import AgentSquad
from agent_squad.types import AgentSquadConfig, ConversationMessage
from mangaassist import services
from strands import Agent, ToolContext, tool

from strands_manga_memory import ConversationScope, MangaMemory
from strands_manga_memory.squad import Handoffs, SessionChatStorage, SessionStrandsAgent
from strands_manga_memory.testing import ScriptedModel

STOCK = {"uzumaki": 2, "よつばと": 5}
ORDERS = {"hanako": {"17": "is three weeks late"}, "taro": {"18": "arrives on Friday"}}
SESSION = "storefront#1"

FIRST_VISIT = [
    ("hanako", "Hello! My favorite genre is horror. Is Uzumaki in stock?"),
    ("taro", "よつばと、在庫ありますか？"),
    ("hanako", "Where is my order 17?"),
    ("hanako", "That is unacceptable, I want to complain!"),
]
SECOND_VISIT = [
    ("hanako", "And now?"),
    ("taro", "Where is my order 17?"),
    ("hanako", "What else is there that I might like?"),
]


class KeywordClassifier(Classifier):
    """Classifier by words, which falls back on the last handoff or answer."""

    WORDS = (
        ("orders", r"order|注文|complain|unacceptable"),
        ("products", r"stock|在庫|manga|like"),
    )

    async def process_request(
        self, input_text: str, chat_history: list[ConversationMessage]
    ) -> ClassifierResult:
        """Return the selected agent."""
        found = next(
            (id_ for id_, words in self.WORDS if re.search(words, input_text, re.IGNORECASE)), None
        )
        if found is None and chat_history:
            last = chat_history[-1].content[0]["text"]
            named = [id_ for id_ in self.agents if id_ in last]
            found = named[-1] if named else None
        return ClassifierResult(selected_agent=self.agents[found or "products"], confidence=1.0)


@tool
def find_title(title: str) -> str:
    """Tell how many copies of a title are in stock.

    Args:
        title: The title.
    """
    return f"{STOCK.get(title.lower(), 0)} copies of {title}"


@tool(context=True)
def order_status(order_id: str, tool_context: ToolContext) -> str:
    """Tell where an order of the user is.

    Args:
        order_id: The number of the order.
    """
    user = tool_context.invocation_state["user_id"]  # from the login, never from the model
    return f"Order {order_id} {ORDERS[user].get(order_id, 'is not yours')}"


def call(name: str, **arguments: str) -> list[dict[str, Any]]:
    """Return a reply that calls a tool."""
    return [{"toolUse": {"toolUseId": f"{name}-1", "name": name, "input": arguments}}]


def products(model: ScriptedModel, text: str, result: str | None) -> Any:
    """Answer about titles, with the memories of the user."""
    if result is not None:
        return f"We have {result}."
    title = next((title for title in ("Uzumaki", "よつばと") if title in text), None)
    if title:
        return call("find_title", title=title)
    request = model.requests[
        -1
    ]  # memories are in the message of the question, so earlier turns do not matter
    context = f"{request.system_prompt_content}{request.messages[-1]}"
    genre = re.search(r"genre(?: is|:) (\w+)", context)
    return f"Some more {genre[1]}, perhaps." if genre else "What do you like to read?"


def orders(model: ScriptedModel, text: str, result: str | None) -> Any:
    """Answer about orders, and hand over complaints."""
    if result is not None:
        handed_over = result.startswith("escalation")
        return (
            "I am sorry. My colleague from escalation takes over with your next message."
            if handed_over
            else f"{result}."
        )
    number = re.search(r"\d+", text)
    if number:
        return call("order_status", order_id=number[0])
    earlier = re.findall(r"Order (\d+ [\w ]+)", str(model.requests[-1].messages))
    return call(
        "hand_over", agent_id="escalation", summary=f"Order {earlier[-1]}; the customer is angry."
    )


def escalation(model: ScriptedModel, text: str, result: str | None) -> Any:
    """Answer with the note of a handoff."""
    note = re.search(r"<handoff from=\S+>(.+)</handoff>", str(model.requests[-1].messages))
    return f"I have read it: {note[1]} You get a refund." if note else "What happened?"


class Shop:
    """Agent Squad of one process."""

    def __init__(self, memory: MangaMemory) -> None:
        self.memory = memory
        self.handoffs = Handoffs(memory)
        hand_over = self.handoffs.tool({"escalation": "complaints"})
        # For all other errors, Agent Squad shows users the text of the exception.
        config = AgentSquadConfig(
            GENERAL_ROUTING_ERROR_MSG_MESSAGE="Sorry, something went wrong. Please try again."
        )
        self.squad = AgentSquad(
            config, storage=SessionChatStorage(memory), classifier=KeywordClassifier()
        )
        for answer, tools in (
            (products, [find_title]),
            (orders, [order_status, hand_over]),
            (escalation, []),
        ):
            self.add(answer, tools)

    def add(self, answer: Any, tools: list[Any]) -> None:
        """Add an agent that answers with a function."""

        def build(scope: ConversationScope) -> Agent:
            def reply(messages: Any) -> Any:
                block = messages[-1]["content"][
                    -1
                ]  # the text of the user follows the added memories
                result = (
                    block["toolResult"]["content"][0]["text"] if "toolResult" in block else None
                )
                return answer(model, block.get("text", ""), result)

            model = ScriptedModel(reply)
            return Agent(
                model=model,
                tools=tools,
                callback_handler=None,
                **self.memory.agent_kwargs(**vars(scope)),
            )

        options = AgentOptions(name=answer.__name__.title(), description=answer.__doc__)
        agent = SessionStrandsAgent(
            options, build, streaming=True, hot=self.memory.hot, handoffs=self.handoffs
        )
        self.squad.add_agent(agent)

    async def ask(self, user: str, text: str) -> tuple[str, str]:
        """Route a message, print the streamed answer, and return the agent and its answer."""
        print(f"{user}> {text}")
        response = await self.squad.route_request(text, user, SESSION, stream_response=True)
        print(f"{response.metadata.agent_id}> ", end="")
        answer = ""
        if isinstance(response.output, ConversationMessage):  # no agent answered
            answer = response.output.content[0]["text"]
        else:
            async for chunk in response.output:
                print(chunk.text, end="", flush=True)
                if chunk.final_message:
                    answer = chunk.final_message.content[0]["text"]
        print()
        return response.metadata.agent_id, answer


async def visit(memory: MangaMemory, messages: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Run one visit of both users, each conversation in order."""
    shop = Shop(memory)
    return [await shop.ask(user, text) for user, text in messages]


def main() -> int:
    """Run both visits; return 0 if each user got their own answers."""
    parser = argparse.ArgumentParser(description="A shop behind Agent Squad.")
    parser.add_argument("--backend", choices=["embedded", "services"], default="embedded")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object on the last line"
    )
    arguments = parser.parse_args()
    answers: list[tuple[str, str]] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="squad-")))
        backend = (
            stack.enter_context(services.services(folder))
            if arguments.backend == "services"
            else services.embedded(folder)
        )
        os.environ.update(backend.environment)
        for number, messages in enumerate((FIRST_VISIT, SECOND_VISIT)):
            if number:
                print("\nafter a restart")
            memory = MangaMemory.open(backend.hot, backend.durable, memories=True)
            answers += asyncio.run(visit(memory, messages))
            memory.close()
    expected = [
        ("products", "We have 2 copies of Uzumaki."),
        ("products", "We have 5 copies of よつばと."),
        ("orders", "Order 17 is three weeks late."),
        ("orders", "I am sorry. My colleague from escalation takes over with your next message."),
        (
            "escalation",
            (
                "I have read it: Order 17 is three weeks late; the customer is angry. You get a"
                " refund."
            ),
        ),
        ("orders", "Order 17 is not yours."),
        ("products", "Some more horror, perhaps."),
    ]
    passed = answers == expected
    if arguments.json:
        print(
            json.dumps(
                {"passed": passed, "backend": backend.name, "answers": answers}, ensure_ascii=False
            )
        )
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
