"""Squad of a process. An application needs the code of ``Shop._restore_agent``."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from agent_squad.agents import AgentOptions
from agent_squad.orchestrator import AgentSquad
from agent_squad.types import AgentSquadConfig, ConversationMessage
from strands import Agent
from strands.models import Model

from mangaassist.assistant.cases import Cases
from mangaassist.assistant.classifier import ESCALATION, ORDERS, PRODUCTS, WordClassifier
from mangaassist.assistant.roles import INTENTS, ROLES
from mangaassist.assistant.script import ScriptedAssistant
from mangaassist.assistant.servers import Servers
from mangaassist.assistant.view import MOST_MESSAGES, Watch
from mangaassist.tools import calculator, current_time
from strands_manga_memory import ConversationScope, MangaMemory
from strands_manga_memory.squad import Handoffs, SessionChatStorage, SessionStrandsAgent

BUDGET = 1_600
"""Tokens of history of each agent, up to three quarters for recalled messages.
Small, so that the panel shows evictions.
"""

OnChange = Callable[[ConversationScope, dict[str, Any]], None]


@dataclass(frozen=True)
class Piece:
    """Piece of an answer: the agent, and more text, or at the end the whole text."""

    agent: str
    text: str = ""
    answer: str | None = None


@dataclass(frozen=True)
class ChatTurn:
    """Question, agent and answer, with the question's time in milliseconds since 1970."""

    question: str
    agent: str
    answer: str
    at: int = 0


