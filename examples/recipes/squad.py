"""Agent Squad with two agents that store their history in sessions, separate for each user."""

from __future__ import annotations

import asyncio
from typing import Any

from agent_squad.agents import AgentOptions
from agent_squad.classifiers import Classifier, ClassifierResult
from agent_squad.orchestrator import AgentSquad
from agent_squad.types import ConversationMessage
from strands import Agent
from strands.models import Model

from strands_manga_memory import ConversationScope, MangaMemory
from strands_manga_memory.squad import SessionChatStorage, SessionStrandsAgent
from strands_manga_memory.testing import ScriptedModel

model: Model = ScriptedModel(lambda messages: f"{len(messages)}通目です。")


class ByWord(Classifier):
    """Replacement for a classifier with a model, such as Agent Squad's BedrockClassifier."""

    async def process_request(
        self, input_text: str, chat_history: list[ConversationMessage]
    ) -> ClassifierResult:
        """Return the selected agent."""
        name = "orders" if "order" in input_text else "products"
        return ClassifierResult(selected_agent=self.agents[name], confidence=1.0)


async def main() -> None:
    """Ask both agents; the next run continues the conversation."""
    async with MangaMemory.open() as memory:

        def build(scope: ConversationScope) -> Agent:
            return memory.agent(model, **vars(scope), callback_handler=None)

        squad = AgentSquad(storage=SessionChatStorage(memory), classifier=ByWord())  # type: ignore[no-untyped-call]
        for name, purpose in (
            ("Products", "Knows the catalogue."),
            ("Orders", "Knows the orders."),
        ):
            squad.add_agent(
                SessionStrandsAgent(
                    AgentOptions(name=name, description=purpose), build, hot=memory.hot
                )
            )
        for text in ("Is 寄生獣 in stock?", "Where is my order?"):
            response = await squad.route_request(text, "hanako", "s1")
            output: Any = response.output
            print(response.metadata.agent_id, output.content[0]["text"].strip())


if __name__ == "__main__":
    asyncio.run(main())