class Shop:
    """Squad of agents that share a memory.

    Args:
        memory: The stores.
        servers: The MCP servers, started.
        folder: Folder of the cases.
        model: Model of all agents. None: scripted ones.
        played_by: Name of the model on the page.
        budget: Tokens of history of each agent.
        pace: Seconds between two words of a scripted model.
        on_change: Callback that gets the scope and the view of an agent after each change.
    """

    def __init__(
        self,
        memory: MangaMemory,
        servers: Servers,
        *,
        folder: Path,
        model: Model | None = None,
        played_by: str = "scripted",
        budget: int = BUDGET,
        pace: float = 0.0,
        on_change: OnChange = lambda scope, view: None,
    ) -> None:
        self.memory = memory
        self.servers = servers
        self._model = model
        self.played_by = played_by
        self._budget = budget
        self._pace = pace
        self.on_change = on_change
        self._watches: dict[ConversationScope, Watch] = {}
        handoffs = Handoffs(memory)
        self._tools: dict[str, list[Any]] = {
            PRODUCTS: [servers.catalogue, servers.stock, calculator],
            ORDERS: [*servers.order_tools, current_time, handoffs.tool({ESCALATION: "complaints"})],
            ESCALATION: [Cases(folder / "cases").tool()],
        }
        self._storage = SessionChatStorage(memory)
        # What else Agent Squad catches, it would show to users in the words of the exception.
        config = AgentSquadConfig(
            GENERAL_ROUTING_ERROR_MSG_MESSAGE="Sorry, something went wrong. Please try again."
        )
        classifier = WordClassifier()  # type: ignore[no-untyped-call]
        self._squad = AgentSquad(config, storage=self._storage, classifier=classifier)
        for role in ROLES.values():
            options = AgentOptions(name=role.name, description=role.purpose)
            self._squad.add_agent(
                SessionStrandsAgent(
                    options, self._build, streaming=True, hot=memory.hot, handoffs=handoffs
                )
            )

    def _build(self, scope: ConversationScope) -> Agent:
        agent, self._watches[scope] = self._restore_agent(scope)
        return agent

    def _restore_agent(self, scope: ConversationScope) -> tuple[Agent, Watch]:
        """Return a restored agent of a conversation, and the object that observes it."""
        role = ROLES[scope.agent_id]
        parts = self.memory.agent_kwargs(
            **vars(scope),
            max_tokens=self._budget,
            recall=True,
            task_state={"intents": INTENTS if role is ROLES[PRODUCTS] else {}},
        )
        agent = Agent(
            model=self._model or ScriptedAssistant(role.rules, pace=self._pace),
            tools=self._tools[scope.agent_id],
            system_prompt=role.prompt,
            callback_handler=None,
            **parts,
        )
        session = parts["session_manager"]
        log = [record["message"] for record in session.records(last=MOST_MESSAGES)]
        return agent, Watch(
            agent,
            parts["conversation_manager"],
            session,
            log,
            lambda watch: self.on_change(scope, watch.view()),
        )

    async def ask(self, user: str, session: str, text: str) -> AsyncGenerator[Piece, None]:
        """Route a message, and yield the pieces of the answer, at last the whole text."""
        response = await self._squad.route_request(text, user, session, stream_response=True)
        agent, output = response.metadata.agent_id, cast("Any", response.output)
        if isinstance(output, ConversationMessage):  # no agent was reached
            yield Piece("", answer=cast("Any", output.content)[0]["text"])
            return
        scope = ConversationScope(user, session, agent)
        async for chunk in output:
            if chunk.final_message:
                watch = self._watches.pop(scope, None)
                if watch is not None:
                    self.on_change(scope, watch.view())  # saved by now
                yield Piece(agent, answer=chunk.final_message.content[0]["text"])
            elif chunk.text:
                yield Piece(agent, chunk.text)

    async def history(self, user: str, session: str) -> list[ChatTurn]:
        """Return the turns of a session, in order."""
        found: list[ChatTurn] = []
        for agent in ROLES:
            chat: Any = await self._storage.fetch_chat(user, session, agent)
            pairs = zip(
                chat[::2], chat[1::2], strict=False
            )  # the last question may have no answer yet
            found += [
                ChatTurn(
                    question.content[0]["text"],
                    agent,
                    answer.content[0]["text"],
                    question.timestamp,
                )
                for question, answer in pairs
            ]
        return sorted(found, key=lambda turn: turn.at)

    def fork(self, user: str, session: str, to: str, at: int) -> None:
        """Begin the session ``to`` with the turns up to a time in milliseconds. Blocks."""
        for scope, turn in self._turns_until(user, session, at):
            if turn:
                self.memory.fork(scope, turn, session_id=to)

    def rewind(self, user: str, session: str, at: int) -> None:
        """Delete the turns after a time in milliseconds. Blocks."""
        for scope, turn in self._turns_until(user, session, at):
            self.memory.rewind(scope, turn)

    def _turns_until(self, user: str, session: str, at: int) -> list[tuple[ConversationScope, int]]:
        """Return each agent's conversation with the number of its last turn up to a time, or 0."""
        agents = self.memory.session(ConversationScope(user, session)).agents()
        scopes = [ConversationScope(user, session, agent) for agent in agents]
        records = [self.memory.session(scope).records() for scope in scopes]
        turns = [
            max((one["turn"] for one in log if int(one["at"] * 1000) <= at), default=0)
            for log in records
        ]
        return list(zip(scopes, turns, strict=True))

    def views(self, user: str, session: str) -> dict[str, dict[str, Any]]:
        """Return the view of each agent of a session. Blocks."""
        known = self.memory.session(ConversationScope(user, session)).agents()
        scopes = [ConversationScope(user, session, agent) for agent in ROLES if agent in known]
        return {scope.agent_id: self._restore_agent(scope)[1].view() for scope in scopes}

    def known(self, user: str) -> str:
        """Return a text about the memories of a user from all sessions. Blocks."""
        return self.memory.user(user).build_agent_context()

    def memories(self, user: str, session: str) -> list[dict[str, Any]]:
        """Return the memories of a user, each with its source. Blocks."""
        found = self.memory.user(user).recall(limit=20)
        return [
            {
                "id": record.memory_id,
                "type": str(record.type),
                "text": record.content,
                "source": (
                    "this session"
                    if record.metadata.get("session_id") == session
                    else "an earlier session"
                ),
                "at": record.updated_at,
            }
            for record in found
        ]

    def delete_memory(self, user: str, memory_id: str) -> bool:
        """Delete a memory, and return whether it existed. Blocks."""
        return self.memory.user(user).forget(memory_id)

    def finish(self, user: str, session: str) -> None:
        """End a session, and store memories of it. Blocks."""
        scope = ConversationScope(user, session)
        with suppress(ValueError):
            self.memory.finalize(scope)

    def forget(self, user: str) -> bool:
        """Delete all data of a user, and return whether nothing is left. Blocks."""
        return self.memory.forget_user(user).complete
